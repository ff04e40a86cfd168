//! Services: names under which endpoints of this host are found.
//!
//! A server chooses the name of its service (`fi_getinfo` with `FI_SOURCE`), its endpoint takes it
//! when it is enabled, and a client that knows the name finds the endpoint's address.
//!
//! ```text
//! exclusion   abstract socket towpath-fi.s.HASH           one per service: a second one fails
//! address     abstract socket towpath-fi.a.HASH.ADDRESS   clients read it in /proc/net/unix
//! ```
//!
//! HASH is a number that follows from user and service, ADDRESS the endpoint's address in base 64.
//! Nothing is ever sent through these sockets.
//!
//! **Progress.** A client needs none of the server's: it finds one that computes, sleeps or is
//! stopped.
//!
//! **A death.** Both names vanish with the last descriptor of their sockets, so a killed server
//! leaves nothing, and its successor can take the service at once. (A child that the server has
//! forked keeps them as long as it lives.)
//!
//! **Trust.** Another user of the host can take a service's name first, as it could take a TCP
//! port, and can lead a client to another endpoint, but to none that is not the client's own
//! user's: whose memory an endpoint uses is checked when it is opened
//! ([`attach`](crate::device::connect::attach)).
//!
//! **Memory.** Two descriptors per service.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::device::connect::address::{ADDRESS_BYTES, Address, effective_user};

/// The longest name of a service, in bytes.
pub const SERVICE_BYTES: usize = 48;
/// `towpathN`.
const MAGIC: u64 = u64::from_le_bytes(*b"towpathN");
/// Length of the number with which every address begins, in bytes: it says whether it is
/// an endpoint's or a service's.
const BEGIN: usize = 8;

/// The name of a service. The empty one stands for no particular service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    bytes: [u8; SERVICE_BYTES],
    len: usize,
}

impl Service {
    /// No particular one.
    pub const ANY: Service = Service { bytes: [0; SERVICE_BYTES], len: 0 };

    /// The service of a name; `None` if the name is too long.
    pub fn new(name: &str) -> Option<Service> {
        let mut service = Service { len: name.len(), ..Service::ANY };
        service.bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(service)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    /// Encodes the service in bytes, as many as an endpoint's address has.
    pub fn to_bytes(self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[..BEGIN].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[BEGIN] = self.len as u8;
        bytes[ADDRESS_BYTES - SERVICE_BYTES..].copy_from_slice(&self.bytes);
        bytes
    }

    /// Service of bytes; `None` if they are none.
    pub fn from_bytes(bytes: &[u8; ADDRESS_BYTES]) -> Option<Service> {
        let (begin, rest) = bytes.split_at(BEGIN);
        let name = rest[rest.len() - SERVICE_BYTES..].get(..rest[0].into())?;
        (begin == MAGIC.to_le_bytes()).then(|| Service::new(core::str::from_utf8(name).ok()?))?
    }

    /// FNV-1a over user and name. It only tells services apart: of two with one hash the
    /// second is refused as in use.
    fn hash(&self) -> u64 {
        let user = effective_user().to_le_bytes();
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        user.iter().chain(&self.bytes[..self.len]).fold(0xcbf2_9ce4_8422_2325, step)
    }

    /// Takes the service for the endpoint of this address.
    ///
    /// # Errors
    ///
    /// `AddrInUse`: another endpoint has it. Else the system's.
    pub fn take(&self, of: &Address) -> io::Result<Taken> {
        let hash = self.hash();
        let exclusion = bound(&format!("{EXCLUSION}{hash:016x}"))?;
        let mut name = format!("{ADDRESS}{hash:016x}.");
        push_base64(&mut name, &of.to_bytes()[BEGIN..]);
        Ok(Taken { _exclusion: exclusion, _address: bound(&name)? })
    }

    /// The address of the endpoint that has the service; `None` if none has, or its
    /// process has ended.
    ///
    /// # Errors
    ///
    /// /proc can't be read.
    pub fn find(&self) -> io::Result<Option<Address>> {
        let sockets = std::fs::read("/proc/net/unix")?;
        Ok(found(&sockets, self.hash()).find(|address| !address.process().watch().is_dead()))
    }
}

const EXCLUSION: &str = "towpath-fi.s.";
const ADDRESS: &str = "towpath-fi.a.";

/// Addresses behind a service's number in the list of sockets of /proc. Other users may
/// choose names that look like ours.
fn found(sockets: &[u8], hash: u64) -> impl Iterator<Item = Address> {
    let name = format!("@{ADDRESS}{hash:016x}.");
    sockets.split(|&byte| byte == b'\n').filter_map(move |line| {
        // The fields before it are numbers.
        let at = 1 + line.windows(2).position(|two| two == b" @")?;
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[..BEGIN].copy_from_slice(&crate::device::connect::address::MAGIC.to_le_bytes());
        from_base64(line[at..].strip_prefix(name.as_bytes())?, &mut bytes[BEGIN..])?;
        Address::from_bytes(&bytes)
    })
}

/// A service that an endpoint has, until this is dropped.
#[derive(Debug)]
pub struct Taken {
    _exclusion: OwnedFd,
    _address: OwnedFd,
}

fn bound(name: &str) -> io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Appends bytes in base 64: three in four digits; a last digit or two for the rest.
fn push_base64(text: &mut String, bytes: &[u8]) {
    for three in bytes.chunks(3) {
        let all = three.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..=three.len() {
            text.push(DIGITS[(all >> (18 - 6 * digit)) as usize % 64].into());
        }
    }
}

/// Fills `bytes`; `None` if the text is not as many.
fn from_base64(text: &[u8], bytes: &mut [u8]) -> Option<()> {
    if text.len() != (bytes.len() * 4).div_ceil(3) {
        return None;
    }
    for (four, three) in text.chunks(4).zip(bytes.chunks_mut(3)) {
        let mut all = 0u32;
        for digit in four {
            all = all << 6 | DIGITS.iter().position(|d| d == digit)? as u32;
        }
        let all = all << (6 * (4 - four.len()));
        for (i, byte) in three.iter_mut().enumerate() {
            *byte = (all >> (16 - 8 * i)) as u8;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn service(of: &str) -> Service {
        Service::new(&format!("{of} of {}", std::process::id())).unwrap()
    }

    fn address(nonce: u64) -> Address {
        Address::here(3, nonce).unwrap()
    }

    #[test]
    fn service_that_an_endpoint_has_is_found_until_it_ends() {
        let service = service("found");
        assert_eq!(service.find().unwrap(), None);
        let taken = service.take(&address(0x0123_4567_89ab_cdef)).unwrap();
        assert_eq!(service.find().unwrap(), Some(address(0x0123_4567_89ab_cdef)));
        let second = service.take(&address(5)).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(taken);
        // A child that another test forks has the sockets, too, until it executes its program.
        let begun = Instant::now();
        while service.find().unwrap().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(20), "found for as long as the test waits");
            std::thread::sleep(Duration::from_millis(1));
        }
        let _taken = service.take(&address(5)).unwrap();
        assert_eq!(service.find().unwrap(), Some(address(5)));
    }

    #[test]
    fn service_of_a_process_that_has_ended_is_not_found() {
        let service = service("ended");
        let _taken = service.take(&Address { start: 1, ..address(7) }).unwrap();
        assert_eq!(service.find().unwrap(), None);
    }

    #[test]
    fn bytes_of_a_service_give_it_back_and_others_nothing() {
        for name in ["", "7471", "a name of the longest length, which is just this"] {
            let service = Service::new(name).unwrap();
            assert_eq!(Service::from_bytes(&service.to_bytes()), Some(service));
            assert_eq!((service.name(), Address::from_bytes(&service.to_bytes())), (name, None));
        }
        assert_eq!(Service::new(&"x".repeat(SERVICE_BYTES + 1)), None);
        let mut wrong = Service::ANY.to_bytes();
        wrong[BEGIN] = 200;
        assert_eq!(Service::from_bytes(&wrong), None, "longer than there is room for");
        assert_eq!(Service::from_bytes(&address(1).to_bytes()), None);
    }

    #[test]
    fn sockets_of_others_are_passed_over() {
        let (hash, address) = (0xab, address(1));
        let mut name = format!("@{ADDRESS}{hash:016x}.");
        push_base64(&mut name, &address.to_bytes()[BEGIN..]);
        let text = format!(
            "Num RefCount Protocol Flags Type St Inode Path\n0: 2 0 0 2 1 7\n0: 2 0 0 2 1 7 /run/x@y\n0: 2 0 0 2 1 7 @{ADDRESS}\n\
             0: 2 0 0 2 1 7 @{ADDRESS}{hash:016x}.!!\n0: 2 0 0 2 1 7 {name}x\n0: 2 0 0 2 1 7 x{name}\n0: 2 0 0 2 1 7 {name}\n"
        );
        assert_eq!(found(text.as_bytes(), hash).collect::<Vec<_>>(), [address]);
        assert_eq!(found(text.as_bytes(), 0xac).count(), 0);
    }

    #[test]
    fn base64_gives_back_what_was_put_in() {
        for len in 0..70 {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 37 + len) as u8).collect();
            let (mut text, mut back) = (String::new(), vec![0; bytes.len()]);
            push_base64(&mut text, &bytes);
            assert_eq!((from_base64(text.as_bytes(), &mut back), back), (Some(()), bytes));
        }
        assert_eq!(from_base64(b"AA*A", &mut [0; 3]), None);
    }
}
