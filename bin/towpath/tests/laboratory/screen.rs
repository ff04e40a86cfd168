//! Answers of measuring commands: one screen by default, everything with `--all`.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::termios::{Winsize, tcsetwinsize};

/// Runs that take seconds, each with an option that makes its answer long.
const RUNS: [&str; 4] = [
    "bench floor --runs 1",
    "bench stress --runs 1 --messages 1000 --algorithms towpath,ticket --targets",
    "sim origin2000 locks --procs 1,2 --seeds 1 --operations 60",
    "reproduce N34 K28 M18 --seeds 1",
];

/// A folder for reports. Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("towpath-screen-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn towpath(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.args(arguments.split(' ')).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    fn text(&self, arguments: &str) -> String {
        let output = self.towpath(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Number of lines, and width of the widest, in characters.
pub fn extent(text: &str) -> (usize, usize) {
    (text.lines().count(), text.lines().map(|line| line.chars().count()).max().unwrap_or(0))
}

/// Output of a command on a terminal of this size.
fn on_terminal(mut command: Command, lines: u16, columns: u16) -> String {
    let (mut near, far) = crate::terminal::open();
    tcsetwinsize(&far, Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let mut child = command.stdout(far).stderr(Stdio::null()).spawn().unwrap();
    let _watchdog = crate::terminal::Watchdog::of(&child, &format!("{command:?}"));
    drop(command);
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    // At the end of all writers a read fails (EIO).
    while let Ok(n @ 1..) = near.read(&mut piece) {
        bytes.extend_from_slice(&piece[..n]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
}

#[test]
fn answer_fits_40_lines_of_100_columns() {
    let folder = Folder::new("default");
    for arguments in RUNS {
        let text = folder.text(arguments);
        let (lines, columns) = extent(&text);
        assert!(lines <= 40 && columns <= 100, "{arguments}: {lines} lines of {columns} columns:\n{text}");
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("report: towpath-report/") && last.contains("--all"), "{arguments}: {text}");
        assert!(lines >= 5, "{arguments}: {text}");
    }
}

#[test]
fn answer_fits_the_terminal() {
    let folder = Folder::new("terminal");
    for (lines, columns) in [(24, 80), (50, 100)] {
        for arguments in &RUNS[1..3] {
            let text = on_terminal(folder.towpath(arguments), lines, columns);
            let (high, wide) = extent(&text);
            // One line is the command's, one the next prompt's.
            let fits = high + 2 <= usize::from(lines) && wide <= usize::from(columns);
            assert!(fits, "{arguments}: {high} lines of {wide} columns on {lines} of {columns}:\n{text}");
            assert!(text.contains("report: towpath-report/"), "{arguments}: {text}");
        }
    }
}

#[test]
fn all_prints_what_the_screen_leaves_out() {
    let folder = Folder::new("all");
    for (arguments, beyond) in [
        ("bench floor --runs 1", "pinning: "),
        ("sim origin2000 locks --procs 1,2 --seeds 1 --operations 60", "what an operation costs"),
        ("reproduce N34 K28 --seeds 1", "tolerance"),
    ] {
        let text = folder.text(&format!("{arguments} --all"));
        assert!(text.contains(beyond) && text.contains("report: "), "{arguments}: {text}");
        let screen = folder.text(arguments);
        assert!(arguments.starts_with("sim") || !screen.contains(beyond), "{arguments}: {screen}");
    }
}

#[test]
fn targets_are_shown_only_when_asked_for() {
    let folder = Folder::new("targets");
    let page = || std::fs::read_to_string(folder.0.join("towpath-report/index.html")).unwrap();
    let plain = folder.text("bench stress --runs 1 --messages 1000 --algorithms towpath");
    assert!(!plain.contains("targets") && !page().contains("id=\"targets\""), "{plain}");
    let asked = folder.text("bench stress --runs 1 --messages 1000 --algorithms towpath --targets");
    assert!(asked.to_lowercase().contains("targets") && page().contains("id=\"targets\""), "{asked}");
}
