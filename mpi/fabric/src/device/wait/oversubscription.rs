//! Whether more processes than cores share what there is: then whoever waits must make
//! room.
#![allow(unsafe_code)]

use std::collections::BTreeSet;

/// The cores on which a process may run.
fn cores(pid: u32) -> Option<libc::cpu_set_t> {
    // SAFETY: all-zero is an empty set; the call writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        let done = libc::sched_getaffinity(pid as libc::pid_t, size_of::<libc::cpu_set_t>(), &mut set);
        (done == 0).then_some(set)
    }
}

/// Whether these processes, the calling one among them, and so many others of other pid
/// namespaces are more than the cores that they may run on. Only those count that share a core with
/// the calling one.
pub fn is_oversubscribed(pids: &BTreeSet<u32>, others: usize) -> bool {
    let own = std::process::id();
    let Some(mine) = cores(own) else { return false };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: in range.
    let has = |set: &libc::cpu_set_t, core| unsafe { libc::CPU_ISSET(core, set) };
    let (mut processes, mut used) = (others, vec![false; all.len()]);
    for &pid in pids {
        // Whoever can't be asked is taken to be as we are.
        let theirs = if pid == own { mine } else { cores(pid).unwrap_or(mine) };
        if all.clone().any(|core| has(&mine, core) && has(&theirs, core)) {
            processes += 1;
            for core in all.clone() {
                used[core] |= has(&theirs, core);
            }
        }
    }
    let mut cores = used.iter().filter(|&&used| used).count();
    if let Some(quota) = towpath_shm::limits::cpu_quota() {
        cores = cores.min((quota.ceil() as usize).max(1));
    }
    processes > cores
}

/// Whether more than so many threads want to run on this machine now. If that can't be
/// seen: no.
pub fn is_exceeded(ranks: usize) -> bool {
    let running = |load: &str| load.split_whitespace().nth(3)?.split('/').next()?.parse::<usize>().ok();
    std::fs::read_to_string("/proc/loadavg").ok().as_deref().and_then(running).is_some_and(|n| n > ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_run_are_counted() {
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
