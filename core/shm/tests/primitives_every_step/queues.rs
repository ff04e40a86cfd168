//! Plays of the bounded queues.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use towpath_shm::WorldQueue;
use towpath_sync::queues::{Mpmc, Spsc, TransferError};

use super::{Hold, LONG, PATIENCE, Play, Stage, mark, no_hold, nothing};

/// Milestone of a victim: its act is complete.
pub(super) const DONE: u64 = 1;

/// Values of two words, so that one that is torn is found.
pub(super) type Pair = [u64; 2];

/// Value of the victim, and of this process.
pub(super) const THEIRS: Pair = [7, !7];
pub(super) const OURS: Pair = [1, !1];

fn many(stage: &Stage) -> WorldQueue<Pair, Mpmc> {
    stage.world.mpmc("q", 2).unwrap()
}

fn many_sender(stage: &Stage) {
    let sender = many(stage).sender().unwrap();
    mark();
    sender.send(THEIRS).unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(sender);
}

/// Values pass while the victim stands still, whatever it has.
fn values_pass(stage: &Stage) {
    let (sender, receiver) = (many(stage).sender().unwrap(), many(stage).receiver().unwrap());
    for _ in 0..3 {
        sender.send_timeout(OURS, LONG).expect("a sender that stands still is in the way");
        loop {
            match receiver.receive_timeout(LONG).expect("a sender that stands still is in the way") {
                OURS => break,
                THEIRS => assert_eq!(stage.note.fetch_add(1, SeqCst), 0, "came twice"),
                torn => panic!("{torn:?}"),
            }
        }
    }
}

/// All room is there, and nothing else comes.
fn all_room_is_there(stage: &Stage) {
    all_room_is_there_in(many(stage));
}

fn all_room_is_there_in(queue: WorldQueue<Pair, Mpmc>) {
    let (sender, receiver) = (queue.sender().unwrap(), queue.receiver().unwrap());
    for _ in 0..2 {
        (0..2).for_each(|_| sender.send_timeout(OURS, LONG).expect("room was lost with the dead"));
        assert_eq!(sender.try_send(OURS), Err(TransferError::TimedOut));
        assert_eq!([(); 2].map(|()| receiver.receive_timeout(LONG)), [Ok(OURS); 2]);
        assert_eq!(receiver.try_receive(), Err(TransferError::TimedOut));
    }
}

fn the_sender_died(stage: &Stage) {
    let (sender, receiver) = (many(stage).sender().unwrap(), many(stage).receiver().unwrap());
    // A full queue is looked through for the dead: what they have sent stays.
    let mut ours = 0;
    while sender.send_timeout(OURS, Duration::from_millis(2)).is_ok() {
        ours += 1;
    }
    drop(sender);
    let end = loop {
        match receiver.receive_timeout(LONG) {
            Ok(OURS) => ours -= 1,
            Ok(value) => {
                assert_eq!(value, THEIRS);
                assert_eq!(stage.note.fetch_add(1, SeqCst), 0, "came twice");
            }
            Err(end) => break end,
        }
    };
    assert_eq!(ours, 0, "lost or twice");
    // Another sender has joined since, and has left in good order.
    assert_eq!(end, TransferError::Disconnected);
    stage.told();
    if stage.progress.load(SeqCst) == DONE {
        assert_eq!(stage.note.load(SeqCst), 1, "it was sent, and is lost");
    }
    all_room_is_there(stage);
}

fn many_receiver(stage: &Stage) {
    let receiver = many(stage).receiver().unwrap();
    mark();
    assert_eq!(receiver.receive(), Ok(OURS));
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(receiver);
}

/// Sends a value when it is dropped.
fn sends_a_value(stage: &Stage) -> Hold {
    struct Sends(WorldQueue<Pair, Mpmc>);
    impl Drop for Sends {
        fn drop(&mut self) {
            self.0.sender().unwrap().send_timeout(OURS, LONG).unwrap();
        }
    }
    Some(Box::new(Sends(many(stage))))
}

fn fills_the_queue(stage: &Stage) -> Hold {
    let sender = many(stage).sender().unwrap();
    (0..2).for_each(|_| sender.send_timeout(OURS, LONG).unwrap());
    struct Takes(WorldQueue<Pair, Mpmc>);
    impl Drop for Takes {
        fn drop(&mut self) {
            let receiver = self.0.receiver().unwrap();
            assert_eq!([(); 2].map(|()| receiver.receive_timeout(LONG)), [Ok(OURS); 2]);
            // It stays: the victim, at whatever step it is, finds room, not that it has gone.
            std::mem::forget(receiver);
        }
    }
    Some(Box::new(Takes(many(stage))))
}

/// The value comes once, to the victim or to this process, which is told of a value that
/// the victim has not taken.
fn the_value_is_there_or_gone(stage: &Stage) {
    let receiver = many(stage).receiver().unwrap();
    if let Ok(value) = receiver.try_receive() {
        assert_eq!(value, OURS);
        assert_ne!(stage.progress.load(SeqCst), DONE, "came twice");
        stage.told();
    }
    drop(receiver);
    all_room_is_there(stage);
}

fn leasing_receiver(stage: &Stage) {
    let receiver = many(stage).receiver().unwrap();
    mark();
    let lease = receiver.receive_leased().unwrap();
    assert_eq!(*lease, OURS);
    lease.complete();
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(receiver);
}

fn leasing_receiver_gives_back(stage: &Stage) {
    let receiver = many(stage).receiver().unwrap();
    mark();
    drop(receiver.receive_leased().unwrap());
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(receiver);
}

fn a_value_is_there(stage: &Stage) -> Hold {
    many(stage).sender().unwrap().send(OURS).unwrap();
    None
}

/// The value comes in again if the victim had not completed it.
fn the_lease_returns(stage: &Stage) {
    let (sender, receiver) = (many(stage).sender().unwrap(), many(stage).receiver().unwrap());
    sender.send_timeout(THEIRS, LONG).unwrap();
    let mut values = vec![receiver.receive_timeout(LONG).unwrap()];
    sender.send_timeout(THEIRS, LONG).unwrap();
    values.push(receiver.receive_timeout(LONG).unwrap());
    // Asks for deaths before it gives up.
    while let Ok(value) = receiver.receive_timeout(Duration::from_millis(2)) {
        values.push(value);
    }
    let (ours, theirs): (Vec<Pair>, Vec<Pair>) = values.into_iter().partition(|&value| value == OURS);
    assert_eq!(theirs, [THEIRS; 2]);
    assert!(ours.len() <= 1, "came twice");
    if ours.len() == 1 {
        assert_ne!(stage.progress.load(SeqCst), DONE, "it was completed");
        stage.told();
    }
    drop((sender, receiver));
    all_room_is_there(stage);
}

fn the_value_is_never_lost(stage: &Stage) {
    let receiver = many(stage).receiver().unwrap();
    assert_eq!(receiver.receive_timeout(LONG), Ok(OURS), "lost");
    if stage.progress.load(SeqCst) != DONE {
        stage.told();
    }
    drop(receiver);
    all_room_is_there(stage);
}

fn other(stage: &Stage) -> WorldQueue<Pair, Mpmc> {
    stage.world.mpmc("r", 2).unwrap()
}

fn completes_into_another(stage: &Stage) {
    let (receiver, sender) = (many(stage).receiver().unwrap(), other(stage).sender().unwrap());
    mark();
    let lease = receiver.receive_leased().unwrap();
    assert_eq!(*lease, OURS);
    lease.complete_into(&sender, THEIRS).unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget((receiver, sender));
}

/// Fills the other queue, and takes the values out when it is dropped.
fn a_value_and_a_full_queue(stage: &Stage) -> Hold {
    struct Takes(WorldQueue<Pair, Mpmc>);
    impl Drop for Takes {
        fn drop(&mut self) {
            let receiver = self.0.receiver().unwrap();
            assert_eq!([(); 2].map(|()| receiver.receive_timeout(LONG)), [Ok(OURS); 2]);
            // Senders are refused when the last receiver has gone.
            std::mem::forget(receiver);
        }
    }
    let queue = other(stage);
    queue.sender().unwrap().send_all([OURS; 2]).unwrap();
    many(stage).sender().unwrap().send(OURS).unwrap();
    Some(Box::new(Takes(queue)))
}

/// The lease was completed and the value sent, or neither.
fn both_or_neither(stage: &Stage) {
    let queues = [many(stage), other(stage)];
    let mut came = [0; 2];
    // Survivors may look at either one first.
    for turn in [0, 1] {
        let which = (stage.round as usize + turn) % 2;
        let receiver = queues[which].receiver().unwrap();
        while let Ok(value) = receiver.receive_timeout(Duration::from_millis(2)) {
            assert_eq!(value, [OURS, THEIRS][which]);
            came[which] += 1;
        }
    }
    match came {
        [0, 1] => {}
        [1, 0] => {
            assert_ne!(stage.progress.load(SeqCst), DONE, "it was completed");
            stage.told();
        }
        _ => panic!("{came:?}"),
    }
    queues.into_iter().for_each(all_room_is_there_in);
}

/// A value that is written and read in its slot.
type Large = [u64; 9];

fn large(stage: &Stage) -> WorldQueue<Large, Mpmc> {
    stage.world.mpmc("l", 2).unwrap()
}

fn sender_in_place(stage: &Stage) {
    let sender = large(stage).sender().unwrap();
    mark();
    let mut slot = sender.reserve().unwrap();
    slot.fill(THEIRS[0]);
    slot.send().unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(sender);
}

/// Number of the victim's values that come, of which this process sends as many as there
/// is room for; then all room is there.
fn theirs_of_large(stage: &Stage) -> usize {
    let (sender, receiver) = (large(stage).sender().unwrap(), large(stage).receiver().unwrap());
    let mut values = Vec::new();
    // A full queue is looked through for the dead, and so is an empty one.
    let mut ours = 0;
    while sender.send_timeout([OURS[0]; 9], Duration::from_millis(2)).is_ok() {
        ours += 1;
    }
    while receiver.receive_many_timeout(&mut values, 4, Duration::from_millis(2)).is_ok() {}
    let (of_theirs, of_ours): (Vec<Large>, Vec<Large>) =
        values.into_iter().partition(|value| *value == [THEIRS[0]; 9]);
    assert_eq!(of_ours, vec![[OURS[0]; 9]; ours], "lost, twice or torn");
    for _ in 0..2 {
        assert_eq!(sender.send_all_timeout([[OURS[0]; 9]; 2], LONG), Ok(2), "room was lost with the dead");
        assert_eq!(sender.try_send([0; 9]), Err(TransferError::TimedOut));
        (0..2).for_each(|_| assert_eq!(receiver.try_receive(), Ok([OURS[0]; 9])));
    }
    of_theirs.len()
}

fn the_sender_in_place_died(stage: &Stage) {
    let came = theirs_of_large(stage);
    assert!(came <= 1, "came twice");
    if stage.progress.load(SeqCst) == DONE {
        assert_eq!(came, 1, "it was sent, and is lost");
    }
    if came == 0 {
        stage.told();
    }
}

fn receiver_in_place(stage: &Stage) {
    let receiver = large(stage).receiver().unwrap();
    mark();
    let value = receiver.receive_in_place().unwrap();
    assert_eq!(*value, [THEIRS[0]; 9]);
    drop(value);
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(receiver);
}

fn a_large_value_is_there(stage: &Stage) -> Hold {
    large(stage).sender().unwrap().send([THEIRS[0]; 9]).unwrap();
    None
}

fn the_receiver_in_place_died(stage: &Stage) {
    let came = theirs_of_large(stage);
    assert!(came <= 1, "came twice");
    if came == 1 {
        assert_ne!(stage.progress.load(SeqCst), DONE, "it was done with");
        stage.told();
    }
}

fn one_sender_died(stage: &Stage) {
    let queue = stage.world.spsc::<Pair>("q", 2).unwrap();
    let receiver = queue.receiver().unwrap();
    let first = receiver.receive_timeout(LONG);
    let end = first.and_then(|value| {
        assert_eq!(value, THEIRS);
        receiver.receive_timeout(LONG)
    });
    assert_eq!(end, Err(TransferError::PeerDied { rank: Some(1) }));
    stage.told();
    assert!(first.is_ok() || stage.progress.load(SeqCst) != DONE, "it was sent, and is lost");
    // A successor goes on.
    let (sender, room) = (queue.sender().unwrap(), queue.capacity());
    (0..room).for_each(|_| sender.send_timeout(OURS, LONG).unwrap());
    assert_eq!(sender.try_send(OURS), Err(TransferError::TimedOut));
    (0..room).for_each(|_| assert_eq!(receiver.receive_timeout(LONG), Ok(OURS)));
}

/// Acts of queues in which one process at a time sends, or receives.
///
/// Another goes on after its death.
macro_rules! acts_of_one {
    ($acts:ident, $kind:ident, $method:ident) => {
        mod $acts {
            use super::*;

            fn queue_of(stage: &Stage) -> WorldQueue<Pair, $kind> {
                stage.world.$method("q", 2).unwrap()
            }

            pub fn sender(stage: &Stage) {
                let sender = queue_of(stage).sender().unwrap();
                mark();
                sender.send(THEIRS).unwrap();
                stage.progress.store(DONE, SeqCst);
                mark();
                std::mem::forget(sender);
            }

            pub fn receiver(stage: &Stage) {
                let receiver = queue_of(stage).receiver().unwrap();
                mark();
                assert_eq!(receiver.receive(), Ok(OURS));
                stage.progress.store(DONE, SeqCst);
                mark();
                std::mem::forget(receiver);
            }

            /// Sends a value when it is dropped, and keeps its place.
            pub fn sends_a_value(stage: &Stage) -> Hold {
                struct Sends(WorldQueue<Pair, $kind>);
                impl Drop for Sends {
                    fn drop(&mut self) {
                        self.0.sender().unwrap().send_timeout(OURS, LONG).unwrap();
                    }
                }
                Some(Box::new(Sends(queue_of(stage))))
            }

            pub fn receiver_died(stage: &Stage) {
                let queue = queue_of(stage);
                let sender = queue.sender().unwrap();
                // As long as there is room the death is not noticed.
                let mut sent = 0;
                let end = loop {
                    match sender.send_timeout(THEIRS, LONG) {
                        Ok(()) => sent += 1,
                        Err(end) => break end,
                    }
                };
                assert_eq!(end, TransferError::PeerDied { rank: Some(1) });
                stage.told();
                let receiver = queue.receiver().unwrap();
                let all: Vec<Pair> = std::iter::from_fn(|| receiver.try_receive().ok()).collect();
                assert_eq!(all.len(), queue.capacity(), "room was lost");
                // The value of before, unless the victim took it, and then those of now.
                let ours = all.iter().take_while(|&&value| value == OURS).count();
                assert!(ours == 0 || (ours == 1 && stage.progress.load(SeqCst) != DONE), "came twice");
                assert!(all[ours..].iter().all(|&value| value == THEIRS) && all.len() == ours + sent, "lost");
            }
        }
    };
}

pub(super) use acts_of_one;

acts_of_one!(of_spsc, Spsc, spsc);

pub const PLAYS: &[Play] = &[
    Play {
        name: "mpmc send alone",
        patience: PATIENCE,
        hold: no_hold,
        victim: many_sender,
        helper: None,
        meanwhile: values_pass,
        after: the_sender_died,
        is_told: true,
    },
    Play {
        name: "mpmc send behind a full queue",
        patience: PATIENCE,
        hold: fills_the_queue,
        victim: many_sender,
        helper: None,
        meanwhile: nothing,
        after: the_sender_died,
        is_told: true,
    },
    Play {
        name: "mpmc receive from an empty queue",
        patience: PATIENCE,
        hold: sends_a_value,
        victim: many_receiver,
        helper: None,
        meanwhile: nothing,
        after: the_value_is_there_or_gone,
        is_told: true,
    },
    Play {
        name: "mpmc lease completed",
        patience: PATIENCE,
        hold: a_value_is_there,
        victim: leasing_receiver,
        helper: None,
        meanwhile: nothing,
        after: the_lease_returns,
        is_told: true,
    },
    Play {
        name: "mpmc lease given back",
        patience: PATIENCE,
        hold: a_value_is_there,
        victim: leasing_receiver_gives_back,
        helper: None,
        meanwhile: nothing,
        after: the_value_is_never_lost,
        is_told: true,
    },
    Play {
        name: "mpmc lease completed into another",
        patience: PATIENCE,
        hold: a_value_is_there,
        victim: completes_into_another,
        helper: None,
        meanwhile: nothing,
        after: both_or_neither,
        is_told: true,
    },
    Play {
        name: "mpmc lease completed into a full one",
        patience: PATIENCE,
        hold: a_value_and_a_full_queue,
        victim: completes_into_another,
        helper: None,
        meanwhile: nothing,
        after: both_or_neither,
        is_told: true,
    },
    Play {
        name: "mpmc send in place",
        patience: PATIENCE,
        hold: no_hold,
        victim: sender_in_place,
        helper: None,
        meanwhile: nothing,
        after: the_sender_in_place_died,
        is_told: true,
    },
    Play {
        name: "mpmc receive in place",
        patience: PATIENCE,
        hold: a_large_value_is_there,
        victim: receiver_in_place,
        helper: None,
        meanwhile: nothing,
        after: the_receiver_in_place_died,
        is_told: true,
    },
    Play {
        name: "spsc send alone",
        patience: PATIENCE,
        hold: no_hold,
        victim: of_spsc::sender,
        helper: None,
        meanwhile: nothing,
        after: one_sender_died,
        is_told: true,
    },
    Play {
        name: "spsc receive from an empty queue",
        patience: PATIENCE,
        hold: of_spsc::sends_a_value,
        victim: of_spsc::receiver,
        helper: None,
        meanwhile: nothing,
        after: of_spsc::receiver_died,
        is_told: true,
    },
];
