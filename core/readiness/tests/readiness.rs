//! Waiters in event loops and tasks, and peers that block, in processes: nothing is lost,
//! also if either is killed.

use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Wake};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use towpath_readiness::{
    Acquisition, AsyncOperation, AsyncReader, BarrierEpisode, EventSetting, Means, NextMessage, Pollable,
    ReadyDescriptor, ValueReception, ValueSending, until,
};
use towpath_shm::{World, WorldSpec};
use towpath_sync::queues::TransferError;
use towpath_sync::robust::EpisodeError;
use towpath_testkit::{Child, shared_words, watchdog};

/// Number of values of a test.
const VALUES: u64 = 200;
/// A wait that is not woken never ends: the watchdog sees it.
const HOUR: Duration = Duration::from_secs(3600);

/// Way of waiting of a test.
#[derive(Clone, Copy, Debug)]
enum Way {
    Descriptor(Means),
    Future,
}

const WAYS: [Way; 3] = [Way::Descriptor(Means::Kernel), Way::Descriptor(Means::Thread), Way::Future];

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// A waiter: with one descriptor for all that it does, or with a future for each.
struct Waiter {
    descriptor: Option<ReadyDescriptor>,
    turn: Option<Duration>,
}

impl Waiter {
    /// Makes a waiter that is tried again after `turn`; `None`: as usual.
    fn new(way: Way, turn: Option<Duration>) -> Waiter {
        let descriptor = match way {
            Way::Future => None,
            Way::Descriptor(means) => {
                let mut descriptor = ReadyDescriptor::by(means).unwrap();
                turn.into_iter().for_each(|turn| descriptor.set_turn(turn));
                Some(descriptor)
            }
        };
        Waiter { descriptor, turn }
    }

    fn wait<O: AsyncOperation + Unpin>(&mut self, mut operation: O) -> O::Output {
        let Some(descriptor) = &mut self.descriptor else {
            let future = until(operation);
            return block_on(match self.turn {
                Some(turn) => future.with_turn(turn),
                None => future,
            });
        };
        loop {
            if let Some(output) = descriptor.attempt(&mut operation).unwrap() {
                return output;
            }
            poll(&mut [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)], None).unwrap();
        }
    }
}

fn world() -> World {
    let spec =
        WorldSpec { name: None, processes: 3, area_bytes: 1 << 12, object_bytes: 1 << 16, params: [0; 16] };
    World::create(&spec).unwrap()
}

/// Starts a member of the world, with a mapping of its own.
fn member(world: &World, rank: u32, act: impl FnOnce(&World)) -> Child {
    let theirs = world.reopen().unwrap();
    Child::fork(|| {
        theirs.enter(Some(rank)).unwrap();
        act(&theirs);
    })
}

fn pause(n: u64) {
    // Sometimes the waiter is there first, sometimes not.
    if n.is_multiple_of(3) {
        thread::sleep(Duration::from_micros(n % 7 * 40));
    }
}

fn end_well(children: impl IntoIterator<Item = Child>) {
    for child in children {
        while !child.has_ended() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(child.has_ended_well());
    }
}

fn wait_for(word: &AtomicU64, value: u64) {
    while word.load(SeqCst) != value {
        thread::sleep(Duration::from_micros(100));
    }
}

fn receiver_gets_each_value(way: Way) {
    let world = world();
    let receiver = member(&world, 0, |world| {
        let receiver = world.mpmc::<u64>("q", 4).unwrap().receiver().unwrap();
        let mut waiter = Waiter::new(way, Some(HOUR));
        for n in 0..VALUES {
            assert_eq!(waiter.wait(ValueReception(&receiver)), Ok(n));
        }
    });
    let sender = member(&world, 1, |world| {
        let sender = world.mpmc::<u64>("q", 4).unwrap().sender().unwrap();
        for n in 0..VALUES {
            pause(n);
            sender.send_timeout(n, HOUR).unwrap();
        }
        // A queue without a sender would be another reason to wake.
        thread::sleep(HOUR);
    });
    end_well([receiver]);
    sender.kill();
}

fn sender_waits_for_room(way: Way) {
    let world = world();
    let sender = member(&world, 0, |world| {
        let sender = world.spsc::<u64>("q", 2).unwrap().sender().unwrap();
        let mut waiter = Waiter::new(way, Some(HOUR));
        for n in 0..VALUES {
            waiter.wait(ValueSending(&sender, n)).unwrap();
        }
    });
    let receiver = member(&world, 1, |world| {
        let receiver = world.spsc::<u64>("q", 2).unwrap().receiver().unwrap();
        for n in 0..VALUES {
            pause(n);
            assert_eq!(receiver.receive_timeout(HOUR), Ok(n));
        }
    });
    end_well([sender, receiver]);
}

fn reader_gets_each_message(way: Way) {
    let world = world();
    let [ready] = shared_words(1) else { unreachable!() };
    let reader = member(&world, 0, |world| {
        let mut reader = world.broadcast("b", 1 << 12).unwrap().reader().unwrap();
        ready.store(1, SeqCst);
        let mut waiter = Waiter::new(way, Some(HOUR));
        for n in 0..VALUES {
            // Each tenth message comes in pieces.
            let bytes = if n % 10 == 9 { 5000 } else { 8 };
            if matches!(way, Way::Future) && n.is_multiple_of(2) {
                let message = block_on(reader.receive_async()).unwrap();
                assert_eq!((message[0], message.len()), (n as u8, bytes));
            } else {
                let missed = waiter.wait(NextMessage(&mut reader)).unwrap();
                assert_eq!((reader.last(missed)[0], reader.last(missed).len()), (n as u8, bytes));
            }
        }
    });
    let writer = member(&world, 1, |world| {
        let mut writer = world.broadcast("b", 1 << 12).unwrap().writer().unwrap();
        wait_for(ready, 1);
        for n in 0..VALUES {
            pause(n);
            writer.send(&vec![n as u8; if n % 10 == 9 { 5000 } else { 8 }]).unwrap();
        }
        thread::sleep(HOUR);
    });
    end_well([reader]);
    writer.kill();
}

fn events_and_permits_wake_their_waiters(way: Way) {
    let world = world();
    let [waits] = shared_words(1) else { unreachable!() };
    let waiter = member(&world, 0, |world| {
        let (event, permits) = (world.event("e").unwrap(), world.semaphore("s", 0).unwrap());
        let mut waiter = Waiter::new(way, Some(HOUR));
        for n in 1..=VALUES {
            let setting = EventSetting::of(&event);
            waits.store(n, SeqCst);
            waiter.wait(setting).unwrap();
            waiter.wait(Acquisition(&permits)).unwrap().forget();
        }
    });
    let setter = member(&world, 1, |world| {
        let (event, permits) = (world.event("e").unwrap(), world.semaphore("s", 0).unwrap());
        for n in 1..=VALUES {
            wait_for(waits, n);
            // A waiter whose wait has begun hears of it, also if it is reset at once.
            event.set();
            event.reset();
            pause(n);
            permits.add(1);
        }
    });
    end_well([waiter, setter]);
}

fn episodes_of_a_barrier_end_and_tell_of_a_death(way: Way) {
    let world = world();
    let [arrived] = shared_words(1) else { unreachable!() };
    let waiter = member(&world, 0, |world| {
        let phase = world.barrier_of("b", 2).unwrap();
        let mut waiter = Waiter::new(way, Some(HOUR));
        for n in 1..=VALUES {
            arrived.store(n, SeqCst);
            waiter.wait(BarrierEpisode(&phase)).unwrap();
        }
        arrived.store(VALUES + 1, SeqCst);
        // Told by the time of a turn: the dead wake no waiter.
        let told = Waiter::new(way, None).wait(BarrierEpisode(&phase));
        assert_eq!(told, Err(EpisodeError::PeerDied { rank: Some(1) }));
        assert_eq!(Waiter::new(way, None).wait(BarrierEpisode(&phase)), Ok(()), "the survivor alone");
    });
    let other = member(&world, 1, |world| {
        let phase = world.barrier_of("b", 2).unwrap();
        for n in 1..=VALUES {
            pause(n);
            phase.wait().unwrap();
            assert!(arrived.load(SeqCst) >= n, "passed without the waiter");
        }
        loop {
            thread::park();
        }
    });
    wait_for(arrived, VALUES + 1);
    other.kill();
    end_well([waiter]);
}

fn each_pulse_of_an_event_reaches_its_pollable(way: Way) {
    let Way::Descriptor(means) = way else { return };
    let world = world();
    let [told] = shared_words(1) else { unreachable!() };
    let waiter = member(&world, 0, |world| {
        let mut event =
            Pollable::with(world.event("e").unwrap(), Waiter::new(way, Some(HOUR)).descriptor.unwrap());
        assert_eq!(event.means(), means);
        let readable = |event: &mut Pollable<_>| {
            poll(&mut [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)], None).unwrap();
        };
        assert!(!event.try_wait().unwrap());
        for n in 1..=VALUES {
            told.store(n, SeqCst);
            while !event.try_wait().unwrap() {
                readable(&mut event);
            }
            // The event may still be set, and is not told once more when it is not.
            while event.object().is_set() {
                thread::yield_now();
            }
            assert!(!event.try_wait().unwrap());
        }
        // Between two calls.
        event.object().set();
        event.object().reset();
        assert!(event.try_wait().unwrap() && !event.try_wait().unwrap());
        // It is told as long as it is set.
        event.object().set();
        assert!(event.try_wait().unwrap() && event.try_wait().unwrap());
        event.object().reset();
        assert!(!event.try_wait().unwrap());
    });
    let setter = member(&world, 1, |world| {
        let event = world.event("e").unwrap();
        for n in 1..=VALUES {
            wait_for(told, n);
            pause(n);
            event.set();
            event.reset();
        }
    });
    end_well([waiter, setter]);
}

fn killed_sender_ends_the_wait(way: Way) {
    let world = world();
    let [stage] = shared_words(1) else { unreachable!() };
    let sender = member(&world, 1, |world| {
        let sender = world.mpsc::<u64>("q", 4).unwrap().sender().unwrap();
        sender.send(1).unwrap();
        wait_for(stage, 2);
        thread::sleep(HOUR);
    });
    let receiver = member(&world, 0, |world| {
        let receiver = world.mpsc::<u64>("q", 4).unwrap().receiver().unwrap();
        let mut waiter = Waiter::new(way, None);
        assert_eq!(waiter.wait(ValueReception(&receiver)), Ok(1));
        stage.store(1, SeqCst);
        assert_eq!(waiter.wait(ValueReception(&receiver)), Err(TransferError::PeerDied { rank: Some(1) }));
    });
    wait_for(stage, 1);
    // Longer than several turns of the waiter.
    thread::sleep(Duration::from_millis(60));
    sender.kill();
    end_well([receiver]);
}

fn killed_waiter_takes_no_wake_up_along(way: Way) {
    let world = world();
    let [stage] = shared_words(1) else { unreachable!() };
    let wait = |world: &World, mine: u64| {
        let receiver = world.mpmc::<u64>("q", 4).unwrap().receiver().unwrap();
        stage.fetch_add(mine, SeqCst);
        // The first one dies in its sleep.
        assert_eq!(Waiter::new(way, Some(HOUR)).wait(ValueReception(&receiver)), Ok(5));
    };
    let first = member(&world, 0, |world| wait(world, 1));
    wait_for(stage, 1);
    while !first.is_asleep() {
        thread::sleep(Duration::from_micros(100));
    }
    let second = member(&world, 1, |world| wait(world, 2));
    wait_for(stage, 3);
    first.kill();
    let sender = member(&world, 2, |world| {
        world.mpmc::<u64>("q", 4).unwrap().sender().unwrap().send(5).unwrap();
        thread::sleep(HOUR);
    });
    end_well([second]);
    sender.kill();
}

type Case = (&'static str, fn(Way));

const CASES: &[Case] = &[
    ("receiver_gets_each_value", receiver_gets_each_value),
    ("sender_waits_for_room", sender_waits_for_room),
    ("reader_gets_each_message", reader_gets_each_message),
    ("events_and_permits_wake_their_waiters", events_and_permits_wake_their_waiters),
    ("each_pulse_of_an_event_reaches_its_pollable", each_pulse_of_an_event_reaches_its_pollable),
    ("episodes_of_a_barrier_end_and_tell_of_a_death", episodes_of_a_barrier_end_and_tell_of_a_death),
    ("killed_sender_ends_the_wait", killed_sender_ends_the_wait),
    ("killed_waiter_takes_no_wake_up_along", killed_waiter_takes_no_wake_up_along),
];

fn main() {
    for way in WAYS {
        if let Way::Descriptor(means) = way
            && let Err(error) = ReadyDescriptor::by(means)
        {
            println!("{way:?}: skipped, since the system refuses it ({error})");
            continue;
        }
        for (name, case) in CASES {
            watchdog::begin(format!("{name}, {way:?}"), 60);
            case(way);
            println!("test {name} ({way:?}) ... ok");
        }
    }
}
