//! Promises of managers, locks, requests and guards, one by one.

use std::io::BufRead;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit, test_kill_process};
use towpath_agent::Error;
use towpath_agent::client::{Guard, Manager};
use towpath_mplock::wire::Identity;
use towpath_net::Key;
use towpath_testkit::Child;

use crate::cluster::{Cluster, NAMES, ask, signal, tell, until};
use crate::common::Watchdog;

/// Process that carries out the lines of its input, and answers each.
pub fn session(hosts: &str, name: &str) {
    let manager = Manager::connect_as(hosts, name).unwrap();
    let lock = Box::leak(Box::new(manager.lock("x")));
    let mut held: Option<Guard<'_>> = None;
    let show = |guard: &Guard<'_>| {
        let data = String::from_utf8_lossy(guard.data()).into_owned();
        format!("{} {} data={data}", guard.token(), if guard.previous_owner_died() { "died" } else { "fine" })
    };
    for line in std::io::stdin().lock().lines().map(Result::unwrap) {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match word {
            "acquire" => match lock.acquire() {
                Ok(guard) => show(held.insert(guard)),
                Err(error) => error.to_string(),
            },
            "fork" => {
                // Its copies of a guard and of a request have no effect; it may use the manager.
                let mut request = lock.request().unwrap();
                let child = Child::fork(|| {
                    let mut guard = held.take().unwrap();
                    assert!(matches!(guard.check(), Err(Error::Inherited)));
                    assert!(matches!(guard.release(), Err(Error::Inherited)));
                    assert!(matches!(request.wait_until(None), Err(Error::Inherited)));
                    manager.lock("of the child").acquire().unwrap().release().unwrap();
                });
                until(|| child.has_ended());
                assert!(child.has_ended_well());
                held.as_mut().unwrap().check().unwrap();
                drop(request);
                "forked".to_owned()
            }
            "bequeath" => {
                // A child inherits the connection, which is then used again.
                fcntl_setfd(held.take().unwrap().as_fd(), FdFlags::empty()).unwrap();
                Command::new("sleep").arg("100").spawn().unwrap().id().to_string()
            }
            "set" => {
                let guard = held.as_mut().unwrap();
                guard.make_consistent();
                guard.set_data(rest.as_bytes()).unwrap();
                "set".to_owned()
            }
            "check" => held.as_mut().unwrap().check().err().map_or("counts".to_owned(), |e| e.to_string()),
            _ => held.take().unwrap().release().err().map_or("released".to_owned(), |e| e.to_string()),
        };
        println!("{answer}");
    }
}

/// Token, news of a death, and data of a session's answer.
fn grant(answer: &str) -> (u64, bool, String) {
    let mut words = answer.splitn(3, ' ');
    let token = words.next().unwrap().parse().unwrap_or_else(|_| panic!("{answer}"));
    (token, words.next() == Some("died"), words.next().unwrap()["data=".len()..].to_owned())
}

pub fn guards_and_requests(dog: &Watchdog) {
    let mut cluster = Cluster::start(dog, "1s");
    let managers = NAMES.map(|name| Manager::connect_as(cluster.hosts_path(), name).unwrap());
    let lock = |host: usize| managers[host].lock("table");

    let (a, b, c) = (lock(0), lock(1), lock(2));
    let mut guard = a.acquire().unwrap();
    assert!((guard.data(), guard.data_version()) == (&[][..], None) && !guard.previous_owner_died());
    assert!(a.try_acquire().unwrap().is_none(), "threads of a process exclude each other");
    assert!(b.try_acquire().unwrap().is_none() && b.try_acquire_shared().unwrap().is_none());
    let start = Instant::now();
    assert!(b.acquire_timeout(Duration::from_millis(30)).unwrap().is_none());
    assert!(start.elapsed() >= Duration::from_millis(30));
    guard.set_data(b"one").unwrap();
    guard.data_mut().unwrap()[0] = b'O';
    assert!(matches!(guard.set_data(&[0; 4097]), Err(Error::DataTooLong { len: 4097 })));
    guard.check().unwrap();
    let first = guard.token();
    guard.release().unwrap();

    // Data and tokens on another host; readers change nothing, and share.
    let reader = b.acquire_shared().unwrap();
    assert_eq!((reader.data(), reader.data_version()), (&b"One"[..], Some(first)));
    assert!(reader.token() > first);
    let mut other = c.try_acquire_shared().unwrap().expect("readers share");
    assert!(matches!(other.set_data(b""), Err(Error::ReadsOnly)) && other.data_mut().is_err());
    let mut request = a.request().unwrap();
    assert!(request.wait_until(Some(Instant::now())).unwrap().is_none(), "a writer waits for readers");
    assert!(request.descriptor().is_some());
    drop((reader, other));
    let mut guard = request.wait().unwrap();
    assert_eq!(guard.data(), b"One");
    guard.set_data(&[7; 4096]).unwrap();
    drop(guard);
    assert_eq!(c.acquire().unwrap().data(), [7; 4096]);

    // A request that is dropped is withdrawn: the one behind it is served.
    let guard = a.acquire().unwrap();
    let dropped = b.request().unwrap();
    let mut behind = c.request().unwrap();
    drop(dropped);
    assert!(behind.wait_until(Some(Instant::now() + Duration::from_millis(20))).unwrap().is_none());
    drop(guard);
    assert!(!behind.wait().unwrap().previous_owner_died());

    news_of_a_dropped_request(&cluster, &managers[0], b.acquire().unwrap());

    // A panic is as a death; each holder is told until one has repaired.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = b.acquire().unwrap();
        guard.set_data(b"half").unwrap();
        resume_unwind(Box::new("on purpose"));
    }));
    assert!(panicked.is_err());
    for repairs in [false, true] {
        let mut guard = c.acquire().unwrap();
        assert!(guard.previous_owner_died() && guard.data() == [7; 4096]);
        if repairs {
            guard.make_consistent();
            guard.set_data(b"").unwrap();
        }
    }
    let guard = a.acquire().unwrap();
    assert!(!guard.previous_owner_died() && guard.data().is_empty());
    let status = managers[1].status().unwrap();
    assert_eq!(status[0].locks[0].holders[0].token, Some(guard.token().get()));
    drop(guard);

    // Threads and hosts together: none is lost of a number that travels with the lock.
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let lock = managers[thread % 3].lock("number");
            scope.spawn(move || {
                for _ in 0..50 {
                    let mut guard = lock.acquire().unwrap();
                    let number = guard.data().try_into().map_or(0, u64::from_le_bytes);
                    guard.set_data(&(number + 1).to_le_bytes()).unwrap();
                }
            });
        }
    });
    assert_eq!(managers[0].lock("number").acquire().unwrap().data(), 300u64.to_le_bytes());

    agent_without_socket(&cluster, &managers[0]);
    agent_without_descriptors(&mut cluster, &managers[0]);
}

/// Removes an agent's socket: it makes a new one, and its clients keep their locks.
fn agent_without_socket(cluster: &Cluster<'_>, manager: &Manager) {
    let lock = manager.lock("held meanwhile");
    let mut guard = lock.acquire().unwrap();
    let directory = std::env::var_os("TOWPATH_SHM_DIR").unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("towpath-agent.") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let connect = || Manager::connect_as(cluster.hosts_path(), NAMES[0]);
    until(|| connect().is_ok());
    assert!(connect().unwrap().lock("held meanwhile").try_acquire().unwrap().is_none());
    guard.check().unwrap();
    guard.release().unwrap();
}

/// An agent that may open no more files serves its clients, and others when it may again.
///
/// Also across a change of the epoch, which it notes on disk.
fn agent_without_descriptors(cluster: &mut Cluster<'_>, manager: &Manager) {
    let agent = cluster.agents[0].as_ref().unwrap().pid();
    let pid = Pid::from_raw(agent as i32).unwrap();
    let is_free = |fd: &u64| !Path::new(&format!("/proc/{agent}/fd/{fd}")).exists();
    let open = || std::fs::read_dir(format!("/proc/{agent}/fd")).unwrap().count();
    let forbid_more = || {
        let limit = Rlimit { current: (0..).find(is_free), ..getrlimit(Resource::Nofile) };
        prlimit(Some(pid), Resource::Nofile, limit).unwrap()
    };
    let former = forbid_more();
    let late = Manager::connect_as(cluster.hosts_path(), NAMES[0]).unwrap().lock("late");
    let mut request = late.request().unwrap();
    // User's and system's time, in hundredths of a second.
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{agent}/stat")).unwrap();
        let fields = stat.rsplit(')').next().unwrap().split(' ');
        fields.skip(12).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>()
    };
    let before = used();
    assert!(request.wait_until(Some(Instant::now() + Duration::from_millis(500))).unwrap().is_none());
    assert!(used() - before < 25, "the agent spends half of the time and more with refusing it");
    manager.lock("table").acquire().unwrap().release().unwrap();
    // Fewer than it waits for, which the system refuses.
    let fewer = Rlimit { current: Some(4), ..getrlimit(Resource::Nofile) };
    prlimit(Some(pid), Resource::Nofile, fewer).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    manager.lock("table").acquire().unwrap().release().unwrap();
    let before = open();
    cluster.kill_agent(2);
    // The place of its link is free now.
    until(|| open() < before);
    forbid_more();
    let has_lost_its_home = |name: &String| Identity::of(name).home(0..3) == Some(2);
    let name = (0..).map(|n| format!("home {n}")).find(has_lost_its_home).unwrap();
    manager.lock(&name).acquire().unwrap().release().unwrap();
    prlimit(Some(pid), Resource::Nofile, former).unwrap();
    drop(request.wait().unwrap());
}

/// News of a request that is dropped are not taken for those of the next one on its
/// connection.
///
/// `held`: guard of the lock "table", of another host.
fn news_of_a_dropped_request(cluster: &Cluster<'_>, manager: &Manager, held: Guard<'_>) {
    let is_at_home = |name: &String| Identity::of(name).home(0..3) == Some(0);
    let granted_at_once = (0..).map(|n| format!("lock {n}")).find(is_at_home).unwrap();
    let table = manager.lock("table");
    let agent = cluster.agents[0].as_ref().unwrap();
    signal(agent, Signal::STOP);
    drop(manager.lock(&granted_at_once).request().unwrap());
    let mut next = table.request().unwrap();
    signal(agent, Signal::CONT);
    // The agent has read both requests when it answers a third one.
    assert!(table.try_acquire().unwrap().is_none());
    assert!(next.wait_until(Some(Instant::now())).unwrap().is_none(), "granted though it is held");
    let token = held.token();
    drop(held);
    assert!(next.wait().unwrap().token() > token);
}

pub fn deaths_and_data(dog: &Watchdog) {
    let mut cluster = Cluster::start(dog, "300ms");
    let mut sessions: Vec<_> = (0..3).map(|host| cluster.spawn("session", host, &[])).collect();
    let mut newest = 0;
    let mut check = |answer: &str| {
        let (token, died, data) = grant(answer);
        assert!(token > newest, "{answer} after {newest}");
        newest = token;
        (died, data)
    };
    // A holder dies with changes: the next one is told, and has the data of the last release.
    check(&ask(&mut sessions[0], "acquire"));
    assert_eq!(ask(&mut sessions[0], "fork"), "forked");
    let other = Manager::connect_as(cluster.hosts_path(), NAMES[1]).unwrap().lock("x");
    assert!(other.try_acquire().unwrap().is_none(), "the child has released its parent's lock");
    ask(&mut sessions[0], "set first");
    assert_eq!(ask(&mut sessions[0], "release"), "released");
    assert_eq!(check(&ask(&mut sessions[1], "acquire")), (false, "first".to_owned()));
    ask(&mut sessions[1], "release");
    // A child of the next holder has inherited its connection: it does not keep the lock.
    check(&ask(&mut sessions[1], "acquire"));
    let child: i32 = ask(&mut sessions[1], "bequeath").parse().unwrap();
    check(&ask(&mut sessions[1], "acquire"));
    ask(&mut sessions[1], "set lost");
    let mut behind = cluster.spawn("session", 2, &[]);
    tell(&mut sessions[2], "acquire");
    tell(&mut behind, "acquire");
    sessions[1].kill();
    // A waiter dies, perhaps as a holder by then: the one behind it is served.
    sessions[2].kill();
    assert_eq!(check(&behind.line()), (true, "first".to_owned()));
    let child = Pid::from_raw(child).unwrap();
    test_kill_process(child).expect("the child lives");
    kill_process(child, Signal::KILL).unwrap();
    ask(&mut behind, "set second");
    assert_eq!(ask(&mut behind, "release"), "released");
    sessions[1] = cluster.spawn("session", 1, &[]);
    sessions[2] = cluster.spawn("session", 2, &[]);

    // The agent of a holder dies: its holder is told, the next one, too, on another host.
    assert_eq!(check(&ask(&mut sessions[0], "acquire")), (false, "second".to_owned()));
    ask(&mut sessions[0], "set never released");
    tell(&mut sessions[1], "acquire");
    cluster.kill_agent(0);
    until(|| ask(&mut sessions[0], "check").contains("agent of this host has ended"));
    assert!(ask(&mut sessions[0], "release").contains("has ended"));
    assert_eq!(check(&sessions[1].line()), (true, "second".to_owned()));
    assert!(ask(&mut sessions[0], "acquire").contains("no agent of host"));
    ask(&mut sessions[1], "set third");
    assert_eq!(ask(&mut sessions[1], "release"), "released");
    cluster.start_agent(0);
    cluster.await_all();
    // A home that comes again may warn though no holder died.
    assert_eq!(check(&ask(&mut sessions[0], "acquire")).1, "third");
    let home = cluster.home("x");
    assert_eq!(ask(&mut sessions[0], "release"), "released");

    // The home dies: the host that released the lock last knows the data.
    let [writer, reader] = [(home + 1) % 3, (home + 2) % 3];
    check(&ask(&mut sessions[writer], "acquire"));
    ask(&mut sessions[writer], "set fourth");
    assert_eq!(ask(&mut sessions[writer], "release"), "released");
    cluster.kill_agent(home);
    assert_eq!(check(&ask(&mut sessions[reader], "acquire")).1, "fourth");
    ask(&mut sessions[reader], "set fifth");
    assert_eq!(ask(&mut sessions[reader], "release"), "released");
    cluster.start_agent(home);
    cluster.await_all();

    // An agent is stopped for longer than the lease: its holder learns that it has lost the lock.
    assert_eq!(check(&ask(&mut sessions[0], "acquire")).1, "fifth");
    signal(cluster.agents[0].as_ref().unwrap(), Signal::STOP);
    let (died, data) = check(&ask(&mut sessions[1], "acquire"));
    assert!(died && data == "fifth", "{died} {data}");
    ask(&mut sessions[1], "set sixth");
    assert_eq!(ask(&mut sessions[1], "release"), "released");
    signal(cluster.agents[0].as_ref().unwrap(), Signal::CONT);
    until(|| ask(&mut sessions[0], "check").contains("has lost its lease"));
    assert!(ask(&mut sessions[0], "release").contains("has lost its lease"));
    cluster.await_all();
    assert_eq!(check(&ask(&mut sessions[0], "acquire")).1, "sixth");

    // All agents die at once: tokens go on; the data are gone, and the next holder is told.
    (0..3).for_each(|host| cluster.kill_agent(host));
    (0..3).for_each(|host| cluster.start_agent(host));
    cluster.await_all();
    assert_eq!(check(&ask(&mut sessions[2], "acquire")), (true, String::new()));
}

/// Restarts agents, so that no other majority is left: tokens go on.
pub fn restarted_majority(dog: &Watchdog) {
    for (hosts, killed, started) in [(2, 1..2, 1..2), (2, 0..2, 0..2), (3, 0..3, 1..3)] {
        let mut cluster = Cluster::of(dog, "300ms", hosts);
        let token = |path: PathBuf, host: usize| {
            let manager = Manager::connect_as(path, NAMES[host]).unwrap();
            manager.lock("restarted").acquire().unwrap().token()
        };
        let before = token(cluster.hosts_path(), 0);
        killed.for_each(|host| cluster.kill_agent(host));
        started.for_each(|host| cluster.start_agent(host));
        assert!(token(cluster.hosts_path(), 1) > before, "{hosts} hosts");
    }
}

/// Starts an agent with another key: both ends say so.
pub fn agents_with_different_keys(dog: &Watchdog) {
    let mut cluster = Cluster::of(dog, "300ms", 2);
    (0..2).for_each(|host| cluster.kill_agent(host));
    let text = std::fs::read_to_string(cluster.hosts_path()).unwrap();
    let [stranger, key] = ["stranger", "other key"].map(|name| cluster.directory.0.join(name));
    Key::generate().write(key).unwrap();
    std::fs::write(&stranger, text.replace("key = key", "key = other key")).unwrap();
    let speaker = |path: &Path, name: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("speaker").arg(path).arg(name);
        dog.spawn(command)
    };
    let mut accepts = speaker(&cluster.hosts_path(), NAMES[0]);
    let mut dials = speaker(&stranger, NAMES[1]);
    until(|| dials.line().contains("no link with the agent of alpha (127.0.0.1:"));
    until(|| accepts.line().contains("no link with an agent at 127.0.0.1: its key"));
}
