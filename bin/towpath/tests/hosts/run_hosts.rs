//! `towpath run` on several hosts: launchers that listen and join, a remote shell that is
//! none, and hosts in network namespaces whose link is cut.

mod fabric;
mod ranks;

use std::fmt::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use crate::launching::common::{Directory, Member, Watchdog, member};
use crate::launching::{delay_and_lose, examples, is_gone, lines, signal, towpath, until};
use towpath_machine::Random;

/// A folder with the cluster's key, a remote shell, and worlds for each host.
struct Cluster {
    dog: Watchdog,
    directory: Directory,
}

impl Cluster {
    fn new(test: &'static str) -> Cluster {
        let cluster = Cluster { dog: Watchdog::new(test), directory: Directory::new() };
        let mut digits = String::new();
        for n in 0..32u32 {
            write!(digits, "{:02x}", (n * 7 + std::process::id()) & 0xff).unwrap();
        }
        std::fs::create_dir(cluster.directory.0.join("etc")).unwrap();
        let write = |name: &str, mode: u32, text: &str| {
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(mode).open(cluster.path(name));
            std::io::Write::write_all(&mut file.unwrap(), text.as_bytes()).unwrap();
        };
        write("key", 0o600, &digits);
        // Like ssh, a shell runs the words after the host.
        write(
            "ssh",
            0o700,
            "#!/bin/sh\nhost=$1; shift\necho \"to $host\" >&2\nHOST=$host; export HOST\nexec sh -c \"$*\"\n",
        );
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.0.join("etc").join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Starts a launcher that listens and one for each of the others, with these numbers
    /// of ranks.
    fn start(&self, ranks: &[&str], options: &[&str], program: &[&str]) -> Vec<Member> {
        let (key, others) = (self.text("key"), (ranks.len() - 1).to_string());
        let hub = ["--listen", "127.0.0.1:0", "--key", &key, "--expect", &others, "--world", "host-0"];
        let hub = [&hub[..], options, &["-n", ranks[0]], program].concat();
        let mut hub = towpath(&self.dog, &self.directory, &hub);
        let waiting = hub.error_line();
        let address = waiting.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap();
        let mut launchers = vec![hub];
        for (place, ranks) in ranks.iter().enumerate().skip(1) {
            let world = format!("host-{place}");
            let joiner = ["--join", address, "--key", &key, "--world", &world, "-n", ranks];
            let label = if options.contains(&"--label") { &["--label"][..] } else { &[] };
            launchers.push(towpath(&self.dog, &self.directory, &[&joiner[..], label, program].concat()));
        }
        launchers
    }

    /// Starts a launcher whose remote shell is none.
    fn start_by_shell(&self, hosts: &str, options: &[&str], program: &[&str]) -> Member {
        let ssh = self.text("ssh");
        let arguments = ["--hosts", hosts, "--ssh", &ssh, "--listen", "127.0.0.1:0"];
        towpath(&self.dog, &self.directory, &[&arguments[..], options, program].concat())
    }

    fn assert_clean(&self) {
        assert_eq!(self.directory.files(), ["etc"], "nothing is left behind");
    }
}

fn example(name: &str) -> String {
    examples().join(name).to_str().unwrap().to_owned()
}

/// Exit codes, output and errors of launchers.
fn finish(launchers: Vec<Member>) -> (Vec<Option<i32>>, String, String) {
    let ends: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = launchers.into_iter().map(|l| scope.spawn(|| l.finish())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let codes = ends.iter().map(|(status, ..)| status.code()).collect();
    let texts = |which: fn(&(std::process::ExitStatus, String, String)) -> &str| {
        ends.iter().map(which).collect::<String>()
    };
    (codes, texts(|end| &end.1), texts(|end| &end.2))
}

#[test]
fn ranks_of_several_hosts_send_each_other_all_forms() {
    let cluster = Cluster::new("ranks_of_several_hosts_send_each_other_all_forms");
    let program = example("all_forms");
    for ranks in [&["1", "1"][..], &["2", "1", "1"]] {
        let (codes, output, errors) = finish(cluster.start(ranks, &["--label"], &[&program]));
        assert!(codes.iter().all(|code| *code == Some(0)), "{codes:?} {errors}");
        let total: usize = ranks.iter().map(|n| n.parse::<usize>().unwrap()).sum();
        for (line, rank) in lines(&output).into_iter().zip(0..total) {
            let begin = format!("[{rank}] rank {rank}: 60 messages from the rank before, 60 answers");
            assert!(line.starts_with(&begin) && line.ends_with(", 4 came back"), "{output}");
        }
        assert_eq!((lines(&output).len(), errors.as_str()), (total, ""));
        assert!(output.contains("on another host") && (total == 2 || output.contains("here")), "{output}");
        cluster.assert_clean();
    }
}

#[test]
fn remote_shell_starts_the_ranks_of_other_hosts() {
    let cluster = Cluster::new("remote_shell_starts_the_ranks_of_other_hosts");
    let script = "echo \"$TOWPATH_RANK of $TOWPATH_SIZE on ${HOST:-here}: $1\"; read x || echo no input >&2";
    let program = ["sh", "-c", script, "sh", "it's $HOME"];
    let mut run = cluster.start_by_shell("alpha:1,localhost:2,beta:1", &["--label"], &program);
    use std::io::Write;
    run.stdin.as_mut().unwrap().write_all(b"a line\n").unwrap();
    let (status, output, errors) = run.finish();
    assert_eq!(status.code(), Some(0), "{errors}");
    let expected = ["here", "here", "alpha", "beta"];
    let expected = (0..4).map(|rank| format!("[{rank}] {rank} of 4 on {}: it's $HOME", expected[rank]));
    assert_eq!(lines(&output), expected.collect::<Vec<_>>());
    // Standard input goes to rank 0, and the key to no rank.
    let no_input = ["[1] no input", "[2] no input", "[3] no input", "to alpha", "to beta"];
    assert_eq!(lines(&errors), no_input);
    // No host is this one; the address is derived.
    let ssh = cluster.text("ssh");
    let run = ["--hosts", "127.0.0.2:1,127.0.0.3:1", "--ssh", &ssh, &example("all_forms")];
    let (status, output, errors) = towpath(&cluster.dog, &cluster.directory, &run).finish();
    assert_eq!((status.code(), lines(&output).len()), (Some(0), 2), "{output} {errors}");
    cluster.assert_clean();
}

/// Runs ranks of `ranks.rs`, one on each of three hosts. Returns their lines, sorted.
fn run_ranks(cluster: &Cluster, does: &str) -> Vec<String> {
    let program = ranks::program(does);
    let program: Vec<&str> = program.iter().map(String::as_str).collect();
    let packets = ranks::PACKETS.to_string();
    let launchers = cluster.start(&["1", "1", "1"], &["--packets", &packets], &program);
    let (codes, output, errors) = finish(launchers);
    assert!(codes.iter().all(|code| *code == Some(0)), "{does}: {codes:?} {output} {errors}");
    cluster.assert_clean();
    let said = lines(&output).into_iter().filter(|line| line.starts_with("rank "));
    said.map(str::to_owned).collect()
}

#[test]
fn barriers_end_though_a_receiver_of_other_hosts_is_full() {
    let cluster = Cluster::new("barriers_end_though_a_receiver_of_other_hosts_is_full");
    for does in ["barrier", "manager-barrier"] {
        assert_eq!(run_ranks(&cluster, does), [""; 0]);
    }
}

#[test]
fn full_queues_and_returned_messages_are_as_on_one_host() {
    let cluster = Cluster::new("full_queues_and_returned_messages_are_as_on_one_host");
    for does in ["full", "closed", "rejected"] {
        assert_eq!(run_ranks(&cluster, does), [""; 0]);
    }
}

/// Process that is killed while ranks talk.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Rank(usize),
    /// The gateway of this launcher.
    Supervisor(usize),
    Launcher(usize),
}

/// Kills a rank, a gateway or a launcher while ranks of three hosts talk: all requests
/// of the survivors are answered or come back, and no process hangs.
fn kill_while_they_talk(rounds: u64, first_seed: u64, transport: &str) {
    let program = ranks::program("talk");
    let program: Vec<&str> = program.iter().map(String::as_str).collect();
    let packets = ranks::PACKETS.to_string();
    let options = ["--on-death", "report", "--packets", &packets, "--blocks", "4", "--transport", transport];
    let on = [1, 2, 1];
    for seed in first_seed..first_seed + rounds {
        let cluster = Cluster::new("kill_while_they_talk");
        let mut random = Random::new(seed);
        let mut launchers = cluster.start(&["1", "2", "1"], &options, &program);
        // Hosts get their ranks in the order in which they come.
        let of_hosts: Vec<Vec<(u32, u32)>> =
            launchers.iter_mut().zip(on).map(|(launcher, ranks)| ranks_that_ask(launcher, ranks)).collect();
        let all = of_hosts.concat();
        let victim = match random.below(3) {
            0 => Victim::Rank(random.below(4) as usize),
            1 => Victim::Supervisor(random.below(3) as usize),
            _ => Victim::Launcher(random.below(3) as usize),
        };
        let pid = match victim {
            Victim::Rank(place) => all[place].1,
            Victim::Supervisor(host) => supervisor(&launchers[host]),
            Victim::Launcher(host) => launchers[host].pid(),
        };
        std::thread::sleep(std::time::Duration::from_micros(random.below(60_000)));
        signal(pid, libc::SIGKILL);
        let (codes, output, errors) = finish(launchers);
        // Ranks of the hosts that go on.
        let is_lost = |rank_and_pid| match victim {
            Victim::Rank(place) => all[place] == rank_and_pid,
            Victim::Supervisor(host) | Victim::Launcher(host) => of_hosts[host].contains(&rank_and_pid),
        };
        for (rank, _) in all.iter().copied().filter(|&of| !is_lost(of)) {
            let is_settled =
                |line: &str| line.contains(&format!("rank {rank}: ")) && line.contains(" are settled");
            assert!(
                output.lines().any(is_settled),
                "seed {seed}, {victim:?}, rank {rank}: {codes:?} {output} {errors}"
            );
        }
        assert!(all.iter().all(|(_, pid)| is_gone(*pid)), "seed {seed}, {victim:?}");
    }
}

#[test]
fn random_kill_leaves_no_request_open_and_no_process_hanging() {
    kill_while_they_talk(6, 1, "tcp");
}

#[test]
#[ignore = "a minute or two: the long form"]
fn hundred_random_kills_leave_no_request_open() {
    let rounds = std::env::var("ROUNDS").map_or(100, |text| text.parse().unwrap());
    kill_while_they_talk(rounds, 1000, "tcp");
}

#[test]
fn death_is_told_and_counts_as_on_one_host() {
    let cluster = Cluster::new("death_is_told_and_counts_as_on_one_host");
    let member = member().to_str().unwrap();
    for (how, code, says) in [
        ("kill", 128 + libc::SIGKILL, "was killed by SIGKILL"),
        ("exit", 7, "ended with code 7 without having left the world"),
        ("before", 9, "ended with code 9 without having entered the world"),
        ("leave", 3, "ended with code 3 after it had left the world"),
    ] {
        let options = ["--on-death", "report"];
        let (codes, output, errors) =
            finish(cluster.start(&["1", "2", "1"], &options, &[member, "crash", "2", how]));
        assert_eq!(lines(&output), ["rank 0 lost 2", "rank 1 lost 2", "rank 3 lost 2"], "{how}: {errors}");
        assert!(codes.iter().all(|c| *c == Some(code)), "{how}: {codes:?} {errors}");
        // The launcher that listens, and its own.
        let told = errors.lines().filter(|line| line.contains("rank 2 (") && line.contains(says));
        assert_eq!(told.count(), 2, "{how}: {errors}");
    }
    // By default the others are ended, wherever they are.
    let (codes, output, errors) =
        finish(cluster.start(&["2", "2"], &[], &[member, "crash", "3", "exit", "wait"]));
    assert_eq!((codes, output.as_str()), (vec![Some(7), Some(7)], ""), "{errors}");
    assert!(
        errors.contains(") ended with code 7 without having left the world; stopping the others"),
        "{errors}"
    );
    let hosts = cluster.start_by_shell("localhost:2,alpha:2", &[], &[member, "crash", "3", "exit", "wait"]);
    let (status, _, errors) = hosts.finish();
    assert_eq!(status.code(), Some(7), "{errors}");
    assert!(errors.contains("on alpha) ended with code 7"), "{errors}");
    assert_eq!(errors.lines().filter(|line| line.contains("rank 3")).count(), 1, "{errors}");
    cluster.assert_clean();
}

/// Reads the processes of ranks out of the first lines of `questions`.
fn asking(launcher: &mut Member, ranks: usize) -> Vec<u32> {
    ranks_that_ask(launcher, ranks).into_iter().map(|(_, pid)| pid).collect()
}

/// Ranks and processes out of the first lines of `questions`.
fn ranks_that_ask(launcher: &mut Member, ranks: usize) -> Vec<(u32, u32)> {
    let mut pids: Vec<(u32, u32)> = (0..ranks)
        .map(|_| {
            // A rank of `ranks.rs` is a test, whose frame says something, too.
            let mut line = launcher.line();
            while line.is_empty() || line.contains("test") && !line.contains(" asks (process") {
                line = launcher.line();
            }
            let said = &line[line.rfind("rank ").unwrap_or(0)..];
            let numbers: Vec<u32> =
                said.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
            let [rank, pid] = numbers[..] else { panic!("{line:?}: {:?}", launcher.error_line()) };
            (rank, pid)
        })
        .collect();
    pids.sort_unstable();
    pids
}

/// Checks the last lines of `questions`: each was answered or came back.
fn assert_answered(output: &str, ranks: usize, dead: &str) {
    assert_eq!(lines(output).len(), ranks, "{output}");
    for line in output.lines() {
        let numbers: Vec<u32> =
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        let [_, asked, answered, back, ..] = numbers[..] else { panic!("{line}") };
        assert!(answered + back >= asked && back <= asked && answered <= asked, "{line}");
        assert!(line.ends_with(&format!("dead: {dead}")), "{line} not {dead}");
    }
}

/// The supervisor of a launcher: its only child.
fn supervisor(launcher: &Member) -> u32 {
    let path = format!("/proc/{0}/task/{0}/children", launcher.pid());
    let mut children = String::new();
    until(|| {
        children = std::fs::read_to_string(&path).unwrap_or_default();
        !children.trim().is_empty()
    });
    children.trim().parse().unwrap()
}

#[test]
fn killed_rank_and_host_leave_no_question_open() {
    let cluster = Cluster::new("killed_rank_and_host_leave_no_question_open");
    let program = example("questions");
    let report = ["--on-death", "report"];
    // A rank.
    let mut launchers = cluster.start(&["1", "2"], &report, &[&program]);
    let pids = [asking(&mut launchers[0], 1), asking(&mut launchers[1], 2)].concat();
    signal(pids[2], libc::SIGKILL);
    let (codes, output, errors) = finish(launchers);
    assert_eq!(codes, [Some(128 + libc::SIGKILL); 2], "{errors}");
    assert_answered(&output, 2, "[2]");
    // A gateway, which is the supervisor, by its host.
    for victim in [1, 0] {
        let mut launchers = cluster.start(&["1", "2"], &report, &[&program]);
        let pids = [asking(&mut launchers[0], 1), asking(&mut launchers[1], 2)].concat();
        signal(supervisor(&launchers[victim]), libc::SIGKILL);
        let (codes, output, errors) = finish(launchers);
        let (survivors, dead) = if victim == 1 { (1, "[1, 2]") } else { (2, "[0]") };
        assert_answered(&output, survivors, dead);
        assert_eq!((codes[victim], codes[1 - victim]), (Some(128 + libc::SIGKILL), Some(125)), "{errors}");
        assert!(
            errors.contains("is lost (") && errors.contains("count as dead; the others go on"),
            "{errors}"
        );
        assert!(pids.iter().all(|pid| is_gone(*pid)));
    }
    // A launcher, with the default for deaths: all of its job ends.
    let mut launchers = cluster.start(&["1", "2"], &[], &[&program]);
    let pids = [asking(&mut launchers[0], 1), asking(&mut launchers[1], 2)].concat();
    launchers[0].kill();
    let (codes, _, errors) = finish(launchers);
    assert_eq!(codes, [None, Some(125)], "{errors}");
    until(|| pids.iter().all(|pid| is_gone(*pid)));
}

#[test]
fn launcher_with_remote_shells_leaves_nothing_running() {
    let cluster = Cluster::new("launcher_with_remote_shells_leaves_nothing_running");
    let program = example("questions");
    // Even if survivors are to go on: not without the launcher.
    for victim in ["launcher", "supervisor", "SIGTERM"] {
        let mut run = cluster.start_by_shell("localhost:1,alpha:1", &["--on-death", "report"], &[&program]);
        let pids = asking(&mut run, 2);
        match victim {
            "launcher" => run.kill(),
            "supervisor" => signal(supervisor(&run), libc::SIGKILL),
            _ => signal(run.pid(), libc::SIGTERM),
        }
        let (status, _, errors) = run.finish();
        until(|| pids.iter().all(|pid| is_gone(*pid)));
        match victim {
            "SIGTERM" => {
                assert_eq!(status.code(), Some(128 + libc::SIGTERM), "{errors}");
                assert_eq!(errors, "to alpha\n", "an order is no news");
            }
            "supervisor" => assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{errors}"),
            _ => {}
        }
    }
    cluster.assert_clean();
}

#[test]
fn stopped_rank_is_not_taken_for_dead() {
    let cluster = Cluster::new("stopped_rank_is_not_taken_for_dead");
    let mut launchers = cluster.start(&["1", "2"], &["--on-death", "report"], &[&example("questions"), "1"]);
    asking(&mut launchers[0], 1);
    let pids = asking(&mut launchers[1], 2);
    // A rank, then all of its host: longer than a link may be silent.
    signal(pids[0], libc::SIGSTOP);
    let all = [pids[1], supervisor(&launchers[1])];
    all.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
    std::thread::sleep(std::time::Duration::from_millis(4500));
    all.iter().rev().chain([&pids[0]]).for_each(|pid| signal(*pid, libc::SIGCONT));
    let (codes, output, errors) = finish(launchers);
    assert_eq!((codes, errors.as_str()), (vec![Some(0); 2], ""));
    assert_answered(&output, 3, "[]");
    cluster.assert_clean();
}

#[test]
fn jobs_that_cannot_begin_say_why() {
    let cluster = Cluster::new("jobs_that_cannot_begin_say_why");
    let fails = |arguments: &[&str], code: i32, says: &str| {
        let (status, output, errors) = towpath(&cluster.dog, &cluster.directory, arguments).finish();
        assert_eq!((status.code(), output.as_str()), (Some(code), ""), "{arguments:?} {errors}");
        assert!(errors.contains(says), "{arguments:?}: {errors}");
    };
    let (ssh, key) = (cluster.text("ssh"), cluster.text("key"));
    fails(&["true"], 2, "--processes");
    fails(&["--hosts", "a:1", "-n", "2", "true"], 2, "cannot be used with");
    fails(&["--join", "127.0.0.1:1", "-n", "1", "--packets", "64", "true"], 2, "cannot be used with");
    fails(&["--listen", "127.0.0.1:0", "-n", "1", "true"], 125, "towpath key");
    fails(&["--listen", "192.0.2.1:0", "--key", &key, "-n", "1", "true"], 125, "cannot listen on 192.0.2.1");
    fails(&["--hosts", "localhost:2", "true"], 125, "use -n");
    fails(&["--hosts", "alpha:0", "true"], 125, "no HOST:N");
    fails(&["--hosts", "no-such-host.invalid:1", "true"], 125, "--listen ADDRESS:PORT");
    fails(&["--hosts", "alpha:1", "--listen", "0.0.0.0:0", "true"], 125, "address at which");
    let hosts = ["--hosts", "localhost:1,alpha:1", "--listen", "127.0.0.1:0"];
    fails(&[&hosts[..], &["--ssh", "/no/such/shell", "true"]].concat(), 125, "can't be started");
    fails(&[&hosts[..], &["--ssh", "false", "true"]].concat(), 125, "alpha: the remote shell ended before");
    let towpath_elsewhere = ["--ssh", &ssh, "--remote-towpath", "/no/such/towpath", "true"];
    fails(&[&hosts[..], &towpath_elsewhere].concat(), 125, "exit status: 127");
    fails(&[&hosts[..], &["--ssh", &ssh, "/no/such/program"]].concat(), 127, "/no/such/program: not found");
    std::fs::set_permissions(cluster.path("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    fails(&["--join", "127.0.0.1:1", "--key", &key, "-n", "1", "true"], 125, "chmod 600");
    cluster.assert_clean();
}

#[test]
fn host_with_another_key_is_refused_and_the_right_one_taken() {
    let cluster = Cluster::new("host_with_another_key_is_refused_and_the_right_one_taken");
    let other = Cluster::new("host_with_another_key_is_refused_and_the_right_one_taken");
    std::fs::write(other.path("key"), "0".repeat(64)).unwrap();
    let (key, wrong) = (cluster.text("key"), other.text("key"));
    let hub = ["--listen", "127.0.0.1:0", "--key", &key, "-n", "1", "true"];
    let mut hub = towpath(&cluster.dog, &cluster.directory, &hub);
    let waiting = hub.error_line();
    let address = waiting.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap();
    let join = |key: &str| {
        let arguments = ["--join", address, "--key", key, "-n", "1", "true"];
        let (status, _, errors) = towpath(&cluster.dog, &cluster.directory, &arguments).finish();
        (status.code(), errors)
    };
    let (code, errors) = join(&wrong);
    assert!(code == Some(125) && errors.contains("another cluster key"), "{errors}");
    assert_eq!(join(&key), (Some(0), String::new()));
    let (status, _, errors) = hub.finish();
    assert!(status.success() && errors.contains("another cluster key"), "{errors}");
}

/// Two hosts in network namespaces of their own, joined by a link, and a script on the
/// first. `$T` is `towpath run`, `$K` the key, and `$THERE` enters the second one.
fn in_namespaces(cluster: &Cluster, script: &str) -> Option<(Option<i32>, String, String)> {
    let root = rustix::process::geteuid().is_root();
    let own = if root { &["--net"][..] } else { &["--user", "--map-root-user", "--net"] };
    let probe = "ip link add towpath0 type veth peer name towpath1";
    let can = Command::new("unshare").args(own).args(["sh", "-c", probe]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!(
            "SKIPPED: network namespaces can't be made here (`unshare {} {probe}` fails)",
            own.join(" ")
        );
        return None;
    }
    let setup = "set -e
        exec 3> >(exec unshare --net cat); there=$!
        until [ \"$(readlink /proc/$there/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do sleep 0.01; done
        ip link add here type veth peer name there netns $there
        ip addr add 10.77.0.1/24 dev here; ip link set here up; ip link set lo up
        THERE=\"nsenter --target $there --net\"
        $THERE ip addr add 10.77.0.2/24 dev there; $THERE ip link set there up; $THERE ip link set lo up
        set +e\n";
    let mut command = Command::new("unshare");
    command.args(own).args(["bash", "-c", &format!("{setup}{script}")]);
    command.env("TOWPATH_SHM_DIR", &cluster.directory.0).env("K", cluster.text("key"));
    command.env("P", example("questions"));
    // Without the script, no launcher is left.
    command.env("T", format!("setpriv --pdeathsig KILL {} run", env!("CARGO_BIN_EXE_towpath")));
    let (status, output, errors) = cluster.dog.spawn(command).finish();
    Some((status.code(), output, errors))
}

#[test]
fn link_that_delays_and_loses_frames_loses_no_message() {
    let cluster = Cluster::new("link_that_delays_and_loses_frames_loses_no_message");
    std::fs::write(cluster.path("slow"), delay_and_lose(1, "1gbit", 65536)).unwrap();
    let script = format!(
        "LINK=here sh {slow} && LINK=there $THERE sh {slow} || echo skipped: delay and loss >&2
        $T --listen 10.77.0.1:7300 --key $K -n 1 {program} & hub=$!
        $THERE $T --join 10.77.0.1:7300 --key $K -n 1 {program}; joiner=$?
        wait $hub; echo ends $? $joiner",
        slow = cluster.text("slow"),
        program = example("all_forms"),
    );
    let Some((_, output, errors)) = in_namespaces(&cluster, &script) else { return };
    eprint!("{errors}");
    assert!(output.contains("ends 0 0"), "{output} {errors}");
    assert_eq!(output.matches("60 messages from the rank before, 60 answers").count(), 2, "{output}");
    cluster.assert_clean();
}

#[test]
fn cut_link_is_the_death_of_the_ranks_behind_it() {
    cut_link(&Cluster::new("cut_link_is_the_death_of_the_ranks_behind_it"), "tcp");
}

fn cut_link(cluster: &Cluster, transport: &str) {
    let script = "
        $T --listen 10.77.0.1:7300 --key $K --on-death=report --transport $BY -n 1 $P 60 >$K.0 & hub=$!
        $THERE $T --join 10.77.0.1:7300 --key $K -n 1 $P 60 >$K.1 & joiner=$!
        until grep -q asks $K.0 && grep -q asks $K.1; do sleep 0.02; done
        ip link set here down
        wait $hub; echo hub $?
        wait $joiner; echo joiner $?
        cat $K.0 $K.1";
    let script = script.replace("$BY", transport);
    let Some((code, output, errors)) = in_namespaces(cluster, &script) else { return };
    assert_eq!(code, Some(0), "{output} {errors}");
    let ends: String =
        output.lines().filter(|line| line.contains("dead:")).map(|line| format!("{line}\n")).collect();
    let [zero, one] = lines(&ends)[..] else { panic!("{output} {errors}") };
    assert_answered(zero, 1, "[1]");
    assert_answered(one, 1, "[0]");
    for end in ["hub 125", "joiner 125"] {
        assert!(output.lines().any(|line| line == end), "{output} {errors}");
    }
    assert_eq!(errors.matches("is lost (").count(), 2, "{errors}");
    cluster.assert_clean();
}
