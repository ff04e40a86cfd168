//! List of the DCAS implementations, for tests, explorers and experiments. A new
//! implementation is one line here.

/// Calls a generic function with each implementation of DCAS of the named groups as its
/// type argument.
///
/// A group says what a machine must offer: `atomics` (nothing more), `cas2`
/// ([`Cas2`](towpath_machine::Cas2): good for adjacent words only), `dcas`
/// ([`Dcas`](towpath_machine::Dcas)). Then the machine, and the storage.
///
/// ```
/// use towpath_machine::{Heap, Native};
/// use towpath_structures::dcas::DoubleCas;
/// use towpath_structures::{Boxed, for_each_dcas};
///
/// fn list<D: DoubleCas<Native>>(names: &mut Vec<&str>) {
///     names.push(D::NAME);
/// }
/// let mut names = Vec::new();
/// for_each_dcas!([atomics] Native, Boxed => list(&mut names));
/// assert_eq!(names, ["guerraoui", "harris", "bershad", "locked"]);
/// ```
#[macro_export]
macro_rules! for_each_dcas {
    ([] $machine:ty, $storage:ty => $each:ident $arguments:tt) => {};
    ([atomics $($more:ident)*] $machine:ty, $storage:ty => $each:ident $arguments:tt) => {
        $each::<$crate::dcas::Guerraoui<$machine, $storage>> $arguments;
        $each::<$crate::dcas::Harris<$machine, $storage>> $arguments;
        $each::<$crate::dcas::Bershad<$machine, $storage>> $arguments;
        $each::<$crate::dcas::Locked<$machine, $storage>> $arguments;
        $crate::for_each_dcas!([$($more)*] $machine, $storage => $each $arguments);
    };
    ([cas2 $($more:ident)*] $machine:ty, $storage:ty => $each:ident $arguments:tt) => {
        $each::<$crate::dcas::Adjacent<$machine, $storage>> $arguments;
        $crate::for_each_dcas!([$($more)*] $machine, $storage => $each $arguments);
    };
    ([dcas $($more:ident)*] $machine:ty, $storage:ty => $each:ident $arguments:tt) => {
        $each::<$crate::dcas::Hardware<$machine, $storage>> $arguments;
        $crate::for_each_dcas!([$($more)*] $machine, $storage => $each $arguments);
    };
}
