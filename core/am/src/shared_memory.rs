//! Domain of native endpoints, a world's memory: from its area to queues.
//!
//! The only file of this room that makes references into shared memory.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use towpath_channel::answer_line::AnswerLine;
use towpath_channel::stream::Stream;
use towpath_machine::{Concurrent, Native, Processor};
use towpath_shm::{Area, ParticipantId, RemoteBytes, World};
use towpath_sync::{Policy, SlowRounds, Surroundings, Wait};

use crate::census::owner_is;
use crate::claim::{Algorithm, Any, Locks};
use crate::domain::{DomainMemory, Entry, Hooks, Membership, Side, Stored};
use crate::error::Error;
use crate::layout::{Layout, WorldConfig};
use crate::message::Direction;
use crate::queue::{CLOSED, Queue, QueueControl, STALL};
use crate::suspicion::Suspicion;

// SAFETY: `repr(C)`, made of atomic words only, so every bit pattern is valid and accesses are
// atomic; all zero is a free entry; no `Drop`.
unsafe impl Concurrent for Entry<Native> {}

/// Queue in shared memory, with the way to claim in it.
pub struct NativeSide {
    queue: Queue<'static, Native>,
    claim: Any<'static, Native>,
    locks: &'static Locks<Native>,
}

/// Message area of a world, attached.
///
/// The references that it hands out are `'static` in type only: they are valid while it lives.
/// Everything that keeps one keeps an `Arc<Attached>` too (fields of [`NativeSide`] never leave the
/// endpoint that holds both).
struct Attached {
    world: World,
    config: WorldConfig,
    layout: Layout,
    area: Area,
}

impl Attached {
    fn new(world: &World) -> Result<Arc<Attached>, Error> {
        let config = WorldConfig::from_params(&world.params())?;
        let layout = Layout::of(&config);
        let area = world.area();
        if area.len() < layout.total {
            return Err(Error::BadWorld(format!(
                "its message area has {} bytes, its parameters call for {}",
                area.len(),
                layout.total
            )));
        }
        Ok(Arc::new(Attached { world: world.clone(), config, layout, area }))
    }

    fn slice<T: Concurrent>(&self, offset: u64, n: u32) -> Result<&'static [T], Error> {
        let slice = self.area.slice::<T>(offset, n.into())?;
        // SAFETY: the mapping lives as long as `self.area`, and by the contract of this type the
        // reference is not used after that.
        Ok(unsafe { core::mem::transmute::<&[T], &'static [T]>(slice) })
    }

    fn entry(&self, endpoint: u16) -> Result<&'static Entry<Native>, Error> {
        if u32::from(endpoint) >= self.config.endpoints {
            return Err(Error::BadArgument(format!(
                "endpoint {endpoint} does not exist: this world has {}",
                self.config.endpoints
            )));
        }
        let offset = self.layout.directory + u64::from(endpoint) * size_of::<Entry<Native>>() as u64;
        Ok(&self.slice(offset, 1)?[0])
    }

    /// Returns whether an endpoint's rank runs on this host: the entries behind those of
    /// all ranks belong to the ranks in turn.
    fn is_local(&self, endpoint: u16) -> bool {
        self.world.is_local(u32::from(endpoint) % self.world.size())
    }

    fn block_start(&self, endpoint: u16) -> u64 {
        self.layout.blocks_start + u64::from(endpoint) * self.layout.stride
    }

    fn side(&self, endpoint: u16, direction: Direction) -> Result<NativeSide, Error> {
        let reply = direction.is_reply();
        self.entry(endpoint)?;
        let q = &self.layout.queue;
        let start = self.block_start(endpoint) + if reply { self.layout.reply } else { 0 };
        let c = &self.config;
        let locks = &self.slice::<Locks<Native>>(start + q.locks, 1)?[0];
        // SAFETY: no references to the blocks' bytes are ever made (the slices above and below end
        // before them), and the view is used only while this attachment lives.
        let bytes = unsafe { self.area.bytes(start + q.bytes, c.bytes_of_blocks())? };
        Ok(NativeSide {
            queue: Queue {
                id: u32::from(endpoint) * 2 + u32::from(reply),
                control: &self.slice::<QueueControl<Native>>(start + q.control, 1)?[0],
                slots: self.slice(start + q.slots, c.packets)?,
                extras: self.slice(start + q.extras, c.packets)?,
                blocks: self.slice(start + q.heads, c.blocks)?,
                bytes: Arc::new(bytes),
                block_size: c.block_size as usize,
            },
            claim: locks.choose(c.algorithm),
            locks,
        })
    }

    /// Returns the endpoint's segment in shared memory.
    fn segment(&self, endpoint: u16) -> Result<SharedSegment, Error> {
        self.entry(endpoint)?;
        let start = self.block_start(endpoint) + self.layout.segment;
        // SAFETY: no references to a segment's bytes are ever made, and the view is used only while
        // this attachment lives.
        Ok(SharedSegment(unsafe { self.area.bytes(start, self.config.segment_bytes)? }))
    }
}

impl Side<Native> for NativeSide {
    type Claim = Any<'static, Native>;
    #[inline(always)]
    fn queue(&self) -> &Queue<'_, Native> {
        &self.queue
    }
    #[inline(always)]
    fn claim(&self) -> &Self::Claim {
        &self.claim
    }
    fn renew_locks(&self, first: bool) {
        if !first {
            let bytes = size_of::<Locks<Native>>();
            // SAFETY: the locks are mapped and writable, made of atomics and libc's mutex (interior
            // mutability, `Concurrent`), all zero is a valid value, and no other process uses them
            // now.
            unsafe {
                core::ptr::write_bytes(core::ptr::from_ref(self.locks).cast_mut().cast::<u8>(), 0, bytes);
            }
        }
        // SAFETY: the caller is the only one that uses them now. They lie in the world's segment,
        // which a process keeps mapped while it has an endpoint; a claim gives its lock back before
        // it returns, so a thread that holds one is within a call on an endpoint.
        unsafe { self.locks.prepare() };
    }
}

/// Segment in the world's memory, into which senders store.
#[derive(Debug)]
pub struct SharedSegment(towpath_machine::NativeBytes);

impl Stored for SharedSegment {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&self, at: usize, to: &mut [u8]) {
        Native::with_id(0).copy_out(&self.0, at, to);
    }
    fn write(&self, at: usize, from: &[u8]) {
        Native::with_id(0).copy_in(&self.0, at, from);
    }
}

/// Domain of native endpoints: the memory of a world.
pub struct SharedMemory {
    attached: Arc<Attached>,
    cpu: Native,
    policy: Policy,
    budget: u64,
    /// Process whose endpoint it is. A child that is forked from it only has copies of
    /// what lies in private memory.
    process: u32,
}

impl core::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedMemory").field("config", &self.attached.config).finish_non_exhaustive()
    }
}

impl SharedMemory {
    /// Attaches a world's memory, for one endpoint.
    pub(crate) fn new(world: &World) -> Result<SharedMemory, Error> {
        let attached = Attached::new(world)?;
        Ok(SharedMemory {
            cpu: Native::with_id(0),
            policy: attached.config.waiting,
            budget: world.switch_cost(),
            process: std::process::id(),
            attached,
        })
    }

    /// Attaches the same memory once more.
    pub(crate) fn another(&self) -> SharedMemory {
        SharedMemory { attached: self.attached.clone(), cpu: Native::with_id(0), ..*self }
    }

    /// Returns the world.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.domain().world().rank(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn world(&self) -> &World {
        &self.attached.world
    }
}

/// Surroundings of a sender or receiver that waits for a queue.
pub struct Around<'a> {
    attached: &'a Attached,
    queue: &'a Queue<'a, Native>,
    /// Part of this waiter in finding out whether the lock's words are damaged.
    suspicion: Suspicion,
}

impl Attached {
    /// Returns endpoint and word of each intent.
    fn intents(&self) -> impl Iterator<Item = (u16, &'static AtomicU64)> + Clone + '_ {
        let entries = (0..self.config.endpoints as u16).filter_map(|e| Some((e, self.entry(e).ok()?)));
        entries.flat_map(|(e, entry)| entry.own.intents.iter().map(move |word| (e, word)))
    }
}

impl Surroundings for Around<'_> {
    fn oversubscribed(&self) -> bool {
        self.attached.world.surroundings().oversubscribed()
    }

    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        self.attached.world.surroundings().slow_rounds()
    }

    /// Returns whether a lock in front of the queue can never be had again: its holder
    /// died, or its words are damaged.
    fn abandoned(&self) -> bool {
        // Relaxed: once closed for this generation, always closed.
        if self.queue.control.tail.load(Ordering::Relaxed) & CLOSED != 0 {
            return true;
        }
        let cpu = Native::with_id(0);
        let lives = |endpoint| {
            let is_alive = |owner| self.attached.world.is_alive(owner);
            self.attached.entry(endpoint).is_ok_and(|entry| owner_is(&cpu, entry, is_alive))
        };
        let (tail, intents) = (&self.queue.control.tail.0, self.attached.intents());
        self.suspicion.is_abandoned(&cpu, tail, self.queue.id, intents, lives)
    }

    fn asleep(&self, asleep: bool) {
        self.attached.world.surroundings().asleep(asleep);
    }
}

impl DomainMemory for SharedMemory {
    type Cpu = Native;
    type Side = NativeSide;
    type Entry = &'static Entry<Native>;
    type Segment = SharedSegment;
    type Line = &'static AnswerLine<Native>;
    type Stream = &'static Stream<Native>;

    #[inline(always)]
    fn cpu(&self) -> &Native {
        &self.cpu
    }
    fn act_for(&mut self, endpoint: u16) {
        self.cpu = Native::with_id(endpoint.into());
    }
    #[inline(always)]
    fn config(&self) -> &WorldConfig {
        &self.attached.config
    }
    fn entry(&self, endpoint: u16) -> Result<&'static Entry<Native>, Error> {
        self.attached.entry(endpoint)
    }
    fn side(&self, endpoint: u16, direction: Direction) -> Result<NativeSide, Error> {
        self.attached.side(endpoint, direction)
    }
    fn segment(&self, endpoint: u16) -> Result<SharedSegment, Error> {
        self.attached.segment(endpoint)
    }
    fn answer_line(&self, one: u16, other: u16) -> Option<&'static AnswerLine<Native>> {
        let attached = &self.attached;
        // A gateway reads no lines: see also `stream`.
        let are_here = attached.is_local(one) && attached.is_local(other);
        let offset = are_here.then(|| attached.layout.answer_line(&attached.config, one, other))??;
        Some(&attached.slice(offset, 1).ok()?[0])
    }
    fn stream(&self, endpoint: u16, number: u32) -> Option<&'static Stream<Native>> {
        let attached = &self.attached;
        let in_range = number < attached.config.streams_each()
            && u32::from(endpoint) < attached.config.endpoints
            && attached.is_local(endpoint);
        let at = attached.layout.streams + u64::from(number) * size_of::<Stream<Native>>() as u64;
        let offset = in_range.then(|| attached.block_start(endpoint) + at)?;
        Some(&attached.slice(offset, 1).ok()?[0])
    }
}

impl Membership for SharedMemory {
    fn me(&self) -> Option<ParticipantId> {
        self.world().entered()
    }
    fn size(&self) -> u32 {
        self.world().size()
    }
    fn is_alive(&self, participant: ParticipantId) -> bool {
        self.world().is_alive(participant)
    }
    fn has_died(&self, rank: u32) -> bool {
        self.world().has_died(rank)
    }
    fn has_left(&self, rank: u32) -> bool {
        self.world().has_left(rank)
    }
    fn deaths(&self) -> u64 {
        self.world().deaths()
    }
    fn check_deaths(&self) {
        self.world().check_deaths();
    }
    fn has_ended(&self) -> bool {
        std::process::id() != self.process
    }
    fn may_offer(&self, to: ParticipantId) -> bool {
        self.attached.config.algorithm == Algorithm::Towpath
            && self.world().is_local(to.index)
            && self.world().is_remote(to)
    }
    fn is_local(&self, endpoint: u16) -> bool {
        self.attached.is_local(endpoint)
    }
    fn tell_gateway(&self) {
        self.world().tell_gateway();
    }
    fn read_remote(&self, participant: ParticipantId, from: RemoteBytes, to: &mut [u8]) -> bool {
        self.world().read_remote(participant, from, to)
    }
    fn doorbell(&self, rank: u32) -> Option<&AtomicU64> {
        (rank < self.world().size()).then(|| self.world().doorbell(rank))
    }
}

impl Hooks for SharedMemory {
    type Around<'a> = Around<'a>;
    type Wait<'a> = Wait<'a>;

    #[inline(always)]
    fn around<'a>(&'a self, queue: &'a Queue<'a, Native>) -> Around<'a> {
        Around { attached: &self.attached, queue, suspicion: Suspicion::new(self.cpu.id() as u16) }
    }
    #[inline(always)]
    fn wait<'a, 'b: 'a>(&'a self, around: &'a Around<'b>) -> Wait<'a> {
        Wait { policy: self.policy, around, budget: self.budget }
    }
    #[inline(always)]
    fn policy(&self) -> Policy {
        self.policy
    }
    #[inline(always)]
    fn budget(&self) -> u64 {
        self.budget
    }
    fn oversubscribed(&self) -> bool {
        self.world().surroundings().oversubscribed()
    }
    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        self.world().surroundings().slow_rounds()
    }
    fn asleep(&self, asleep: bool) {
        self.world().surroundings().asleep(asleep);
    }
    fn pause(&self, ns: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(ns));
    }
    fn look_every(&self) -> Option<u64> {
        Some(STALL)
    }
    fn interrupt(&self, participant: ParticipantId, address: u64, ask: bool) {
        if !ask || self.world().is_alive(participant) {
            self.world().interrupt(participant, address);
        }
    }
}
