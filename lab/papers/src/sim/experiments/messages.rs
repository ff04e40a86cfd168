//! Messages through `am`'s queues and claims (Lumetta & Culler, Tables 1 and 2): all
//! processors but one write to the remaining one. With two processors there are LogP and the
//! bandwidth of bulk transfers as well.

use std::sync::LazyLock;

use towpath_sync::Policy;

use super::{Measured, NamedRunner, Point, Run, Simulate, Sweep, all_points, show};
use crate::sim::messages::{self, Layer, bulk, logp, stress};
use towpath_host::Error;
use towpath_report::record::metrics;
use towpath_report::{Experiment, Results, Section};

/// Measures the stress test under a claim algorithm; with two processors LogP and bulk
/// too.
fn measure(algorithm: messages::MessageAlgorithm, run: &Run) -> Result<Measured, Error> {
    let layer = Layer::new(run.clone());
    let stuck = |stuck: towpath_sim::Stuck| Error::NotAvailable(stuck.to_string());
    let f = stress::stress(&layer, algorithm).map_err(stuck)?;
    let per = |n: u64| n as f64 / f.messages.max(1) as f64;
    let mut values = vec![
        (metrics::TIME_PER_OPERATION, f.message),
        (metrics::REQUESTS_PER_POLL, f.per_poll),
        (metrics::FAILED_EXCHANGES, f.failed_exchanges),
        (metrics::LEAST_SHARE, f.shares.0),
        (metrics::INVALIDATIONS, per(f.counters.invalidations)),
        (metrics::INTERVENTIONS, per(f.counters.interventions)),
        (metrics::UPGRADES, per(f.counters.upgrades)),
        (metrics::CONTEXT_SWITCHES, per(f.counters.switches)),
    ];
    if f.window.is_finite() {
        values.push((metrics::WINDOW, f.window));
    }
    if run.procs == 2 {
        let l = logp::logp(&layer, algorithm).map_err(stuck)?;
        values.extend([
            (metrics::LATENCY, l.logp.latency),
            (metrics::SEND_OVERHEAD, l.logp.send_overhead),
            (metrics::RECEIVE_OVERHEAD, l.logp.receive_overhead),
            (metrics::GAP, l.logp.gap),
            (metrics::ROUND_TRIP, l.logp.round_trip),
            (metrics::EXCHANGES_SHORT, l.one_send.exchanges as f64),
        ]);
        let b = bulk::bulk(&layer, algorithm).map_err(stuck)?;
        values.extend([
            (metrics::BYTES_PER_S, b.bandwidth),
            (metrics::OF_COPY_RATE, b.bandwidth / bulk::copy_rate(&layer).map_err(stuck)?),
            (metrics::EXCHANGES_BULK, b.one_send.exchanges as f64),
        ]);
    }
    Ok(Measured { values, same: Vec::new() })
}

/// The claim algorithms.
pub static MESSAGES: LazyLock<Vec<NamedRunner>> = LazyLock::new(|| {
    let named = |algorithm: messages::MessageAlgorithm| {
        NamedRunner::new(algorithm.name(), move |run| measure(algorithm, run))
    };
    messages::MessageAlgorithm::ALL.map(named).into()
});

/// The experiment.
pub(super) struct Messages;

impl Experiment for Messages {
    fn name(&self) -> &'static str {
        "messages"
    }
    fn about(&self) -> &'static str {
        "active messages through one receive block: LogP, and many writers to one reader (L tables 1 and 2)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        MESSAGES.iter().map(|a| a.name).collect()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        show::sections_of(self.name(), results)
    }
}

impl Simulate for Messages {
    fn points(&self, sweep: &Sweep) -> Result<Vec<Point>, Error> {
        let mut sweep = sweep.clone();
        if sweep.waiting != [Policy::Spin] {
            return Err(Error::NotAvailable("the paper's message layer spins: leave --waiting out".into()));
        }
        if sweep.procs.is_empty() {
            sweep.procs =
                [2, 4, 8].into_iter().filter(|n| *n <= sweep.run.machine.processors as usize).collect();
        }
        if let Some(n) = sweep.procs.iter().find(|n| !(2..=64).contains(*n)) {
            return Err(Error::NotAvailable(format!(
                "--procs {n}: messages have a reader and 1 to 63 writers, so 2 to 64 processors"
            )));
        }
        all_points(self.name(), &sweep, &MESSAGES)
    }
}
