//! Party of an application over messages: an endpoint with handlers, and a barrier.
//!
//! The barrier is a dissemination barrier of short messages (Hensgen, Finkel & Manber 1988), so
//! that it is the same on real and on simulated processors, and ranks handle messages while they
//! wait. Each of its messages carries a flag: together they tell all ranks whether one of them has
//! set it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use towpath_am::{Domain, Endpoint, SharedMemory, Token};
use towpath_machine::Processor;

/// Domain whose endpoints take handlers that threads may share.
pub trait SharedHandlers: Domain {
    /// Boxes a handler.
    fn boxed(handler: impl Fn(&Token<'_, Self>) + Send + Sync + 'static) -> Box<Self::Handler>;
}

impl SharedHandlers for SharedMemory {
    fn boxed(handler: impl Fn(&Token<'_>) + Send + Sync + 'static) -> Box<Self::Handler> {
        Box::new(handler)
    }
}

/// Handler of messages that come back.
const RETURNED: u8 = 0;
/// Handler of the barrier's messages.
const ARRIVAL: u8 = 1;
/// Handler of acknowledgements.
const ACKNOWLEDGED: u8 = 2;
/// First handler that an application may set.
pub const FIRST: u8 = 3;

/// Most rounds of the barrier.
const ROUNDS: usize = 12;

/// Arrivals at the barrier that a rank has heard of. All are counts that only the rank's
/// own thread changes, in its handlers.
#[derive(Default)]
struct Arrivals {
    /// Number of messages in each round.
    heard: [AtomicU32; ROUNDS],
    /// Flag of each round, one for odd episodes and one for even ones.
    flags: [[AtomicU32; 2]; ROUNDS],
    /// Number of acknowledgements.
    acknowledged: AtomicU64,
    /// Number of messages that came back.
    returned: AtomicU64,
}

/// Bumps a count that one thread changes.
fn bump(count: &AtomicU64) {
    // Relaxed, here and wherever this file counts: handlers run in the thread that reads.
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Rank of an application over messages.
pub struct Party<'e, D: SharedHandlers> {
    endpoint: &'e Endpoint<D>,
    rank: usize,
    procs: usize,
    arrivals: Arc<Arrivals>,
    episode: Cell<u32>,
    sent: Cell<u64>,
    asked: Cell<u64>,
}

impl<D: SharedHandlers> std::fmt::Debug for Party<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Party").field("rank", &self.rank).finish_non_exhaustive()
    }
}

impl<'e, D: SharedHandlers> Party<'e, D> {
    /// Makes the party of an endpoint whose translation table has the ranks' endpoints.
    pub fn new(endpoint: &'e Endpoint<D>, rank: usize, procs: usize) -> Self {
        let arrivals = Arc::new(Arrivals::default());
        let party = Party {
            endpoint,
            rank,
            procs,
            arrivals: Arc::clone(&arrivals),
            episode: Cell::new(0),
            sent: Cell::new(0),
            asked: Cell::new(0),
        };
        let state = Arc::clone(&arrivals);
        party.on(RETURNED, move |_| bump(&state.returned));
        let state = Arc::clone(&arrivals);
        party.on(ARRIVAL, move |token| {
            if let [round, episode, flag] = *token.args()
                && let Some(heard) = state.heard.get(round as usize)
            {
                state.flags[round as usize][episode as usize % 2].store(flag, Ordering::Relaxed);
                heard.store(heard.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        });
        party.on(ACKNOWLEDGED, move |_| bump(&arrivals.acknowledged));
        party
    }

    /// Number of this rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn procs(&self) -> usize {
        self.procs
    }

    /// Number of requests that this rank has sent.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Maximum number of bytes in a block.
    pub fn block(&self) -> usize {
        self.endpoint.config().block_size as usize
    }

    /// Time, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.endpoint.domain().cpu().now()
    }

    /// Notes instructions of the application: [`Processor::instructions`].
    pub fn instructions(&self, count: u64) {
        self.endpoint.domain().cpu().instructions(count);
    }

    /// Sets a handler, numbered from [`FIRST`] on.
    pub fn on(&self, index: u8, handler: impl Fn(&Token<'_, D>) + Send + Sync + 'static) {
        self.endpoint.set_boxed_handler(index, D::boxed(handler));
    }

    /// Sends a short request, and handles messages while it waits for space.
    ///
    /// # Errors
    ///
    /// The endpoint's.
    pub fn send(&self, to: usize, handler: u8, args: &[u32]) -> Result<(), String> {
        self.sent.set(self.sent.get() + 1);
        self.endpoint.request(to, handler, args).map_err(|e| e.to_string())
    }

    /// Sends a short request that its handler acknowledges with [`acknowledge`], or
    /// answers and counts so by [`Party::answered`].
    ///
    /// # Errors
    ///
    /// The endpoint's.
    pub fn ask(&self, to: usize, handler: u8, args: &[u32]) -> Result<(), String> {
        self.asked.set(self.asked.get() + 1);
        self.send(to, handler, args)
    }

    /// Sends a block.
    ///
    /// # Errors
    ///
    /// The endpoint's.
    pub fn send_block(&self, to: usize, handler: u8, args: &[u32], bytes: &[u8]) -> Result<(), String> {
        self.sent.set(self.sent.get() + 1);
        self.endpoint.request_medium(to, handler, args, bytes).map_err(|e| e.to_string())
    }

    /// Counter of answers, for an application's own handler of replies.
    pub fn answered(&self) -> Box<dyn Fn() + Send + Sync> {
        let arrivals = Arc::clone(&self.arrivals);
        Box::new(move || bump(&arrivals.acknowledged))
    }

    /// Handles the messages that are there.
    pub fn poll(&self) {
        self.endpoint.poll();
    }

    /// Handles messages until `done`.
    ///
    /// # Errors
    ///
    /// If a message came back: a rank is gone.
    pub fn until(&self, mut done: impl FnMut() -> bool) -> Result<(), String> {
        let returned = &self.arrivals.returned;
        self.endpoint.poll_until(|| done() || returned.load(Ordering::Relaxed) > 0);
        match returned.load(Ordering::Relaxed) {
            0 => Ok(()),
            n => Err(format!("{n} messages of rank {} came back: a rank is gone", self.rank)),
        }
    }

    /// Waits until all that this rank has asked is answered.
    ///
    /// # Errors
    ///
    /// As [`Party::until`].
    pub fn settle(&self) -> Result<(), String> {
        let asked = self.asked.get();
        self.until(|| self.arrivals.acknowledged.load(Ordering::Relaxed) >= asked)
    }

    /// Waits until all ranks are here. Returns whether one of them has set its flag.
    ///
    /// Requests that were sent before and not answered may still be under way.
    ///
    /// # Errors
    ///
    /// As [`Party::until`].
    pub fn meet(&self, flag: bool) -> Result<bool, String> {
        let episode = self.episode.get() + 1;
        self.episode.set(episode);
        let mut any = u32::from(flag);
        for round in (0..ROUNDS).take_while(|r| 1 << r < self.procs) {
            let to = (self.rank + (1 << round)) % self.procs;
            self.send(to, ARRIVAL, &[round as u32, episode, any])?;
            let heard = &self.arrivals.heard[round];
            // One message in each episode, by the same rank: it may be one episode ahead.
            self.until(|| heard.load(Ordering::Relaxed) >= episode)?;
            any |= self.arrivals.flags[round][episode as usize % 2].load(Ordering::Relaxed);
        }
        Ok(any != 0)
    }
}

/// Acknowledges a request that was sent by [`Party::ask`].
pub fn acknowledge<D: Domain>(token: &Token<'_, D>) {
    // A request is answered once, and its sender is not gone, or is past caring.
    let _ = token.reply(ACKNOWLEDGED, &[]);
}
