//! The machine at hand, as far as a figure depends on it: every record carries this.
//!
//! # Safety
//!
//! The system calls that have no safe wrapper are made here with arguments that no kernel accepts
//! or that it only reads, to learn whether they exist.
#![allow(unsafe_code)]

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use towpath_process::may_count_cycles;

/// The host's description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The processor's name.
    pub cpu: String,
    /// Number of cores on which this process may run.
    pub cores: u32,
    /// The kernel's name and release.
    pub kernel: String,
    /// The commit that this program was built from.
    pub commit: String,
    /// Cores to which the processes were pinned.
    pub pinning: String,
    /// The frequency governor of the first core.
    pub governor: String,
    /// The hypervisor, or `none` on bare metal.
    pub virtualisation: String,
    /// Time at which the run began (UTC).
    pub date: String,
    /// Facilities that this machine lacks and that bear on measuring or on being fast.
    pub not_available: Vec<String>,
}

impl Host {
    /// Number of cores, in words.
    pub fn cores_text(&self) -> String {
        if self.cores == 1 { "1 core".into() } else { format!("{} cores", self.cores) }
    }

    /// Looks at the machine. `pinning` says which cores the processes of this run are
    /// pinned to.
    pub fn detect(pinning: &str) -> Host {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let governor = read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        let flags = field(&cpuinfo, &["flags", "Features"]).unwrap_or_default();
        Host {
            cpu: field(&cpuinfo, &["model name", "Model", "cpu model", "Processor"])
                .unwrap_or_else(|| format!("unknown {}", std::env::consts::ARCH)),
            cores: crate::topology::allowed_cores().len() as u32,
            kernel: kernel(),
            commit: env!("TOWPATH_COMMIT").into(),
            pinning: pinning.into(),
            virtualisation: virtualisation(&flags),
            date: date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())),
            not_available: not_available(&flags, governor.is_some()),
            governor: governor.unwrap_or_else(|| "unknown".into()),
        }
    }
}

fn read_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_string())
}

/// The value of the first of `names` that `/proc/cpuinfo` knows.
fn field(cpuinfo: &str, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == *name && !value.trim().is_empty()).then(|| value.trim().to_string())
        })
    })
}

fn kernel() -> String {
    let names = rustix::system::uname();
    format!("{} {}", names.sysname().to_string_lossy(), names.release().to_string_lossy())
}

fn virtualisation(flags: &str) -> String {
    if let Some(product) = read_line("/sys/hypervisor/type") {
        return product;
    }
    let vendor = read_line("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    match (flags.split(' ').any(|f| f == "hypervisor"), vendor.is_empty()) {
        (true, false) => format!("virtual machine ({vendor})"),
        (true, true) => "virtual machine".into(),
        (false, _) => "none detected".into(),
    }
}

fn not_available(flags: &str, has_governor: bool) -> Vec<String> {
    let has = |flag: &str| flags.split(' ').any(|f| f == flag);
    let x86 = cfg!(target_arch = "x86_64");
    let huge_pages =
        read_line("/proc/sys/vm/nr_hugepages").and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n > 0);
    let facts = [
        (may_count_cycles().is_ok(), "hardware performance counters"),
        (huge_pages, "reserved huge pages"),
        (has_governor, "frequency governor (the clock rate can't be seen)"),
        (!x86 || has("waitpkg") || has("monitorx"), "user-level waiting instructions (umwait, monitorx)"),
        (!x86 || has("rtm"), "transactional memory (RTM)"),
        (!x86 || has("constant_tsc"), "constant time-stamp counter"),
        (has_system_call(libc::SYS_futex_waitv), "futex_waitv"),
        (has_system_call(libc::SYS_pidfd_open), "pidfd"),
        (has_system_call(libc::SYS_memfd_create), "memfd"),
        (has_system_call(libc::SYS_process_vm_readv), "process_vm_readv"),
    ];
    facts.iter().filter(|(there, _)| !there).map(|(_, what)| what.to_string()).collect()
}

/// Returns whether the kernel knows this system call and lets us make it.
fn has_system_call(number: libc::c_long) -> bool {
    // SAFETY: all-ones arguments are invalid (a bad pointer, descriptor, process or flag) for each
    // call that this is used with: the kernel refuses them before it does anything.
    let result = unsafe { libc::syscall(number, -1i64, -1i64, -1i64, -1i64, -1i64, -1i64) };
    let error = std::io::Error::last_os_error().raw_os_error();
    result >= 0 || !matches!(error, Some(libc::ENOSYS | libc::EPERM))
}

/// Seconds since 1970 as `2026-03-21 14:05 UTC`.
fn date(seconds: u64) -> String {
    // The civil calendar with years that begin in March, so that the leap day is the last: eras of
    // 400 years are 146,097 days.
    let days = (seconds / 86_400) as i64 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_774_101_900), "2026-03-21 14:05 UTC");
        assert_eq!(date(4_102_444_799), "2099-12-31 23:59 UTC");
    }

    #[test]
    fn fields_of_cpuinfo_are_found_by_any_of_their_names() {
        let text = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu rtm\n";
        assert_eq!(field(text, &["Model", "model name"]).as_deref(), Some("Some CPU"));
        assert_eq!(field(text, &["Features"]), None);
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_there_is_not() {
        let missing = not_available("fpu constant_tsc waitpkg", false);
        assert!(missing.iter().any(|m| m.contains("governor")));
        assert!(!missing.iter().any(|m| m.contains("umwait")));
        if cfg!(target_arch = "x86_64") {
            assert!(missing.iter().any(|m| m.contains("RTM")));
        }
    }

    #[test]
    fn a_system_call_that_cannot_exist_is_found_missing() {
        assert!(!has_system_call(100_000));
        assert!(has_system_call(libc::SYS_getppid));
    }

    #[test]
    fn the_host_has_a_kernel_and_at_least_one_core() {
        let host = Host::detect("cores 0, 1");
        assert!(host.cores >= 1);
        assert!(host.kernel.starts_with("Linux"));
        assert!(!host.commit.is_empty() && !host.cpu.is_empty());
        assert_eq!(host.pinning, "cores 0, 1");
    }
}
