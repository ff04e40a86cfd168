//! Paper N §5: several copies of the barriers' programs at one time, under time sharing
//! and under flat gang scheduling (N29 to N31). Run as the queues' in `n_multiprogramming.rs`.

use towpath_sync::Policy;

use super::context::Series;
use super::n_barriers::CACHED;
use super::n_constants::vary;
use super::n_multiprogramming::{
    BARRIERS, COMPETITIVE, DISCIPLINES, Figure, GANG, SHARED, SPIN, at, charts, gap, gaps, median, question,
};
use super::{Claim, Context, Finding, above, not_above};
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::digits;
use towpath_report::record::metrics::{FAILED_CONDITIONALS, INVALIDATIONS, PROGRAM_TIME as TIME};

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "N29",
        what: "Barriers, two and three copies, work ± 20 %: gang scheduling is best",
        paper: "best",
        tolerance: "order, 3 % is a tie",
        input: false,
        simulated: n29,
        native: None,
    },
    Claim {
        id: "N30",
        what: "Barriers, two copies, work ± 50 %: gang scheduling is inferior to time sharing with immediate blocking or competitive spinning",
        paper: "inferior",
        tolerance: "order, 3 % is a tie",
        input: false,
        simulated: n30,
        native: None,
    },
    Claim {
        id: "N31",
        what: "Competitive spinning is beneficial for barriers under time sharing, tightly and loosely synchronised",
        paper: "beneficial",
        tolerance: "order, 3 % is a tie",
        input: false,
        simulated: n31,
        native: None,
    },
];

fn barriers(context: &Context<'_>, copies: &[usize], spread: f64) -> Result<Series, Error> {
    let both = |&(name, operations): &(&'static str, u64)| {
        [SHARED, GANG].map(|scheduler| question(name, scheduler, copies, operations, spread))
    };
    context.ask_all(&BARRIERS.iter().flat_map(both).collect::<Vec<_>>())
}

/// Barriers' gaps in the conscious disciplines (competitive, blocking), two copies, on
/// machines with other operating systems: what they hang on.
fn barrier_sweep(context: &Context<'_>, spread: f64, changes: &[&str]) -> Result<String, Error> {
    let mut sweep = Vec::new();
    for change in changes {
        let both = |&(name, operations): &(&'static str, u64)| {
            [SHARED, GANG].map(|scheduler| {
                let mut question = question(name, scheduler, &[2], operations / 2, spread).set(change);
                if scheduler == SHARED {
                    question.waiting.remove(0);
                }
                question
            })
        };
        let other = context.ask_all_once(&BARRIERS.iter().flat_map(both).collect::<Vec<_>>())?;
        let f = &median(&other);
        let all = BARRIERS.map(|(name, _)| {
            let both = [DISCIPLINES[1].0, DISCIPLINES[2].0].map(|w| digits(gap(f, name, w, 2)));
            format!("{name} {}", both.join(" "))
        });
        sweep.push(format!("{change}: {}", all.join("; ")));
    }
    Ok(sweep.join(". "))
}

fn n29(context: &Context<'_>) -> Result<Finding, Error> {
    let series = barriers(context, &[2, 3], 0.2)?;
    let names = BARRIERS.map(|b| b.0);
    let against = series.judge(|f| {
        let mut against = Vec::new();
        for name in names {
            for n in [2, 3] {
                let better = DISCIPLINES.iter().filter(|d| !not_above(gap(f, name, d.0, n), 1.0));
                against.extend(better.map(|d| {
                    format!(
                        "{name}, {n} copies: gang takes {} of {}'s time",
                        digits(gap(f, name, d.0, n)),
                        d.0
                    )
                }));
            }
        }
        against
    });
    let f = &median(&series);
    let contention = |waiting, scheduler| {
        let there = at(CACHED, waiting, 2, scheduler);
        format!("{} and {}", digits(f(there, FAILED_CONDITIONALS)), digits(f(there, INVALIDATIONS)))
    };
    let ours = format!(
        "gang ÷ time sharing (spinning, competitive, blocking) for 2 | 3 copies: {}. Failing store-conditionals and invalidations for each passage of {CACHED}: {} under gang scheduling, {} by blocking under time sharing. Competitive and blocking for 2 copies with {}",
        names.map(|n| gaps(f, n, &[2, 3])).join("; "),
        contention(SPIN, GANG),
        contention(DISCIPLINES[2].0, SHARED),
        barrier_sweep(context, 0.2, &["os.switch=2us", "os.switch=50us", "os.blocking=sleep"])?
    );
    Ok(Finding::new(ours, against).because(N29_CAUSE).with(charts(
        &series,
        &names,
        &[2, 3],
        "Barriers (N figure 8), work ± 20 %",
    )))
}

const N29_CAUSE: &str = "the exception is the barrier over LL/SC by blocking: a thread that is coscheduled arrives with all others, and their store-conditionals and copies get in each other's way; one that gives way arrives with few. Neither the costs of switches nor sleeping instead of giving way change that";

fn n30(context: &Context<'_>) -> Result<Finding, Error> {
    let series = barriers(context, &[2], 0.5)?;
    let names = BARRIERS.map(|b| b.0);
    let against =
        series.judge(|f| {
            let mut against = Vec::new();
            for name in names {
                let worse = DISCIPLINES[1..].iter().filter(|d| !above(gap(f, name, d.0, 2), 1.0));
                against.extend(worse.map(|d| {
                    format!("{name}: gang takes {} of {}'s time", digits(gap(f, name, d.0, 2)), d.0)
                }));
            }
            against
        });
    let f = &median(&series);
    let ours = format!(
        "gang ÷ time sharing (spinning, competitive, blocking): {}. Competitive and blocking with {}",
        names.map(|n| gaps(f, n, &[2])).join("; "),
        barrier_sweep(context, 0.5, &["os.switch=2us", "os.switch=50us", "os.blocking=sleep"])?
    );
    Ok(Finding::new(ours, against).because(N30_CAUSE).with(charts(
        &series,
        &names,
        &[2],
        "Barriers (N figure 8), work ± 50 %",
    )))
}

const N30_CAUSE: &str = "from ± 20 % (N29) to ± 50 % the ratios move by about a tenth: the imbalance decides little, the costs of switches (E) much. Competitive spinning waits a context switch's time for each that has not come; how long is not in the paper, and blocking is the same with no time at all: the longer, the worse. Under the two-tree barrier one waits for another that has no processor";

/// Spreads of the work, and numbers of copies, of N31.
const LOOSE_AND_TIGHT: [(f64, &[u64]); 2] = [(0.2, &[2, 3]), (0.5, &[2])];

/// The barriers under time sharing, by busy-waiting and by competitive spinning.
fn spinning(copies: &[u64], spread: f64) -> [Sweep; 3] {
    let copies: Vec<usize> = copies.iter().map(|&n| n as usize).collect();
    BARRIERS.map(|(name, operations)| {
        let mut asked = question(name, SHARED, &copies, operations, spread);
        asked.waiting.retain(|&policy| policy != Policy::Park);
        asked
    })
}

fn n31(context: &Context<'_>) -> Result<Finding, Error> {
    let names = BARRIERS.map(|b| b.0);
    let part = |f: Figure<'_>, name, n| {
        f(at(name, COMPETITIVE, n, SHARED), TIME) / f(at(name, SPIN, n, SHARED), TIME)
    };
    let judge = |series: &Series, copies: &[u64]| {
        series.judge(|f| {
            let pairs = names.iter().flat_map(|&name| copies.iter().map(move |&n| (name, n)));
            let slower = pairs.filter(|&(name, n)| !not_above(part(f, name, n), 1.0));
            slower
                .map(|(name, n)| {
                    format!("{name}, {n} copies: {} of busy-waiting's time", digits(part(f, name, n)))
                })
                .collect()
        })
    };
    let ask = |change: Option<&str>| -> Result<_, Error> {
        let (mut against, mut all) = (Vec::new(), Vec::new());
        for (spread, copies) in LOOSE_AND_TIGHT {
            let sweeps = spinning(copies, spread);
            let series = match change {
                None => context.ask_all(&sweeps)?,
                Some(change) => context.ask_all_once(&sweeps.map(|sweep| sweep.set(change)))?,
            };
            against.extend(judge(&series, copies));
            all.push(series);
        }
        Ok((against, all))
    };
    let (against, all) = ask(None)?;
    let mut ours = Vec::new();
    for ((spread, copies), series) in LOOSE_AND_TIGHT.into_iter().zip(&all) {
        let f = &median(series);
        let show = |name| {
            let parts: Vec<String> = copies.iter().map(|&n| digits(part(f, name, n))).collect();
            format!("{name} {}", parts.join(" | "))
        };
        ours.push(format!("± {:.0} %: {}", spread * 100.0, names.map(show).join(", ")));
    }
    let ours = format!("competitive ÷ busy-waiting for 2 | 3 copies, {}", ours.join("; "));
    vary(Finding::new(ours, against), &|change| Ok(ask(Some(change))?.0))
}
