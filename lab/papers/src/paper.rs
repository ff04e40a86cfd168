//! The papers' figures, as data: printed beside our figures, never counted as ours.

/// The place of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Citation {
    /// The key by which this project names the paper.
    pub key: char,
    /// Authors, title, venue, year.
    pub paper: &'static str,
    /// Table or figure.
    pub place: &'static str,
    /// The machine of the measurement.
    pub machine: &'static str,
}

const LUMETTA_CULLER: &str = "S. S. Lumetta and D. E. Culler: Managing Concurrent Access for Shared Memory Active Messages, \
                              Proc. 12th International Parallel Processing Symposium, 1998";
const ENTERPRISE: &str = "Sun Enterprise 5000, 8 UltraSPARC processors at 167 MHz, Solaris 2.5";

/// The parameters of the LogP model, for a request and its reply with 8 bytes of
/// arguments each, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct LogP {
    /// L: the round trip beyond the overheads, halved. Negative where the overheads
    /// overlap in time.
    pub latency: f64,
    /// o_s: how long the sender is busy with one message.
    pub send_overhead: f64,
    /// o_r: how long the receiver is busy with one message.
    pub receive_overhead: f64,
    /// g: the time from one message to the next in a long stream.
    pub gap: f64,
    /// Time from sending the request to having handled the reply.
    pub round_trip: f64,
}

impl LogP {
    /// The parameters from the four measurable figures, as in the paper: L is RTT ÷ 2 −
    /// o_s − o_r.
    pub fn from_measured(send_overhead: f64, receive_overhead: f64, gap: f64, round_trip: f64) -> LogP {
        let latency = round_trip / 2.0 - send_overhead - receive_overhead;
        LogP { latency, send_overhead, receive_overhead, gap, round_trip }
    }
}

/// Paper L's Table 1: LogP parameters and round trip times, in microseconds.
pub const LOGP: Citation =
    Citation { key: 'L', paper: LUMETTA_CULLER, place: "Table 1", machine: ENTERPRISE };

/// Paper L's Table 2: the communication stress test's times for a million messages, in
/// seconds.
pub const STRESS: Citation =
    Citation { key: 'L', paper: LUMETTA_CULLER, place: "Table 2", machine: ENTERPRISE };

/// One column of Table 1 (there each algorithm is a column), in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogPColumn {
    /// The claim algorithm, by our name.
    pub algorithm: &'static str,
    /// L.
    pub latency: f64,
    /// o_s.
    pub send_overhead: f64,
    /// o_r.
    pub receive_overhead: f64,
    /// g.
    pub gap: f64,
    /// RTT.
    pub round_trip: f64,
}

const fn logp(algorithm: &'static str, figures: [f64; 5]) -> LogPColumn {
    let [latency, send_overhead, receive_overhead, gap, round_trip] = figures;
    LogPColumn { algorithm, latency, send_overhead, receive_overhead, gap, round_trip }
}

/// Table 1.
pub const LOGP_TABLE: [LogPColumn; 6] = [
    logp("test-and-set", [-0.1, 1.6, 1.2, 2.9, 5.5]),
    logp("test-and-test-and-set", [-0.1, 1.6, 1.2, 2.9, 5.4]),
    logp("ticket", [-0.1, 1.7, 1.2, 2.9, 5.5]),
    logp("anderson", [-0.2, 1.7, 1.2, 3.0, 5.5]),
    logp("posix", [0.0, 2.2, 1.3, 3.5, 6.9]),
    logp("lock-free", [-0.3, 1.9, 1.2, 3.1, 5.6]),
];

/// The numbers of writers in Table 2.
pub const STRESS_WRITERS: [u32; 3] = [1, 3, 7];

/// One column of Table 2: seconds for a million messages, by [`STRESS_WRITERS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StressColumn {
    /// The claim algorithm, by our name.
    pub algorithm: &'static str,
    /// Seconds.
    pub seconds: [f64; 3],
}

/// Table 2.
pub const STRESS_TABLE: [StressColumn; 6] = [
    StressColumn { algorithm: "test-and-set", seconds: [2.98, 3.03, 4.37] },
    StressColumn { algorithm: "test-and-test-and-set", seconds: [3.01, 3.46, 3.83] },
    StressColumn { algorithm: "ticket", seconds: [2.96, 3.18, 3.50] },
    StressColumn { algorithm: "anderson", seconds: [3.05, 3.22, 3.75] },
    StressColumn { algorithm: "posix", seconds: [3.54, 10.00, 14.10] },
    StressColumn { algorithm: "lock-free", seconds: [3.19, 3.08, 3.03] },
];

/// Row of Table 4: an application's execution times.
#[derive(Clone, Copy, Debug)]
pub struct ApplicationRow {
    /// The paper's name.
    pub name: &'static str,
    /// Name of the application in the room `apps`.
    pub pattern: &'static str,
    /// Seconds: test&set, test&test&set, ticket, Anderson, Posix, lock-free.
    pub seconds: [f64; 6],
}

/// Table 4.
pub const APPLICATION_TABLE: [ApplicationRow; 4] = [
    ApplicationRow { name: "3-D FFT", pattern: "fft", seconds: [8.9, 8.8, 8.6, 8.9, 9.0, 8.7] },
    ApplicationRow { name: "CON/comm", pattern: "con-comm", seconds: [2.04, 2.02, 1.98, 2.20, 3.5, 1.96] },
    ApplicationRow { name: "CON/comp", pattern: "con-comp", seconds: [1.43, 1.43, 1.43, 1.45, 1.6, 1.40] },
    ApplicationRow { name: "SAMPLE", pattern: "sample", seconds: [2.3, 2.3, 2.5, 2.8, 9.5, 2.2] },
];

/// The paper's peak bandwidth of bulk transfers (Section 4.1): "roughly 80% of the memory
/// copy rate".
pub const BULK_OF_MEMCPY: f64 = 0.8;

/// Table 1's column of a claim algorithm, if the paper has it.
pub fn logp_of(algorithm: &str) -> Option<&'static LogPColumn> {
    LOGP_TABLE.iter().find(|column| column.algorithm == algorithm)
}

/// Table 2's seconds for a claim algorithm and a number of writers, if the paper has
/// them.
pub fn stress_of(algorithm: &str, writers: u32) -> Option<f64> {
    let column = STRESS_TABLE.iter().find(|column| column.algorithm == algorithm)?;
    let row = STRESS_WRITERS.iter().position(|&w| w == writers)?;
    Some(column.seconds[row])
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_report::CLAIM_ALGORITHMS;

    #[test]
    fn the_latency_is_what_the_paper_says_it_is() {
        // Table 1's columns Test & Set, Posix and Lock-Free, in microseconds: L is given with one
        // digit.
        for (send, receive, gap, round_trip, latency) in
            [(1.6, 1.2, 2.9, 5.5, -0.1), (2.2, 1.3, 3.5, 6.9, 0.0), (1.9, 1.2, 3.1, 5.6, -0.3)]
        {
            let figures = LogP::from_measured(send, receive, gap, round_trip);
            assert!((figures.latency - latency).abs() <= 0.0501, "{figures:?}");
        }
    }

    #[test]
    fn the_paper_s_algorithms_are_among_ours() {
        for name in LOGP_TABLE.iter().map(|c| c.algorithm).chain(STRESS_TABLE.iter().map(|c| c.algorithm)) {
            assert!(CLAIM_ALGORITHMS.iter().any(|a| a.name == name), "{name}");
        }
    }

    #[test]
    fn table_1_agrees_with_its_own_model() {
        // L = RTT / 2 − o_s − o_r, each rounded to a tenth: a digit wrongly copied would show.
        for c in LOGP_TABLE {
            let model = LogP::from_measured(c.send_overhead, c.receive_overhead, c.gap, c.round_trip);
            assert!((model.latency - c.latency).abs() < 0.13, "{c:?}: {}", model.latency);
        }
    }

    #[test]
    fn table_2_with_one_writer_is_the_gap_of_table_1() {
        // The paper says so (4.2): a million messages in seconds are one message in microseconds.
        for c in STRESS_TABLE {
            let gap = logp_of(c.algorithm).expect("both tables have the same columns").gap;
            assert!((c.seconds[0] - gap).abs() < 0.12, "{c:?}");
        }
        assert_eq!(stress_of("posix", 3), Some(10.0));
        assert_eq!(stress_of("posix", 15), None);
        assert_eq!(stress_of("towpath", 1), None);
    }
}
