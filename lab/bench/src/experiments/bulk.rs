//! Bulk transfers: bandwidth by size, beside copying the same amount within one process.

use crate::experiment::{Bench, Measure, Samples, Variant, insert_beside_ours};
use crate::experiments::floor::memcpy::Copier;
use crate::experiments::floor::two_copies::TwoCopies;
use towpath_host::Error;
use towpath_papers::paper;
use towpath_report::format::bandwidth;
use towpath_report::format::size;
use towpath_report::plots::{by_waiting, over};
use towpath_report::record::RecordSubject;
use towpath_report::record::metrics::BYTES_PER_S;
use towpath_report::results::Row;
use towpath_report::table::{Cell, Table, header, mark_best};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct Bulk;

/// The subject of a variant.
enum BulkVariant {
    Contender(usize, u64, &'static str),
    Memcpy(u64),
    TwoCopies(u64),
}

impl Experiment for Bulk {
    fn name(&self) -> &'static str {
        "bulk"
    }
    fn about(&self) -> &'static str {
        "bandwidth of transfers from 64 B to 4 MiB, beside memcpy of the same size"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        crate::experiment::claim_algorithms()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        vec![Section::new(bulk(results)).with(plots(results))]
    }
    fn picture(&self, results: &Results) -> Option<Section> {
        /// Columns of the short table.
        const MOST: usize = 5;
        let rows = results.leaders(self.name(), BYTES_PER_S.name, &[], false);
        let sizes = results.numbers(self.name(), "bytes");
        let step = sizes.len().div_ceil(MOST).max(1);
        let sizes: Vec<u64> =
            sizes.into_iter().rev().step_by(step).collect::<Vec<_>>().into_iter().rev().collect();
        let rate = |row: &Row, bytes: u64| results.get("bulk", BYTES_PER_S.name, row, &[("bytes", bytes)]);
        let cells = rows.iter().map(|row| {
            let figures = sizes.iter().map(|&bytes| Cell::scaled(rate(row, bytes), 1e9));
            std::iter::once(Cell::text(row.label())).chain(figures).collect()
        });
        let table = Table {
            experiment: self.name(),
            title: "Bulk transfers: GB/s by size".into(),
            note: "Medians, beside memcpy of the same size within one process and two copies through a bare ring.".into(),
            header: std::iter::once(String::new()).chain(sizes.iter().map(|&bytes| size(bytes))).collect(),
            rows: cells.collect(),
        };
        let plot = plots(results).into_iter().next()?;
        Some(Section::new(table).with([plot]))
    }
}

impl Measure for Bulk {
    fn seconds(&self) -> u64 {
        7
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let present = bench.present(self.name(), 2);
        let sizes = &bench.settings.sizes;
        let mut variants = Vec::new();
        for &bytes in sizes {
            let mut same_size = Vec::new();
            for (contender, subject) in &present {
                for &path in bench.contenders[*contender].bulk_paths() {
                    let mut subject = subject.clone().with("bytes", bytes);
                    if !path.is_empty() {
                        subject = subject.with("path", path);
                    }
                    same_size.push(Variant { subject, key: BulkVariant::Contender(*contender, bytes, path) });
                }
            }
            let floors =
                [("two copies", BulkVariant::TwoCopies(bytes)), ("memcpy", BulkVariant::Memcpy(bytes))];
            for (name, key) in floors {
                let subject = RecordSubject::new(self.name(), name, "none", 1).with("bytes", bytes);
                insert_beside_ours(&mut same_size, Variant { subject, key });
            }
            variants.append(&mut same_size);
        }
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let mut copier = Copier::new(largest as usize)?;
        let mut two_copies = TwoCopies::new(largest as usize);
        bench.compare(&variants, |contenders, key, run| match *key {
            BulkVariant::Memcpy(bytes) => {
                // On the core on which ours send: one core may be slower than another.
                let core = run.placement.core_for(1, 2);
                Ok(Samples::one(BYTES_PER_S, copier.measure(bytes as usize, core)))
            }
            BulkVariant::TwoCopies(bytes) => {
                Ok(Samples::one(BYTES_PER_S, two_copies.measure(bytes as usize, run.placement)?))
            }
            BulkVariant::Contender(n, bytes, path) => {
                Ok(Samples::one(BYTES_PER_S, contenders[n].bulk(bytes, path, run)?))
            }
        });
        Ok(())
    }
}

fn bulk(results: &Results) -> Table {
    let sizes = results.numbers("bulk", "bytes");
    let rows_of = results.rows("bulk");
    let rate = |row: &Row, bytes: u64| results.get("bulk", "bytes_per_s", row, &[("bytes", bytes)]);
    let mut rows: Vec<Vec<Cell>> = rows_of
        .iter()
        .map(|row| {
            let mut cells = vec![Cell::text(row.label())];
            cells.extend(sizes.iter().map(|&bytes| Cell::scaled(rate(row, bytes), 1e9)));
            cells
        })
        .collect();
    for (column, &bytes) in sizes.iter().enumerate() {
        let values: Vec<Option<f64>> =
            rows_of.iter().map(|r| rate(r, bytes).filter(|_| !r.is_floor()).map(|r| r.value)).collect();
        mark_best(&mut rows, column + 1, &values, false);
    }
    let mut head = header(&["GB/s"]);
    head.extend(sizes.iter().map(|&bytes| size(bytes)));
    Table {
        experiment: "bulk",
        title: "Bulk transfers".into(),
        note: format!(
            "Bandwidth in GB/s by size of a transfer, beside memcpy of the same size within one process, and beside the limit of a transfer through blocks: two cores that copy through a bare ring. The paper reaches roughly {:.0} % of \
             its machine's copy rate at its peak (L, Section 4.1).",
            paper::BULK_OF_MEMCPY * 100.0
        ),
        header: head,
        rows,
    }
}

/// Bandwidth over the size of a transfer, a plot for each waiting policy.
fn plots(results: &Results) -> Vec<String> {
    by_waiting(results, "bulk", |rows, suffix| {
        over(
            results,
            rows,
            ("bulk", "bytes_per_s", "bytes"),
            &format!("Bandwidth by size of a transfer{suffix}"),
            |x| size(x as u64),
            bandwidth,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, Fake, bench_with, quick};
    use crate::settings::BenchSettings;
    use crate::transport::Contender;

    #[test]
    fn every_size_is_measured_beside_memcpy() {
        let settings = BenchSettings { sizes: vec![64, 4096], ..quick() };
        let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(Fake::ours("towpath", 1.0))];
        let mut sink = Collected::default();
        bench_with(&settings, &mut contenders, &mut sink, |b| Bulk.run(b).unwrap());
        let found: Vec<_> = sink.records.iter().map(|r| (r.algorithm.as_str(), r.number("bytes"))).collect();
        assert_eq!(
            found,
            [64, 4096].map(|n| ["towpath", "memcpy", "two copies"].map(|name| (name, Some(n)))).concat()
        );
        assert!(
            sink.records.iter().all(|r| r.value > 0.0 && r.unit == "bytes/s" && r.text("path").is_none())
        );
    }
}
