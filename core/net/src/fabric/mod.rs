//! The libfabric client: a link's frames in messages of an endpoint of type `FI_EP_RDM`.
//!
//! The link's TCP connection stays: it has carried the handshake, and it says when the peer is
//! gone. Both ends tell each other over it, encrypted, the addresses of their endpoints. From then
//! on frames go through the endpoints.
//!
//! ```text
//! message     record's number (8 bytes, little-endian) | record's ciphertext
//! farewell    number of the last record, plus one (8 bytes) | ciphertext of a fixed text   (TCP)
//! ```
//!
//! **Security.** Records are encrypted and authenticated as those of TCP links are, with the keys
//! and numbers of the link. Others see numbers, lengths and addresses. An endpoint gets messages of
//! any process that reaches it; one that its peer has not sealed is passed over. So strangers can
//! neither read, alter nor add anything. They can disturb the link, as far as libfabric lets them.
//!
//! **Loss.** A record that comes behind a gap means that the fabric has lost one: the link is over.
//!
//! **Blocking.** What a peer does not read fills its slots, then the provider's buffers and this
//! end's slots: flow control is the provider's (`FI_RM_ENABLED`).
//!
//! | file | contents |
//! | --- | --- |
//! | `abi.rs` | declarations of libfabric's objects |
//! | `library.rs` | loading it |
//! | `objects.rs` | handles of its objects, and the search for a provider |
//! | `endpoint.rs` | an endpoint and its slots |
//! | `lane.rs` | frames through the slots: the two halves of a link |
//! | `children.rs` | descriptors are kept from programs that the process starts |

#![allow(unsafe_code)]

mod abi;
#[cfg(test)]
mod abi_tests;
mod children;
mod endpoint;
mod lane;
#[cfg(test)]
mod lane_tests;
mod library;
mod objects;

pub use children::DescriptorsBefore;
pub use endpoint::FabricEndpoint;
pub use lane::{LaneReceiver, LaneSender, lanes};
