//! Worlds whose members are all in this process, and a watchdog over child processes.
#![allow(dead_code, reason = "no test uses all of it")]

pub mod pair;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_am::{Algorithm, WorldConfig};
use towpath_shm::{World, WorldSpec};

/// A small world: full queues are the rule.
pub fn tiny(processes: u32, algorithm: Algorithm) -> WorldConfig {
    WorldConfig {
        algorithm,
        packets: 8,
        blocks: 3,
        block_size: 256,
        segment_bytes: 8192,
        ..WorldConfig::new(processes)
    }
}

/// Numbers of messages that a handler has noted.
pub type Numbers = Arc<Mutex<Vec<u32>>>;

/// Returns the numbers that were noted since the last call.
pub fn taken(numbers: &Numbers) -> Vec<u32> {
    std::mem::take(&mut numbers.lock().unwrap())
}

/// Makes a world without a name.
pub fn world(config: &WorldConfig) -> World {
    World::create(&WorldSpec { processes: config.endpoints, ..config.spec(None) })
        .expect("a world of a few megabytes")
}

/// Makes a world without a name whose ranks this process has entered: a handle for each.
pub fn members(config: &WorldConfig) -> Vec<World> {
    let world = world(config);
    (0..config.endpoints)
        .map(|rank| {
            let member = world.reopen().unwrap();
            member.enter(Some(rank)).unwrap();
            member
        })
        .collect()
}

/// Ends this process and the children if a test takes longer than it may, and says where
/// they stood. Dropping it calls it off.
pub struct Watchdog {
    done: Arc<AtomicBool>,
    pids: Arc<Mutex<Vec<i32>>>,
}

impl Watchdog {
    /// Starts the time. `state` returns, when it is over, the progress of all processes.
    pub fn new(limit: Duration, state: impl Fn() -> String + Send + 'static) -> Watchdog {
        let done = Arc::new(AtomicBool::new(false));
        let pids = Arc::new(Mutex::new(Vec::new()));
        let (over, children) = (done.clone(), pids.clone());
        std::thread::spawn(move || {
            let start = Instant::now();
            while start.elapsed() < limit {
                std::thread::sleep(Duration::from_millis(50));
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
            // Not by `eprintln`: that would be captured, and lost with the process.
            let _ = writeln!(std::io::stderr(), "watchdog: no end after {limit:?}: {}", state());
            for &pid in children.lock().unwrap().iter() {
                // SAFETY: a child that has not been waited for (`reaped` takes it out), so the pid
                // is still its own.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            std::process::exit(101);
        });
        Watchdog { done, pids }
    }

    /// A child to be killed with us.
    pub fn watch(&self, pid: i32) {
        self.pids.lock().unwrap().push(pid);
    }

    /// The child has been waited for.
    pub fn reaped(&self, pid: i32) {
        self.pids.lock().unwrap().retain(|&p| p != pid);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}
