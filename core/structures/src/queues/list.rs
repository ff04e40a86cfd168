//! List of the queues, for tests, explorers and experiments. A new queue is one line
//! here.

/// Calls a generic function with each queue of the named groups as its type argument.
///
/// A group says what a machine must offer: `atomics` (nothing more), `ll_sc`
/// ([`LlSc`](towpath_machine::LlSc)), `fetch_op` (that and [`FetchOp`](towpath_machine::FetchOp):
/// the free lists are over LL/SC there), `scheduling` (those and
/// [`Scheduling`](towpath_machine::Scheduling)), `published` (those of `fetch_op`, and as
/// [`for_each_lock!`](towpath_sync::for_each_lock) says). Then the machine, and for how many
/// processors (ids below that) locks with a place for each shall have places.
///
/// ```
/// use towpath_machine::{Heap, Native};
/// use towpath_structures::for_each_queue;
/// use towpath_structures::queues::ConcurrentQueue;
///
/// fn list<Q: ConcurrentQueue<Native>>(names: &mut Vec<&str>) {
///     names.push(Q::NAME);
/// }
/// let mut names = Vec::new();
/// for_each_queue!([atomics ll_sc fetch_op] Native, 8 => list(&mut names));
/// assert!(names.contains(&"michael-scott/ll-sc"));
/// ```
#[macro_export]
macro_rules! for_each_queue {
    ([] $machine:ty, $n:literal => $each:ident $arguments:tt) => {};
    ([atomics $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::queues::TwoEnded<$machine, $crate::sync::locks::TestAndSet<$machine>>> $arguments;
        $each::<$crate::queues::TwoEnded<$machine, $crate::sync::locks::TestAndTestAndSet<$machine>>> $arguments;
        $each::<$crate::queues::TwoEnded<$machine, $crate::sync::locks::Ticket<$machine>>> $arguments;
        $each::<$crate::queues::TwoEnded<$machine, $crate::sync::locks::Anderson<$machine, $n>>> $arguments;
        $each::<$crate::queues::TwoEnded<$machine, $crate::sync::locks::Mcs<$machine, $n>>> $arguments;
        $each::<$crate::queues::TwoEnded<$machine, $crate::sync::locks::Reactive<$machine, $n>>> $arguments;
        $each::<$crate::queues::TwoEnded<$machine, $crate::sync::locks::Robust<$machine, $n>>> $arguments;
        $each::<$crate::queues::TwoLock<$machine, $crate::sync::locks::Ticket<$machine>>> $arguments;
        $each::<$crate::queues::TwoLock<$machine, $crate::sync::locks::Robust<$machine, $n>>> $arguments;
        $each::<$crate::queues::PrakashLeeJohnson<$machine>> $arguments;
        $each::<$crate::queues::Valois<$machine>> $arguments;
        $each::<$crate::queues::MichaelScott<$machine>> $arguments;
        $crate::for_each_queue!([$($more)*] $machine, $n => $each $arguments);
    };
    ([ll_sc $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $crate::for_each_queue!(@locks LoadLinked, $machine, $n => $each $arguments);
        $each::<$crate::queues::PrakashLeeJohnson<$machine, $crate::sync::LoadLinked>> $arguments;
        $each::<$crate::queues::Valois<$machine, $crate::sync::LoadLinked>> $arguments;
        $each::<$crate::queues::MichaelScott<$machine, $crate::sync::LoadLinked>> $arguments;
        $crate::for_each_queue!([$($more)*] $machine, $n => $each $arguments);
    };
    ([fetch_op $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $crate::for_each_queue!(@locks AtMemory, $machine, $n => $each $arguments);
        $each::<
            $crate::queues::TwoEnded<$machine, $crate::sync::locks::HybridQueue<$machine, $n>, $crate::sync::LoadLinked>,
        > $arguments;
        $each::<$crate::queues::FetchOpArray<$machine>> $arguments;
        $each::<$crate::queues::FetchOpTickets<$machine>> $arguments;
        $crate::for_each_queue!([$($more)*] $machine, $n => $each $arguments);
    };
    ([scheduling $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<
            $crate::queues::TwoEnded<
                $machine,
                $crate::sync::locks::SchedulerConscious<$machine, $n>,
                $crate::sync::LoadLinked,
            >,
        > $arguments;
        $crate::for_each_queue!([$($more)*] $machine, $n => $each $arguments);
    };
    ([published $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<
            $crate::queues::TwoEnded<
                $machine,
                $crate::sync::locks::SchedulerConscious<$machine, $n, $crate::sync::locks::Published>,
                $crate::sync::LoadLinked,
            >,
        > $arguments;
        $crate::for_each_queue!([$($more)*] $machine, $n => $each $arguments);
    };
    (@locks $primitive:ident, $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::queues::TwoEnded<$machine, $crate::sync::locks::TestAndSet<$machine, $crate::sync::$primitive>, $crate::sync::LoadLinked>> $arguments;
        $each::<$crate::queues::TwoEnded<$machine, $crate::sync::locks::Ticket<$machine, $crate::sync::$primitive>, $crate::sync::LoadLinked>> $arguments;
        $each::<$crate::queues::TwoEnded<$machine, $crate::sync::locks::Anderson<$machine, $n, $crate::sync::$primitive>, $crate::sync::LoadLinked>> $arguments;
    };
}

/// Calls a generic function with each of the planted faults ([`crate::planted`]), as
/// [`for_each_queue!`](crate::for_each_queue) does with the queues. The groups: `atomics` and
/// `fetch_op`.
#[macro_export]
macro_rules! for_each_planted_queue {
    ([] $machine:ty => $each:ident $arguments:tt) => {};
    ([atomics $($more:ident)*] $machine:ty => $each:ident $arguments:tt) => {
        $each::<$crate::planted::MichaelScottNoRecheck<$machine>> $arguments;
        $each::<$crate::planted::MichaelScottUncounted<$machine>> $arguments;
        $crate::for_each_planted_queue!([$($more)*] $machine => $each $arguments);
    };
    ([fetch_op $($more:ident)*] $machine:ty => $each:ident $arguments:tt) => {
        $each::<$crate::planted::FetchOpArrayAsPrinted<$machine>> $arguments;
        $crate::for_each_planted_queue!([$($more)*] $machine => $each $arguments);
    };
}
