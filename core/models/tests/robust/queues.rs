//! Queues between threads, and between identities of which some are dead.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use towpath_machine::{Heap, Native};
use towpath_sync::queues::{
    BoundedQueue, ManyHead, ManyToMany, Mpmc, PerSender, QueueGeometry, QueueKind, QueueSide, RINGS,
    SharedReceivers, SharedSenders, Spsc, TransferError, WordLine, between_threads,
};
use towpath_sync::{Deadline, Policy};

use crate::support::Member;

const LONG: Duration = Duration::from_secs(20);

/// Parts of a queue of many senders and receivers of `u64`s.
struct Parts {
    head: ManyHead<Native>,
    ring: Box<[WordLine<Native>]>,
    slots: Box<[WordLine<Native>]>,
    geometry: QueueGeometry,
}

impl Parts {
    fn new(capacity: usize) -> Parts {
        let geometry = ManyToMany::<Native>::geometry::<u64>(capacity);
        let [ring, slots] =
            [geometry.ring_lines(), geometry.slot_lines()].map(|lines| WordLine::row(&Heap, lines));
        Parts { head: ManyHead::in_arena(&Heap), ring, slots, geometry }
    }
    fn queue(&self) -> ManyToMany<'_, Native> {
        ManyToMany::of(&self.head, &self.ring, &self.slots, self.geometry)
    }
}

const CPU: Native = Native::with_id(0);

/// All that come out are those that went in, those of one sender in their order.
fn transfers<K: SharedSenders + SharedReceivers>(senders: u64, receivers: u64, capacity: usize, each: u64) {
    let (sender, receiver) = between_threads::<[u64; 2], K>(capacity);
    let all: Vec<Vec<[u64; 2]>> = thread::scope(|scope| {
        for s in 0..senders {
            let sender = sender.clone();
            scope.spawn(move || (0..each).for_each(|n| sender.send([s, n]).unwrap()));
        }
        drop(sender);
        let taking: Vec<_> = (0..receivers)
            .map(|_| {
                let receiver = receiver.clone();
                scope.spawn(move || receiver.iter().collect())
            })
            .collect();
        drop(receiver);
        taking.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for taken in &all {
        for s in 0..senders {
            let of_one: Vec<u64> = taken.iter().filter(|v| v[0] == s).map(|v| v[1]).collect();
            assert!(of_one.is_sorted_by(|a, b| a < b), "out of order");
        }
    }
    let distinct: BTreeSet<_> = all.iter().flatten().collect();
    assert_eq!(distinct.len() as u64, senders * each, "lost");
    assert_eq!(all.iter().map(Vec::len).sum::<usize>() as u64, senders * each, "twice");
}

#[test]
fn values_come_out_once_and_in_order() {
    transfers::<Mpmc>(1, 1, 1, 300);
    transfers::<Mpmc>(1, 1, 64, 20_000);
    transfers::<Mpmc>(3, 1, 4, 1_000);
    transfers::<Mpmc>(3, 3, 2, 500);
    transfers::<Mpmc>(2, 4, 256, 20_000);
    // More than cores, at a queue that lets values gather: some senders rest.
    transfers::<Mpmc>(9, 1, 64, 3_000);
}

#[test]
fn full_and_empty_queues_time_out() {
    let (sender, receiver) = between_threads::<u32, Mpmc>(4);
    assert_eq!(receiver.try_receive(), Err(TransferError::TimedOut));
    assert_eq!(receiver.receive_timeout(Duration::from_millis(1)), Err(TransferError::TimedOut));
    for round in 0..10 {
        (0..4).for_each(|n| sender.try_send(round + n).unwrap());
        assert_eq!(sender.len(), 4);
        assert_eq!(sender.try_send(9), Err(TransferError::TimedOut));
        assert_eq!(sender.send_timeout(9, Duration::from_millis(1)), Err(TransferError::TimedOut));
        (0..4).for_each(|n| assert_eq!(receiver.receive(), Ok(round + n)));
        assert!(receiver.is_empty());
    }
}

#[test]
fn closed_queue_gives_what_was_sent_before() {
    let (sender, receiver) = between_threads::<u32, Mpmc>(4);
    let waiter = receiver.clone();
    sender.send(1).unwrap();
    let waiting = thread::spawn(move || (waiter.receive_timeout(LONG), waiter.receive_timeout(LONG)));
    // It has the first, and waits for another.
    while !sender.is_empty() {
        thread::yield_now();
    }
    receiver.close();
    assert_eq!(waiting.join().unwrap(), (Ok(1), Err(TransferError::Closed)));
    assert_eq!(sender.send(2), Err(TransferError::Closed));
    assert_eq!(receiver.try_receive(), Err(TransferError::Closed));
}

#[test]
fn handles_that_go_disconnect() {
    let (sender, receiver) = between_threads::<u32, Mpmc>(2);
    let other = sender.clone();
    sender.send(1).unwrap();
    drop(sender);
    other.send(2).unwrap();
    let late = thread::spawn(move || {
        thread::sleep(Duration::from_millis(2));
        drop(other);
    });
    assert_eq!([(); 3].map(|()| receiver.receive()), [Ok(1), Ok(2), Err(TransferError::Disconnected)]);
    late.join().unwrap();

    let (sender, receiver) = between_threads::<u32, Mpmc>(2);
    drop(receiver);
    assert_eq!(sender.send(1), Err(TransferError::Disconnected));
}

#[test]
fn a_dead_sender_in_the_middle_takes_no_room() {
    for (policy, name) in Policy::ALL {
        let (parts, dead) = (Parts::new(2), AtomicU64::new(0));
        let (victim, survivor) = (Member { me: 2, dead: &dead }, Member { me: 3, dead: &dead });
        let wait = survivor.wait(policy);
        let queue = parts.queue();
        queue.join(&CPU, &victim.wait(policy), QueueSide::Sender).unwrap();
        queue.join(&CPU, &wait, QueueSide::Receiver).unwrap();
        // The victim has taken a slot, and dies before that is in the ring.
        queue.reserve(&CPU, &victim.wait(policy), Deadline::PAST).unwrap();
        queue.send(&CPU, &wait, &7u64, Deadline::PAST).unwrap();
        let full = queue.send(&CPU, &wait, &8u64, Deadline::PAST);
        assert_eq!(full, Err(TransferError::TimedOut), "{name}: it lives");
        dead.store(1 << 2, SeqCst);
        queue.send(&CPU, &wait, &8u64, Deadline::within(LONG)).unwrap();
        assert_eq!(queue.receive(&CPU, &wait, Deadline::PAST), Ok(7u64), "{name}");
        assert_eq!(queue.receive(&CPU, &wait, Deadline::PAST), Ok(8u64), "{name}");
        let end = queue.receive::<u64, _>(&CPU, &wait, Deadline::within(LONG));
        assert_eq!(end, Err(TransferError::PeerDied { rank: None }), "{name}");
        // Another takes its place.
        queue.join(&CPU, &wait, QueueSide::Sender).unwrap();
        let end = queue.receive::<u64, _>(&CPU, &wait, Deadline::PAST);
        assert_eq!(end, Err(TransferError::TimedOut), "{name}");
        queue.leave(&CPU, &wait, QueueSide::Sender);
        let end = queue.receive::<u64, _>(&CPU, &wait, Deadline::NEVER);
        assert_eq!(end, Err(TransferError::Disconnected), "{name}");
    }
}

#[test]
fn leases_of_the_dead_come_in_again() {
    let (parts, dead) = (Parts::new(2), AtomicU64::new(0));
    let (victim, survivor) = (Member { me: 2, dead: &dead }, Member { me: 3, dead: &dead });
    let (theirs, wait) = (victim.wait(Policy::Adaptive), survivor.wait(Policy::Adaptive));
    let queue = parts.queue();
    for n in 0..10u64 {
        queue.send(&CPU, &wait, &(2 * n), Deadline::PAST).unwrap();
        queue.send(&CPU, &wait, &(2 * n + 1), Deadline::PAST).unwrap();
        let (value, _leased) = queue.receive_leased::<u64, _>(&CPU, &theirs, Deadline::PAST).unwrap();
        assert_eq!(value, 2 * n);
        assert!(queue.send(&CPU, &wait, &9, Deadline::PAST).is_err(), "no room");
        dead.store(1 << 2, SeqCst);
        let (value, leased) = queue.receive_leased::<u64, _>(&CPU, &wait, Deadline::PAST).unwrap();
        assert_eq!(value, 2 * n + 1);
        queue.give_back(&CPU, &wait, leased);
        let mut values = [(); 2].map(|()| {
            let (value, leased) =
                queue.receive_leased::<u64, _>(&CPU, &wait, Deadline::within(LONG)).unwrap();
            queue.complete(&CPU, &wait, leased);
            value
        });
        values.sort_unstable();
        assert_eq!(values, [2 * n, 2 * n + 1]);
        assert_eq!(queue.len(&CPU), 0);
        dead.store(0, SeqCst);
    }
}

#[test]
fn one_to_one_values_come_out_in_order() {
    for (capacity, values) in [(1, 300), (2, 1_000), (256, 20_000)] {
        let (sender, receiver) = between_threads::<[u32; 5], Spsc>(capacity);
        thread::scope(|scope| {
            scope.spawn(move || {
                (0..values).for_each(|n| sender.send([n; 5]).unwrap());
            });
            for n in 0..values {
                assert_eq!(receiver.receive(), Ok([n; 5]));
            }
            assert_eq!(receiver.receive(), Err(TransferError::Disconnected));
        });
    }
    let (sender, receiver) = between_threads::<u8, Spsc>(1);
    sender.send(1).unwrap();
    assert_eq!(sender.try_send(2), Err(TransferError::TimedOut));
    sender.close();
    assert_eq!((sender.send(2), sender.len()), (Err(TransferError::Closed), 1));
    assert_eq!([(); 2].map(|()| receiver.receive()), [Ok(1), Err(TransferError::Closed)]);
}

/// Values that are large enough to be written where they lie.
type Large = [u64; 40];

#[test]
fn values_are_written_and_read_in_their_slots() {
    let (sender, receiver) = between_threads::<Large, Mpmc>(2);
    let mut slot = sender.reserve().unwrap();
    slot.fill(7);
    drop(slot);
    assert_eq!(receiver.try_receive(), Err(TransferError::TimedOut), "it was given up");
    for n in 0..9 {
        let mut slot = sender.reserve().unwrap();
        let at = &raw const *slot;
        slot.fill(n);
        slot.send().unwrap();
        let value = receiver.receive_in_place().unwrap();
        assert_eq!((*value, &raw const *value), ([n; 40], at), "it was copied");
        if n % 3 == 0 {
            value.give_back();
            assert_eq!(*receiver.receive_in_place().unwrap(), [n; 40]);
        }
    }
    assert_eq!(receiver.try_receive(), Err(TransferError::TimedOut), "done with when dropped");
    // Slots that are held are no room.
    let held = [sender.reserve().unwrap(), sender.reserve().unwrap()];
    assert!(matches!(sender.reserve_timeout(Duration::from_millis(1)), Err(TransferError::TimedOut)));
    drop(held);
    sender.close();
    assert!(matches!(sender.reserve(), Err(TransferError::Closed)));
}

#[test]
fn small_values_in_place_come_once() {
    let (sender, receiver) = between_threads::<[u8; 3], Mpmc>(4);
    for n in 0..20 {
        let mut slot = sender.reserve().unwrap();
        *slot = [n, n + 1, n + 2];
        slot.send().unwrap();
        assert_eq!(*receiver.receive_in_place().unwrap(), [n, n + 1, n + 2]);
        assert_eq!(receiver.len(), 0);
    }
}

#[test]
fn values_in_place_are_whole_between_threads() {
    const EACH: u64 = 2_000;
    let (sender, receiver) = between_threads::<Large, Mpmc>(4);
    let sum = AtomicU64::new(0);
    thread::scope(|scope| {
        for s in 0..2 {
            let sender = sender.clone();
            scope.spawn(move || {
                for n in 0..EACH {
                    let mut slot = sender.reserve().unwrap();
                    slot.fill(2 * n + s);
                    if n % 7 == 0 {
                        drop(slot);
                        sender.send([2 * n + s; 40]).unwrap();
                    } else {
                        slot.send().unwrap();
                    }
                }
            });
        }
        drop(sender);
        for r in 0..2 {
            let (receiver, sum) = (receiver.clone(), &sum);
            scope.spawn(move || {
                loop {
                    let value = match r {
                        0 => receiver.receive_in_place().map(|value| *value),
                        _ => receiver.receive(),
                    };
                    let Ok(value) = value else { break };
                    assert!(value.iter().all(|&word| word == value[0]), "torn");
                    sum.fetch_add(value[0], SeqCst);
                }
            });
        }
        drop(receiver);
    });
    assert_eq!(sum.into_inner(), (0..2 * EACH).sum::<u64>());
}

#[test]
fn a_sender_waits_while_all_slots_are_leased() {
    let (sender, receiver) = between_threads::<Large, Mpmc>(2);
    (0..2).for_each(|n| sender.send([n; 40]).unwrap());
    let held = [(); 2].map(|()| receiver.receive_in_place().unwrap());
    assert_eq!(sender.try_send([2; 40]), Err(TransferError::TimedOut));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.send_timeout([2; 40], LONG));
        thread::sleep(Duration::from_millis(2));
        let [first, second] = held;
        drop(second);
        assert_eq!(waiting.join().unwrap(), Ok(()));
        drop(first);
    });
    assert_eq!(receiver.receive().unwrap(), [2; 40]);
}

fn batches<K: QueueKind>() {
    let (sender, receiver) = between_threads::<u32, K>(4);
    let mut values = Vec::new();
    assert_eq!(sender.send_all([]), Ok(0));
    assert_eq!(receiver.receive_many(&mut values, 0), Ok(0));
    assert_eq!(sender.send_all(0..3), Ok(3));
    assert_eq!(receiver.receive_many(&mut values, 2), Ok(2));
    assert_eq!(receiver.receive_many(&mut values, 9), Ok(1));
    let unsent = sender.send_all_timeout(3..9, Duration::from_millis(1)).unwrap_err();
    assert_eq!((unsent.sent, unsent.value, unsent.error), (4, 7, TransferError::TimedOut));
    assert_eq!(receiver.receive_many(&mut values, 4), Ok(4));
    assert_eq!(
        receiver.receive_many_timeout(&mut values, 4, Duration::from_millis(1)),
        Err(TransferError::TimedOut)
    );
    // Batches that are longer than the queue.
    thread::scope(|scope| {
        scope.spawn(move || {
            assert_eq!(sender.send_all(7..1_000), Ok(993));
            sender.close();
        });
        let end = std::iter::repeat_with(|| receiver.receive_many(&mut values, 3)).find_map(Result::err);
        assert_eq!(end, Some(TransferError::Closed));
    });
    assert_eq!(values, Vec::from_iter(0..1_000));
}

#[test]
fn batches_come_whole_and_in_order() {
    batches::<Mpmc>();
    batches::<Spsc>();
}

#[test]
fn a_lease_is_completed_into_another_queue() {
    let (sender, receiver) = between_threads::<u64, Mpmc>(2);
    let (onward, end) = between_threads::<Large, Mpmc>(1);
    for n in 0..20 {
        sender.send(n).unwrap();
        let lease = receiver.receive_leased().unwrap();
        lease.complete_into(&onward, [n; 40]).unwrap();
        assert_eq!(receiver.try_receive(), Err(TransferError::TimedOut), "it was completed");
        // Without room there, the lease is given back.
        sender.send(100 + n).unwrap();
        let lease = receiver.receive_leased().unwrap();
        let full = lease.complete_into_timeout(&onward, [0; 40], Duration::from_millis(1));
        assert_eq!(full, Err(TransferError::TimedOut));
        assert_eq!(receiver.receive(), Ok(100 + n));
        assert_eq!((end.receive(), end.is_empty()), (Ok([n; 40]), true));
    }
    sender.send(1).unwrap();
    onward.close();
    let closed = receiver.receive_leased().unwrap().complete_into(&onward, [0; 40]);
    assert_eq!((closed, receiver.receive()), (Err(TransferError::Closed), Ok(1)));
}

#[test]
fn leases_are_completed_into_their_own_queue() {
    let (sender, receiver) = between_threads::<u64, Mpmc>(2);
    sender.send(0).unwrap();
    for n in 0..100 {
        let lease = receiver.receive_leased().unwrap();
        assert_eq!(*lease, n);
        lease.complete_into(&sender, n + 1).unwrap();
        assert_eq!(receiver.len(), 1);
    }
    // Its own slot is not free before.
    sender.send(7).unwrap();
    let [first, second] = [receiver.receive_leased().unwrap(), receiver.receive_leased().unwrap()];
    let full = first.complete_into_timeout(&sender, 8, Duration::from_millis(1));
    assert_eq!(full, Err(TransferError::TimedOut));
    second.complete();
    assert_eq!((receiver.receive(), receiver.len()), (Ok(100), 0));
}

#[test]
fn a_queue_has_not_ended_while_others_have_leases() {
    let parts = Parts::new(4);
    let queue = parts.queue();
    let dead = AtomicU64::new(0);
    let members = [1, 2, 3].map(|me| Member { me, dead: &dead });
    let [sender, first, second] = members.each_ref().map(|member| member.wait(Policy::Park));
    for ends_by_closing in [false, true] {
        queue.join(&CPU, &sender, QueueSide::Sender).unwrap();
        for member in [&first, &second] {
            queue.join(&CPU, member, QueueSide::Receiver).unwrap();
        }
        (7..9).for_each(|n: u64| queue.send(&CPU, &sender, &n, Deadline::PAST).unwrap());
        let lease = || queue.receive_leased::<u64, _>(&CPU, &first, Deadline::PAST).unwrap().1;
        let leased = [lease(), lease()];
        let end = if ends_by_closing {
            queue.close(&CPU, &sender);
            TransferError::Closed
        } else {
            queue.leave(&CPU, &sender, QueueSide::Sender);
            TransferError::Disconnected
        };
        let receive = |member: &_| queue.receive::<u64, _>(&CPU, member, Deadline::PAST);
        assert_eq!(receive(&second), Err(TransferError::TimedOut), "two may come in again");
        assert_eq!(receive(&first), Err(end), "those that it has itself");
        queue.give_back(&CPU, &first, leased[0]);
        assert_eq!(receive(&second), Ok(7));
        assert_eq!(receive(&second), Err(TransferError::TimedOut), "one may come in again");
        if ends_by_closing {
            dead.fetch_or(1 << members[1].me, SeqCst);
            let waited = queue.receive::<u64, _>(&CPU, &second, Deadline::within(LONG));
            assert_eq!((waited, receive(&second)), (Ok(8), Err(end)));
            return;
        }
        queue.complete(&CPU, &first, leased[1]);
        assert_eq!(receive(&second), Err(end));
    }
}

#[test]
fn a_queue_of_one_receiver_refuses_a_second_one() {
    let (parts, dead) = (Parts::new(4), AtomicU64::new(0));
    let queue = parts.queue().of_one_receiver();
    let members = [2, 3, 4].map(|me| Member { me, dead: &dead });
    let [first, second, third] = members.each_ref().map(|member| member.wait(Policy::Park));
    // A process may be on both sides.
    for (member, side) in
        [(&first, QueueSide::Sender), (&first, QueueSide::Receiver), (&second, QueueSide::Sender)]
    {
        queue.join(&CPU, member, side).unwrap();
    }
    for refused in [&first, &second] {
        let taken = queue.join(&CPU, refused, QueueSide::Receiver);
        assert!(matches!(taken, Err(TransferError::Taken { .. })), "{taken:?}");
    }
    queue.leave(&CPU, &first, QueueSide::Receiver);
    queue.join(&CPU, &second, QueueSide::Receiver).unwrap();
    dead.fetch_or(1 << members[1].me, SeqCst);
    queue.join(&CPU, &third, QueueSide::Receiver).unwrap();
    queue.send(&CPU, &first, &7u64, Deadline::PAST).unwrap();
    assert_eq!(queue.receive(&CPU, &third, Deadline::PAST), Ok(7u64));
}

/// Values of each sender come in its order, and all of them; waiting senders are woken.
#[test]
fn values_of_each_sender_come_in_order() {
    for (senders, capacity, each) in [(1, 1, 300), (3, 2, 1_000), (2, 64, 20_000), (9, 128, 3_000)] {
        let (sender, receiver) = between_threads::<[u64; 2], PerSender>(capacity);
        thread::scope(|scope| {
            for s in 0..senders {
                let sender = sender.clone();
                scope.spawn(move || (0..each).for_each(|n| sender.send([s, n]).unwrap()));
            }
            drop(sender);
            let mut next = vec![0; senders as usize];
            for [s, n] in receiver.iter() {
                assert_eq!(n, next[s as usize], "of sender {s}");
                next[s as usize] += 1;
            }
            assert_eq!(next, vec![each; senders as usize], "lost");
        });
    }
}

#[test]
fn rings_of_senders_that_left_are_taken_again() {
    let (sender, receiver) = between_threads::<u64, PerSender>(4);
    let others: Vec<_> = (1..RINGS).map(|_| sender.clone()).collect();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sender.clone())).is_err(), "one more");
    others.iter().for_each(|other| other.send(7).unwrap());
    drop(others);
    // With the values in them, which stay.
    let again: Vec<_> = (1..RINGS).map(|_| sender.clone()).collect();
    again.iter().for_each(|other| other.send_all([8; 3]).map(drop).unwrap());
    assert_eq!(again[0].try_send(9), Err(TransferError::TimedOut), "its ring is full");
    assert_eq!(receiver.len(), 4 * (RINGS - 1));
    drop((sender, again));
    let values: Vec<_> = receiver.iter().collect();
    assert_eq!(values.iter().filter(|&&value| value == 7).count(), RINGS - 1);
    assert_eq!(values.len(), 4 * (RINGS - 1));
    assert_eq!(receiver.try_receive(), Err(TransferError::Disconnected));
}

/// Closes the queue while others send: all that was sent is received, no more.
#[test]
fn queue_that_is_closed_ends_at_one_value_for_both_ends() {
    for round in 0..50 {
        let (sender, receiver) = between_threads::<u64, PerSender>(8);
        let (sent, received) = thread::scope(|scope| {
            let senders = [(); 2].map(|()| {
                let sender = sender.clone();
                scope.spawn(move || (0..).take_while(|&n| sender.send(n).is_ok()).count())
            });
            let receiving = scope.spawn(move || receiver.iter().count());
            thread::sleep(Duration::from_micros(20 * round));
            sender.close();
            (senders.map(|sender| sender.join().unwrap()).iter().sum::<usize>(), receiving.join().unwrap())
        });
        assert_eq!(received, sent);
        assert_eq!(sender.send(1), Err(TransferError::Closed));
    }
}
