//! Storage of an algorithm's arrays: beside it, made once at run-time size, or in place,
//! in a segment.

/// Makes an algorithm's arrays: one of nodes or slots, one with a place per participant.
pub trait Storage: Send + Sync + 'static {
    /// The nodes or slots.
    type Nodes<T: Send + Sync + 'static>: AsRef<[T]> + Send + Sync + 'static;
    /// A place per participant.
    type Each<T: Send + Sync + 'static>: AsRef<[T]> + Send + Sync + 'static;

    /// Makes the array of nodes.
    ///
    /// # Panics
    ///
    /// If the storage has room for fewer.
    ///
    /// ```
    /// use towpath_structures::{Boxed, InPlace, Storage};
    ///
    /// let boxed = Boxed::nodes(3, |index| index * 10);
    /// assert_eq!(*boxed, [0, 10, 20]);
    /// assert_eq!(InPlace::<4, 2>::nodes(3, |index| index).len(), 4); // all that it has
    /// ```
    fn nodes<T: Send + Sync + 'static>(count: usize, make: impl FnMut(usize) -> T) -> Self::Nodes<T>;

    /// Makes the array with a place per participant.
    ///
    /// # Panics
    ///
    /// As [`Storage::nodes`].
    ///
    /// ```
    /// use towpath_structures::{InPlace, Storage};
    ///
    /// let hazards: [u32; 2] = InPlace::<4, 2>::each(2, |_| 0); // one for each participant
    /// assert_eq!(hazards, [0, 0]);
    /// ```
    fn each<T: Send + Sync + 'static>(count: usize, make: impl FnMut(usize) -> T) -> Self::Each<T>;
}

/// Arrays of run-time size, made once when the structure is made. For threads, for the
/// simulator and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boxed;

/// Arrays in place: the structure has no pointers and may lie in a segment. It has all
/// its nodes and places, however few [`Storage::nodes`] is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct InPlace<const NODES: usize, const PARTICIPANTS: usize>;

impl Storage for Boxed {
    type Nodes<T: Send + Sync + 'static> = Box<[T]>;
    type Each<T: Send + Sync + 'static> = Box<[T]>;

    fn nodes<T: Send + Sync + 'static>(count: usize, make: impl FnMut(usize) -> T) -> Box<[T]> {
        (0..count).map(make).collect()
    }
    fn each<T: Send + Sync + 'static>(count: usize, make: impl FnMut(usize) -> T) -> Box<[T]> {
        (0..count).map(make).collect()
    }
}

impl<const NODES: usize, const PARTICIPANTS: usize> Storage for InPlace<NODES, PARTICIPANTS> {
    type Nodes<T: Send + Sync + 'static> = [T; NODES];
    type Each<T: Send + Sync + 'static> = [T; PARTICIPANTS];

    fn nodes<T: Send + Sync + 'static>(count: usize, make: impl FnMut(usize) -> T) -> [T; NODES] {
        assert!(count <= NODES, "{count} nodes asked for, room for {NODES}: make InPlace larger");
        core::array::from_fn(make)
    }
    fn each<T: Send + Sync + 'static>(count: usize, make: impl FnMut(usize) -> T) -> [T; PARTICIPANTS] {
        assert!(
            count <= PARTICIPANTS,
            "{count} participants asked for, room for {PARTICIPANTS}: make InPlace larger"
        );
        core::array::from_fn(make)
    }
}
