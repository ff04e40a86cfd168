//! `towpath run` in pid namespaces, with the /proc of another one, and without /proc.
//!
//! Everything runs in a pid namespace of the test's own: if a number were taken for another
//! process's, it would be one of the test's.

use std::process::Command;

use crate::launching::common::{Directory, Watchdog, member};
use crate::launching::lines;

/// The tests' common ground: a shell in a pid namespace, with /proc of its own and a
/// mount namespace.
struct Sandbox<'a> {
    dog: &'a Watchdog,
    directory: &'a Directory,
}

impl Sandbox<'_> {
    /// Runs a script; `None` if namespaces can't be made, which is said. `$T` is `towpath
    /// run`, `$M` the member, and `$P` starts a program in a pid namespace without a /proc of its
    /// own.
    fn run(&self, script: &str) -> Option<(Option<i32>, String, String)> {
        let outer =
            ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "--mount"];
        let root = rustix::process::geteuid().is_root();
        let outer = if root { &outer[2..] } else { &outer[..] };
        let can = Command::new("unshare")
            .args(outer)
            .args(["unshare", "--pid", "--fork", "--kill-child", "true"])
            .output();
        if !can.is_ok_and(|output| output.status.success()) {
            eprintln!(
                "SKIPPED: pid namespaces can't be made here (`unshare {} true` fails)",
                outer.join(" ")
            );
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(outer).args(["bash", "-c", script]);
        command.env("TOWPATH_SHM_DIR", &self.directory.0);
        command.env("T", format!("{} run", env!("CARGO_BIN_EXE_towpath"))).env("M", member());
        command.env("P", "unshare --pid --fork --kill-child");
        let (status, output, errors) = self.dog.spawn(command).finish();
        Some((status.code(), output, errors))
    }
}

#[test]
fn launcher_with_a_foreign_proc_knows_the_living() {
    let dog = Watchdog::new("launcher_with_a_foreign_proc_knows_the_living");
    let directory = Directory::new();
    let sandbox = Sandbox { dog: &dog, directory: &directory };
    for options in ["-n 4", "-n 4 --world foreign"] {
        let Some((code, output, errors)) = sandbox.run(&format!("$P $T {options} $M hello")) else { return };
        assert_eq!(lines(&output).len(), 4, "{options}: {output} {errors}");
        assert!(output.lines().all(|l| l.ends_with("of 4 met 4")), "{options}: {output}");
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{options}");
    }
    let Some((code, output, errors)) = sandbox.run("$P $T -n 4 --on-death=report $M crash 2 kill") else {
        return;
    };
    assert_eq!(lines(&output), ["rank 0 lost 2", "rank 1 lost 2", "rank 3 lost 2"], "{errors}");
    assert_eq!(code, Some(128 + libc::SIGKILL), "{errors}");
}

#[test]
fn launcher_with_a_foreign_proc_ends_orphans_and_only_them() {
    let dog = Watchdog::new("launcher_with_a_foreign_proc_ends_orphans_and_only_them");
    let directory = Directory::new();
    let sandbox = Sandbox { dog: &dog, directory: &directory };
    // Bystanders have the numbers that orphans might have in the inner namespace, and the other way
    // round. Those of the inner namespace end with it: one process there stays, and counts.
    let script = r#"
        for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done
        $P bash -c '
            sleep 1000 & $T -n 2 sh -c "setsid sleep 1000 & sleep 1000 & echo \$!" 2>&1 >/tmp/none.$$; echo code $?
            kill -0 $! && echo the bystander lives
            for n in 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do kill -0 $n 2>/dev/null && echo $n lives; done
        ' | sed 's/process [0-9]*/process N/'
        jobs -r | grep -c sleep
    "#;
    let script = script.replace("/tmp/none.$$", "/dev/null");
    let Some((code, output, errors)) = sandbox.run(&script) else { return };
    assert_eq!(code, Some(0), "{output} {errors}");
    let left = "towpath: ending process N, which was left running\n".repeat(4);
    // Process 1 is the shell; of the others only the bystander is left.
    let lives: Vec<&str> = output.lines().filter(|l| l.ends_with("lives")).collect();
    assert_eq!(lives.len(), 2, "{output} {errors}");
    assert!(
        output.starts_with(&left) && output.contains("code 0\nthe bystander lives\n"),
        "{output} {errors}"
    );
    assert!(output.ends_with("\n8\n"), "{output} {errors}");
}

#[test]
fn ranks_in_pid_namespaces_of_their_own_meet() {
    let dog = Watchdog::new("ranks_in_pid_namespaces_of_their_own_meet");
    let directory = Directory::new();
    let sandbox = Sandbox { dog: &dog, directory: &directory };
    let Some((code, output, errors)) = sandbox.run("$T -n 4 $P $M hello") else { return };
    assert!(
        output.lines().count() == 4 && output.lines().all(|l| l.ends_with("of 4 met 4")),
        "{output} {errors}"
    );
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    // The launcher's child is `unshare`: the death of what it has started is noticed all the same.
    let Some((code, output, errors)) = sandbox.run("$T -n 4 --on-death=report $P $M crash 2 exit") else {
        return;
    };
    assert_eq!(lines(&output), ["rank 0 lost 2", "rank 1 lost 2", "rank 3 lost 2"], "{errors}");
    assert_eq!(code, Some(7), "{errors}");
}

#[test]
fn without_proc_ranks_meet_and_orphans_end() {
    let dog = Watchdog::new("without_proc_ranks_meet_and_orphans_end");
    let directory = Directory::new();
    let sandbox = Sandbox { dog: &dog, directory: &directory };
    let bare = |script: &str| {
        sandbox.run(&format!("mount -t tmpfs none /proc || exit 99; [ -e /proc/self ] && exit 98; {script}"))
    };
    let Some((code, output, errors)) = bare("$T -n 3 sh -c 'setsid sleep 1000 & echo $!'; echo code $?")
    else {
        return;
    };
    if code == Some(99) {
        eprintln!("SKIPPED: /proc can't be covered here: {errors}");
        return;
    }
    assert!(code == Some(0) && output.ends_with("code 0\n"), "{output} {errors}");
    assert_eq!(errors.matches("which was left running").count(), 3, "{errors}");
    let Some((_, output, errors)) = bare(
        "for pid in $($T -n 3 sh -c 'setsid sleep 1000 >/dev/null & echo $!'); do kill -0 $pid || echo gone; done",
    ) else {
        return;
    };
    assert_eq!(output, "gone\n".repeat(3), "{errors}");
    // A world needs the numbers that Linux 6.9 gives to processes, or /proc.
    for options in ["-n 3", "-n 3 --world bare"] {
        let Some((code, output, errors)) = bare(&format!("$T {options} $M hello")) else { return };
        if errors.contains("is /proc mounted?") {
            eprintln!("SKIPPED: this kernel can't do without /proc: {errors}");
            return;
        }
        assert_eq!((code, output.lines().count()), (Some(0), 3), "{options}: {output} {errors}");
    }
    let Some((code, output, errors)) = bare("$T -n 4 --on-death=report $M crash 2 kill") else { return };
    assert_eq!(lines(&output), ["rank 0 lost 2", "rank 1 lost 2", "rank 3 lost 2"], "{errors}");
    assert_eq!(code, Some(128 + libc::SIGKILL), "{errors}");
}
