//! The cores of this machine, and the placement of processes on them.

use std::fs;

/// Pinning of processes to cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// Pinned where there is a core for each process.
    #[default]
    Auto,
    /// Always: process `n` to core `n` modulo their number.
    Yes,
    /// Never.
    No,
}

/// The cores that processes are placed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    cores: Vec<usize>,
    pin: Pin,
}

impl Placement {
    /// The cores that this process may use, different physical cores first.
    pub fn detect(pin: Pin) -> Placement {
        Placement { cores: physical_first(allowed_cores(), siblings), pin }
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// The `n`-th core, whether or not processes are pinned: for measurements that are
    /// about cores.
    pub fn core(&self, n: usize) -> Option<usize> {
        self.cores.get(n).copied()
    }

    /// The core to which process `n` of `procs` is to be pinned; `None`: the system
    /// chooses.
    pub fn core_for(&self, n: usize, procs: usize) -> Option<usize> {
        let pinned = match self.pin {
            Pin::Auto => procs <= self.cores.len(),
            Pin::Yes => true,
            Pin::No => false,
        };
        if pinned && !self.cores.is_empty() { Some(self.cores[n % self.cores.len()]) } else { None }
    }

    /// Describes it in words, for the records.
    pub fn describe(&self) -> String {
        let list = self.cores.iter().take(64).map(usize::to_string).collect::<Vec<_>>().join(" ");
        match self.pin {
            Pin::Auto => format!("cores {list} where each process has its own, else none"),
            Pin::Yes => format!("cores {list} in turn"),
            Pin::No => "none".into(),
        }
    }
}

/// The numbers of the cores on which the calling thread may run.
pub fn allowed_cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|&n| set.is_set(n)).collect(),
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

/// Pins the calling thread to one core.
///
/// # Errors
///
/// The system's, if that core does not exist or is not allowed.
pub fn pin_to(core: usize) -> std::io::Result<()> {
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Calls `body` while the calling thread is pinned to `core` (if there is one, and if
/// that is possible).
pub fn pinned<T>(core: Option<usize>, body: impl FnOnce() -> T) -> T {
    struct Restore(Option<rustix::thread::CpuSet>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(set) = &self.0 {
                // It held before, so that it can hold again; if a hot-plugged core has gone
                // meanwhile, the kernel's choice will do.
                let _ = rustix::thread::sched_setaffinity(None, set);
            }
        }
    }
    let before = core.and_then(|_| rustix::thread::sched_getaffinity(None).ok());
    let pinned = core.is_some_and(|core| pin_to(core).is_ok());
    let _restore = Restore(before.filter(|_| pinned));
    body()
}

/// The lowest-numbered hardware thread of the physical core that `core` belongs to.
fn siblings(core: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    let list = fs::read_to_string(path).unwrap_or_default();
    list.trim().split([',', '-']).next().and_then(|n| n.parse().ok()).unwrap_or(core)
}

/// The cores in an order in which no physical core comes twice before each has come once.
fn physical_first(cores: Vec<usize>, first_sibling: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut seen = std::collections::BTreeMap::new();
    let mut ranked: Vec<(usize, usize)> = cores
        .into_iter()
        .map(|core| {
            let rank = seen.entry(first_sibling(core)).or_insert(0);
            *rank += 1;
            (*rank, core)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, core)| core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_threads_of_one_core_come_apart() {
        assert_eq!(physical_first(vec![0, 1, 2, 3], |c| c & !1), [0, 2, 1, 3]);
        assert_eq!(physical_first(vec![0, 1, 2, 3], |c| c % 2), [0, 1, 2, 3]);
        assert_eq!(physical_first(vec![5], |c| c), [5]);
    }

    #[test]
    fn auto_pins_only_where_every_process_has_a_core() {
        let placement = |pin| Placement { cores: vec![3, 5], pin };
        assert_eq!(placement(Pin::Auto).core_for(1, 2), Some(5));
        assert_eq!(placement(Pin::Auto).core_for(1, 3), None);
        assert_eq!(placement(Pin::Yes).core_for(2, 8), Some(3));
        assert_eq!(placement(Pin::No).core_for(0, 1), None);
        assert_eq!((placement(Pin::No).core(1), placement(Pin::No).core(2)), (Some(5), None));
    }

    #[test]
    fn a_thread_can_pin_itself_to_a_core_that_it_may_use() {
        std::thread::spawn(|| {
            let core = *allowed_cores().last().expect("there is at least one core");
            pin_to(core).expect("an allowed core");
            assert_eq!(allowed_cores(), [core]);
        })
        .join()
        .expect("the thread's assertions hold");
        std::thread::spawn(|| {
            let before = allowed_cores();
            assert_eq!(pinned(Some(before[0]), allowed_cores), [before[0]]);
            assert_eq!(allowed_cores(), before);
            assert_eq!(pinned(None, allowed_cores), before);
        })
        .join()
        .expect("the thread's assertions hold");
        assert!(pin_to(usize::MAX).is_err());
    }
}
