//! Plays of the broadcast ring.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use towpath_shm::{WorldBroadcast, WorldRing};
use towpath_sync::queues::{
    BroadcastMode, BroadcastReader, BroadcastWriter, HoldsBack, Lossy, TransferError,
};

use super::{Hold, LONG, PLAY, Play, Stage, mark};

/// Milestone of a victim: its act is complete.
const DONE: u64 = 1;
/// Part of the note: the reader was told of the writer's death.
const TOLD: u64 = 1 << 32;

/// Messages of the victim, and of this process.
const THEIRS: [u8; 20] = [7; 20];
const OURS: [u8; 20] = [1; 20];

/// Modes by which worlds find their rings.
trait Opens: BroadcastMode + Sized {
    fn open(stage: &Stage) -> WorldBroadcast<Self>;
}

impl Opens for HoldsBack {
    fn open(stage: &Stage) -> WorldBroadcast<Self> {
        stage.world.broadcast("b", 128).unwrap()
    }
}

impl Opens for Lossy {
    fn open(stage: &Stage) -> WorldBroadcast<Self> {
        stage.world.lossy_broadcast("l", 128).unwrap()
    }
}

fn ring(stage: &Stage) -> WorldBroadcast<HoldsBack> {
    HoldsBack::open(stage)
}

/// Reads when it is dropped, to the writer's end.
struct ReadsToTheEnd<M: BroadcastMode>(BroadcastReader<WorldRing<M>>, &'static AtomicU64);

impl<M: BroadcastMode> Drop for ReadsToTheEnd<M> {
    fn drop(&mut self) {
        loop {
            match self.0.receive_timeout(LONG) {
                Ok(message) => {
                    assert_eq!((&*message, message.missed()), (&THEIRS[..], 0));
                    self.1.fetch_add(1, SeqCst);
                }
                Err(end) => {
                    assert_eq!(end, TransferError::PeerDied { rank: Some(1) });
                    self.1.fetch_or(TOLD, SeqCst);
                    break;
                }
            }
        }
    }
}

fn reads<M: Opens>(stage: &Stage) -> Hold {
    Some(Box::new(ReadsToTheEnd(M::open(stage).reader().unwrap(), stage.note)))
}

fn writer<M: Opens>(stage: &Stage) {
    let mut writer = M::open(stage).writer().unwrap();
    mark();
    writer.send(&THEIRS).unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(writer);
}

/// Stopped is not dead.
fn no_death_is_told<M: Opens>(stage: &Stage) {
    let ring = M::open(stage);
    assert_eq!(
        ring.reader().unwrap().receive_timeout(Duration::from_millis(2)),
        Err(TransferError::TimedOut)
    );
    assert!(matches!(ring.writer(), Err(TransferError::Taken { rank: Some(1) })));
}

fn the_writer_died<M: Opens>(stage: &Stage) {
    let note = stage.note.load(SeqCst);
    assert!(note & TOLD != 0 && note & !TOLD <= 1, "came twice: {note}");
    stage.told();
    if stage.progress.load(SeqCst) == DONE {
        assert_eq!(note & !TOLD, 1, "it was sent, and is lost");
    }
    let ring = M::open(stage);
    successors_get_on(&ring);
    assert_eq!(ring.writer().unwrap().lost_reader(), None);
}

/// A successor of the writer, and late readers, go on.
fn successors_get_on<M: BroadcastMode>(ring: &WorldBroadcast<M>) {
    let mut writer = ring.writer().unwrap();
    let mut readers = [ring.reader().unwrap(), ring.reader().unwrap()];
    for _ in 0..12 {
        writer.send_timeout(&OURS, LONG).expect("the dead are in the way");
        for reader in &mut readers {
            let got = reader.receive_timeout(LONG).expect("a late reader is left behind");
            assert_eq!((&*got, got.missed()), (&OURS[..], 0));
        }
    }
}

/// Room is there when it is dropped.
struct FullRing(BroadcastReader<WorldRing<HoldsBack>>);

impl Drop for FullRing {
    fn drop(&mut self) {
        while self.0.try_receive().is_ok() {}
    }
}

fn fills_the_ring(stage: &Stage) -> Hold {
    let ring = ring(stage);
    let reader = ring.reader().unwrap();
    let mut writer = ring.writer().unwrap();
    while writer.try_send(&OURS).is_ok() {}
    Some(Box::new(FullRing(reader)))
}

fn the_waiting_writer_died(stage: &Stage) {
    let ring = ring(stage);
    assert!(ring.reader().unwrap().try_receive().is_err(), "a late reader gets what was before");
    stage.told();
    successors_get_on(&ring);
}

fn reader(stage: &Stage) {
    let mut reader = ring(stage).reader().unwrap();
    mark();
    assert_eq!(*reader.receive().unwrap(), OURS);
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(reader);
}

/// Sends a message when it is dropped.
struct Sends(BroadcastWriter<WorldRing<HoldsBack>>);

impl Drop for Sends {
    fn drop(&mut self) {
        self.0.send_timeout(&OURS, LONG).unwrap();
    }
}

fn sends_a_message(stage: &Stage) -> Hold {
    Some(Box::new(Sends(ring(stage).writer().unwrap())))
}

/// A reader that stands still holds the writer back, and is not dropped.
fn the_writer_is_held_back(stage: &Stage) {
    // The other writer may be there yet.
    let Ok(mut writer) = ring(stage).writer() else { return };
    while writer.try_send(&OURS).is_ok() {}
    let full = writer.send_timeout(&OURS, Duration::from_millis(2));
    assert_eq!((full, writer.lost_reader()), (Err(TransferError::TimedOut), None));
}

/// The writer goes on without the dead reader, and is told of it once.
fn the_reader_died(stage: &Stage) {
    let ring = ring(stage);
    let mut writer = ring.writer().unwrap();
    (0..12).for_each(|_| writer.send_timeout(&OURS, LONG).expect("a dead reader is in the way"));
    if let Some(end) = writer.lost_reader() {
        assert_eq!(end, TransferError::PeerDied { rank: Some(1) });
        stage.told();
    }
    assert_eq!((writer.lost_reader(), writer.readers()), (None, 0));
    drop(writer);
    successors_get_on(&ring);
}

fn joining_reader(stage: &Stage) {
    let ring = ring(stage);
    mark();
    let reader = ring.reader().unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
    std::mem::forget(reader);
}

fn leaving_reader(stage: &Stage) {
    let reader = ring(stage).reader().unwrap();
    mark();
    drop(reader);
    stage.progress.store(DONE, SeqCst);
    mark();
}

pub const PLAYS: &[Play] = &[
    Play {
        name: "broadcast send to a reader",
        // The reader reads when the victim is dead.
        patience: u64::MAX,
        hold: reads::<HoldsBack>,
        victim: writer::<HoldsBack>,
        meanwhile: no_death_is_told::<HoldsBack>,
        after: the_writer_died::<HoldsBack>,
        ..PLAY
    },
    Play {
        name: "broadcast send to a lossy ring",
        patience: u64::MAX,
        hold: reads::<Lossy>,
        victim: writer::<Lossy>,
        meanwhile: no_death_is_told::<Lossy>,
        after: the_writer_died::<Lossy>,
        ..PLAY
    },
    Play {
        name: "broadcast send behind a full ring",
        hold: fills_the_ring,
        victim: writer::<HoldsBack>,
        after: the_waiting_writer_died,
        ..PLAY
    },
    Play {
        name: "broadcast receive from an empty ring",
        hold: sends_a_message,
        victim: reader,
        meanwhile: the_writer_is_held_back,
        after: the_reader_died,
        ..PLAY
    },
    Play { name: "broadcast join as a reader", victim: joining_reader, after: the_reader_died, ..PLAY },
    Play { name: "broadcast leave as a reader", victim: leaving_reader, after: the_reader_died, ..PLAY },
];
