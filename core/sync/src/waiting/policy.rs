//! Waiting policies by name.

/// A waiting policy, chosen when the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
// A word, so that a `Wait`, which every guard has, is without padding: a compiler copies padding in
// pieces, through the stack.
#[repr(usize)]
pub enum Policy {
    /// Spins, whatever happens.
    Spin,
    /// Spins for about a context switch, then yields between probes.
    SpinThenYield,
    /// Competitive: spins for about the cost of a context switch, then parks.
    SpinThenPark,
    /// Parks at once.
    Park,
    /// Spins, yields or parks according to how many runnable participants share the
    /// cores.
    #[default]
    Adaptive,
}

impl Policy {
    /// All of them, with the names by which users choose them.
    pub const ALL: [(Policy, &'static str); 5] = [
        (Policy::Spin, "spin"),
        (Policy::SpinThenYield, "spin-then-yield"),
        (Policy::SpinThenPark, "spin-then-park"),
        (Policy::Park, "park"),
        (Policy::Adaptive, "adaptive"),
    ];

    /// The name by which users choose it.
    ///
    /// ```
    /// use towpath_sync::Policy;
    ///
    /// assert_eq!(Policy::SpinThenPark.name(), "spin-then-park");
    /// ```
    pub fn name(self) -> &'static str {
        Policy::ALL.iter().find(|(p, _)| *p == self).map_or("", |(_, n)| n)
    }

    /// The policy of that name.
    ///
    /// ```
    /// use towpath_sync::Policy;
    ///
    /// assert_eq!(Policy::from_name("adaptive"), Some(Policy::default()));
    /// assert_eq!(Policy::from_name("sleep"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.iter().find(|(_, n)| *n == name).map(|(p, _)| *p)
    }

    /// Returns whether its waiters may park.
    ///
    /// ```
    /// use towpath_sync::Policy;
    ///
    /// assert!(Policy::Adaptive.parks() && !Policy::SpinThenYield.parks());
    /// ```
    #[inline(always)]
    pub const fn parks(self) -> bool {
        !matches!(self, Policy::Spin | Policy::SpinThenYield)
    }

    /// Returns whether its waiters spin before they rest, at least with cores to spare.
    ///
    /// ```
    /// use towpath_sync::Policy;
    ///
    /// assert!(Policy::Adaptive.spins() && !Policy::Park.spins());
    /// ```
    #[inline(always)]
    pub const fn spins(self) -> bool {
        !matches!(self, Policy::Park)
    }
}
