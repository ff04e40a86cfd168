//! Measurements: the processes of one lock in one state, and their figures.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use towpath::mplock::{Manager, Progress, Protocol};
use towpath::{Endpoint, World, WorldConfig};
use towpath_agent::cluster_status;
use towpath_host::Error;
use towpath_host::process::team;
use towpath_mplock::wire::Identity;
use towpath_report::record::metrics::{
    ACQUIRE_AT_AGENT_NS, ACQUIRE_NS, ACQUISITIONS_PER_S, HAND_OVER_NS, HOPS_PER_GRANT, LEAST_SHARE,
    MESSAGES_PER_GRANT, NEXT_GRANT_MS,
};
use towpath_report::stats::percentile;

use super::folder::ServerFolder;
use super::players::{ByMessage, FlockPlayer, LockPlayer, McsPlayer, PosixPlayer, RobustPlayer};
use super::plays::{LockPart, PlayBoard, PlayFigures};
use super::remote::{EtcdPlacePlayer, EtcdPlayer, HostsPlayer, RedisPlayer, round_trips};
use super::servers::{Cluster, Echo, LockServer, NAMES, start_etcd, start_redis};
use super::win_lock::WinLocks;
use super::{LockAlgorithm, LockState, kills, signalled};
use crate::experiment::Samples;
use crate::transport::Circumstances;

/// Exit code of a process whose part failed, with the reason on stderr.
const FAILED: i32 = 3;
/// Time to start and end, beyond that of the measurement.
pub const GRACE: Duration = Duration::from_secs(60);
/// Part of a measurement's time that a latency takes.
const PART: u32 = 10;
/// Part of it that contention and kills take.
const PART_CONTENDED: u32 = 4;

/// Something that a process does with its lock.
pub trait LockPlay {
    /// Does it.
    fn play(&self, player: &impl LockPlayer) -> Result<(), String>;
}

/// A part in a state.
struct InState<'a>(LockPart<'a>, LockState);

impl LockPlay for InState<'_> {
    fn play(&self, player: &impl LockPlayer) -> Result<(), String> {
        self.0.play(player, self.1)
    }
}

/// Everything that locks need: servers, started when they are first wanted, and a folder.
pub struct MpLockBench {
    etcd: OnceCell<LockServer>,
    redis: OnceCell<LockServer>,
    cluster: OnceCell<Cluster>,
    echo: OnceCell<Echo>,
    win_locks: WinLocks,
    /// Removed last.
    folder: ServerFolder,
}

/// Returns the value of a cell, made now if there is none.
fn made<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
    if cell.get().is_none() {
        let _ = cell.set(make()?);
    }
    cell.get().ok_or(Error::NotSupported)
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Other(Box::new(error))
}

/// Protocol of one of our locks by message, and its managers' progress.
fn protocol(algorithm: LockAlgorithm) -> Option<(Protocol, Progress)> {
    let name = algorithm.name();
    let (name, progress) =
        name.strip_suffix("-thread").map_or((name, Progress::Poll), |name| (name, Progress::Thread));
    Some((Protocol::find(name)?, progress))
}

impl MpLockBench {
    /// Makes a bench without results.
    pub fn new() -> Result<MpLockBench, Error> {
        Ok(MpLockBench {
            etcd: OnceCell::new(),
            redis: OnceCell::new(),
            cluster: OnceCell::new(),
            echo: OnceCell::new(),
            win_locks: WinLocks::default(),
            folder: ServerFolder::new()?,
        })
    }

    fn etcd(&self) -> Result<&LockServer, Error> {
        made(&self.etcd, || start_etcd(self.folder.path()))
    }

    fn redis(&self) -> Result<&LockServer, Error> {
        made(&self.redis, || start_redis(self.folder.path()))
    }

    fn cluster(&self) -> Result<&Cluster, Error> {
        made(&self.cluster, || Cluster::start(self.folder.path()))
    }

    /// Starts a lock's server, before its processes are forked.
    pub fn prepare(&self, algorithm: LockAlgorithm) -> Result<(), Error> {
        match algorithm {
            LockAlgorithm::Etcd => self.etcd().map(drop),
            LockAlgorithm::Redis => self.redis().map(drop),
            LockAlgorithm::Hosts => self.cluster().map(drop),
            LockAlgorithm::Link => made(&self.echo, Echo::start).map(drop),
            _ => Ok(()),
        }
    }

    /// A world for so many processes, for locks that lie in one.
    pub fn world(&self, algorithm: LockAlgorithm, procs: usize) -> Result<Option<World>, Error> {
        let lies_in_world = protocol(algorithm).is_some()
            || matches!(
                algorithm,
                LockAlgorithm::Posix
                    | LockAlgorithm::Robust
                    | LockAlgorithm::Mcs
                    | LockAlgorithm::Endpoint
                    | LockAlgorithm::EndpointSignal
            );
        let make = || towpath::create(None, &WorldConfig::new(procs as u32)).map_err(other);
        lies_in_world.then(make).transpose()
    }

    /// Measures a lock in a state.
    ///
    /// # Errors
    ///
    /// A server is not there; a process failed; two processes held the lock at once.
    pub fn measure(
        &mut self,
        (algorithm, state): (LockAlgorithm, LockState),
        procs: usize,
        run: &Circumstances<'_>,
    ) -> Result<Samples, Error> {
        self.prepare(algorithm)?;
        let part = if state < LockState::Contended { PART } else { PART_CONTENDED };
        let run = &Circumstances { limit: run.limit / part, ..*run };
        match (algorithm, state) {
            (LockAlgorithm::Mpich | LockAlgorithm::OpenMpi, _) => {
                self.win_locks.measure(algorithm, state, procs, run)
            }
            (LockAlgorithm::Endpoint, _) => self.endpoint(run),
            (LockAlgorithm::EndpointSignal, _) => self.endpoint_signal(run),
            (LockAlgorithm::Link, _) => self.link(run),
            (LockAlgorithm::Hosts, LockState::RemoteIdle) => self.hosts_idle(run),
            (_, LockState::Killed) => {
                let mut samples = Samples::default();
                let times = kills::next_grants(self, algorithm, run)?;
                times.into_iter().for_each(|ms| samples.push(NEXT_GRANT_MS, ms));
                Ok(samples)
            }
            _ => {
                let figures = self.play(algorithm, state, procs, run)?;
                Ok(samples(state, protocol(algorithm).is_some(), &figures))
            }
        }
    }

    fn play(
        &self,
        algorithm: LockAlgorithm,
        state: LockState,
        procs: usize,
        run: &Circumstances<'_>,
    ) -> Result<PlayFigures, Error> {
        let (board, world) = (PlayBoard::new()?, self.world(algorithm, procs)?);
        let has_cores = procs <= run.placement.cores();
        self.team(procs, run, |me| {
            let part = LockPart { board: &board, me, procs, limit: run.limit, has_cores };
            self.with_player(algorithm, state, me, world.as_ref(), &InState(part, state))
        })?;
        let figures = board.figures(procs);
        if !figures.excludes {
            return Err(Error::NotAvailable(format!(
                "DEFECT: {} does not exclude: two processes held it at once",
                algorithm.name()
            )));
        }
        Ok(figures)
    }

    /// Runs a part in each of some processes.
    fn team(
        &self,
        procs: usize,
        run: &Circumstances<'_>,
        part: impl Fn(usize) -> Result<(), String>,
    ) -> Result<(), Error> {
        let cores: Vec<_> = (0..procs).map(|n| run.placement.core_for(n, procs)).collect();
        let body = |me| match part(me) {
            Ok(()) => 0,
            Err(error) => {
                towpath_report::console::remark(format_args!("process {me}: {error}"));
                FAILED
            }
        };
        team(&cores, run.limit * 4 + GRACE, body).map(drop)
    }

    /// Has a process play with its lock.
    pub fn with_player(
        &self,
        algorithm: LockAlgorithm,
        state: LockState,
        me: usize,
        world: Option<&World>,
        play: &impl LockPlay,
    ) -> Result<(), String> {
        let world = || {
            let world = world.ok_or("this lock lies in no world")?;
            world.enter(Some(me as u32)).map_err(|e| e.to_string())?;
            Ok::<&World, String>(world)
        };
        // Started before this process was forked.
        let missing = || "its server does not run".to_owned();
        match algorithm {
            LockAlgorithm::Central
            | LockAlgorithm::Distributed
            | LockAlgorithm::Reactive
            | LockAlgorithm::CentralThread
            | LockAlgorithm::DistributedThread
            | LockAlgorithm::ReactiveThread => {
                let (protocol, progress) = protocol(algorithm).unwrap_or_default();
                let manager = Manager::with_progress(world()?, progress).map_err(|e| e.to_string())?;
                let home = if state == LockState::LocalIdle { 0 } else { 1 };
                play.play(&ByMessage::new(&manager, protocol, home))
            }
            LockAlgorithm::Posix => play.play(&PosixPlayer::new(world()?)?),
            LockAlgorithm::Robust => play.play(&RobustPlayer::new(world()?)?),
            LockAlgorithm::Mcs => play.play(&McsPlayer::new(world()?)?),
            LockAlgorithm::Flock => play.play(&FlockPlayer::new(self.folder.path())?),
            LockAlgorithm::Hosts => {
                let cluster = self.cluster.get().ok_or_else(missing)?;
                let spread = state == LockState::RemoteBusy || state == LockState::Killed;
                play.play(&HostsPlayer::new(&cluster.path, me, spread)?)
            }
            LockAlgorithm::Etcd => {
                let address = self.etcd.get().ok_or_else(missing)?.address;
                match state {
                    LockState::Killed => play.play(&EtcdPlacePlayer(address)),
                    _ => play.play(&EtcdPlayer::new(address)?),
                }
            }
            LockAlgorithm::Redis => {
                play.play(&RedisPlayer::new(self.redis.get().ok_or_else(missing)?.address, me)?)
            }
            _ => Err("it is no lock of this host".into()),
        }
    }

    /// A request of an endpoint and its reply, as the managers send them.
    fn endpoint(&self, run: &Circumstances<'_>) -> Result<Samples, Error> {
        let (board, world) = (PlayBoard::new()?, self.world(LockAlgorithm::Endpoint, 2)?);
        let world = world.ok_or(Error::NotSupported)?;
        let ask = |me: usize| -> Result<(), towpath::Error> {
            world.enter(Some(me as u32))?;
            let endpoint = Endpoint::new(&world)?;
            let answered = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
            let answers = answered.clone();
            // Relaxed, here and below: handlers run in the thread that reads it.
            endpoint.set_handler(2, move |_| {
                answers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            });
            endpoint.set_handler(1, |message| {
                // A request is replied to once: this can't fail.
                let _ = message.reply(2, message.args());
            });
            endpoint.map_world()?;
            let count = || answered.load(std::sync::atomic::Ordering::Relaxed);
            let turn = board.turn();
            if me == 1 {
                while turn.load(std::sync::atomic::Ordering::Relaxed) == 0 {
                    if endpoint.poll() == 0 {
                        endpoint.wait(Some(Duration::from_millis(5)));
                    }
                }
                return Ok(());
            }
            let (mut begun, mut times) = (Instant::now(), Vec::new());
            while begun.elapsed() < run.limit || times.len() < 2 {
                let (start, before) = (Instant::now(), count());
                endpoint.request(1, 1, &[0; 8])?;
                while count() == before {
                    if endpoint.poll() == 0 {
                        endpoint.wait(Some(Duration::from_millis(5)));
                    }
                }
                if times.is_empty() {
                    // The other process has come.
                    begun = Instant::now();
                }
                times.push(start.elapsed().as_nanos() as f64);
            }
            board.note(0, &times);
            turn.store(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        };
        self.team(2, run, |me| ask(me).map_err(|e| e.to_string()))?;
        Ok(Samples::one(ACQUIRE_NS, board.figures(2).median))
    }

    /// A request to an endpoint whose process computes, and its reply from a signal.
    fn endpoint_signal(&self, run: &Circumstances<'_>) -> Result<Samples, Error> {
        let (board, world) = (PlayBoard::new()?, self.world(LockAlgorithm::EndpointSignal, 2)?);
        let world = world.ok_or(Error::NotSupported)?;
        let has_cores = run.placement.cores() > 1;
        self.team(2, run, |me| {
            let part = LockPart { board: &board, me, procs: 2, limit: run.limit, has_cores };
            signalled::ask_or_compute(&world, &part).map_err(|e| e.to_string())
        })?;
        Ok(Samples::one(ACQUIRE_NS, board.median_of(0)))
    }

    /// A frame over a link of the agents' kind and back.
    fn link(&self, run: &Circumstances<'_>) -> Result<Samples, Error> {
        let (board, echo) = (PlayBoard::new()?, self.echo.get().ok_or(Error::NotSupported)?);
        self.team(1, run, |_| {
            board.note(0, &round_trips(echo, run.limit)?);
            Ok(())
        })?;
        Ok(Samples::one(ACQUIRE_NS, board.figures(1).median))
    }

    /// Locks of fresh names whose home is another host: for a process, and at its agent.
    ///
    /// The agent's time is that from its request to the grant.
    fn hosts_idle(&self, run: &Circumstances<'_>) -> Result<Samples, Error> {
        let (board, cluster) = (PlayBoard::new()?, self.cluster()?);
        self.team(1, run, |_| {
            let player = HostsPlayer::new(&cluster.path, 0, false)?;
            let (begun, mut seen, mut at_agent) = (Instant::now(), Vec::new(), Vec::new());
            let names = (0u32..).map(|n| format!("lock {} {} {n}", run.round, std::process::id()));
            for name in names.filter(|name| Identity::of(name).home(0..3) != Some(0)) {
                player.rename(name.clone());
                // The question for the agent's time wakes all hosts: seldom.
                let asks = seen.len() >= 16 * (at_agent.len() + 1);
                let (start, mut taken, mut row) = (Instant::now(), Duration::ZERO, None);
                player.hold(|| {
                    taken = start.elapsed();
                    if asks {
                        let reports = cluster_status(&cluster.hosts, Some(NAMES[0]), Some(&name));
                        row = reports.ok().and_then(|reports| reports.first()?.locks.first().cloned());
                    }
                })?;
                seen.push(taken.as_nanos() as f64);
                if asks {
                    at_agent.push(row.ok_or("the agent does not know the lock")?.waited as f64);
                }
                if begun.elapsed() > run.limit && !at_agent.is_empty() {
                    break;
                }
            }
            board.note(0, &seen);
            board.note(1, &at_agent);
            Ok(())
        })?;
        let mut samples = Samples::one(ACQUIRE_NS, board.median_of(0));
        samples.push(ACQUIRE_AT_AGENT_NS, board.median_of(1));
        Ok(samples)
    }
}

/// The figures that count in a state.
fn samples(state: LockState, by_message: bool, figures: &PlayFigures) -> Samples {
    let mut samples = match state {
        LockState::LocalIdle | LockState::RemoteIdle | LockState::Computing => {
            Samples::one(ACQUIRE_NS, figures.median)
        }
        LockState::RemoteBusy => Samples::one(HAND_OVER_NS, figures.median),
        LockState::Contended | LockState::BackToBack | LockState::Killed => {
            let rate = figures.acquisitions as f64 * 1e9 / figures.nanoseconds.max(1) as f64;
            let mut samples = Samples::one(ACQUISITIONS_PER_S, rate);
            samples.push(LEAST_SHARE, figures.least_share);
            samples
        }
    };
    if by_message {
        samples.push(MESSAGES_PER_GRANT, figures.messages);
        samples.push(HOPS_PER_GRANT, figures.hops);
    }
    samples
}

/// One time in a hundred is longer.
pub fn p99(times: &[f64]) -> Option<f64> {
    percentile(times, 99.0)
}
