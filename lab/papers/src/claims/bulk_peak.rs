//! L5: at its peak bulk transfer reaches about 80 % of the memory copy rate, whatever the
//! claim algorithm.
//!
//! "Peak bandwidth using bulk transfers has less variation: the algorithms range from about 158
//! MB/s (Posix mutexes) to 166 MB/s (lock-free), or roughly 80% of the memory copy rate" (4.1). The
//! paper's transfers go through the bulk queue: here the path `blocks`. The peak is that over the
//! sizes of the run, and the copy rate that of memcpy at the same size, in the same rounds.

use super::l_messages::{LOCK_FREE, PAPER, ask, at};
use super::native::{AlgorithmRecords, Comparison, Figure, JudgedRecords, Native, extremes, missing, papers};
use super::{Claim, Context, Finding};
use crate::paper::BULK_OF_MEMCPY;
use towpath_host::Error;
use towpath_report::OURS;
use towpath_report::format::{digits, percent, size};
use towpath_report::metrics::{BYTES_PER_S, OF_COPY_RATE};
use towpath_report::record::Record;
use towpath_report::results::Results;

/// Paper L's fifth claim.
pub(super) const CLAIM: Claim = Claim {
    id: "L5",
    what: "Bulk transfers reach about 80 % of the memory copy rate at their peak under every algorithm",
    paper: "0.8; spread 5 %",
    tolerance: "0.7 to 0.9; spread at most 10 %",
    input: false,
    simulated,
    native: Some(&BulkPeak),
};

/// The native evidence.
struct BulkPeak;

/// The peak's part of the copy rate.
const PART: std::ops::RangeInclusive<f64> = 0.7..=0.9;

/// Maximum distance of the fastest algorithm from the slowest. In the paper 166 ÷ 158: 5
/// %.
const SPREAD: f64 = 0.10;

impl Native for BulkPeak {
    fn experiments(&self) -> &'static [&'static str] {
        &["bulk"]
    }
    fn thoroughly(&self) -> &'static str {
        "towpath bench bulk --sizes 64K,256K,1M"
    }
    fn lines<'a>(&self, results: &'a Results, waiting: &str) -> Result<JudgedRecords<'a>, String> {
        let judged = papers().map(|name| line(results, name, waiting)).collect::<Result<_, _>>()?;
        let beside = ["mcs", OURS].into_iter().filter_map(|name| line(results, name, waiting).ok()).collect();
        Ok(JudgedRecords { judged, beside, lacking: String::new() })
    }
    fn compare(&self, lines: &JudgedRecords<'_>, figure: Figure<'_>) -> Comparison {
        let part = |l: &AlgorithmRecords<'_>| figure(l.records[0]) / figure(l.records[1]);
        let parts: Vec<(&str, f64)> = lines.judged.iter().map(|l| (l.algorithm, part(l))).collect();
        let peaks: Vec<(&str, f64)> =
            lines.judged.iter().map(|l| (l.algorithm, figure(l.records[0]))).collect();
        let mut finding = Comparison::default();
        let Some([slowest, fastest]) = extremes(&peaks) else { return finding };
        let spread = fastest.1 / slowest.1 - 1.0;
        let named = |l: &AlgorithmRecords<'_>| {
            let at = l.records[0].number("bytes").map_or_else(String::new, |b| format!(" at {}", size(b)));
            format!("{} {}{at}", l.algorithm, digits(part(l)))
        };
        let list = |lines: &[AlgorithmRecords<'_>]| lines.iter().map(named).collect::<Vec<_>>().join(", ");
        finding.measured = format!("{} of memcpy; spread {}", list(&lines.judged), percent(spread));
        if !lines.beside.is_empty() {
            finding.measured.push_str(&format!("; beside: {}", list(&lines.beside)));
        }
        finding.against = contradictions(&parts, &peaks);
        finding
    }
}

/// An algorithm's peak, and memcpy of that size.
fn line<'a>(
    results: &'a Results,
    algorithm: &'static str,
    waiting: &str,
) -> Result<AlgorithmRecords<'a>, String> {
    let through_the_queue = |r: &&Record| r.text("path").is_none_or(|path| path == "blocks");
    let rates = |name, waits| {
        results
            .of("bulk", "bytes_per_s")
            .filter(move |r: &&Record| r.algorithm == name && r.waiting == waits)
            .filter(through_the_queue)
    };
    let peak = rates(algorithm, waiting).max_by(|a, b| a.value.total_cmp(&b.value)).ok_or_else(|| {
        missing(results, "bulk", algorithm, waiting, &[])
            .unwrap_or_else(|| format!("bulk of {algorithm} ({waiting}) was not part of this run"))
    })?;
    let copy = rates("memcpy", "none")
        .find(|r| r.number("bytes") == peak.number("bytes"))
        .ok_or_else(|| "memcpy of the same size was not measured".to_string())?;
    Ok(AlgorithmRecords { algorithm, records: vec![peak, copy] })
}

/// The contradictions of each algorithm's part of the copy rate, and of their peaks.
fn contradictions(parts: &[(&str, f64)], peaks: &[(&str, f64)]) -> Vec<String> {
    let (Some([low, high]), Some([slowest, fastest])) = (extremes(parts), extremes(peaks)) else {
        return Vec::new();
    };
    let mut against: Vec<String> = Vec::new();
    for (name, part) in [low, high] {
        if !PART.contains(&part) && !against.iter().any(|text| text.starts_with(name)) {
            let how = if part > *PART.end() { "more" } else { "less" };
            let paper = digits(BULK_OF_MEMCPY);
            against.push(format!("{name} reaches {}, {how} than about {paper}", digits(part)));
        }
    }
    let spread = fastest.1 / slowest.1 - 1.0;
    if spread > SPREAD {
        against.push(format!("{} is {} above {}", fastest.0, percent(spread), slowest.0));
    }
    against
}

/// Parts of the simulated Enterprise 5000's copy rate.
fn simulated(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let against = series.judge(|f| {
        let parts = PAPER.map(|name| (name, f(at(name, 1), OF_COPY_RATE)));
        contradictions(&parts, &parts)
    });
    let rate = series.median(at(LOCK_FREE, 1), BYTES_PER_S) / 1e6;
    let text =
        PAPER.map(|name| format!("{name} {}", digits(series.median(at(name, 1), OF_COPY_RATE)))).join(", ");
    Ok(Finding::new(
        format!("{text} (lock-free {} MB/s: the model fetches one line at a time)", digits(rate)),
        against,
    ))
}
