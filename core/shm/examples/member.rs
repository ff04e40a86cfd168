//! A member of a world that does one thing, for the tests of this room and of the
//! command: `member WHAT ARGUMENTS…`.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use towpath_shm::{Error, World, WorldSpec};
use towpath_sync::Policy;

type Outcome = Result<ExitCode, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["hello"] => hello(),
        ["lines", count] => lines(count.parse().expect("a number of lines")),
        ["crash", rank, how] => crash(rank.parse().expect("a rank"), how, false),
        ["crash", rank, how, "wait"] => crash(rank.parse().expect("a rank"), how, true),
        ["print-and-meet"] => print_and_meet(),
        ["wait"] => wait(),
        ["descriptor", what] => descriptor(what),
        ["sweep"] => sweep(),
        ["stay", name] => stay(name),
        ["create", name] => create(name),
        ["move", name] => change_directory(name),
        ["hurry", name, rounds] => hurry(name, rounds.parse().expect("a number of rounds")),
        ["file-limit"] => file_limit(),
        ["memory-limit", group] => memory_limit(group),
        ["small-tmpfs", directory] => small_tmpfs(directory),
        ["pid-namespace", name] => pid_namespace(name),
        _ => Err("member: unknown arguments".into()),
    };
    result.unwrap_or_else(|e| {
        eprintln!("member: {e}");
        ExitCode::from(70)
    })
}

fn say(what: impl std::fmt::Display) {
    println!("{what}");
    let _ = std::io::stdout().flush();
}

fn until_stdin_ends() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Joins, meets the others, finds them alive, leaves.
fn hello() -> Outcome {
    let world = World::join()?;
    world.barrier(Policy::default())?;
    if let Some(dead) = (0..world.size()).find(|&r| !world.participant(r).is_some_and(|p| world.is_alive(p)))
    {
        return Err(format!("rank {} takes rank {dead} for dead", world.rank()).into());
    }
    let met = world.shared::<AtomicU64>("met", |_| {})?;
    met.fetch_add(1, Ordering::SeqCst);
    world.barrier(Policy::default())?;
    say(format_args!("rank {} of {} met {}", world.rank(), world.size(), met.load(Ordering::SeqCst)));
    Ok(ExitCode::SUCCESS)
}

/// Writes lines in small pieces to both streams.
fn lines(count: u32) -> Outcome {
    let world = World::join()?;
    let rank = world.rank();
    for i in 0..count {
        for piece in ["line ", &i.to_string(), " of ", &rank.to_string(), "\n"] {
            std::io::stdout().write_all(piece.as_bytes())?;
            std::io::stdout().flush()?;
            std::io::stderr().write_all(piece.as_bytes())?;
        }
    }
    print!("end of {rank}");
    Ok(ExitCode::SUCCESS)
}

/// One rank ends badly; the others find out at the barrier, or wait for ever if `wait`.
fn crash(rank: u32, how: &str, wait: bool) -> Outcome {
    if how == "before" && std::env::var("TOWPATH_RANK").as_deref() == Ok(&*rank.to_string()) {
        // The launcher says so only of a world that a rank has entered: others may not be for it.
        let world = World::from_environment()?;
        while (0..world.size()).all(|other| world.participant(other).is_none()) {
            std::thread::yield_now();
        }
        return Ok(ExitCode::from(9));
    }
    let world = World::join()?;
    if how != "before" {
        world.barrier(Policy::default())?;
    }
    if world.rank() == rank {
        match how {
            "abort" => std::process::abort(),
            "kill" => kill_process(getpid(), Signal::KILL)?,
            "exit" => std::process::exit(7),
            "leave" => return Ok(ExitCode::from(3)),
            "error" => return Err("an error".into()),
            "panic" => panic!("a panic"),
            _ => {}
        }
    }
    if wait {
        loop {
            std::thread::park();
        }
    }
    // One that leaves in order before it fails is missed by no barrier until the launcher has
    // reported it.
    while matches!(how, "leave" | "error" | "panic") && world.deaths() == 0 {
        std::thread::yield_now();
    }
    match world.barrier(Policy::default()) {
        Err(Error::MemberDied { rank }) => say(format_args!("rank {} lost {rank}", world.rank())),
        Err(e) => return Err(e.into()),
        Ok(()) => say(format_args!("rank {} lost no peer", world.rank())),
    }
    // The survivors go on.
    world.barrier(Policy::default())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints, and waits for the others before it leaves.
fn print_and_meet() -> Outcome {
    let world = World::join()?;
    world.barrier(Policy::default())?;
    if world.rank() == 1 {
        // Time for a reader to go away.
        std::thread::sleep(std::time::Duration::from_millis(200));
        println!("rank 1 prints");
    }
    let arrived = world.shared::<AtomicU64>("arrived", |_| {})?;
    arrived.fetch_add(1, Ordering::SeqCst);
    // Without a look at the others' lives, as a program that polls its own memory does.
    while arrived.load(Ordering::SeqCst) < u64::from(world.size()) {
        std::thread::yield_now();
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that it is there, and waits for a signal.
fn wait() -> Outcome {
    let world = World::join()?;
    say(format_args!("rank {} is ready as {}", world.rank(), std::process::id()));
    loop {
        std::thread::park();
    }
}

/// Joins after something has happened to the inherited descriptor.
fn descriptor(what: &str) -> Outcome {
    let inherited: i32 = std::env::var("TOWPATH_WORLD_FD")?.parse()?;
    if what != "kept" {
        // SAFETY: the descriptor is inherited: nothing in this process owns it.
        unsafe { libc::close(inherited) };
    }
    let mut other = None;
    if what == "reused" {
        // The lowest free number may be another one: as often as it takes.
        while other.as_ref().is_none_or(|f: &std::fs::File| std::os::fd::AsRawFd::as_raw_fd(f) != inherited) {
            std::mem::forget(other.replace(std::fs::File::open("/dev/null")?));
        }
    }
    if what == "alone" {
        // SAFETY: this process has one thread.
        unsafe { std::env::remove_var("TOWPATH_WORLD_SOCKET") };
        let error = World::join().expect_err("there is no way to the world");
        say(error);
        return Ok(ExitCode::SUCCESS);
    }
    hello()
}

/// Removes dead worlds, until standard input ends.
fn sweep() -> Outcome {
    let stop = std::thread::spawn(until_stdin_ends);
    let mut removed = 0;
    while !stop.is_finished() {
        for world in towpath_shm::leftovers()? {
            if !world.alive && matches!(world.remove(), Ok(true)) {
                removed += 1;
            }
        }
    }
    say(format_args!("removed {removed}"));
    Ok(ExitCode::SUCCESS)
}

/// Enters a named world until its standard input ends.
fn stay(name: &str) -> Outcome {
    let world = World::open(name)?;
    world.enter(None)?;
    say(format_args!("entered as {}", world.rank()));
    until_stdin_ends();
    Ok(ExitCode::SUCCESS)
}

/// Makes a named world, and holds it until its standard input ends.
fn create(name: &str) -> Outcome {
    let spec = WorldSpec {
        name: Some(name.to_owned()),
        processes: 4,
        area_bytes: 1 << 16,
        object_bytes: 0,
        params: [0; 16],
    };
    let world = World::create(&spec)?;
    say("created");
    until_stdin_ends();
    drop(world);
    Ok(ExitCode::SUCCESS)
}

/// Makes a named world, goes to another directory, and still finds it and its directory.
fn change_directory(name: &str) -> Outcome {
    let spec = WorldSpec { name: Some(name.to_owned()), ..large(None) };
    let world = World::create(&spec)?;
    std::env::set_current_dir("/")?;
    let other = World::open(name)?;
    let found = towpath_shm::leftovers()?;
    say(format_args!("{} {}", found.len(), found.iter().all(|w| w.path.exists() && w.alive)));
    drop((world, other));
    say(format_args!("{} left", towpath_shm::leftovers()?.len()));
    Ok(ExitCode::SUCCESS)
}

/// Makes, enters, opens and checks a world of the same name again and again: each time it
/// must be whole and stay so.
fn hurry(name: &str, rounds: u32) -> Outcome {
    let spec = WorldSpec {
        name: Some(name.to_owned()),
        processes: 4,
        area_bytes: 1 << 14,
        object_bytes: 0,
        params: [5; 16],
    };
    let path = towpath_shm::named_worlds_directory()
        .join(format!("towpath.{}.{name}", rustix::process::geteuid().as_raw()));
    for _ in 0..rounds {
        let world = World::create(&spec)?;
        if !path.exists() {
            return Err("the world's name is gone while it is in use".into());
        }
        let other = World::open(name)?;
        other.enter(None)?;
        if other.params() != [5; 16] || !other.is_alive(other.me()) {
            return Err("not the world that was made".into());
        }
        if !path.exists() {
            return Err("the world's name is gone while it is in use".into());
        }
        drop(world);
        drop(other);
        if path.exists() {
            return Err("the world's name outlived it".into());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn large(name: Option<&str>) -> WorldSpec {
    WorldSpec {
        name: name.map(str::to_owned),
        processes: 1,
        area_bytes: 4 << 20,
        object_bytes: 0,
        params: [0; 16],
    }
}

/// Prints the outcome of a creation when files may only have 1 MiB.
fn file_limit() -> Outcome {
    setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) })?;
    match World::create(&large(None)) {
        Err(e @ Error::FileSizeLimit { limit: 1_048_576, .. }) => say(e),
        other => return Err(format!("unexpected: {other:?}").into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the outcome in a control group that may use 3 MiB more than now: the directory
/// of the group is given.
fn memory_limit(group: &str) -> Outcome {
    let group = std::path::Path::new(group);
    let (limit, usage) = if group.join("memory.max").exists() {
        ("memory.max", "memory.current")
    } else {
        ("memory.limit_in_bytes", "memory.usage_in_bytes")
    };
    let prepare = || -> std::io::Result<()> {
        std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())?;
        let used: u64 = std::fs::read_to_string(group.join(usage))?.trim().parse().unwrap_or(0);
        std::fs::write(group.join(limit), (used + (3 << 20)).to_string())
    };
    if let Err(e) = prepare() {
        say(format_args!("unsupported: setting a control group's limit: {e}"));
        return Ok(ExitCode::SUCCESS);
    }
    match World::create(&large(None)) {
        Err(e @ Error::MemoryLimit { .. }) => say(e),
        other => return Err(format!("unexpected: {other:?}").into()),
    }
    let small = WorldSpec { area_bytes: 1 << 16, ..large(None) };
    drop(World::create(&small)?);
    Ok(ExitCode::SUCCESS)
}

/// Prints the outcome when the file system has 1 MiB: mounts such a one, in a mount
/// namespace of its own.
fn small_tmpfs(directory: &str) -> Outcome {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: this process has one thread, and keeps its descriptors.
    let alone = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    let mounted = alone
        .and_then(|()| mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC))
        .and_then(|()| mount("tmpfs", directory, "tmpfs", MountFlags::empty(), Some(c"size=1m")));
    if let Err(e) = mounted {
        say(format_args!("unsupported: mounting a tmpfs: {e}"));
        return Ok(ExitCode::SUCCESS);
    }
    match World::create(&large(Some("large"))) {
        Err(e @ Error::NoSpace { .. }) => say(e),
        other => return Err(format!("unexpected: {other:?}").into()),
    }
    // A world that fits is made; one that was refused took nothing.
    let small = WorldSpec { area_bytes: 1 << 16, ..large(Some("small")) };
    drop(World::create(&small)?);
    say(format_args!("{} left", std::fs::read_dir(directory)?.count()));
    Ok(ExitCode::SUCCESS)
}

/// Enters a named world from a pid namespace of its own, until its standard input ends.
fn pid_namespace(name: &str) -> Outcome {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: this process has one thread, and keeps its descriptors.
    if let Err(e) = unsafe { unshare_unsafe(UnshareFlags::NEWPID) } {
        say(format_args!("unsupported: making a pid namespace: {e}"));
        return Ok(ExitCode::SUCCESS);
    }
    // The next child is the first process there.
    let status = std::process::Command::new(std::env::current_exe()?).args(["stay", name]).status()?;
    Ok(ExitCode::from(status.code().unwrap_or(71) as u8))
}
