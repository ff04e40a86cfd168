//! For tests: contenders whose figures are known, and a sink that keeps everything.

use std::time::Duration;

use crate::error::Error;
use crate::experiment::{Bench, Settings, Sink};
use crate::host::Host;
use crate::record::{Record, Subject};
use crate::topology::Placement;
use crate::transport::{ADAPTIVE, Contender, Crash, LogP, Run, Side, Stress};

/// Everything that an experiment reported.
#[derive(Default)]
pub struct Collected {
    /// The figures.
    pub records: Vec<Record>,
    /// Names and reasons of what is missing.
    pub missing: Vec<(String, String)>,
    /// Steps announced.
    pub expected: i64,
    /// Steps begun.
    pub steps: Vec<String>,
}

impl Sink for Collected {
    fn record(&mut self, record: Record) {
        self.records.push(record);
    }
    fn missing(&mut self, subject: &Subject, reason: &str) {
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
    side: Side,
    slowness: f64,
    absent: bool,
}

impl Fake {
    /// One of our algorithms that is `slowness` times as slow as the fastest.
    pub fn ours(name: &'static str, slowness: f64) -> Fake {
        Fake { name, side: Side::Ours, slowness, absent: false }
    }
    /// A peer.
    pub fn peer(name: &'static str, slowness: f64) -> Fake {
        Fake { name, side: Side::Peer, slowness, absent: false }
    }
    /// A peer that is not installed.
    pub fn absent(name: &'static str) -> Fake {
        Fake { name, side: Side::Peer, slowness: 1.0, absent: true }
    }
}

impl Contender for Fake {
    fn name(&self) -> &str {
        self.name
    }
    fn waiting(&self) -> &str {
        if self.side == Side::Ours { ADAPTIVE } else { "own" }
    }
    fn side(&self) -> Side {
        self.side
    }
    fn available(&self) -> Result<(), String> {
        if self.absent { Err(format!("{} is not installed", self.name)) } else { Ok(()) }
    }
    fn logp(&mut self, _run: &Run<'_>) -> Result<LogP, Error> {
        if self.side == Side::Peer {
            return Err(Error::NotSupported);
        }
        let s = self.slowness;
        Ok(LogP::from_measured(20.0 * s, 15.0 * s, 40.0 * s, 120.0 * s))
    }
    fn round_trip(&mut self, _run: &Run<'_>) -> Result<f64, Error> {
        Ok(120.0 * self.slowness)
    }
    fn stress(&mut self, writers: u32, messages: u64, _run: &Run<'_>) -> Result<Stress, Error> {
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
    fn bulk(&mut self, bytes: u64, _path: &str, _run: &Run<'_>) -> Result<f64, Error> {
        Ok(bytes as f64 / (bytes as f64 / 20e9 + 200e-9 * self.slowness))
    }
    fn crash(&mut self, kills: u32, _run: &Run<'_>) -> Result<Crash, Error> {
        if self.side == Side::Peer {
            return Err(Error::NotSupported);
        }
        Ok(Crash { kills: kills.into(), recovery_us: vec![50.0, 70.0, 60.0], ..Crash::default() })
    }
    fn idle(&mut self, _run: &Run<'_>) -> Result<f64, Error> {
        Ok(0.002 * self.slowness)
    }
}

/// Calls `body` with a bench over these parts.
pub fn bench_with(
    settings: &Settings,
    contenders: &mut [Box<dyn Contender>],
    sink: &mut dyn Sink,
    body: impl FnOnce(&mut Bench<'_>),
) {
    let placement = Placement::detect(settings.pin);
    let host = Host::detect(&placement.describe());
    body(&mut Bench { settings, placement: &placement, host: &host, contenders, sink });
}

/// Settings under which experiments are over at once.
pub fn quick() -> Settings {
    Settings { runs: 1, messages: 1000, sample: Duration::from_millis(20), ..Settings::default() }
}
