//! Parts of tests: contenders whose figures are known, and a sink that keeps everything.

use std::sync::OnceLock;
use std::time::Duration;

use crate::experiment::{Bench, Sink};
use crate::settings::BenchSettings;
use crate::transport::{Circumstances, Contender, ContenderSide, Crash, ShortMessage, Stress};
use towpath_host::Error;
use towpath_host::Host;
use towpath_host::topology::Placement;
use towpath_papers::paper::LogP;
use towpath_report::ADAPTIVE;
use towpath_report::record::{Record, RecordSubject};
use towpath_report::results::{Missing, Results};

/// Everything that an experiment reported.
#[derive(Default)]
pub struct Collected {
    /// The figures.
    pub records: Vec<Record>,
    /// Names and reasons of missing subjects.
    pub missing: Vec<(String, String)>,
    /// Steps announced.
    pub expected: i64,
    /// Numbers of measurements that experiments announced.
    pub announced: Vec<usize>,
    /// Steps begun.
    pub steps: Vec<String>,
}

impl Sink for Collected {
    fn record(&mut self, record: Record) {
        self.records.push(record);
    }
    fn announce(&mut self, _experiment: &str, measurements: usize, _time: Duration) {
        self.announced.push(measurements);
    }
    fn missing(&mut self, subject: &RecordSubject, reason: &str) {
        self.missing.push((subject.algorithm.clone(), reason.into()));
    }
    fn expect(&mut self, steps: i64) {
        self.expected += steps;
    }
    fn step(&mut self, what: &str) {
        self.steps.push(what.into());
    }
}

/// A contender whose figures follow from one number.
pub struct Fake {
    name: &'static str,
    side: ContenderSide,
    slowness: f64,
    absent: bool,
    over_floor: Option<f64>,
}

impl Fake {
    /// An algorithm of ours that is `slowness` times as slow as the fastest.
    pub fn ours(name: &'static str, slowness: f64) -> Fake {
        Fake { name, side: ContenderSide::Ours, slowness, absent: false, over_floor: Some(1.25 * slowness) }
    }
    /// A peer.
    pub fn peer(name: &'static str, slowness: f64) -> Fake {
        Fake { name, side: ContenderSide::Peer, slowness, absent: false, over_floor: None }
    }
    /// A peer that is not installed.
    pub fn absent(name: &'static str) -> Fake {
        Fake { absent: true, ..Fake::peer(name, 1.0) }
    }
    /// The contender as a machine with a single core has it.
    pub fn without_floor(self) -> Fake {
        Fake { over_floor: None, ..self }
    }
}

impl Contender for Fake {
    fn name(&self) -> &str {
        self.name
    }
    fn waiting(&self) -> &str {
        if self.side == ContenderSide::Ours { ADAPTIVE } else { "own" }
    }
    fn side(&self) -> ContenderSide {
        self.side
    }
    fn available(&self) -> Result<(), String> {
        if self.absent { Err(format!("{} is not installed", self.name)) } else { Ok(()) }
    }
    fn logp(&mut self, _run: &Circumstances<'_>) -> Result<ShortMessage, Error> {
        if self.side == ContenderSide::Peer {
            return Err(Error::NotSupported);
        }
        let s = self.slowness;
        let receive = if self.over_floor.is_some() { 15.0 * s } else { f64::NAN };
        Ok(ShortMessage {
            logp: LogP::from_measured(20.0 * s, receive, 40.0 * s, 120.0 * s),
            round_trip_over_floor: self.over_floor,
        })
    }
    fn round_trip(&mut self, _run: &Circumstances<'_>) -> Result<f64, Error> {
        Ok(120.0 * self.slowness)
    }
    fn stress(&mut self, writers: u32, messages: u64, _run: &Circumstances<'_>) -> Result<Stress, Error> {
        if writers > 100 {
            return Err(Error::NotAvailable("it has room for 100 writers".into()));
        }
        let seconds = messages as f64 * 40e-9 * self.slowness * f64::from(writers).sqrt();
        Ok(Stress {
            messages,
            seconds,
            shares: vec![1.0; writers as usize],
            cpu_seconds: Some(2.0 * seconds),
        })
    }
    fn bulk(&mut self, bytes: u64, _path: &str, _run: &Circumstances<'_>) -> Result<f64, Error> {
        Ok(bytes as f64 / (bytes as f64 / 20e9 + 200e-9 * self.slowness))
    }
    fn crash(&mut self, kills: u32, _run: &Circumstances<'_>) -> Result<Crash, Error> {
        if self.side == ContenderSide::Peer {
            return Err(Error::NotSupported);
        }
        Ok(Crash { kills: kills.into(), recovery_us: vec![50.0, 70.0, 60.0], ..Crash::default() })
    }
    fn idle(&mut self, _run: &Circumstances<'_>) -> Result<f64, Error> {
        Ok(0.002 * self.slowness)
    }
}

/// Calls `body` with a bench over these parts.
pub fn bench_with(
    settings: &BenchSettings,
    contenders: &mut [Box<dyn Contender>],
    sink: &mut dyn Sink,
    body: impl FnOnce(&mut Bench<'_>),
) {
    let placement = Placement::detect(settings.pin);
    let host = Host::detect(&placement.describe());
    body(&mut Bench { settings, placement: &placement, host: &host, contenders, sink });
}

/// Calls `body` with the circumstances of a measurement of so long.
pub fn with_circumstances<R>(limit: Duration, body: impl FnOnce(&Circumstances<'_>) -> R) -> R {
    let settings = BenchSettings::default();
    let placement = Placement::detect(settings.pin);
    body(&Circumstances { settings: &settings, placement: &placement, round: 0, seed: 1, limit })
}

/// Settings under which experiments are over at once.
pub fn quick() -> BenchSettings {
    BenchSettings { runs: 1, messages: 1000, sample: Duration::from_millis(20), ..BenchSettings::default() }
}

/// The results of all experiments over fake contenders: four of ours (one of them
/// `towpath`) and two peers, one of which is not there. The floor and memcpy are really measured,
/// but shortly, and only once for all tests.
pub fn example_results() -> Results {
    static EXAMPLE: OnceLock<Results> = OnceLock::new();
    EXAMPLE.get_or_init(measure_example).clone()
}

fn measure_example() -> Results {
    let settings = BenchSettings { runs: 2, kills: 6, ..quick() };
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Fake::ours("test-and-set", 1.4)),
        Box::new(Fake::ours("ticket", 2.0)),
        Box::new(Fake::ours("lock-free", 1.3)),
        Box::new(Fake::ours("towpath", 1.0)),
        Box::new(Fake::peer("open-mpi", 1.8)),
        Box::new(Fake::absent("mpich")),
    ];
    let mut collected = FullSink::default();
    let mut host = None;
    bench_with(&settings, &mut contenders, &mut collected, |bench| {
        host = Some(bench.host.clone());
        for experiment in crate::EXPERIMENTS.iter().filter(|e| e.is_one_of_all()) {
            experiment.run(bench).expect("fakes do not fail");
        }
    });
    Results {
        host: host.expect("the bench was made"),
        asked: settings.asked(),
        records: collected.0,
        missing: collected.1,
        seconds: 1.0,
        shared_cores: None,
    }
}

/// A sink that keeps everything that [`Results`] need.
#[derive(Default)]
struct FullSink(Vec<Record>, Vec<Missing>);

impl Sink for FullSink {
    fn record(&mut self, record: Record) {
        self.0.push(record);
    }
    fn missing(&mut self, subject: &RecordSubject, reason: &str) {
        self.1.push(Missing { subject: subject.clone(), reason: reason.into() });
    }
    fn expect(&mut self, _steps: i64) {}
    fn step(&mut self, _what: &str) {}
}
