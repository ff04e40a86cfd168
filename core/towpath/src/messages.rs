//! Queues of messages of any length: [`World::messages`](crate::World::messages).

pub use towpath_shm::{
    MessageGuard as Guard, MessageReceiver as Receiver, MessageSender as Sender, MessageSpec as Spec,
    ReservedMessage as Reserved, WorldMessages as Messages,
};
