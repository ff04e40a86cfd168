//! Hosts of a world, and the ranks of each.

use std::ops::Range;

use towpath_am::Name;

use crate::Error;

/// Maximum number of hosts of a world.
pub const MAX_HOSTS: usize = 1024;

/// Hosts of a world, in the order of their ranks. Host 0 is the one that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// First rank of each host, and the number of all ranks.
    firsts: Vec<u32>,
    me: usize,
}

impl Hosts {
    /// Makes hosts with these numbers of ranks, of which the caller's is `me`.
    ///
    /// # Errors
    ///
    /// [`Error::BadHosts`] if there are none, too many, or too many ranks.
    ///
    /// ```
    /// let hosts = towpath_hosts::Hosts::new(&[4, 2], 0)?;
    /// assert_eq!((hosts.ranks(1), hosts.of_rank(3)), (4..6, 0));
    /// # Ok::<(), towpath_hosts::Error>(())
    /// ```
    pub fn new(ranks: &[u32], me: usize) -> Result<Hosts, Error> {
        let mut firsts = vec![0u32];
        for &count in ranks {
            let next = firsts.last().and_then(|last| last.checked_add(count));
            firsts.push(next.filter(|&n| n <= towpath_am::MAX_ENDPOINTS).ok_or_else(|| {
                Error::BadHosts(format!("more than {} ranks together", towpath_am::MAX_ENDPOINTS))
            })?);
        }
        let bad = |what: String| Err(Error::BadHosts(what));
        match ranks.len() {
            0 => bad("no hosts".into()),
            n if n > MAX_HOSTS => bad(format!("{n} hosts; at most {MAX_HOSTS} are possible")),
            n if me >= n => bad(format!("there is no host {me} of {n}")),
            _ if firsts.last() == Some(&0) => bad("no ranks".into()),
            _ => Ok(Hosts { firsts, me }),
        }
    }

    /// Returns the number of hosts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.firsts.len() - 1
    }

    /// Returns the caller's host.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// Returns the number of ranks of all hosts.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.firsts[self.count()]
    }

    /// Returns the ranks of a host: none, if there is no such host.
    #[must_use]
    pub fn ranks(&self, host: usize) -> Range<u32> {
        match self.firsts.get(host..).and_then(|firsts| firsts.get(..2)) {
            Some(&[first, end]) => first..end,
            _ => 0..0,
        }
    }

    /// Returns the host of a rank; ranks that do not exist wrap around.
    #[must_use]
    pub fn of_rank(&self, rank: u32) -> usize {
        let rank = rank % self.size();
        self.firsts.partition_point(|&first| first <= rank) - 1
    }

    /// Returns the host of an endpoint.
    pub(crate) fn of(&self, endpoint: Name) -> usize {
        self.of_index(index_of(endpoint))
    }

    /// Returns the host to which a place in the directory of endpoints belongs.
    pub(crate) fn of_index(&self, endpoint: u16) -> usize {
        self.of_rank(endpoint.into())
    }

    /// Returns whether this host is the one that listens.
    pub(crate) fn is_hub(&self) -> bool {
        self.me == 0
    }
}

/// Returns an endpoint's place in the directory.
pub(crate) fn index_of(endpoint: Name) -> u16 {
    endpoint.to_bits() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_belongs_to_one_host() {
        let hosts = Hosts::new(&[0, 3, 0, 1, 0], 4).unwrap();
        assert_eq!((hosts.count(), hosts.size(), hosts.me(), hosts.is_hub()), (5, 4, 4, false));
        for host in 0..5 {
            for rank in hosts.ranks(host) {
                assert_eq!(hosts.of_rank(rank), host);
            }
        }
        assert_eq!((0..5).map(|host| hosts.ranks(host).len()).sum::<usize>(), 4);
        assert_eq!(hosts.ranks(5), 0..0);
        assert_eq!(hosts.of_index(4), 1, "a second endpoint of rank 0");
    }

    #[test]
    fn impossible_hosts_are_refused() {
        for (ranks, me) in [(&[][..], 0), (&[1, 1], 2), (&[0, 0], 0), (&[4000, 97], 0), (&[1; 2000], 0)] {
            assert!(Hosts::new(ranks, me).is_err(), "{} {me}", ranks.len());
        }
    }
}
