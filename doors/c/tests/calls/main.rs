//! Functions of the header as a C program calls them, and the header beside them.

mod endpoint;
mod header;
mod misuse;
mod thread_number;
