//! Queues under the model checker: values that are torn if an ordering is missing,
//! sleepers without timeouts.

use std::sync::Arc;

use loom::thread;

use towpath_machine::{Arena, LoomArena, LoomCell, Place, Processor};
use towpath_sync::Deadline;
use towpath_sync::queues::{
    BoundedQueue, ManyHead, ManyToMany, OneHead, OneToOne, QueueGeometry, TransferError, WordLine,
};
use towpath_testkit::model;

use crate::support::parking;
use crate::weakened::{Missing, SOUND, Weakened, fails};

const PARKING: LoomArena = LoomArena { parking: true };

/// A queue, and data that are not atomic, for the values to name.
struct Shared<H> {
    head: H,
    ring: Box<[WordLine<Weakened>]>,
    slots: Box<[WordLine<Weakened>]>,
    geometry: QueueGeometry,
    data: Vec<LoomCell>,
}

impl<H> Shared<H> {
    fn new(head: H, geometry: QueueGeometry) -> Shared<H> {
        Shared {
            head,
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

impl Many {
    fn queue(&self) -> ManyToMany<'_, Weakened, 2> {
        ManyToMany::of(&self.head, &self.ring, &self.slots, self.geometry)
    }
}

impl One {
    fn queue(&self) -> OneToOne<'_, Weakened> {
        OneToOne::of(&self.head, &self.slots, self.geometry)
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

fn many_transfer(missing: [Missing; 2]) {
    model(2, move || {
        let shared = Arc::new(many());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                receive(shared.queue(), &shared.data, &Weakened::new(1, missing[1]), 2);
            })
        };
        send(shared.queue(), &shared.data, &Weakened::new(0, missing[0]), 2);
        other.join().unwrap();
    });
}

fn one_transfer(missing: [Missing; 2]) {
    model(2, move || {
        let shared = Arc::new(one());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                receive(shared.queue(), &shared.data, &Weakened::new(1, missing[1]), 2);
            })
        };
        send(shared.queue(), &shared.data, &Weakened::new(0, missing[0]), 2);
        other.join().unwrap();
    });
}

#[test]
fn many_to_many_publishes_and_wakes() {
    many_transfer([SOUND; 2]);
    for sender in [Missing::UpdateOrder, Missing::Wake] {
        assert!(fails(|| many_transfer([sender, SOUND])), "sender without {sender:?}");
    }
    for receiver in [Missing::Acquire, Missing::Wake] {
        assert!(fails(|| many_transfer([SOUND, receiver])), "receiver without {receiver:?}");
    }
}

#[test]
fn one_to_one_publishes_and_wakes() {
    one_transfer([SOUND; 2]);
    for sender in [Missing::UpdateOrder, Missing::Wake] {
        assert!(fails(|| one_transfer([sender, SOUND])), "sender without {sender:?}");
    }
    for receiver in [Missing::Acquire, Missing::Wake] {
        assert!(fails(|| one_transfer([SOUND, receiver])), "receiver without {receiver:?}");
    }
}

/// Closing, while a value is sent and received.
fn closing<S: Send + Sync + 'static>(
    make: impl Fn() -> S + Send + Sync + 'static,
    close: impl Fn(&S, &Weakened) + Send + Sync + Copy + 'static,
    receive: impl Fn(&S, &Weakened) -> Result<u64, TransferError> + Send + Sync + Copy + 'static,
) {
    model(2, move || {
        let shared = Arc::new(make());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let cpu = Weakened::new(1, SOUND);
                let got = [receive(&shared, &cpu), receive(&shared, &cpu)];
                assert_eq!(got, [Ok(5), Err(TransferError::Closed)]);
            })
        };
        close(&shared, &Weakened::new(0, SOUND));
        other.join().unwrap();
    });
}

fn sends_and_closes<Q: BoundedQueue<Weakened>>(queue: Q, cpu: &Weakened) {
    queue.send(cpu, &parking(), &5u64, Deadline::NEVER).unwrap();
    queue.close(cpu, &parking());
}

#[test]
fn closed_queues_wake_their_receivers() {
    closing(
        many,
        |shared, cpu| sends_and_closes(shared.queue(), cpu),
        |shared, cpu| shared.queue().receive(cpu, &parking(), Deadline::NEVER),
    );
    closing(
        one,
        |shared, cpu| sends_and_closes(shared.queue(), cpu),
        |shared, cpu| shared.queue().receive(cpu, &parking(), Deadline::NEVER),
    );
}
