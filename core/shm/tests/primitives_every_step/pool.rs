//! Plays of pools of buffers.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use towpath_shm::{PoolStage, WorldPool};

use super::{Hold, LONG, PLAY, Play, Stage, mark};

/// Milestone of a victim: its act is complete.
const DONE: u64 = 1;

const COUNT: usize = 2;
const SENT: u8 = 7;

fn pool(stage: &Stage) -> WorldPool {
    stage.world.pool("p", COUNT, 100).unwrap()
}

fn stages(stage: &Stage) -> [PoolStage; 2] {
    ["s", "t"].map(|name| pool(stage).stage(name, COUNT).unwrap())
}

fn taker(stage: &Stage) {
    let [first, _] = stages(stage);
    let (pool, sender) = (pool(stage), first.sender().unwrap());
    mark();
    let mut buffer = pool.take().unwrap();
    buffer.fill(SENT);
    sender.send(buffer).unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(sender);
}

fn a_buffer_is_sent(stage: &Stage) -> Hold {
    let mut buffer = pool(stage).take().unwrap();
    buffer.fill(SENT);
    let sender = stages(stage)[0].sender().unwrap();
    sender.send(buffer).unwrap();
    Some(Box::new(sender))
}

fn passer(stage: &Stage) {
    let [first, second] = stages(stage);
    let (receiver, sender) = (first.receiver().unwrap(), second.sender().unwrap());
    mark();
    sender.send(receiver.receive().unwrap()).unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget((receiver, sender));
}

fn dropper(stage: &Stage) {
    let receiver = stages(stage)[0].receiver().unwrap();
    mark();
    drop(receiver.receive().unwrap());
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(receiver);
}

fn joiner(stage: &Stage) {
    mark();
    let pool = pool(stage);
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(pool);
}

/// Numbers of buffers in the two stages, which are free afterwards.
fn in_stages(stage: &Stage) -> [usize; 2] {
    let mut came = [0; 2];
    let stages = stages(stage);
    // Survivors may look at either one first, or at the pool.
    if stage.round.is_multiple_of(3) {
        drop([(); COUNT + 1].map(|()| pool(stage).take_timeout(Duration::from_millis(2))));
    }
    for turn in [0, 1] {
        let which = (stage.round as usize + turn) % 2;
        let receiver = stages[which].receiver().unwrap();
        while let Ok(buffer) = receiver.receive_timeout(Duration::from_millis(2)) {
            assert!(buffer.iter().all(|&byte| byte == SENT), "not what was sent");
            came[which] += 1;
        }
    }
    came
}

/// All buffers are there, each once.
fn all_are_there(stage: &Stage) {
    let pool = pool(stage);
    for _ in 0..2 {
        let mut all = [(); COUNT].map(|()| pool.take_timeout(LONG).expect("a buffer was lost with the dead"));
        assert!(pool.try_take().is_err(), "a buffer is there twice");
        all.iter_mut().zip(0..).for_each(|(buffer, byte)| buffer.fill(byte));
        assert!(all.iter().zip(0..).all(|(buffer, byte)| buffer[99] == byte), "a buffer is there twice");
    }
}

fn sent_or_free(stage: &Stage) {
    match in_stages(stage) {
        [1, 0] => {}
        [0, 0] => {
            assert_ne!(stage.progress.load(SeqCst), DONE, "it was sent, and is lost");
            stage.told();
        }
        came => panic!("{came:?}"),
    }
    all_are_there(stage);
}

fn in_one_stage(stage: &Stage) {
    match in_stages(stage) {
        [0, 1] => {}
        [1, 0] => {
            assert_ne!(stage.progress.load(SeqCst), DONE, "it was passed on");
            stage.told();
        }
        came => panic!("{came:?}"),
    }
    all_are_there(stage);
}

fn there_or_free(stage: &Stage) {
    match in_stages(stage) {
        [0, 0] => {}
        [1, 0] => {
            assert_ne!(stage.progress.load(SeqCst), DONE, "it was free");
            stage.told();
        }
        came => panic!("{came:?}"),
    }
    all_are_there(stage);
}

pub const PLAYS: &[Play] = &[
    Play { name: "pool made or opened", victim: joiner, after: all_are_there, is_told: false, ..PLAY },
    Play { name: "pool take and send", victim: taker, after: sent_or_free, ..PLAY },
    Play {
        name: "pool receive and send",
        hold: a_buffer_is_sent,
        victim: passer,
        after: in_one_stage,
        ..PLAY
    },
    Play {
        name: "pool receive and drop",
        hold: a_buffer_is_sent,
        victim: dropper,
        after: there_or_free,
        ..PLAY
    },
];
