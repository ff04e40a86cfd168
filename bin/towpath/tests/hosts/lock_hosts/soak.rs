//! Random disturbances of three hosts while holders come and go, and their history.
//!
//! Agents are killed and stopped, links cut, commands under the lock stopped, and processes of
//! `towpath lock` killed and stopped. Each agent that starts has clocks of its own: a time
//! namespace shifts `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME`, so that they step at each restart, and
//! differ between hosts. Links delay and lose packets where the kernel can (`delay_and_lose`).
//!
//! The history is a file to which one write appends an event, so its order is that of time. The
//! test appends `ask` before it starts a client, and each command its `grant`. At the resource, a
//! file with the largest token, it is `in` and `out` of it, or `refused`.
//!
//! | checked | |
//! | --- | --- |
//! | each token is granted once | |
//! | grants are linearizable | a client has a larger token than all that were granted before it asked |
//! | exclusion at the resource | those that were let in and out again were not there together, by the order of their tokens |
//! | exclusion among holders | no command starts while one with a larger token runs, unless it was stopped |
//! | each waiter is served or told | a client that was not killed has had the lock, or says why not |

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use towpath_machine::Random;

use super::*;

/// Command under the lock: `$CLIENT` is its client's number.
const SCRIPT: &str = r#"
trap 'echo told $CLIENT >> history; exit 0' TERM
set -- $(cat in 2>/dev/null)
if [ -n "$1" ] && [ "$2" -ge $TOWPATH_TOKEN ]; then
    case "$(cat /proc/$1/stat 2>/dev/null)" in ""|*") Z "*|*") X "*) ;; *) echo "beside $CLIENT $2" >> history;; esac
fi
echo $$ $TOWPATH_TOKEN $CLIENT > in.$$ && mv in.$$ in
echo "grant $CLIENT $TOWPATH_TOKEN" >> history
visit='last=$(cat last 2>/dev/null || echo 0)
if [ $TOWPATH_TOKEN -lt $last ]; then echo "refused $CLIENT $TOWPATH_TOKEN" >> history
else echo $TOWPATH_TOKEN > last; echo "$visit $CLIENT $TOWPATH_TOKEN" >> history; fi'
visit=in flock fence sh -c "$visit"
sleep 0.0$(($$ % 9))
visit=out flock fence sh -c "$visit"
"#;

/// Client of the lock: `towpath lock` with the command.
struct Shell {
    number: usize,
    host: usize,
    member: Member,
}

/// Number of disturbances of each kind.
#[derive(Debug, Default)]
struct Disturbances {
    agents_killed: u32,
    links_cut: u32,
    agents_stopped: u32,
    commands_stopped: u32,
    clients_stopped: u32,
    clients_killed: u32,
}

impl Cluster<'_> {
    /// Starts an agent whose clocks are shifted by some days, where that is possible.
    fn start_agent_at(&mut self, host: usize, random: &mut Random) {
        let mut command = self.hosts[host].enter("unshare");
        command.arg("--time");
        for clock in ["--monotonic", "--boottime"] {
            command.args([clock, &random.below(1_000_000).to_string()]);
        }
        command.args([env!("CARGO_BIN_EXE_towpath"), "lock", "--hosts", "hosts", "--serve"]);
        command.env("TOWPATH_SHM_DIR", &self.directory.0).current_dir(&self.directory.0);
        self.agents[host] = Some(self.dog.spawn(with_default_signals(command)));
    }

    /// Returns whether an agent has clocks of its own.
    fn has_own_clocks(&self, host: usize) -> bool {
        let agent = self.agents[host].as_ref().unwrap().pid();
        let clock = |of: String| std::fs::read_link(format!("/proc/{of}/ns/time")).ok();
        let is_other = || clock(agent.to_string()).is_some_and(|its| Some(its) != clock("self".to_owned()));
        // It has when it has replaced the program that made the namespace.
        (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            is_other()
        })
    }

    fn event(&self, text: &str) {
        let path = self.directory.0.join("history");
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(format!("{text}\n").as_bytes()).unwrap();
    }

    /// Command that has the lock, or had it a moment ago: its process and client.
    fn running(&self) -> Option<(u32, usize)> {
        let text = self.read("in");
        let mut words = text.split_whitespace();
        let process: u32 = words.next()?.parse().ok()?;
        let client = words.nth(1)?.parse().ok()?;
        // Another process may have its number by now.
        let is_ours = std::fs::read_link(format!("/proc/{process}/cwd"));
        (is_ours.ok()? == std::fs::canonicalize(&self.directory.0).ok()?).then_some((process, client))
    }
}

/// Stops a process for a while. It may have ended by now.
fn pause(process: u32, random: &mut Random) {
    let process = Pid::from_raw(process as i32).unwrap();
    let _ = kill_process(process, Signal::STOP);
    std::thread::sleep(Duration::from_millis(random.below(900)));
    let _ = kill_process(process, Signal::CONT);
}

/// Disturbs three hosts that many times, and checks the history.
pub fn disturb(dog: &Watchdog, rounds: u32) {
    let Some(mut cluster) = Cluster::start(dog, "300ms") else { return };
    let mut random = Random::new(11);
    cluster.delay_and_lose(1);
    for host in 0..3 {
        cluster.agents[host].take().unwrap().kill();
        cluster.start_agent_at(host, &mut random);
    }
    if !(0..3).all(|host| cluster.has_own_clocks(host)) {
        eprintln!("skipped: steps of clocks (no time namespaces here)");
    }
    cluster.wait_until_all_take_part();
    let (mut shells, mut clients): (Vec<Shell>, usize) = (Vec::new(), 0);
    let (mut killed, mut stopped) = (HashSet::new(), HashSet::new());
    let mut done = Disturbances::default();
    let mut failures: HashMap<usize, String> = HashMap::new();
    for round in 0..rounds {
        for host in 0..3 {
            while shells.iter().filter(|shell| shell.host == host).count() < 3 {
                clients += 1;
                cluster.event(&format!("ask {clients}"));
                let script = format!("CLIENT={clients}; export CLIENT\n{SCRIPT}");
                let member = cluster.lock(host, &["x", "--on-loss", "term", "-c", &script]);
                shells.push(Shell { number: clients, host, member });
            }
        }
        std::thread::sleep(Duration::from_millis(random.below(60)));
        let host = random.below(3) as usize;
        let victim = random.below(shells.len() as u64) as usize;
        // At first one of each kind.
        match if round < 6 { u64::from(round) } else { random.below(12) } {
            0 => {
                done.agents_killed += 1;
                cluster.agents[host].take().unwrap().kill();
                std::thread::sleep(Duration::from_millis(random.below(900)));
                cluster.start_agent_at(host, &mut random);
            }
            1 => {
                done.links_cut += 1;
                cluster.set_link(host, "down");
                std::thread::sleep(Duration::from_millis(random.below(900)));
                cluster.set_link(host, "up");
            }
            2 => {
                done.agents_stopped += 1;
                pause(cluster.agents[host].as_ref().unwrap().pid(), &mut random);
            }
            3 => {
                if let Some((process, client)) = cluster.running() {
                    done.commands_stopped += 1;
                    stopped.insert(client);
                    pause(process, &mut random);
                }
            }
            4 => {
                done.clients_stopped += 1;
                stopped.insert(shells[victim].number);
                pause(shells[victim].member.pid(), &mut random);
            }
            _ => {
                done.clients_killed += 1;
                killed.insert(shells[victim].number);
                shells[victim].member.kill();
            }
        }
        let (over, rest) = shells.into_iter().partition(|shell| is_gone(shell.member.pid()));
        shells = rest;
        over.into_iter().for_each(|shell| note_end(shell, &mut failures));
        if round % 100 == 99 {
            let history = cluster.read("history");
            let grants = history.lines().filter(|line| line.starts_with("grant ")).count();
            println!("round {}: {grants} grants, epoch {}", round + 1, cluster.status(0)[0]["epoch"]);
        }
    }
    cluster.wait_until_all_take_part();
    shells.into_iter().for_each(|shell| note_end(shell, &mut failures));
    let (status, ..) = cluster.lock(0, &["x", "-w", "10", "true"]).finish();
    assert_eq!(status.code(), Some(0));
    let kept = PathBuf::from(std::env::var_os("HISTORY").unwrap_or_default());
    if kept.is_absolute() {
        std::fs::copy(cluster.directory.0.join("history"), kept).unwrap();
    }
    println!("{done:?}");
    check(&cluster.read("history"), &killed, &stopped, &failures);
}

/// Waits for a client, and notes why it has failed.
fn note_end(shell: Shell, failures: &mut HashMap<usize, String>) {
    let (status, _, errors) = shell.member.finish();
    if !status.success() {
        failures.insert(shell.number, format!("{status}: {errors}"));
    }
}

/// Checks a history. Prints its figures.
fn check(
    history: &str,
    killed: &HashSet<usize>,
    stopped: &HashSet<usize>,
    failures: &HashMap<usize, String>,
) {
    // Largest token that was granted before each client asked; tokens of clients.
    let (mut before, mut tokens): (HashMap<usize, u64>, HashMap<usize, u64>) = Default::default();
    let (mut largest, mut inside, mut newest) = (0, None, 0);
    let mut told = HashSet::new();
    let (mut visits, mut refused, mut beside) = (0, 0, 0);
    for line in history.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let client: usize = words[1].parse().unwrap();
        let token: u64 = words.get(2).map_or(0, |word| word.parse().unwrap());
        match words[0] {
            "ask" => _ = before.insert(client, largest),
            "grant" => {
                assert!(token > before[&client], "{line}: {} was granted before it asked", before[&client]);
                assert!(tokens.insert(client, token).is_none(), "{line}: a second grant");
                largest = largest.max(token);
            }
            "in" => {
                assert!(token > newest, "{line} after {newest}");
                (inside, newest) = (Some(token), token);
            }
            "out" => {
                assert_eq!(inside.take(), Some(token), "{line}: another one is inside");
                visits += 1;
            }
            "refused" => {
                assert!(token < newest, "{line} after {newest}");
                refused += 1;
            }
            "told" => _ = told.insert(client),
            "beside" => {
                assert!(stopped.contains(&client), "{line}: a holder started beside a newer one");
                beside += 1;
            }
            _ => panic!("{line}"),
        }
    }
    let unique: HashSet<u64> = tokens.values().copied().collect();
    assert_eq!(unique.len(), tokens.len(), "a token was granted twice");
    let mut unserved = 0;
    for client in before.keys() {
        // A holder may be told of a lost lease before it has written down that it has the lock.
        let served = tokens.contains_key(client) || told.contains(client);
        if !served && !killed.contains(client) {
            let why = failures.get(client).unwrap_or_else(|| panic!("client {client} was never served"));
            assert!(why.contains("agent") || why.contains("lease"), "client {client}: {why}");
            unserved += 1;
        }
    }
    println!(
        "{} clients, {} killed; {} grants; {visits} visits of the resource, {refused} refused; {} holders told of a lost \
         lease; {unserved} waiters told that their agent has ended; {beside} paused holders started late",
        before.len(),
        killed.len(),
        tokens.len(),
        told.len(),
    );
}

#[test]
fn history_with_a_fault_is_refused() {
    let refuses = |history: &str| {
        let none = HashSet::new();
        let run = || check(&history.replace(", ", "\n"), &none, &none, &HashMap::new());
        std::panic::catch_unwind(run).is_err()
    };
    let good = "ask 1, ask 2, grant 1 5, in 1 5, out 1 5, grant 2 6, ask 3, in 2 6, out 2 6, grant 3 7";
    assert!(!refuses(good));
    for (from, to) in [
        ("grant 3 7", "grant 3 6"),
        ("grant 2 6", "grant 2 5"),
        (", grant 3 7", ""),
        ("in 2 6, out 2 6", "in 2 6, in 1 5"),
        ("in 2 6, out 2 6", "in 2 6, out 1 5"),
        ("in 2 6, out 2 6", "refused 2 6"),
        ("in 2 6, out 2 6", "beside 2 6"),
    ] {
        let bad = good.replace(from, to);
        assert!(refuses(&bad), "{bad}");
    }
}
