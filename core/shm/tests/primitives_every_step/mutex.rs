//! Plays of the mutex. The data are two words that are equal when they are whole.

use std::hint::black_box;
use std::sync::atomic::Ordering::SeqCst;

use towpath_shm::Shared;
use towpath_sync::{LockError, Mutex};

use super::{Hold, Holding, LONG, PATIENCE, Play, Stage, mark, no_hold, nothing};

type Table = Shared<Mutex<[u64; 2]>>;

fn open(stage: &Stage) -> Table {
    stage.world.mutex("table", [5, 5]).unwrap()
}

/// Milestone of a victim: it has left.
const DONE: u64 = 1;

fn change(stage: &Stage, early: bool) {
    let table = open(stage);
    if !early {
        mark();
    }
    let mut both = table.lock().unwrap();
    if early {
        mark();
    }
    both[0] += 1;
    black_box(&mut both);
    both[1] += 1;
    drop(both);
    stage.progress.store(DONE, SeqCst);
    mark();
}

fn stands_still(stage: &Stage) {
    match open(stage).try_lock() {
        Ok(both) => assert_eq!(both[0], both[1]),
        Err(error) => assert_eq!(error.without_guard(), LockError::TimedOut),
    }
}

/// Every second one that is told leaves the repair to the next.
fn goes_on(stage: &Stage) {
    let table = open(stage);
    for leaves in [stage.round % 2 == 1, false] {
        match table.lock_timeout(LONG) {
            Ok(both) => assert_eq!(both[0], both[1], "half changed, and not told"),
            Err(LockError::OwnerDied { rank, guard }) => {
                assert_eq!(rank, Some(1));
                assert_ne!(stage.progress.load(SeqCst), DONE, "told although the dead had left");
                stage.told();
                if !leaves {
                    drop(guard.repair(|both| both[1] = both[0]));
                }
            }
            Err(other) => panic!("{other}"),
        }
    }
    let both = table.lock_timeout(LONG).unwrap();
    assert_eq!(both[0], both[1]);
}

fn waits_for_it(stage: &Stage) {
    match open(stage).lock_timeout(LONG) {
        Ok(both) => assert_eq!(both[0], both[1], "half changed, and not told"),
        Err(LockError::OwnerDied { guard, .. }) => {
            stage.told();
            drop(guard.repair(|both| both[1] = both[0]));
        }
        Err(other) => panic!("{other}"),
    }
}

fn held(stage: &Stage) -> Hold {
    Holding::hold(open(stage), |table| table.lock().unwrap())
}

pub const PLAYS: &[Play] = &[
    Play {
        name: "mutex change alone",
        patience: PATIENCE,
        hold: no_hold,
        victim: |stage| change(stage, false),
        helper: None,
        meanwhile: stands_still,
        after: goes_on,
        is_told: true,
    },
    Play {
        name: "mutex change while another waits",
        patience: PATIENCE,
        hold: no_hold,
        victim: |stage| change(stage, true),
        helper: Some(waits_for_it),
        meanwhile: nothing,
        after: goes_on,
        is_told: true,
    },
    Play {
        name: "mutex change behind another",
        patience: PATIENCE,
        hold: held,
        victim: |stage| change(stage, false),
        helper: Some(waits_for_it),
        meanwhile: nothing,
        after: goes_on,
        is_told: true,
    },
];
