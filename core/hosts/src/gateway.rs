//! Gateway: the threads between a host's segment and the links to the other hosts.
//!
//! | thread | waits for | does |
//! | --- | --- | --- |
//! | pump | the doorbell of all ranks of other hosts | a step: takes what local ranks have sent |
//! | reader, one for each link | frames | places messages of the other host, and a step |
//! | writer, one for each link | frames that the link did not take at once | sends them |
//!
//! They share the [`Pump`] under a mutex, and hold it for a step only. The thread that has
//! frames sends them after that, as far as the link takes them without waiting (`link_queue.rs`).
//!
//! **Crashes.** A gateway that dies takes its participants with it: local ranks get their messages
//! back. The other hosts lose the link, and take the ranks of this host for dead.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use towpath_channel::doorbell;
use towpath_machine::{Native, Park};
use towpath_net::{FrameReceiver, Link};
use towpath_shm::World;
use towpath_sync::Policy;
use towpath_sync::strategy::{Limits, Step, Strategy, WaitState};

use crate::Error;
use crate::expectation::{Expectation, LOOK};
use crate::hosts::Hosts;
use crate::link_queue::LinkQueue;
use crate::pump::{News, Pump};

/// Sleep while a sender stands in the middle of a send, in nanoseconds.
const SHORT: u64 = 20_000;
/// Longest time for which a gateway that is closed waits for other hosts to take its last
/// frames.
const FAREWELL: Duration = Duration::from_secs(2);

/// Gateway of this host.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<GatewayShared>,
    threads: Vec<JoinHandle<()>>,
}

/// State that the threads share.
#[derive(Debug)]
struct GatewayShared {
    pump: Mutex<Pump>,
    world: World,
    /// Rank whose doorbell is the gateway's.
    rank: u32,
    queues: Vec<Arc<LinkQueue>>,
    news: Mutex<VecDeque<News>>,
    /// Readable while there are news.
    event: OwnedFd,
    is_closing: AtomicBool,
}

impl Gateway {
    /// Starts the gateway of a host's part of a world ([`World::create_part`]), which no
    /// local process has entered yet.
    ///
    /// `links`: on the host that listens (0) one to each other host; on the others one to it.
    ///
    /// # Errors
    ///
    /// [`Error::BadHosts`], [`Error::OtherPart`] if these do not fit together; the system's.
    pub fn start(world: &World, hosts: Hosts, links: Vec<(usize, Link)>) -> Result<Gateway, Error> {
        let me = hosts.me();
        if world.local_ranks() != hosts.ranks(me) || world.size() != hosts.size() {
            return Err(Error::OtherPart { host: me, found: world.local_ranks() });
        }
        let mut linked: Vec<usize> = links.iter().map(|(host, _)| *host).collect();
        linked.sort_unstable();
        let expected: Vec<usize> = if me == 0 { (1..hosts.count()).collect() } else { vec![0] };
        let Some(rank) = (0..hosts.size()).find(|&rank| !world.is_local(rank)) else {
            return Err(Error::BadHosts("all ranks run on one host".into()));
        };
        if linked != expected {
            return Err(Error::BadHosts(format!("links to hosts {linked:?} instead of {expected:?}")));
        }
        let (mut queues, mut receivers) = (Vec::new(), Vec::new());
        for (host, link) in links {
            let monitor = link.monitor();
            let (sender, receiver) = link.split();
            queues.push((host, Arc::new(LinkQueue::new(sender, monitor))));
            receivers.push((host, receiver));
        }
        let system = |what| move |error| Error::System(what, error);
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::System("making an eventfd", error.into()))?;
        let shared = Arc::new(GatewayShared {
            pump: Mutex::new(Pump::new(world, hosts, queues.clone())?),
            world: world.clone(),
            rank,
            queues: queues.into_iter().map(|(_, queue)| queue).collect(),
            news: Mutex::default(),
            event,
            is_closing: AtomicBool::new(false),
        });
        let mut gateway = Gateway { threads: Vec::new(), shared: shared.clone() };
        let mut start = |name: &str, work: Box<dyn FnOnce(&GatewayShared) + Send>| {
            let shared = gateway.shared.clone();
            let named = std::thread::Builder::new().name(name.into());
            let thread = named.spawn(move || {
                let failed = Failing(&shared);
                work(&shared);
                std::mem::forget(failed);
            });
            thread
                .map(|thread| gateway.threads.push(thread))
                .map_err(system("starting a thread (`ulimit -u`)"))
        };
        for queue in shared.queues.clone() {
            start("towpath-writer", Box::new(move |_| queue.write_behind()))?;
        }
        for (host, receiver) in receivers {
            start("towpath-reader", Box::new(move |shared| shared.read(host, receiver)))?;
        }
        start("towpath-pump", Box::new(GatewayShared::pump_on))?;
        Ok(gateway)
    }

    /// Tells the launcher of another host, or of all others. A note arrives after the
    /// items that this gateway has told before.
    pub fn tell(&self, host: Option<usize>, note: &[u8]) {
        self.shared.lock().tell(host, note);
        self.shared.send();
    }

    /// Returns the next news, if there are any.
    #[must_use]
    pub fn news(&self) -> Option<News> {
        let mut news = self.shared.lock_news();
        let next = news.pop_front();
        if news.is_empty() {
            // Nothing to read is as good.
            let _ = rustix::io::read(&self.shared.event, &mut [0u8; 8]);
        }
        next
    }

    /// Gives up a host, as if the link to it were lost.
    pub fn give_up(&self, host: usize, why: &str) {
        let mut pump = self.shared.lock();
        if let Some(queue) = pump.link_queue(host) {
            queue.close();
        }
        pump.lose(host, why);
        pump.pass();
        self.shared.finish_step(pump);
    }

    /// Ends the gateway when the other hosts have taken its last frames: the ranks that
    /// it represents leave the world.
    pub fn close(mut self) {
        for queue in &self.shared.queues {
            queue.drain(FAREWELL);
        }
        self.end();
    }

    fn end(&mut self) {
        // Relaxed: the threads look at it whenever they are woken, below.
        self.shared.is_closing.store(true, Ordering::Relaxed);
        for queue in &self.shared.queues {
            queue.close();
        }
        self.shared.wake();
        for thread in self.threads.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Readable while there are news.
impl AsFd for Gateway {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end();
    }
}

/// Tells of the failure of a thread, if it is dropped.
struct Failing<'a>(&'a GatewayShared);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.0.add_news(vec![News::Failed]);
    }
}

impl GatewayShared {
    fn lock(&self) -> MutexGuard<'_, Pump> {
        // A step that panics ends the gateway (`Failing`): what it left is not relied on.
        self.pump.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_news(&self) -> MutexGuard<'_, VecDeque<News>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_news(&self, news: Vec<News>) {
        if !news.is_empty() {
            self.lock_news().extend(news);
            // Full only after 2⁶⁴ news that were not read.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Sends the frames of all links.
    fn send(&self) {
        self.queues.iter().for_each(|queue| queue.send());
    }

    /// Ends a step: lets the pump go, sends, and passes news on.
    fn finish_step(&self, mut pump: MutexGuard<'_, Pump>) {
        let news = pump.take_news();
        drop(pump);
        self.send();
        self.add_news(news);
    }

    fn is_closing(&self) -> bool {
        // Relaxed: as in `Gateway::end`.
        self.is_closing.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        doorbell::wake(&Native::with_id(0), self.world.doorbell(self.rank));
    }

    /// Takes the frames of a link to its end: as its reader.
    fn read(&self, host: usize, mut receiver: FrameReceiver) {
        let mut frame = Vec::new();
        let why = loop {
            if let Err(error) = receiver.receive(&mut frame) {
                break error.to_string();
            }
            let mut pump = self.lock();
            if pump.receive(host, &frame).is_err() {
                break format!("{} sent items that make no sense", receiver.peer());
            }
            pump.pass();
            // The pump's sleep would be too long for what waits now.
            let must_wake = pump.must_wake();
            self.finish_step(pump);
            if must_wake {
                self.wake();
            }
        };
        if self.is_closing() {
            return;
        }
        let mut pump = self.lock();
        if let Some(queue) = pump.link_queue(host) {
            queue.close();
        }
        pump.lose(host, &why);
        pump.pass();
        self.finish_step(pump);
    }

    /// Makes steps, and sleeps between: as the pump.
    fn pump_on(&self) {
        let cpu = Native::with_id(0);
        let strategy = Strategy::new(Policy::Adaptive, self.world.switch_cost(), &Limits::MESSAGE);
        let mut state = WaitState::default();
        let mut sleep = (Expectation::Nothing, 0);
        let mut last_look = Instant::now();
        self.lock().show_asleep(false);
        while !self.is_closing() {
            let mut pump = self.lock();
            if last_look.elapsed() >= LOOK {
                last_look = Instant::now();
                pump.look_around();
                pump.lose_silent();
            }
            let moved = pump.pass();
            let expectation = pump.expectation();
            self.finish_step(pump);
            if moved {
                (state, sleep) = (WaitState::default(), (expectation, 0));
                continue;
            }
            match strategy.next(&mut state, || self.world.surroundings().oversubscribed()) {
                Step::Spin(ns) => self.spin(ns),
                Step::Yield => cpu.yield_now(),
                Step::Park(_) => {
                    let before = if sleep.0 == expectation { sleep.1 } else { 0 };
                    let next = (2 * before).clamp(expectation.first_sleep(), expectation.longest_sleep());
                    sleep = (expectation, next);
                    self.sleep(next);
                }
            }
        }
    }

    /// Makes steps for some time, until something moves.
    fn spin(&self, ns: u64) {
        let until = Instant::now() + Duration::from_nanos(ns);
        while Instant::now() < until && !self.is_closing() {
            let mut pump = self.lock();
            let moved = pump.pass();
            self.finish_step(pump);
            if moved {
                return;
            }
        }
    }

    /// Sleeps for at most so many nanoseconds, unless something has come.
    fn sleep(&self, most: u64) {
        let (cpu, word) = (Native::with_id(0), self.world.doorbell(self.rank));
        let count = doorbell::count(&cpu, word);
        let mut pump = self.lock();
        let may_sleep = pump.arm();
        pump.show_asleep(true);
        let most = if may_sleep { most } else { most.min(SHORT) };
        pump.sleeps_for(most);
        drop(pump);
        if !self.is_closing() {
            cpu.park(word, count, most);
        }
        let mut pump = self.lock();
        pump.sleeps_for(0);
        pump.show_asleep(false);
        pump.disarm();
    }
}
