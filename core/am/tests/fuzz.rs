//! Random bytes over the queues of a live world: errors and dropped messages at most;
//! honest processes neither crash nor hang, and a new pair of endpoints in the same world works.
//!
//! The kernel's mutex (`posix`) is spared: libc follows pointers that it keeps in there.
#![allow(unsafe_code)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::{Watchdog, members, tiny};
use towpath_am::{Algorithm, Bundle, Endpoint, Error, Layout, Tag, WorldConfig};
use towpath_machine::Random;
use towpath_shm::World;

/// Writes nonsense: bytes anywhere in the queues of two endpoints, plausible words in
/// headers and control words.
struct Scribbler<'a> {
    world: &'a World,
    config: WorldConfig,
    layout: Layout,
    random: Random,
}

impl Scribbler<'_> {
    fn put(&self, offset: u64, bytes: &[u8]) {
        let area = self.world.area();
        assert!(offset + bytes.len() as u64 <= area.len());
        for (i, &byte) in bytes.iter().enumerate() {
            // SAFETY: in the area (checked), which stays mapped while `world` lives; all its
            // accesses elsewhere are atomic, or copies that expect others to write.
            unsafe {
                (*area.base().as_ptr().add(offset as usize + i).cast::<AtomicU8>())
                    .store(byte, Ordering::Relaxed)
            };
        }
    }

    fn scribble(&mut self) {
        let q = self.layout.queue;
        let endpoint = self.random.below(2);
        let reply = self.random.below(2) * self.layout.reply;
        let start = self.layout.blocks_start + endpoint * self.layout.stride + reply;
        let value = match self.random.below(4) {
            0 => self.random.below(4),
            1 => self.random.below(1 << 10),
            2 => self.random.word() | 1 << 63,
            _ => self.random.word(),
        };
        match self.random.below(8) {
            // A word of the control lines.
            0 => {
                let word = self.random.below((q.locks - q.control) / 64) * 64;
                self.put(start + q.control + word, &value.to_le_bytes());
            }
            // A header.
            1 | 2 => {
                let slot = self.random.below(self.config.packets.into()) * 64;
                let header = self.random.word() & !0xff | self.random.below(256);
                self.put(start + q.slots + slot, &header.to_le_bytes());
            }
            // A block's head.
            3 => {
                let word = self.random.below(u64::from(self.config.blocks) * 8) * 8;
                self.put(start + q.heads + word, &value.to_le_bytes());
            }
            // A word that belongs to a packet.
            4 => {
                let word = self.random.below(u64::from(self.config.packets) * 4) * 8;
                self.put(start + q.extras + word, &value.to_le_bytes());
            }
            // A word of the locks.
            5 if self.config.algorithm != Algorithm::Posix => {
                let word = self.random.below((q.slots - q.locks) / 8) * 8;
                self.put(start + q.locks + word, &value.to_le_bytes());
            }
            // Bytes behind the locks.
            _ => {
                let len = 1 + self.random.below(64);
                let at = q.slots + self.random.below(q.total - q.slots - len);
                let bytes: Vec<u8> = (0..len).map(|_| self.random.word() as u8).collect();
                self.put(start + at, &bytes);
            }
        }
    }
}

/// The queues' words, for the watchdog.
fn dump(world: &World, config: &WorldConfig) -> String {
    use std::fmt::Write;
    let layout = Layout::of(config);
    let area = world.area();
    let word = |offset: u64| area.get::<AtomicU64>(offset).unwrap().load(Ordering::Relaxed);
    let mut text = String::new();
    for queue in 0..4 {
        let q = layout.queue;
        let start = layout.blocks_start + queue / 2 * layout.stride + queue % 2 * layout.reply;
        write!(text, "\nqueue {queue}: control").unwrap();
        for at in (q.control..q.locks).step_by(64) {
            write!(text, " {:x}", word(start + at)).unwrap();
        }
        write!(text, "; headers").unwrap();
        for slot in 0..u64::from(config.packets) {
            write!(text, " {:x}", word(start + q.slots + slot * 64)).unwrap();
        }
        write!(text, "; blocks").unwrap();
        for block in 0..u64::from(config.blocks) {
            write!(text, " {:x}", word(start + q.heads + block * 64)).unwrap();
        }
    }
    text
}

/// Sends a message of each form, in turn. Any result will do, an error or a message that
/// came back: the point is that the call returns.
fn send(endpoint: &Endpoint, n: u64) {
    let args = [n as u32; 16];
    let payload = [n as u8; 600];
    let result = match n % 5 {
        0 => endpoint.request(0, 1, &args[..(n % 17) as usize]),
        1 => endpoint.request_medium(0, 2, &args[..3], &payload[..200]),
        2 => endpoint.request_long(0, 3, &args[..1], &payload, 40),
        3 => endpoint.request_long_async(0, 3, &args[..1], &payload, 40),
        _ => endpoint.request(0, 4, &args[..2]),
    };
    match result {
        Ok(()) | Err(Error::NotSent | Error::BadWorld(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

fn answering(endpoint: &Endpoint, handled: &Arc<AtomicU64>) {
    for handler in 0..=4 {
        let handled = handled.clone();
        endpoint.set_handler(handler, move |message| {
            handled.fetch_add(1, Ordering::Relaxed);
            let sum: u32 = message.bytes().iter().map(|&b| u32::from(b)).sum();
            if message.is_request() && handler == 4 {
                message.reply(1, &[sum]).unwrap();
            } else if message.is_request() && handler == 2 {
                message.reply_medium(1, &[sum], message.bytes()).unwrap();
            }
        });
    }
}

fn fuzz(algorithm: Algorithm, seed: u64, scribbles: u64) {
    let rounds = Arc::new(AtomicU64::new(0));
    let stage = Arc::new(AtomicU64::new(0));
    let (r, s) = (rounds.clone(), stage.clone());
    let config = WorldConfig { endpoints: 4, ..tiny(2, algorithm) };
    let worlds = members(&config);
    let seen = worlds[3].clone();
    let _watchdog = Watchdog::new(Duration::from_secs(60), move || {
        format!(
            "{}, seed {seed}, {scribbles} scribbles: {} sends, stage {}{}",
            algorithm.name(),
            r.load(Ordering::Relaxed),
            s.load(Ordering::Relaxed),
            dump(&seen, &config)
        )
    });
    let handled = Arc::new(AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let (to_receiver, receiver_name) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let endpoint = Endpoint::with_private_segment(&worlds[1], 4096).unwrap();
            answering(&endpoint, &handled);
            to_receiver.send(endpoint.name()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                if endpoint.poll() == 0 {
                    endpoint.wait(Some(Duration::from_millis(2)));
                }
            }
        });
        let (worlds, handled, stop, rounds) = (&worlds, &handled, &stop, &rounds);
        let sending = scope.spawn(move || {
            let endpoint = Endpoint::with_private_segment(&worlds[0], 4096).unwrap();
            answering(&endpoint, handled);
            endpoint.map(0, receiver_name.recv().unwrap(), Tag::ALL).unwrap();
            while !stop.load(Ordering::Relaxed) {
                send(&endpoint, rounds.fetch_add(1, Ordering::Relaxed));
                endpoint.poll();
            }
        });
        let layout = Layout::of(&config);
        let mut scribbler = Scribbler { world: &worlds[3], config, layout, random: Random::new(seed) };
        let start = Instant::now();
        // First let something happen.
        while rounds.load(Ordering::Relaxed) < 100 && start.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        let before = handled.load(Ordering::Relaxed);
        assert!(before > 0, "nothing was delivered before");
        for _ in 0..scribbles {
            scribbler.scribble();
            let pause = scribbler.random.below(200);
            std::thread::sleep(Duration::from_micros(pause));
        }
        // Time for it to be noticed.
        std::thread::sleep(Duration::from_millis(30));
        stage.store(1, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        sending.join().expect("an honest sender");
        stage.store(2, Ordering::Relaxed);
        receiving.join().expect("an honest receiver");
    });
    stage.store(3, Ordering::Relaxed);
    // Endpoints that were not scribbled over.
    let (a, b) =
        (Endpoint::new(&worlds[2]).unwrap(), Endpoint::with_private_segment(&worlds[3], 4096).unwrap());
    let fresh = Arc::new(AtomicU64::new(0));
    answering(&b, &fresh);
    a.map(0, b.name(), Tag::ALL).unwrap();
    let bundle = Bundle::new();
    bundle.add(&a);
    bundle.add(&b);
    for n in 0..100 {
        send(&a, n - n % 5);
    }
    while bundle.poll() > 0 {}
    assert_eq!(fresh.load(Ordering::Relaxed), 100, "the rest of the world works");
}

/// `TOWPATH_FUZZ_SEED=N` for another run than the usual one.
fn seed() -> u64 {
    let n = std::env::var("TOWPATH_FUZZ_SEED").ok().and_then(|n| n.parse().ok());
    0x9e37_79b9_7f4a_7c15 ^ n.unwrap_or(0u64)
}

macro_rules! fuzz {
    ($($name:ident: $algorithm:ident,)*) => {
        $(#[test]
        fn $name() {
            let mut seeds = Random::new(seed());
            // Few at first, since a queue that has been closed takes no more harm.
            for scribbles in (1..=40).chain([100, 1000]) {
                fuzz(Algorithm::$algorithm, seeds.word(), scribbles);
            }
        })*
    };
}

fuzz! {
    test_and_set: TestAndSet,
    test_and_test_and_set: TestAndTestAndSet,
    ticket: Ticket,
    anderson: Anderson,
    mcs: Mcs,
    posix: Posix,
    lock_free: LockFree,
    towpath: Towpath,
}
