//! The provider through libfabric's public calls: every operation that it offers, and
//! what it says where it can't.
#![allow(unsafe_code)]

mod arguments;
mod atomics;
mod binding;
mod errors;
mod events;
mod matching;
mod messages;
mod model;
mod names;
mod onesided;
mod regions;
mod resources;
mod settings;
mod strangers;
mod support;
mod threads;
mod wait;
