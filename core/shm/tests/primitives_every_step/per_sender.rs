//! Plays of the queue with a ring for each sender.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use towpath_shm::{WorldQueue, WorldVenue};
use towpath_sync::queues::{PerSender, RINGS, TransferError, ValueReceiver};

use super::queues::{DONE, OURS, Pair, THEIRS, acts_of_one};
use super::{Hold, LONG, PATIENCE, Play, Stage, mark, no_hold, nothing};

/// End of a transfer whose other side was the victim.
const VICTIM_DIED: TransferError = TransferError::PeerDied { rank: Some(1) };
/// Notes of the helper: its transfer has succeeded; it was told of the death.
const PASSED: u64 = 1;
const TOLD: u64 = 2;

fn per_sender(stage: &Stage) -> WorldQueue<Pair, PerSender> {
    stage.world.per_sender("q", 2).unwrap()
}

/// Values of another sender pass while the victim stands still in its ring.
fn per_sender_values_pass(stage: &Stage) {
    let (sender, receiver) = (per_sender(stage).sender().unwrap(), per_sender(stage).receiver().unwrap());
    for _ in 0..3 {
        sender.send_timeout(OURS, LONG).expect("a sender that stands still is in the way");
        while receive_counting(stage, &receiver) != Ok(OURS) {}
    }
}

type RingsReceiver = ValueReceiver<Pair, WorldVenue<Pair, PerSender>>;

/// Receives, and counts the victim's value.
fn receive_counting(stage: &Stage, receiver: &RingsReceiver) -> Result<Pair, TransferError> {
    let value = receiver.receive_timeout(LONG)?;
    if value == THEIRS {
        assert_eq!(stage.note.fetch_add(1, SeqCst), 0, "came twice");
    } else {
        assert_eq!(value, OURS);
    }
    Ok(value)
}

fn a_sender_of_its_own_ring_died(stage: &Stage) {
    let (queue, receiver) = (per_sender(stage), per_sender(stage).receiver().unwrap());
    let end = loop {
        if let Err(end) = receive_counting(stage, &receiver) {
            break end;
        }
    };
    assert_eq!(end, VICTIM_DIED);
    stage.told();
    if stage.progress.load(SeqCst) == DONE {
        assert_eq!(stage.note.load(SeqCst), 1, "it was sent, and is lost");
    }
    // As many others as there are rings have them, also the dead one's.
    let senders: Vec<_> = (0..RINGS).map(|_| queue.sender().unwrap()).collect();
    assert_eq!(queue.sender().err(), Some(TransferError::Capacity));
    for sender in &senders {
        assert_eq!(sender.send_all_timeout([OURS; 2], LONG), Ok(2));
        assert_eq!(sender.try_send(OURS), Err(TransferError::TimedOut));
    }
    (0..2 * RINGS).for_each(|_| assert_eq!(receiver.receive_timeout(LONG), Ok(OURS)));
}

/// Waits for a note of the helper.
fn helper_noted(stage: &Stage, why: &str) -> u64 {
    let begun = Instant::now();
    loop {
        match stage.note.load(SeqCst) {
            0 => assert!(begun.elapsed() < LONG, "{why}"),
            note => return note,
        }
        std::thread::yield_now();
    }
}

/// The helper goes on when the victim's act is complete, though the victim stands still.
fn the_helper_goes_on(stage: &Stage) {
    if stage.progress.load(SeqCst) == DONE {
        assert_eq!(helper_noted(stage, "nothing woke the helper"), PASSED);
    }
}

/// Fills its ring, and waits for room.
fn waits_for_room(stage: &Stage) {
    let sender = per_sender(stage).sender().unwrap();
    assert_eq!(sender.send_all_timeout([OURS; 2], LONG), Ok(2));
    let note = match sender.send_timeout(THEIRS, LONG) {
        Ok(()) => PASSED,
        Err(end) => {
            assert_eq!(end, VICTIM_DIED);
            stage.told();
            TOLD
        }
    };
    stage.note.store(note, SeqCst);
}

/// A sender that waited for room had it, or was told of the death.
///
/// Its values are there for a successor of the receiver.
fn the_receiver_of_a_full_ring_died(stage: &Stage) {
    // While there is no successor: it could send to that one.
    let note = helper_noted(stage, "the sender of a full ring was not told of the death");
    let receiver = per_sender(stage).receiver().unwrap();
    let mut values = Vec::new();
    let end = loop {
        match receiver.receive_timeout(LONG) {
            Ok(value) => values.push(value),
            Err(end) => break end,
        }
    };
    assert_eq!(end, TransferError::Disconnected);
    match note {
        // There was room, since the victim had taken a value.
        PASSED => assert_eq!(values, [OURS, THEIRS]),
        _ => {
            assert_ne!(stage.progress.load(SeqCst), DONE, "a value was taken: there was room");
            assert_eq!(values, [OURS; 2]);
        }
    }
}

/// The last sender, which sends and closes the queue.
fn sender_closes(stage: &Stage) {
    let sender = per_sender(stage).sender().unwrap();
    mark();
    sender.send(THEIRS).unwrap();
    sender.close();
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(sender);
}

/// Sleeps until a value comes, and then until the end comes.
fn receives_to_the_end(stage: &Stage) {
    let receiver = per_sender(stage).receiver().unwrap();
    let mut value = Ok(());
    let mut received = 0;
    while value.is_ok() {
        value = receiver.receive_timeout(LONG).map(|value| assert_eq!(value, THEIRS));
        received += u64::from(value.is_ok());
    }
    let note = match value {
        Err(TransferError::Closed) => PASSED,
        end => {
            assert_eq!(end, Err(VICTIM_DIED));
            assert_ne!(stage.progress.load(SeqCst), DONE, "it was closed");
            stage.told();
            TOLD
        }
    };
    assert!(received == 1 || (received == 0 && note == TOLD), "{received} values, note {note}");
    stage.note.store(note, SeqCst);
}

/// The receiver that slept has come to an end.
fn the_last_sender_died(stage: &Stage) {
    helper_noted(stage, "a receiver that slept was not told of the death");
}

acts_of_one!(of_per_sender, PerSender, per_sender);

pub const PLAYS: &[Play] = &[
    Play {
        name: "per-sender send alone",
        patience: PATIENCE,
        hold: no_hold,
        victim: of_per_sender::sender,
        helper: None,
        meanwhile: per_sender_values_pass,
        after: a_sender_of_its_own_ring_died,
        is_told: true,
    },
    Play {
        name: "per-sender receive from an empty queue",
        patience: PATIENCE,
        hold: of_per_sender::sends_a_value,
        victim: of_per_sender::receiver,
        helper: None,
        meanwhile: nothing,
        after: of_per_sender::receiver_died,
        is_told: true,
    },
    Play {
        name: "per-sender receive from a full ring",
        patience: PATIENCE,
        hold: no_hold,
        victim: of_per_sender::receiver,
        helper: Some(waits_for_room),
        meanwhile: the_helper_goes_on,
        after: the_receiver_of_a_full_ring_died,
        is_told: true,
    },
    Play {
        name: "per-sender send and close",
        patience: PATIENCE,
        hold: no_hold,
        victim: sender_closes,
        helper: Some(receives_to_the_end),
        meanwhile: the_helper_goes_on,
        after: the_last_sender_died,
        is_told: true,
    },
];
