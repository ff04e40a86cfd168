//! L5: at its peak bulk transfer reaches about 80 % of the memory copy rate, whatever the
//! claim algorithm.
//!
//! "Peak bandwidth using bulk transfers has less variation: the algorithms range from about 158
//! MB/s (Posix mutexes) to 166 MB/s (lock-free), or roughly 80% of the memory copy rate" (4.1). The
//! paper's transfers go through the bulk queue: here the path `blocks`. The peak is that over the
//! sizes of the run, and the copy rate that of memcpy at the same size, in the same rounds.

use super::{Claim, Figure, Finding, Line, Lines, extremes, papers, reason};
use crate::format::{digits, percent, size};
use crate::paper::BULK_OF_MEMCPY;
use crate::record::Record;
use crate::results::Results;
use crate::transport::OURS;

/// The claim.
pub(super) struct BulkPeak;

/// The peak's part of the copy rate.
const PART: std::ops::RangeInclusive<f64> = 0.7..=0.9;

/// How far the fastest algorithm may be above the slowest. In the paper 166 ÷ 158: 5 %.
const SPREAD: f64 = 0.10;

impl Claim for BulkPeak {
    fn id(&self) -> &'static str {
        "L5"
    }
    fn sentence(&self) -> &'static str {
        "Peak bulk bandwidth is about 80 % of the memory copy rate, with a spread of 5 % over the algorithms"
    }
    fn tolerance(&self) -> &'static str {
        "0.7 to 0.9 of memcpy of the same size; spread at most 10 %"
    }
    fn experiments(&self) -> &'static [&'static str] {
        &["bulk"]
    }
    fn thoroughly(&self) -> &'static str {
        "towpath bench bulk --sizes 64K,256K,1M"
    }
    fn lines<'a>(&self, results: &'a Results, waiting: &str) -> Result<Lines<'a>, String> {
        let judged = papers().map(|name| line(results, name, waiting)).collect::<Result<_, _>>()?;
        let beside = ["mcs", OURS].into_iter().filter_map(|name| line(results, name, waiting).ok()).collect();
        Ok(Lines { judged, beside, lacking: String::new() })
    }
    fn find(&self, lines: &Lines<'_>, figure: Figure<'_>) -> Finding {
        let part = |l: &Line<'_>| figure(l.records[0]) / figure(l.records[1]);
        let parts: Vec<(&str, f64)> = lines.judged.iter().map(|l| (l.algorithm, part(l))).collect();
        let peaks: Vec<(&str, f64)> =
            lines.judged.iter().map(|l| (l.algorithm, figure(l.records[0]))).collect();
        let mut finding = Finding::default();
        let (Some([low, high]), Some([slowest, fastest])) = (extremes(&parts), extremes(&peaks)) else {
            return finding;
        };
        let spread = fastest.1 / slowest.1 - 1.0;
        let named = |l: &Line<'_>| {
            let at = l.records[0].number("bytes").map_or_else(String::new, |b| format!(" at {}", size(b)));
            format!("{} {}{at}", l.algorithm, digits(part(l)))
        };
        let list = |lines: &[Line<'_>]| lines.iter().map(named).collect::<Vec<_>>().join(", ");
        finding.measured = format!("{} of memcpy; spread {}", list(&lines.judged), percent(spread));
        if !lines.beside.is_empty() {
            finding.measured.push_str(&format!("; beside: {}", list(&lines.beside)));
        }
        for (name, part) in [low, high] {
            if !PART.contains(&part) && !finding.against.iter().any(|text| text.starts_with(name)) {
                let how = if part > *PART.end() { "more" } else { "less" };
                let paper = digits(BULK_OF_MEMCPY);
                finding.against.push(format!("{name} reaches {}, {how} than about {paper}", digits(part)));
            }
        }
        if spread > SPREAD {
            let text = format!("{} is {} above {}", fastest.0, percent(spread), slowest.0);
            finding.against.push(text);
        }
        finding
    }
}

/// An algorithm's peak, and memcpy of that size.
fn line<'a>(results: &'a Results, algorithm: &'static str, waiting: &str) -> Result<Line<'a>, String> {
    let through_the_queue = |r: &&Record| r.text("path").is_none_or(|path| path == "blocks");
    let rates = |name, waits| {
        results
            .of("bulk", "bytes_per_s")
            .filter(move |r: &&Record| r.algorithm == name && r.waiting == waits)
            .filter(through_the_queue)
    };
    let peak = rates(algorithm, waiting).max_by(|a, b| a.value.total_cmp(&b.value)).ok_or_else(|| {
        reason(results, "bulk", algorithm, waiting, &[])
            .unwrap_or_else(|| format!("bulk of {algorithm} ({waiting}) was not part of this run"))
    })?;
    let copy = rates("memcpy", "none")
        .find(|r| r.number("bytes") == peak.number("bytes"))
        .ok_or_else(|| "memcpy of the same size was not measured".to_string())?;
    Ok(Line { algorithm, records: vec![peak, copy] })
}
