//! Addresses that a program may give: an endpoint's own, or the name of a service, each
//! as bytes or as text.
//!
//! ```text
//! towpath://[NODE][:SERVICE]                            a service of this host
//! towpath://PID/FD?version=0.1.0&nonce=1f...            an endpoint
//! ```

use std::io;

use crate::device::connect::address::{ADDRESS_BYTES, Address, version_from_text, version_text};
use crate::device::connect::service::Service;

/// Beginning of an address as text.
const SCHEME: &str = "towpath://";

/// An endpoint, or a service that leads to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locator {
    /// An endpoint.
    Endpoint(Address),
    /// A service of this host.
    Service(Service),
}

impl Locator {
    /// Encodes the locator in bytes.
    pub fn to_bytes(self) -> [u8; ADDRESS_BYTES] {
        match self {
            Locator::Endpoint(address) => address.to_bytes(),
            Locator::Service(service) => service.to_bytes(),
        }
    }

    /// Locator of bytes; `None` if they are neither.
    pub fn from_bytes(bytes: &[u8; ADDRESS_BYTES]) -> Option<Locator> {
        let endpoint = Address::from_bytes(bytes).map(Locator::Endpoint);
        endpoint.or_else(|| Service::from_bytes(bytes).map(Locator::Service))
    }

    /// Formats the locator as text.
    pub fn to_text(self) -> String {
        match self {
            Locator::Endpoint(a) => format!(
                "{SCHEME}{}/{}?version={}&nonce={:x}&layout={}&uid={}&start={}&space={:x}&users={}&network={}",
                a.pid,
                a.fd,
                version_text(a.version),
                a.nonce,
                a.layout,
                a.uid,
                a.start,
                a.namespace,
                a.user_space,
                a.network
            ),
            Locator::Service(service) if service == Service::ANY => format!("{SCHEME}localhost"),
            Locator::Service(service) => format!("{SCHEME}localhost:{}", service.name()),
        }
    }

    /// Locator of text, with the node that it names; `None` if it is neither.
    pub fn from_text(text: &str) -> Option<(&str, Locator)> {
        let rest = text.strip_prefix(SCHEME)?;
        // A node in brackets has colons of its own.
        let inner = if rest.starts_with('[') { rest.find(']')? } else { 0 };
        let end = rest[inner..].find([':', '/']).map_or(rest.len(), |at| inner + at);
        let (node, rest) = rest.split_at(end);
        if let Some(rest) = rest.strip_prefix('/') {
            return Some(("", Locator::Endpoint(endpoint(node, rest)?)));
        }
        let service = match rest.strip_prefix(':') {
            Some(name) => Service::new(name)?,
            None => Service::ANY,
        };
        Some((node, Locator::Service(service)))
    }

    /// The endpoint; `None` if there is none, or none yet, that has the service.
    ///
    /// # Errors
    ///
    /// There is no telling: /proc can't be read.
    pub fn resolve(&self) -> io::Result<Option<Address>> {
        match self {
            Locator::Endpoint(address) => Ok(Some(*address)),
            Locator::Service(service) if *service == Service::ANY => Ok(None),
            Locator::Service(service) => service.find(),
        }
    }
}

fn endpoint(pid: &str, rest: &str) -> Option<Address> {
    let (fd, fields) = rest.split_once('?')?;
    let field = |name: &str| fields.split('&').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let number = |name| field(name)?.parse::<u32>().ok();
    let hex = |name| u64::from_str_radix(field(name)?, 16).ok();
    Some(Address {
        layout: number("layout")?,
        version: version_from_text(field("version")?)?,
        uid: number("uid")?,
        pid: pid.parse().ok()?,
        fd: fd.parse().ok()?,
        start: field("start")?.parse().ok()?,
        namespace: hex("space")?,
        nonce: hex("nonce")?,
        user_space: number("users")?,
        network: number("network")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_of_a_locator_give_it_back() {
        let endpoint = Locator::Endpoint(Address::here(9, 0xdead_beef_0123).unwrap());
        let service = Locator::Service(Service::new("7471").unwrap());
        for locator in [endpoint, service, Locator::Service(Service::ANY)] {
            assert_eq!(Locator::from_bytes(&locator.to_bytes()), Some(locator));
            let text = locator.to_text();
            assert_eq!(Locator::from_text(&text).map(|(_, found)| found), Some(locator), "{text}");
        }
    }

    #[test]
    fn text_of_a_service_names_node_and_service() {
        for (text, node, name) in [
            ("towpath://", "", ""),
            ("towpath://:7471", "", "7471"),
            ("towpath://localhost:7471", "localhost", "7471"),
            ("towpath://10.31.6.12:a/b:c?d", "10.31.6.12", "a/b:c?d"),
            ("towpath://[fe80::6:12]:7471", "[fe80::6:12]", "7471"),
            ("towpath://[::1]", "[::1]", ""),
        ] {
            let service = Locator::Service(Service::new(name).unwrap());
            assert_eq!(Locator::from_text(text), Some((node, service)), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_address_gives_nothing() {
        let long = format!("towpath://:{}", "x".repeat(100));
        for text in [
            "",
            "towpath",
            "fi_sockaddr://10.31.6.12:7471",
            "towpath://[",
            "towpath://1/2",
            "towpath://1/2?version=0.1.0",
            "towpath://x/2?version=0.1.0&nonce=1&layout=6&uid=0&start=1&space=1&users=1&network=1",
            "towpath://1/2?version=0.1&nonce=1&layout=6&uid=0&start=1&space=1&users=1&network=1",
            &long,
        ] {
            assert_eq!(Locator::from_text(text), None, "{text}");
        }
    }
}
