//! The model checker, with limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tells whether `TOWPATH_LONG` asks for the longer forms of models.
///
/// CI asks each fourth time.
pub fn is_long() -> bool {
    std::env::var_os("TOWPATH_LONG").is_some()
}

/// Number of preemptions that a model allows: so few, or more in its longer form.
pub fn preemptions(few: usize, more: usize) -> usize {
    if is_long() { more } else { few }
}

/// Runs `body` under every schedule with at most so many preemptions; panics if one of
/// them fails. Prints the number of schedules, which `--nocapture` shows.
///
/// Models of several tests run at one time. That pays because `stacks.rs` keeps the stacks: else
/// they would wait for each other in the kernel.
pub fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    // Not loom's: it outlives a schedule. Relaxed: only a count.
    let schedules = Arc::new(AtomicU64::new(0));
    let count = schedules.clone();
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        body();
    });
    println!("{} schedules", schedules.load(Relaxed));
}
