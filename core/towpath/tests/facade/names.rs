//! Signatures of the façade, spelt with names of `towpath` alone: every type in them can
//! be named there. A type that has no name there does not compile here.
//!
//! Complete for the methods of the façade's types. New ones that return a type which stands below
//! already need no line of their own.

#![allow(clippy::type_complexity, reason = "signatures, spelt out")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use towpath::channel::claim::Claim;
use towpath::channel::queue::Queue;
use towpath::domain::{DomainMemory, EndpointStep, Entry, Hooks, Membership, OwnerWords, Side, Stored};
use towpath::machine::{Concurrent, Native, NativeBytes, Object, Park, Processor};
use towpath::structures::nonblocking::{self, Handle, Inventory, Openable, StableError};
use towpath::structures::queues::QueueError;
use towpath::sync::locks::Robust;
use towpath::sync::{Lock, Surroundings, WaitForSpace};
use towpath::{
    Algorithm, Area, Audit, Bundle, Direction, Domain, Ending, Endpoint, Episode, EpisodeError, Error,
    Events, LockError, Mutex, MutexGuard, Name, Operation, ParallelBundle, ParallelEndpoint, ParticipantId,
    Payload, Policy, PrivateSegment, Returned, Segment, SegmentKind, Shared, SharedMemory, SharedSegment,
    SignalEndpoint, Status, Tag, TimedOut, Token, Unrepaired, World, WorldConfig, WorldError, WorldSpec,
};

type Data = Mutex<AtomicU64, Robust<Native, 4>>;

#[test]
fn world_signatures_are_spelt_with_names_of_the_facade() {
    let _: fn(Option<&str>, &WorldConfig) -> Result<World, Error> = towpath::create;
    let _: fn(&WorldSpec) -> Result<World, WorldError> = World::create;
    let _: fn(&str) -> Result<World, WorldError> = World::open;
    let _: fn() -> Result<World, WorldError> = World::join;
    let _: fn(&World, Option<u32>) -> Result<(), WorldError> = World::enter;
    let _: fn(&World) -> Option<ParticipantId> = World::entered;
    let _: fn(&World, u32, u32, bool) -> Ending = World::process_ended;
    let _: fn(&World, u32) -> &AtomicU64 = World::doorbell;
    let _: fn(&World) -> &dyn Surroundings = World::surroundings;
    let _: fn(&World) -> Area = World::area;
    let _: unsafe fn(&Area, u64, u64) -> Result<NativeBytes, WorldError> = Area::bytes;
    let _: fn(&Area) -> NonNull<u8> = Area::base;
    let _: fn(&World, Policy) -> Result<(), WorldError> = World::barrier;
    let _: fn(&World) -> Result<Episode, WorldError> = World::arrive;
    let _: fn(&Episode) -> Result<(), WorldError> = Episode::outcome;
    let _: fn(&World, &str, fn(&Data)) -> Result<Shared<Data>, WorldError> = |w, n, p| w.shared(n, p);
    let _: for<'a> fn(
        &'a Shared<Mutex<AtomicU64>>,
    ) -> Result<
        MutexGuard<'a, AtomicU64, Robust<Native>>,
        LockError<Unrepaired<MutexGuard<'static, AtomicU64, Robust<Native>>>>,
    > = Shared::<Mutex<AtomicU64>>::lock;
    let _: fn(&WorldConfig) -> WorldSpec = |config| config.spec(None);
    let _: fn(&WorldConfig) -> (Algorithm, Policy) = |config| (config.algorithm, config.waiting);
}

#[test]
fn endpoint_signatures_are_spelt_with_names_of_the_facade() {
    let _: fn(&World) -> Result<Endpoint, Error> = Endpoint::new;
    let _: fn(SharedMemory, SegmentKind) -> Result<Endpoint<SharedMemory>, Error> = Endpoint::in_domain;
    let _: fn(&Endpoint) -> &SharedMemory = Endpoint::domain;
    let _: fn(&Endpoint) -> &Segment<SharedSegment> = Endpoint::segment;
    let _: fn(&Endpoint) -> &WorldConfig = Endpoint::config;
    let _: fn(&Endpoint, u8, Box<dyn Fn(&Token<'_, SharedMemory>)>) = Endpoint::set_boxed_handler;
    let _: fn(&Endpoint, usize) -> Option<(Name, Tag)> = Endpoint::mapping;
    let _: fn(&Endpoint) -> Audit = Endpoint::audit;
    let _: fn(&Endpoint) -> Result<(), Error> = Endpoint::barrier;
    let _: fn(Endpoint) -> Result<ParallelEndpoint, Error> = Endpoint::into_parallel;
    let _: fn(&Arc<ParallelBundle>, Endpoint) -> Result<Arc<ParallelEndpoint>, Error> = ParallelBundle::add;
    let _: fn(&Bundle, Events) = Bundle::set_events;
    let _: fn(&Bundle, Option<Duration>) -> Result<bool, Error> = Bundle::wait;
    let _: fn(Endpoint, u8) -> Result<SignalEndpoint, Error> = SignalEndpoint::new;
    let _: for<'a> fn(&Token<'a>) -> Payload<'a> = |token| token.payload();
    let _: fn(&Token<'_>) -> Option<Returned> = |token| token.returned();
    let _: fn(Returned) -> (Status, Operation) = |returned| (returned.status, returned.operation);
    let _: fn(PrivateSegment) -> Segment = Segment::Private;
}

/// The traits of a domain, with the types that their methods have.
fn domain<'a, D>(domain: &'a D, queue: &'a Queue<'a, D::Cpu>) -> Result<(), Error>
where
    D: Domain + DomainMemory + Membership + Hooks,
    D::Cpu: Processor + Park,
    D::Segment: Stored,
{
    let entry: D::Entry = domain.entry(0)?;
    let _: &Entry<D::Cpu> = &entry;
    let _: &OwnerWords<D::Cpu> = &entry.own.0;
    let side: D::Side = domain.side(0, Direction::Request)?;
    let _: &Queue<'_, D::Cpu> = side.queue();
    fn claims<P: Processor>(_: &impl Claim<P>) {}
    claims::<D::Cpu>(side.claim());
    let _: Option<ParticipantId> = domain.me();
    let around: D::Around<'_> = domain.around(queue);
    fn waits<P: Processor>(_: &impl WaitForSpace<P>) {}
    waits::<D::Cpu>(&domain.wait(&around));
    domain.charge(EndpointStep::Poll);
    Ok(())
}

#[test]
fn domain_signatures_are_spelt_with_names_of_the_facade() {
    let _: fn(&'static SharedMemory, &'static Queue<'static, Native>) -> Result<(), Error> = domain;
}

#[test]
fn structure_signatures_are_spelt_with_names_of_the_facade() {
    type Stack = nonblocking::in_world::Stack<8, 2>;
    fn is_object<T: Object + Concurrent + Openable>() {}
    fn is_lock<L: Lock<Native>>() {}
    is_object::<Stack>();
    is_lock::<Robust<Native>>();
    let _: fn(&World, &str) -> Result<Handle<Stack>, Error> = nonblocking::open;
    let _: fn(&Handle<Stack>) -> Result<nonblocking::Audit, Error> = Handle::recover;
    let _: fn(&Handle<Stack>) -> Result<Inventory, StableError> = Handle::inventory;
}

/// A `main` that returns an error prints its `Debug`: the test of a whole program is
/// `main_without_a_launcher_prints_the_remedy` in `bin/towpath/tests/examples.rs`.
#[test]
fn errors_print_the_remedy_and_alternate_the_variant() {
    fn check<E: std::error::Error>(error: E, remedy: &str, variant: &str) {
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().contains(remedy), "{error}");
        assert_eq!(format!("{error:#?}"), variant);
    }
    check::<LockError>(LockError::Capacity, "use a lock with more places", "Capacity");
    check(EpisodeError::Capacity, "make it for more", "Capacity");
    check(
        EpisodeError::PeerDied { rank: Some(2) },
        "go on without it",
        "PeerDied {\n    rank: Some(\n        2,\n    ),\n}",
    );
    check(TimedOut, "wait longer", "TimedOut");
    check(StableError::Exhausted, "make the structure larger", "Exhausted");
    check(QueueError::Full, "make it larger", "Full");
    check(QueueError::Lock(LockError::Poisoned), "make it anew", "Lock(\n    Poisoned,\n)");
    check(Error::NotSent, "poll and try again", "NotSent");
}
