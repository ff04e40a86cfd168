//! Buffers of a world that move between processes and are never copied:
//! [`World::pool`](crate::World::pool).

pub use towpath_shm::{
    PoolBuffer as Buffer, PoolReceiver as Receiver, PoolSender as Sender, PoolStage as Stage,
    WorldPool as Pool,
};
