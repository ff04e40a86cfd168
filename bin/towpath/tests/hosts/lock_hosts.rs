//! `towpath lock --hosts`: three hosts, which are network namespaces of this machine.
//!
//! Without the right to make namespaces the tests say so, and check nothing.

mod soak;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::HOLDER;
use crate::launching::common::{Directory, Member, Watchdog};
use crate::launching::{delay_and_lose, is_gone, signal, until, with_default_signals};

const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];

/// Process that keeps a network namespace. Killed when dropped.
struct Namespace(Child);

impl Namespace {
    /// Starts it, with a script that says `ready` when it is.
    fn start(mut command: Command, script: &str) -> Option<Namespace> {
        command.args(["sh", "-c", &format!("{script} && echo ready && read line")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let mut line = String::new();
        let _ = BufReader::new(child.stdout.as_mut()?).read_line(&mut line);
        let namespace = Namespace(child);
        (line == "ready\n").then_some(namespace)
    }

    /// A command in it.
    fn enter(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.0.id().to_string();
        command.args(["--target", &pid, "--user", "--net", "--preserve-credentials", program]);
        command
    }

    fn run(&self, line: &str) -> bool {
        let mut command = self.enter("sh");
        command.args(["-c", line]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Three hosts on a switch, with an agent each.
struct Cluster<'a> {
    dog: &'a Watchdog,
    directory: Directory,
    switch: Namespace,
    hosts: Vec<Namespace>,
    agents: Vec<Option<Member>>,
}

impl<'a> Cluster<'a> {
    /// `None`: it can't be made here.
    fn start(dog: &'a Watchdog, lease: &str) -> Option<Cluster<'a>> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--net"]);
        let made = Namespace::start(unshare, "ip link add br0 type bridge && ip link set br0 up");
        let Some(switch) = made else {
            eprintln!(
                "skipped: no network namespaces here (unshare, nsenter, ip; user namespaces permitted)"
            );
            return None;
        };
        let directory = Directory::new();
        let mut file = format!("key = key\nstate = state\nlease = {lease}\n");
        let mut hosts = Vec::new();
        for (n, name) in NAMES.iter().enumerate() {
            let mut unshare = switch.enter("unshare");
            unshare.arg("--net");
            let host = Namespace::start(unshare, "ip link set lo up").unwrap();
            let pid = host.0.id();
            assert!(switch.run(&format!("ip link add v{n} type veth peer name e0 netns {pid}")));
            assert!(switch.run(&format!("ip link set v{n} master br0 up")));
            assert!(host.run(&format!("ip addr add 10.77.0.{}/24 dev e0", n + 1)));
            assert!(host.run("ip link set e0 up"));
            file.push_str(&format!("{name} 10.77.0.{}:7300\n", n + 1));
            hosts.push(host);
        }
        std::fs::write(directory.0.join("hosts"), file).unwrap();
        let mut cluster = Cluster { dog, directory, switch, hosts, agents: vec![None, None, None] };
        let (status, _, errors) = cluster.command(0, &["key", "key"]).finish();
        assert!(status.success(), "{errors}");
        (0..3).for_each(|host| cluster.start_agent(host));
        cluster.wait_until_all_take_part();
        Some(cluster)
    }

    /// `towpath` with these arguments on a host.
    fn command(&self, host: usize, arguments: &[&str]) -> Member {
        let mut command = self.hosts[host].enter(env!("CARGO_BIN_EXE_towpath"));
        command.args(arguments).env("TOWPATH_SHM_DIR", &self.directory.0).env("SHELL", "/bin/sh");
        command.current_dir(&self.directory.0);
        self.dog.spawn(with_default_signals(command))
    }

    /// `towpath lock --hosts hosts` with these arguments on a host, which finds itself.
    fn lock(&self, host: usize, arguments: &[&str]) -> Member {
        self.command(host, &[&["lock", "--hosts", "hosts"], arguments].concat())
    }

    /// Starts an agent whose limit of open files is that of many systems.
    fn start_agent(&mut self, host: usize) {
        let mut command = self.hosts[host].enter("sh");
        let program = env!("CARGO_BIN_EXE_towpath");
        command.args(["-c", "ulimit -Sn 1024; exec \"$0\" lock --hosts hosts --serve", program]);
        command.env("TOWPATH_SHM_DIR", &self.directory.0).current_dir(&self.directory.0);
        self.agents[host] = Some(self.dog.spawn(with_default_signals(command)));
    }

    /// A holder of the lock `x` whose command reads further commands, and its token.
    fn holder(&self, host: usize, options: &[&str]) -> (Member, u64) {
        let script =
            "echo $TOWPATH_TOKEN $TOWPATH_PREVIOUS_OWNER_DIED; while read line; do eval \"$line\"; done";
        let mut holder = self.lock(host, &[&["x"], options, &["--", "sh", "-c", script]].concat());
        let line = holder.line();
        let token = line
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap_or_else(|_| panic!("{line:?}: {}", self.status(host)));
        (holder, token)
    }

    /// Waiter for the lock `x`, whose command prints its token and news of a death.
    fn waiter(&self, host: usize) -> Member {
        let waiter = self.lock(host, &["x", "-c", "echo $TOWPATH_TOKEN died=$TOWPATH_PREVIOUS_OWNER_DIED"]);
        until(|| self.status(host)[host]["locks"][0]["waiters"][0]["pid"] == waiter.pid());
        waiter
    }

    /// Status of the lock `x` as a host's agent gives it; nothing if it gives none.
    fn status(&self, host: usize) -> serde_json::Value {
        let (_, text, _) = self.lock(host, &["--status", "--json", "x"]).finish();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn wait_until_all_take_part(&self) {
        until(|| (0..3).all(|host| self.status(0)[host]["lease"] == true));
    }

    fn set_link(&self, host: usize, state: &str) {
        assert!(self.switch.run(&format!("ip link set v{host} {state}")));
    }

    /// Has frames to all hosts come late, and some of them not at all.
    ///
    /// Returns whether this kernel can, and says so otherwise.
    fn delay_and_lose(&self, percent: u32) -> bool {
        let script = delay_and_lose(percent, "600kbit", 1600);
        let done = (0..3).all(|host| self.switch.run(&format!("LINK=v{host}; {script}")));
        if !done {
            eprintln!("skipped: delay and loss (no netem, nor tbf and bpf, in this kernel; or no tc)");
        }
        done
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.0.join(name)).unwrap_or_default()
    }
}

/// Token and news of a death that a waiter got.
fn told(waiter: Member) -> (u64, bool) {
    let (status, output, errors) = waiter.finish();
    assert!(status.success(), "{errors}");
    let (token, died) = output.trim().split_once(" died=").unwrap_or_else(|| panic!("{output:?}"));
    (token.parse().unwrap(), died == "1")
}

#[test]
fn hosts_exclude_each_other_and_see_deaths_of_holders() {
    let dog = Watchdog::new("hosts_exclude_each_other_and_see_deaths_of_holders");
    let Some(cluster) = Cluster::start(&dog, "500ms") else { return };
    let mut shells: Vec<Member> =
        (0..30).map(|n| cluster.lock(n % 3, &["some name", "-c", HOLDER])).collect();
    for shell in &mut shells {
        assert!(shell.wait().success());
    }
    assert_eq!(cluster.read("violations"), "");
    let tokens: Vec<u64> = cluster.read("tokens").lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens.len() == 30 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");

    let (held, token) = cluster.holder(0, &[]);
    for (options, code) in [(&["-n"][..], 1), (&["-w", "50ms", "-E", "9"], 9), (&["-sn"], 1)] {
        let (status, output, errors) =
            cluster.lock(1, &[&["x"], options, &["echo", "ran"]].concat()).finish();
        assert_eq!((status.code(), output.as_str(), errors.as_str()), (Some(code), "", ""), "{options:?}");
    }
    let waiter = cluster.waiter(1);
    let status = cluster.status(2);
    let names: Vec<_> = (0..3).map(|host| status[host]["host"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    let lock = &status[0]["locks"][0];
    let holder = &lock["holders"][0];
    assert_eq!(holder["token"], token);
    assert!(holder["host"] == NAMES[0] && holder["seconds"].as_f64().unwrap() < 1e4, "{holder}");
    assert!(NAMES.iter().any(|name| lock["home"] == *name) && lock["waited_seconds"].is_f64(), "{lock}");
    assert_eq!(status[1]["locks"][0]["waiters"].as_array().unwrap().len(), 1);
    let (_, text, _) = cluster.lock(2, &["--status"]).finish();
    assert!(text.contains("alpha: takes part, has a lease") && text.contains("x: held"), "{text}");
    signal(held.pid(), libc::SIGKILL);
    let (next, died) = told(waiter);
    assert!(died && next > token);

    let readers = [cluster.holder(0, &["-s"]), cluster.holder(1, &["-s"]), cluster.holder(0, &["-s"])];
    let waiter = cluster.waiter(2);
    let (status, ..) = cluster.lock(0, &["x", "-sn", "true"]).finish();
    assert_eq!(status.code(), Some(1), "a reader does not overtake a writer of another host");
    let newest = readers.iter().map(|(_, token)| *token).max().unwrap();
    drop(readers);
    let (token, died) = told(waiter);
    assert!(token > newest && !died, "a reader leaves nothing behind");
    let (status, output, _) = cluster.lock(0, &["-n", "y", "echo", "free"]).finish();
    assert_eq!((status.code(), output.as_str()), (Some(0), "free\n"));
    assert!(cluster.lock(0, &["--status", "unused"]).finish().1.ends_with("\nunused: free\n"));
    long_commands_and_names(&cluster);
}

/// Checks that a command line of a megabyte is run, and that a long name is refused.
fn long_commands_and_names(cluster: &Cluster<'_>) {
    let long = "y".repeat(100_000);
    let mut arguments = vec!["x", "--", "sh", "-c", "echo held; read end"];
    arguments.extend([long.as_str(); 12]);
    let mut held = cluster.lock(0, &arguments);
    assert_eq!(held.line(), "held");
    let status = cluster.status(1);
    let command = status[0]["locks"][0]["holders"][0]["command"].as_str().unwrap();
    assert!(command.starts_with("sh -c 'echo held; read end' yyy") && command.ends_with('…'), "{command}");
    assert!(held.finish().0.code().is_some());
    let (status, _, errors) = cluster.lock(0, &[&long[..2049], "true"]).finish();
    assert!(status.code() == Some(73) && errors.contains("longer than 2048 bytes"), "{errors}");
    // The agent may open as many files as the system permits.
    let agent = cluster.agents[0].as_ref().unwrap().pid();
    let limits = std::fs::read_to_string(format!("/proc/{agent}/limits")).unwrap();
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let words: Vec<&str> = limit.split_whitespace().collect();
    assert_eq!(words[0], words[1], "{limit}");
}

#[test]
fn lock_of_a_dead_agent_goes_on_after_the_lease() {
    let dog = Watchdog::new("lock_of_a_dead_agent_goes_on_after_the_lease");
    let Some(mut cluster) = Cluster::start(&dog, "500ms") else { return };
    // Its holder is told at once.
    let (held, token) = cluster.holder(0, &[]);
    let waiter = cluster.waiter(1);
    cluster.agents[0].take().unwrap().kill();
    let (next, died) = told(waiter);
    assert!(died && next > token);
    let (status, _, errors) = held.finish();
    assert!(status.success() && errors.contains("agent has ended"), "{errors}");
    let (status, _, errors) = cluster.lock(0, &["x", "true"]).finish();
    assert!(status.code() == Some(73) && errors.contains("--serve"), "{errors}");
    cluster.start_agent(0);
    cluster.wait_until_all_take_part();
    let (status, _, errors) = cluster.command(0, &["key", "key"]).finish();
    assert!(status.code() == Some(1) && errors.contains("is not replaced"), "{errors}");
    // Another list of hosts, in the same directory of the state.
    let changed = cluster.read("hosts").replace("lease = 500ms", "lease = 600ms");
    std::fs::write(cluster.directory.0.join("changed"), changed).unwrap();
    for (hosts, says) in [("hosts", "runs already"), ("changed", "with another list of hosts runs")] {
        let (status, _, errors) = cluster.command(0, &["lock", "--hosts", hosts, "--serve"]).finish();
        assert!(status.code() == Some(73) && errors.contains(says), "{errors}");
    }
}

#[test]
fn lock_of_a_host_that_is_cut_off_goes_on_after_the_lease() {
    let dog = Watchdog::new("lock_of_a_host_that_is_cut_off_goes_on_after_the_lease");
    let Some(cluster) = Cluster::start(&dog, "500ms") else { return };
    // Its command is ended, a minority grants nothing, the others go on.
    let mut newest = 0;
    for host in [1, 2] {
        let (mut held, token) = cluster.holder(host, &["--on-loss", "term"]);
        assert!(token > newest);
        let waiter = cluster.waiter(0);
        cluster.set_link(host, "down");
        held.wait();
        let (status, _, errors) = held.finish();
        assert_eq!(status.code(), Some(128 + libc::SIGTERM), "{errors}");
        assert!(errors.contains("lost its lease; the command gets SIGTERM"), "{errors}");
        for name in ["x", "unused"] {
            // A minority grants nothing, and says why.
            for (option, code) in [("-n", 73), ("-w0.1", 1)] {
                let (status, output, errors) = cluster.lock(host, &[name, option, "echo", "ran"]).finish();
                assert_eq!((status.code(), output.as_str()), (Some(code), ""), "{errors}");
                assert!(errors.contains("hears no majority"), "{errors}");
            }
        }
        let died;
        (newest, died) = told(waiter);
        assert!(died && newest > token);
        cluster.set_link(host, "up");
        cluster.wait_until_all_take_part();
    }
}

#[test]
fn lock_of_a_stopped_agent_goes_on_after_the_lease() {
    let dog = Watchdog::new("lock_of_a_stopped_agent_goes_on_after_the_lease");
    let Some(mut cluster) = Cluster::start(&dog, "500ms") else { return };
    // Its host is stopped, too, for the others. A command that runs on keeps the lock from its own
    // host until it ends.
    let (held, token) = cluster.holder(0, &[]);
    let waiter = cluster.waiter(2);
    let agent = cluster.agents[0].as_ref().unwrap().pid();
    signal(agent, libc::SIGSTOP);
    let (next, died) = told(waiter);
    assert!(died && next > token);
    // Commands that do not wait, or not for long, end nevertheless.
    let begun = Instant::now();
    let asked = [&["--status"][..], &["x", "-n", "true"]].map(|arguments| cluster.lock(0, arguments));
    let (status, ..) = cluster.lock(0, &["x", "-w", "100ms", "true"]).finish();
    assert_eq!(status.code(), Some(1));
    assert!(begun.elapsed() < Duration::from_secs(5));
    for asked in asked {
        let (status, _, errors) = asked.finish();
        assert!(status.code() == Some(73) && errors.contains("whether it is stopped"), "{errors}");
    }
    signal(agent, libc::SIGCONT);
    cluster.wait_until_all_take_part();
    let (status, ..) = cluster.lock(0, &["x", "-n", "true"]).finish();
    assert_eq!(status.code(), Some(1), "the former holder still runs here");
    let (status, _, errors) = held.finish();
    assert!(status.success() && errors.contains("lost its lease"), "{errors}");
    let (status, ..) = cluster.lock(0, &["x", "-n", "true"]).finish();
    assert_eq!(status.code(), Some(0));

    // All agents die at once: epochs go on, and so do tokens. Their sockets are leftovers.
    let before = cluster.holder(1, &[]).1;
    (0..3).for_each(|host| cluster.agents[host].take().unwrap().kill());
    let (status, text, _) = cluster.command(0, &["clean"]).finish();
    assert!(status.success() && text.matches("removed ").count() == 3, "{text}");
    (0..3).for_each(|host| cluster.start_agent(host));
    cluster.wait_until_all_take_part();
    assert!(cluster.holder(2, &[]).1 > before);
}

#[test]
fn delay_and_loss_break_nothing() {
    let dog = Watchdog::new("delay_and_loss_break_nothing");
    let Some(cluster) = Cluster::start(&dog, "1s") else { return };
    if !cluster.delay_and_lose(5) {
        return;
    }
    let mut shells: Vec<Member> = (0..20).map(|n| cluster.lock(n % 3, &["x", "-c", HOLDER])).collect();
    for shell in &mut shells {
        assert!(shell.wait().success());
    }
    assert_eq!(cluster.read("violations"), "");
}

/// Number of rounds of the long forms.
fn rounds() -> u32 {
    std::env::var("ROUNDS").map_or(1000, |rounds| rounds.parse().unwrap())
}

#[test]
#[ignore = "a measurement: see docs/mplocks.md"]
fn next_grant_on_another_host_is_measured() {
    let dog = Watchdog::with("next_grant_on_another_host_is_measured", Duration::from_secs(900));
    let Some(cluster) = Cluster::start(&dog, "2s") else { return };
    let rounds = rounds();
    for (what, to) in [("the same host", 0), ("another host", 1)] {
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..rounds {
            let (mut held, _) = cluster.holder(0, &[]);
            let mut waiter = cluster.waiter(to);
            let start = Instant::now();
            signal(held.pid(), libc::SIGKILL);
            assert!(waiter.line().ends_with("died=1"));
            times.push(start.elapsed().as_secs_f64() * 1000.0);
            held.wait();
            waiter.wait();
        }
        times.sort_by(f64::total_cmp);
        let [median, p99, max] = [50, 99, 100].map(|percent| times[(times.len() * percent - 1) / 100]);
        println!(
            "{rounds} kills -9 of the holder, waiter on {what}: {median:.2} ms (median), {p99:.2} ms (p99), {max:.2} ms (max)"
        );
    }
}

#[test]
fn random_disturbances_break_no_promise() {
    let dog = Watchdog::new("random_disturbances_break_no_promise");
    soak::disturb(&dog, 12);
}

#[test]
#[ignore = "takes minutes: see CONTRIBUTING.md"]
fn thousand_random_disturbances() {
    let dog = Watchdog::with("thousand_random_disturbances", Duration::from_secs(3600));
    soak::disturb(&dog, rounds());
}
