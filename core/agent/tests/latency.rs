//! Latency of acquisition over loopback, beside the links' own round trip. A measurement.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use towpath_agent::client::Manager;
use towpath_agent::{Agent, HostsFile, cluster_status};
use towpath_net::{Key, Link, Listener, PolledLink};
use towpath_testkit::free_addresses;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn wait_for(source: impl std::os::fd::AsFd) {
    let _ = poll(&mut [PollFd::new(&source, PollFlags::IN)], None);
}

/// Three agents in threads of this process, which end with it.
fn cluster(directory: &Path) -> HostsFile {
    Key::generate().write(directory.join("key")).unwrap();
    let mut text = String::from("key = key\nstate = state\nlease = 1s\n");
    for (name, address) in NAMES.iter().zip(free_addresses(NAMES.len())) {
        text.push_str(&format!("{name} {address}\n"));
    }
    let path = directory.join("hosts");
    std::fs::write(&path, text).unwrap();
    let hosts = HostsFile::read(&path).unwrap();
    for name in NAMES {
        let hosts = hosts.clone();
        thread::spawn(move || {
            let mut agent = Agent::start(hosts, Some(name), |_| {}).unwrap();
            agent.serve(None)
        });
    }
    let is_ready = || {
        let reports = cluster_status(&hosts, Some("a"), None);
        reports.is_ok_and(|reports| reports.iter().all(|report| report.lease && report.epoch == 3))
    };
    while !is_ready() {
        thread::sleep(Duration::from_millis(20));
    }
    hosts
}

/// One end of a link, whose other end sends each frame back.
fn echo() -> PolledLink {
    let key = Key::generate();
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &key, "echo").unwrap();
    let address = listener.address();
    thread::spawn(move || {
        let mut link = listener.accept().unwrap().handshake().unwrap().polled().unwrap();
        let mut frame = Vec::new();
        loop {
            wait_for(&link);
            loop {
                match link.receive(&mut frame) {
                    Ok(true) => link.send(&frame).unwrap(),
                    Ok(false) => break,
                    Err(_) => return,
                }
            }
        }
    });
    Link::connect(address, &key, "echo", Duration::from_secs(5)).unwrap().polled().unwrap()
}

fn round_trip(link: &mut PolledLink) -> Duration {
    let mut frame = Vec::new();
    let start = Instant::now();
    link.send(&[0; 60]).unwrap();
    while !link.receive(&mut frame).unwrap() {
        wait_for(&*link);
    }
    start.elapsed()
}

fn quantiles(times: &mut [f64]) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [0.0, 0.5, 0.99].map(|q| times[((times.len() - 1) as f64 * q) as usize])
}

#[test]
#[ignore = "a measurement: see docs/measurements"]
fn latency_of_a_remote_idle_lock_is_measured() {
    let directory = PathBuf::from(format!("/dev/shm/test-of-towpath-agent-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let hosts = cluster(&directory);
    let manager = Manager::connect_as(directory.join("hosts"), "a").unwrap();
    let mut link = echo();
    let mut batches: Vec<[f64; 4]> = Vec::new();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    for batch in 0..7 {
        let (mut remote, mut local, mut client, mut trips) = (vec![], vec![], vec![], vec![]);
        for n in 0..300 {
            trips.push(micros(round_trip(&mut link)));
            let name = format!("lock {batch} {n}");
            let lock = manager.lock(&name);
            let start = Instant::now();
            let guard = lock.acquire().unwrap();
            let time = start.elapsed();
            let reports = cluster_status(&hosts, Some("a"), Some(&name)).unwrap();
            let row = &reports[0].locks[0];
            if row.home == 0 {
                local.push(micros(time));
            } else {
                assert_eq!(row.hops, 2);
                remote.push(row.waited as f64 / 1000.0);
                client.push(micros(time));
            }
            guard.release().unwrap();
        }
        let [trip, remote, local, client] =
            [&mut trips, &mut remote, &mut local, &mut client].map(|times| quantiles(times)[1]);
        println!(
            "link's round trip {trip:.1} µs; remote idle lock: {remote:.1} µs at the agent ({:.2} ×), {client:.1} µs for \
             a process; local home: {local:.1} µs for a process",
            remote / trip
        );
        batches.push([trip, remote, local, client]);
    }
    let mut ratios: Vec<f64> = batches.iter().map(|[trip, remote, ..]| remote / trip).collect();
    ratios.sort_by(f64::total_cmp);
    println!("ratio: median {:.2}, {:.2} to {:.2}", ratios[3], ratios[0], ratios[6]);
    let _ = std::fs::remove_dir_all(&directory);
}
