//! Derives of Towpath's crates.
//!
//! `Plain`, which the crate `towpath` exports, `SentenceDebug` of their errors, and
//! `OpaqueDebug` of handles.
//!
//! Written over `proc_macro` alone: a program that uses it compiles no parser of Rust.

use proc_macro::TokenStream;

mod opaque;
mod parse;
mod plain;
mod sentence;

/// Implements `Plain` and `Object` for a structure of plain fields.
///
/// Its values may lie in shared memory: under a lock, or in a queue.
///
/// The structure is `#[repr(C)]` or `#[repr(transparent)]`, has no padding and no `Drop`; anything
/// else is refused by the compiler, with the reason. Enums are refused: another process may write
/// any bits, and an enum has values for few of them.
///
/// A structure's identity in a world is its name with the names and types of its fields. A
/// program that means something else gets an error when it opens an object of it.
///
/// Padding of a structure with parameters is found where it is used, since it depends on them.
#[proc_macro_derive(Plain)]
pub fn plain(input: TokenStream) -> TokenStream {
    let structure = plain::PlainStructure::parse(input);
    structure.map_or_else(parse::NotDerived::into_error, |structure| structure.implementation())
}

/// Implements `Debug` of an error by its `Display`.
///
/// `{:?}` prints the sentence with the remedy, since that is what a `main` that returns the error
/// prints. `{:#?}` prints the variant with its fields, but those with the attribute `opaque`, whose
/// types may have no `Debug`.
#[proc_macro_derive(SentenceDebug, attributes(opaque))]
pub fn sentence_debug(input: TokenStream) -> TokenStream {
    sentence::debug(input).unwrap_or_else(parse::NotDerived::into_error)
}

/// Implements `Debug` of a type by its name: `Receiver { .. }`.
///
/// For handles, guards and views, so that a program's structure that has one may derive `Debug`.
/// Asks nothing of the types of its parameters.
#[proc_macro_derive(OpaqueDebug)]
pub fn opaque_debug(input: TokenStream) -> TokenStream {
    opaque::debug(input).unwrap_or_else(parse::NotDerived::into_error)
}
