//! Members that a look from outside could mistake: a dead one whose pid is another
//! process's by now, and one that does not run because its control group is frozen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Watchdog, unique};
use towpath_shm::{World, WorldSpec};

/// Set in the process that runs in a pid namespace of its own.
const INSIDE: &str = "TOWPATH_TEST_INSIDE";
/// File with the last pid that the kernel has given, in the reader's namespace.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

fn spec(name: Option<&str>) -> WorldSpec {
    let name = name.map(str::to_owned);
    WorldSpec { name, processes: 4, area_bytes: 4096, object_bytes: 0, params: [0; 16] }
}

fn world() -> World {
    World::create(&spec(None)).unwrap()
}

/// A forked child that enters as that rank, counts itself in the area's first word, and
/// stays.
fn member(world: &World, rank: Option<u32>) -> i32 {
    let area = world.area();
    let count = area.get::<AtomicU64>(0).unwrap();
    // Relaxed: former children were waited for (2).
    let before = count.load(Ordering::Relaxed);
    // SAFETY: the child uses what a child of a process with several threads may use in practice
    // with glibc (which makes its allocator safe across fork), and never returns.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let entered = rank.is_none_or(|rank| world.enter(Some(rank)).is_ok());
        // (1) Release: the entering comes before; pairs with the Acquire (2).
        count.fetch_add(if entered { 1 } else { 1 << 32 }, Ordering::Release);
        loop {
            std::thread::park();
        }
    }
    // (2) Acquire: pairs with the Release (1).
    while count.load(Ordering::Acquire) == before {
        std::thread::yield_now();
    }
    // Relaxed: as (2) has seen it.
    assert_eq!(count.load(Ordering::Relaxed), before + 1, "entering as {rank:?}");
    pid
}

fn end(pid: i32) {
    let mut status = 0;
    // SAFETY: our own child, not waited for; `status` outlives the call.
    unsafe {
        assert_eq!(libc::kill(pid, libc::SIGKILL), 0);
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
    }
}

#[test]
fn dead_member_whose_pid_is_used_again_is_dead() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let dog = Watchdog::new("dead_member_whose_pid_is_used_again_is_dead");
    let options = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let possible = Command::new("unshare").args(options).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: pid namespaces can't be made here (`unshare {} true` fails)", options.join(" "));
        return;
    }
    let mut command = Command::new("unshare");
    command.args(options).arg(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "reused_and_frozen::dead_member_whose_pid_is_used_again_is_dead"])
        .env(INSIDE, "1");
    let (status, output, errors) = dog.spawn(command).finish();
    if errors.contains("SKIPPED") {
        eprintln!("{errors}");
        return;
    }
    assert!(status.success() && output.contains("the pid was used again"), "{output}{errors}");
}

/// Runs as the first process of a pid namespace.
fn inside() {
    let world = world();
    world.enter(Some(0)).unwrap();
    let pid = member(&world, Some(1));
    let id = world.participant(1).unwrap();
    assert!(world.is_alive(id));
    end(pid);
    // A process that has nothing to do with the world gets the pid; then one that enters it.
    for rank in [None, Some(2)] {
        let mut again = 0;
        for _ in 0..1000 {
            if let Err(e) = fs::write(LAST_PID, (pid - 1).to_string()) {
                eprintln!("SKIPPED: pids can't be chosen here: {LAST_PID}: {e}");
                return;
            }
            again = member(&world, rank);
            if again == pid {
                break;
            }
            end(again);
        }
        assert_eq!(again, pid, "another thread takes the pid each time");
        // One handle has asked before, and may know the process; the other knows only what the
        // world says.
        let fresh = world.reopen().unwrap();
        fresh.enter(Some(3)).unwrap();
        assert!(!fresh.is_alive(id), "a stranger with the pid of the dead");
        assert!(!world.is_alive(id));
        if rank == Some(2) {
            let second = world.participant(2).unwrap();
            assert_eq!(world.pid_of(second), Some(pid as u32));
            assert!(world.is_alive(second) && fresh.is_alive(second), "this one lives");
        }
        end(again);
    }
    println!("the pid was used again");
}

/// A new control group that can be frozen, the files that freeze and thaw it, and the
/// sign that it is frozen.
struct Freezer {
    group: PathBuf,
    file: &'static str,
    states: [&'static str; 2],
    seen: (&'static str, &'static str),
}

impl Freezer {
    fn new() -> Option<Freezer> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let below = |line: &str| line.splitn(3, ':').nth(2).map(|p| p.trim_start_matches('/').to_owned());
        let two = own.lines().find(|l| l.starts_with("0::")).and_then(below);
        let one = own.lines().find(|l| l.split(':').nth(1) == Some("freezer")).and_then(below);
        let places = [
            two.clone().map(|p| Path::new("/sys/fs/cgroup").join(p)),
            two.map(|p| Path::new("/sys/fs/cgroup/unified").join(p)),
            one.map(|p| Path::new("/sys/fs/cgroup/freezer").join(p)),
        ];
        places.into_iter().flatten().find_map(|own| {
            let group = own.join(unique("frozen"));
            fs::create_dir(&group).ok()?;
            if group.join("cgroup.freeze").exists() {
                let (file, states) = ("cgroup.freeze", ["0", "1"]);
                return Some(Freezer { group, file, states, seen: ("cgroup.events", "frozen 1") });
            }
            if group.join("freezer.state").exists() {
                let (file, states) = ("freezer.state", ["THAWED", "FROZEN"]);
                return Some(Freezer { group, file, states, seen: ("freezer.state", "FROZEN") });
            }
            let _ = fs::remove_dir(&group);
            None
        })
    }

    fn freeze(&self, on: bool) {
        fs::write(self.group.join(self.file), self.states[usize::from(on)]).unwrap();
        let (file, text) = self.seen;
        while fs::read_to_string(self.group.join(file)).unwrap().lines().any(|l| l == text) != on {
            std::thread::yield_now();
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.group.join(self.file), self.states[0]);
        // Empty as soon as its process has been waited for.
        for _ in 0..1000 {
            if fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

#[test]
fn frozen_member_is_alive_and_goes_on() {
    let dog = Watchdog::new("frozen_member_is_alive_and_goes_on");
    let Some(freezer) = Freezer::new() else {
        eprintln!("SKIPPED: no control group that can be frozen can be made here");
        return;
    };
    let name = unique("frozen");
    let world = World::create(&spec(Some(&name))).unwrap();
    world.enter(Some(3)).unwrap();
    let mut member = dog.start("/dev/shm".as_ref(), &["stay", &name]);
    assert_eq!(member.line(), "entered as 0");
    let id = world.participant(0).unwrap();
    if let Err(e) = fs::write(freezer.group.join("cgroup.procs"), member.pid().to_string()) {
        eprintln!("SKIPPED: a process can't be put into a control group here: {e}");
        return;
    }
    freezer.freeze(true);
    let fresh = world.reopen().unwrap();
    for _ in 0..100 {
        assert!(world.is_alive(id) && fresh.is_alive(id), "descheduled is not dead");
        assert_eq!((world.check_deaths(), fresh.check_deaths()), (0, 0));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    freezer.freeze(false);
    // It goes on: it reads the end of its input, and leaves.
    assert!(member.finish().0.success());
    assert!(!world.is_alive(id));
    assert_eq!(world.deaths(), 0);
}
