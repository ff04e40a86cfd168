//! Finding and attaching to another endpoint's segment: addresses, layout, descriptors.
pub mod address;
pub mod announce;
pub mod attach;
mod connecting;
pub mod dev_shm;
pub mod fd_listener;
pub mod fd_message;
pub mod fd_request;
pub mod layout;
pub mod locator;
pub mod service;
