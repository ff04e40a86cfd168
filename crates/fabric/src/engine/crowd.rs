//! Whether more processes than cores share what there is: then whoever waits must make room.
#![allow(unsafe_code)]

/// The cores on which a process may run.
fn cores(pid: u32) -> Option<libc::cpu_set_t> {
    // SAFETY: all-zero is an empty set; the call writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        let done = libc::sched_getaffinity(pid as libc::pid_t, size_of::<libc::cpu_set_t>(), &mut set);
        (done == 0).then_some(set)
    }
}

/// Whether these processes, the calling one first, and so many others of other pid namespaces are more than the cores that they may run on. Only those count that share a core with the calling one.
pub fn is_crowded(pids: &mut Vec<u32>, others: usize) -> bool {
    let own = pids.first().copied().unwrap_or(0);
    pids.sort_unstable();
    pids.dedup();
    let Some(mine) = cores(own) else { return false };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: in range.
    let has = |set: &libc::cpu_set_t, core| unsafe { libc::CPU_ISSET(core, set) };
    let (mut processes, mut used) = (others, vec![false; all.len()]);
    for &pid in pids.iter() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_room() {
        assert!(!is_crowded(&mut vec![std::process::id()], 0));
        assert!(!is_crowded(&mut vec![std::process::id(); 5000], 0));
    }

    #[test]
    fn many_do_not() {
        // Unknown processes count as if they ran where we do.
        let mut pids = vec![std::process::id()];
        pids.extend(4_100_000..4_102_000);
        assert!(is_crowded(&mut pids, 0));
        assert!(is_crowded(&mut vec![std::process::id()], 2000));
    }
}
