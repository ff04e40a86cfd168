//! The workspace's pseudo-random generator: equal numbers on every host.
//!
//! SplitMix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014):
//! 64 bits of state, passes the usual tests, and has no bad seeds. Not for secrets. Simulations are
//! recorded by their seeds, so the sequences must never change.

/// Source of pseudo-random numbers that follow from a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes the source of a seed's numbers.
    ///
    /// ```
    /// # use towpath_machine::Random;
    /// assert_eq!(Random::new(7).word(), Random::new(7).word(), "they follow from the seed");
    /// ```
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Makes one of a seed's many independent sources, by the stream's number.
    ///
    /// ```
    /// # use towpath_machine::Random;
    /// assert_ne!(Random::stream(7, 1).word(), Random::stream(7, 2).word());
    /// ```
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut random = Random(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        random.word();
        random
    }

    /// Returns 64 random bits.
    ///
    /// ```
    /// # use towpath_machine::Random;
    /// assert_eq!(Random::new(1_234_567).word(), 6_457_827_717_110_365_317);
    /// ```
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `n`; 0 if `n` is 0.
    ///
    /// ```
    /// # use towpath_machine::Random;
    /// let mut random = Random::new(7);
    /// assert!((0..100).all(|_| random.below(6) < 6));
    /// ```
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a number within ± `fraction` of `mean`, uniformly distributed: 20 % is
    /// 0.2.
    ///
    /// ```
    /// # use towpath_machine::Random;
    /// let value = Random::new(7).around(1_000, 0.2);
    /// assert!((800..=1_200).contains(&value));
    /// ```
    pub fn around(&mut self, mean: u64, fraction: f64) -> u64 {
        let half = (mean as f64 * fraction) as u64;
        mean - half + self.below(2 * half + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of the authors' published generator, from seed 1234567.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut r = Random::new(1_234_567);
        let numbers = [(); 5].map(|()| r.word());
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(numbers, published);
    }

    #[test]
    fn numbers_follow_from_the_seed() {
        let numbers = |seed, stream| {
            let mut r = Random::stream(seed, stream);
            [(); 4].map(|()| r.word())
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(2, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
    }

    #[test]
    fn numbers_stay_in_their_range_and_fill_it() {
        let mut r = Random::stream(7, 0);
        let mut seen = [0; 10];
        (0..10_000).for_each(|_| seen[r.below(10) as usize] += 1);
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        for _ in 0..1000 {
            assert!((4000..=6000).contains(&r.around(5000, 0.2)));
        }
        assert_eq!(r.below(0), 0);
    }
}
