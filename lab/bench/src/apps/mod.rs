//! The papers' applications on this machine: ways to run one, and one run.

mod mpi;
pub mod rayon;
pub mod rivals;
pub mod shown;

use std::time::Duration;

use towpath::{Algorithm, WorldConfig};
use towpath_apps::messages::processes::{run_apart, run_processes};
use towpath_apps::messages::{MessageApplication, MessageInput, RankRun};
use towpath_apps::native::{
    self, LOCKED, NativeRun, PartNames, TeamSurroundings, barrier_names, lock_names, queue_names,
};
use towpath_apps::parts::all_locks;
use towpath_apps::team::Solitary;
use towpath_apps::{AnyApplication, Application, PartKind, ProblemChoice, ProblemInput, Size};
use towpath_host::Error;
use towpath_host::topology::pin_to;
use towpath_launch::MpiKind;
use towpath_machine::Native;
use towpath_report::CLAIM_ALGORITHMS;
use towpath_report::record::metrics::SOLUTION_MS;
use towpath_sync::Policy;

use crate::experiment::Samples;
use crate::measuring::MeasuringPrograms;
use crate::settings::BenchSettings;
use crate::transport::Circumstances;
use rivals::AppRival;

/// Settings of the experiment `apps` alone.
#[derive(Clone, Debug, PartialEq)]
pub struct AppSettings {
    /// The applications.
    pub applications: Vec<AnyApplication>,
    /// Size of their problems, or a pack that is spark98's.
    pub input: ProblemInput,
}

impl Default for AppSettings {
    fn default() -> Self {
        AppSettings { applications: AnyApplication::all().collect(), input: Size::Medium.into() }
    }
}

/// Field of a record: the figures by which the result was checked.
pub const CHECKED: &str = "checked";

/// Name of the way without locks and barriers, on one processor.
pub const SEQUENTIAL: &str = "sequential";

/// Way to run an application: the part that is compared, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppWay {
    /// Program on one processor, without locks and barriers.
    Sequential,
    /// A lock, barrier or queue of Towpath's.
    Ours(PartKind, &'static str),
    /// Parts of a rival.
    Rival(AppRival),
    /// The kernel's steps as loops of rayon's.
    Rayon,
    /// Program over messages that are claimed so.
    Claim(&'static str),
    /// Program over an MPI.
    Mpi(MpiKind),
}

impl AppWay {
    /// All ways to run an application.
    pub fn of(application: AnyApplication) -> Vec<AppWay> {
        let application = match application {
            AnyApplication::Shared(application) => application,
            AnyApplication::Messages(application) => {
                let claims = CLAIM_ALGORITHMS.iter().map(|a| AppWay::Claim(a.name));
                let has_mpi = application == MessageApplication::SampleBulk;
                let mpis = [MpiKind::Mpich, MpiKind::OpenMpi].map(AppWay::Mpi);
                return claims.chain(mpis.into_iter().filter(|_| has_mpi)).collect();
            }
        };
        let kind = application.decided_by();
        let names = match kind {
            PartKind::Lock => lock_names(),
            PartKind::Barrier => barrier_names(),
            PartKind::Queue => queue_names(),
        };
        let rivals = AppRival::ALL.into_iter().filter(|r| r.kind() == kind).map(AppWay::Rival);
        let ours = names.into_iter().map(|name| AppWay::Ours(kind, name));
        let rayon = application.has_loops().then_some(AppWay::Rayon);
        std::iter::once(AppWay::Sequential).chain(ours).chain(rivals).chain(rayon).collect()
    }

    /// Its name, as users call it.
    pub const fn name(self) -> &'static str {
        match self {
            AppWay::Sequential => SEQUENTIAL,
            AppWay::Ours(_, name) | AppWay::Claim(name) => name,
            AppWay::Rival(rival) => rival.name(),
            AppWay::Rayon => "rayon",
            AppWay::Mpi(kind) => kind.name(),
        }
    }

    /// Returns whether it waits as a policy says.
    pub const fn has_policy(self) -> bool {
        matches!(self, AppWay::Ours(..) | AppWay::Claim(_))
    }
}

/// Names of all ways to run any application, each once.
pub fn way_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for application in AnyApplication::all() {
        for way in AppWay::of(application) {
            if !names.contains(&way.name()) {
                names.push(way.name());
            }
        }
    }
    names
}

/// One run of an application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppRun {
    /// The application.
    pub application: AnyApplication,
    /// The size of its problem, or its pack.
    pub input: ProblemInput,
    /// The way to run it.
    pub way: AppWay,
    /// The waiting policy.
    pub policy: Policy,
    /// Number of processors.
    pub procs: u32,
}

/// Time beyond the measurement's own limit, to solve a large problem on few cores.
const GRACE: Duration = Duration::from_secs(120);

impl AppRun {
    /// Runs it, in processes of its own. Returns the time, and the figures of its check.
    ///
    /// # Errors
    ///
    /// If it fails, or its result differs from the reference.
    pub(crate) fn measure(
        &self,
        programs: &mut MeasuringPrograms,
        run: &Circumstances<'_>,
    ) -> Result<Samples, Error> {
        let input = MessageInput { size: self.input.size, seed: run.settings.seed };
        if let AppWay::Mpi(kind) = self.way {
            let (ms, checked) = mpi::sort(programs.of(kind)?, input, self.procs, run)?;
            return Ok(samples(ms, checked));
        }
        let limit = run.limit * 4 + GRACE;
        let procs = self.procs as usize;
        let cores: Vec<_> = (0..procs).map(|n| run.placement.core_for(n, procs)).collect();
        let result = match self.application {
            AnyApplication::Messages(application) => self.processes(application, input, &cores, limit),
            AnyApplication::Shared(application) => {
                let (ProblemInput { size, pack }, seed) = (self.input, run.settings.seed);
                let choice = ProblemChoice { application, size, seed, procs, pack };
                // Measured before there is a process that would measure it.
                let _ = (Native::pause_ps(), Native::switch_cost());
                run_apart(limit, || self.threads(choice, &cores, run.placement.cores()))
            }
        };
        let run = result.map_err(Error::NotAvailable)?;
        Ok(samples(run.ns as f64 / 1e6, run.text))
    }

    fn processes(
        &self,
        application: MessageApplication,
        input: MessageInput,
        cores: &[Option<usize>],
        limit: Duration,
    ) -> Result<RankRun, String> {
        let algorithm = Algorithm::from_name(self.way.name()).ok_or("no such claim algorithm")?;
        let config = WorldConfig { algorithm, waiting: self.policy, ..WorldConfig::new(self.procs) };
        let runs = run_processes(application, input, &config, cores, limit)?;
        runs.into_iter().max_by_key(|r| r.ns).ok_or_else(|| "no rank has run".into())
    }

    fn threads(
        &self,
        choice: ProblemChoice,
        cores: &[Option<usize>],
        all_cores: usize,
    ) -> Result<RankRun, String> {
        let problem = native::problem(choice);
        let left =
            |run: NativeRun| RankRun { ns: run.time.as_nanos() as u64, requests: 0, text: run.verified.text };
        if self.way == AppWay::Rayon {
            return rayon::run(&*problem, cores).map(left);
        }
        let (needs, procs) = (problem.needs(), choice.procs);
        let around = TeamSurroundings::new(procs, all_cores);
        let wait = native::waiting(self.policy, &around);
        let mut names = PartNames::default();
        match self.way {
            AppWay::Ours(PartKind::Lock, name) => names.lock = name,
            AppWay::Ours(PartKind::Barrier, name) => names.barrier = name,
            AppWay::Ours(PartKind::Queue, name) => names.queue = name,
            _ => names.queue = LOCKED,
        }
        let mut parts = native::parts(names, needs, procs, wait)?;
        match self.way {
            AppWay::Sequential => (parts.locks, parts.barrier) = (Box::new(Solitary), Box::new(Solitary)),
            AppWay::Rival(rival) => {
                parts.locks = rivals::locks(rival, all_locks(needs)).unwrap_or(parts.locks);
                parts.barrier = rivals::barrier(rival, procs).unwrap_or(parts.barrier);
                parts.queues = rivals::queues(rival, needs).unwrap_or(parts.queues);
            }
            _ => {}
        }
        native::run(&*problem, procs, &parts, &|me| pin(cores, me)).map(left)
    }
}

/// Time of a solution in milliseconds, beside the figures by which it was checked.
fn samples(ms: f64, checked: String) -> Samples {
    let mut samples = Samples::one(SOLUTION_MS, ms);
    samples.extra.insert(CHECKED.into(), checked.into());
    samples
}

/// Pins the calling thread, number `me` of a team; if it can't be, it runs where it may.
fn pin(cores: &[Option<usize>], me: usize) {
    let _ = cores.get(me).copied().flatten().map(pin_to);
}

/// Runs that are to be compared: each application in each way, under each policy, on each
/// number of processors. MPIs are among them if peers are asked for, or they are named.
pub fn all_runs(settings: &BenchSettings, procs: &[u32]) -> Vec<AppRun> {
    let policies: Vec<Policy> = settings.policies().collect();
    let mut runs = Vec::new();
    for &application in &settings.apps.applications {
        let most = match application {
            AnyApplication::Shared(_) => native::MOST as u32,
            AnyApplication::Messages(_) => 64,
        };
        for way in AppWay::of(application) {
            let is_asked = match way {
                AppWay::Sequential => true,
                AppWay::Mpi(_) if settings.algorithms.is_empty() => settings.peers,
                _ => settings.asks_for(way.name()),
            };
            if !is_asked {
                continue;
            }
            let policies = if way.has_policy() { &policies[..] } else { &policies[..policies.len().min(1)] };
            for &policy in policies {
                let suits = |n: &&u32| **n <= most && (way != AppWay::Sequential || **n == procs[0]);
                for &n in procs.iter().filter(suits) {
                    let procs = if way == AppWay::Sequential { 1 } else { n };
                    let input = settings.apps.input;
                    // A transform has a power of two of ranks.
                    let fits = application != AnyApplication::Messages(MessageApplication::Fft)
                        || procs.is_power_of_two();
                    if fits {
                        runs.push(AppRun { application, input, way, policy, procs });
                    }
                }
            }
        }
    }
    runs
}

/// Returns whether an application's problem grows with the number of processors.
pub fn grows(application: AnyApplication) -> bool {
    match application {
        AnyApplication::Messages(application) => application != MessageApplication::Fft,
        AnyApplication::Shared(
            Application::Spark98
            | Application::Spark98Reduced
            | Application::Lu
            | Application::Raytrace
            | Application::Mp3d
            | Application::Barnes
            | Application::Cholesky
            | Application::Radiosity,
        ) => false,
    }
}
