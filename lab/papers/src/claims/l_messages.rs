//! Paper L, Sections 3 and 4: messages under six claim algorithms on the Enterprise 5000
//! (L2, L4, L7 to L13, L15).
//!
//! Inputs: what the message path's instructions take comes from o_s and o_r of test&set (Table 1);
//! what the operating system's mutex takes from o_s of Posix (Table 1) and, roughly, from Posix
//! with 3 and 7 writers (Table 2). These cells are never counted.

use super::context::{At, Series, rising, within, within_factor};
use super::{Claim, Context, Finding, Verdict, l_causes};
use crate::paper::{LOGP_TABLE, LogPColumn, STRESS_TABLE, STRESS_WRITERS};
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};
use towpath_report::record::Metric;
use towpath_report::record::metrics::{
    EXCHANGES_BULK, EXCHANGES_SHORT, FAILED_EXCHANGES, GAP, LATENCY, RECEIVE_OVERHEAD, REQUESTS_PER_POLL,
    ROUND_TRIP, SEND_OVERHEAD, TIME_PER_OPERATION as TIME, WINDOW,
};

/// The paper's claim algorithms, in the order of its tables.
pub(super) const PAPER: [&str; 6] =
    ["test-and-set", "test-and-test-and-set", "ticket", "anderson", "posix", "lock-free"];
pub(super) const LOCK_FREE: &str = "lock-free";
const POSIX: &str = "posix";

macro_rules! claim {
    ($id:literal, $what:literal, $paper:literal, $tolerance:literal, $judge:ident) => {
        Claim {
            id: $id,
            what: $what,
            paper: $paper,
            tolerance: $tolerance,
            input: false,
            simulated: $judge,
            native: None,
        }
    };
}

pub(super) const CLAIMS: &[Claim] = &[
    claim!(
        "L2",
        "LogP of six claim algorithms (Table 1; not counted: o_s and o_r of test-and-set, o_s of posix)",
        "30 cells",
        "± 25 %; L: at most 0",
        l2
    ),
    claim!(
        "L4",
        "Posix is more than 25 % worse than test-and-set (RTT; g; not counted: o_s)",
        "RTT 1.25, g 1.21",
        "± 25 %, and above 1",
        l4
    ),
    claim!(
        "L7",
        "The stress test with 1, 3, 7 writers (Table 2)",
        "18 cells",
        "± 25 %; posix: a factor 2",
        l7
    ),
    claim!(
        "L8",
        "Lock-free improves with the number of writers",
        "3.19, 3.08, 3.03",
        "falling, by 2 to 8 % in all",
        l8
    ),
    claim!(
        "L9",
        "The cause: a poll's cost is shared by several messages, and the window is short (0.1 µs) against a critical section (at least 1 µs)",
        "rising; 0.1 µs; 1 µs",
        "requests per poll rise; failures below 0.1 a message; a factor 2; at least 1 µs",
        l9
    ),
    claim!(
        "L10",
        "With 7 writers: lock-free, ticket, Anderson, test&test&set, test&set, Posix",
        "in this order",
        "order, 3 % is a tie",
        l10
    ),
    claim!(
        "L11",
        "With 3 writers test&set is about as good as lock-free",
        "3.03 against 3.08",
        "a tie within 5 %",
        l11
    ),
    Claim {
        id: "L12",
        what: "Posix with 3 and 7 writers against lock-free (its operating system's costs were estimated from these cells)",
        paper: "3.3, 4.65",
        tolerance: "a factor 2",
        input: true,
        simulated: l12,
        native: None,
    },
    claim!(
        "L13",
        "Both counters of a ticket lock on one line are slightly better than on two",
        "slightly better",
        "order, 3 % is a tie",
        l13
    ),
    claim!(
        "L15",
        "Lock-free needs 2 compare-and-swaps for a short message, 4 for a bulk transfer",
        "2, 4",
        "exact",
        l15
    ),
];

/// Adds the cause, as experiments show it, to a finding against the claim.
pub(super) fn explained(
    finding: Finding,
    why: impl FnOnce() -> Result<String, Error>,
) -> Result<Finding, Error> {
    match finding.verdict {
        Verdict::NotReproduced(_) => Ok(finding.because(&why()?)),
        _ => Ok(finding),
    }
}

fn question(algorithms: &[&'static str]) -> Sweep {
    Sweep::on("messages", "enterprise5000", algorithms, &[2, 4, 8]).work(5_000, 0.2)
}

pub(super) fn ask(context: &Context<'_>, algorithms: &[&'static str]) -> Result<Series, Error> {
    context.ask(&question(algorithms))
}

/// The place of an algorithm's figure with so many writers.
pub(super) fn at(algorithm: &str, writers: usize) -> At<'_> {
    At::new(algorithm, writers + 1)
}

pub(super) fn row(series: &Series, names: &[&str], writers: usize, metric: Metric) -> String {
    let cell = |name: &&str| format!("{name} {}", nanoseconds(series.median(at(name, writers), metric)));
    names.iter().map(cell).collect::<Vec<_>>().join(", ")
}

fn l2(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let against = series.judge(|f| {
        let mut against = Vec::new();
        for c in LOGP_TABLE {
            let value = |metric| f(at(c.algorithm, 1), metric) / 1e3;
            let name = |what: &str| format!("{what} of {}", c.algorithm);
            if value(LATENCY).is_nan() || value(LATENCY) > 0.05 {
                against.push(format!("L of {} is {}", c.algorithm, digits(value(LATENCY))));
            }
            let calibrated = c.algorithm == "test-and-set";
            if !calibrated && c.algorithm != POSIX {
                against.extend(within(&name("o_s"), value(SEND_OVERHEAD), c.send_overhead, 0.25));
            }
            if !calibrated {
                against.extend(within(&name("o_r"), value(RECEIVE_OVERHEAD), c.receive_overhead, 0.25));
            }
            against.extend(within(&name("g"), value(GAP), c.gap, 0.25));
            against.extend(within(&name("RTT"), value(ROUND_TRIP), c.round_trip, 0.25));
        }
        against
    });
    let rows = [SEND_OVERHEAD, RECEIVE_OVERHEAD, GAP, ROUND_TRIP];
    let text = rows.map(|m| format!("{}: {}", m.name, row(&series, &PAPER, 1, m))).join("; ");
    let finding = Finding::new(text, against).with(table_1(&series));
    explained(finding, || l_causes::latency(context))
}

/// Cells of a parameter in the paper's table, in microseconds.
type OfTable = fn(&LogPColumn) -> f64;

/// Table 1, ours beside the paper's.
fn table_1(series: &Series) -> Vec<String> {
    let parameters: [(Metric, OfTable); 4] = [
        (SEND_OVERHEAD, |c| c.send_overhead),
        (RECEIVE_OVERHEAD, |c| c.receive_overhead),
        (GAP, |c| c.gap),
        (ROUND_TRIP, |c| c.round_trip),
    ];
    let chart = |(metric, of_paper): (Metric, OfTable)| {
        let places = LOGP_TABLE.map(|c| (c.algorithm.to_string(), Some(of_paper(&c) * 1e3)));
        let of = |n: usize, seed| series.with_seed(at(LOGP_TABLE[n].algorithm, 1), metric, seed);
        series.bars_beside(&format!("L table 1: {}", metric.name), &places, &of, nanoseconds)
    };
    parameters.map(chart).into()
}

fn l4(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let ratio =
        |f: &dyn Fn(At<'_>, Metric) -> f64, m: Metric| f(at(POSIX, 1), m) / f(at("test-and-set", 1), m);
    let claim = |f: &dyn Fn(At<'_>, Metric) -> f64| {
        let mut against = within("the ratio of RTT", ratio(f, ROUND_TRIP), 6.9 / 5.5, 0.25);
        against.extend(within("the ratio of g", ratio(f, GAP), 3.5 / 2.9, 0.25));
        if ratio(f, ROUND_TRIP).min(ratio(f, GAP)) <= 1.0 {
            against.push("Posix is not worse".into());
        }
        against
    };
    let against = series.judge(claim);
    let free = Sweep { procs: vec![2], ..question(&["test-and-set", POSIX]) }.set("os.mutex=1ns");
    let free = context.ask(&free)?.judge(claim);
    let median = |a: At<'_>, m: Metric| series.median(a, m);
    let (trip, gap) = (ratio(&median, ROUND_TRIP), ratio(&median, GAP));
    let finding = Finding::new(format!("RTT {}, g {}", digits(trip), digits(gap)), against);
    Ok(finding.sabotaged("a mutex that costs nothing", &free))
}

fn l7(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let against = series.judge(|f| {
        let mut against = Vec::new();
        for column in STRESS_TABLE {
            for (writers, seconds) in STRESS_WRITERS.into_iter().zip(column.seconds) {
                let name = format!("{} with {writers} writers", column.algorithm);
                let value = f(at(column.algorithm, writers as usize), TIME) / 1e3;
                against.extend(match column.algorithm {
                    POSIX => within_factor(&name, value, seconds, 2.0),
                    _ => within(&name, value, seconds, 0.25),
                });
            }
        }
        against
    });
    let rows = STRESS_WRITERS.map(|w| format!("{w} writers: {}", row(&series, &PAPER, w as usize, TIME)));
    let table = STRESS_TABLE.map(|column| {
        let cells = STRESS_WRITERS.into_iter().zip(column.seconds);
        (column.algorithm, cells.map(|(writers, seconds)| (writers + 1, seconds * 1e3)).collect())
    });
    let plot = series.plot_beside(
        "Many writers, one reader: time for each message, the reader among the processors (L table 2)",
        TIME,
        &table,
        nanoseconds,
    );
    explained(Finding::new(rows.join("; "), against).with([plot]), || l_causes::reader(context))
}

fn l8(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let against = series.judge(|f| {
        let [one, three, seven] = [1, 3, 7].map(|w| f(at(LOCK_FREE, w), TIME));
        let mut against = Vec::new();
        if !(one > three && three > seven) {
            against.push("it does not fall".into());
        }
        if !(0.02..=0.08).contains(&(1.0 - seven / one)) {
            against.push(format!("it falls by {:.1} %", (1.0 - seven / one) * 100.0));
        }
        against
    });
    let text = [1, 3, 7].map(|w| series.show(at(LOCK_FREE, w), TIME)).join(", ");
    let (mut shares, mut varied) = (Vec::new(), Vec::new());
    for percent in l_causes::SHARES {
        let times = l_causes::with_share(context, percent)?.map(|figures| figures.message);
        let falls = 1.0 - times[2] / times[0];
        shares.push(format!("{percent} %: {}", times.map(digits).join(", ")));
        if !(times[0] > times[1] && times[1] > times[2] && (0.02..=0.08).contains(&falls)) {
            varied.push(format!("at {percent} % it falls by {:.1} %", falls * 100.0));
        }
    }
    let ours = format!(
        "{text} ns (half of o_r's instructions are the poll's; with other parts {})",
        shares.join("; ")
    );
    Ok(Finding::new(ours, against).varied("the poll's part of o_r", varied))
}

fn l9(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let against = series.judge(|f| {
        let polls = [("1 writer", 1), ("3 writers", 3), ("7 writers", 7)]
            .map(|(name, w)| (name, f(at(LOCK_FREE, w), REQUESTS_PER_POLL)));
        let mut against = rising("requests per poll", &polls);
        if polls[2].1 <= polls[0].1 {
            against.push("polls find no more with 7 writers than with one".into());
        }
        if f(at(LOCK_FREE, 7), FAILED_EXCHANGES) >= 0.1 {
            against.push("compare-and-swaps fail often".into());
        }
        against.extend(within_factor("the window (1 writer)", f(at(LOCK_FREE, 1), WINDOW), 100.0, 2.0));
        let section = f(at("ticket", 7), WINDOW);
        if section.is_nan() || section < 1000.0 {
            against.push(format!("a critical section takes {}", nanoseconds(section)));
        }
        against
    });
    if context.is_sabotaged() {
        return Ok(Finding::new(String::new(), against));
    }
    let shown = |w, m| digits(series.median(at(LOCK_FREE, w), m));
    let text = format!(
        "requests per poll {}, {}, {}; failures {}; window {} ns (7 writers: {}); section under ticket {} ns",
        shown(1, REQUESTS_PER_POLL),
        shown(3, REQUESTS_PER_POLL),
        shown(7, REQUESTS_PER_POLL),
        shown(7, FAILED_EXCHANGES),
        shown(1, WINDOW),
        shown(7, WINDOW),
        digits(series.median(at("ticket", 7), WINDOW)),
    );
    let (mut shares, mut varied) = (Vec::new(), Vec::new());
    for percent in l_causes::SHARES {
        let polls = l_causes::with_share(context, percent)?.map(|figures| figures.per_poll);
        shares.push(format!("{percent} %: {}", polls.map(digits).join(", ")));
        let rises = rising("", &[("1", polls[0]), ("3", polls[1]), ("7", polls[2])]).is_empty();
        if !rises || polls[2] <= polls[0] {
            varied.push(format!("at {percent} % requests per poll do not rise"));
        }
    }
    let text = format!("{text}; requests per poll with other parts of o_r a poll's: {}", shares.join("; "));
    Ok(Finding::new(text, against).varied("the poll's part of o_r", varied))
}

fn l10(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let order = [LOCK_FREE, "ticket", "anderson", "test-and-test-and-set", "test-and-set", POSIX];
    let against = series.judge(|f| rising("7 writers", &order.map(|name| (name, f(at(name, 7), TIME)))));
    let is_tried = against.is_empty() && !context.is_sabotaged();
    let varied = if is_tried { l_causes::spinning(context)? } else { Vec::new() };
    let finding = Finding::new(row(&series, &order, 7, TIME), against);
    let first = order.map(|name| series.median(at(name, 7), TIME));
    let [least, most] =
        [f64::min, f64::max].map(|of| first[..3].iter().copied().reduce(of).unwrap_or(f64::NAN));
    let apart = digits((most / least - 1.0) * 100.0);
    let because = format!("not explained: the paper's first three lie within {apart} % of each other here");
    Ok(finding.varied("constants by which spinning locks resonate", varied).because(&because))
}

fn l11(context: &Context<'_>) -> Result<Finding, Error> {
    let both = ["test-and-set", LOCK_FREE];
    let series = ask(context, &PAPER)?;
    let claim = |f: &dyn Fn(At<'_>, Metric) -> f64| {
        within("test-and-set", f(at("test-and-set", 3), TIME), f(at(LOCK_FREE, 3), TIME), 0.05)
    };
    let against = series.judge(claim);
    let near = Sweep { procs: vec![4], ..question(&both) }.set("bus.cache_to_cache=310ns");
    let near = context.ask(&near)?.judge(claim);
    let finding = Finding::new(row(&series, &both, 3, TIME), against);
    Ok(finding.sabotaged("lines that come from a cache as soon as from memory", &near))
}

fn l12(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let ratio = |f: &dyn Fn(At<'_>, Metric) -> f64, w| f(at(POSIX, w), TIME) / f(at(LOCK_FREE, w), TIME);
    let against = series.judge(|f| {
        let mut against = within_factor("3 writers", ratio(f, 3), 10.0 / 3.08, 2.0);
        against.extend(within_factor("7 writers", ratio(f, 7), 14.1 / 3.03, 2.0));
        against
    });
    let median = |a: At<'_>, m: Metric| series.median(a, m);
    let text = format!("{}, {}", digits(ratio(&median, 3)), digits(ratio(&median, 7)));
    Ok(Finding::new(text, against))
}

fn l13(context: &Context<'_>) -> Result<Finding, Error> {
    let both = ["ticket", "ticket-two-lines"];
    let series = ask(context, &both)?;
    let against = series.judge(|f| {
        let cell = |w: usize| rising(&format!("{w} writers"), &both.map(|name| (name, f(at(name, w), TIME))));
        [1, 3, 7].into_iter().flat_map(cell).collect()
    });
    let rows = [1, 3, 7].map(|w| format!("{w} writers: {}", row(&series, &both, w, TIME)));
    Ok(Finding::new(rows.join("; "), against))
}

fn l15(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let against = series.judge(|f| {
        let counts = [EXCHANGES_SHORT, EXCHANGES_BULK].map(|m| f(at(LOCK_FREE, 1), m));
        if counts == [2.0, 4.0] { Vec::new() } else { vec![format!("{counts:?}")] }
    });
    let text =
        [EXCHANGES_SHORT, EXCHANGES_BULK].map(|m| digits(series.median(at(LOCK_FREE, 1), m))).join(", ");
    Ok(Finding::new(text, against))
}
