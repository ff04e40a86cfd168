//! The model checker, with limits.

use std::sync::{Mutex, PoisonError};

/// Runs `body` under every schedule with at most so many preemptions; panics if one of
/// them fails.
///
/// One model at a time: loom makes new stacks for each schedule, and two tests that do so in one
/// process spend three times as long, most of it in the kernel, waiting for each other.
pub fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    static ALONE: Mutex<()> = Mutex::new(());
    // What another test has found does not matter here.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(body);
}
