//! Plays of worlds in memory that the caller has mapped.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use towpath_shm::{InMapping, World};
use towpath_sync::robust::Event;
use towpath_testkit::shared_words;

use super::{Hold, PATIENCE, Play, Stage, mark, nothing};

/// Milestone of a victim: its act is complete.
const DONE: u64 = 1;
const RANKS: u32 = 4;

fn words() -> &'static [AtomicU64] {
    static WORDS: OnceLock<&'static [AtomicU64]> = OnceLock::new();
    WORDS.get_or_init(|| shared_words(Event::bytes_in(RANKS) / 8 + 1))
}

fn memory() -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(NonNull::from(words()).cast(), size_of_val(words()))
}

fn open() -> World {
    // SAFETY: mapped for good, zeroed before each round, and used by these worlds only.
    unsafe { World::open_or_init_in(memory(), RANKS) }.unwrap()
}

fn zeroed(_: &Stage) -> Hold {
    words().iter().for_each(|word| word.store(0, SeqCst));
    None
}

fn victim(stage: &Stage) {
    mark();
    drop(open().event("e").unwrap());
    stage.progress.store(DONE, SeqCst);
    mark();
}

fn world_is_whole(_: &Stage) {
    let first = open();
    assert!(first.event("e").unwrap().wait_timeout(std::time::Duration::ZERO).is_err());
    // The rank of the dead is free again.
    let others: Vec<World> = (1..RANKS).map(|_| open()).collect();
    let mut ranks: Vec<u32> = others.iter().chain([&first]).map(World::rank).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, Vec::from_iter(0..RANKS));
}

pub const PLAYS: &[Play] = &[Play {
    name: "mapping opened or made",
    patience: PATIENCE,
    hold: zeroed,
    victim,
    helper: None,
    // One that stands still while it makes the world holds the others up.
    meanwhile: nothing,
    after: world_is_whole,
    is_told: false,
}];
