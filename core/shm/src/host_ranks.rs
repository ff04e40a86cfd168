//! Ranks of this host, as a world's header has them.

use core::ops::Range;

use crate::Error;
use crate::layout::MOST_PROCESSES;

/// Part of the header: the world spans hosts.
const SPANS: u64 = 1 << 63;
/// Number of the first bit of the first rank.
const FIRST: u32 = 16;
/// Bits of a rank or of a number of ranks.
const BITS: u64 = (1 << FIRST) - 1;

/// Ranks of a world that run on this host, where it spans several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostRanks {
    pub first: u32,
    pub count: u32,
}

impl HostRanks {
    /// Packs it into the header's word.
    pub fn pack(host: Option<HostRanks>) -> u64 {
        host.map_or(0, |host| SPANS | u64::from(host.first) << FIRST | u64::from(host.count))
    }

    /// Takes the header's word apart and checks it.
    pub fn unpack(word: u64, processes: u32) -> Result<Option<HostRanks>, Error> {
        if word == 0 {
            return Ok(None);
        }
        let (first, count) = ((word & !SPANS) >> FIRST, word & BITS);
        if word & SPANS == 0 || first + count > u64::from(processes) || count >= u64::from(processes) {
            let expected = HostRanks::pack(Some(HostRanks { first: 0, count: processes - 1 }));
            return Err(Error::Damaged { what: "the ranks of this host", found: word, expected });
        }
        Ok(Some(HostRanks { first: first as u32, count: count as u32 }))
    }

    pub fn range(self) -> Range<u32> {
        self.first..self.first + self.count
    }

    /// The rank whose doorbell is the gateway's: the first one of another host.
    pub fn gateway(self) -> u32 {
        if self.first > 0 { 0 } else { self.count }
    }
}

const _: () = assert!((MOST_PROCESSES as u64) < BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ranks_survive_packing_and_nonsense_does_not() {
        for (first, count) in [(0, 0), (0, 3), (3, 1), (4, 0)] {
            let host = Some(HostRanks { first, count });
            assert_eq!(HostRanks::unpack(HostRanks::pack(host), 4).unwrap(), host);
        }
        assert_eq!(HostRanks::unpack(0, 4).unwrap(), None);
        for word in [1, u64::MAX, SPANS | 4, SPANS | 3 << FIRST | 2, SPANS | 5 << FIRST] {
            assert!(HostRanks::unpack(word, 4).is_err(), "{word:x}");
        }
    }
}
