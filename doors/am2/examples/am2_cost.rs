//! Short round trip in C ÷ the one in Rust: to a process itself, and to another one.
//!
//! `towpath run -n 2 -- am2_cost LOOPS.so [RUNS]`: loops of `checks/am_cost.c`, which call
//! libtowpath-am.so. Both sides have endpoints in worlds of two processes, and take turns. Prints
//! medians and the median of the ratios of neighbours.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::error::Error;
use std::ffi::CString;
use std::sync::Arc;
use std::time::Instant;

use towpath_am::{Endpoint, WorldConfig};
use towpath_shm::World;

/// Number of round trips between two looks at the clock.
///
/// So few that a process seldom loses its core in the midst of them.
const ROUNDS: u64 = 200;

/// Loops of a library.
struct Loops(*mut c_void);

impl Loops {
    fn function(&self, name: &CStr) -> Result<*mut c_void, Box<dyn Error>> {
        // SAFETY: a handle of dlopen, a text.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if found.is_null() { Err(format!("{name:?} is missing").into()) } else { Ok(found) }
    }
}

/// Endpoint in Rust, with its counts of questions and answers.
struct Side {
    endpoint: Endpoint,
    pings: Arc<AtomicU64>,
    pongs: Arc<AtomicU64>,
    served: Cell<u64>,
}

impl Side {
    /// Enters a world of its own, which rank 0 makes.
    fn new(rank: u32) -> Result<Side, Box<dyn Error>> {
        let name = format!("am2-cost-{}", std::os::unix::process::parent_id());
        let world = if rank == 0 {
            World::create(&WorldConfig::new(2).spec(Some(&name)))?
        } else {
            loop {
                match World::open(&name) {
                    Ok(world) => break world,
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        };
        world.enter(Some(rank))?;
        let endpoint = Endpoint::new(&world)?;
        endpoint.map_world()?;
        let side = Side { endpoint, pings: Arc::default(), pongs: Arc::default(), served: Cell::new(0) };
        let (pings, pongs) = (side.pings.clone(), side.pongs.clone());
        side.endpoint.set_handler(1, move |message| {
            let _ = message.reply(2, message.args());
            pings.store(pings.load(Relaxed) + 1, Relaxed);
        });
        side.endpoint.set_handler(2, move |_| pongs.store(pongs.load(Relaxed) + 1, Relaxed));
        side.endpoint.barrier()?;
        if rank == 0 {
            world.unlink()?;
        }
        Ok(side)
    }

    fn ask(&self, rank: u32, rounds: u64) {
        let until = self.pongs.load(Relaxed) + rounds;
        while self.pongs.load(Relaxed) < until {
            let before = self.pongs.load(Relaxed);
            let _ = self.endpoint.request(rank as usize, 1, &[before as u32]);
            while self.pongs.load(Relaxed) == before {
                self.endpoint.poll();
            }
        }
    }

    fn answer(&self, rounds: u64) {
        self.served.set(self.served.get() + rounds);
        while self.pings.load(Relaxed) < self.served.get() {
            self.endpoint.poll();
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds of a round trip.
fn time(act: impl FnOnce()) -> f64 {
    let since = Instant::now();
    act();
    since.elapsed().as_nanos() as f64 / ROUNDS as f64
}

fn compare(what: &str, runs: usize, c: impl Fn(), rust: impl Fn()) {
    let (mut all_c, mut all_rust, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..runs {
        // Each is first in turn.
        let (in_c, in_rust) = if run % 2 == 0 {
            let in_c = time(&c);
            (in_c, time(&rust))
        } else {
            let in_rust = time(&rust);
            (time(&c), in_rust)
        };
        all_c.push(in_c);
        all_rust.push(in_rust);
        ratios.push(in_c / in_rust);
    }
    let (c, rust, ratio) = (median(&mut all_c), median(&mut all_rust), median(&mut ratios));
    println!("{what:24} C {c:8.1} ns   Rust {rust:8.1} ns   C ÷ Rust {ratio:.3}");
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = CString::new(arguments.next().ok_or("LOOPS.so is missing")?)?;
    let runs: usize = arguments.next().map_or(Ok(2001), |runs| runs.parse())?;
    let rank: u32 = std::env::var("TOWPATH_RANK")?.parse()?;
    // SAFETY: a library of ours.
    let loops = Loops(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) });
    if loops.0.is_null() {
        // SAFETY: a text, after a failure.
        return Err(unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into());
    }
    macro_rules! c {
        ($name:literal, $type:ty) => {
            // SAFETY: `am_cost.c` declares it so.
            unsafe { core::mem::transmute::<*mut c_void, $type>(loops.function($name)?) }
        };
    }
    let start = c!(c"cost_start", unsafe extern "C" fn() -> c_int);
    let ask = c!(c"cost_ask", unsafe extern "C" fn(c_int, u64));
    let answer = c!(c"cost_answer", unsafe extern "C" fn(u64));
    let end = c!(c"cost_end", unsafe extern "C" fn());
    // SAFETY: once, before the others.
    if unsafe { start() } != 0 {
        return Err("the start failed".into());
    }
    let side = Side::new(rank)?;
    if rank == 0 {
        // SAFETY: after the start, by one thread; so they are below.
        compare("to the process itself", runs, || unsafe { ask(0, ROUNDS) }, || side.ask(0, ROUNDS));
        // SAFETY: see above.
        compare("to another process", runs, || unsafe { ask(1, ROUNDS) }, || side.ask(1, ROUNDS));
    } else {
        for run in 0..runs {
            if run % 2 == 0 {
                // SAFETY: see above.
                unsafe { answer(ROUNDS) };
                side.answer(ROUNDS);
            } else {
                side.answer(ROUNDS);
                // SAFETY: see above.
                unsafe { answer(ROUNDS) };
            }
        }
    }
    side.endpoint.barrier()?;
    drop(side);
    // SAFETY: see above.
    unsafe { end() };
    Ok(())
}
