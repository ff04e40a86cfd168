//! libfabric's declarations, made by bindgen from its headers.
#![allow(warnings, unsafe_code, unsafe_op_in_unsafe_fn, missing_docs, clippy::all)]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
