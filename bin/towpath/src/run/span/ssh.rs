//! Hosts that the launcher reaches through a remote shell.
//!
//! The shell of each host runs `towpath run --join` there. The key goes through its standard input,
//! and never through its arguments, which others can see. The remote shell has a process group of
//! its own, so that what is typed reaches the ranks as signals of the launcher, and does not end
//! the connection.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use towpath_net::Key;

use crate::CommandFailure;
use crate::run::signals::{self, Signals};
use crate::run::{Arguments, LAUNCHER_FAILED};

use super::{failed, own_name};

/// Host of `--hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedHost {
    pub name: String,
    pub ranks: u32,
}

/// Remote shell of a host.
#[derive(Debug)]
pub struct RemoteShell {
    pub child: Child,
    /// The host's place.
    pub host: usize,
}

/// Reads `--hosts`: NAME:N, separated by commas. Without N: one rank.
pub fn parse_hosts(text: &str) -> Result<Vec<NamedHost>, String> {
    let host = |part: &str| {
        let (name, ranks) = part.rsplit_once(':').unwrap_or((part, "1"));
        let ranks = ranks.parse().ok().filter(|&n| (1..=4096).contains(&n));
        match ranks {
            Some(ranks) if !name.is_empty() && !name.starts_with('-') => {
                Ok(NamedHost { name: name.to_owned(), ranks })
            }
            _ => Err(format!("--hosts: {part:?} is no HOST:N, with N from 1 to 4096")),
        }
    };
    text.split(',').map(|part| host(part.trim())).collect()
}

/// Splits hosts into this one's number of ranks (0 if it is not named) and the others.
pub fn split(hosts: Vec<NamedHost>) -> Result<(u32, Vec<NamedHost>), String> {
    let own = own_name();
    let short = own.split('.').next().unwrap_or(&own);
    let is_here = |host: &NamedHost| ["localhost", "127.0.0.1", "::1", &own, short].contains(&&*host.name);
    let (here, others): (Vec<_>, Vec<_>) = hosts.into_iter().partition(is_here);
    match &here[..] {
        [] => Ok((0, others)),
        [one] => Ok((one.ranks, others)),
        _ => Err("--hosts names this host twice: give it the ranks of both at once".into()),
    }
}

/// Address of this host by which it reaches another one, with any free port.
pub fn address_towards(name: &str) -> Result<SocketAddr, String> {
    let host = name.rsplit_once('@').map_or(name, |(_, host)| host);
    let unknown = |error: io::Error| {
        format!(
            "the address at which {host} can reach this host is not known ({error}): name it, --listen ADDRESS:PORT (port 0 is any free one)"
        )
    };
    // Nothing is sent: the system chooses the address of a route.
    let towards = |there: SocketAddr| -> io::Result<IpAddr> {
        let any: IpAddr =
            if there.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(there)?;
        Ok(socket.local_addr()?.ip())
    };
    let mut there = (host, 22).to_socket_addrs().map_err(unknown)?;
    let there = there.next().ok_or_else(|| unknown(io::ErrorKind::NotFound.into()))?;
    towards(there).map(|here| SocketAddr::new(here, 0)).map_err(unknown)
}

/// Quotes a text for a POSIX shell.
fn quoted(text: &OsStr) -> Vec<u8> {
    let mut out = vec![b'\''];
    for &byte in text.as_bytes() {
        match byte {
            b'\'' => out.extend(b"'\\''"),
            _ => out.push(byte),
        }
    }
    out.push(b'\'');
    out
}

/// Line for the shell of another host.
fn line(arguments: &Arguments, host: &NamedHost, place: usize, hub: SocketAddr) -> io::Result<Vec<u8>> {
    let span = &arguments.span;
    let own = match &span.remote_towpath {
        Some(path) => path.clone(),
        None => std::env::current_exe()?,
    };
    let mut words: Vec<Vec<u8>> = vec![b"cd".into(), quoted(std::env::current_dir()?.as_os_str())];
    words.extend([b"&&".to_vec(), b"exec".to_vec(), quoted(own.as_os_str())]);
    let options = format!("run --join {hub} --key - --place {place} -n {}", host.ranks);
    words.extend(options.split(' ').map(|word| word.as_bytes().to_vec()));
    if arguments.label {
        words.push(b"--label".into());
    }
    if let Some(world) = &arguments.world {
        words.extend([b"--world".to_vec(), quoted(OsStr::new(world))]);
    }
    words.push(b"--".into());
    words.extend(arguments.program.iter().map(|word| quoted(word)));
    Ok(words.join(&b' '))
}

impl RemoteShell {
    /// Starts the remote shell of a host.
    pub fn start(
        arguments: &Arguments,
        host: &NamedHost,
        place: usize,
        hub: SocketAddr,
        key: &Key,
        signals: &Signals,
    ) -> Result<RemoteShell, CommandFailure> {
        let remote_shell = arguments.span.remote_shell();
        let mut words = remote_shell.split_whitespace();
        let Some(shell) = words.next() else { return Err(failed("--ssh: no command")) };
        let line = line(arguments, host, place, hub).map_err(failed)?;
        let mut command = Command::new(shell);
        command.args(words).arg(&host.name).arg(OsStr::from_bytes(&line)).stdin(Stdio::piped());
        if arguments.label {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let (launcher, mask) = (getpid(), signals.mask_before());
        let prepare = move || {
            signals::set_mask(&mask)?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The launcher may have died before the call.
            if getppid() != Some(launcher) {
                // SAFETY: `_exit` has no preconditions.
                unsafe { libc::_exit(i32::from(LAUNCHER_FAILED)) };
            }
            Ok(())
        };
        // SAFETY: the closure only makes system calls: it neither allocates nor takes a lock.
        unsafe { command.process_group(0).pre_exec(prepare) };
        let not_started = |error| failed(format!("{shell} (--ssh) can't be started: {error}"));
        let mut child = command.spawn().map_err(not_started)?;
        if let Some(stdin) = &mut child.stdin {
            // A shell that has ended already is reported by its end.
            let _ = writeln!(stdin, "{}", key.to_digits());
        }
        Ok(RemoteShell { child, host: place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_with_numbers() {
        let named = |name: &str, ranks| NamedHost { name: name.into(), ranks };
        let hosts = parse_hosts("h1:4, me@h2.example:2,h3").unwrap();
        assert_eq!(hosts, [named("h1", 4), named("me@h2.example", 2), named("h3", 1)]);
        for bad in ["", "h1:", "h1:x", "h1:0", "h1:4097", ":4", "h1:4,,h2:1", "-oProxyCommand=x:1"] {
            assert!(parse_hosts(bad).is_err(), "{bad:?}");
        }
        assert_eq!(split(parse_hosts("h1:4,localhost:3,h2:1").unwrap()).unwrap().0, 3);
        assert_eq!(split(parse_hosts("h1:4").unwrap()).unwrap(), (0, vec![named("h1", 4)]));
        assert!(split(parse_hosts(&format!("localhost:4,{}:2", own_name())).unwrap()).is_err());
    }

    #[test]
    fn shells_read_what_was_quoted() {
        for text in ["", "a b", "it's", "$(x) `y` \\ \" *", "-n\n"] {
            let mut line = b"printf %s ".to_vec();
            line.extend(quoted(OsStr::new(text)));
            let shell = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&line)).output().unwrap();
            assert_eq!(String::from_utf8(shell.stdout).unwrap(), text);
        }
    }

    #[test]
    fn loopback_is_reached_by_loopback() {
        let here = address_towards("someone@127.0.0.1").unwrap();
        assert!(here.ip().is_loopback() && here.port() == 0);
        let error = address_towards("no-such-host.invalid").unwrap_err();
        assert!(error.contains("--listen"), "{error}");
    }
}
