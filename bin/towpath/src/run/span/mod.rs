//! `towpath run` on several hosts.
//!
//! The launcher that the user starts with `--hosts` or `--listen` is the *hub*: it waits for the
//! launchers of the other hosts, gives each its ranks, and reports and decides for all. The others
//! are *joiners*: started through a remote shell by the hub (`--hosts`, `ssh.rs`) or by hand
//! (`--join`). Each makes its own segment and its own ranks, and its supervisor is the host's
//! gateway (`towpath_hosts`), so its death is that of the host's ranks.
//!
//! | file | contents |
//! | --- | --- |
//! | `mod.rs` | arguments |
//! | `note.rs` | notes between launchers |
//! | `meeting.rs` | the wait for other hosts, interruptible by signals |
//! | `hub.rs`, `joiner.rs` | how the hosts of a job come together |
//! | `ssh.rs` | remote shells |
//! | `job.rs` | a job while its ranks run |

pub mod hub;
pub mod job;
pub mod joiner;
mod meeting;
pub mod note;
pub mod ssh;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use towpath_net::Key;

use crate::CommandFailure;
use crate::run::LAUNCHER_FAILED;

/// Purpose of the links: peers with another one are refused.
const PURPOSE: &str = "towpath run 2";
/// Time in which both ends of a link move it to libfabric.
const MOVE_TO_FABRIC: Duration = Duration::from_secs(20);

/// Arguments of a job on several hosts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Several hosts")]
pub struct SpanArguments {
    /// Hosts and their numbers of ranks, as h1:4,h2:4: starts the ranks of the others
    /// through a remote shell. The ranks of this host (its name, or localhost) come first
    #[arg(long, value_name = "HOST:N,…", conflicts_with_all = ["processes", "join", "expect"])]
    pub hosts: Option<String>,
    /// Address of this host at which others join. Without --hosts they join by hand, with
    /// --join [default with --hosts: the address of the route to each of them, any free
    /// port]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address, conflicts_with = "join")]
    pub listen: Option<SocketAddr>,
    /// Number of hosts that join
    #[arg(long, value_name = "N", requires = "listen", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1023))]
    pub expect: u32,
    /// Address of the host that listens. The world's size and its rules are that host's;
    /// this host adds N ranks
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address)]
    pub join: Option<SocketAddr>,
    /// File with the cluster's key (towpath key); - for standard input. --listen and
    /// --join need it; --hosts makes a key for each run, unless one is given
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Carrier of messages between hosts: tcp, fabric or fabric:PROVIDER (libfabric). All
    /// hosts need it, and its provider: tcp (the default), verbs, efa, cxi, …
    #[arg(long, value_name = "TRANSPORT", default_value = "tcp", value_parser = parse_transport, conflicts_with = "join")]
    pub transport: Transport,
    /// Remote shell: this command with the host and a line for its shell [default:
    /// TOWPATH_SSH in the environment, or ssh -T -o BatchMode=yes]
    #[arg(long, value_name = "COMMAND")]
    pub ssh: Option<String>,
    /// Path of towpath on the other hosts [default: that of this one]
    #[arg(long, value_name = "PATH")]
    pub remote_towpath: Option<PathBuf>,
    /// Place among the hosts, for a joiner that a hub has started
    #[arg(long, hide = true, requires = "join")]
    pub place: Option<usize>,
}

/// Carrier of messages between hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    /// libfabric, by this provider.
    Fabric(String),
}

/// Part of this launcher in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchPart {
    /// All ranks run here.
    Alone,
    /// Other hosts join.
    Hub,
    /// The hub is elsewhere.
    Joiner,
}

impl SpanArguments {
    pub fn part(&self) -> LaunchPart {
        if self.join.is_some() {
            LaunchPart::Joiner
        } else if self.hosts.is_some() || self.listen.is_some() {
            LaunchPart::Hub
        } else {
            LaunchPart::Alone
        }
    }

    /// Refuses arguments that need other hosts.
    pub fn check_alone(&self) -> Result<(), CommandFailure> {
        match self.transport {
            Transport::Tcp => Ok(()),
            Transport::Fabric(_) => Err(failed("--transport is for several hosts: --hosts, or --listen")),
        }
    }

    /// The provider of libfabric that carries messages between hosts.
    fn provider(&self) -> Option<String> {
        match &self.transport {
            Transport::Tcp => None,
            Transport::Fabric(provider) => Some(provider.clone()),
        }
    }

    /// The command of the remote shell.
    fn remote_shell(&self) -> String {
        let named = self.ssh.clone().or_else(|| std::env::var("TOWPATH_SSH").ok());
        named.filter(|named| !named.trim().is_empty()).unwrap_or_else(|| "ssh -T -o BatchMode=yes".into())
    }

    /// Reads the cluster's key.
    fn key(&self) -> Result<Option<Key>, CommandFailure> {
        let Some(path) = &self.key else { return Ok(None) };
        if path.as_os_str() != "-" {
            return Key::read(path).map(Some).map_err(failed);
        }
        // Byte by byte: what follows belongs to no process.
        let mut line = Vec::new();
        let mut byte = [0u8];
        while line.len() < 100 && matches!(rustix::io::read(std::io::stdin(), &mut byte), Ok(1)) {
            if byte[0] == b'\n' {
                break;
            }
            line.push(byte[0]);
        }
        let key = std::str::from_utf8(&line).ok().and_then(|line| Key::from_digits(line.trim()));
        key.map(Some)
            .ok_or_else(|| failed("standard input is no cluster key: a line of 64 hexadecimal digits"))
    }

    /// Reads the cluster's key, which this part can't do without.
    fn needed_key(&self) -> Result<Key, CommandFailure> {
        let remedy = "name the file with the cluster's key: --key FILE (make it with `towpath key FILE`, and copy it to each host)";
        self.key()?.ok_or_else(|| failed(remedy))
    }
}

/// Failure of the launcher itself.
fn failed(error: impl ToString) -> CommandFailure {
    CommandFailure::new(error).with_code(LAUNCHER_FAILED)
}

/// `tcp`, or `fabric` and perhaps a provider.
fn parse_transport(text: &str) -> Result<Transport, String> {
    match text.split_once(':').unwrap_or((text, "tcp")) {
        ("tcp", _) if text == "tcp" => Ok(Transport::Tcp),
        ("fabric", provider) if !provider.is_empty() => Ok(Transport::Fabric(provider.to_owned())),
        _ => Err("tcp, fabric or fabric:PROVIDER".into()),
    }
}

/// An address and a port, the address perhaps by name.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let mut addresses = text.to_socket_addrs().map_err(|error| format!("no ADDRESS:PORT: {error}"))?;
    addresses.next().ok_or_else(|| "the name has no address".to_owned())
}

/// Name of this host.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
