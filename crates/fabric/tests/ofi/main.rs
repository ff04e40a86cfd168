//! The provider through libfabric's public calls: every operation that it offers, and what it says where it can't.
#![allow(unsafe_code)]

mod atomics;
mod errors;
mod events;
mod matching;
mod messages;
mod model;
mod names;
mod onesided;
mod resources;
mod strangers;
mod support;
mod threads;
mod wait;
