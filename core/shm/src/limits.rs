//! Limits of memory: asked before it is reserved, so that running out is an error and not
//! a signal.
//!
//! Exceeding RLIMIT_FSIZE is a SIGXFSZ, exceeding a control group's limit is the OOM killer, and
//! touching memory that a full tmpfs can't give is a SIGBUS.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::Error;

/// A control group's memory limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// The group's directory.
    pub group: PathBuf,
    /// Its limit in bytes.
    pub limit: u64,
    /// Number of bytes that the limit leaves: free memory, and the files' pages that the
    /// kernel would give up.
    pub free: u64,
}

/// Checks that a segment of so many bytes fits: limits of the process, of its control
/// groups, of the machine.
pub(crate) fn check(bytes: u64) -> Result<(), Error> {
    if let Some(limit) = getrlimit(Resource::Fsize).current
        && limit < bytes
    {
        return Err(Error::FileSizeLimit { wanted: bytes, limit });
    }
    if let Some(tightest) = memory_limit()
        && tightest.free < bytes
    {
        return Err(Error::MemoryLimit { group: tightest.group, wanted: bytes, free: tightest.free });
    }
    if let Some(free) = available_memory()
        && free < bytes
    {
        return Err(Error::NoMemory { wanted: bytes, free });
    }
    Ok(())
}

/// The error for a refusal to map so much, if the process's address space is limited.
pub(crate) fn no_addresses(errno: Errno, wanted: u64) -> Option<Error> {
    let limit = getrlimit(Resource::As).current.filter(|_| errno == Errno::NOMEM)?;
    Some(Error::AddressSpace { wanted, limit })
}

/// Size and free bytes of the file system that a file or directory is on; `None` for one
/// without a size of its own (memfds).
pub fn file_system(fd: impl AsFd) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstatvfs(fd).ok()?;
    (stat.f_blocks > 0).then(|| (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize))
}

/// Memory that the machine has left: that which it can free without swapping, and the
/// swap space.
pub fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = |name: &str| {
        let line = text.lines().find(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Some((kilobytes("MemAvailable")? + kilobytes("SwapFree").unwrap_or(0)) * 1024)
}

/// The memory limit that leaves least, of this process's control groups and all above
/// them. `None` if there is no limit.
pub fn memory_limit() -> Option<GroupLimit> {
    groups("memory")
        .into_iter()
        .filter_map(|(directory, version)| group_limit(&directory, version))
        .min_by_key(|limit| limit.free)
}

/// Number of processors whose time the control groups grant (quota divided by period);
/// `None` if all there is.
pub fn cpu_quota() -> Option<f64> {
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<f64>().ok();
    groups("cpu")
        .into_iter()
        .filter_map(|(directory, version)| match version {
            CgroupVersion::Two => parse_cpu_max(&fs::read_to_string(directory.join("cpu.max")).ok()?),
            CgroupVersion::One => {
                let quota = number(directory.join("cpu.cfs_quota_us"))?;
                let period = number(directory.join("cpu.cfs_period_us"))?;
                (quota > 0.0 && period > 0.0).then(|| quota / period)
            }
        })
        .min_by(f64::total_cmp)
}

fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    One,
    Two,
}

fn group_limit(directory: &Path, version: CgroupVersion) -> Option<GroupLimit> {
    let (limit, usage, prefix) = match version {
        CgroupVersion::Two => ("memory.max", "memory.current", ""),
        CgroupVersion::One => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    };
    let number = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    // "max" is no number, and version 1 says "no limit" with one that no machine has.
    let limit = number(limit).filter(|&l| l < 1 << 60)?;
    let used = number(usage)?;
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let reclaimable: u64 = ["inactive_file", "active_file"]
        .iter()
        .filter_map(|name| {
            let line = stat.lines().find(|l| {
                l.strip_prefix(prefix).and_then(|l| l.strip_prefix(name)).is_some_and(|r| r.starts_with(' '))
            })?;
            line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .sum();
    let free = limit.saturating_sub(used.saturating_sub(reclaimable));
    Some(GroupLimit { group: directory.to_owned(), limit, free })
}

/// Mount of a hierarchy of control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CgroupMount {
    version: CgroupVersion,
    /// Options of the file system: in version 1 the controllers are among them.
    options: String,
    /// The group that is mounted.
    root: PathBuf,
    /// Its place.
    point: PathBuf,
}

/// The directories of this process's control groups for a controller, from its own up to
/// the root.
///
/// The mounts are those of the first call: there may be hundreds of others among them.
fn groups(controller: &str) -> Vec<(PathBuf, CgroupVersion)> {
    static MOUNTS: OnceLock<Vec<CgroupMount>> = OnceLock::new();
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mounts = MOUNTS.get_or_init(|| cgroup_mounts(&read("/proc/self/mountinfo")));
    groups_from(controller, &read("/proc/self/cgroup"), mounts)
}

/// The mounts of control groups in the text of /proc/self/mountinfo.
fn cgroup_mounts(text: &str) -> Vec<CgroupMount> {
    let mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup2" => CgroupVersion::Two,
            "cgroup" => CgroupVersion::One,
            _ => return None,
        };
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?.into(), place.next()?.into());
        Some(CgroupMount { version, options: kind.nth(1).unwrap_or_default().into(), root, point })
    };
    text.lines().filter_map(mount).collect()
}

fn groups_from(controller: &str, membership: &str, mounts: &[CgroupMount]) -> Vec<(PathBuf, CgroupVersion)> {
    let mut found = Vec::new();
    for line in membership.lines() {
        // hierarchy:controllers:path, the controllers empty in version 2.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let version = if controllers.is_empty() {
            CgroupVersion::Two
        } else if controllers.split(',').any(|c| c == controller) {
            CgroupVersion::One
        } else {
            continue;
        };
        let is_it = |mount: &&CgroupMount| {
            mount.version == version
                && (version == CgroupVersion::Two || mount.options.split(',').any(|o| o == controller))
        };
        let Some(mount) = mounts.iter().find(is_it) else { continue };
        // In a container the path may be the host's while the mount shows only the container's
        // part.
        let below = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let mut directory = mount.point.join(below);
        while directory.starts_with(&mount.point) {
            found.push((directory.clone(), version));
            if !directory.pop() {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_both_versions() {
        let v2 = groups_from(
            "memory",
            "0::/user.slice/me\n",
            &cgroup_mounts("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"),
        );
        let expected: Vec<_> =
            ["/sys/fs/cgroup/user.slice/me", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"]
                .iter()
                .map(|p| (PathBuf::from(p), CgroupVersion::Two))
                .collect();
        assert_eq!(v2, expected);

        // A container's view of version 1: the path is the host's, the mount shows only what is
        // below it.
        let v1 = groups_from(
            "memory",
            "4:memory:/docker/abc\n1:cpu:/\n",
            &cgroup_mounts("40 30 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"),
        );
        assert_eq!(v1, [(PathBuf::from("/sys/fs/cgroup/memory"), CgroupVersion::One)]);
        assert_eq!(groups_from("memory", "rubbish\n\n", &cgroup_mounts("more rubbish\n")), []);
    }

    #[test]
    fn file_pages_count_as_free() {
        let directory = std::env::temp_dir().join(format!("towpath-limits-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("memory.max"), "1000000\n").unwrap();
        fs::write(directory.join("memory.current"), "900000\n").unwrap();
        fs::write(directory.join("memory.stat"), "anon 5\nactive_file 200000\ninactive_file 100000\n")
            .unwrap();
        let limit = group_limit(&directory, CgroupVersion::Two).unwrap();
        assert_eq!((limit.limit, limit.free), (1_000_000, 400_000));
        fs::write(directory.join("memory.max"), "max\n").unwrap();
        assert_eq!(group_limit(&directory, CgroupVersion::Two), None);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn quotas() {
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        assert!(check(1 << 20).is_ok());
        assert!(matches!(
            check(1 << 45),
            Err(Error::NoMemory { .. } | Error::MemoryLimit { .. } | Error::FileSizeLimit { .. })
        ));
    }
}
