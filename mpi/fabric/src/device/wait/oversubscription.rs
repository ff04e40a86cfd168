//! Detection of oversubscription: more ranks than cores in their common affinity masks.
//!
//! Waiters then yield or sleep ([`idle`](crate::device::wait::idle)).

use std::collections::BTreeSet;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

/// The cores on which a process may run, if it can be asked.
fn cores(pid: u32) -> Option<CpuSet> {
    sched_getaffinity(Pid::from_raw(pid as i32)).ok()
}

/// Returns whether these processes and so many others are more than the cores they may
/// run on. The calling process is one of `pids`; `others` live in other pid namespaces. Only
/// processes that share a core with the calling one count.
pub fn is_oversubscribed(pids: &BTreeSet<u32>, others: usize) -> bool {
    let own = std::process::id();
    let Some(mine) = cores(own) else { return false };
    let all = 0..CpuSet::MAX_CPU;
    let (mut processes, mut used) = (others, vec![false; all.len()]);
    for &pid in pids {
        // A process that can't be asked is taken to be as this one.
        let theirs = if pid == own { mine } else { cores(pid).unwrap_or(mine) };
        if all.clone().any(|core| mine.is_set(core) && theirs.is_set(core)) {
            processes += 1;
            for core in all.clone() {
                used[core] |= theirs.is_set(core);
            }
        }
    }
    let mut cores = used.iter().filter(|&&used| used).count();
    if let Some(quota) = towpath_shm::limits::cpu_quota() {
        cores = cores.min((quota.ceil() as usize).max(1));
    }
    processes > cores
}

/// Returns whether more than so many threads want to run on this machine now.
/// False if that can't be seen.
pub fn is_exceeded(ranks: usize) -> bool {
    let running = |load: &str| load.split_whitespace().nth(3)?.split('/').next()?.parse::<usize>().ok();
    std::fs::read_to_string("/proc/loadavg").ok().as_deref().and_then(running).is_some_and(|n| n > ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_processes_are_counted() {
        // This thread does.
        assert!(is_exceeded(0) && !is_exceeded(1 << 30));
    }

    #[test]
    fn one_process_has_room() {
        assert!(!is_oversubscribed(&BTreeSet::from([std::process::id()]), 0));
    }

    #[test]
    fn many_do_not() {
        // Unknown processes count as if they ran where we do.
        let mut pids = BTreeSet::from([std::process::id()]);
        assert!(is_oversubscribed(&pids, 2000));
        pids.extend(4_100_000..4_102_000);
        assert!(is_oversubscribed(&pids, 0));
    }
}
