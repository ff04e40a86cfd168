//! A libfabric provider that carries MPI programs over Towpath: `libtowpath-fi.so`.
//!
//! [`engine`] is the device: endpoints in shared memory, with tagged and untagged messages, one-sided operations and matching. It is always built. With the feature `fabric` libfabric's interface to it is
//! built too, from libfabric's headers; then the shared object exports `fi_prov_ini` and nothing else.
#![deny(unsafe_code)]

pub mod engine;
#[cfg(feature = "fabric")]
mod ffi;
