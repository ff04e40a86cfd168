//! Paper L, Section 4.3: applications over messages under six claim algorithms on the
//! Enterprise 5000 (L14).
//!
//! The programs are those of the room `apps`, with inputs that a simulation can afford: keys and
//! lattices of some thousand nodes for each processor, where the paper has hundreds of thousands.

use super::context::{At, Series, within};
use super::l_messages::{LOCK_FREE, PAPER};
use super::{Claim, Context, Finding, above, below};
use crate::paper::{APPLICATION_TABLE, ApplicationRow};
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::digits;
use towpath_report::record::Metric;
use towpath_report::record::metrics::TIME_PER_OPERATION as TIME;

pub(super) const CLAIMS: &[Claim] = &[Claim {
    id: "L14",
    what: "Applications (Table 4): lock-free is the best in CON/comm, CON/comp and SAMPLE, the ticket lock in 3-D FFT; Posix is the worst in all",
    paper: "24 cells",
    tolerance: "best and worst, 3 % is a tie; each time ÷ lock-free's ± 25 %",
    input: false,
    simulated: l14,
    native: None,
}];

/// Processors of the paper's machine.
const PROCS: usize = 8;

/// A way to look a figure up.
type Look<'a> = &'a dyn Fn(At<'_>, Metric) -> f64;

fn question(row: &ApplicationRow) -> Sweep {
    let sweep = Sweep::on("apps", "enterprise5000", &PAPER, &[PROCS]);
    Sweep { patterns: vec![row.pattern.into()], copies: vec![1], ..sweep }
}

fn time(f: Look<'_>, row: &ApplicationRow, algorithm: &str) -> f64 {
    f(At { pattern: row.pattern, ..At::new(algorithm, PROCS) }, TIME)
}

/// The paper's time of an algorithm, in seconds.
fn of_paper(row: &ApplicationRow, algorithm: &str) -> f64 {
    PAPER.iter().position(|name| *name == algorithm).map_or(f64::NAN, |n| row.seconds[n])
}

/// The contradictions of one application.
fn against(f: Look<'_>, row: &ApplicationRow) -> Vec<String> {
    let mut against = Vec::new();
    let by = |of: fn(f64, f64) -> f64| PAPER.map(|a| of_paper(row, a)).into_iter().reduce(of);
    for algorithm in PAPER {
        let ours = time(f, row, algorithm);
        for other in PAPER {
            let others = time(f, row, other);
            let seconds = Some(of_paper(row, algorithm));
            let name = row.name;
            if seconds == by(f64::min) && (ours.is_nan() || above(ours, others)) {
                against.push(format!("{name}: {other} is faster than {algorithm}"));
            }
            if seconds == by(f64::max) && (ours.is_nan() || below(ours, others)) {
                against.push(format!("{name}: {other} is slower than {algorithm}"));
            }
        }
        let ratio = |of: &dyn Fn(&str) -> f64| of(algorithm) / of(LOCK_FREE);
        let (ours, papers) = (ratio(&|a| time(f, row, a)), ratio(&|a| of_paper(row, a)));
        against.extend(within(&format!("{}: {algorithm} ÷ lock-free", row.name), ours, papers, 0.25));
    }
    against
}

fn shown(series: &Series, row: &ApplicationRow) -> String {
    let f = |at: At<'_>, metric| series.median(at, metric);
    let cell = |algorithm: &str| {
        let ours = time(&f, row, algorithm) / time(&f, row, LOCK_FREE);
        let papers = of_paper(row, algorithm) / of_paper(row, LOCK_FREE);
        format!("{algorithm} {} ({})", digits(ours), digits(papers))
    };
    format!("{}: {}", row.name, PAPER.map(cell).join(", "))
}

/// A row of Table 4, ours beside the paper's.
fn chart(series: &Series, row: &ApplicationRow) -> String {
    let places = PAPER.map(|a| (a.to_string(), Some(of_paper(row, a) / of_paper(row, LOCK_FREE))));
    let of = |n: usize, seed| {
        let f = |at: At<'_>, metric| series.with_seed(at, metric, seed);
        time(&f, row, PAPER[n]) / time(&f, row, LOCK_FREE)
    };
    series.bars_beside(&format!("{}: time ÷ lock-free's (L table 4)", row.name), &places, &of, digits)
}

fn l14(context: &Context<'_>) -> Result<Finding, Error> {
    let sweeps: Vec<Sweep> = APPLICATION_TABLE.iter().map(question).collect();
    let series = context.ask_all(&sweeps)?;
    let contradictions = series.judge(|f| APPLICATION_TABLE.iter().flat_map(|row| against(f, row)).collect());
    let rows: Vec<String> = APPLICATION_TABLE.iter().map(|row| shown(&series, row)).collect();
    let ours = format!("time ÷ lock-free's (the paper's): {}", rows.join("; "));
    let plots = APPLICATION_TABLE.iter().map(|row| chart(&series, row));
    let mut finding = Finding::new(ours, contradictions).with(plots);
    finding.caveat = "inputs are scaled down: the paper's have 60 to 130 times as many keys or nodes".into();
    Ok(finding)
}
