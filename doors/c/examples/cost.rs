//! Cost of a call in C ÷ the call in Rust: each primitive, by one thread, interleaved.
//!
//! `cost LOOPS.so [RUNS]`: loops of `checks/cost.c`, which call libtowpath.so. Both sides use
//! objects of one kind in worlds of their own. Prints medians and the median of the ratios.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};
use std::error::Error;
use std::ffi::CString;
use std::hint::black_box;
use std::time::{Duration, Instant};

use towpath_shm::{World, WorldSpec};

const ROUNDS: u64 = 20_000;

/// Loops of a library.
struct Loops(*mut c_void);

impl Loops {
    /// A function of the library, or of those that it loads.
    fn function(&self, name: &str) -> Result<*mut c_void, Box<dyn Error>> {
        let name = CString::new(name)?;
        // SAFETY: a handle of dlopen, a text.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if found.is_null() { Err(format!("{name:?} is missing").into()) } else { Ok(found) }
    }
}

/// Nanoseconds of a round.
fn time(act: impl FnOnce()) -> f64 {
    let since = Instant::now();
    act();
    since.elapsed().as_nanos() as f64 / ROUNDS as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(what: &str, runs: usize, c: impl Fn(), mut rust: impl FnMut()) {
    let (mut all_c, mut all_rust, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..runs {
        // Each is first in turn.
        let (in_c, in_rust) = if run % 2 == 0 {
            let in_c = time(&c);
            (in_c, time(&mut rust))
        } else {
            let in_rust = time(&mut rust);
            (time(&c), in_rust)
        };
        all_c.push(in_c);
        all_rust.push(in_rust);
        ratios.push(in_c / in_rust);
    }
    let (c, rust, ratio) = (median(&mut all_c), median(&mut all_rust), median(&mut ratios));
    println!("{what:27} C {c:8.2} ns   Rust {rust:8.2} ns   C ÷ Rust {ratio:.3}");
}

type Made = unsafe extern "C" fn(*mut c_void, *const c_char, u64, *mut *mut c_void) -> c_int;
type MadePlain = unsafe extern "C" fn(*mut c_void, *const c_char, *mut *mut c_void) -> c_int;
type MadeQueue =
    unsafe extern "C" fn(*mut c_void, *const c_char, c_int, usize, usize, *mut *mut c_void) -> c_int;
type MadeOf = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
type Loop = unsafe extern "C" fn(*mut c_void, u64);
type LoopOfTwo = unsafe extern "C" fn(*mut c_void, *mut c_void, u64);

/// The handle that a call makes.
fn made(call: impl FnOnce(*mut *mut c_void) -> c_int) -> Result<*mut c_void, Box<dyn Error>> {
    let mut out = core::ptr::null_mut();
    match call(&mut out) {
        0 => Ok(out),
        error => Err(format!("error {error}").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = CString::new(arguments.next().ok_or("LOOPS.so is missing")?)?;
    let runs = arguments.next().map_or(Ok(101), |runs| runs.parse())?;
    // SAFETY: a library of ours.
    let loops = Loops(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) });
    if loops.0.is_null() {
        // SAFETY: a text, after a failure.
        return Err(unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into());
    }
    let spec = WorldSpec { name: None, processes: 2, area_bytes: 0, object_bytes: 1 << 20, params: [0; 16] };
    let world = World::create(&spec)?;
    world.enter(None)?;
    /// A function of the library, as its type.
    macro_rules! c {
        ($name:literal, $type:ty) => {
            // SAFETY: `towpath.h`, or `cost.c`, declares it so.
            unsafe { core::mem::transmute::<*mut c_void, $type>(loops.function($name)?) }
        };
    }
    type Create = unsafe extern "C" fn(*const c_char, u32, u64, *mut *mut c_void) -> c_int;
    let create = c!("tp_world_create", Create);
    // SAFETY: as the header asks; the handles stay open until the end. So it is below, too.
    let here = made(|out| unsafe { create(core::ptr::null(), 2, 1 << 20, out) })?;
    let handle = |make: Made, value: u64| {
        let name = CString::new(format!("o{}", make as usize)).unwrap_or_default();
        // SAFETY: see above.
        made(|out| unsafe { make(here, name.as_ptr(), value, out) })
    };

    let (mutex, run) = (handle(c!("tp_world_mutex", Made), 0)?, c!("cost_mutex", Loop));
    let own = world.mutex("m", 0u64)?;
    // SAFETY: see above.
    compare(
        "mutex",
        runs,
        || unsafe { run(mutex, ROUNDS) },
        || {
            for _ in 0..ROUNDS {
                drop(black_box(&own).lock().map_err(|_| ()));
            }
        },
    );

    let lock = handle(c!("tp_world_rwlock", Made), 0)?;
    let own = world.rw_lock("r", 0u64)?;
    let run = c!("cost_read", Loop);
    // SAFETY: see above.
    compare(
        "rwlock, reading",
        runs,
        || unsafe { run(lock, ROUNDS) },
        || {
            for _ in 0..ROUNDS {
                drop(black_box(&own).read().map_err(|_| ()));
            }
        },
    );
    let run = c!("cost_write", Loop);
    // SAFETY: see above.
    compare(
        "rwlock, writing",
        runs,
        || unsafe { run(lock, ROUNDS) },
        || {
            for _ in 0..ROUNDS {
                drop(black_box(&own).write().map_err(|_| ()));
            }
        },
    );

    let (semaphore, run) = (handle(c!("tp_world_sem", Made), 2)?, c!("cost_sem", Loop));
    let own = world.semaphore("s", 2)?;
    // SAFETY: see above.
    compare(
        "semaphore",
        runs,
        || unsafe { run(semaphore, ROUNDS) },
        || {
            for _ in 0..ROUNDS {
                drop(black_box(&own).acquire());
            }
        },
    );

    let (barrier, run) = (handle(c!("tp_world_barrier_of", Made), 1)?, c!("cost_barrier", Loop));
    let own = world.barrier_of("b", 1)?;
    // SAFETY: see above.
    compare(
        "barrier of one",
        runs,
        || unsafe { run(barrier, ROUNDS) },
        || {
            for _ in 0..ROUNDS {
                let _ = black_box(black_box(&own).wait());
            }
        },
    );

    let make = c!("tp_world_event", MadePlain);
    // SAFETY: see above.
    let event = made(|out| unsafe { make(here, c"e".as_ptr(), out) })?;
    let (own, run) = (world.event("e")?, c!("cost_event", Loop));
    // SAFETY: see above.
    compare(
        "event: set, wait, reset",
        runs,
        || unsafe { run(event, ROUNDS) },
        || {
            for _ in 0..ROUNDS {
                let own = black_box(&own);
                own.set();
                let _ = black_box(own.wait());
                black_box(own.reset());
            }
        },
    );

    let make = c!("tp_world_cond", MadePlain);
    // SAFETY: see above.
    let condition = made(|out| unsafe { make(here, c"c".as_ptr(), out) })?;
    let (own_mutex, own, run) = (world.mutex("m", 0u64)?, world.condvar("c")?, c!("cost_signal", Loop));
    // SAFETY: see above.
    compare(
        "condition: signal",
        runs,
        || unsafe { run(condition, ROUNDS) },
        || {
            for _ in 0..ROUNDS {
                black_box(&own).notify_one();
            }
        },
    );
    let run = c!("cost_cond", LoopOfTwo);
    // SAFETY: see above.
    compare(
        "condition: no wait, signal",
        runs,
        || unsafe { run(condition, mutex, ROUNDS) },
        || {
            for _ in 0..ROUNDS {
                if let Ok(guard) = black_box(&own_mutex).lock() {
                    let waited = own.wait_timeout(guard, Duration::ZERO).map_err(|_| ());
                    own.notify_one();
                    drop(waited);
                }
            }
        },
    );

    let make = c!("tp_world_queue", MadeQueue);
    let (sender, receiver) = (c!("tp_sender_open", MadeOf), c!("tp_receiver_open", MadeOf));
    let run = c!("cost_queue", LoopOfTwo);
    macro_rules! compare_queue {
        ($kind:ident, $number:literal, $what:literal) => {
            let name = CString::new(stringify!($kind))?;
            // SAFETY: see above.
            let queue = made(|out| unsafe { make(here, name.as_ptr(), $number, 64, 64, out) })?;
            let (sender, receiver) =
                // SAFETY: see above.
                unsafe { (made(|out| sender(queue, out))?, made(|out| receiver(queue, out))?) };
            let own = world.$kind::<[u64; 8]>(stringify!($kind), 64)?;
            let (own_sender, own_receiver) = (own.sender()?, own.receiver()?);
            compare(
                $what,
                runs,
                // SAFETY: see above.
                || unsafe { run(sender, receiver, ROUNDS) },
                || {
                    for _ in 0..ROUNDS {
                        let _ = black_box(own_sender.send(black_box([0; 8])));
                        let _ = black_box(own_receiver.receive());
                    }
                },
            );
        };
    }
    compare_queue!(mpmc, 0, "mpmc queue, 64 bytes");
    compare_queue!(mpsc, 1, "mpsc queue, 64 bytes");
    compare_queue!(spsc, 2, "spsc queue, 64 bytes");

    type MadeRing = unsafe extern "C" fn(*mut c_void, *const c_char, usize, c_int, *mut *mut c_void) -> c_int;
    let make = c!("tp_world_broadcast", MadeRing);
    // SAFETY: see above.
    let ring = made(|out| unsafe { make(here, c"n".as_ptr(), 4096, 0, out) })?;
    let (writer, reader) = (c!("tp_writer_open", MadeOf), c!("tp_reader_open", MadeOf));
    // SAFETY: see above.
    let (writer, reader) = unsafe { (made(|out| writer(ring, out))?, made(|out| reader(ring, out))?) };
    let own = world.broadcast("n", 4096)?;
    let (mut own_writer, mut own_reader) = (own.writer()?, own.reader()?);
    let run = c!("cost_ring", LoopOfTwo);
    macro_rules! compare_ring {
        ($message:expr, $what:literal) => {
            compare(
                $what,
                runs,
                // SAFETY: see above.
                || unsafe { run(writer, reader, ROUNDS) },
                || {
                    for _ in 0..ROUNDS {
                        let _ = black_box(own_writer.send($message));
                        let _ = black_box(own_reader.receive().map(|message| message.len()));
                    }
                },
            );
        };
    }
    compare_ring!(black_box(&[0; 64]), "broadcast, 64 bytes");
    // Of a length that the compiler does not know, as in C.
    compare_ring!(&black_box(&[0; 64])[..black_box(64)], "broadcast, slice of 64");
    Ok(())
}
