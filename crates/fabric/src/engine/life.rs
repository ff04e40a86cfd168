//! Deaths, departures, and waiting.
//!
//! A peer that dies, or says good-bye, takes with it what is under way with it: each operation ends with an error. What it had sent before still arrives.

use towpath_machine::{Native, Processor};

use super::completion::error;
use super::endpoint::{Core, Endpoint, Refusal};
use super::frame::Kind;
use super::layout::MEMBERS;
use super::peer::{Queued, Way};
use super::receive::Body;
use super::settings::Settings;

/// How often the peers' lives are looked at while nothing happens, in nanoseconds.
const LOOK_EVERY: u64 = 10_000_000;
/// Polls closer together than this belong to one loop that waits, in nanoseconds.
const TIGHT: u64 = 10_000;
/// So many empty polls in a loop before one takes its time.
const PATIENT_AFTER: u32 = 3;
/// So many in a loop, some ten milliseconds, and it sleeps even where there are cores enough.
const TIRED: u32 = 5_000;
/// What the first ones may take: less than a program that has other things to do would notice, and more than an answer takes, in nanoseconds.
const GLANCE: u64 = 1_000;

/// Who was asked to wait sleeps after so many pauses.
const LONG: u32 = 20;

/// What a program that polls in vain is doing.
#[derive(Debug, Default)]
pub struct Idle {
    empty: u32,
    /// The clock at the end of the last step: the thread's own where cores are shared.
    last: u64,
    looked: u64,
    crowded: bool,
}

/// How to wait now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Not at all.
    None,
    /// Look on for so many nanoseconds.
    Spin(u64),
    /// Let others run.
    Yield,
    /// Sleep for so many nanoseconds.
    Sleep(u64),
}

/// The calling thread's processor time, in nanoseconds.
#[allow(unsafe_code)]
fn cpu_time() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Idle {
    /// Something happened.
    #[inline(always)]
    pub fn reset(&mut self) {
        self.empty = 0;
    }

    /// A poll found nothing: what to do, and whether it is time to look after things.
    pub fn step(&mut self, crowded: bool, settings: &Settings) -> (Pause, bool) {
        let now = Native::with_id(0).now();
        // Where cores are shared, time passes while others run: only what the thread itself has used tells what it was doing.
        let used = if crowded { cpu_time() } else { now };
        let tight = used.wrapping_sub(self.last) < TIGHT;
        self.last = used;
        self.crowded = crowded;
        let look = now.wrapping_sub(self.looked) >= LOOK_EVERY;
        if look {
            self.looked = now;
        }
        if !tight {
            self.empty = 0;
        }
        self.empty = self.empty.saturating_add(1);
        let pause = match self.empty {
            n if !crowded && n <= PATIENT_AFTER => Pause::Spin(GLANCE.min(settings.spin)),
            n if !crowded && n >= TIRED => Pause::Sleep(settings.nap),
            // Other programs may want the core even where the ranks have one each.
            n if !crowded && n.is_multiple_of(2) => Pause::Yield,
            _ if !crowded => Pause::Spin(settings.spin),
            1 => Pause::None,
            n if n <= 1 + settings.yields => Pause::Yield,
            _ => Pause::Sleep(settings.nap),
        };
        (pause, look)
    }

    /// Whether it has been waiting for long enough to sleep.
    pub fn is_long(&self) -> bool {
        self.empty > LONG
    }

    /// A pause has ended.
    pub fn paused(&mut self) {
        self.last = if self.crowded { cpu_time() } else { Native::with_id(0).now() };
    }
}

impl Endpoint {
    /// Looks after what progress does not see: deaths, and places in the queue whose senders stopped.
    #[cold]
    pub fn look_after(&mut self) {
        let (mut dead, mut closed) = (Vec::new(), Vec::new());
        for (number, peer) in self.core.peers.iter_mut().enumerate().filter(|(_, p)| !p.dead) {
            let process = peer.address.process();
            if peer.watch.get_or_insert_with(|| process.watch()).is_dead() {
                dead.push(number as u32);
            } else if !peer.gone && matches!(&peer.way, Way::Open(link) if link.is_closed()) {
                // One that never sent to us says no good-bye.
                closed.push(number as u32);
            }
        }
        if !dead.is_empty() || !closed.is_empty() {
            // What they had sent comes first.
            while self.progress() > 0 {}
        }
        for number in closed {
            self.core.lose(number);
        }
        self.port.look_after(!dead.is_empty());
        for number in dead {
            while self.progress() > 0 {}
            self.core.bury(number);
            if let Some(member) = self.core.peers[number as usize].member.take() {
                self.core.by_member[usize::from(member.place)] = None;
                self.port.leave(member);
            }
        }
        // Those who died before they had said anything.
        for place in 0..MEMBERS {
            if self.core.by_member[place].is_none()
                && let Some(member) = self.port.dead_member(place)
            {
                self.port.leave(member);
            }
        }
    }

    /// Says good-bye, and takes nothing more.
    pub fn close(&mut self) {
        // What waits for space goes out as long as somebody makes some.
        for _ in 0..1000 {
            self.progress();
            if !self.is_stuck() {
                break;
            }
            Native::with_id(0).delay(1000);
        }
        for peer in 0..self.core.peers.len() as u32 {
            let open = matches!(self.core.peers[peer as usize].way, Way::Open(_));
            if open && !self.core.peers[peer as usize].gone {
                self.core.post(peer, Kind::Bye, 0, [0; 4], &[]);
            }
        }
        self.port.close();
    }
}

impl Core {
    /// A peer takes nothing more: whoever sends to it learns that.
    #[cold]
    pub(super) fn lost(&mut self, peer: u32) -> Refusal {
        self.lose(peer);
        Refusal::Unreachable
    }

    /// Ends what is under way with a peer that is gone.
    #[cold]
    pub(super) fn lose(&mut self, number: u32) {
        let peer = &mut self.peers[number as usize];
        if core::mem::replace(&mut peer.gone, true) {
            return;
        }
        let queue = core::mem::take(&mut peer.queue);
        peer.assembly = None;
        peer.offered = None;
        let mut tickets = Vec::new();
        for queued in queue {
            if let Queued::Stream(stream) = queued {
                tickets.extend(stream.then);
            }
        }
        let streams = core::mem::take(&mut self.streams);
        for (to, stream) in streams {
            if to == number {
                tickets.extend(stream.then);
            } else {
                self.streams.push_back((to, stream));
            }
        }
        for held in self.held.numbers(|held| held.peer == number) {
            tickets.extend(self.held.remove(held).map(|h| h.ticket));
        }
        for operation in self.onesided.numbers(|o| o.peer == number) {
            tickets.extend(self.onesided.remove(operation).map(|o| o.ticket));
        }
        for ticket in tickets {
            self.reports.end(&ticket, error::UNREACHABLE);
        }
        for active in self.active.numbers(|a| a.envelope.peer == number) {
            if let Some(active) = self.active.remove(active) {
                self.finish(&active.receive, &active.envelope, error::UNREACHABLE);
            }
        }
        for space in [&mut self.tagged, &mut self.untagged] {
            for place in space.search_waiting(|source, _| source == number) {
                if let Some(message) = space.waiting_mut(place)
                    && !matches!(&message.body, Body::Bytes(bytes) if bytes.len() >= message.envelope.len)
                {
                    message.body = Body::Lost;
                }
            }
        }
    }

    /// A peer is dead: nobody else will fulfil the receives that wait for it alone.
    #[cold]
    fn bury(&mut self, number: u32) {
        self.lose(number);
        let peer = &mut self.peers[number as usize];
        peer.way = Way::Closed;
        peer.dead = true;
        peer.watch = None;
        for tagged in [true, false] {
            loop {
                let space = if tagged { &mut self.tagged } else { &mut self.untagged };
                let Some(place) = space.search_posted(|pattern, _| pattern.source == number) else { break };
                let Some(receive) = space.take_posted(place) else { break };
                self.fail_receive(&receive, error::UNREACHABLE);
            }
        }
    }
}
