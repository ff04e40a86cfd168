//! Towpath's claim algorithms as contenders: each measurement makes a world of its own
//! and ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath::{Algorithm, Endpoint, Policy, World, WorldConfig};

use crate::experiments::floor::line::{Lines, Probing};
use crate::experiments::floor::memcpy::{PAGE, at_page};
use crate::shared::{Left, LogPFigures, StressReader, StressWriter};
use crate::transport::{Circumstances, Contender, ContenderSide, Crash, ShortMessage, Stress};
use towpath_host::Error;
use towpath_host::process::{SharedPages, SharedRow, cpu_time, team};
use towpath_papers::paper::LogP;
use towpath_report::stats::{InTurn, median_of_batches, medians_in_turn, percentile};

/// A claim algorithm under a waiting policy.
pub struct Ours {
    algorithm: Algorithm,
    policy: Policy,
}

/// Messages.
const COUNT: u8 = 1;
const ECHO: u8 = 2;
const STOP: u8 = 3;
const FLOOR: u8 = 4;

/// Operations timed together.
const BATCH: u64 = 200;
/// Operations before those that are timed, when the processes change from endpoints to
/// cache lines and back.
const CHANGE: u64 = 40;
/// Least number of batches of endpoints' round trips, and of cache lines'.
const BATCHES_IN_TURN: usize = 20;

/// The exit code of a process whose part failed, with the reason on stderr.
const FAILED: i32 = 3;
/// Time beyond the measurement's own limit, to start and end when cores are few and other
/// programs busy.
const GRACE: Duration = Duration::from_secs(60);

impl Ours {
    /// The contender for these.
    pub fn new(algorithm: Algorithm, policy: Policy) -> Ours {
        Ours { algorithm, policy }
    }

    fn config(&self, processes: u32) -> WorldConfig {
        WorldConfig { algorithm: self.algorithm, waiting: self.policy, ..WorldConfig::new(processes) }
    }

    /// Runs `part` as each rank of a world, in processes of their own, each with an
    /// endpoint that knows all the others.
    fn measure(
        &self,
        config: &WorldConfig,
        run: &Circumstances<'_>,
        segment: SegmentChoice,
        part: impl Fn(&Endpoint, u32) -> Result<(), towpath::Error>,
    ) -> Result<(), Error> {
        let world = towpath::create(None, config).map_err(other)?;
        let procs = config.processes as usize;
        let cores: Vec<_> = (0..procs).map(|n| run.placement.core_for(n, procs)).collect();
        team(&cores, run.limit * 4 + GRACE, |rank| match take_part(&world, rank as u32, segment, &part) {
            Ok(()) => 0,
            Err(error) => {
                towpath_report::console::remark(format_args!("process {rank}: {error}"));
                FAILED
            }
        })?;
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum SegmentChoice {
    None,
    Private(usize),
    Shared,
}

fn take_part(
    world: &World,
    rank: u32,
    segment: SegmentChoice,
    part: impl Fn(&Endpoint, u32) -> Result<(), towpath::Error>,
) -> Result<(), towpath::Error> {
    world.enter(Some(rank))?;
    let endpoint = match segment {
        SegmentChoice::None => Endpoint::new(world)?,
        SegmentChoice::Private(len) => Endpoint::with_private_segment(world, len)?,
        SegmentChoice::Shared => Endpoint::with_shared_segment(world)?,
    };
    endpoint.map_world()?;
    let policy = endpoint.config().waiting;
    world.barrier(policy)?;
    part(&endpoint, rank)?;
    world.barrier(policy)?;
    Ok(())
}

fn other(error: towpath::Error) -> Error {
    Error::Other(Box::new(error))
}

/// A counter that a handler bumps: only one thread writes it, so a load and a store do.
fn counter() -> (Arc<AtomicU64>, impl Fn() + Send + Sync) {
    let count = Arc::new(AtomicU64::new(0));
    let bumped = count.clone();
    // Relaxed: handlers run in the thread that reads the count.
    (count, move || bumped.store(bumped.load(Ordering::Relaxed) + 1, Ordering::Relaxed))
}

fn seen(count: &AtomicU64) -> u64 {
    // Relaxed: as in `counter`.
    count.load(Ordering::Relaxed)
}

/// Answers requests until told to stop.
fn serve(endpoint: &Endpoint) {
    serve_beside(endpoint, || ());
}

/// Answers requests until told to stop, and calls `floor` after each [`FLOOR`].
fn serve_beside(endpoint: &Endpoint, floor: impl Fn()) {
    let (stopped, stop) = counter();
    let (asked, ask) = counter();
    endpoint.set_handler(ECHO, |message| {
        // A request is replied to once: this can't fail.
        let _ = message.reply(COUNT, message.args());
    });
    endpoint.set_handler(FLOOR, move |message| {
        // A request is replied to once: this can't fail.
        let _ = message.reply(COUNT, message.args());
        ask();
    });
    endpoint.set_handler(STOP, move |_| stop());
    let mut floors = 0;
    while seen(&stopped) == 0 {
        endpoint.poll_until(|| seen(&stopped) > 0 || seen(&asked) > floors);
        if seen(&asked) > floors {
            floors += 1;
            floor();
        }
    }
}

/// Measures the round trip, in nanoseconds, and its ratio to the two lines' round trip:
/// batches of one and of the other in turn, since a machine may change its speed within a second.
fn round_trip_and_floor(
    endpoint: &Endpoint,
    replies: &AtomicU64,
    lines: &Lines<'_>,
    limit: Duration,
) -> Result<InTurn, towpath::Error> {
    medians_in_turn(limit, BATCHES_IN_TURN, || {
        // A request with a reply, like the others, which the reply predictor goes by.
        ping(endpoint, FLOOR, replies)?;
        lines.ask(CHANGE);
        let floor = lines.ask(BATCH);
        (0..CHANGE).try_for_each(|_| ping(endpoint, ECHO, replies))?;
        let start = Instant::now();
        (0..BATCH).try_for_each(|_| ping(endpoint, ECHO, replies))?;
        Ok((floor, start.elapsed().as_nanos() as f64 / BATCH as f64))
    })
}

/// Sends a request and waits for the reply, polling all the time: the waiting policy is
/// for what takes longer.
fn ping(endpoint: &Endpoint, handler: u8, replies: &AtomicU64) -> Result<(), towpath::Error> {
    let before = seen(replies);
    endpoint.request(0, handler, &[1, 2])?;
    let mut polls = 0u32;
    while seen(replies) == before {
        if endpoint.poll() == 0 {
            polls += 1;
            if polls > 4096 {
                endpoint.wait(Some(Duration::from_millis(100)));
            }
        }
    }
    Ok(())
}

/// Sends `mine` messages of writer `n`, or as many as the time allows. Returns their
/// number.
fn write_to_reader(
    endpoint: &Endpoint,
    n: usize,
    mine: u64,
    reader: &StressReader,
) -> Result<u64, towpath::Error> {
    let mut sent = 0;
    // Relaxed: nothing is read because of it.
    while sent < mine && reader.over.load(Ordering::Relaxed) == 0 {
        endpoint.request(0, COUNT, &[n as u32, sent as u32])?;
        sent += 1;
    }
    Ok(sent)
}

/// Receives until all writers have finished, which they are told to do at `limit`.
///
/// The reader alone looks at the clock: among spinning processes a writer may get only one message
/// out each time that it runs, so that counting its messages would tell it far too late.
fn read_from_writers(
    endpoint: &Endpoint,
    messages: u64,
    limit: Duration,
    board: &[StressWriter],
    reader: &StressReader,
) {
    let counts: Arc<Vec<AtomicU64>> = Arc::new(board.iter().map(|_| AtomicU64::new(0)).collect());
    let (total, bump) = counter();
    let of_writer = counts.clone();
    endpoint.set_handler(COUNT, move |message| {
        if let Some(count) = message.args().first().and_then(|&n| of_writer.get(n as usize)) {
            // Relaxed: as in `counter`.
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            bump();
        }
    });
    let start = Instant::now();
    let mut polls = 0u32;
    let mut shares_taken = false;
    // Polls that find nothing before the reader waits as its policy says.
    let patience = if endpoint.config().waiting == Policy::Park { 0 } else { 64 };
    let mut idle = 0u32;
    loop {
        let mut waited = false;
        if endpoint.poll() > 0 {
            idle = 0;
        } else {
            idle += 1;
            if idle > patience {
                endpoint.wait(Some(Duration::from_millis(10)));
                (idle, waited) = (0, true);
            }
        }
        let arrived = seen(&total);
        polls += 1;
        if (waited || polls.is_multiple_of(64)) && start.elapsed() > limit {
            // Relaxed: as where it is read.
            reader.over.store(1, Ordering::Relaxed);
        }
        if arrived < messages && !polls.is_multiple_of(16) {
            continue;
        }
        // (O2) Acquire: pairs with the writers' Release (O1).
        let sent: Vec<u64> = board.iter().map(|w| w.finished.load(Ordering::Acquire)).collect();
        let first_done =
            sent.iter().zip(counts.iter()).any(|(sent, count)| *sent > 0 && seen(count) + 1 >= *sent);
        if first_done && !shares_taken {
            shares_taken = true;
            for (writer, count) in board.iter().zip(counts.iter()) {
                writer.share.put(seen(count) as f64);
            }
        }
        if sent.iter().all(|&s| s > 0) && arrived >= sent.iter().map(|s| s - 1).sum() {
            break;
        }
    }
    reader.figures.seconds.put(start.elapsed().as_secs_f64());
    reader.figures.messages.put(seen(&total) as f64);
}

impl Contender for Ours {
    fn name(&self) -> &str {
        self.algorithm.name()
    }

    fn waiting(&self) -> &str {
        self.policy.name()
    }

    fn side(&self) -> ContenderSide {
        ContenderSide::Ours
    }

    /// Measures the LogP parameters like Culler et al. 1996 (the paper's [8]): the round
    /// trip from one request at a time; o_s from short bursts; o_r from an iteration that sends,
    /// computes for longer than a round trip, and polls, less the first two (medians of batches,
    /// all of them); g from a long one-way stream.
    fn logp(&mut self, run: &Circumstances<'_>) -> Result<ShortMessage, Error> {
        let figures: SharedRow<LogPFigures> = SharedRow::row(1)?;
        let figures = &figures[0];
        let pages = SharedPages::new(2)?;
        self.measure(&self.config(2), run, SegmentChoice::None, |endpoint, rank| {
            let lines = Lines::new(&pages, 2, Probing::Pausing);
            if rank == 0 {
                serve_beside(endpoint, || lines.answer(CHANGE + BATCH));
                return Ok(());
            }
            let (replies, bump) = counter();
            endpoint.set_handler(COUNT, move |_| bump());
            for _ in 0..2_000 {
                ping(endpoint, ECHO, &replies)?;
            }
            let share = run.limit / 4;
            let round_trip = if run.placement.cores() < 2 {
                // Lines that travel nowhere are no floor.
                median_of_batches(share, BATCH, |n| (0..n).try_for_each(|_| ping(endpoint, ECHO, &replies)))?
            } else {
                let found = round_trip_and_floor(endpoint, &replies, &lines, share)?;
                figures.over_floor.put(found.ratio);
                found.second
            };
            figures.round_trip.put(round_trip);

            // Only the sending is timed: what comes back is waited for between the bursts.
            const BURST: u64 = 16;
            let mut times = Vec::new();
            let begun = Instant::now();
            while begun.elapsed() < share {
                let before = seen(&replies);
                let start = Instant::now();
                for _ in 0..BURST {
                    endpoint.request(0, ECHO, &[1, 2])?;
                }
                times.push(start.elapsed().as_nanos() as f64 / BURST as f64);
                endpoint.poll_until(|| seen(&replies) >= before + BURST);
            }
            let send = percentile(&times, 50.0).unwrap_or(f64::NAN);
            figures.send.put(send);

            let pause = Duration::from_nanos((round_trip * 3.0).max(1_000.0) as u64);
            let busy = || {
                let until = Instant::now() + pause;
                while Instant::now() < until {}
            };
            let iteration = median_of_batches(share, BATCH, |n| {
                (0..n).try_for_each(|_| {
                    endpoint.request(0, ECHO, &[1, 2])?;
                    busy();
                    endpoint.poll();
                    Ok::<(), towpath::Error>(())
                })
            })?;
            let empty = median_of_batches(share / 4, BATCH, |n| {
                (0..n).for_each(|_| busy());
                Ok::<(), towpath::Error>(())
            })?;
            // On a single core the receiver has not run while this process computed: there was no
            // reply to poll.
            let has_replies = run.placement.cores() > 1;
            figures.receive.put(if has_replies { iteration - empty - send } else { f64::NAN });
            // The last replies.
            endpoint.request(0, STOP, &[])?;
            while endpoint.poll() > 0 {}
            Ok(())
        })?;
        let messages = ((run.limit.as_secs_f64() / 4.0) * 1e7) as u64;
        let stream = self.stress(1, messages.max(10_000), run)?;
        let gap = stream.seconds * 1e9 / stream.messages.max(1) as f64;
        let (send, receive) = (figures.send.get(), figures.receive.get());
        Ok(ShortMessage {
            logp: LogP::from_measured(send, receive, gap, figures.round_trip.get()),
            round_trip_over_floor: Some(figures.over_floor.get()).filter(|ratio| *ratio > 0.0),
        })
    }

    fn stress(&mut self, writers: u32, messages: u64, run: &Circumstances<'_>) -> Result<Stress, Error> {
        if writers == 0 || writers >= towpath_am::MAX_ENDPOINTS {
            return Err(Error::NotAvailable(format!(
                "{writers} writers: 1 to {} fit in a world",
                towpath_am::MAX_ENDPOINTS - 1
            )));
        }
        let board: SharedRow<StressWriter> = SharedRow::row(writers as usize)?;
        // In pages of its own: the writers read it all the time.
        let reader: SharedRow<StressReader> = SharedRow::row(1)?;
        let reader = &reader[0];
        self.measure(&self.config(writers + 1), run, SegmentChoice::None, |endpoint, rank| {
            let started = cpu_time();
            let cpu = || (cpu_time() - started).as_secs_f64();
            if rank > 0 {
                let n = rank as usize - 1;
                let mine =
                    messages / u64::from(writers) + u64::from(messages % u64::from(writers) > n as u64);
                let sent = write_to_reader(endpoint, n, mine, reader)?;
                // (O1) Release: after the sends; pairs with the reader's Acquire (O2).
                board[n].finished.store(sent + 1, Ordering::Release);
                board[n].cpu.put(cpu());
            } else {
                read_from_writers(endpoint, messages, run.limit, &board, reader);
                reader.figures.cpu.put(cpu());
            }
            Ok(())
        })?;
        let figures = &reader.figures;
        Ok(Stress {
            messages: figures.messages.get() as u64,
            seconds: figures.seconds.get(),
            shares: board.iter().map(|w| w.share.get()).collect(),
            cpu_seconds: Some(board.iter().map(|w| w.cpu.get()).sum::<f64>() + figures.cpu.get()),
        })
    }

    /// `direct`: into a segment in shared memory, one copy, by the sender. `blocks`: into
    /// private memory, through the bulk queue, two copies, one by each.
    fn bulk_paths(&self) -> &'static [&'static str] {
        &["direct", "blocks"]
    }

    fn bulk(&mut self, bytes: u64, path: &str, run: &Circumstances<'_>) -> Result<f64, Error> {
        /// Minimum number of bytes of a direct transfer that is under way alone.
        ///
        /// Two targets would need more of the caches and of the TLB than memcpy does, and a round
        /// trip is nothing beside the time of the copy.
        const ALONE: u64 = 4 << 20;
        let figure: SharedRow<Left> = SharedRow::row(1)?;
        // Transfers under way at one time, each to its own place.
        let window = if path == "direct" && bytes >= ALONE { 1 } else { 2 };
        let room = (bytes * window).next_multiple_of(64);
        let (config, segment) = match path {
            "direct" => (WorldConfig { segment_bytes: room, ..self.config(2) }, SegmentChoice::Shared),
            _ => (self.config(2), SegmentChoice::Private(room as usize)),
        };
        self.measure(&config, run, segment, |endpoint, rank| {
            if rank == 0 {
                serve(endpoint);
                return Ok(());
            }
            let (replies, bump) = counter();
            endpoint.set_handler(COUNT, move |_| bump());
            // At the beginning of a page, as memcpy's.
            let whole: Vec<u8> = (0..bytes + PAGE as u64).map(|n| n as u8).collect();
            let source = &whole[at_page(&whole, bytes as usize)];
            let mut sent = 0u64;
            let mut transfer = |n: u64| -> Result<(), towpath::Error> {
                for _ in 0..n {
                    let offset = sent % window * bytes;
                    endpoint.request_long(0, ECHO, &[], source, offset)?;
                    sent += 1;
                    let done = sent.saturating_sub(window - 1);
                    if seen(&replies) < done {
                        endpoint.poll_until(|| seen(&replies) >= done);
                    }
                }
                endpoint.poll_until(|| seen(&replies) >= sent);
                Ok(())
            };
            let round = (4_000_000 / bytes.max(1)).clamp(4, 2_000);
            transfer(round)?;
            let (count, time) = repeat(run.limit / 2, round, transfer)?;
            figure[0].put((bytes * count) as f64 / time.as_secs_f64());
            endpoint.request(0, STOP, &[])?;
            Ok(())
        })?;
        Ok(figure[0].get())
    }

    fn crash(&mut self, kills: u32, run: &Circumstances<'_>) -> Result<Crash, Error> {
        crate::crash_test::run(self.algorithm, self.policy, kills, run)
    }

    fn idle(&mut self, run: &Circumstances<'_>) -> Result<f64, Error> {
        let figure: SharedRow<Left> = SharedRow::row(1)?;
        self.measure(&self.config(1), run, SegmentChoice::None, |endpoint, _| {
            let wall = Instant::now();
            let cpu = cpu_time();
            endpoint.wait(Some(run.limit.min(Duration::from_millis(1500))));
            figure[0].put((cpu_time() - cpu).as_secs_f64() / wall.elapsed().as_secs_f64());
            Ok(())
        })?;
        Ok(figure[0].get())
    }
}

/// Calls `body` with a growing count until about `limit` has passed; returns the last
/// call's count and time, which is most of it.
fn repeat(
    limit: Duration,
    first: u64,
    mut body: impl FnMut(u64) -> Result<(), towpath::Error>,
) -> Result<(u64, Duration), towpath::Error> {
    let mut count = first;
    loop {
        let start = Instant::now();
        body(count)?;
        let time = start.elapsed();
        if time * 3 >= limit {
            return Ok((count, time));
        }
        let growth = (limit.as_secs_f64() / 2.0 / time.as_secs_f64().max(1e-7)).clamp(2.0, 64.0);
        count = (count as f64 * growth) as u64;
    }
}
