//! Locks, barriers, the channel's queue and the structures under the model checker, in
//! one program: their tests take as long as the models that run beside each other.

mod barriers;
mod channel;
mod dcas;
mod locks;
mod queues;
