//! Holders, waiters, homes and hosts that are killed while clients use two locks.
//!
//! Each lock protects a resource: a file with the largest token that it has seen, and a number. A
//! holder whose token is not larger is refused. The number is also in the lock's data: a holder
//! that is told of no death finds them equal. A holder changes the resource's number first and then
//! releases the lock with the data, so that a death between the two shows if it is not told.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use towpath_agent::client::{Guard, Manager};
use towpath_machine::Random;

use crate::cluster::{Cluster, until};
use crate::common::{Member, Watchdog};

const LOCKS: [&str; 2] = ["x", "y"];
/// Number of clients of each host.
const CLIENTS: usize = 2;
/// Number of acquisitions by which each living client has gone on after a kill.
const GOES_ON: u64 = 2;

/// Process, or processes, that a round kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Holder,
    Waiter,
    /// The agent of a lock's home; its clients live on.
    Home,
    /// The agent of a host and all its clients.
    Host,
}

impl Victim {
    pub const ALL: [Victim; 4] = [Victim::Holder, Victim::Waiter, Victim::Home, Victim::Host];

    pub fn name(self) -> &'static str {
        match self {
            Victim::Holder => "holder",
            Victim::Waiter => "waiter",
            Victim::Home => "home",
            Victim::Host => "host",
        }
    }

    /// Number of rounds, short and long.
    pub fn rounds(self) -> (usize, usize) {
        match self {
            Victim::Holder | Victim::Waiter => (20, 1000),
            Victim::Home | Victim::Host => (2, 1000),
        }
    }
}

/// A resource's file: its largest token, its number, its holder's process, and counters.
struct Resource(File);

/// Words of the file.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    token: u64,
    number: u64,
    holder: u64,
    grants: u64,
    warnings: u64,
    refused: u64,
}

impl Resource {
    fn open(directory: &Path, lock: &str) -> Resource {
        let path = directory.join(format!("resource-{lock}"));
        Resource(File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap())
    }

    fn read(&self) -> Words {
        let mut bytes = [0; 48];
        let _ = self.0.read_exact_at(&mut bytes, 0);
        let [token, number, holder, grants, warnings, refused] =
            std::array::from_fn(|n| u64::from_le_bytes(*bytes[8 * n..].first_chunk().unwrap()));
        Words { token, number, holder, grants, warnings, refused }
    }

    /// Changes the words, alone.
    fn change<T>(&self, change: impl FnOnce(&mut Words) -> T) -> T {
        flock(&self.0, FlockOperation::LockExclusive).unwrap();
        let mut words = self.read();
        let result = change(&mut words);
        let Words { token, number, holder, grants, warnings, refused } = words;
        let words = [token, number, holder, grants, warnings, refused];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // One call: a process that is killed has written all or nothing.
        self.0.write_all_at(&bytes, 0).unwrap();
        flock(&self.0, FlockOperation::Unlock).unwrap();
        result
    }
}

/// File in which a client counts its uses of each lock.
fn progress_path(directory: &Path, process: u32) -> PathBuf {
    directory.join(format!("progress-{process}"))
}

/// Uses the locks until it is killed, or its input ends.
pub fn worker(hosts: &str, name: &str, seed: u64) {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    let directory = Path::new(hosts).parent().unwrap();
    let resources = LOCKS.map(|lock| Resource::open(directory, lock));
    let manager = loop {
        match Manager::connect_as(hosts, name) {
            Ok(manager) => break manager,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let locks = LOCKS.map(|lock| manager.lock(lock));
    let mut random = Random::new(seed);
    let progress = File::create(progress_path(directory, std::process::id())).unwrap();
    let mut uses = [0u64; LOCKS.len()];
    for turn in 0.. {
        let at = turn % 2;
        let acquired = if random.below(8) == 0 {
            locks[at].acquire_timeout(Duration::from_micros(random.below(2000)))
        } else {
            locks[at].acquire().map(Some)
        };
        match acquired {
            Ok(Some(guard)) => {
                if use_lock(&resources[at], guard, &mut random) {
                    uses[at] += 1;
                    progress.write_all_at(&uses[at].to_le_bytes(), 8 * at as u64).unwrap();
                }
            }
            Ok(None) => {}
            // Until there is an agent again.
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Works under a lock. Returns whether the resource has accepted that.
fn use_lock(resource: &Resource, mut guard: Guard<'_>, random: &mut Random) -> bool {
    let token = guard.token().get();
    let data = guard.data().try_into().map_or(0, u64::from_le_bytes);
    let told = guard.previous_owner_died();
    let accepted = resource.change(|words| {
        if token <= words.token {
            words.refused += 1;
            return false;
        }
        assert!(told || words.number == data, "{words:?} and {data} in the lock's data of {guard:?}");
        (words.token, words.number, words.holder) = (token, data, std::process::id().into());
        words.grants += 1;
        words.warnings += u64::from(told);
        true
    });
    if !accepted {
        return false;
    }
    std::thread::sleep(Duration::from_micros(random.below(1000)));
    let accepted = resource.change(|words| {
        let is_newest = words.token == token;
        if is_newest {
            words.number = data + 1;
        } else {
            words.refused += 1;
        }
        is_newest
    });
    if !accepted {
        return false;
    }
    guard.make_consistent();
    guard.set_data(&(data + 1).to_le_bytes()).unwrap();
    guard.release().is_ok()
}

/// A client.
struct Worker {
    member: Member,
    host: usize,
}

/// Numbers of grants, of those that told of a death, and of refused tokens.
pub struct Outcome {
    pub grants: u64,
    pub warnings: u64,
    pub refused: u64,
}

/// Kills in that many rounds, and waits after each until all clients have gone on.
pub fn rounds(dog: &Watchdog, victim: Victim, rounds: usize) -> Outcome {
    let mut cluster = Cluster::start(dog, "200ms");
    let resources = LOCKS.map(|lock| Resource::open(&cluster.directory.0, lock));
    let directory = cluster.directory.0.clone();
    let (mut random, mut seed) = (Random::new(5), 0);
    let mut start = |cluster: &Cluster<'_>, host: usize| {
        seed += 1;
        Worker { member: cluster.spawn("worker", host, &[&seed.to_string()]), host }
    };
    let mut workers: Vec<Worker> = (0..3 * CLIENTS).map(|n| start(&cluster, n % 3)).collect();
    await_progress(&directory, &mut workers);
    let homes = LOCKS.map(|lock| cluster.home(lock));
    for _ in 0..rounds {
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        let resource = &resources[random.below(2) as usize];
        match victim {
            Victim::Holder | Victim::Waiter => {
                let holder = resource.read().holder;
                let is_holder = |worker: &Worker| u64::from(worker.member.pid()) == holder;
                let fits = |worker: &Worker| is_holder(worker) == (victim == Victim::Holder);
                let first = random.below(workers.len() as u64) as usize;
                let mut order = (first..workers.len()).chain(0..first);
                let Some(at) = order.find(|&at| fits(&workers[at])) else { continue };
                let host = replace(&directory, &mut workers, at);
                workers.push(start(&cluster, host));
            }
            Victim::Home => {
                let home = homes[random.below(2) as usize];
                cluster.kill_agent(home);
                std::thread::sleep(Duration::from_millis(random.below(400)));
                cluster.start_agent(home);
            }
            Victim::Host => {
                let host = random.below(3) as usize;
                cluster.kill_agent(host);
                while let Some(at) = workers.iter().position(|worker| worker.host == host) {
                    replace(&directory, &mut workers, at);
                }
                std::thread::sleep(Duration::from_millis(random.below(400)));
                cluster.start_agent(host);
                workers.extend((0..CLIENTS).map(|_| start(&cluster, host)));
            }
        }
        await_progress(&directory, &mut workers);
    }
    for worker in workers {
        let (status, _, errors) = worker.member.finish();
        assert!(status.success(), "{errors}");
    }
    let sum = |of: fn(Words) -> u64| resources.iter().map(|resource| of(resource.read())).sum();
    let refused: u64 = sum(|words| words.refused);
    let agents_live = matches!(victim, Victim::Holder | Victim::Waiter);
    assert!(!agents_live || refused == 0, "{refused} tokens were refused");
    Outcome { grants: sum(|words| words.grants), warnings: sum(|words| words.warnings), refused }
}

/// Kills a client. Returns its host.
fn replace(directory: &Path, workers: &mut Vec<Worker>, at: usize) -> usize {
    let mut worker = workers.swap_remove(at);
    worker.member.kill();
    worker.member.wait();
    let _ = std::fs::remove_file(progress_path(directory, worker.member.pid()));
    worker.host
}

/// Waits until each client has used each lock anew.
fn await_progress(directory: &Path, workers: &mut Vec<Worker>) {
    let uses = |worker: &Worker| {
        let bytes = std::fs::read(progress_path(directory, worker.member.pid())).unwrap_or_default();
        let word = |at: usize| bytes.get(8 * at..).and_then(|rest| rest.first_chunk()).copied();
        [0, 1].map(|at| u64::from_le_bytes(word(at).unwrap_or_default()))
    };
    let before: Vec<[u64; LOCKS.len()]> = workers.iter().map(uses).collect();
    for (at, before) in before.iter().enumerate() {
        until(|| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", workers[at].member.pid()));
            if stat.unwrap_or_default().contains(") Z ") {
                panic!("a client has ended: {}", workers.swap_remove(at).member.finish().2);
            }
            uses(&workers[at]).iter().zip(before).all(|(now, before)| *now >= before + GOES_ON)
        });
    }
}
