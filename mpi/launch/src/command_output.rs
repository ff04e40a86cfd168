//! Output of a command within a time limit.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};

/// Reasons for which a command gives no output.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// A system call failed.
    #[error("{what} failed: {source}")]
    System {
        /// The step that failed, with the remedy if there is one.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The command did not end within its limit and was killed.
    #[error("{program} did not end within {seconds} s and was killed")]
    TimedOut {
        /// The command's program.
        program: String,
        /// The limit, in seconds.
        seconds: u64,
    },
}

/// Runs a command and returns its output.
///
/// The command gets a process group of its own, which is killed at the limit.
///
/// # Errors
///
/// [`CommandError::System`] if the command can't be started or waited for,
/// [`CommandError::TimedOut`] at the limit.
pub fn output_within(mut command: Command, limit: Duration) -> Result<Output, CommandError> {
    let failed = |what: String| move |source| CommandError::System { what, source };
    let program = format!("{:?}", command.get_program());
    let child = command.process_group(0).spawn().map_err(failed(format!("starting {program}")))?;
    // The child's number stays its own until the thread below has waited for it.
    let group = Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    // The thread ends with the child: it reads the output to its end.
    let thread = thread::Builder::new().spawn(move || sender.send(child.wait_with_output()));
    let thread = thread.map_err(|source| {
        // The closure was dropped, and with it the child, unwaited.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = waitpid(Some(group), WaitOptions::empty());
        failed("starting a thread (raise `ulimit -u` or `ulimit -v`)".to_owned())(source)
    })?;
    match receiver.recv_timeout(limit) {
        Ok(output) => {
            // Ends at once. A caller that forks is then the only thread again.
            let _ = thread.join();
            output.map_err(failed(format!("waiting for {program}")))
        }
        Err(_) => {
            let _ = kill_process_group(group, Signal::KILL);
            Err(CommandError::TimedOut { program, seconds: limit.as_secs() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[test]
    fn command_that_ends_returns_its_output() {
        let output = output_within(shell("echo out; echo err >&2; exit 3"), Duration::from_secs(60)).unwrap();
        assert_eq!((output.stdout, output.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn command_at_its_limit_is_killed_with_its_children() {
        let path = std::env::temp_dir().join(format!("towpath-limit-{}", std::process::id()));
        let script = format!("sleep 1000 & echo $! >{}; wait", path.display());
        // On a busy machine the shell may not get as far as its first line within the limit.
        let pid = [300, 3000, 30_000].into_iter().find_map(|limit| {
            let error = output_within(shell(&script), Duration::from_millis(limit)).unwrap_err();
            assert!(matches!(error, CommandError::TimedOut { .. }), "{error}");
            std::fs::read_to_string(&path).ok()?.trim().parse::<u32>().ok()
        });
        std::fs::remove_file(&path).unwrap();
        // An orphan is a zombie until its new parent waits for it.
        let stat = format!("/proc/{}/stat", pid.unwrap());
        while std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z ")) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn command_that_does_not_exist_is_named() {
        let error = output_within(Command::new("/nowhere/program"), Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains("starting \"/nowhere/program\" failed: No such"), "{error}");
    }
}
