//! What an endpoint publishes of itself: enough to attach to its segment, and to notice that one must not.

use towpath_shm::Process;

/// Bytes of an address as libfabric's users carry it about.
pub const ADDRESS_BYTES: usize = 64;
/// `towpathF`.
const MAGIC: u64 = u64::from_le_bytes(*b"towpathF");
/// Changes whenever the layout of a segment or the meaning of a packet does.
pub const LAYOUT: u32 = 3;

/// Where an endpoint's segment is, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// [`LAYOUT`].
    pub layout: u32,
    /// The library's version: major, minor, patch.
    pub version: u32,
    /// The owner's user.
    pub uid: u32,
    /// The owner's process.
    pub pid: u32,
    /// The segment's descriptor in that process.
    pub fd: u32,
    /// When that process started.
    pub start: u64,
    /// The namespaces in which pid and start mean something.
    pub namespace: u64,
    /// Chosen at random.
    pub nonce: u64,
}

/// The version of this library in 32 bits.
pub fn own_version() -> u32 {
    let part = |text: &str| text.parse::<u32>().unwrap_or(0) & 0x3ff;
    part(env!("CARGO_PKG_VERSION_MAJOR")) << 20
        | part(env!("CARGO_PKG_VERSION_MINOR")) << 10
        | part(env!("CARGO_PKG_VERSION_PATCH"))
}

/// A version as people write it.
pub fn version_text(version: u32) -> String {
    format!("{}.{}.{}", version >> 20, version >> 10 & 0x3ff, version & 0x3ff)
}

/// Why nothing can be sent to an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is no address of ours.
    #[error("not a Towpath address: every rank must use FI_PROVIDER=towpath")]
    Foreign,
    /// Another version of the library.
    #[error(
        "the other rank runs towpath {other} and this one {own}: let FI_PROVIDER_PATH name the same library for all ranks"
    )]
    Version {
        /// Theirs.
        other: String,
        /// Ours.
        own: String,
    },
    /// Another user.
    #[error(
        "the other rank belongs to user {other} and this one to user {own}: run all ranks of a host as one user"
    )]
    User {
        /// Theirs.
        other: u32,
        /// Ours.
        own: u32,
    },
    /// Another pid namespace.
    #[error(
        "the other rank lives in another pid namespace: start the ranks of a host in one container, or with --pid=host"
    )]
    Namespace,
}

impl Address {
    /// The address of a segment of this process.
    pub fn own(process: Process, uid: u32, fd: u32, nonce: u64) -> Address {
        let Process { pid, start, namespace } = process;
        Address { layout: LAYOUT, version: own_version(), uid, pid, fd, start, namespace, nonce }
    }

    /// As eight words.
    pub fn to_words(self) -> [u64; 8] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            MAGIC,
            pair(self.layout, self.version),
            pair(self.uid, self.pid),
            self.fd.into(),
            self.start,
            self.namespace,
            self.nonce,
            0,
        ]
    }

    /// From eight words; `None` if they are no address.
    pub fn from_words(w: [u64; 8]) -> Option<Address> {
        (w[0] == MAGIC).then_some(Address {
            layout: w[1] as u32,
            version: (w[1] >> 32) as u32,
            uid: w[2] as u32,
            pid: (w[2] >> 32) as u32,
            fd: w[3] as u32,
            start: w[4],
            namespace: w[5],
            nonce: w[6],
        })
    }

    /// As bytes.
    pub fn to_bytes(self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.to_words()) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From bytes; `None` if they are no address.
    pub fn from_bytes(bytes: &[u8; ADDRESS_BYTES]) -> Option<Address> {
        let word = |i: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
            u64::from_le_bytes(word)
        };
        Address::from_words(core::array::from_fn(word))
    }

    /// Whether the endpoint of this address can reach another.
    ///
    /// # Errors
    ///
    /// Why not, with the remedy.
    pub fn can_reach(&self, other: &Address) -> Result<(), Unfit> {
        if (other.layout, other.version) != (self.layout, self.version) {
            let text = |a: &Address| format!("{} (layout {})", version_text(a.version), a.layout);
            return Err(Unfit::Version { other: text(other), own: text(self) });
        }
        if other.uid != self.uid {
            return Err(Unfit::User { other: other.uid, own: self.uid });
        }
        if other.namespace != self.namespace {
            return Err(Unfit::Namespace);
        }
        Ok(())
    }

    /// The process that owns it.
    pub fn process(&self) -> Process {
        Process { pid: self.pid, start: self.start, namespace: self.namespace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        Address::own(Process { pid: 77, start: 1 << 40, namespace: 5 }, 1000, 9, 0xdead_beef_0123)
    }

    #[test]
    fn survives_the_way_through_bytes() {
        assert_eq!(Address::from_bytes(&address().to_bytes()), Some(address()));
        assert_eq!(Address::from_bytes(&[0; 64]), None);
    }

    #[test]
    fn says_why_it_cannot_be_reached() {
        let a = address();
        assert_eq!(a.can_reach(&a), Ok(()));
        assert!(matches!(a.can_reach(&Address { version: 1, ..a }), Err(Unfit::Version { .. })));
        let why = a.can_reach(&Address { layout: 99, ..a }).unwrap_err().to_string();
        assert!(why.contains("(layout 99)") && why.contains("FI_PROVIDER_PATH"), "{why}");
        assert!(matches!(a.can_reach(&Address { uid: 1, ..a }), Err(Unfit::User { other: 1, own: 1000 })));
        assert_eq!(a.can_reach(&Address { namespace: 1, ..a }), Err(Unfit::Namespace));
    }
}
