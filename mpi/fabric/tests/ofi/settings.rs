//! Tests with settings of their own: each runs in a process that begins with them in its
//! environment.
//!
//! The process of the harness does not change its environment, since it has several threads:
//! libfabric and the provider read it whenever offers are asked for and objects are opened, under
//! no lock that `set_var` knows of, and `setenv` frees what they read.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Variable that holds the settings for which a process was started.
const VARIABLE: &str = "TOWPATH_TEST_SETTINGS";
/// Time after which the watchdog kills such a process.
const LONGEST: Duration = Duration::from_secs(600);

/// Returns whether this process was started for these settings. In the process of the
/// harness, the calling test first runs, to its end, in a process that was.
///
/// # Panics
///
/// If the test fails there, or does not end.
#[track_caller]
pub fn has_settings(settings: &[(&str, &str)]) -> bool {
    let text: Vec<_> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let text = text.join(" ");
    if let Ok(own) = std::env::var(VARIABLE) {
        return own == text;
    }
    let thread = std::thread::current();
    let test = thread.name().expect("the harness gives a test's thread the test's name");
    let mut command = Command::new(std::env::current_exe().expect("we run"));
    command.args([test, "--exact", "--include-ignored", "--test-threads", "1"]);
    command.env(VARIABLE, &text).envs(settings.iter().copied()).stdout(Stdio::piped());
    // SAFETY: between fork and exec one system call is made. It ends the process with this thread.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut child = command.spawn().expect("a process can be started");
    let mut pipe = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = pipe.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait().expect("our own child") {
            None if start.elapsed() < LONGEST => std::thread::sleep(Duration::from_millis(2)),
            None => {
                child.kill().expect("our own child");
                break child.wait().expect("our own child");
            }
            Some(status) => break status,
        }
    };
    let said = reader.join().expect("it only reads");
    assert!(status.success() && said.contains(" 1 passed"), "with {text}: {status}\n{said}");
    false
}
