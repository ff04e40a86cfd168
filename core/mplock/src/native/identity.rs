//! Identity of a lock: a hash of its name, and the order of its homes.
//!
//! **Names.** Two names share a lock only if 128 bits of their hashes are equal: with 10^9 names
//! the probability of one such pair is below 10^-20. So no node compares names. The hash resists
//! accidents, not attacks: a program that lets strangers choose names hashes them itself first. Two
//! names that share a lock exclude each other without need, and nothing else.
//!
//! **Homes.** Rendezvous hashing: each rank has a weight for each lock, and the lock's home is the
//! heaviest rank that is there. When a rank goes, only its own locks get another home.

use crate::numbers::Node;

/// Identity of a lock in messages and tables: FNV-1a of its name, 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub u128);

impl Identity {
    /// Returns the identity of the lock of that name.
    pub fn of(name: &str) -> Identity {
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        Identity(name.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)))
    }

    /// Returns the weight of a rank as the lock's home: no two ranks have one weight.
    fn weight(self, rank: Node) -> (u64, Node) {
        let (low, high) = (self.0 as u64, (self.0 >> 64) as u64);
        (mix(low ^ mix(high.wrapping_add(u64::from(rank).wrapping_mul(0x9e37_79b9_7f4a_7c15)))), rank)
    }

    /// Returns the lock's home among these ranks.
    pub fn home(self, ranks: impl Iterator<Item = Node>) -> Option<Node> {
        ranks.max_by_key(|&rank| self.weight(rank))
    }

    /// Returns whether `rank` comes before `other` in the order of the lock's homes.
    pub fn prefers(self, rank: Node, other: Node) -> bool {
        self.weight(rank) > self.weight(other)
    }
}

/// Spreads the bits of a number over all (the finaliser of MurmurHash3).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ bits >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ bits >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANKS: Node = 6;

    fn identities() -> impl Iterator<Item = Identity> {
        (0..6000).map(|n| Identity::of(&format!("lock {n}")))
    }

    #[test]
    fn hash_of_a_name_is_fnv_1a() {
        assert_eq!(Identity::of("").0, 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(Identity::of("a").0, 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn homes_are_spread_evenly() {
        let mut counts = [0u32; RANKS as usize];
        for identity in identities() {
            counts[usize::from(identity.home(0..RANKS).unwrap())] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn rank_that_goes_moves_its_own_locks_only() {
        for identity in identities() {
            let before = identity.home(0..RANKS).unwrap();
            let after = identity.home((0..RANKS).filter(|&rank| rank != 2)).unwrap();
            assert!(after != 2 && (before == 2 || before == after));
            assert!(before == after || identity.prefers(before, after));
        }
    }

    #[test]
    fn lock_without_ranks_has_no_home() {
        assert_eq!(Identity::of("x").home(0..0), None);
    }
}
