//! Real MPIs over Towpath and over their own shared memory, in the same rounds (issue and
//! paper: what Gropp & Lusk 1997 measure with `mpptest`, Figures 1 and 4 to 7).

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_launch::{AnnounceFile, MpiKind, MpiLauncher, Provider};

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::measuring::{Measuring, Over};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_report::curves::{Curves, Rival};
use towpath_report::record::metrics::{
    ALLREDUCE_US, ALLTOALL_US, BARRIER_US, BYTES_PER_S, MANY_TO_ONE_PER_S, MESSAGES_PER_S, ROUND_TRIP_US,
    TEST_US,
};
use towpath_report::record::{Metric, RecordSubject};
use towpath_report::svg::Look;
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct MpiExperiment;

/// The subject of a figure: processes, MPI, transport.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FigureKey {
    procs: u32,
    mpi: usize,
    own: bool,
    waiting: RankWaiting,
}

/// Waiting of ranks over Towpath.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RankWaiting {
    /// The provider's own choice: all figures.
    Adaptive,
    /// Forced: as if each rank had a core to itself, or as if they shared cores. Two
    /// figures show the worth of `Adaptive`.
    Alone,
    Shared,
}

impl RankWaiting {
    /// Name in the records.
    fn name(self) -> &'static str {
        match self {
            RankWaiting::Adaptive => "adaptive",
            RankWaiting::Alone => "alone",
            RankWaiting::Shared => "shared",
        }
    }

    /// The provider's settings.
    fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            RankWaiting::Adaptive => &[],
            RankWaiting::Alone => &[("TOWPATH_OVERSUBSCRIBED", "0")],
            RankWaiting::Shared => &[("TOWPATH_OVERSUBSCRIBED", "1")],
        }
    }
}

/// Each round's figure, by subject, metric and size.
type Figures = BTreeMap<(FigureKey, Metric, Option<u64>), Vec<f64>>;

/// Numbers of ranks unless told otherwise.
const PROCS: [u32; 4] = [2, 4, 8, 16];
/// The shortest time in which a start of an MPI can measure all of it.
const LEAST: Duration = Duration::from_millis(800);

impl Experiment for MpiExperiment {
    fn name(&self) -> &'static str {
        "mpi"
    }
    fn about(&self) -> &'static str {
        "MPICH and Open MPI over Towpath and over their own shared memory, side by side (paper M)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        crate::experiment::claim_algorithms()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        [curves(), by_waiting()].iter().flat_map(|c| c.sections(results)).collect()
    }
}

impl Measure for MpiExperiment {
    fn seconds(&self) -> u64 {
        120
    }
    /// False: it needs MPIs and our provider, and is asked for by name.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let provider = Provider::find(None);
        let mut mpis = Vec::new();
        for name in bench.settings.mpis.clone() {
            let subject = RecordSubject::new(self.name(), &name, "own", 0);
            let Some(kind) = MpiKind::from_name(&name) else { continue };
            match MpiLauncher::installed(kind) {
                None => bench.sink.missing(&subject, &kind.not_installed()),
                Some(launcher) => match Measuring::compile(&launcher) {
                    Ok(program) => mpis.push((name, program)),
                    Err(error) => bench.sink.missing(&subject, &error.to_string()),
                },
            }
        }
        let mut variants = Vec::new();
        let procs = if bench.settings.procs.is_empty() { &PROCS[..] } else { &bench.settings.procs[..] };
        for &procs in procs {
            for (mpi, (name, _)) in mpis.iter().enumerate() {
                for (over, own, waiting) in [
                    ("towpath", false, RankWaiting::Adaptive),
                    ("own", true, RankWaiting::Adaptive),
                    ("towpath", false, RankWaiting::Alone),
                    ("towpath", false, RankWaiting::Shared),
                ] {
                    let how = if own { "own" } else { waiting.name() };
                    let subject = RecordSubject::new(self.name(), name, how, procs).with("over", over);
                    variants.push(Variant { subject, key: FigureKey { procs, mpi, own, waiting } });
                }
            }
        }
        if let Err(why) = &provider {
            for variant in variants.iter().filter(|v| !v.key.own) {
                bench.sink.missing(&variant.subject, why);
            }
            variants.retain(|v| v.key.own);
        }
        let failed = |e| Error::system("making a file for the provider's announcements".to_owned(), e);
        let announced = AnnounceFile::new().map_err(failed)?;
        let mut figures = Figures::new();
        bench.compare(&variants, |_, key, run| {
            let run = Circumstances { limit: run.limit.max(LEAST), ..*run };
            let what = if key.waiting == RankWaiting::Adaptive { "all" } else { "waiting" };
            let seconds = run.limit.as_secs_f64().to_string();
            let over = match (&provider, key.own) {
                (Ok(provider), false) => {
                    Some(Over { provider, announced: announced.path(), settings: key.waiting.settings() })
                }
                _ => None,
            };
            announced.clear().map_err(failed)?;
            let text = mpis[key.mpi].1.run(&run, key.procs, &[what.into(), seconds], over)?;
            if !key.own && !announced.has_entries() {
                return Err(Error::NotAvailable(
                    "this MPI did not load the provider (towpath mpirun says more)".into(),
                ));
            }
            for (metric, bytes, value) in parse(&text) {
                figures.entry((*key, metric, bytes)).or_default().push(value);
            }
            Ok(Samples::default())
        });
        for ((key, metric, bytes), values) in figures {
            let Some(variant) = variants.iter().find(|v| v.key == key) else { continue };
            let mut subject = variant.subject.clone();
            if let Some(bytes) = bytes {
                subject = subject.with("bytes", bytes);
            }
            let values = values.into_iter().map(|v| (metric, v)).collect();
            bench.record(&subject, Samples { values, ..Samples::default() });
        }
        Ok(())
    }
}

/// Parses the figures in the measuring program's output: lines of a name, a size (or -)
/// and a number.
fn parse(text: &str) -> Vec<(Metric, Option<u64>, f64)> {
    let mut figures = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, bytes, value] = words[..] else { continue };
        let (bytes, Ok(value)) = (bytes.parse().ok(), value.parse::<f64>()) else { continue };
        match name {
            "round_trip_us" => {
                figures.push((ROUND_TRIP_US, bytes, value));
                if let Some(bytes) = bytes.filter(|b| *b > 0) {
                    figures.push((BYTES_PER_S, Some(bytes), bytes as f64 * 2e6 / value));
                }
            }
            "messages_per_s" => figures.push((MESSAGES_PER_S, None, value)),
            "many_to_one_per_s" => figures.push((MANY_TO_ONE_PER_S, None, value)),
            "barrier_us" => figures.push((BARRIER_US, None, value)),
            "allreduce_us" => figures.push((ALLREDUCE_US, None, value)),
            "alltoall_us" => figures.push((ALLTOALL_US, None, value)),
            "test_us" => figures.push((TEST_US, None, value)),
            _ => {}
        }
    }
    figures
}

/// Each MPI over Towpath and over its own shared memory.
fn curves() -> Curves {
    let mut rivals = Vec::new();
    for (n, algorithm) in ["mpich", "open-mpi", "intel"].into_iter().enumerate() {
        for (over, ours) in [("towpath", true), ("own", false)] {
            rivals.push(Rival {
                algorithm,
                over: Some(over),
                waiting: Some(if ours { "adaptive" } else { "own" }),
                label: format!("{algorithm} over {}", if ours { "Towpath" } else { "its own" }),
                look: Look { colour: n, dashed: !ours, bold: ours },
            });
        }
    }
    Curves {
        experiment: "mpi",
        title: "MPI",
        note: "Each MPI over Towpath's libfabric provider and over its own shared memory, in interleaved rounds; medians.",
        figures: ["as M figures 1 and 4 to 6, left", "as M figures 1 and 4 to 6, right"],
        by_waiting: false,
        rivals,
    }
}

/// Each MPI over Towpath, by the way in which its ranks wait.
fn by_waiting() -> Curves {
    let mut rivals = Vec::new();
    for (n, algorithm) in ["mpich", "open-mpi", "intel"].into_iter().enumerate() {
        for (waiting, how) in
            [("adaptive", "adaptive"), ("alone", "as with a core each"), ("shared", "as with shared cores")]
        {
            rivals.push(Rival {
                algorithm,
                over: Some("towpath"),
                waiting: Some(waiting),
                label: format!("{algorithm} over Towpath, {how}"),
                look: Look { colour: n, dashed: waiting != "adaptive", bold: waiting == "adaptive" },
            });
        }
    }
    Curves {
        experiment: "mpi",
        title: "MPI: how ranks wait",
        note: "The provider waits by itself as the number of processes and cores asks for; beside it what the same costs if it always looked on as with a core each, or always gave way as where cores \
               are shared (`TOWPATH_OVERSUBSCRIBED`).",
        figures: ["", ""],
        by_waiting: true,
        rivals,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_report::{Kind, Table};

    #[test]
    fn the_programs_lines_become_figures() {
        let text =
            "round_trip_us 0 0.5\nround_trip_us 1000 2\nbarrier_us - 12.5\nnoise\nmany_to_one_per_s - 1e6\n";
        assert_eq!(
            parse(text),
            [
                (ROUND_TRIP_US, Some(0), 0.5),
                (ROUND_TRIP_US, Some(1000), 2.0),
                (BYTES_PER_S, Some(1000), 1e9),
                (BARRIER_US, None, 12.5),
                (MANY_TO_ONE_PER_S, None, 1e6),
            ]
        );
    }

    #[test]
    fn rivals_have_a_row_each_and_the_best_is_marked() {
        let subject =
            |over: &str, waiting: &str| RecordSubject::new("mpi", "mpich", waiting, 2).with("over", over);
        let results = Results::from_figures(
            &[
                (subject("towpath", "adaptive").with("bytes", 8), ROUND_TRIP_US, vec![0.5, 0.6]),
                (subject("own", "own").with("bytes", 8), ROUND_TRIP_US, vec![1.5, 1.4]),
                (subject("towpath", "adaptive").with("bytes", 1024), ROUND_TRIP_US, vec![0.7]),
                (subject("own", "own").with("bytes", 1024), ROUND_TRIP_US, vec![1.7]),
                (subject("own", "own"), BARRIER_US, vec![9.0]),
                (subject("towpath", "shared").with("bytes", 8), ROUND_TRIP_US, vec![2.5]),
            ],
            2,
        );
        let sections = MpiExperiment.sections(&results);
        let tables: Vec<&Table> = sections.iter().map(|s| &s.table).collect();
        assert_eq!(tables.len(), 3, "{tables:?}");
        assert_eq!(tables[0].header, ["µs", "8 B", "1 KiB"]);
        assert_eq!(tables[0].rows.len(), 2);
        assert_eq!((tables[0].rows[0][1].kind, tables[0].rows[1][1].kind), (Kind::Best, Kind::Figure));
        assert_eq!(tables[1].rows[0][1].kind, Kind::Missing);
        // How one waits is shown for what was measured so, with our own way beside it.
        assert_eq!((tables[2].header.len(), tables[2].rows.len()), (2, 2));
        assert_eq!(tables[2].rows[0][1].kind, Kind::Best);
        let plots: Vec<&String> = sections.iter().flat_map(|s| &s.plots).collect();
        assert!(plots.len() == 1 && plots[0].contains("mpich over Towpath"));
        assert!(crate::experiments::ladder::Ladder.sections(&results).is_empty());
    }
}
