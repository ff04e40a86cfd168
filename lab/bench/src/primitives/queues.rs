//! Bounded queues of values under load: many producers, one or more consumers.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use towpath::{TransferError, World, WorldConfig, mpmc, mpsc, per_sender, spsc};

use super::ck::{self, CkRing};
use super::crew::LoadCrew;
use super::{MeasuredKind, enter, world_for};
use crate::experiment::Samples;
use crate::structures::Sharing;
use crate::structures::board::{Board, BoardMember};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_report::record::metrics::MESSAGES_PER_S;
use towpath_sync::Policy;
use towpath_sync::queues::{Mpmc, Mpsc, PerSender, RINGS, Spsc};

/// Queue to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueQueue {
    /// `towpath::spsc`.
    Spsc,
    /// `towpath::mpsc`.
    Mpsc,
    /// `towpath::mpmc`.
    Mpmc,
    /// `towpath::per_sender`.
    PerSender,
    /// `towpath::mpsc::owned`: values of any type.
    MpscOwned,
    /// `towpath::per_sender::owned`: values of any type.
    PerSenderOwned,
    /// `std::sync::mpsc::sync_channel`.
    Std,
    /// crossbeam's bounded channel.
    Crossbeam,
    /// kanal's bounded channel.
    Kanal,
    /// crossfire's bounded channel of many senders and one receiver.
    Crossfire,
    /// Concurrency Kit's ring of many senders and one receiver, which yield to wait.
    Ck,
}

/// Number of places of each queue.
const CAPACITY: usize = 1024;

impl ValueQueue {
    /// All of them.
    pub const ALL: [ValueQueue; 11] = [
        ValueQueue::Spsc,
        ValueQueue::Mpsc,
        ValueQueue::Mpmc,
        ValueQueue::PerSender,
        ValueQueue::MpscOwned,
        ValueQueue::PerSenderOwned,
        ValueQueue::Std,
        ValueQueue::Crossbeam,
        ValueQueue::Kanal,
        ValueQueue::Crossfire,
        ValueQueue::Ck,
    ];
}

impl MeasuredKind for ValueQueue {
    fn name(self) -> &'static str {
        match self {
            ValueQueue::Spsc => "spsc",
            ValueQueue::Mpsc => "mpsc",
            ValueQueue::Mpmc => "mpmc",
            ValueQueue::PerSender => "per-sender",
            ValueQueue::MpscOwned => "mpsc-owned",
            ValueQueue::PerSenderOwned => "per-sender-owned",
            ValueQueue::Std => "std",
            ValueQueue::Crossbeam => "crossbeam",
            ValueQueue::Kanal => "kanal",
            ValueQueue::Crossfire => "crossfire",
            ValueQueue::Ck => "ck-ring",
        }
    }

    fn has_policy(self) -> bool {
        false
    }

    /// Returns whether it is for so many participants, of which one consumes.
    fn is_for(self, sharing: Sharing, procs: u32) -> bool {
        match self {
            ValueQueue::Spsc => procs == 2,
            ValueQueue::Mpsc | ValueQueue::Mpmc => procs > 1,
            ValueQueue::PerSender => (2..=RINGS as u32).contains(&procs),
            ValueQueue::PerSenderOwned => {
                (2..=RINGS as u32).contains(&procs) && matches!(sharing, Sharing::Threads)
            }
            ValueQueue::Ck => procs > 1 && ck::is_installed(),
            _ => procs > 1 && matches!(sharing, Sharing::Threads),
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueLoad {
    /// The queue.
    pub queue: ValueQueue,
    /// The participants' kind.
    pub sharing: Sharing,
    /// Their number, with the one that consumes.
    pub procs: u32,
}

/// Queue as participants use it.
trait Channel: Sync {
    type Sender;
    type Receiver;
    fn sender(&self) -> Result<Self::Sender, String>;
    fn receiver(&self) -> Result<Self::Receiver, String>;
    fn send(sender: &Self::Sender, value: u64) -> Result<(), String>;
    fn try_send(sender: &Self::Sender, value: u64);
    fn receive(receiver: &Self::Receiver) -> Result<(), String>;
    /// Returns whether there was a value.
    fn try_receive(receiver: &Self::Receiver) -> bool;
}

const GONE: &str = "that side of the queue is taken";

/// Both ends of a queue between threads, until participants take them.
struct ThreadEnds<S, R>(std::sync::Mutex<(Option<S>, Option<R>)>);

impl<S, R> ThreadEnds<S, R> {
    fn of((sender, receiver): (S, R)) -> Self {
        ThreadEnds(std::sync::Mutex::new((Some(sender), Some(receiver))))
    }

    fn ends(&self) -> std::sync::MutexGuard<'_, (Option<S>, Option<R>)> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

macro_rules! channel {
    ($sender:ty, $receiver:ty, $receive:ident, |$it:ident| $try_receive:expr, |$end:ident| $copy:expr) => {
        impl Channel for ThreadEnds<$sender, $receiver> {
            type Sender = $sender;
            type Receiver = $receiver;
            fn sender(&self) -> Result<$sender, String> {
                let $end = &mut self.ends().0;
                $copy.ok_or_else(|| GONE.to_owned())
            }
            fn receiver(&self) -> Result<$receiver, String> {
                self.ends().1.take().ok_or_else(|| GONE.to_owned())
            }
            #[inline]
            fn send(sender: &$sender, value: u64) -> Result<(), String> {
                sender.send(value).map_err(|e| e.to_string())
            }
            fn try_send(sender: &$sender, value: u64) {
                // It is full: the receiver does not sleep.
                let _ = sender.try_send(value);
            }
            #[inline]
            fn receive(receiver: &$receiver) -> Result<(), String> {
                receiver.$receive().map(drop).map_err(|e| e.to_string())
            }
            fn try_receive($it: &$receiver) -> bool {
                $try_receive
            }
        }
    };
}

type CrossfireSender = crossfire::MTx<crossfire::mpsc::Array<u64>>;
type CrossfireReceiver = crossfire::Rx<crossfire::mpsc::Array<u64>>;

channel!(spsc::Sender<u64>, spsc::Receiver<u64>, receive, |it| it.try_receive().is_ok(), |end| end.take());
channel!(mpsc::Sender<u64>, mpsc::Receiver<u64>, receive, |it| it.try_receive().is_ok(), |end| end.clone());
channel!(per_sender::Sender<u64>, per_sender::Receiver<u64>, receive, |it| it.try_receive().is_ok(), |end| {
    end.clone()
});
channel!(mpsc::OwnedSender<u64>, mpsc::OwnedReceiver<u64>, receive, |it| it.try_receive().is_ok(), |end| {
    end.clone()
});
channel!(
    per_sender::OwnedSender<u64>,
    per_sender::OwnedReceiver<u64>,
    receive,
    |it| it.try_receive().is_ok(),
    |end| end.clone()
);
channel!(mpmc::Sender<u64>, mpmc::Receiver<u64>, receive, |it| it.try_receive().is_ok(), |end| end.clone());
channel!(
    std::sync::mpsc::SyncSender<u64>,
    std::sync::mpsc::Receiver<u64>,
    recv,
    |it| it.try_recv().is_ok(),
    |end| end.clone()
);
channel!(
    crossbeam_channel::Sender<u64>,
    crossbeam_channel::Receiver<u64>,
    recv,
    |it| it.try_recv().is_ok(),
    |end| end.clone()
);
channel!(kanal::Sender<u64>, kanal::Receiver<u64>, recv, |it| matches!(it.try_recv(), Ok(Some(_))), |end| {
    end.clone()
});
channel!(CrossfireSender, CrossfireReceiver, recv, |it| it.try_recv().is_ok(), |end| end.clone());

/// Ring without waiting, between threads or processes: its users yield.
struct YieldingRing(Arc<CkRing>);

impl Channel for YieldingRing {
    type Sender = Arc<CkRing>;
    type Receiver = Arc<CkRing>;
    fn sender(&self) -> Result<Arc<CkRing>, String> {
        Ok(self.0.clone())
    }
    fn receiver(&self) -> Result<Arc<CkRing>, String> {
        Ok(self.0.clone())
    }
    #[inline]
    fn send(sender: &Arc<CkRing>, value: u64) -> Result<(), String> {
        while !sender.try_send(value) {
            std::thread::yield_now();
        }
        Ok(())
    }
    fn try_send(sender: &Arc<CkRing>, value: u64) {
        let _ = sender.try_send(value);
    }
    #[inline]
    fn receive(receiver: &Arc<CkRing>) -> Result<(), String> {
        while receiver.try_receive().is_none() {
            std::thread::yield_now();
        }
        Ok(())
    }
    fn try_receive(receiver: &Arc<CkRing>) -> bool {
        receiver.try_receive().is_some()
    }
}

/// Queue by name, opened by each participant.
struct Named<'a, K>(&'a World, PhantomData<fn() -> K>);

macro_rules! named {
    ($kind:ident, $method:ident, $sender:ty, $receiver:ty) => {
        impl Channel for Named<'_, $kind> {
            type Sender = $sender;
            type Receiver = $receiver;
            fn sender(&self) -> Result<$sender, String> {
                let world = enter(self.0)?;
                let queue = world.$method("queue", CAPACITY).map_err(|e| e.to_string())?;
                queue.sender().map_err(|e| e.to_string())
            }
            fn receiver(&self) -> Result<$receiver, String> {
                let world = enter(self.0)?;
                let queue = world.$method("queue", CAPACITY).map_err(|e| e.to_string())?;
                queue.receiver().map_err(|e| e.to_string())
            }
            #[inline]
            fn send(sender: &$sender, value: u64) -> Result<(), String> {
                sender.send(value).map_err(|e: TransferError| e.to_string())
            }
            fn try_send(sender: &$sender, value: u64) {
                let _ = sender.try_send(value);
            }
            #[inline]
            fn receive(receiver: &$receiver) -> Result<(), String> {
                receiver.receive().map(drop).map_err(|e| e.to_string())
            }
            fn try_receive(receiver: &$receiver) -> bool {
                receiver.try_receive().is_ok()
            }
        }
    };
}

named!(Spsc, spsc, spsc::WorldSender<u64>, spsc::WorldReceiver<u64>);
named!(Mpsc, mpsc, mpsc::WorldSender<u64>, mpsc::WorldReceiver<u64>);
named!(Mpmc, mpmc, mpmc::WorldSender<u64>, mpmc::WorldReceiver<u64>);
named!(PerSender, per_sender, per_sender::WorldSender<u64>, per_sender::WorldReceiver<u64>);

/// Measures it: values that the consumer gets in a second, producers' fairness, costs.
///
/// # Errors
///
/// Those of the system.
pub fn transfer(load: &QueueLoad, run: &Circumstances<'_>) -> Result<Samples, Error> {
    let ring = || measure(load, run, &YieldingRing(Arc::new(CkRing::new()?)));
    if load.sharing == Sharing::Processes {
        let mut config = WorldConfig::new(load.procs);
        config.object_bytes = 1 << 20;
        let world = world_for(&config)?;
        return match load.queue {
            ValueQueue::Spsc => measure(load, run, &Named(&world, PhantomData::<fn() -> Spsc>)),
            ValueQueue::Mpsc => measure(load, run, &Named(&world, PhantomData::<fn() -> Mpsc>)),
            ValueQueue::Mpmc => measure(load, run, &Named(&world, PhantomData::<fn() -> Mpmc>)),
            ValueQueue::PerSender => measure(load, run, &Named(&world, PhantomData::<fn() -> PerSender>)),
            ValueQueue::Ck => ring(),
            _ => Err(Error::NotAvailable("threads only".into())),
        };
    }
    match load.queue {
        ValueQueue::Spsc => measure(load, run, &ThreadEnds::of(spsc::queue(CAPACITY))),
        ValueQueue::Mpsc => measure(load, run, &ThreadEnds::of(mpsc::queue(CAPACITY))),
        ValueQueue::Mpmc => measure(load, run, &ThreadEnds::of(mpmc::queue(CAPACITY))),
        ValueQueue::PerSender => measure(load, run, &ThreadEnds::of(per_sender::queue(CAPACITY))),
        ValueQueue::MpscOwned => measure(load, run, &ThreadEnds::of(mpsc::owned(CAPACITY))),
        ValueQueue::PerSenderOwned => measure(load, run, &ThreadEnds::of(per_sender::owned(CAPACITY))),
        ValueQueue::Std => measure(load, run, &ThreadEnds::of(std::sync::mpsc::sync_channel(CAPACITY))),
        ValueQueue::Crossbeam => measure(load, run, &ThreadEnds::of(crossbeam_channel::bounded(CAPACITY))),
        ValueQueue::Kanal => measure(load, run, &ThreadEnds::of(kanal::bounded(CAPACITY))),
        ValueQueue::Ck => ring(),
        ValueQueue::Crossfire => {
            measure(load, run, &ThreadEnds::of(crossfire::mpsc::bounded_blocking(CAPACITY)))
        }
    }
}

fn measure<C: Channel>(load: &QueueLoad, run: &Circumstances<'_>, channel: &C) -> Result<Samples, Error> {
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    let procs = load.procs as usize;
    let crew = LoadCrew { sharing: load.sharing, procs, policy: Policy::Adaptive, board };
    // Relaxed, all: counts and hints; the queue orders what it carries.
    let produce = |me: usize| {
        let (sender, mut count) = (channel.sender()?, 0u64);
        let (end, done) = (board.end(), board.done(me));
        while end.load(Relaxed) == 0 {
            C::send(&sender, count)?;
            count += 1;
            done.store(count, Relaxed);
        }
        // The consumer may sleep, and has not seen the end yet.
        C::try_send(&sender, count);
        board.thread(me).store(1, Relaxed);
        // As long as it takes the consumer to see that all have ended, no side is gone.
        while board.thread(0).load(Relaxed) == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    };
    let consume = || {
        let (receiver, mut count) = (channel.receiver()?, 0u64);
        let (end, done) = (board.end(), board.done(0));
        while end.load(Relaxed) == 0 {
            C::receive(&receiver)?;
            count += 1;
            done.store(count, Relaxed);
        }
        // Senders that wait for room go on.
        let begun = Instant::now();
        while (1..procs).any(|me| board.thread(me).load(Relaxed) == 0) && begun.elapsed() < PATIENCE {
            while C::try_receive(&receiver) {}
            std::thread::yield_now();
        }
        board.thread(0).store(1, Relaxed);
        Ok(())
    };
    let participate = |member: &BoardMember<'_>| match member.me {
        0 => consume(),
        me => produce(me),
    };
    let mut counted = crew.count(run, &participate)?;
    let received = counted.shares.remove(0);
    let rate = received / counted.time.as_secs_f64().max(1e-9);
    Ok(crew.figures(&counted, MESSAGES_PER_S, rate))
}

/// Time after which the consumer gives up producers that do not end.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::with_circumstances;

    #[test]
    fn every_queue_carries_values() {
        with_circumstances(Duration::from_millis(5), |run| {
            for sharing in Sharing::ALL {
                for procs in [2, 4] {
                    for queue in ValueQueue::ALL.into_iter().filter(|queue| queue.is_for(sharing, procs)) {
                        let load = QueueLoad { queue, sharing, procs };
                        let samples = transfer(&load, run).unwrap_or_else(|e| panic!("{load:?}: {e}"));
                        assert!(samples.values.iter().any(|(m, _)| *m == MESSAGES_PER_S), "{load:?}");
                    }
                }
            }
        });
    }
}
