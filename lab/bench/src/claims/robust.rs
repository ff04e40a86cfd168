//! L17: with more processes than processors the lock-free algorithm loses least.
//!
//! "Only the lock-free algorithm is both fast and robust to multiprogramming" (4.3). Here: with two
//! to eight times as many processes as cores (writers and the reader), the rate with one writer
//! divided by that with many is smallest for `lock-free` among the paper's six. MCS and our own
//! algorithm are not the paper's and stand beside them.

use super::{Claim, Figure, Finding, Line, Lines, beyond_tie, papers, record};
use crate::format::digits;
use crate::results::Results;
use crate::transport::OURS;

/// The claim.
pub(super) struct Robust;

/// The paper's own algorithm.
const LOCK_FREE: &str = "lock-free";

/// How many processes per core the claim is about.
const OVERSUBSCRIPTION: std::ops::RangeInclusive<f64> = 2.0..=8.0;

impl Claim for Robust {
    fn id(&self) -> &'static str {
        "L17"
    }
    fn sentence(&self) -> &'static str {
        "Only lock-free is both fast and robust to multiprogramming: it loses least when processes outnumber cores"
    }
    fn tolerance(&self) -> &'static str {
        "at 2 to 8 processes per core lock-free's slowdown is the smallest of the paper's six, within 3 % is a tie"
    }
    fn experiments(&self) -> &'static [&'static str] {
        &["stress"]
    }
    fn caveat(&self, waiting: &str) -> String {
        match waiting {
            "spin" => String::new(),
            _ => format!(
                "taken under {waiting}, but the paper's algorithms spin: towpath bench stress --waiting spin --writers 1,3 judges them as meant"
            ),
        }
    }
    fn thoroughly(&self) -> &'static str {
        "towpath bench stress --writers 1,3"
    }
    fn lines<'a>(&self, results: &'a Results, waiting: &str) -> Result<Lines<'a>, String> {
        let rate = |name: &str, writers: u64| {
            record(results, ("stress", "messages_per_s"), name, waiting, &[("writers", writers)])
        };
        for name in papers() {
            rate(name, 1)?;
        }
        let cores = f64::from(results.host.cores);
        let many: Vec<u64> = results
            .numbers("stress", "writers")
            .into_iter()
            // One writer is what the others are compared with, also on a single core.
            .filter(|w| *w > 1 && OVERSUBSCRIPTION.contains(&((w + 1) as f64 / cores)))
            .collect();
        // A number of writers with which one of the six could not be measured says nothing of which
        // is best.
        let (mut complete, mut lacking) = (Vec::new(), Vec::new());
        for writers in many {
            match papers().find_map(|name| rate(name, writers).err()) {
                None => complete.push(writers),
                Some(why) => lacking.push(format!("{writers} writers not judged: {why}")),
            }
        }
        if complete.is_empty() {
            return Err(lacking.pop().unwrap_or_else(|| {
                let (from, to) = ((2.0 * cores - 1.0).max(2.0), 8.0 * cores - 1.0);
                format!(
                    "the stress test had no number of writers from {from} to {to} (2 to 8 processes per core)"
                )
            }));
        }
        let line = |algorithm| -> Result<Line<'a>, String> {
            let mut records = vec![rate(algorithm, 1)?];
            for &writers in &complete {
                records.push(rate(algorithm, writers)?);
            }
            Ok(Line { algorithm, records })
        };
        Ok(Lines {
            judged: papers().map(line).collect::<Result<_, _>>()?,
            beside: ["mcs", OURS].into_iter().filter_map(|name| line(name).ok()).collect(),
            lacking: lacking.join("; "),
        })
    }
    fn find(&self, lines: &Lines<'_>, figure: Figure<'_>) -> Finding {
        let mut finding = Finding::default();
        let mut measured = Vec::new();
        let numbers = lines.judged.first().map_or(0, |l| l.records.len());
        for n in 1..numbers {
            let slowdown = |l: &Line<'_>| figure(l.records[0]) / figure(l.records[n]);
            let list = |lines: &[Line<'_>]| {
                let each = lines.iter().map(|l| format!("{} {}", l.algorithm, digits(slowdown(l))));
                each.collect::<Vec<_>>().join(", ")
            };
            let writers = lines.judged[0].records[n].number("writers").unwrap_or(0);
            let mut text = format!("{writers} writers, slower by a factor: {}", list(&lines.judged));
            if !lines.beside.is_empty() {
                text.push_str(&format!("; beside: {}", list(&lines.beside)));
            }
            measured.push(text);
            let Some(lock_free) = lines.judged.iter().find(|l| l.algorithm == LOCK_FREE).map(&slowdown)
            else {
                continue;
            };
            let better: Vec<&str> = lines
                .judged
                .iter()
                .filter(|l| beyond_tie(lock_free, slowdown(l)))
                .map(|l| l.algorithm)
                .collect();
            if !better.is_empty() {
                finding.against.push(format!("with {writers} writers {} lose less", better.join(", ")));
            }
        }
        finding.measured = measured.join("; ");
        finding
    }
}
