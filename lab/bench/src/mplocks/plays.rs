//! The parts of the processes of a measurement, and the words by which they agree.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use towpath::mplock::LockTraffic;

use super::LockState;
use super::players::LockPlayer;
use towpath_host::Error;
use towpath_host::process::SharedPages;
use towpath_report::stats::percentile;

/// Maximum number of processes.
pub const MOST: usize = 64;
/// Words of each process.
const WORDS: usize = 4;
/// Time for which a holder goes on when the waiter waits.
const HELD: Duration = Duration::from_micros(30);
/// Time for that where a server has to hear of the waiter.
const HELD_BY_SERVER: Duration = Duration::from_millis(2);
/// Time for which a process computes between two calls.
pub const COMPUTES: Duration = Duration::from_millis(2);
/// Number of moments of that time at which the other one asks, in turn.
const MOMENTS: u32 = 16;
/// Pauses of the processor between two critical sections of `Contended`.
const BETWEEN: usize = 50;

/// Words that the processes of a measurement and their parent share.
pub struct PlayBoard(SharedPages);

impl PlayBoard {
    /// A board, all zero.
    pub fn new() -> Result<PlayBoard, Error> {
        Ok(PlayBoard(SharedPages::new(6 + WORDS * MOST)?))
    }

    fn word(&self, n: usize) -> &AtomicU64 {
        self.0.word(n)
    }
    /// 1 when all are to end.
    pub fn stop(&self) -> &AtomicU64 {
        self.word(0)
    }
    /// Number of the step that is next.
    pub fn turn(&self) -> &AtomicU64 {
        self.word(1)
    }
    /// Number of processes that are ready.
    fn ready(&self) -> &AtomicU64 {
        self.word(2)
    }
    /// Word that the lock protects.
    fn protected(&self) -> &AtomicU64 {
        self.word(3)
    }
    /// Time of a release, or of a grant.
    pub fn time(&self) -> &AtomicU64 {
        self.word(4)
    }
    /// Round in which the waiter waits.
    pub fn waits(&self) -> &AtomicU64 {
        self.word(5)
    }
    /// A process's acquisitions.
    fn count(&self, me: usize) -> &AtomicU64 {
        self.word(6 + WORDS * me)
    }
    /// A process's median time, as bits.
    fn median(&self, me: usize) -> &AtomicU64 {
        self.word(7 + WORDS * me)
    }
    /// Its messages.
    fn messages(&self, me: usize) -> &AtomicU64 {
        self.word(8 + WORDS * me)
    }
    /// Number of messages that were on the way of a grant.
    fn hops(&self, me: usize) -> &AtomicU64 {
        self.word(9 + WORDS * me)
    }

    /// Notes the median of times.
    pub fn note(&self, me: usize, times: &[f64]) {
        let median = percentile(times, 50.0).unwrap_or(f64::NAN);
        // Relaxed: read when this process has ended.
        self.median(me).store(median.to_bits(), Ordering::Relaxed);
    }

    /// Returns the median that a process has noted.
    pub fn median_of(&self, me: usize) -> f64 {
        // Relaxed: its process has ended.
        f64::from_bits(self.median(me).load(Ordering::Relaxed))
    }

    fn sum(&self, word: impl Fn(&PlayBoard, usize) -> &AtomicU64) -> u64 {
        // Relaxed: their processes have ended.
        (0..MOST).map(|me| word(self, me).load(Ordering::Relaxed)).sum()
    }

    /// Figures of a play that has ended.
    pub fn figures(&self, procs: usize) -> PlayFigures {
        let counts: Vec<u64> = (0..procs).map(|me| self.count(me).load(Ordering::Relaxed)).collect();
        let sum: u64 = counts.iter().sum();
        let per = |number: u64| number as f64 / sum.max(1) as f64;
        PlayFigures {
            acquisitions: sum,
            median: self.median_of(0),
            least_share: counts.iter().min().copied().unwrap_or(0) as f64 * procs as f64 / sum.max(1) as f64,
            messages: per(self.sum(PlayBoard::messages)),
            hops: per(self.sum(PlayBoard::hops)),
            excludes: self.protected().load(Ordering::Relaxed) == sum,
            nanoseconds: self.time().load(Ordering::Relaxed),
        }
    }
}

/// Figures of a play.
#[derive(Clone, Copy, Debug)]
pub struct PlayFigures {
    /// Number of acquisitions of all processes.
    pub acquisitions: u64,
    /// Median time of process 0, in nanoseconds.
    pub median: f64,
    /// The slowest process's part of an equal share.
    pub least_share: f64,
    /// Messages for each acquisition.
    pub messages: f64,
    /// Number of messages that came before the grant.
    pub hops: f64,
    /// False if two processes held the lock at once.
    pub excludes: bool,
    /// Time of a contended play.
    pub nanoseconds: u64,
}

/// Monotonic time, in nanoseconds: that of all processes of the host.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A process's part of a play.
pub struct LockPart<'a> {
    /// The board.
    pub board: &'a PlayBoard,
    /// Number of this process.
    pub me: usize,
    /// Number of processes.
    pub procs: usize,
    /// Time for the play.
    pub limit: Duration,
    /// True if each process has a core.
    pub has_cores: bool,
}

impl LockPart<'_> {
    /// Plays, and writes the figures on the board.
    pub fn play(&self, player: &impl LockPlayer, state: LockState) -> Result<(), String> {
        self.gather(player);
        let before = player.traffic();
        match state {
            LockState::LocalIdle => self.local_idle(player)?,
            LockState::RemoteIdle => self.remote_idle(player)?,
            LockState::RemoteBusy => self.remote_busy(player)?,
            LockState::Computing => self.computing(player)?,
            LockState::Contended => self.contended(player, BETWEEN)?,
            LockState::BackToBack | LockState::Killed => self.contended(player, 0)?,
        }
        let LockTraffic { requests, forwards, grants, returns, .. } = player.traffic();
        let sent = player.traffic().total() - before.total();
        let hops = match state {
            LockState::LocalIdle | LockState::RemoteIdle | LockState::Computing => {
                requests + forwards + grants - before.requests - before.forwards - before.grants
            }
            // The request has come before the release.
            _ => returns + grants - before.returns - before.grants,
        };
        // Relaxed: read when this process has ended.
        self.board.messages(self.me).store(sent, Ordering::Relaxed);
        self.board.hops(self.me).store(hops, Ordering::Relaxed);
        player.part();
        Ok(())
    }

    /// Waits for something, and serves meanwhile.
    fn until(&self, player: &impl LockPlayer, done: impl Fn() -> bool) {
        wait(player, self.has_cores, done);
    }

    fn gather(&self, player: &impl LockPlayer) {
        // Relaxed: nothing is handed over; the processes only begin together.
        self.board.ready().fetch_add(1, Ordering::Relaxed);
        self.until(player, || self.board.ready().load(Ordering::Relaxed) >= self.procs as u64);
    }

    /// Holds the lock once, and adds one to the word that it protects, in two steps.
    fn count(&self, player: &impl LockPlayer, inside: impl FnOnce()) -> Result<(), String> {
        let protected = self.board.protected();
        player.hold(|| {
            // Relaxed: the lock orders them, which is what is checked.
            protected.store(protected.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            inside();
        })
    }

    fn end(&self, times: &[f64], count: u64) {
        self.board.note(self.me, times);
        // Relaxed: read when this process has ended.
        self.board.count(self.me).store(count, Ordering::Relaxed);
    }

    fn local_idle(&self, player: &impl LockPlayer) -> Result<(), String> {
        if self.me != 0 {
            self.until(player, || self.board.turn().load(Ordering::Relaxed) != 0);
            return Ok(());
        }
        let (begun, mut batch, mut times, mut count) = (Instant::now(), 1u64, Vec::new(), 0);
        while begun.elapsed() < self.limit || times.is_empty() {
            let start = Instant::now();
            for _ in 0..batch {
                player.hold(|| ())?;
            }
            let took = start.elapsed();
            // The first ones warm up, and find out how many make a batch.
            if took < Duration::from_micros(100) && begun.elapsed() < self.limit {
                batch *= 2;
            } else {
                times.push(took.as_nanos() as f64 / batch as f64);
                count += batch;
            }
        }
        self.board.protected().store(count, Ordering::Relaxed);
        self.end(&times, count);
        self.board.turn().store(1, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until a step is next.
    fn until_turn(&self, player: &impl LockPlayer, is_next: impl Fn(u64) -> bool) {
        // (L1) Acquire: what the other process did before its step is seen; pairs with (L2).
        self.until(player, || is_next(self.board.turn().load(Ordering::Acquire)));
    }

    /// Makes a step the next one.
    fn set_turn(&self, step: u64) {
        // (L2) Release: what was done before is seen; pairs with the Acquire (L1).
        self.board.turn().store(step, Ordering::Release);
    }

    /// Two processes acquire the lock in turn, when the other one has released it.
    fn remote_idle(&self, player: &impl LockPlayer) -> Result<(), String> {
        let (begun, mut times, mut count) = (Instant::now(), Vec::new(), 0u64);
        let stop = self.board.stop();
        for round in 0u64.. {
            let step = 2 * round + self.me as u64;
            self.until_turn(player, |turn| turn == step);
            // Relaxed: the turn orders it.
            if stop.load(Ordering::Relaxed) != 0 {
                break;
            }
            let (start, mut taken) = (Instant::now(), Duration::ZERO);
            self.count(player, || taken = start.elapsed())?;
            times.push(taken.as_nanos() as f64);
            count += 1;
            // Each has acquired it once at least.
            let ends = self.me == 0 && round > 0 && begun.elapsed() > self.limit;
            if ends {
                stop.store(1, Ordering::Relaxed);
            }
            self.set_turn(step + 1);
            if ends {
                break;
            }
        }
        self.end(&times, count);
        Ok(())
    }

    /// Two processes wait for each other's release in turn.
    fn remote_busy<P: LockPlayer>(&self, player: &P) -> Result<(), String> {
        let (begun, mut times, mut count) = (Instant::now(), Vec::new(), 0u64);
        let (stop, waits, time) = (self.board.stop(), self.board.waits(), self.board.time());
        let long = if P::HAS_SERVER { HELD_BY_SERVER } else { HELD };
        for round in 0u64.. {
            let holds = round % 2 == self.me as u64;
            self.until_turn(player, |turn| turn == 2 * round + u64::from(!holds));
            // Relaxed, here and below: the turn orders the end, the lock the time.
            if stop.load(Ordering::Relaxed) != 0 {
                // The other process may wait for the step after this one.
                self.set_turn(2 * round + 1);
                break;
            }
            if holds {
                self.count(player, || {
                    self.set_turn(2 * round + 1);
                    self.until(player, || waits.load(Ordering::Relaxed) == round + 1);
                    let start = Instant::now();
                    self.until(player, || start.elapsed() > long);
                    time.store(now(), Ordering::Relaxed);
                })?;
            } else {
                waits.store(round + 1, Ordering::Relaxed);
                let mut taken = 0;
                self.count(player, || taken = now().saturating_sub(time.load(Ordering::Relaxed)))?;
                times.push(taken as f64);
                // Each has waited once at least.
                if round > 0 && begun.elapsed() > self.limit {
                    stop.store(1, Ordering::Relaxed);
                }
                self.set_turn(2 * (round + 1));
            }
            count += 1;
        }
        self.end(&times, count);
        Ok(())
    }

    /// Process 1 uses the lock, and computes; process 0 acquires it meanwhile.
    fn computing(&self, player: &impl LockPlayer) -> Result<(), String> {
        let (begun, stop, mut times, mut count) = (Instant::now(), self.board.stop(), Vec::new(), 0u64);
        for round in 0u64.. {
            if self.me == 1 {
                self.until_turn(player, |turn| turn == 2 * round);
                // Relaxed, here and below: the turn orders it.
                if stop.load(Ordering::Relaxed) != 0 {
                    break;
                }
                self.count(player, || ())?;
                self.set_turn(2 * round + 1);
                self.compute(2 * round + 1, || player.serve());
            } else {
                self.until_turn(player, |turn| turn == 2 * round + 1);
                self.await_moment(round);
                let (start, mut taken) = (Instant::now(), Duration::ZERO);
                self.count(player, || taken = start.elapsed())?;
                times.push(taken.as_nanos() as f64);
            }
            count += 1;
            if self.me == 0 {
                let ends = begun.elapsed() > self.limit;
                stop.store(u64::from(ends), Ordering::Relaxed);
                self.set_turn(2 * (round + 1));
                if ends {
                    break;
                }
            }
        }
        self.end(&times, count);
        Ok(())
    }

    /// Computes while a step is next, with calls between.
    pub fn compute(&self, step: u64, call: impl Fn()) {
        // (L1) Acquire: as in `until_turn`; pairs with the Release (L2).
        while self.board.turn().load(Ordering::Acquire) == step {
            let start = Instant::now();
            while start.elapsed() < COMPUTES {
                std::hint::spin_loop();
            }
            call();
        }
    }

    /// Waits until a round's moment of the other process's computing.
    pub fn await_moment(&self, round: u64) {
        std::thread::sleep(COMPUTES * (round as u32 % MOMENTS) / MOMENTS);
    }

    /// All processes use the lock all the time.
    fn contended(&self, player: &impl LockPlayer, between: usize) -> Result<(), String> {
        let (begun, stop, mut count) = (Instant::now(), self.board.stop(), 0u64);
        // Relaxed: asked for at no certain moment.
        while stop.load(Ordering::Relaxed) == 0 {
            self.count(player, || ())?;
            count += 1;
            // Relaxed: a count.
            self.board.count(self.me).store(count, Ordering::Relaxed);
            for _ in 0..between {
                std::hint::spin_loop();
            }
            if self.me == 0 && begun.elapsed() > self.limit {
                self.board.time().store(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
                stop.store(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Waits for something, and serves meanwhile; leaves the core to others that need it.
pub fn wait<P: LockPlayer>(player: &P, has_cores: bool, done: impl Fn() -> bool) {
    while !done() {
        player.serve();
        if P::HAS_SERVER {
            std::thread::sleep(Duration::from_micros(20));
        } else if has_cores {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
