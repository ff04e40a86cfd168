//! Output of the command where nothing can be written: closed pipes, full disks,
//! terminals that hang up.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The exit code when the reader of standard output has gone.
const READER_GONE: i32 = 141;

/// Every command that answers on standard output, with arguments that make it quick.
const ANSWERS: [&str; 20] = [
    "--help",
    "--version",
    "help sim",
    "run --help",
    "mpirun --help",
    "bench --help",
    "bench stress --runs 1 --writers 1 --messages 1000 --algorithms towpath",
    "bench stress --runs 1 --writers 1 --messages 1000 --algorithms towpath --json",
    "doctor",
    "doctor --json",
    "clean",
    "clean --dry-run",
    "explore --list",
    "explore --list --json",
    "explore counter/ll-sc --schedules 50",
    "explore counter/ll-sc --schedules 50 --json",
    "sim list",
    "sim describe origin2000",
    "sim origin2000 counter --procs 1 --seeds 1 --operations 50 --json",
    "reproduce G1 --seeds 1 --json",
];

/// Returns whether this build has the command of these arguments.
fn is_here(arguments: &&str) -> bool {
    let laboratory = ["bench", "sim", "explore", "reproduce"];
    cfg!(feature = "lab") || !arguments.split(' ').any(|word| laboratory.contains(&word))
}

/// A folder for reports and worlds. Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("towpath-output-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn towpath(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.args(arguments.split(' ')).current_dir(&self.0);
        command.env("TOWPATH_SHM_DIR", &self.0).env("TOWPATH_MPICH_DIR", &self.0);
        command.env("TOWPATH_MPICH_DIR", &self.0);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Write end of a pipe without a reader.
fn closed_pipe() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn closed_pipe_ends_every_command_quietly() {
    let folder = Folder::new("pipe");
    for arguments in ANSWERS.into_iter().filter(is_here) {
        let output = folder.towpath(arguments).stdout(closed_pipe()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(READER_GONE), "{arguments}: {errors}");
        let complaint = ["panicked", "towpath:", "Broken pipe"].iter().any(|word| errors.contains(word));
        assert!(!complaint, "{arguments}: {errors}");
    }
}

#[test]
fn full_disk_is_an_error_of_every_command() {
    let folder = Folder::new("full");
    for arguments in ANSWERS.into_iter().filter(is_here) {
        let output = folder.towpath(arguments).stdout(full()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {errors}");
        let message = "towpath: standard output can't be written: No space left on device";
        assert!(errors.contains(message), "{arguments}: {errors}");
    }
}

#[test]
fn remarks_that_cannot_be_written_change_nothing() {
    let folder = Folder::new("remarks");
    let wrong = ["no-such-command", "sim no-such-machine locks", "explore no-such-subject"];
    for arguments in ANSWERS.into_iter().chain(wrong).filter(is_here) {
        let expected = folder.towpath(arguments).output().unwrap().status.code();
        let errors = if arguments.contains("--json") { closed_pipe() } else { full() };
        let output = folder.towpath(arguments).stderr(errors).output().unwrap();
        assert_eq!(output.status.code(), expected, "{arguments}");
        // Neither can be written: no word, but the exit code.
        let status = folder.towpath(arguments).stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), if expected == Some(2) { Some(2) } else { Some(1) }, "{arguments}");
    }
}

#[cfg(feature = "lab")]
#[test]
fn progress_on_a_terminal_that_hangs_up_is_no_failure() {
    let folder = Folder::new("terminal");
    for arguments in [
        "explore counter/ll-sc --schedules 20000",
        "sim origin2000 counter --procs 1,2,4 --seeds 5",
        "reproduce K28 --seeds 2",
        "bench floor --runs 1",
    ] {
        let (mut near, far) = crate::terminal::open();
        let mut command = folder.towpath(arguments);
        let child = command.env("TERM", "xterm").stdout(Stdio::piped()).stderr(far).spawn().unwrap();
        // The bar is there; then the terminal goes.
        let seen = std::io::Read::read(&mut near, &mut [0; 64]).unwrap();
        assert!(seen > 0, "{arguments}");
        drop(near);
        let watchdog = crate::terminal::Watchdog::of(&child, arguments);
        let output = child.wait_with_output().unwrap();
        drop(watchdog);
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        assert!(!output.stdout.is_empty(), "{arguments}");
    }
}

#[cfg(feature = "lab")]
#[test]
fn report_that_cannot_be_written_is_named() {
    let folder = Folder::new("report");
    std::fs::create_dir_all(folder.0.join("taken/index.html")).unwrap();
    std::fs::write(folder.0.join("file"), "in the way").unwrap();
    for (arguments, path) in [
        ("sim origin2000 counter --procs 1 --seeds 1 --operations 50 --report taken", "taken/index.html"),
        ("sim origin2000 counter --procs 1 --seeds 1 --operations 50 --report file/x", "file/x"),
        ("reproduce G1 --seeds 1 --report taken", "taken/index.html"),
        ("reproduce G1 --seeds 1 --record taken", "taken"),
        ("reproduce G1 --seeds 1 --record /dev/full", "/dev/full"),
        ("bench floor --runs 1 --report taken", "taken/index.html"),
    ] {
        let output = folder.towpath(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {errors}");
        assert!(errors.contains(path), "{arguments}: {errors}");
    }
}

#[test]
fn settings_that_cannot_be_printed_are_a_failure() {
    // A library with the provider's entry is all that `--print-env` looks for.
    let folder = Folder::new("settings");
    std::fs::write(folder.0.join("libtowpath-fi.so"), "\x7fELF fi_prov_ini\0").unwrap();
    let arguments = "mpirun --print-env --mpi open-mpi --provider . -n 2";
    let printed = folder.towpath(arguments).output().unwrap();
    assert_eq!(printed.status.code(), Some(0), "{}", String::from_utf8_lossy(&printed.stderr));
    assert!(String::from_utf8_lossy(&printed.stdout).contains("export FI_PROVIDER_PATH="));
    for (output, code) in [(closed_pipe(), READER_GONE), (full(), 1)] {
        let output = folder.towpath(arguments).stdout(output).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
}
