//! The stress test: many write to one (paper L, Table 2).

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::transport::Stress;
use towpath_host::Error;
use towpath_papers::paper;
use towpath_report::format::digits;
use towpath_report::format::message_rate;
use towpath_report::plots::{by_waiting, over};
use towpath_report::record::metrics::{CPU_SECONDS, FAIRNESS, MESSAGES_PER_S};
use towpath_report::results::Row;
use towpath_report::stats::jain;
use towpath_report::table::{Cell, Kind, Table, header, mark_best};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct StressTest;

impl Experiment for StressTest {
    fn name(&self) -> &'static str {
        "stress"
    }
    fn about(&self) -> &'static str {
        "many writers and one reader, also with more processes than cores (paper L, Table 2)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        crate::experiment::claim_algorithms()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        vec![Section::new(stress(results)).with(plots(results)), Section::new(fairness(results))]
    }
    fn picture(&self, results: &Results) -> Option<Section> {
        let rows = results.leaders(self.name(), MESSAGES_PER_S.name, &[], false);
        let writers = results.numbers(self.name(), "writers");
        let rate = |row: &Row, w: u64| results.get("stress", MESSAGES_PER_S.name, row, &[("writers", w)]);
        let mut cells: Vec<Vec<Cell>> = rows
            .iter()
            .map(|row| {
                let figures = writers.iter().map(|&w| Cell::scaled(rate(row, w), 1e6));
                std::iter::once(Cell::text(row.label())).chain(figures).collect()
            })
            .collect();
        for (column, &w) in writers.iter().enumerate() {
            let values: Vec<Option<f64>> = rows.iter().map(|r| rate(r, w).map(|r| r.value)).collect();
            mark_best(&mut cells, column + 1, &values, false);
        }
        let head = writers.iter().map(|w| format!("{w} writer{}", if *w == 1 { "" } else { "s" }));
        let table = Table {
            experiment: self.name(),
            title: "Many writers, one reader: million messages a second".into(),
            note: "Medians of what the reader receives, by number of writers.".into(),
            header: std::iter::once(String::new()).chain(head).collect(),
            rows: cells,
        };
        let plot = plots(results).into_iter().next()?;
        Some(Section::new(table).with([plot]))
    }
}

impl Measure for StressTest {
    fn seconds(&self) -> u64 {
        10
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let present = bench.present(self.name(), 0);
        let mut variants = Vec::new();
        for (contender, subject) in &present {
            for &writers in &bench.settings.writers {
                let mut subject = subject.clone().with("writers", writers);
                subject.procs = writers + 1;
                variants.push(Variant { subject, key: (*contender, writers) });
            }
        }
        let messages = bench.settings.messages;
        bench.compare(&variants, |contenders, &(n, writers), run| {
            samples(&contenders[n].stress(writers, messages, run)?)
        });
        Ok(())
    }
}

fn samples(result: &Stress) -> Result<Samples, Error> {
    if result.messages == 0 || result.seconds <= 0.0 {
        return Err(Error::NotAvailable("no message arrived within the time given".into()));
    }
    let messages = result.messages as f64;
    let mut samples = Samples::one(MESSAGES_PER_S, messages / result.seconds);
    if let Some(fairness) = jain(&result.shares) {
        samples.push(FAIRNESS, fairness);
    }
    if let Some(cpu) = result.cpu_seconds {
        samples.push(CPU_SECONDS, cpu * 1e6 / messages);
    }
    samples.extra.insert("messages".into(), result.messages.into());
    Ok(samples)
}

fn stress(results: &Results) -> Table {
    let writers = results.numbers("stress", "writers");
    let papers: Vec<u32> =
        paper::STRESS_WRITERS.into_iter().filter(|w| writers.contains(&u64::from(*w))).collect();
    let rows_of = results.rows("stress");
    let rate = |row: &Row, w: u64| results.get("stress", "messages_per_s", row, &[("writers", w)]);
    let with_paper = rows_of.iter().any(|r| paper::STRESS_TABLE.iter().any(|c| c.algorithm == r.algorithm));
    let mut rows: Vec<Vec<Cell>> = rows_of
        .iter()
        .map(|row| {
            let mut cells = vec![Cell::text(row.label())];
            cells.extend(writers.iter().map(|&w| Cell::scaled(rate(row, w), 1e6)));
            if with_paper {
                for &w in &papers {
                    cells.push(match rate(row, u64::from(w)) {
                        Some(r) => Cell::new(digits(1e6 / r.value), Kind::Figure),
                        None => Cell::new("–", Kind::Missing),
                    });
                    cells.push(Cell::paper(paper::stress_of(&row.algorithm, w), 2));
                }
            }
            cells
        })
        .collect();
    for (column, &w) in writers.iter().enumerate() {
        let values: Vec<Option<f64>> = rows_of.iter().map(|r| rate(r, w).map(|r| r.value)).collect();
        mark_best(&mut rows, column + 1, &values, false);
    }
    let mut head = header(&["algorithm"]);
    head.extend(
        writers.iter().map(|w| if *w == 1 { "1 writer".to_string() } else { format!("{w} writers") }),
    );
    if with_paper {
        head.extend(papers.iter().flat_map(|w| [format!("10⁶, {w}: s"), format!("paper, {w}: s")]));
    }
    Table {
        experiment: "stress",
        title: "Stress test: many writers, one reader (million messages a second)".into(),
        note: format!(
            "Messages that the reader receives, in millions each second, by number of writers; then the seconds that a million of them take, \
             beside the paper's. Paper: L, {} ({}).",
            paper::STRESS.place,
            paper::STRESS.machine
        ),
        header: head,
        rows,
    }
}

fn fairness(results: &Results) -> Table {
    let writers: Vec<u64> = results.numbers("stress", "writers");
    let mut head = header(&["algorithm"]);
    head.extend(writers.iter().filter(|w| **w > 1).map(|w| format!("fairness, {w}")));
    head.extend(writers.iter().map(|w| format!("CPU s, {w}")));
    let rows = results
        .rows("stress")
        .iter()
        .map(|row| {
            let mut cells = vec![Cell::text(row.label())];
            for &w in writers.iter().filter(|w| **w > 1) {
                cells.push(Cell::figure(results.get("stress", "fairness", row, &[("writers", w)])));
            }
            for &w in &writers {
                let cpu = results.get("stress", "cpu_seconds", row, &[("writers", w)]);
                cells.push(Cell::scaled(cpu, 1.0));
            }
            cells
        })
        .filter(|cells: &Vec<Cell>| cells.iter().any(|c| c.kind == Kind::Figure))
        .collect();
    Table {
        experiment: "stress",
        title: "Stress test: fairness and processor time".into(),
        note: "Fairness is Jain's index over the writers when the first has finished (1: all alike, 1/n: one had everything), by number of \
               writers. Processor time is that of all processes together, in seconds per million messages. \
               With more writers than cores a short test shows the scheduler's time slices as much as the algorithm."
            .into(),
        header: head,
        rows,
    }
}

/// Rates over the number of writers, a plot for each waiting policy.
fn plots(results: &Results) -> Vec<String> {
    by_waiting(results, "stress", |rows, suffix| {
        over(
            results,
            rows,
            ("stress", "messages_per_s", "writers"),
            &format!("Messages received each second, by number of writers{suffix}"),
            |x| format!("{x:.0} writer{}", if x == 1.0 { "" } else { "s" }),
            message_rate,
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
    fn each_contender_meets_each_number_of_writers() {
        let settings = BenchSettings { writers: vec![1, 7], ..quick() };
        let mut contenders: Vec<Box<dyn Contender>> =
            vec![Box::new(Fake::ours("ticket", 1.0)), Box::new(Fake::absent("mpich"))];
        let mut sink = Collected::default();
        bench_with(&settings, &mut contenders, &mut sink, |b| StressTest.run(b).unwrap());
        let rates: Vec<_> = sink.records.iter().filter(|r| r.metric == "messages_per_s").collect();
        assert_eq!(
            rates.iter().map(|r| (r.number("writers"), r.procs)).collect::<Vec<_>>(),
            [(Some(1), 2), (Some(7), 8)]
        );
        assert!(rates[0].value > rates[1].value);
        assert!(sink.records.iter().any(|r| r.metric == "fairness" && r.value == 1.0));
        assert!(sink.records.iter().any(|r| r.metric == "cpu_seconds"));
        assert_eq!(sink.missing.len(), 1, "what is absent is named once: {:?}", sink.missing);
    }

    #[test]
    fn a_contender_may_refuse_a_number_of_writers() {
        let settings = BenchSettings { writers: vec![1, 200], ..quick() };
        let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(Fake::ours("ticket", 1.0))];
        let mut sink = Collected::default();
        bench_with(&settings, &mut contenders, &mut sink, |b| StressTest.run(b).unwrap());
        assert!(sink.records.iter().all(|r| r.number("writers") == Some(1)));
        assert_eq!(sink.missing, [("ticket".to_string(), "it has room for 100 writers".to_string())]);
    }

    #[test]
    fn a_test_in_which_nothing_arrived_has_no_rate() {
        assert!(samples(&Stress::default()).is_err());
    }

    #[test]
    fn processor_time_counts_per_million_messages() {
        let result =
            Stress { messages: 500_000, seconds: 0.5, shares: vec![3.0, 1.0], cpu_seconds: Some(1.0) };
        let samples = samples(&result).unwrap();
        assert_eq!(samples.values, [(MESSAGES_PER_S, 1e6), (FAIRNESS, 0.8), (CPU_SECONDS, 2.0)]);
    }
}
