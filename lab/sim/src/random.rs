//! A seeded generator: the same numbers on every host.
//!
//! SplitMix64 (Steele, Lea & Flood 2014): 64 bits of state, passes the usual tests, and cannot be
//! seeded badly.

/// A source of pseudo-random numbers that follow from a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers that follow from a seed, and from a stream's number, so that one seed
    /// gives many independent sources.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Random(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        random.word();
        random
    }

    /// 64 random bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`; 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    /// A number within ± `fraction` of `mean` (uniform): 20 % is 0.2.
    pub fn around(&mut self, mean: u64, fraction: f64) -> u64 {
        let half = (mean as f64 * fraction) as u64;
        mean - half + self.below(2 * half + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_the_seed() {
        let numbers = |seed, stream| {
            let mut r = Random::new(seed, stream);
            [(); 4].map(|()| r.word())
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(2, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
    }

    #[test]
    fn numbers_stay_in_their_range_and_fill_it() {
        let mut r = Random::new(7, 0);
        let mut seen = [0; 10];
        (0..10_000).for_each(|_| seen[r.below(10) as usize] += 1);
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        for _ in 0..1000 {
            assert!((4000..=6000).contains(&r.around(5000, 0.2)));
        }
        assert_eq!(r.below(0), 0);
    }
}
