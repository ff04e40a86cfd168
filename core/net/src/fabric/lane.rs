//! Frames through an endpoint: the two halves of a link.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::endpoint::{FabricEndpoint, Half, MESSAGE};
use crate::SILENCE;
use crate::frame::{NumberedRecord, Opener, ReadFailure, Sealer, TAG};

/// Text of a farewell.
const FAREWELL: &[u8; 8] = b"farewell";
/// Number of bytes of a farewell.
const FAREWELL_BYTES: usize = 8 + FAREWELL.len() + TAG;
/// Number of bytes of a message before the record.
const NUMBER: usize = 8;
/// Longest sleep while messages are on their way out: it is this side that moves them on.
const BUSY: Duration = Duration::from_millis(1);
/// Longest sleep of a receiver.
const IDLE: Duration = Duration::from_millis(500);
/// Sleep of a receiver whose provider has no descriptor to wait for.
const NAP: Duration = Duration::from_micros(50);
/// Time for which messages of a peer that has left without farewell are still taken.
const LAST: Duration = Duration::from_millis(20);

/// State that both halves share.
#[derive(Debug)]
struct FabricLane {
    endpoint: FabricEndpoint,
    /// Slots of the sending half that are neither under way nor about to be.
    free: Mutex<Vec<usize>>,
    /// Number of messages that were posted and have not left.
    leaving: AtomicUsize,
    /// Readable when the receiving half is to look at `leaving`.
    ///
    /// That half moves the provider's work on while the sending half is not used.
    hint: OwnedFd,
}

/// Sending half.
#[derive(Debug)]
pub struct LaneSender {
    lane: Arc<FabricLane>,
    /// Slot with a message that the endpoint has not taken, and its length.
    refused: Option<(usize, usize)>,
    /// Frames, and the number of bytes of the first one that were sealed.
    frames: VecDeque<Vec<u8>>,
    sealed: usize,
    /// True once the farewell is said: later frames are dropped.
    is_finished: bool,
}

/// Receiving half.
#[derive(Debug)]
pub struct LaneReceiver {
    lane: Arc<FabricLane>,
    /// Slots that the endpoint has not taken back.
    idle: Vec<usize>,
    peer: PeerState,
    /// Bytes of a farewell that have come.
    farewell: Vec<u8>,
    /// Longest wait for a message.
    pub at_most: Option<Duration>,
}

/// State of the peer, by the TCP connection.
#[derive(Debug)]
enum PeerState {
    There,
    /// The number of records that it has sealed, and the time of its farewell.
    Farewell(u64, Instant),
    /// The connection has ended.
    Gone(Instant, Option<io::Error>),
}

/// Makes the halves of an endpoint that is connected.
pub fn lanes(endpoint: FabricEndpoint) -> io::Result<(LaneSender, LaneReceiver)> {
    let free = (0..endpoint.slot_count(Half::Send)).collect();
    let idle = (0..endpoint.slot_count(Half::Receive)).collect();
    let hint = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let lane = Arc::new(FabricLane { endpoint, free: Mutex::new(free), leaving: AtomicUsize::new(0), hint });
    let sender = LaneSender {
        lane: lane.clone(),
        refused: None,
        frames: VecDeque::new(),
        sealed: 0,
        is_finished: false,
    };
    let mut receiver =
        LaneReceiver { lane, idle, peer: PeerState::There, farewell: Vec::new(), at_most: None };
    receiver.offer_idle()?;
    Ok((sender, receiver))
}

impl FabricLane {
    /// Number of messages that were posted and have not left.
    fn leaving(&self) -> usize {
        // Relaxed: the receiving half reads it after the hint, else it is a guess.
        self.leaving.load(Ordering::Relaxed)
    }

    fn lock_free(&self) -> MutexGuard<'_, Vec<usize>> {
        // Each change is complete before anything can panic.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back the slots of messages that have left.
    fn reclaim(&self) -> io::Result<()> {
        let mut free = self.lock_free();
        while let Some(completed) = self.endpoint.completed(Half::Send)? {
            free.push(completed.slot);
            // Relaxed: the receiving half reads it after the hint, else it is a guess.
            self.leaving.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn free_slot(&self) -> io::Result<Option<usize>> {
        if let Some(slot) = self.lock_free().pop() {
            return Ok(Some(slot));
        }
        self.reclaim()?;
        Ok(self.lock_free().pop())
    }

    /// Sleeps until a half has completions, or the stream has one of these events.
    ///
    /// Sleeps for at most the time. Returns the stream's events.
    fn sleep(
        &self,
        half: Half,
        stream: &TcpStream,
        events: PollFlags,
        time: Duration,
    ) -> io::Result<PollFlags> {
        let (descriptor, is_busy) = self.endpoint.descriptor(half);
        let time = match descriptor {
            _ if is_busy => Duration::ZERO,
            Some(_) => time,
            None => time.min(NAP),
        };
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        // SAFETY: the descriptor is the completion queue's, which lives as long as `self`.
        let descriptor = descriptor.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) });
        let hint_events = if half == Half::Receive { PollFlags::IN } else { PollFlags::empty() };
        let (hint, completions) = (self.hint.as_fd(), descriptor.unwrap_or(self.hint.as_fd()));
        let mut polled = [
            PollFd::from_borrowed_fd(stream.as_fd(), events),
            PollFd::from_borrowed_fd(hint, hint_events),
            PollFd::from_borrowed_fd(completions, PollFlags::IN),
        ];
        let count = if descriptor.is_some() { 3 } else { 2 };
        match poll(&mut polled[..count], Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if polled[1].revents().contains(PollFlags::IN) {
            // Nothing to read is as good.
            let _ = rustix::io::read(&self.hint, &mut [0u8; 8]);
        }
        Ok(polled[0].revents())
    }
}

impl LaneSender {
    /// Adds a frame to those that are to be sent.
    pub fn add(&mut self, frame: &[u8]) {
        if !self.is_finished {
            self.frames.push_back(frame.to_vec());
        }
    }

    /// Returns whether all frames are with the provider.
    fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.refused.is_none()
    }

    /// Sends as far as that is possible without waiting. Returns whether nothing is left.
    ///
    /// Messages that the provider has taken leave while either half is used.
    pub fn send_now(&mut self, sealer: &mut Sealer) -> io::Result<bool> {
        while !self.is_empty() {
            let (slot, length) = match self.refused.take() {
                Some(refused) => refused,
                None => {
                    let Some(slot) = self.lane.free_slot()? else { return Ok(false) };
                    (slot, self.fill(slot, sealer)?)
                }
            };
            // Relaxed: as in `FabricLane::leaving`.
            self.lane.leaving.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the slot is this half's: it is neither free nor refused any more.
            let is_posted = unsafe { self.lane.endpoint.post(Half::Send, slot, length)? };
            if !is_posted {
                // Relaxed: as in `FabricLane::leaving`.
                self.lane.leaving.fetch_sub(1, Ordering::Relaxed);
                self.refused = Some((slot, length));
                // Reading completions moves the provider's work on, to a connection for example.
                self.lane.reclaim()?;
                return Ok(false);
            }
        }
        self.lane.reclaim()?;
        if self.lane.leaving() > 0 {
            // Full only after 2⁶⁴ hints that were not read.
            let _ = rustix::io::write(&self.lane.hint, &1u64.to_ne_bytes());
        }
        Ok(true)
    }

    /// Sends all, and waits until it has left.
    pub fn flush(
        &mut self,
        sealer: &mut Sealer,
        stream: &TcpStream,
        until: Option<Instant>,
    ) -> io::Result<()> {
        while !self.send_now(sealer)? {
            self.wait(stream, until)?;
        }
        while self.lane.leaving() > 0 {
            self.wait(stream, until)?;
            self.lane.reclaim()?;
        }
        Ok(())
    }

    /// Waits until all messages have left, and says farewell.
    pub fn finish(&mut self, sealer: &mut Sealer, stream: &TcpStream, within: Duration) -> io::Result<()> {
        let until = Instant::now() + within;
        self.flush(sealer, stream, Some(until))?;
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        let mut bytes = [0; FAREWELL_BYTES];
        bytes[..NUMBER].copy_from_slice(&sealer.cipher.number().to_le_bytes());
        sealer.cipher.seal_aside(FAREWELL, &mut bytes[NUMBER..]);
        // The connection has carried nothing since the handshake: there is room.
        send(stream, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Waits for the provider, or the end of the link.
    fn wait(&self, stream: &TcpStream, until: Option<Instant>) -> io::Result<()> {
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let events = self.lane.sleep(Half::Send, stream, PollFlags::RDHUP, BUSY)?;
        if events.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }

    /// Seals the next record of the first frame into a slot.
    ///
    /// Returns the message's length.
    fn fill(&mut self, slot: usize, sealer: &mut Sealer) -> io::Result<usize> {
        let Some(frame) = self.frames.front() else { return Err(io::ErrorKind::InvalidInput.into()) };
        let message = self.lane.endpoint.message(Half::Send, slot);
        // SAFETY: the slot has room for so many bytes, and is this half's: it was free.
        let message = unsafe { std::slice::from_raw_parts_mut(message, MESSAGE) };
        let (number, record) = message.split_at_mut(NUMBER);
        number.copy_from_slice(&sealer.cipher.number().to_le_bytes());
        let (length, rest) = sealer.seal(&frame[self.sealed..], record);
        if rest.is_empty() {
            self.frames.pop_front();
            self.sealed = 0;
        } else {
            self.sealed = frame.len() - rest.len();
        }
        Ok(NUMBER + length)
    }
}

impl LaneReceiver {
    /// Waits for a frame, and leaves it in `frame`.
    pub fn receive(
        &mut self,
        opener: &mut Opener,
        stream: &TcpStream,
        frame: &mut Vec<u8>,
    ) -> Result<(), ReadFailure> {
        frame.clear();
        let until = self.at_most.map(|time| Instant::now() + time);
        loop {
            self.offer_idle()?;
            if let Some(completed) = self.lane.endpoint.completed(Half::Receive)? {
                let message = self.lane.endpoint.message(Half::Receive, completed.slot);
                // SAFETY: the slot's operation has completed with so many bytes, and the slot is
                // not posted again before they were read.
                let message = unsafe { std::slice::from_raw_parts(message, completed.length) };
                let record = match message.split_first_chunk::<NUMBER>() {
                    Some((number, record)) => {
                        opener.open_numbered(u64::from_le_bytes(*number), record, frame)
                    }
                    None => Ok(NumberedRecord::Foreign),
                };
                self.idle.push(completed.slot);
                if record? == NumberedRecord::Last {
                    return Ok(());
                }
                continue;
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            match &mut self.peer {
                PeerState::There => {}
                PeerState::Farewell(records, _) if opener.cipher.number() >= *records => {
                    return Err(if frame.is_empty() { ReadFailure::Closed } else { ReadFailure::Damaged });
                }
                PeerState::Farewell(_, since) if now - *since >= SILENCE => {
                    return Err(io::Error::from(io::ErrorKind::TimedOut).into());
                }
                PeerState::Gone(since, error) if now - *since >= LAST => {
                    return Err(error.take().map_or(ReadFailure::Closed, ReadFailure::Io));
                }
                PeerState::Farewell(..) | PeerState::Gone(..) => {}
            }
            let left = until.map_or(IDLE, |until| until - now).min(IDLE);
            self.wait(opener, stream, left)?;
        }
    }

    /// Gives the endpoint the slots that it can take.
    fn offer_idle(&mut self) -> io::Result<()> {
        while let Some(slot) = self.idle.pop() {
            // SAFETY: the slot is this half's: nothing refers to its bytes any more.
            if !unsafe { self.lane.endpoint.post(Half::Receive, slot, MESSAGE)? } {
                self.idle.push(slot);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for a message, or for bytes on the TCP connection.
    fn wait(&mut self, opener: &mut Opener, stream: &TcpStream, left: Duration) -> io::Result<()> {
        if self.lane.leaving() > 0 {
            self.lane.reclaim()?;
        }
        let is_sending = self.lane.leaving() > 0;
        let is_there = matches!(self.peer, PeerState::There);
        let time = if is_sending || !is_there || !self.idle.is_empty() { left.min(BUSY) } else { left };
        let events = if is_there { PollFlags::IN } else { PollFlags::empty() };
        let events = self.lane.sleep(Half::Receive, stream, events, time)?;
        if is_there && !events.is_empty() {
            self.hear(opener, stream);
        }
        Ok(())
    }

    /// Reads the TCP connection: a farewell, or its end.
    fn hear(&mut self, opener: &mut Opener, stream: &TcpStream) {
        let mut bytes = [0; FAREWELL_BYTES];
        let room = &mut bytes[self.farewell.len()..];
        let gone = |error| PeerState::Gone(Instant::now(), error);
        match recv(stream.as_fd(), &mut *room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.peer = gone(None),
            Ok((count, _)) => self.farewell.extend_from_slice(&room[..count]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => self.peer = gone(Some(error.into())),
        }
        if let Some((number, sealed)) = self.farewell.split_first_chunk::<NUMBER>()
            && self.farewell.len() == FAREWELL_BYTES
        {
            let records = u64::from_le_bytes(*number);
            self.peer = match opener.cipher.is_sealed_aside(records, sealed, FAREWELL) {
                true => PeerState::Farewell(records, Instant::now()),
                false => gone(Some(io::Error::other("damaged bytes"))),
            };
        }
    }
}
