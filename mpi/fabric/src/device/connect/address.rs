//! Address of an endpoint: enough to attach to its segment, and to notice that one must
//! not.
//!
//! Two ways lead there: through /proc, where both processes have the same one and mean the same by
//! a pid; else through the endpoint's abstract Unix socket
//! ([`fd_message`](crate::device::connect::fd_message)), whose name follows from its nonce, where
//! both have the same network namespace.

use towpath_shm::Process;

/// Bytes of an address as libfabric's users carry it about.
pub const ADDRESS_BYTES: usize = 64;
/// `towpathF`.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"towpathF");
/// Changes whenever the layout of a segment or the meaning of a packet does.
pub const LAYOUT: u32 = 8;
/// The inode of the first user namespace on every machine.
pub const FIRST_USERS: u32 = 0xefff_fffd;

/// An endpoint's address: its process, its segment's descriptor, and its namespaces.
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
    /// Start time of that process, as /proc shows it.
    pub start: u64,
    /// The namespaces in which pid and start mean something; the process's very own if
    /// its /proc is of other ones.
    pub namespace: u64,
    /// Chosen at random.
    pub nonce: u64,
    /// The namespace in which uid means something; 0 if unknown.
    pub user_space: u32,
    /// The namespace of its socket; 0 if unknown.
    pub network: u32,
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

/// Parses a version as people write it; `None` if it is none.
pub fn version_from_text(text: &str) -> Option<u32> {
    let mut parts = text.split('.').map(|part| part.parse::<u32>().ok().filter(|&number| number < 1 << 10));
    let version = parts.next()?? << 20 | parts.next()?? << 10 | parts.next()??;
    parts.next().is_none().then_some(version)
}

/// Error: nothing can be sent to an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The address is no address of Towpath.
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
    /// Another pid namespace, and another network namespace.
    #[error(
        "the other rank lives in another pid namespace and in another network namespace, so neither /proc nor a socket leads there: start the ranks of a host in one container, or with --pid=host, or with --network=host"
    )]
    Namespace,
}

impl Address {
    /// The address of a segment of this process.
    ///
    /// # Errors
    ///
    /// /proc can't be read.
    pub fn here(fd: u32, nonce: u64) -> Result<Address, towpath_shm::Error> {
        let Process { pid, start, namespace } = Process::own()?;
        let namespace = match pid_in_proc() {
            // The /proc of an outer namespace: under our number it shows another process, to others
            // like us too. No inode of a time namespace is as small as a pid.
            Some(other) if other != pid => namespace & !u64::from(u32::MAX) | u64::from(other),
            _ => namespace,
        };
        let (uid, user_space, network) = (effective_user(), inode("user"), inode("net"));
        let (layout, version) = (LAYOUT, own_version());
        Ok(Address { layout, version, uid, pid, fd, start, namespace, nonce, user_space, network })
    }

    /// Returns whether the address's process is seen from here under its pid.
    #[inline]
    pub fn is_seen_by(&self, other: &Address) -> bool {
        self.namespace == other.namespace
    }

    /// Encodes the address in eight words.
    pub fn to_words(self) -> [u64; 8] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            MAGIC,
            pair(self.layout, self.version),
            pair(self.uid, self.pid),
            pair(self.fd, self.user_space),
            self.start,
            self.namespace,
            self.nonce,
            self.network.into(),
        ]
    }

    /// Address of eight words; `None` if they are none.
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
            user_space: (w[3] >> 32) as u32,
            network: w[7] as u32,
        })
    }

    /// Encodes the address in bytes.
    pub fn to_bytes(self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.to_words()) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Address of bytes; `None` if they are none.
    pub fn from_bytes(bytes: &[u8; ADDRESS_BYTES]) -> Option<Address> {
        let word = |i: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
            u64::from_le_bytes(word)
        };
        Address::from_words(core::array::from_fn(word))
    }

    /// Checks that the endpoint of this address can reach another.
    ///
    /// # Errors
    ///
    /// Why not, with the remedy.
    pub fn can_reach(&self, other: &Address) -> Result<(), Unfit> {
        if (other.layout, other.version) != (self.layout, self.version) {
            let text = |a: &Address| format!("{} (layout {})", version_text(a.version), a.layout);
            return Err(Unfit::Version { other: text(other), own: text(self) });
        }
        // Else their numbers can't be compared, and the kernel names the user at the socket.
        if other.user_space == self.user_space && other.uid != self.uid {
            return Err(Unfit::User { other: other.uid, own: self.uid });
        }
        let networks = [self.network, other.network];
        if !other.is_seen_by(self) && networks[0] != networks[1] && !networks.contains(&0) {
            return Err(Unfit::Namespace);
        }
        Ok(())
    }

    /// The process that owns it.
    pub fn process(&self) -> Process {
        Process { pid: self.pid, start: self.start, namespace: self.namespace }
    }
}

/// Number under which /proc shows this process.
fn pid_in_proc() -> Option<u32> {
    std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()
}

/// The inode of one of this process's namespaces; 0 if there is no telling.
fn inode(which: &str) -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/self/ns/{which}")).map_or(0, |about| about.ino() as u32)
}

/// The effective user of this process.
pub(crate) fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        let (layout, version) = (LAYOUT, own_version());
        let (pid, start, namespace) = (77, 1 << 40, 5 << 32 | 6);
        let (uid, fd, nonce, user_space, network) = (1000, 9, 0xdead_beef_0123, 7, 8);
        Address { layout, version, uid, pid, fd, start, namespace, nonce, user_space, network }
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
        assert_eq!(a.can_reach(&Address { namespace: 1, network: 9, ..a }), Err(Unfit::Namespace));
        // One way is enough.
        assert_eq!(a.can_reach(&Address { namespace: 1, ..a }), Ok(()));
        assert_eq!(a.can_reach(&Address { namespace: 1, network: 0, ..a }), Ok(()));
        assert_eq!(a.can_reach(&Address { network: 9, ..a }), Ok(()));
        // Another user namespace's numbers of its users mean nothing here.
        assert_eq!(a.can_reach(&Address { uid: 0, user_space: 1, ..a }), Ok(()));
    }
}
