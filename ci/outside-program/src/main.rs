//! Round trip of 8 bytes between two processes, in nanoseconds.
//!
//! Usage: `outside-program [ALGORITHM [ROUND_TRIPS]]`. Makes a world for two processes, starts
//! itself a second time as the one that answers, and prints the mean over the round trips.

use std::env;
use std::error::Error;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use towpath::{Algorithm, Endpoint, World, WorldConfig};

const ASK: u8 = 1;
const ANSWER: u8 = 2;
const END: u8 = 3;

/// Number of the last answer; in the answering process 1 once the end was announced.
static NEWS: AtomicU32 = AtomicU32::new(0);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("answer") => answer(&words[1]),
        algorithm => {
            let trips = words.get(1).map_or(Ok(200_000), |text| text.parse())?;
            ask(algorithm.unwrap_or("towpath"), trips)
        }
    }
}

fn ask(algorithm: &str, trips: u32) -> Result<(), Box<dyn Error>> {
    let mut config = WorldConfig::new(2);
    config.algorithm =
        Algorithm::from_name(algorithm).ok_or_else(|| format!("no claim algorithm is called {algorithm}"))?;
    let name = format!("outside-{}", std::process::id());
    let world = towpath::create(Some(&name), &config)?;
    world.enter(Some(0))?;
    let mut other = Command::new(env::current_exe()?).args(["answer", &name]).spawn()?;
    // Only now: the other process would inherit it.
    pin(0);
    let endpoint = Endpoint::new(&world)?;
    // Relaxed, here and below: one thread.
    endpoint.set_handler(ANSWER, |answer| NEWS.store(answer.args()[0], Relaxed));
    endpoint.map_world()?;
    let mut last = 0;
    let mut round_trips = |count: u32| -> Result<(), towpath::Error> {
        for number in last + 1..=last + count {
            endpoint.request(1, ASK, &[number, !number])?;
            endpoint.poll_until(|| NEWS.load(Relaxed) == number);
        }
        last += count;
        Ok(())
    };
    round_trips(trips / 10 + 1)?;
    let begun = Instant::now();
    round_trips(trips)?;
    let took = begun.elapsed();
    endpoint.request(1, END, &[])?;
    if !other.wait()?.success() {
        return Err("the answering process has failed".into());
    }
    println!("{:.1}", took.as_nanos() as f64 / f64::from(trips));
    Ok(())
}

fn answer(name: &str) -> Result<(), Box<dyn Error>> {
    pin(1);
    let world = World::open(name)?;
    world.enter(Some(1))?;
    let endpoint = Endpoint::new(&world)?;
    endpoint.set_handler(ASK, |question| {
        let args = question.args();
        assert_eq!(args[0], !args[1], "the message is damaged");
        question.reply(ANSWER, &[args[0], args[1]]).expect("one reply to a request");
    });
    endpoint.set_handler(END, |_| NEWS.store(1, Relaxed));
    endpoint.map_world()?;
    endpoint.poll_until(|| NEWS.load(Relaxed) == 1);
    Ok(())
}

/// Pins this process to the n-th of its cores, if it has that many.
fn pin(n: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if let Some(core) = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).nth(n) {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
    }
}
