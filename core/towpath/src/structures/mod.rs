//! Queues, double compare-and-swap and non-blocking structures: in a world by name
//! ([`nonblocking::open`]), or made with `new` between threads.

pub use towpath_structures::{
    Boxed, Counter, InPlace, Node, Pool, PoolError, Storage, VersionedIndex, dcas, planted, queues,
};

pub mod nonblocking;
