//! Tests of the queues of values of any type.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::super::{Mpmc, Mpsc, PerSender, Spsc};
use super::*;

/// A value that counts how often it, and others of that counter, were dropped.
struct Counted<'a>(&'a AtomicUsize, u64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn each_is_dropped_once<K: QueueKind>() {
    let drops = AtomicUsize::new(0);
    let count = || drops.load(Ordering::Relaxed);
    let (sender, receiver) = owned_between_threads::<_, K>(4);
    for number in 0..4 {
        sender.send(Counted(&drops, number)).unwrap();
    }
    let unsent = sender.try_send(Counted(&drops, 4)).unwrap_err();
    assert_eq!((unsent.error, unsent.value.1, count()), (TransferError::TimedOut, 4, 0));
    drop(unsent);
    assert_eq!(receiver.receive().unwrap().1, 0);
    assert_eq!(count(), 2, "the value that was refused, and that which was received");
    drop(receiver);
    assert_eq!(count(), 5, "those that were left go with the last receiver");
    let unsent = sender.send(Counted(&drops, 5)).unwrap_err();
    assert_eq!((unsent.error, unsent.value.1), (TransferError::Disconnected, 5));
    drop((unsent, sender));
    assert_eq!(count(), 6);
}

#[test]
fn values_are_dropped_once() {
    each_is_dropped_once::<Mpmc>();
    each_is_dropped_once::<Mpsc>();
    each_is_dropped_once::<Spsc>();
    each_is_dropped_once::<PerSender>();
}

#[test]
fn values_sent_while_the_last_receiver_goes_are_dropped_once() {
    for round in 0..200 {
        let drops = AtomicUsize::new(0);
        let (sender, receiver) = owned_between_threads::<_, Mpsc>(8);
        let sent: usize = thread::scope(|scope| {
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let (sender, drops) = (sender.clone(), &drops);
                    let send = move || (0..).find(|&n| sender.send(Counted(drops, n)).is_err());
                    scope.spawn(move || 1 + send().unwrap() as usize)
                })
                .collect();
            drop(sender);
            for _ in 0..round {
                receiver.receive().unwrap();
            }
            drop(receiver);
            senders.into_iter().map(|sender| sender.join().unwrap()).sum()
        });
        assert_eq!(drops.load(Ordering::Relaxed), sent, "round {round}");
    }
}

#[test]
fn receivers_share_values_and_the_last_drops_the_rest() {
    let drops = AtomicUsize::new(0);
    let (sender, receiver) = owned_between_threads::<_, Mpmc>(8);
    let received: usize = thread::scope(|scope| {
        let receivers: Vec<_> = (0..3)
            .map(|_| {
                let receiver = receiver.clone();
                scope.spawn(move || receiver.iter().map(|Counted(..)| 1).take(100).sum::<usize>())
            })
            .collect();
        drop(receiver);
        let sent = (0..).find(|&n| sender.send(Counted(&drops, n)).is_err()).unwrap();
        let received = receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum();
        assert!((300..=308).contains(&sent), "{sent}");
        assert_eq!(drops.load(Ordering::Relaxed), sent as usize + 1, "and the one that was refused");
        received
    });
    assert_eq!(received, 300);
}

fn come_whole_and_in_order<K: QueueKind>(capacity: usize) {
    let (sender, receiver) = owned_between_threads::<_, K>(capacity);
    thread::scope(|scope| {
        scope.spawn(move || (0..3_000).for_each(|n: u32| sender.send((n, n.to_string())).unwrap()));
        let mut count = 0;
        for (number, text) in &receiver {
            assert_eq!((number, &*text), (count, &*count.to_string()));
            count += 1;
        }
        assert_eq!(count, 3_000);
    });
}

#[test]
fn values_come_whole_and_in_order_through_small_queues() {
    for capacity in [1, 2, 3] {
        come_whole_and_in_order::<Mpmc>(capacity);
        come_whole_and_in_order::<Mpsc>(capacity);
        come_whole_and_in_order::<Spsc>(capacity);
        come_whole_and_in_order::<PerSender>(capacity);
    }
}

#[test]
fn values_without_bytes_are_counted_too() {
    let (sender, receiver) = owned_between_threads::<(), Spsc>(4);
    sender.send_all([(); 3]).unwrap();
    drop(sender);
    assert_eq!(receiver.iter().count(), 3);
}
