//! Directories of named worlds that are full, too small or read-only: errors that name
//! them and say what to do, and nothing that is left behind.

use std::process::Command;

use crate::launching::common::{Directory, Watchdog, member};

/// Runs a script with a tmpfs of 3 MiB as directory of named worlds, in a mount namespace
/// of its own; `None` if that can't be made, which is said. `$T` is `towpath`, `$M` the member.
/// A command that runs there sees no other process's files.
fn with_small_tmpfs(dog: &Watchdog, script: &str) -> Option<String> {
    let directory = Directory::new();
    let options = ["--user", "--map-root-user", "--mount", "--propagation", "private"];
    let mount = "mount -t tmpfs -o size=3m tmpfs \"$TOWPATH_SHM_DIR\"";
    let shell = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(options).args(["bash", "-c", script]);
        command.env("TOWPATH_SHM_DIR", &directory.0).env("TOWPATH_MPICH_DIR", &directory.0);
        command.env("T", env!("CARGO_BIN_EXE_towpath")).env("M", member());
        command
    };
    if !shell(mount).output().is_ok_and(|output| output.status.success()) {
        eprintln!(
            "SKIPPED: a tmpfs can't be mounted here (`unshare {} bash -c {mount:?}`)",
            options.join(" ")
        );
        return None;
    }
    let (_, output, errors) = dog.spawn(shell(&format!("{mount}\nexec 2>&1\n{script}"))).finish();
    let place = directory.0.to_str().unwrap();
    Some((output + &errors).replace(place, "PLACE"))
}

#[test]
fn directory_that_is_too_small_or_full_is_an_error() {
    let dog = Watchdog::new("directory_that_is_too_small_or_full_is_an_error");
    let script = "
        $T run -n 2 --world large --size 4M true; echo code $?
        head -c 4M /dev/zero 2>/dev/null >$TOWPATH_SHM_DIR/other
        $T run -n 2 --world small true; echo code $?
        $T doctor >/dev/null; echo code $?
        rm $TOWPATH_SHM_DIR/other
        $T run -n 2 --world small --size 2500K true; echo code $?
        ls $TOWPATH_SHM_DIR
    ";
    let Some(output) = with_small_tmpfs(&dog, script) else { return };
    let mut lines = output.lines();
    for free in ["3145728 free", "0 free"] {
        let error = lines.next().unwrap();
        for part in
            ["towpath: PLACE is full: ", free, "--size", "towpath clean", "size=2G PLACE", "--shm-size"]
        {
            assert!(error.contains(part), "{part}: {output}");
        }
        assert_eq!(lines.next(), Some("code 125"), "{output}");
    }
    // The machine has what Towpath needs; and what fits, works, and leaves nothing.
    let rest: Vec<&str> = lines.collect();
    assert_eq!(rest, ["code 0", "code 0"], "{output}");
}

#[test]
fn read_only_directory_is_an_error_and_its_dead_stay() {
    let dog = Watchdog::new("read_only_directory_is_an_error_and_its_dead_stay");
    let script = "
        mkfifo $TOWPATH_SHM_DIR/in $TOWPATH_SHM_DIR/out
        $M create dead <$TOWPATH_SHM_DIR/in >$TOWPATH_SHM_DIR/out & pid=$!
        exec 8>$TOWPATH_SHM_DIR/in 9<$TOWPATH_SHM_DIR/out
        read -r line <&9; kill -9 $pid; wait $pid 2>/dev/null
        exec 8>&- 9<&-; rm $TOWPATH_SHM_DIR/in $TOWPATH_SHM_DIR/out
        mount -o remount,bind,ro $TOWPATH_SHM_DIR
        $T run -n 1 --world other true; echo code $?
        $T run -n 1 --world dead true; echo code $?
        $T doctor | grep -o 'left behind by a dead world: [^ ]*'
        $T clean; echo code $?
        mount -o remount,bind,rw $TOWPATH_SHM_DIR
        $T clean | grep -o 'removed [^ ]*'
        ls $TOWPATH_SHM_DIR
    ";
    let Some(output) = with_small_tmpfs(&dog, script) else { return };
    let file = "PLACE/towpath.0.dead";
    let refused = "Read-only file system (os error 30)";
    let expected = [
        format!(
            "towpath: making a file in the directory of named worlds (/dev/shm or TOWPATH_SHM_DIR), PLACE: {refused}"
        ),
        "code 125".into(),
        format!("towpath: removing the dead world {file}: {refused}"),
        "code 125".into(),
        format!("left behind by a dead world: {file}"),
        format!("towpath: {file} could not be removed: removing the dead world {file}: {refused}"),
        "code 1".into(),
        format!("removed {file}"),
    ];
    assert_eq!(output.lines().filter(|l| !l.contains("Killed")).collect::<Vec<_>>(), expected, "{output}");
}
