//! Hosts file: the hosts of a cluster, and where its key lies.
//!
//! ```text
//! # comment
//! key = cluster.key            the cluster's key; relative to this file
//! state = /var/lib/towpath     where this host's agent keeps its state [~/.local/state/towpath]
//! lease = 2s                   after which a host that is cut off counts as gone
//! alpha 10.0.0.1:7300
//! beta  10.0.0.2:7300
//! gamma 10.0.0.3:7300
//! ```

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use towpath_mplock::Node;
#[cfg(feature = "serve")]
use towpath_net::Key;

use crate::Error;

/// Maximum number of hosts.
const MOST: usize = 64;
/// Lease if none is named.
const LEASE: Duration = Duration::from_secs(2);
/// Shortest lease.
const SHORTEST: Duration = Duration::from_millis(200);

/// Host of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterHost {
    /// Its name.
    pub name: String,
    /// Address at which its agent listens.
    pub address: SocketAddr,
}

/// Contents of a hosts file.
#[derive(Clone, Debug)]
pub struct HostsFile {
    /// The hosts, in the order of the file.
    pub hosts: Vec<ClusterHost>,
    /// Time after which a host that is cut off counts as gone.
    pub lease: Duration,
    #[cfg_attr(not(feature = "serve"), expect(dead_code, reason = "only the agent reads it"))]
    pub(crate) key_file: PathBuf,
    #[cfg_attr(not(feature = "serve"), expect(dead_code, reason = "only the agent writes there"))]
    state: Option<PathBuf>,
}

impl HostsFile {
    /// Reads a hosts file.
    ///
    /// # Errors
    ///
    /// [`Error::Hosts`], with the line.
    ///
    /// ```no_run
    /// use towpath::mplock::hosts::HostsFile;
    ///
    /// let cluster = HostsFile::read("hosts".as_ref())?;
    /// println!("{} hosts, a lease of {:?}", cluster.hosts.len(), cluster.lease);
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn read(path: &Path) -> Result<HostsFile, Error> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Error::Hosts(format!("{shown}: the hosts file can't be read ({error}); name one that lies on each host and begins as `key = FILE`, `alpha 10.0.0.1:7300`, … in lines")))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        // Some editors begin a file with a mark of its byte order.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        HostsFile::parse(text, directory).map_err(|error| Error::Hosts(format!("{shown}: {error}")))
    }

    fn parse(text: &str, directory: &Path) -> Result<HostsFile, String> {
        let (mut hosts, mut key, mut state, mut lease) = (Vec::<ClusterHost>::new(), None, None, LEASE);
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let wrong = |what: &str| format!("line {}: {what}", number + 1);
            if line.is_empty() {
                continue;
            }
            if let Some((name, value)) = line.split_once('=') {
                let value = value.trim();
                match name.trim() {
                    "key" => key = Some(directory.join(value)),
                    "state" => state = Some(directory.join(value)),
                    "lease" => lease = seconds(value).map_err(|what| wrong(&what))?,
                    other => return Err(wrong(&format!("`{other}` is no setting: key, state, lease"))),
                }
                continue;
            }
            let mut words = line.split_whitespace();
            let (Some(name), Some(address), None) = (words.next(), words.next(), words.next()) else {
                return Err(wrong(
                    "a host is a name and an address with a port, as in `alpha 10.0.0.1:7300`",
                ));
            };
            let resolved = address.to_socket_addrs().map_err(|error| {
                wrong(&format!("`{address}` is no address with a port, and no name of one: {error}"))
            })?;
            let address = resolved.into_iter().next().ok_or_else(|| wrong("that name has no address"))?;
            if name.contains('/') || name == "." || name == ".." {
                return Err(wrong("a name of a host is that of a directory, too: no `/`, `.` or `..`"));
            }
            if address.port() == 0 {
                return Err(wrong("port 0 is none at which other hosts find an agent: name one"));
            }
            if hosts.iter().any(|host| host.name == name || host.address == address) {
                return Err(wrong("that host is there already"));
            }
            hosts.push(ClusterHost { name: name.to_owned(), address });
        }
        let key_file =
            key.ok_or("no `key = FILE`: make one with `towpath key FILE`, and copy it to each host")?;
        if !(2..=MOST).contains(&hosts.len()) {
            return Err(format!(
                "{} hosts; a cluster has 2 to {MOST}, and goes on without one of them from 3 on (on one host \
                 `towpath lock` needs no hosts file)",
                hosts.len()
            ));
        }
        if lease < SHORTEST {
            return Err(format!("a lease of {lease:?} is too short: at least {SHORTEST:?}"));
        }
        Ok(HostsFile { hosts, lease, key_file, state })
    }

    /// Reads the cluster's key.
    ///
    /// # Errors
    ///
    /// [`Error::Net`].
    #[cfg(feature = "serve")]
    pub fn key(&self) -> Result<Key, Error> {
        Ok(Key::read(&self.key_file)?)
    }

    /// Returns the number of this host: of that name, if one is given.
    ///
    /// Else it is the host whose name is the system's, or whose address is.
    ///
    /// # Errors
    ///
    /// [`Error::Hosts`] if that is none, or not clear.
    ///
    /// ```no_run
    /// use towpath::mplock::hosts::HostsFile;
    ///
    /// let cluster = HostsFile::read("hosts".as_ref())?;
    /// let this = cluster.find(None)?; // by the system's name
    /// println!("this host is {}", cluster.hosts[this as usize].name);
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn find(&self, name: Option<&str>) -> Result<Node, Error> {
        let only = |is: &dyn Fn(&ClusterHost) -> bool| {
            let mut found = (0..).zip(&self.hosts).filter(|(_, host)| is(host));
            found.next().filter(|_| found.next().is_none()).map(|(number, _)| number)
        };
        if let Some(name) = name {
            let unknown = || {
                let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
                Error::Hosts(format!("no host `{name}` in the hosts file; it has {}", names.join(", ")))
            };
            return only(&|host| host.name == name).ok_or_else(unknown);
        }
        let own = rustix::system::uname();
        let own = own.nodename().to_string_lossy();
        let is_named = |host: &ClusterHost| host.name == own || own.split('.').next() == Some(&host.name);
        // An address that can be bound is one of this host's.
        let is_here = |host: &ClusterHost| UdpSocket::bind((host.address.ip(), 0)).is_ok();
        only(&is_named).or_else(|| only(&is_here)).ok_or_else(|| {
            Error::Hosts(format!(
                "this host (`{own}`) is none of the hosts file, or several, by its name and addresses: say which \
                 one it is with --as NAME"
            ))
        })
    }

    /// Returns the text that agents must have in common to be of one cluster.
    pub(crate) fn purpose(&self) -> String {
        let hosts = self.hosts.iter().map(|host| format!("{}={}", host.name, host.address));
        format!("lock {:?} {}", self.lease, hosts.collect::<Vec<_>>().join(" "))
    }

    /// Returns a short name of the list of hosts, for files.
    pub(crate) fn fingerprint(&self) -> String {
        format!("{:016x}", towpath_mplock::wire::Identity::of(&self.purpose()).0 as u64)
    }

    /// Returns the directory in which a host's agent keeps its state.
    #[cfg(feature = "serve")]
    pub(crate) fn state_of(&self, host: Node) -> Result<PathBuf, Error> {
        let from =
            |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = || from("HOME").map(|home| home.join(".local/state"));
        let directory =
            self.state.clone().or_else(|| Some(from("XDG_STATE_HOME").or_else(home)?.join("towpath")));
        let directory = directory.ok_or_else(|| {
            Error::Hosts(
                "no place for the agent's state: set `state = DIRECTORY` in the hosts file".to_owned(),
            )
        })?;
        Ok(directory.join(&self.hosts[usize::from(host)].name))
    }
}

/// A time: a number of seconds, or a number with a unit.
fn seconds(text: &str) -> Result<Duration, String> {
    let (digits, factor) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let number: f64 =
        digits.trim().parse().map_err(|_| format!("`{text}` is no time, as `2s` or `500ms`"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| format!("`{text}` is no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "key = k # in this directory\nlease=500ms\n\n a 127.0.0.1:1\nb\t127.0.0.1:2 # the second\n";

    #[test]
    fn hosts_file_is_read() {
        let file = HostsFile::parse(GOOD, Path::new("/etc/x")).unwrap();
        assert_eq!((file.hosts.len(), file.hosts[1].name.as_str()), (2, "b"));
        assert_eq!((file.key_file.to_str(), file.lease), (Some("/etc/x/k"), Duration::from_millis(500)));
        assert_eq!(file.find(Some("b")).unwrap(), 1);
        assert!(file.find(Some("c")).unwrap_err().to_string().ends_with("it has a, b"));
        assert!(file.find(None).is_err(), "both addresses are this host's");
        let other = HostsFile::parse(&GOOD.replace("500", "501"), Path::new("")).unwrap();
        assert_ne!(file.fingerprint(), other.fingerprint());
    }

    #[test]
    fn hosts_file_that_is_wrong_says_where() {
        for (from, to, says) in [
            ("key", "kee", "line 1: `kee` is no setting"),
            ("key = k", "", "towpath key"),
            ("500ms", "5 parsecs", "line 2"),
            ("500ms", "1ms", "too short"),
            ("127.0.0.1:2", "127.0.0.1", "line 5"),
            ("127.0.0.1:2", "127.0.0.1:1", "line 5: that host is there already"),
            ("b\t127.0.0.1:2", "", "1 hosts"),
            ("b\t", "b c ", "line 5: a host is"),
            ("b\t", "../b ", "line 5: a name of a host"),
            ("127.0.0.1:2", "127.0.0.1:0", "line 5: port 0"),
        ] {
            let error = HostsFile::parse(&GOOD.replace(from, to), Path::new("")).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
