//! Causes of missed claims of paper L on messages: each is shown by an experiment in
//! which one thing is changed, run when the claim is judged.

use towpath_sim::machines;

use super::context::At;
use super::{Context, above};
use crate::sim::Sweep;
use crate::sim::messages::stress::{StressFigures, stress};
use crate::sim::messages::{Layer, MessageAlgorithm};
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};
use towpath_report::record::metrics::LATENCY;
use towpath_report::stats::percentile;

/// Messages in each run: enough for a steady state.
const MESSAGES: u64 = 5_000;

/// The median over the seeds of a message's time in the stress test.
fn message(
    context: &Context<'_>,
    layer: &Layer,
    algorithm: MessageAlgorithm,
    writers: usize,
) -> Result<f64, Error> {
    let each: Result<Vec<f64>, Error> = (1..=u64::from(context.seeds()))
        .map(|seed| {
            let mut layer = layer.seed(seed);
            (layer.run.procs, layer.run.operations) = (writers + 1, MESSAGES);
            let figures = stress(&layer, algorithm);
            figures.map(|f| f.message).map_err(|stuck| Error::NotAvailable(stuck.to_string()))
        })
        .collect();
    Ok(percentile(&each?, 50.0).unwrap_or(f64::NAN))
}

fn enterprise() -> Layer {
    let machine = machines::by_name("enterprise5000").expect("a machine that comes with Towpath");
    Layer::on(machine, 2, MESSAGES)
}

/// Parts of o_r's instructions that may be the poll's, in percent: no source says it.
pub const SHARES: [u64; 3] = [25, 40, 75];

/// Figures of lock-free with 1, 3 and 7 writers if a poll takes that part of o_r's
/// instructions: those of the seed with the median time.
pub fn with_share(context: &Context<'_>, percent: u64) -> Result<[StressFigures; 3], Error> {
    let lock_free = MessageAlgorithm::Known(towpath_am::Algorithm::LockFree);
    let mut all = Vec::new();
    for writers in [1, 3, 7] {
        let mut each = Vec::new();
        for seed in 1..=u64::from(context.seeds()) {
            let mut layer = enterprise().seed(seed);
            (layer.run.procs, layer.run.operations) = (writers + 1, MESSAGES);
            let costs = &mut layer.habits.costs;
            let receive = costs.poll + costs.dispatch;
            costs.poll = receive * percent / 100;
            costs.dispatch = receive - costs.poll;
            each.push(stress(&layer, lock_free).map_err(|stuck| Error::NotAvailable(stuck.to_string()))?);
        }
        each.sort_by(|a, b| a.message.total_cmp(&b.message));
        all.push(each.swap_remove(each.len() / 2));
    }
    all.try_into().map_err(|_| Error::NotAvailable("no seeds".into()))
}

/// Times of an upgrade beside the 150 ns that are estimated, by which no send changes.
const UPGRADES: [&str; 3] = ["bus.upgrade=140ns", "bus.upgrade=160ns", "bus.upgrade=170ns"];

/// The constants that L above 0 hangs on: some that change no o_s or o_r, and the store
/// buffer.
pub fn latency(context: &Context<'_>) -> Result<String, Error> {
    const BOTH: [&str; 2] = ["posix", "lock-free"];
    let with = |change: &str| -> Result<String, Error> {
        let question = Sweep::on("messages", "enterprise5000", &BOTH, &[2]).work(5_000, 0.2);
        let series = context.ask_once(&question.set(change))?;
        let latencies = BOTH.map(|name| {
            let latency = series.median(At::new(name, 2), LATENCY);
            format!("{name} {} ns", digits(latency))
        });
        Ok(format!("with {change} {}", latencies.join(", ")))
    };
    let upgrades: Result<Vec<String>, Error> = UPGRADES.into_iter().map(with).collect();
    Ok(format!(
        "not explained for lock-free. Client and server poll in step, so that L of Posix leaps with a constant that changes no o_s: {}. Without a store buffer, {}",
        upgrades?.join("; "),
        with("processor.store_buffer=0")?
    ))
}

/// The cause of queue locks being too fast: their times when the reader is not the limit.
pub fn reader(context: &Context<'_>) -> Result<String, Error> {
    let mut eager = enterprise();
    (eager.habits.costs.poll, eager.habits.costs.dispatch) = (0, 0);
    let mut parts = Vec::new();
    for algorithm in MessageAlgorithm::PAPER.into_iter().filter(|a| a.name() != "posix") {
        let [usual, quick] =
            [message(context, &enterprise(), algorithm, 7)?, message(context, &eager, algorithm, 7)?];
        parts.push(format!("{} {} instead of {}", algorithm.name(), nanoseconds(quick), nanoseconds(usual)));
    }
    Ok(format!(
        "the locks that queue take as long as lock-free, where nothing is handed over: what a message takes there are the reader's misses. With a reader whose instructions take no time, 7 writers: {}",
        parts.join(", ")
    ))
}

/// Pauses between two attempts at a spin lock, in nanoseconds: no source says it.
///
/// Tried beside the 24 ns of a loop of four cycles.
const RETRIES: [u64; 4] = [12, 18, 30, 36];

/// Changes of a send's instructions that o_s of test&set leaves open, in nanoseconds.
///
/// Table 1 gives it to a tenth of a microsecond.
const ROUNDING: [i64; 4] = [-50, -20, 20, 50];

/// The contradictions of the order of the spin locks with 7 writers, for other pauses
/// between two attempts, and other instructions of a send.
pub fn spinning(context: &Context<'_>) -> Result<Vec<String>, Error> {
    use towpath_am::Algorithm::{TestAndSet, TestAndTestAndSet};
    let mut layers = Vec::new();
    for retry in RETRIES {
        let mut layer = enterprise();
        layer.habits.period.retry.base = retry;
        layers.push((format!("attempts {retry} ns apart"), layer));
    }
    for change in ROUNDING {
        let mut layer = enterprise();
        let send = &mut layer.habits.costs.send;
        *send = send.saturating_add_signed(change);
        layers.push((format!("{change:+} ns of instructions in a send"), layer));
    }
    let mut against = Vec::new();
    for (changed, layer) in layers {
        let time = |algorithm| message(context, &layer, MessageAlgorithm::Known(algorithm), 7);
        let (quiet, eager) = (time(TestAndTestAndSet)?, time(TestAndSet)?);
        if above(quiet, eager) {
            let (quiet, eager) = (nanoseconds(quiet), nanoseconds(eager));
            let text = format!("with {changed} test-and-test-and-set takes {quiet}, test-and-set {eager}");
            against.push(text);
        }
    }
    Ok(against)
}
