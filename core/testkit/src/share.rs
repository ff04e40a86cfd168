//! Cases shared by two processes, with a core each.
//!
//! A test that steps through a child keeps one core busy. Two such processes go through the same
//! list of cases; each takes the next one that the other has not taken.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use towpath_process::Child;

use crate::{pin, shared_words, two_cores};

/// Share of the cases that this process takes.
#[derive(Debug)]
pub struct Share {
    /// Number of cases that were taken.
    taken: &'static AtomicU64,
    /// Case that this process takes next.
    mine: u64,
    /// Number of cases that it has come across.
    seen: u64,
    /// The core on which this process runs, and the other one.
    pub cores: [usize; 2],
}

impl Share {
    /// Returns whether this process takes the next case.
    pub fn takes_next(&mut self) -> bool {
        let takes = self.seen == self.mine;
        self.seen += 1;
        if takes {
            // Relaxed: only a count.
            self.mine = self.taken.fetch_add(1, Relaxed);
        }
        takes
    }
}

/// Runs a list of cases in two processes, each on a core of its own.
///
/// In one process where there is only one core. `act` asks [`Share::takes_next`] before each case.
/// Prints the number of cases at the end.
///
/// Memory that the cases share must be made by `act`.
///
/// # Panics
///
/// If a case failed, or there was none.
pub fn share_cases(act: impl Fn(&mut Share)) {
    share_cases_among(1, act);
}

/// Runs a list of cases like [`share_cases`], in so many processes on each core.
///
/// For cases that wait for time to pass.
///
/// # Panics
///
/// As [`share_cases`].
pub fn share_cases_among(on_each_core: usize, act: impl Fn(&mut Share)) {
    let cores = two_cores();
    let words = shared_words(2);
    let (taken, done) = (&words[0], &words[1]);
    let work = |cores: [usize; 2]| {
        pin(cores[0]);
        // Relaxed, and so below: only counts.
        let mut share = Share { taken, mine: taken.fetch_add(1, Relaxed), seen: 0, cores };
        act(&mut share);
        // Both have come across all of them.
        done.store(share.seen, Relaxed);
        0
    };
    let workers = if cores[0] == cores[1] { vec![cores] } else { vec![cores, [cores[1], cores[0]]] };
    let children: Vec<Child> = workers
        .repeat(on_each_core)
        .into_iter()
        .map(|cores| Child::fork(|| work(cores)).expect("a process can be started"))
        .collect();
    for mut child in children {
        // Each case has a watchdog in the process that runs it.
        let tomorrow = Instant::now() + Duration::from_secs(24 * 3600);
        let exit = child.wait(tomorrow).expect("a child can be waited for");
        assert_eq!(exit.map(|exit| exit.code), Some(0), "a case has failed");
    }
    let cases = done.load(Relaxed);
    assert!(cases > 0, "there is no such case");
    println!("test result: ok. {cases} passed; 0 failed");
}
