//! The provider through libfabric's public calls: every operation that it offers, and what it says where it can't.
#![allow(unsafe_code)]

mod matching;
mod messages;
mod support;
mod wait;
