//! Queues of messages of any length: [`World::messages`](crate::World::messages).

pub use towpath_shm::{
    MessageGuard as Guard, MessageInPlace as InPlace, MessageReceiver as Receiver, MessageSender as Sender,
    MessageSpec as Spec, WorldMessages as Messages,
};
