//! Processors as coroutines.
#![allow(unsafe_code)]

use std::cell::RefCell;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

thread_local! {
    /// Stacks of earlier runs: mapping new ones takes longer than most runs.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// The way back of a coroutine to its thread.
pub struct Turns(*const Yielder<(), ()>);

impl Default for Turns {
    /// Way of a processor that acts while nothing runs: it must not wait.
    fn default() -> Self {
        Turns(std::ptr::null())
    }
}

impl Turns {
    /// Lets others act, until this coroutine is resumed.
    pub fn pass_on(&self) {
        assert!(!self.0.is_null(), "waits while nothing runs");
        // SAFETY: `take_turns` made it of the coroutine's own yielder, which lives as long as the
        // function that has got it; it is neither `Send` nor `Clone`.
        unsafe { (*self.0).suspend(()) };
    }
}

/// Runs `play` in so many coroutines until all have ended, each time that which `next`
/// names; if it names none, one after the other. Returns their results.
pub fn take_turns<T>(
    count: usize,
    play: impl Fn(usize, Turns) -> T,
    next: impl Fn() -> Option<usize>,
) -> Vec<T> {
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    let mut threads: Vec<_> = (0..count)
        .map(|id| {
            let stack = STACKS.with_borrow_mut(Vec::pop).unwrap_or_default();
            let play = &play;
            // SAFETY: it has ended and is dropped before this function returns, and so before what
            // `play` borrows ends; a panic that leaves this function drops it, too.
            unsafe {
                Coroutine::<(), (), T, DefaultStack>::with_stack_unchecked(stack, move |yielder, ()| {
                    play(id, Turns(yielder))
                })
            }
        })
        .collect();
    while let Some(id) = next().or_else(|| results.iter().position(Option::is_none)) {
        if let CoroutineResult::Return(result) = threads[id].resume(()) {
            results[id] = Some(result);
        }
    }
    STACKS.with_borrow_mut(|stacks| stacks.extend(threads.into_iter().map(Coroutine::into_stack)));
    results.into_iter().flatten().collect()
}
