//! The broadcast ring under the model checker: messages that are torn, and room that is
//! taken too early, if an ordering is missing; sleepers without timeouts.

use std::sync::Arc;

use loom::thread;

use towpath_machine::{Arena, LoomArena, LoomCell, Place, Processor};
use towpath_sync::Deadline;
use towpath_sync::queues::{
    Broadcast, BroadcastHead, ReaderEnd, Reservation, TransferError, WordLine, WriterEnd,
};
use towpath_testkit::{model, preemptions};

use crate::support::parking;
use crate::weakened::{Missing, SOUND, Weakened, fails};

const PARKING: LoomArena = LoomArena { parking: true };

/// A ring with room for one message of two words, and a datum that is not atomic and
/// belongs to the message.
struct Shared {
    head: BroadcastHead<Weakened, 1>,
    ring: Box<[WordLine<Weakened>]>,
    lossy: bool,
    datum: LoomCell,
}

impl Shared {
    fn new(lossy: bool) -> Arc<Shared> {
        Arc::new(Shared {
            head: BroadcastHead::in_arena(&PARKING),
            ring: WordLine::row(&PARKING, 1),
            lossy,
            datum: Arena::<Weakened>::cell(&PARKING, Place::NewLine, 0),
        })
    }

    fn ring(&self) -> Broadcast<'_, Weakened, 1> {
        Broadcast::of(&self.head, &self.ring, self.lossy)
    }

    fn ends(&self) -> (WriterEnd, ReaderEnd) {
        let cpu = Weakened::new(0, SOUND);
        let (writer, reader) =
            (self.ring().join_writer(&cpu, &parking()), self.ring().join_reader(&cpu, &parking()));
        (writer.unwrap(), reader.unwrap())
    }

    /// Sends a message when there is room, and overwrites the datum of the one before.
    fn send(&self, cpu: &Weakened, writer: &mut WriterEnd, number: u64) {
        let (ring, wait) = (self.ring(), parking());
        let room: Reservation = ring.reserve(cpu, &wait, writer, 16, Deadline::NEVER).unwrap();
        if !self.lossy {
            cpu.write(&self.datum, number);
        }
        ring.fill(cpu, &room, &message(number));
        ring.commit(cpu, &wait, writer, &room, 16).unwrap();
    }

    /// Receives a message, whose room is given back when the datum was read.
    fn receive(&self, cpu: &Weakened, reader: &mut ReaderEnd) -> Result<u64, TransferError> {
        let (ring, wait) = (self.ring(), parking());
        let mut got = Vec::new();
        ring.gather(cpu, &wait, reader, &mut got, Deadline::NEVER)?;
        let number = u64::from_ne_bytes(*got.first_chunk().unwrap());
        assert_eq!(got, message(number), "torn");
        if !self.lossy {
            assert_eq!(cpu.read(&self.datum), number);
        }
        ring.progress(cpu, &wait, reader);
        Ok(number)
    }
}

fn message(number: u64) -> Vec<u8> {
    [number, !number].into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// Two messages from one thread to another.
fn transfer(missing: [Missing; 2]) {
    model(2, move || {
        let shared = Shared::new(false);
        let (mut writer, mut reader) = shared.ends();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let cpu = Weakened::new(1, missing[1]);
                assert_eq!([(); 2].map(|()| shared.receive(&cpu, &mut reader)), [Ok(1), Ok(2)]);
            })
        };
        let cpu = Weakened::new(0, missing[0]);
        (1..=2).for_each(|number| shared.send(&cpu, &mut writer, number));
        other.join().unwrap();
    });
}

/// Both threads do without an ordering or a wake-up in turn.
#[test]
fn broadcast_publishes_and_wakes() {
    transfer([SOUND; 2]);
    for writer in [Missing::UpdateOrder, Missing::Acquire, Missing::Wake] {
        assert!(fails(|| transfer([writer, SOUND])), "writer without {writer:?}");
    }
    for reader in [Missing::Acquire, Missing::UpdateOrder, Missing::Wake] {
        assert!(fails(|| transfer([SOUND, reader])), "reader without {reader:?}");
    }
}

/// A reader comes while the writer sends, and gets the messages from then on.
fn joining(missing: [Missing; 2]) {
    model(preemptions(1, 2), move || {
        let shared = Shared::new(false);
        let mut writer = shared.ring().join_writer(&Weakened::new(0, SOUND), &parking()).unwrap();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let cpu = Weakened::new(1, missing[1]);
                let mut reader = shared.ring().join_reader(&cpu, &parking()).unwrap();
                let mut last = None;
                while let Ok(number) = shared.receive(&cpu, &mut reader) {
                    assert!(last.is_none_or(|last| number == last + 1), "lost");
                    last = Some(number);
                }
                assert!(last.is_none_or(|last| last == 2), "lost");
            })
        };
        let cpu = Weakened::new(0, missing[0]);
        (1..=2).for_each(|number| shared.send(&cpu, &mut writer, number));
        shared.ring().close(&cpu, &parking());
        other.join().unwrap();
    });
}

#[test]
fn broadcast_readers_join_while_the_writer_sends() {
    joining([SOUND; 2]);
    assert!(fails(|| joining([Missing::Fence, SOUND])), "writer without a fence");
    assert!(fails(|| joining([SOUND, Missing::Fence])), "reader without a fence");
}

/// A writer that overwrites a message while a reader looks at it: the reader gets that
/// one or the next one.
fn overwriting(missing: [Missing; 2]) {
    model(2, move || {
        let shared = Shared::new(true);
        let (mut writer, mut reader) = shared.ends();
        let (cpu, ring) = (Weakened::new(0, SOUND), shared.ring());
        // Three words, so that the first two of the next message are overwritten by the last one.
        ring.send(&cpu, &parking(), &mut writer, &[7; 8], Deadline::NEVER).unwrap();
        let mut got = Vec::new();
        ring.receive(&cpu, &parking(), &mut reader, &mut got, Deadline::NEVER).unwrap();
        shared.send(&cpu, &mut writer, 1);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (cpu, mut got) = (Weakened::new(1, missing[1]), Vec::new());
                let missed = shared.ring().receive(&cpu, &parking(), &mut reader, &mut got, Deadline::NEVER);
                let missed = missed.expect("torn");
                assert!(missed < 2 && got == message(1 + missed), "torn");
            })
        };
        shared.send(&Weakened::new(0, missing[0]), &mut writer, 2);
        other.join().unwrap();
    });
}

#[test]
fn broadcast_copies_are_never_torn() {
    overwriting([SOUND; 2]);
    assert!(fails(|| overwriting([Missing::Fence, SOUND])), "writer without a fence");
    assert!(fails(|| overwriting([SOUND, Missing::Fence])), "reader without a fence");
}

/// A reader that leaves gives its room back.
fn leaving(missing: Missing) {
    model(2, move || {
        let shared = Shared::new(false);
        let (mut writer, mut reader) = shared.ends();
        shared.send(&Weakened::new(0, SOUND), &mut writer, 1);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let cpu = Weakened::new(1, missing);
                let (ring, wait) = (shared.ring(), parking());
                let mut got = Vec::new();
                ring.gather(&cpu, &wait, &mut reader, &mut got, Deadline::NEVER).unwrap();
                assert_eq!(cpu.read(&shared.datum), 1);
                ring.leave_reader(&cpu, &wait, &reader);
            })
        };
        shared.send(&Weakened::new(0, SOUND), &mut writer, 2);
        other.join().unwrap();
    });
}

#[test]
fn broadcast_readers_that_leave_give_room_back() {
    leaving(SOUND);
    for reader in [Missing::UpdateOrder, Missing::Wake] {
        assert!(fails(|| leaving(reader)), "reader without {reader:?}");
    }
}
