//! Protocols: they differ in the place of an idle lock, and in the node that passes on.

use crate::numbers::Node;

/// Number of requests of one node in a row, without another node's, after which
/// [`Protocol::Reactive`] lets it keep the lock.
const REPEATED: u32 = 2;

/// Protocol of a lock (Kuo, Carter & Kuramkote 1998, Section 2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// MP-cent: each grant comes from the home, each release goes there.
    ///
    /// For locks that different nodes use in turn, seldom at once.
    Central,
    /// MP-dist: the last holder keeps an idle lock, and passes a busy one on in one hop.
    ///
    /// Requests are forwarded to the end of the queue.
    ///
    /// For locks that are contended, or used by one node many times in a row.
    Distributed,
    /// MP-react: `Distributed` while contended or used by one node alone, else `Central`.
    ///
    /// The home sees all requests, and decides.
    #[default]
    Reactive,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Central, Protocol::Distributed, Protocol::Reactive];

    /// Returns its name.
    ///
    /// ```
    /// use towpath::mplock::Protocol;
    ///
    /// assert_eq!(Protocol::default().name(), "reactive");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Central => "central",
            Protocol::Distributed => "distributed",
            Protocol::Reactive => "reactive",
        }
    }

    /// Returns the protocol of that name.
    ///
    /// ```
    /// use towpath::mplock::Protocol;
    ///
    /// assert_eq!(Protocol::find("central"), Some(Protocol::Central));
    /// assert_eq!(Protocol::find("fast"), None);
    /// ```
    #[must_use]
    pub fn find(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// Returns whether the home names a waiter to the holder before it, which passes the
    /// lock on.
    pub(crate) fn forwards(self) -> bool {
        self != Protocol::Central
    }

    /// Returns whether a node may keep the lock, by the requests that the home has seen.
    ///
    /// `contended`: true if several nodes want it now. A holder that gave it back then would wait
    /// behind all requests that reach the home.
    pub(crate) fn may_cache(self, pattern: RequestPattern, contended: bool) -> bool {
        match self {
            Protocol::Central => false,
            Protocol::Distributed => true,
            Protocol::Reactive => contended || pattern.in_a_row >= REPEATED,
        }
    }
}

/// Requests for a lock, as its home sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RequestPattern {
    /// Node that has asked last.
    last: Node,
    /// Number of its requests in a row.
    in_a_row: u32,
}

impl RequestPattern {
    /// Notes a request.
    pub(crate) fn note(&mut self, node: Node) {
        if self.in_a_row > 0 && self.last == node {
            self.in_a_row = self.in_a_row.saturating_add(1);
        } else {
            *self = RequestPattern { last: node, in_a_row: 1 };
        }
    }
}
