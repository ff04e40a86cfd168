//! List of the barriers, for tests, explorers and experiments. A new barrier is one line
//! here.

/// Calls a generic function with each barrier of the named groups as its type argument.
///
/// The groups are those of [`for_each_lock!`](crate::for_each_lock): `atomics`, `ll_sc` and
/// `fetch_op`. Then the machine, and the most participants.
///
/// ```
/// use towpath_machine::{Heap, Native};
/// use towpath_sync::{Barrier, Spinning, for_each_barrier};
///
/// fn alone<B: Barrier<Native>>(names: &mut Vec<&str>) {
///     B::new(&Heap, 1).wait(&Native::current(), 0, &Spinning).unwrap();
///     names.push(B::NAME);
/// }
/// let mut names = Vec::new();
/// for_each_barrier!([atomics ll_sc fetch_op] Native, 8 => alone(&mut names));
/// assert!(names.contains(&"centralized/fetch-op"));
/// ```
#[macro_export]
macro_rules! for_each_barrier {
    ([] $machine:ty, $n:literal => $each:ident $arguments:tt) => {};
    ([atomics $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::barriers::Centralized<$machine, $n>> $arguments;
        $each::<$crate::barriers::McsTree<$machine, $n>> $arguments;
        $each::<$crate::barriers::Dissemination<$machine, $n>> $arguments;
        $crate::for_each_barrier!([$($more)*] $machine, $n => $each $arguments);
    };
    ([ll_sc $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::barriers::Centralized<$machine, $n, $crate::LoadLinked>> $arguments;
        $crate::for_each_barrier!([$($more)*] $machine, $n => $each $arguments);
    };
    ([fetch_op $($more:ident)*] $machine:ty, $n:literal => $each:ident $arguments:tt) => {
        $each::<$crate::barriers::Centralized<$machine, $n, $crate::AtMemory>> $arguments;
        $crate::for_each_barrier!([$($more)*] $machine, $n => $each $arguments);
    };
}
