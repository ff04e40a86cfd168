//! Names of the claim algorithms and of the default waiting policy, as records have them.

/// Name and order of service of one of Towpath's claim algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimAlgorithm {
    /// Its name.
    pub name: &'static str,
    /// True if a contended claim is handed over in the order of arrival.
    pub fifo: bool,
}

/// The claim algorithms, in the order in which tables show them.
pub const CLAIM_ALGORITHMS: [ClaimAlgorithm; 8] = [
    ClaimAlgorithm { name: "test-and-set", fifo: false },
    ClaimAlgorithm { name: "test-and-test-and-set", fifo: false },
    ClaimAlgorithm { name: "ticket", fifo: true },
    ClaimAlgorithm { name: "anderson", fifo: true },
    ClaimAlgorithm { name: "mcs", fifo: true },
    ClaimAlgorithm { name: "posix", fifo: false },
    ClaimAlgorithm { name: "lock-free", fifo: false },
    ClaimAlgorithm { name: OURS, fifo: false },
];

/// Towpath's own claim algorithm, the default.
pub const OURS: &str = "towpath";

/// The waiting policy that is the default.
pub const ADAPTIVE: &str = "adaptive";
