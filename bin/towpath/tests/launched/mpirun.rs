//! `towpath mpirun` with a script for an MPI's launcher: signals, ends, leftovers.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::launching::common::{Directory, Member, Watchdog};
use crate::launching::{is_gone, signal, until, with_default_signals};

/// Makes a folder with stand-ins for the provider and Open MPI's launcher, and a `tmp`.
///
/// The stand-in for the launcher runs this script.
fn mpi(launcher: &str) -> Directory {
    let directory = Directory::new();
    std::fs::write(directory.0.join("libtowpath-fi.so"), "\x7fELF fi_prov_ini\0").unwrap();
    let mpiexec = directory.0.join("mpiexec");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 'mpiexec (Open MPI) 5.0'; exit 0; }}\n{launcher}\n"
    );
    std::fs::write(&mpiexec, script).unwrap();
    std::fs::set_permissions(&mpiexec, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(directory.0.join("tmp")).unwrap();
    directory
}

fn mpirun(dog: &Watchdog, directory: &Directory, options: &[&str]) -> Member {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command
        .args(["mpirun", "--mpiexec"])
        .arg(directory.0.join("mpiexec"))
        .arg("--provider")
        .arg(&directory.0);
    command.args(options).args(["-n", "2", "sh"]).env("TMPDIR", directory.0.join("tmp"));
    dog.spawn(with_default_signals(command))
}

fn temporary_files(directory: &Directory) -> usize {
    std::fs::read_dir(directory.0.join("tmp")).unwrap().count()
}

/// Two ranks, one of them in a session of its own and with signals ignored; their pids
/// are printed.
const RANKS: &str =
    "sleep 1000 & echo $!; setsid sh -c 'trap \"\" TERM INT HUP; echo $$; while :; do sleep 1; done' &";

fn pids(run: &mut Member, count: u32) -> Vec<u32> {
    (0..count).map(|_| run.line().parse().unwrap()).collect()
}

#[test]
fn signals_reach_the_launcher_of_the_mpi() {
    let dog = Watchdog::new("signals_reach_the_launcher_of_the_mpi");
    for (name, number) in [("TERM", libc::SIGTERM), ("INT", libc::SIGINT), ("USR1", libc::SIGUSR1)] {
        let script = format!("trap 'echo caught; exit 5' {name}; echo ready; while :; do sleep 0.02; done");
        let directory = mpi(&script);
        let mut run = mpirun(&dog, &directory, &[]);
        assert_eq!(run.line(), "ready");
        assert_eq!(temporary_files(&directory), 0);
        signal(run.pid(), number);
        let (status, output, errors) = run.finish();
        assert_eq!((status.code(), output.as_str()), (Some(5), "caught\n"), "{name}: {errors}");
        assert_eq!(temporary_files(&directory), 0);
    }
}

#[test]
fn nothing_is_left_after_a_signal() {
    let dog = Watchdog::new("nothing_is_left_after_a_signal");
    // A launcher that does not look after its ranks, and one that ignores what it is told.
    for (trap, code) in [("", 128 + libc::SIGTERM), ("trap '' TERM;", 128 + libc::SIGKILL)] {
        let directory = mpi(&format!("{trap} {RANKS} echo $$; while :; do sleep 0.05; done"));
        let mut run = mpirun(&dog, &directory, &["--grace", "0.3"]);
        let pids = pids(&mut run, 3);
        signal(run.pid(), libc::SIGTERM);
        assert_eq!(run.wait().code(), Some(code), "{trap}");
        assert!(pids.iter().all(|&pid| is_gone(pid)), "{trap}");
        assert_eq!(temporary_files(&directory), 0);
    }
}

#[test]
fn nothing_outlives_a_killed_mpirun() {
    let dog = Watchdog::new("nothing_outlives_a_killed_mpirun");
    let directory = mpi(&format!("{RANKS} echo $$; while :; do sleep 0.05; done"));
    let mut run = mpirun(&dog, &directory, &[]);
    let pids = pids(&mut run, 3);
    run.kill();
    assert_eq!(run.wait().signal(), Some(libc::SIGKILL));
    until(|| pids.iter().all(|&pid| is_gone(pid)));
    assert_eq!(temporary_files(&directory), 0);
}

#[test]
fn killed_launcher_of_the_mpi_leaves_no_ranks() {
    let dog = Watchdog::new("killed_launcher_of_the_mpi_leaves_no_ranks");
    let directory = mpi(&format!("{RANKS} sleep 0.2; kill -KILL $$"));
    let mut run = mpirun(&dog, &directory, &[]);
    let pids = pids(&mut run, 2);
    let (status, _, errors) = run.finish();
    assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{errors}");
    assert!(pids.iter().all(|&pid| is_gone(pid)));
}

#[test]
fn ranks_that_load_no_provider_are_missed() {
    let dog = Watchdog::new("ranks_that_load_no_provider_are_missed");
    let directory = mpi("true");
    let (status, _, errors) = mpirun(&dog, &directory, &[]).finish();
    assert!(status.success() && errors.contains("no process has loaded Towpath's provider"), "{errors}");
    // As the provider announces itself (`mpi/fabric/src/device/connect/announce.rs`).
    let directory = mpi("sh -c 'echo $$ >> $TOWPATH_ANNOUNCE'; exit 3");
    let (status, _, errors) = mpirun(&dog, &directory, &[]).finish();
    assert_eq!((status.code(), errors.as_str()), (Some(3), ""));
    let directory = mpi("sh -c 'echo $$ >> $TOWPATH_ANNOUNCE'");
    let (status, _, errors) = mpirun(&dog, &directory, &[]).finish();
    assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
}
