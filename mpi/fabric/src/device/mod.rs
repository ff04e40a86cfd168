//! The device proper: messages between endpoints in shared memory. Knows nothing of
//! libfabric.
pub mod connect;
pub mod endpoint;
pub mod link;
pub mod liveness;
pub mod members;
pub mod operation;
pub mod pair;
pub mod peer;
pub mod port;
pub mod protocol;
pub mod resource;
pub mod rma;
pub mod tune;
pub mod wait;
pub mod wake_pipe;
