//! List of the locks, for tests, explorers and experiments. A new lock is one line here.

/// Calls a generic function with each lock of the named groups as its type argument.
///
/// A group says what a machine must offer: `atomics` (nothing more), `ll_sc`
/// ([`LlSc`](towpath_machine::LlSc)), `fetch_op` ([`FetchOp`](towpath_machine::FetchOp)),
/// `scheduling` (that and [`Scheduling`](towpath_machine::Scheduling)), `published` (`FetchOp`, and
/// calling the predicate of [`spin_until`](towpath_machine::Processor::spin_until) all the while;
/// see [`Published`](crate::locks::Published)), `kernel_mutex`
/// ([`KernelMutex`](towpath_machine::KernelMutex)). Then the machine, and for how many processors
/// (ids below that) locks with a place for each shall have places.
///
/// ```
/// use towpath_machine::{Heap, Native};
/// use towpath_sync::{Lock, for_each_lock};
///
/// fn list<L: Lock<Native>>(names: &mut Vec<&str>) {
///     names.push(L::NAME);
/// }
/// let mut names = Vec::new();
/// for_each_lock!([atomics ll_sc fetch_op published kernel_mutex] Native, 8 => list(&mut names));
/// assert!(names.contains(&"ticket/fetch-op"));
/// ```
#[macro_export]
macro_rules! for_each_lock {
    ([] $machine:ty, $n:literal => $each:ident $arguments:tt) => {};
    ([atomics $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::locks::TestAndSet<$machine>> $arguments;
        $each::<$crate::locks::TestAndTestAndSet<$machine>> $arguments;
        $each::<$crate::locks::Ticket<$machine>> $arguments;
        $each::<$crate::locks::TicketTwoLines<$machine>> $arguments;
        $each::<$crate::locks::Anderson<$machine, $n>> $arguments;
        $each::<$crate::locks::Clh<$machine, $n>> $arguments;
        $each::<$crate::locks::Mcs<$machine, $n>> $arguments;
        $each::<$crate::locks::Reactive<$machine, $n>> $arguments;
        $each::<$crate::locks::Robust<$machine, $n>> $arguments;
        $crate::for_each_lock!([$($more)*] $machine, $n => $each $arguments);
    };
    ([ll_sc $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::locks::TestAndSet<$machine, $crate::LoadLinked>> $arguments;
        $each::<$crate::locks::Ticket<$machine, $crate::LoadLinked>> $arguments;
        $each::<$crate::locks::Anderson<$machine, $n, $crate::LoadLinked>> $arguments;
        $each::<$crate::locks::Clh<$machine, $n, $crate::LoadLinked>> $arguments;
        $each::<$crate::locks::Mcs<$machine, $n, $crate::LoadLinked>> $arguments;
        $crate::for_each_lock!([$($more)*] $machine, $n => $each $arguments);
    };
    ([fetch_op $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::locks::TestAndSet<$machine, $crate::AtMemory>> $arguments;
        $each::<$crate::locks::Ticket<$machine, $crate::AtMemory>> $arguments;
        $each::<$crate::locks::Anderson<$machine, $n, $crate::AtMemory>> $arguments;
        $each::<$crate::locks::HybridQueue<$machine, $n>> $arguments;
        $crate::for_each_lock!([$($more)*] $machine, $n => $each $arguments);
    };
    ([scheduling $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::locks::SchedulerConscious<$machine, $n>> $arguments;
        $crate::for_each_lock!([$($more)*] $machine, $n => $each $arguments);
    };
    ([published $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::locks::SchedulerConscious<$machine, $n, $crate::locks::Published>> $arguments;
        $crate::for_each_lock!([$($more)*] $machine, $n => $each $arguments);
    };
    ([kernel_mutex $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::locks::Posix<$machine>> $arguments;
        $crate::for_each_lock!([$($more)*] $machine, $n => $each $arguments);
    };
}
