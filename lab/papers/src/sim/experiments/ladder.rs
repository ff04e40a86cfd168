//! The ladder of paper M on a simulated machine: ping-pong between two processes through
//! the four versions of MPICH's device and through Towpath's endpoints, by the length of messages.

use std::sync::LazyLock;

use towpath_sync::Policy;

use super::{Measured, NamedRunner, Point, Run, Simulate, Sweep, chosen, point, show};
use crate::ladder::Version;
use crate::sim::ladder::{self, Rung};
use towpath_host::Error;
use towpath_report::record::RecordSubject;
use towpath_report::record::metrics::{BYTES_PER_S, ROUND_TRIP_US};
use towpath_report::{Experiment, Results, Section};

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

/// Ping-pong through a version.
fn measure(version: Version, run: &Run) -> Result<Measured, Error> {
    let stuck = |stuck: towpath_sim::Stuck| Error::NotAvailable(stuck.to_string());
    let ns = ladder::ping_pong(&Rung::new(run.clone(), version)).map_err(stuck)?.latency;
    let mut values = vec![(ROUND_TRIP_US, ns / 500.0)];
    if run.bytes > 0 {
        values.push((BYTES_PER_S, run.bytes as f64 * 1e9 / ns));
    }
    Ok(Measured { values, same: Vec::new() })
}

/// The versions.
static VERSIONS: LazyLock<Vec<NamedRunner>> = LazyLock::new(|| {
    let named = |version: Version| NamedRunner::new(version.name(), move |run| measure(version, run));
    Version::ALL.map(named).into()
});

/// The experiment.
pub(super) struct Ladder;

impl Experiment for Ladder {
    fn name(&self) -> &'static str {
        "ladder"
    }
    fn about(&self) -> &'static str {
        "from System V semaphores to lock-free: four versions of MPICH's device, and ours, by the length of messages (M figures 1 and 4 to 7)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        VERSIONS.iter().map(|a| a.name).collect()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        show::sections_of(self.name(), results)
    }
}

impl Simulate for Ladder {
    fn points(&self, sweep: &Sweep) -> Result<Vec<Point>, Error> {
        if sweep.waiting != [Policy::Spin] {
            return Err(Error::NotAvailable("the paper's device spins: leave --waiting out".into()));
        }
        if !sweep.procs.is_empty() && sweep.procs != [2] {
            return Err(Error::NotAvailable("ping-pong is for two: leave --procs out".into()));
        }
        let sizes = if sweep.bytes.is_empty() { &SIZES[..] } else { &sweep.bytes };
        let mut points = Vec::new();
        for version in chosen(sweep, &VERSIONS)? {
            for &bytes in sizes {
                let mut point = point(self.name(), sweep, version, Policy::Spin, 2);
                point.subject = RecordSubject::new(self.name(), version.name, "spin", 2).with("bytes", bytes);
                point.run.bytes = bytes;
                points.push(point);
            }
        }
        Ok(points)
    }
}
