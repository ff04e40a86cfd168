//! Queues under the model checker: values that are torn if an ordering is missing,
//! sleepers without timeouts.

use std::sync::Arc;

use loom::thread;

use towpath_machine::{Arena, LoomArena, LoomCell, Place, Processor};
use towpath_sync::Deadline;
use towpath_sync::queues::{
    BoundedQueue, ManyHead, ManyToMany, OneHead, OneToOne, QueueGeometry, QueueSide, RingPerSender,
    RingsHead, TransferError, WordLine,
};
use towpath_testkit::model;

use crate::support::parking;
use crate::weakened::{Missing, SOUND, Weakened, fails};

const PARKING: LoomArena = LoomArena { parking: true };

/// A queue, and data that are not atomic, for the values to name.
///
/// A word has nearly 200 bytes here, and each thread of the model checker 32 KiB of stack: so the
/// head is not moved about there.
struct Shared<H> {
    head: Box<H>,
    ring: Box<[WordLine<Weakened>]>,
    slots: Box<[WordLine<Weakened>]>,
    geometry: QueueGeometry,
    data: Vec<LoomCell>,
}

impl<H> Shared<H> {
    fn new(head: H, geometry: QueueGeometry) -> Shared<H> {
        Shared {
            head: Box::new(head),
            ring: WordLine::row(&PARKING, geometry.ring_lines()),
            slots: WordLine::row(&PARKING, geometry.slot_lines()),
            geometry,
            data: (0..4).map(|_| Arena::<Weakened>::cell(&PARKING, Place::NewLine, 0)).collect(),
        }
    }
}

type Many = Shared<ManyHead<Weakened, 2>>;
type One = Shared<OneHead<Weakened>>;

fn many() -> Many {
    Shared::new(ManyHead::in_arena(&PARKING), ManyToMany::<Weakened>::geometry::<u64>(1))
}

fn one() -> One {
    Shared::new(OneHead::in_arena(&PARKING), OneToOne::<Weakened>::geometry::<u64>(1))
}

type Rings = Shared<RingsHead<Weakened, 2>>;

/// One ring, whose sender and receiver have joined.
///
/// Both sides of an asymmetric fence are whole fences here.
fn rings() -> Rings {
    let geometry = RingPerSender::<Weakened>::geometry::<u64>(1).with_rings(1);
    let ring = WordLine::row(&PARKING, geometry.rings_lines());
    let shared = Shared { ring, ..Shared::new(RingsHead::in_arena(&PARKING), geometry) };
    for side in [QueueSide::Sender, QueueSide::Receiver] {
        shared.queue().join(&Weakened::new(0, SOUND), &parking(), side).unwrap();
    }
    shared
}

impl UnderModel for Rings {
    type Queue<'a> = RingPerSender<'a, Weakened, 2>;
    fn queue(&self) -> Self::Queue<'_> {
        RingPerSender::of(&self.head, &self.ring, &self.slots, self.geometry)
    }
    fn data(&self) -> &[LoomCell] {
        &self.data
    }
}

/// A queue and its data, whatever its kind.
trait UnderModel: Send + Sync + 'static {
    type Queue<'a>: BoundedQueue<Weakened>;
    fn queue(&self) -> Self::Queue<'_>;
    fn data(&self) -> &[LoomCell];
}

impl UnderModel for Many {
    type Queue<'a> = ManyToMany<'a, Weakened, 2>;
    fn queue(&self) -> Self::Queue<'_> {
        ManyToMany::of(&self.head, &self.ring, &self.slots, self.geometry)
    }
    fn data(&self) -> &[LoomCell] {
        &self.data
    }
}

impl UnderModel for One {
    type Queue<'a> = OneToOne<'a, Weakened>;
    fn queue(&self) -> Self::Queue<'_> {
        OneToOne::of(&self.head, &self.slots, self.geometry)
    }
    fn data(&self) -> &[LoomCell] {
        &self.data
    }
}

/// Sends so many values through a queue of one slot, each of which names a datum.
fn send<Q: BoundedQueue<Weakened>>(queue: Q, data: &[LoomCell], cpu: &Weakened, values: u64) {
    for value in 0..values {
        cpu.write(&data[value as usize], 7 + value);
        queue.send(cpu, &parking(), &value, Deadline::NEVER).unwrap();
    }
}

fn receive<Q: BoundedQueue<Weakened>>(queue: Q, data: &[LoomCell], cpu: &Weakened, values: u64) {
    for value in 0..values {
        let got: u64 = queue.receive(cpu, &parking(), Deadline::NEVER).unwrap();
        assert_eq!(got, value);
        assert_eq!(cpu.read(&data[got as usize]), 7 + got);
        // The sender, which waits for room, comes after this.
    }
}

/// Two values from one thread to another.
fn transfer<S: UnderModel>(make: fn() -> S, missing: [Missing; 2]) {
    model(2, move || {
        let shared = Arc::new(make());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                receive(shared.queue(), shared.data(), &Weakened::new(1, missing[1]), 2);
            })
        };
        send(shared.queue(), shared.data(), &Weakened::new(0, missing[0]), 2);
        other.join().unwrap();
    });
}

/// Both threads do without an ordering or a wake-up in turn.
fn publishes_and_wakes<S: UnderModel>(make: fn() -> S) {
    transfer(make, [SOUND; 2]);
    for sender in [Missing::UpdateOrder, Missing::Wake] {
        assert!(fails(|| transfer(make, [sender, SOUND])), "sender without {sender:?}");
    }
    for receiver in [Missing::Acquire, Missing::Wake] {
        assert!(fails(|| transfer(make, [SOUND, receiver])), "receiver without {receiver:?}");
    }
}

#[test]
fn many_to_many_publishes_and_wakes() {
    publishes_and_wakes(many);
}

#[test]
fn one_to_one_publishes_and_wakes() {
    publishes_and_wakes(one);
}

#[test]
fn rings_publish_and_wake() {
    transfer(rings, [SOUND; 2]);
    for sender in [Missing::Release, Missing::Fence, Missing::Wake] {
        assert!(fails(|| transfer(rings, [sender, SOUND])), "sender without {sender:?}");
    }
    for receiver in [Missing::Acquire, Missing::Fence, Missing::Wake] {
        assert!(fails(|| transfer(rings, [SOUND, receiver])), "receiver without {receiver:?}");
    }
}

/// Closing, while a value is sent and received.
fn closing<S: UnderModel>(make: fn() -> S) {
    model(2, move || {
        let shared = Arc::new(make());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let cpu = Weakened::new(1, SOUND);
                let receive = || shared.queue().receive(&cpu, &parking(), Deadline::NEVER);
                assert_eq!([receive(), receive()], [Ok(5u64), Err(TransferError::Closed)]);
            })
        };
        let cpu = Weakened::new(0, SOUND);
        shared.queue().send(&cpu, &parking(), &5u64, Deadline::NEVER).unwrap();
        shared.queue().close(&cpu, &parking());
        other.join().unwrap();
    });
}

#[test]
fn closed_queues_wake_their_receivers() {
    closing(many);
    closing(one);
}

/// The receiver closes the queue while a value is sent: both agree whether it was.
fn closing_meanwhile(missing: [Missing; 2]) {
    model(2, move || {
        let shared = Arc::new(rings());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let cpu = Weakened::new(0, missing[0]);
                shared.queue().send(&cpu, &parking(), &5u64, Deadline::NEVER)
            })
        };
        let cpu = Weakened::new(1, missing[1]);
        shared.queue().close(&cpu, &parking());
        let receive = || shared.queue().receive(&cpu, &parking(), Deadline::NEVER);
        let received: Result<u64, TransferError> = receive();
        assert_eq!(other.join().unwrap().map(|()| 5), received);
        assert_eq!(receive(), Err(TransferError::Closed));
    });
}

#[test]
fn closed_rings_wake_their_receiver_and_agree() {
    closing(rings);
    closing_meanwhile([SOUND; 2]);
    for missing in [[Missing::Fence, SOUND], [SOUND, Missing::Fence]] {
        assert!(fails(|| closing_meanwhile(missing)), "{missing:?}");
    }
}
