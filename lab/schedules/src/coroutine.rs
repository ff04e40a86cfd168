//! A thread of the machine as a coroutine.
#![allow(unsafe_code)]

use corosensei::Coroutine;
use corosensei::stack::DefaultStack;

use crate::machine::ExploredMemory;
use crate::processor::Explorer;

/// A thread that runs `body`, up to its first access when it is resumed first, and from
/// access to access after that.
pub(crate) fn thread(
    stack: DefaultStack,
    memory: &ExploredMemory,
    index: usize,
    id: usize,
    body: impl FnOnce(&Explorer) + 'static,
) -> Coroutine<(), (), (), DefaultStack> {
    let memory = memory.clone();
    Coroutine::with_stack(stack, move |yielder, ()| {
        // SAFETY:
        // * The yielder lives as long as the coroutine's function, which is where the explorer
        //   ends.
        // * The explorer is neither `Send` nor `Clone`, and `body` gets a reference that it cannot
        //   keep: it is used by what `body` calls, on this stack.
        let cpu = unsafe { Explorer::running(memory, index, id, yielder) };
        body(&cpu);
    })
}
