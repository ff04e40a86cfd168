//! Kills a process after instruction k of an operation on a primitive of a world, and
//! looks how the others get on: none hangs, nothing is lost that was promised, and a death is told
//! where the dead one may have left something half done. Before the kill the victim only stands
//! still: nothing is taken from it.
//!
//! `cargo test -p towpath-shm --test primitives_every_step -- every` does it for every k (names of
//! a primitive choose among the plays). In the ordinary tests k grows by half of it at a time.
//!
//! This process is the tracer, and a survivor, in rank 0; the victim has rank 1; a helper, where
//! there is one, rank 2. Each round has a world of its own.

#![allow(unsafe_code)]

mod broadcast;
mod forked_fences;
mod in_mapping;
mod killed_waiters;
mod messages;
mod mutex;
mod others;
mod per_sender;
mod pool;
mod queues;
mod reused_memory;
mod rw_lock;

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use towpath_shm::{World, WorldSpec};
use towpath_testkit::{Child, Choice, KnownPath, Share, Victim, mark, share_cases, shared_words, watchdog};

/// Usual patience of a victim ([`Play::patience`]).
const PATIENCE: u64 = 400;
/// Time after which a survivor counts as hanging.
const LONG: Duration = Duration::from_secs(20);

/// A round's world, and words that all its processes share.
struct Stage<'a> {
    world: &'a World,
    /// Number of milestones that the victim has passed.
    progress: &'a AtomicU64,
    told: &'a AtomicU64,
    /// Note of the helper for this process.
    note: &'static AtomicU64,
    /// Number of the round.
    round: u64,
}

impl Stage<'_> {
    /// Notes that a survivor was told of the death.
    fn told(&self) {
        self.told.fetch_add(1, SeqCst);
    }
}

/// Something that this process holds while the victim acts: let go when dropped.
type Hold = Option<Box<dyn Any>>;

/// A guard, and the handle that it borrows from.
struct Holding<G, H: 'static> {
    guard: Option<G>,
    handle: *mut H,
}

impl<G: 'static, H> Holding<G, H> {
    fn hold(handle: H, lock: impl FnOnce(&'static H) -> G) -> Hold {
        let handle = Box::into_raw(Box::new(handle));
        // SAFETY: stays there until it is dropped below, after the guard.
        let guard = lock(unsafe { &*handle });
        Some(Box::new(Holding { guard: Some(guard), handle }))
    }
}

impl<G, H> Drop for Holding<G, H> {
    fn drop(&mut self) {
        drop(self.guard.take());
        // SAFETY: from `Box::into_raw`, and borrowed by the guard alone, which is gone.
        drop(unsafe { Box::from_raw(self.handle) });
    }
}

/// A play: the parts of the processes in each round.
#[derive(Clone, Copy)]
struct Play {
    name: &'static str,
    /// Number of steps for which the victim waits for this process, unless it sleeps.
    /// More where others must wait behind a victim that sleeps.
    patience: u64,
    /// Act of this process before the victim's; let go when the victim waits.
    hold: fn(&Stage) -> Hold,
    /// The victim's part. It stands at a [`mark`] before and after the act itself.
    victim: fn(&Stage),
    /// Begins when the victim stands at its first mark.
    helper: Option<fn(&Stage)>,
    /// The victim stands still where it is. By this process.
    meanwhile: fn(&Stage),
    /// The victim is dead. By this process.
    after: fn(&Stage),
    /// True if a survivor is told of the death in some rounds.
    is_told: bool,
}

fn nothing(_: &Stage) {}

fn no_hold(_: &Stage) -> Hold {
    None
}

/// A play in which no process does anything yet.
const PLAY: Play = Play {
    name: "",
    patience: PATIENCE,
    hold: no_hold,
    victim: nothing,
    helper: None,
    meanwhile: nothing,
    after: nothing,
    is_told: true,
};

/// One round. Returns whether the victim's act was complete, and the last of the case.
fn round(play: &Play, words: &'static [AtomicU64], round: u64, steps: u64, path: &mut KnownPath) -> bool {
    words[0].store(0, SeqCst);
    words[2].store(0, SeqCst);
    let spec = WorldSpec { name: None, processes: 3, area_bytes: 0, object_bytes: 1 << 18, params: [0; 16] };
    let ours = World::create(&spec).unwrap();
    let theirs = ours.reopen().unwrap();
    ours.enter(Some(0)).unwrap();
    let me = ours.me();
    let [progress, told, note] = words else { unreachable!() };
    let stage = Stage { world: &ours, progress, told, note, round };
    let child = Stage { world: &theirs, progress, told, note, round };
    let mut hold = (play.hold)(&stage);
    let mut victim = Victim::fork(|| {
        theirs.enter(Some(1)).unwrap();
        // Work that is done only once in a process is done before the act.
        towpath_machine::Native::pause_ps();
        theirs.is_alive(me);
        (play.victim)(&child);
        Ok(())
    });
    victim.reach_mark();
    let helper = play.helper.map(|help| {
        let helper = Child::fork(|| {
            theirs.enter(Some(2)).unwrap();
            help(&child);
        });
        while !helper.is_asleep() && !helper.has_ended() {
            std::thread::yield_now();
        }
        helper
    });
    let complete = if hold.is_none() && helper.is_none() {
        // It waits for no process.
        let complete = victim.run_along(path, steps);
        path.is_done(complete)
    } else {
        victim.run(steps, |step, asleep| {
            if asleep || step >= play.patience {
                hold.take();
            }
        })
    };
    (play.meanwhile)(&stage);
    victim.kill();
    drop(hold);
    (play.after)(&stage);
    if let Some(helper) = helper {
        while !helper.has_ended() {
            std::thread::yield_now();
        }
        assert!(helper.has_ended_well(), "the helper failed");
    }
    complete
}

fn run(play: &Play, choice: &Choice, words: &'static [AtomicU64], share: &mut Share) {
    if !choice.includes(&play.name.split(' ').chain([play.name]).collect::<Vec<_>>()) || !share.takes_next() {
        return;
    }
    watchdog::begin(play.name.to_owned(), 300);
    let (mut steps, mut rounds, mut told) = (0, 0, 0);
    words[1].store(0, SeqCst);
    // Between two kills a short critical section may pass.
    choice.until_seen(|part| {
        let mut path = KnownPath::default();
        steps = 0;
        loop {
            watchdog::at(steps);
            rounds += 1;
            if round(play, words, rounds, steps, &mut path) {
                break;
            }
            steps = choice.after_part(steps, part);
        }
        told = words[1].load(SeqCst);
        told > 0 || !play.is_told
    });
    println!("{:<40}{rounds:>6} kills, {told:>6} told, {steps:>6} steps", play.name);
    assert!(steps > 50, "{}: too short to be the act", play.name);
    assert_eq!(told > 0, play.is_told, "{}: {told} times told of the death", play.name);
}

fn main() {
    let choice = Choice::from_arguments();
    share_cases(|share| {
        let words = shared_words(3);
        let all = [
            mutex::PLAYS,
            rw_lock::PLAYS,
            others::PLAYS,
            queues::PLAYS,
            per_sender::PLAYS,
            broadcast::PLAYS,
            pool::PLAYS,
            messages::PLAYS,
            in_mapping::PLAYS,
        ];
        for play in all.concat() {
            run(&play, &choice, words, share);
        }
        if choice.includes(&["condvar", "killed"]) && share.takes_next() {
            watchdog::begin("condvar with a killed waiter".to_owned(), 120);
            killed_waiters::side_by_side();
        }
        if choice.includes(&["fences", "forked"]) && share.takes_next() {
            watchdog::begin("fences of a forked process".to_owned(), 120);
            forked_fences::hold_between_processes();
        }
        if choice.includes(&["mutex", "reused"]) && share.takes_next() {
            watchdog::begin("mutex whose memory is reused".to_owned(), 120);
            reused_memory::side_by_side(&choice);
        }
    });
}
