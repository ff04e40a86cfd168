//! The ladder of paper M on a simulated machine: ping-pong between two processes through
//! the four versions of MPICH's device and through Towpath's endpoints, by the length of messages.

use std::sync::LazyLock;

use towpath_sync::Policy;

use super::{Algorithm, Measured, Point, Setup, SimExperiment, SimSettings, chosen, point};
use crate::ladder::Version;
use crate::sim::ladder;
use towpath_host::Error;
use towpath_report::record::Subject;
use towpath_report::record::metrics::{BYTES_PER_S, ROUND_TRIP_US};

/// Both sides of each protocol's limits, up to where the paper's curves end.
pub const SIZES: [usize; 14] = [
    0,
    8,
    256,
    1023,
    1024,
    4 << 10,
    16 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    1 << 20,
    2 << 20,
    3 << 20,
    4 << 20,
];

fn run<const N: usize>(setup: &Setup) -> Result<Measured, Error> {
    let version = Version::ALL[N];
    let stuck = |stuck: towpath_sim::Stuck| Error::NotAvailable(stuck.to_string());
    let ladder = ladder::Setup::new(&setup.machine, version);
    let ns = ladder::ping_pong(&ladder, version, setup.bytes, setup.seed).map_err(stuck)?.latency;
    let mut values = vec![(ROUND_TRIP_US, ns / 500.0)];
    if setup.bytes > 0 {
        values.push((BYTES_PER_S, setup.bytes as f64 * 1e9 / ns));
    }
    Ok(Measured { values })
}

/// The versions.
static VERSIONS: LazyLock<Vec<Algorithm>> = LazyLock::new(|| {
    fn named<const N: usize>() -> Algorithm {
        Algorithm { name: Version::ALL[N].name(), run: [run::<N>; 2] }
    }
    vec![named::<0>(), named::<1>(), named::<2>(), named::<3>(), named::<4>()]
});

pub(super) struct Experiment;

impl SimExperiment for Experiment {
    fn name(&self) -> &'static str {
        "ladder"
    }
    fn about(&self) -> &'static str {
        "from System V semaphores to lock-free: four versions of MPICH's device, and ours, by the length of messages (M figures 1 and 4 to 7)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        VERSIONS.iter().map(|a| a.name).collect()
    }
    fn points(&self, settings: &SimSettings) -> Result<Vec<Point>, Error> {
        if settings.waiting != [Policy::Spin] {
            return Err(Error::NotAvailable("the paper's device spins: leave --waiting out".into()));
        }
        if !settings.procs.is_empty() && settings.procs != [2] {
            return Err(Error::NotAvailable("ping-pong is for two: leave --procs out".into()));
        }
        let sizes = if settings.bytes.is_empty() { &SIZES[..] } else { &settings.bytes };
        let mut points = Vec::new();
        for version in chosen(settings, &VERSIONS)? {
            for &bytes in sizes {
                let mut point = point(self.name(), settings, version, Policy::Spin, 2);
                point.subject = Subject::new(self.name(), version.name, "spin", 2).with("bytes", bytes);
                point.setup.bytes = bytes;
                points.push(point);
            }
        }
        Ok(points)
    }
}
