//! Queues under the model checker: values that are torn if an ordering is missing,
//! sleepers without timeouts.

use std::sync::Arc;

use loom::thread;

use towpath_machine::{Arena, LoomArena, LoomCell, Place, Processor};
use towpath_sync::Deadline;
use towpath_sync::queues::{
    BoundedQueue, CellQueue, ManyHead, ManyToMany, OneHead, OneToOne, QueueGeometry, QueueSide,
    RingPerSender, RingsHead, TransferError, WordLine,
};
use towpath_testkit::{model, preemptions};

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
    type Queue<'a>: CellQueue<Weakened>;
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

/// The queue of many senders and one receiver.
struct ManyToOne(Many);

fn one_receiver() -> ManyToOne {
    ManyToOne(many())
}

impl UnderModel for ManyToOne {
    type Queue<'a> = ManyToMany<'a, Weakened, 2>;
    fn queue(&self) -> Self::Queue<'_> {
        self.0.queue().of_one_receiver()
    }
    fn data(&self) -> &[LoomCell] {
        &self.0.data
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
    model(preemptions(1, 2), move || {
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

/// Values from one thread to another, in so many cells beside the queue.
fn transfer_in_cells<S: UnderModel>(make: fn() -> S, values: u64, cells: usize, missing: [Missing; 2]) {
    model(1, move || {
        let (shared, cpu) = (Arc::new(make()), Weakened::new(0, missing[0]));
        let send = |value| {
            let write = |cell: usize| cpu.write(&shared.data()[cell % cells], 7 + value);
            shared.queue().send_cell(&cpu, &parking(), Deadline::NEVER, write).unwrap();
        };
        // Before the other thread begins: fewer schedules.
        send(0);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let cpu = Weakened::new(1, missing[1]);
                for value in 0..values {
                    let read = |cell: usize| cpu.read(&shared.data()[cell % cells]);
                    let got = shared.queue().receive_cell(&cpu, &parking(), Deadline::NEVER, read);
                    assert_eq!(got, Ok(7 + value));
                }
            })
        };
        for value in 1..values {
            send(value);
        }
        other.join().unwrap();
    });
}

/// Cells beside rings of one sender hold a value until it has been read.
///
/// Two cells for one slot are too few.
fn cells_of_rings_are_read_first<S: UnderModel>(make: fn() -> S, release: Missing) {
    transfer_in_cells(make, 2, 4, [SOUND; 2]);
    assert!(fails(|| transfer_in_cells(make, 3, 2, [SOUND; 2])), "two cells");
    for [sender, receiver] in [[release, SOUND], [SOUND, Missing::Acquire]] {
        let fails = fails(|| transfer_in_cells(make, 2, 4, [sender, receiver]));
        assert!(fails, "sender without {sender:?}, receiver without {receiver:?}");
    }
}

#[test]
fn cells_beside_one_to_one_are_read_first() {
    cells_of_rings_are_read_first(one, Missing::UpdateOrder);
}

#[test]
fn cells_beside_rings_are_read_first() {
    cells_of_rings_are_read_first(rings, Missing::Release);
}

#[test]
#[ignore = "ten seconds"]
fn three_cells_for_one_slot_are_enough() {
    transfer_in_cells(one, 4, 3, [SOUND; 2]);
}

#[test]
fn cells_beside_many_to_many_are_read_first() {
    // One for each slot.
    transfer_in_cells(many, 2, 1, [SOUND; 2]);
    for missing in [[Missing::UpdateOrder, SOUND], [SOUND, Missing::UpdateOrder], [SOUND, Missing::Acquire]] {
        assert!(fails(|| transfer_in_cells(many, 2, 1, missing)), "{missing:?}");
    }
}

#[test]
fn cells_beside_many_to_one_are_read_first() {
    transfer_in_cells(one_receiver, 2, 2, [SOUND; 2]);
    assert!(fails(|| transfer_in_cells(one_receiver, 2, 1, [SOUND; 2])), "one cell");
    for missing in [[Missing::UpdateOrder, SOUND], [SOUND, Missing::Acquire]] {
        assert!(fails(|| transfer_in_cells(one_receiver, 2, 2, missing)), "{missing:?}");
    }
}

/// Two values that a closed queue refuses leave the cell that its receiver reads.
#[test]
#[ignore = "ten seconds"]
fn refused_values_leave_the_cell_that_is_read() {
    model(0, || {
        let shared = Arc::new(one_receiver());
        let send = |shared: &ManyToOne, me, value| {
            let cpu = Weakened::new(me, SOUND);
            let write = |cell: usize| cpu.write(&shared.data()[cell], value);
            shared.queue().send_cell(&cpu, &parking(), Deadline::NEVER, write)
        };
        send(&shared, 0, 7).unwrap();
        let others = [1, 2].map(|me| {
            let shared = shared.clone();
            thread::spawn(move || assert_eq!(send(&shared, me, 8), Err(TransferError::Closed)))
        });
        let cpu = Weakened::new(0, SOUND);
        shared.queue().close(&cpu, &parking());
        let read = |cell: usize| cpu.read(&shared.data()[cell]);
        assert_eq!(shared.queue().receive_cell(&cpu, &parking(), Deadline::NEVER, read), Ok(7));
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
#[ignore = "ten seconds"]
fn cells_beside_many_to_one_are_used_in_turn() {
    transfer_in_cells(one_receiver, 3, 2, [SOUND; 2]);
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
