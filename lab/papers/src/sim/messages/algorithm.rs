//! Claim algorithms of simulated machines.

/// A claim algorithm on a simulated machine: `am`'s, and the ticket lock's second layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageAlgorithm {
    /// An algorithm of `am`'s.
    Known(towpath_am::Algorithm),
    /// The ticket lock with its counters on two lines (paper L, Section 3.1).
    TicketTwoLines,
}

impl MessageAlgorithm {
    /// The paper's six, in the order of its tables.
    pub const PAPER: [MessageAlgorithm; 6] = {
        use towpath_am::Algorithm::*;
        [
            MessageAlgorithm::Known(TestAndSet),
            MessageAlgorithm::Known(TestAndTestAndSet),
            MessageAlgorithm::Known(Ticket),
            MessageAlgorithm::Known(Anderson),
            MessageAlgorithm::Known(Posix),
            MessageAlgorithm::Known(LockFree),
        ]
    };
    /// All that are measured.
    pub const ALL: [MessageAlgorithm; 9] = {
        let [a, b, c, d, e, f] = MessageAlgorithm::PAPER;
        use towpath_am::Algorithm::*;
        [
            a,
            b,
            c,
            d,
            e,
            f,
            MessageAlgorithm::Known(Mcs),
            MessageAlgorithm::Known(Towpath),
            MessageAlgorithm::TicketTwoLines,
        ]
    };

    /// The name by which users choose it.
    pub const fn name(self) -> &'static str {
        match self {
            MessageAlgorithm::Known(known) => known.name(),
            MessageAlgorithm::TicketTwoLines => "ticket-two-lines",
        }
    }

    /// The algorithm that `am`'s endpoints take it for.
    pub(in crate::sim) const fn kind(self) -> towpath_am::Algorithm {
        match self {
            MessageAlgorithm::Known(known) => known,
            MessageAlgorithm::TicketTwoLines => towpath_am::Algorithm::Ticket,
        }
    }

    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<MessageAlgorithm> {
        MessageAlgorithm::ALL.into_iter().find(|a| a.name() == name)
    }
}
