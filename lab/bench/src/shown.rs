//! The report of a run: its parts, as the experiments hand them over.

use towpath_papers::claims::{judge_native, show};
use towpath_papers::paper::{LOGP, STRESS};
use towpath_report::{Chapter, Report, Results};

use crate::EXPERIMENTS;
use crate::experiments::kills;
use crate::recommend::recommendation;
use crate::targets::targets_table;

/// Maximum number of pictures that a report begins with.
const MOST_PICTURES: usize = 4;

/// Experiments of messages: the peers and the papers' figures of `logp` are about these.
const MESSAGES: [&str; 5] = ["logp", "stress", "bulk", "crash", "idle"];

/// Peers that `--peers` adds to the experiments of this run.
fn hints(results: &Results, is_about_messages: bool) -> Vec<String> {
    let of_messages = "pipe, Unix socket, crossbeam's ArrayQueue, iceoryx2 (if built in), Open MPI and MPICH";
    let added = [
        (is_about_messages, "", of_messages),
        (results.has("broadcast"), "broadcast ", "iceoryx2 (if built in)"),
        (results.has("apps"), "apps ", "MPICH and Open MPI"),
    ];
    let hint = |(_, experiment, peers)| {
        format!(
            "The peers were not asked for: towpath bench {experiment}--peers adds {peers}, in the same interleaved rounds."
        )
    };
    added.into_iter().filter(|(has_some, ..)| *has_some && !results.asked.peers).map(hint).collect()
}

/// The report of these results, with the developers' targets if `targets`.
///
/// [`Report::advice`] is the recommendation in a sentence, [`Report::pictures`] are at most four
/// plots with short tables of their numbers: what a terminal shows on one screen.
/// [`towpath_report::console::render`] and [`towpath_report::files::write`] show all.
pub fn report(results: &Results, targets: bool) -> Report {
    let measured = || EXPERIMENTS.iter().filter(|e| results.has(e.name()));
    let chapter = |e: &&&'static dyn crate::Measure| {
        let mut sections = e.sections(results);
        if kills::has_survivors(e.name()) {
            sections.push(kills::section(results, e.name()));
        }
        sections.retain(|s| !s.table.rows.is_empty());
        Chapter { name: e.name(), sections }
    };
    let is_about_messages = MESSAGES.iter().any(|name| results.has(name));
    let source = format!(
        "Paper {}: {}, {} and {}, measured on a {}.",
        LOGP.key, LOGP.paper, LOGP.place, STRESS.place, LOGP.machine
    );
    Report {
        advice: recommendation(results),
        pictures: measured().filter_map(|e| e.picture(results)).take(MOST_PICTURES).collect(),
        claims: show::lines(&judge_native(results)),
        chapters: measured().map(|e| chapter(&e)).collect(),
        targets: targets.then(|| targets_table(results)),
        hints: hints(results, is_about_messages),
        sources: is_about_messages.then_some(source).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::example_results;
    use towpath_report::console::render;
    use towpath_report::page::page;
    use towpath_report::{Cell, Kind, Table};

    fn tables(results: &Results) -> Vec<Table> {
        report(results, true).tables().cloned().collect()
    }

    #[test]
    fn experiments_have_tables_whose_rows_fit_the_header() {
        let report = report(&example_results(), true);
        let tables: Vec<&Table> = report.tables().chain(&report.targets).collect();
        for experiment in ["floor", "logp", "stress", "bulk", "crash", "idle", "simulator", "targets"] {
            assert!(tables.iter().any(|t| t.experiment == experiment), "{experiment}");
        }
        let pictures = report.pictures.iter().map(|p| &p.table);
        for table in tables.into_iter().chain(pictures) {
            assert!(!table.rows.is_empty(), "{}", table.title);
            for row in &table.rows {
                assert_eq!(row.len(), table.header.len(), "{}: {row:?}", table.title);
            }
        }
        assert!(!report.claims.is_empty());
    }

    #[test]
    fn papers_figures_stand_beside_ours() {
        let tables = tables(&example_results());
        let row = |experiment: &str, label: &str| {
            let table = tables.iter().find(|t| t.experiment == experiment).unwrap();
            table.rows.iter().find(|r| r[0].text == label).unwrap().clone()
        };
        let papers = |row: &[Cell]| -> Vec<String> {
            row.iter().filter(|c| c.kind == Kind::Paper).map(|c| c.text.clone()).collect()
        };
        assert_eq!(papers(&row("logp", "lock-free")), ["−0.3", "1.9", "1.2", "3.1", "5.6"]);
        assert_eq!(papers(&row("stress", "ticket")), ["2.96", "3.18", "3.50"]);
        assert_eq!(papers(&row("stress", "towpath")), ["", "", ""]);
    }

    #[test]
    fn best_of_a_column_is_marked_in_any_row() {
        let mut results = example_results();
        let best = |results: &Results| {
            let table =
                tables(results).into_iter().find(|t| t.title.starts_with("Stress test: many")).unwrap();
            table.rows.into_iter().find(|r| r[1].kind == Kind::Best).unwrap()[0].text.clone()
        };
        assert_eq!(best(&results), "towpath");
        for r in results.records.iter_mut().filter(|r| r.algorithm == "open-mpi") {
            r.value *= 10.0;
        }
        assert_eq!(best(&results), "open-mpi");
    }

    #[test]
    fn damage_shows_in_the_table_and_the_picture() {
        let mut results = example_results();
        let duplicated =
            |r: &&mut towpath_report::Record| r.metric == "duplicated" && r.algorithm == "towpath";
        results.records.iter_mut().find(duplicated).unwrap().value = 3.0;
        let report = report(&results, false);
        let table = report.tables().find(|t| t.experiment == "crash").unwrap();
        let picture = &report.pictures.iter().find(|p| p.table.experiment == "crash").unwrap().table;
        for table in [table, picture] {
            assert!(table.rows.iter().flatten().any(|c| c.kind == Kind::Bad && c.text == "3"));
            assert!(table.rows.iter().flatten().any(|c| c.kind == Kind::Good && c.text == "0"));
        }
    }

    #[test]
    fn run_of_all_has_four_pictures_with_plots() {
        let report = report(&example_results(), false);
        let names: Vec<&str> = report.pictures.iter().map(|p| p.table.experiment).collect();
        assert_eq!(names, ["logp", "stress", "bulk", "crash"]);
        assert!(report.pictures.iter().all(|p| p.plots.len() == 1));
        assert_eq!(report.targets, None);
        let plots = |name: &str| {
            let chapter = report.chapters.iter().find(|c| c.name == name).unwrap();
            chapter.sections.iter().map(|s| s.plots.len()).sum::<usize>()
        };
        for (experiment, count) in [("floor", 1), ("logp", 2), ("stress", 1), ("bulk", 1), ("crash", 0)] {
            assert_eq!(plots(experiment), count, "{experiment}");
        }
    }

    #[test]
    fn hints_are_about_the_experiments_of_the_run() {
        let mut results = example_results();
        results.asked.peers = false;
        assert!(report(&results, false).hints[0].contains("towpath bench --peers adds pipe"));
        results.records.retain(|record| record.experiment == "floor");
        let of_floor = report(&results, false);
        assert!(of_floor.hints.is_empty() && of_floor.sources.is_empty());
        results.records.iter_mut().for_each(|record| record.experiment = "broadcast".into());
        let [hint] = report(&results, false).hints.try_into().unwrap();
        assert!(hint.contains("towpath bench broadcast --peers adds iceoryx2"), "{hint}");
    }

    #[test]
    fn no_results_make_no_tables() {
        let mut results = example_results();
        results.records.clear();
        let report = report(&results, false);
        assert!(report.chapters.is_empty() && report.pictures.is_empty() && report.claims.is_empty());
    }

    #[test]
    fn page_shows_every_experiment_and_every_contender() {
        let results = example_results();
        let html = page(&results, &report(&results, true));
        for record in &results.records {
            assert!(html.contains(&format!("id=\"{}\"", record.experiment)), "{}", record.experiment);
            // Measurements of the machine or the simulator itself go by other names in the tables.
            let is_machine = ["hardware", "kernel", "engine"].contains(&record.algorithm.as_str());
            assert!(is_machine || html.contains(&record.algorithm), "{}", record.algorithm);
        }
        assert!(html.contains("not measured: mpich is not installed"));
        assert!(!html.contains("NaN"));
    }

    #[test]
    fn text_has_everything_but_targets_and_ends_with_the_advice() {
        let results = example_results();
        let report = report(&results, false);
        let all = render(&results, &report);
        for words in ["The floor", "LogP", "Stress test", "Bulk", "killed in mid-send", "The papers' claims"]
        {
            assert!(all.contains(words), "{words} is missing from\n{all}");
        }
        assert!(!all.contains("Targets"));
        assert_eq!(all.lines().last(), Some(report.advice.as_str()));
    }
}
