//! Plays of queues of messages, which lie in slots or in buffers.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use towpath_shm::{MessageSpec, WorldMessages};

use super::{Hold, LONG, PLAY, Play, Stage, mark};

/// Milestone of a victim: its act is complete.
const DONE: u64 = 1;

const SPEC: MessageSpec = MessageSpec { capacity: 2, buffers: 2, buffer_bytes: 1000 };
/// Length of a message that needs a buffer.
const BUFFER: usize = 999;
const SLOT: usize = 9;

fn messages(stage: &Stage) -> WorldMessages {
    stage.world.messages("m", &SPEC).unwrap()
}

fn message<const LEN: usize>() -> [u8; LEN] {
    core::array::from_fn(|i| i as u8 ^ 0x5a)
}

fn sender<const LEN: usize>(stage: &Stage) {
    let sender = messages(stage).sender().unwrap();
    mark();
    sender.send(&message::<LEN>()).unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(sender);
}

fn a_message_is_sent<const LEN: usize>(stage: &Stage) -> Hold {
    let sender = messages(stage).sender().unwrap();
    sender.send(&message::<LEN>()).unwrap();
    Some(Box::new(sender))
}

fn receiver<const GIVES_BACK: bool>(stage: &Stage) {
    let receiver = messages(stage).receiver().unwrap();
    mark();
    let message = receiver.receive().unwrap();
    if GIVES_BACK {
        message.give_back()
    } else {
        drop(message)
    }
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(receiver);
}

fn joiner(stage: &Stage) {
    mark();
    let messages = messages(stage);
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(messages);
}

/// Number of messages that come, each of which is whole. All buffers are free afterwards.
fn that_come<const LEN: usize>(stage: &Stage) -> usize {
    let messages = messages(stage);
    let (receiver, mut came) = (messages.receiver().unwrap(), 0);
    while let Ok(got) = receiver.receive_timeout(Duration::from_millis(2)) {
        assert_eq!(got[..], message::<LEN>(), "not what was sent");
        came += 1;
    }
    let sender = messages.sender().unwrap();
    for _ in 0..2 {
        (0..SPEC.buffers)
            .for_each(|_| sender.send_timeout(&message::<BUFFER>(), LONG).expect("a buffer is lost"));
        (0..SPEC.buffers).for_each(|_| assert_eq!(receiver.receive_timeout(LONG).unwrap().len(), BUFFER));
    }
    came
}

fn sent_or_not<const LEN: usize>(stage: &Stage) {
    match that_come::<LEN>(stage) {
        1 => {}
        0 => {
            assert_ne!(stage.progress.load(SeqCst), DONE, "it was sent, and is lost");
            stage.told();
        }
        came => panic!("{came} came of one"),
    }
}

fn received_or_comes_again<const LEN: usize>(stage: &Stage) {
    match that_come::<LEN>(stage) {
        0 => {}
        1 => {
            assert_ne!(stage.progress.load(SeqCst), DONE, "it was done with");
            stage.told();
        }
        came => panic!("{came} came of one"),
    }
}

fn comes_again<const LEN: usize>(stage: &Stage) {
    assert_eq!(that_come::<LEN>(stage), 1, "it is lost, or was doubled");
}

fn nothing_lost(stage: &Stage) {
    assert_eq!(that_come::<SLOT>(stage), 0);
}

pub const PLAYS: &[Play] = &[
    Play { name: "messages made or opened", victim: joiner, after: nothing_lost, is_told: false, ..PLAY },
    Play { name: "messages send short", victim: sender::<SLOT>, after: sent_or_not::<SLOT>, ..PLAY },
    Play { name: "messages send long", victim: sender::<BUFFER>, after: sent_or_not::<BUFFER>, ..PLAY },
    Play {
        name: "messages receive short",
        hold: a_message_is_sent::<SLOT>,
        victim: receiver::<false>,
        after: received_or_comes_again::<SLOT>,
        ..PLAY
    },
    Play {
        name: "messages receive long",
        hold: a_message_is_sent::<BUFFER>,
        victim: receiver::<false>,
        after: received_or_comes_again::<BUFFER>,
        ..PLAY
    },
    Play {
        name: "messages give back long",
        hold: a_message_is_sent::<BUFFER>,
        victim: receiver::<true>,
        after: comes_again::<BUFFER>,
        is_told: false,
        ..PLAY
    },
];
