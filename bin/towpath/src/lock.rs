//! `towpath lock`: a command under a lock, as with flock(1).

mod holder;
mod serve;
mod status;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use towpath_agent::HostsFile;
use towpath_lockfile::LockAccess;

use crate::run::supervisor::supervised;
use crate::{CommandFailure, Outcome};

/// Exit code where the command can't be executed, as flock(1) has it.
const NOT_EXECUTED: u8 = 69;
/// Exit code where the system refuses a process or the like.
const SYSTEM_FAILED: u8 = 71;
/// Exit code where the lock can't be made.
const NOT_MADE: u8 = 73;
/// Failure of `--etcd` in a build without it.
#[cfg(not(feature = "etcd"))]
const NO_ETCD: &str = "this build of towpath has no locks of an etcd: build it with the feature etcd";

#[derive(Debug, Args)]
#[command(
    about = "Run a command under a lock, as flock(1) does",
    long_about = "Runs a command under the lock of a name, and releases the lock when the command ends or dies. The name may be any text; nothing has to be started or made first. The lock is this user's on this host: other users' locks of that name are others. With --hosts it spans the hosts of a file, on each of which an agent runs (--serve). Waiters are served in the order in which they have come.",
    after_help = "Examples:
  towpath lock backup -- rsync -a /home /mnt      one at a time; others wait
  towpath lock backup -n -- rsync -a /home /mnt   exit code 1 if it is held
  towpath lock backup -w 10 -c 'cd /home && ./save.sh'
  towpath lock table --shared -- ./report         together with other readers
  towpath lock --status                           holders and waiters of all locks
  towpath lock --serve --hosts FILE               this host's agent, for locks that span hosts
  towpath lock --hosts FILE backup -- ./save.sh   one at a time on all hosts of the file
  towpath lock --etcd http://10.0.0.1:2379 backup -- ./save.sh    by an etcd that exists already

The command finds in its environment TOWPATH_LOCK, the name; TOWPATH_TOKEN, its fencing token: a number that is larger than those of all holders before it (tokens increase also where the lock was unused for a while, as long as the host's clock is not set back meanwhile); and TOWPATH_PREVIOUS_OWNER_DIED=1 if a holder before it died by a signal, or was killed with this command, and no command under the exclusive lock has ended with code 0 since.

The lock lasts until the command ends; processes that it leaves running do not keep it. SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM and SIGWINCH are passed on to the command. If `towpath lock` is killed (SIGKILL), the command and its descendants are killed, and the lock goes on when they have ended: it is never given to another while a process of a killed holder runs that has not closed the descriptor which it has inherited. A command that is stopped keeps the lock.

With --hosts: a host that is cut off from the majority, or whose agent is killed, loses its locks to the others when its lease (2 s, or that of the file) is over; its holders are told just before (--on-loss). What the lock protects refuses a late holder by its token, which increases with each grant on any host.

With --etcd: the lock is that of etcd's own recipe (`etcdctl lock towpath/NAME` waits for the same one; readers have keys beside it), the token its key's revision. --status shows what the keys say: also to other clients of the etcd, so what is secret does not belong on the command line. The lease is 5 s: after that, and a second or two of etcd's own, the next waiter has the lock of a host that is gone. A holder that can't reach etcd is told before (--on-loss). TOWPATH_PREVIOUS_OWNER_DIED is never set. An etcd that asks for a user is told that of ETCDCTL_USER=NAME:PASSWORD in the environment, or of http://NAME:PASSWORD@HOST:PORT.

Of flock(1) are missing: descriptors instead of a name, -u, -o, -F, --fcntl and --verbose; its exit code for wrong arguments is 64.

Exit codes: the command's own (128 + the signal's number for a signal); 1, or that of -E, if the lock could not be had (-n, -w), quietly; 2 arguments that make no sense; 69 the command can't be executed; 71 the system refuses a process; 73 the lock can't be made, the hosts file is wrong, no agent or etcd serves it, or (-n) this host hears no majority of the hosts.",
    trailing_var_arg = true
)]
pub struct Arguments {
    /// Name of the lock
    #[arg(value_name = "NAME", required_unless_present_any = ["status", "serve"])]
    name: Option<String>,
    /// Hold the lock together with others that do so
    #[arg(short = 's', long)]
    shared: bool,
    /// Hold the lock alone (the default)
    #[arg(short = 'x', short_alias = 'e', long, conflicts_with = "shared")]
    exclusive: bool,
    /// Fail, instead of waiting, if the lock is held
    #[arg(short = 'n', long, visible_alias = "nb")]
    nonblock: bool,
    /// Fail if the lock can't be had within this time: in seconds, or with a unit (500ms,
    /// 5s, 2m, 1h)
    #[arg(short = 'w', long, visible_alias = "wait", value_name = "TIME", value_parser = parse_time, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// Exit code if the lock can't be had (-n, -w)
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 1, allow_negative_numbers = true)]
    conflict_exit_code: u8,
    /// Command line for the shell ($SHELL, or /bin/sh), instead of COMMAND
    #[arg(short = 'c', long = "command", value_name = "COMMANDLINE", conflicts_with = "program")]
    line: Option<OsString>,
    /// Show holders and waiters, of all locks or of the one that is named
    ///
    /// The locks of this user on this host; with --hosts or --etcd theirs.
    #[arg(long, conflicts_with_all = ["shared", "exclusive", "nonblock", "timeout", "line", "program"])]
    status: bool,
    /// Print the status as JSON
    #[arg(long, requires = "status")]
    json: bool,
    /// Hosts file: the lock spans these hosts (docs/mplocks.md)
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// Name of this host in the hosts file, where name and addresses do not say it
    #[arg(long = "as", value_name = "HOST", requires = "hosts")]
    host: Option<String>,
    /// Client addresses of an etcd (3.4 or later)
    ///
    /// Several are members of one cluster. The lock is etcd's, and spans all hosts that use it.
    #[arg(long, value_name = "URL,…", conflicts_with = "hosts")]
    etcd: Option<String>,
    /// Treatment of the command when the lock may have been given to others: this host is
    /// cut off, or its agent has ended, or etcd does not answer, or the lock's file was removed
    #[arg(long, value_name = "WHAT", default_value = "report")]
    on_loss: OnLoss,
    /// Serve this host as its agent, in the foreground, until SIGINT or SIGTERM
    #[arg(long, requires = "hosts", conflicts_with_all = ["name", "shared", "exclusive", "nonblock", "timeout", "line", "status", "etcd"])]
    serve: bool,
    #[command(flatten)]
    foreign: ForeignOptions,
    /// The command and its arguments
    #[arg(value_name = "COMMAND")]
    program: Vec<OsString>,
}

/// Options of flock(1) that are refused with a reason.
#[derive(Debug, Args)]
struct ForeignOptions {
    #[arg(short = 'u', long, hide = true)]
    unlock: bool,
    #[arg(short = 'o', long, hide = true)]
    close: bool,
    #[arg(short = 'F', long, hide = true)]
    no_fork: bool,
    #[arg(long, hide = true)]
    fcntl: bool,
    #[arg(long, hide = true)]
    verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnLoss {
    /// Say so on standard error; the command goes on
    Report,
    /// Say so, and send the command SIGTERM
    Term,
}

impl Arguments {
    fn access(&self) -> LockAccess {
        if self.shared { LockAccess::Shared } else { LockAccess::Exclusive }
    }

    /// Returns why an option of flock(1) is refused.
    fn foreign(&self) -> Option<&'static str> {
        let ForeignOptions { unlock, close, no_fork, fcntl, verbose } = self.foreign;
        let reasons = [
            (unlock, "-u (--unlock) of flock(1) is not there: the lock ends with the command"),
            (
                close,
                "-o (--close) of flock(1) is not there: leave it out; processes that the command leaves running do not keep the lock",
            ),
            (
                no_fork,
                "-F (--no-fork) of flock(1) is not there: leave it out; `towpath lock` stays beside the command and sees how it ends",
            ),
            (
                fcntl,
                "--fcntl of flock(1) is not there: leave it out; a lock of towpath is a name, and no other program's lock of a file",
            ),
            (
                verbose,
                "--verbose of flock(1) is not there: leave it out; `towpath lock --status` shows holders and waiters",
            ),
        ];
        reasons.into_iter().find(|(given, _)| *given).map(|(_, reason)| reason)
    }

    /// Returns the program and its arguments.
    fn command(&self) -> Option<Vec<OsString>> {
        if let Some(line) = &self.line {
            let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
            return Some(vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line.clone()]);
        }
        (!self.program.is_empty()).then(|| self.program.clone())
    }
}

/// A time: a number of seconds, or a number with a unit.
fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("`{other}` is no unit of time: ms, s, m or h")),
    };
    let number: f64 = digits.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| "not a time that can be waited for".to_owned())
}

/// The words of a command as people would write them; of a long one the beginning.
fn shown_command(words: &[OsString]) -> String {
    /// Maximum number of characters.
    const MOST: usize = 400;

    let quoted = words.iter().map(|word| {
        let text = String::from_utf8_lossy(word.as_bytes()).into_owned();
        let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
        if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{text}'") }
    });
    let mut text = quoted.collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = text.char_indices().nth(MOST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Reads the hosts file, if one is named.
fn read_hosts(arguments: &Arguments) -> Result<Option<HostsFile>, CommandFailure> {
    let read = |path: &PathBuf| HostsFile::read(path);
    arguments.hosts.as_ref().map(read).transpose().map_err(|e| CommandFailure::new(e).with_code(NOT_MADE))
}

/// Makes the failure of arguments that make no sense.
fn refused(why: &str) -> CommandFailure {
    CommandFailure::new(why).with_code(2)
}

pub fn run(arguments: &Arguments) -> Outcome {
    if arguments.serve {
        return serve::serve(arguments);
    }
    if arguments.json && !arguments.status {
        return Err(refused("--json is for --status: add that, or leave --json out"));
    }
    if let Some(why) = arguments.foreign() {
        return Err(refused(why));
    }
    if arguments.status {
        return match (read_hosts(arguments)?, &arguments.etcd) {
            (Some(hosts), _) => status::show_cluster(arguments, &hosts),
            (None, Some(urls)) => status::show_etcd(urls, arguments),
            (None, None) => status::show(arguments.name.as_deref(), arguments.json),
        };
    }
    let (Some(name), Some(command)) = (&arguments.name, arguments.command()) else {
        return Err(refused(
            "no command: say which one is to run under the lock, as in `towpath lock NAME -- COMMAND`, or `-c COMMANDLINE`",
        ));
    };
    supervised(SYSTEM_FAILED, "the command", |parent, signals| {
        holder::hold(arguments, name, &command, parent, signals)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in [("5", 5000), ("0.5", 500), ("250ms", 250), ("5s", 5000), ("2m", 120_000)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for bad in ["", "s", "-1", "5 parsecs", "5d", "NaN", "1e300h"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_with_blanks_are_shown_in_quotes() {
        assert_eq!(shown_command(&["sh".into(), "-c".into(), "a b".into()]), "sh -c 'a b'");
        assert_eq!(shown_command(&["ä".repeat(400).into()]), "ä".repeat(400));
        assert_eq!(shown_command(&["ä".repeat(401).into()]), "ä".repeat(400) + "…");
    }
}
