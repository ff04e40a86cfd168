//! Plan of a run, and the liberties of its machine.

/// Extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Threads.
    pub threads: usize,
    /// Operations of each.
    pub ops: usize,
}

/// Liberties of a machine beside running the program.
#[derive(Clone, Copy, Debug)]
pub struct Liberties {
    /// Maximum number of waits that time out although another thread could go on.
    pub timeouts: u32,
    /// Maximum number of steps that fail for no reason: store-conditionals, parks.
    pub spurious: u32,
    /// Maximum number of deaths.
    pub kills: u32,
    /// True if a sleep's timeout is a remedy like another; false if sleeping until it is
    /// a fault.
    pub naps: bool,
    /// Number of vain looks by which a waiter for the dead shows a fault; 0: it need not
    /// get on.
    pub patience: u32,
}

impl Default for Liberties {
    fn default() -> Self {
        Liberties { timeouts: 2, spurious: 1, kills: 0, naps: false, patience: 0 }
    }
}
