//! The papers' applications: speed-up under each lock, barrier, queue, claim and policy.
//!
//! Beside the same kernels with other crates' parts, as loops on rayon, and over MPI (papers L, N,
//! K).

use crate::apps::{AppRun, all_runs, shown, way_names};
use crate::experiment::{Bench, Measure, Variant};
use crate::measuring::MeasuringPrograms;
use towpath_host::Error;
use towpath_report::record::RecordSubject;
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct Apps;

impl Experiment for Apps {
    fn name(&self) -> &'static str {
        "apps"
    }
    fn about(&self) -> &'static str {
        "the papers' applications: speed-up under each lock, barrier, queue and claim, beside other crates' (papers L, N, K); --app, --input"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        way_names()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        shown::sections(results)
    }
}

impl Measure for Apps {
    fn seconds(&self) -> u64 {
        60
    }
    /// Returns false: it compares so much that it runs only when it is named.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let settings = bench.settings;
        let cores = bench.placement.cores() as u32;
        let mut procs =
            if settings.procs.is_empty() { vec![1, cores, 2 * cores] } else { settings.procs.clone() };
        procs.sort_unstable();
        procs.dedup();
        let subject = |run: &AppRun| {
            let waiting = if run.way.has_policy() { run.policy.name() } else { "own" };
            RecordSubject::new(self.name(), run.way.name(), waiting, run.procs)
                .with("application", run.application.name())
                .with("size", run.input.name())
        };
        let variants: Vec<Variant<AppRun>> = all_runs(settings, &procs)
            .into_iter()
            .map(|run| Variant { subject: subject(&run), key: run })
            .collect();
        let mut programs = MeasuringPrograms::default();
        bench.compare(&variants, |_, run, circumstances| run.measure(&mut programs, circumstances));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::{AppSettings, AppWay};
    use crate::fake::{Collected, bench_with, quick};
    use crate::settings::BenchSettings;
    use towpath_apps::{AnyApplication, Size};

    fn asked(applications: &[&str], ways: &[&str], procs: &[u32]) -> BenchSettings {
        BenchSettings {
            apps: AppSettings {
                applications: applications.iter().filter_map(|a| AnyApplication::from_name(a)).collect(),
                input: Size::Tiny.into(),
            },
            algorithms: ways.iter().map(|w| w.to_string()).collect(),
            procs: procs.to_vec(),
            ..quick()
        }
    }

    #[test]
    fn mpi_sorts_or_says_what_is_missing() {
        let settings = asked(&["sample-bulk"], &["mpich"], &[1, 3]);
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |b| Apps.run(b).unwrap());
        let procs: Vec<(&str, u32)> = sink.records.iter().map(|r| (&*r.algorithm, r.procs)).collect();
        match sink.missing.is_empty() {
            true => assert_eq!(procs, [("mpich", 1), ("mpich", 3)]),
            false => {
                let says = |why: &str| why.contains("install-peers.sh") || why.contains("mpicc");
                assert!(sink.missing.iter().all(|(_, why)| says(why)), "{:?}", sink.missing);
            }
        }
    }

    #[test]
    fn mpis_run_with_peers_or_by_name() {
        let mpis = |peers: bool, ways: &[&str]| {
            let settings = BenchSettings { peers, ..asked(&["sample-bulk", "sample"], ways, &[]) };
            let runs = all_runs(&settings, &[2]);
            runs.iter().filter(|run| matches!(run.way, AppWay::Mpi(_))).count()
        };
        assert_eq!((mpis(false, &[]), mpis(true, &[])), (0, 2));
        assert_eq!((mpis(false, &["open-mpi"]), mpis(true, &["towpath"])), (1, 0));
    }

    #[test]
    fn each_way_is_measured_beside_the_sequential_program() {
        let ways =
            ["mcs", "parking-lot", "centralized", "std-barrier", "rayon", "locked", "crossbeam", "ticket"];
        let settings = asked(&["mp3d", "lu", "cholesky", "con-comm"], &ways, &[1, 2]);
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |b| Apps.run(b).unwrap());
        assert!(sink.missing.is_empty(), "{:?}", sink.missing);
        let ways_of = |application: &str| {
            let records = sink.records.iter().filter(|r| r.text("application") == Some(application));
            records.map(|r| (r.algorithm.clone(), r.procs)).collect::<Vec<_>>()
        };
        let of = |way: &str| [1, 2].map(|n| (way.to_string(), n));
        for (application, ours, theirs) in [
            ("mp3d", "mcs", "parking-lot"),
            ("lu", "centralized", "std-barrier"),
            ("lu", "centralized", "rayon"),
            ("cholesky", "locked", "crossbeam"),
        ] {
            let all = ways_of(application);
            assert!(all.contains(&("sequential".into(), 1)), "{application}: {all:?}");
            assert!(
                of(ours).iter().chain(&of(theirs)).all(|way| all.contains(way)),
                "{application}: {all:?}"
            );
        }
        assert!(ways_of("con-comm").len() == 4, "mcs and ticket claim, too: {:?}", ways_of("con-comm"));
        let results = Results { records: sink.records, ..crate::fake::example_results() };
        let sections = Apps.sections(&results);
        assert_eq!(sections.len(), 4);
        assert!(sections.iter().all(|s| s.table.rows.iter().all(|row| row.len() == 3) && s.plots.len() == 1));
        assert!(sections[1].table.note.contains("without locks"), "{}", sections[1].table.note);
        let checks = [
            ("lu", "|A - LU| is "),
            ("mp3d", "energy "),
            ("cholesky", "|A - LLᵀ| is "),
            ("con-comm", " components"),
        ];
        for (application, figure) in checks {
            let section = sections.iter().find(|s| s.table.title.starts_with(application)).unwrap();
            let (_, checked) = section.table.title.split_once("): speed-up; checked: ").unwrap();
            assert!(checked.contains(figure), "{application}: {checked}");
        }
    }
}
