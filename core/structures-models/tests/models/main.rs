//! The structures under the model checker, in one program: their tests take as long as
//! the models that run beside each other.

mod dcas;
mod queues;
