//! Plays of the readers-writer lock. The data are two words that are equal when they are
//! whole.

use std::hint::black_box;
use std::sync::atomic::Ordering::SeqCst;

use towpath_shm::Shared;
use towpath_sync::{LockError, RwLock};

use super::{Hold, Holding, LONG, PATIENCE, Play, Stage, mark, no_hold, nothing};

type Table = Shared<RwLock<[u64; 2]>>;

fn open(stage: &Stage) -> Table {
    stage.world.rw_lock("table", [5, 5]).unwrap()
}

/// Milestones of a victim.
const INSIDE: u64 = 1;
const DONE: u64 = 2;

fn write(stage: &Stage, table: &Table, early: bool) {
    if !early {
        mark();
    }
    let mut both = table.write().unwrap();
    stage.progress.store(INSIDE, SeqCst);
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

fn read(stage: &Stage, table: &Table, early: bool) {
    if !early {
        mark();
    }
    let both = table.read().unwrap();
    stage.progress.store(INSIDE, SeqCst);
    if early {
        mark();
    }
    assert_eq!(both[0], both[1]);
    drop(both);
    stage.progress.store(DONE, SeqCst);
    mark();
}

/// The victim stands still: it counts as alive, whatever it does.
fn stands_still(stage: &Stage) {
    let table = open(stage);
    let told = |error| assert!(matches!(error, LockError::TimedOut), "{error}");
    match table.try_read() {
        Ok(both) => assert_eq!(both[0], both[1]),
        Err(error) => told(error.without_guard()),
    }
    if let Err(error) = table.try_write() {
        told(error.without_guard());
    }
}

/// All data are whole, or the next one is told, with the rank of the dead; once.
fn goes_on_after_a_writer(stage: &Stage) {
    let table = open(stage);
    let left = stage.progress.load(SeqCst) == DONE;
    let result = match stage.round % 2 {
        0 => table.read_timeout(LONG).map(|both| *both),
        _ => table.write_timeout(LONG).map(|both| *both),
    };
    match result {
        Ok(both) => assert_eq!(both[0], both[1], "half changed, and not told"),
        Err(LockError::OwnerDied { rank, guard }) => {
            assert_eq!(rank, Some(1));
            assert!(!left, "told although the dead had left");
            stage.told();
            drop(guard.repair(|both| both[1] = both[0]));
        }
        Err(other) => panic!("{other}"),
    }
    let both = table.write_timeout(LONG).unwrap();
    assert_eq!(both[0], both[1]);
    drop(both);
    let both = table.read_timeout(LONG).unwrap();
    assert!(both[0] == 5 || both[0] == 6);
}

fn goes_on_after_a_reader(stage: &Stage) {
    let table = open(stage);
    let both = table.write_timeout(LONG).expect("nothing is half changed");
    assert_eq!(both[0], both[1]);
    drop(both);
    assert!(table.read_timeout(LONG).is_ok());
}

/// A reader that waits for the victim.
fn reads_once(stage: &Stage) {
    match open(stage).read_timeout(LONG) {
        Ok(both) => assert_eq!(both[0], both[1], "half changed, and not told"),
        Err(LockError::OwnerDied { guard, .. }) => {
            stage.told();
            drop(guard.repair(|both| both[1] = both[0]));
        }
        Err(other) => panic!("{other}"),
    }
}

/// A writer that waits for the victim, and changes nothing.
fn writes_once(stage: &Stage) {
    match open(stage).write_timeout(LONG) {
        Ok(both) => assert_eq!(both[0], both[1], "half changed, and not told"),
        Err(LockError::OwnerDied { guard, .. }) => {
            stage.told();
            drop(guard.repair(|both| both[1] = both[0]));
        }
        Err(other) => panic!("{other}"),
    }
}

fn held_for_reading(stage: &Stage) -> Hold {
    Holding::hold(open(stage), |table| table.read().unwrap())
}

fn held_for_writing(stage: &Stage) -> Hold {
    Holding::hold(open(stage), |table| table.write().unwrap())
}

pub const PLAYS: &[Play] = &[
    Play {
        name: "rw_lock write alone",
        patience: PATIENCE,
        hold: no_hold,
        victim: |stage| write(stage, &open(stage), false),
        helper: None,
        meanwhile: stands_still,
        after: goes_on_after_a_writer,
        is_told: true,
    },
    Play {
        name: "rw_lock write while a reader waits",
        patience: PATIENCE,
        hold: no_hold,
        victim: |stage| write(stage, &open(stage), true),
        helper: Some(reads_once),
        meanwhile: stands_still,
        after: goes_on_after_a_writer,
        is_told: true,
    },
    Play {
        name: "rw_lock write while a writer waits",
        patience: PATIENCE,
        hold: no_hold,
        victim: |stage| write(stage, &open(stage), true),
        helper: Some(writes_once),
        meanwhile: nothing,
        after: goes_on_after_a_writer,
        is_told: true,
    },
    Play {
        name: "rw_lock write behind a reader",
        patience: PATIENCE,
        hold: held_for_reading,
        victim: |stage| write(stage, &open(stage), false),
        helper: None,
        meanwhile: nothing,
        after: goes_on_after_a_writer,
        is_told: true,
    },
    Play {
        name: "rw_lock write behind a writer",
        patience: PATIENCE,
        hold: held_for_writing,
        victim: |stage| write(stage, &open(stage), false),
        helper: Some(reads_once),
        meanwhile: nothing,
        after: goes_on_after_a_writer,
        is_told: true,
    },
    Play {
        name: "rw_lock read alone",
        patience: PATIENCE,
        hold: no_hold,
        victim: |stage| read(stage, &open(stage), false),
        helper: None,
        meanwhile: stands_still,
        after: goes_on_after_a_reader,
        is_told: false,
    },
    Play {
        name: "rw_lock read while a writer waits",
        patience: PATIENCE,
        hold: no_hold,
        victim: |stage| read(stage, &open(stage), true),
        helper: Some(writes_once),
        meanwhile: nothing,
        after: goes_on_after_a_reader,
        is_told: false,
    },
    Play {
        name: "rw_lock read behind a writer",
        patience: PATIENCE,
        hold: held_for_writing,
        victim: |stage| read(stage, &open(stage), false),
        helper: Some(writes_once),
        meanwhile: nothing,
        after: goes_on_after_a_reader,
        is_told: false,
    },
];
