//! Probes of the machine. Each tries its facility, where that is possible.
#![allow(unsafe_code)]

use std::fs;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use rustix::thread::sched_getaffinity;
use towpath_machine::Native;
use towpath_process::{Child, may_count_cycles};
use towpath_shm::{limits, named_worlds_directory, shown, shown_size};

use super::ProbeResult;

/// All findings, in the order of the report.
pub fn all() -> Vec<ProbeResult> {
    vec![
        cores(),
        line_size(),
        shm(),
        memory(),
        memory_limit(),
        memfd(),
        pidfd(),
        futex_waitv(),
        rseq(),
        slice_extension(),
        huge_pages(),
        single_copy(),
        membarrier(),
        counters(),
        clock(),
        context_switch(),
        pid_namespace(),
    ]
}

fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Value of a probe: "works", or the reason why not.
fn how(result: &Result<(), String>) -> String {
    result.clone().map_or_else(|why| why, |()| "works".to_owned())
}

fn cores() -> ProbeResult {
    // SAFETY: sysconf has no preconditions.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let usable = sched_getaffinity(None).map_or_else(|e| format!("? ({e})"), |set| set.count().to_string());
    let quota = limits::cpu_quota().map_or("no quota".to_owned(), |q| format!("quota {q:.2}"));
    ProbeResult::new(
        "cores",
        "cores",
        true,
        format!("{online} online, {usable} usable, {quota}"),
        "with more running processes than usable cores, adaptive waiting yields and sleeps instead of spinning",
    )
}

fn line_size() -> ProbeResult {
    // SAFETY: sysconf has no preconditions.
    let line = unsafe { libc::sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE) };
    let (ok, value) = match line {
        64 => (true, "64 bytes".to_owned()),
        1.. => (false, format!("{line} bytes")),
        _ => (true, "unknown".to_owned()),
    };
    ProbeResult::new(
        "line-size",
        "cache line",
        ok,
        value,
        "layouts assume 64 bytes; with others they are correct, but slower",
    )
}

fn shm() -> ProbeResult {
    let directory = named_worlds_directory();
    let (ok, value) = match fs::File::open(&directory) {
        Err(e) => (false, format!("{}: {e}", shown(&directory))),
        Ok(file) => match limits::file_system(&file) {
            Some((all, free)) => {
                (free > 0, format!("{}: {} free of {}", shown(&directory), shown_size(free), shown_size(all)))
            }
            None => (true, format!("{}: no limit", shown(&directory))),
        },
    };
    ProbeResult::new(
        "shm",
        "shared memory",
        ok,
        value,
        "room for named worlds (anonymous ones don't need it); enlarge: mount -o remount,size=…, docker --shm-size",
    )
}

fn memory() -> ProbeResult {
    let available = limits::available_memory();
    ProbeResult::new(
        "memory",
        "memory",
        available.is_some(),
        available.map_or("unknown".to_owned(), |a| format!("{} left", shown_size(a))),
        "a world takes its memory when it is made",
    )
}

fn memory_limit() -> ProbeResult {
    let limit = limits::memory_limit();
    let value = limit.as_ref().map_or("none".to_owned(), |l| {
        format!("{} of {} left in {}", shown_size(l.free), shown_size(l.limit), shown(&l.group))
    });
    ProbeResult::new(
        "memory-limit",
        "memory limit",
        limit.is_some(),
        value,
        "a world that does not fit under it is refused, instead of killed later",
    )
}

fn memfd() -> ProbeResult {
    let attempt = || -> Result<(), rustix::io::Errno> {
        let file = memfd_create(c"towpath-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, 4096)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        if ftruncate(&file, 0).is_ok() { Err(rustix::io::Errno::NOTSUP) } else { Ok(()) }
    };
    let result = attempt().map_err(|e| e.to_string());
    ProbeResult::new(
        "memfd",
        "memfd, seals",
        result.is_ok(),
        how(&result),
        "anonymous worlds that nothing can outlive and no process can shrink",
    )
    .needed()
}

fn pidfd() -> ProbeResult {
    let result = pidfd_open(getpid(), PidfdFlags::empty()).map(|_| ()).map_err(|e| e.to_string());
    ProbeResult::new(
        "pidfd",
        "pidfd",
        result.is_ok(),
        how(&result),
        "tells at once and for sure whether a participant is alive; without it /proc is asked, which is slower",
    )
}

fn futex_waitv() -> ProbeResult {
    #[repr(C)]
    struct ProbeWaiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    let word = 1u32;
    // Size of 32 bits. The word's value differs, so that a kernel that knows the call returns
    // EAGAIN at once.
    let waiter = ProbeWaiter { value: 2, address: (&raw const word).addr() as u64, flags: 2, reserved: 0 };
    // SAFETY: one waiter, valid for the call, on a live word; no time limit is needed, since the
    // call does not wait.
    let result =
        unsafe { libc::syscall(libc::SYS_futex_waitv, &waiter, 1u32, 0u32, std::ptr::null::<u8>(), 0) };
    let result = match (result, errno()) {
        (-1, libc::EAGAIN) => Ok(()),
        (-1, libc::ENOSYS) => Err("not in this kernel (5.16 or newer)".to_owned()),
        (_, e) => Err(io::Error::from_raw_os_error(e).to_string()),
    };
    ProbeResult::new(
        "futex-waitv",
        "futex_waitv",
        result.is_ok(),
        how(&result),
        "could wait for several words at once; Towpath rings one doorbell per process and does without",
    )
}

fn context_switch() -> ProbeResult {
    let cost = towpath::machine::Native::switch_cost();
    ProbeResult::new(
        "context-switch",
        "context switch",
        true,
        format!("{:.1} µs", cost as f64 / 1000.0),
        "to sleep and to be running again once woken, on one core; waiters spin for about as long before they sleep",
    )
}

fn rseq() -> ProbeResult {
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
    // SAFETY: getauxval has no preconditions; rseq with a null pointer and a length that no kernel
    // takes fails.
    let (bytes, known) = unsafe {
        let bytes = libc::getauxval(AT_RSEQ_FEATURE_SIZE);
        libc::syscall(libc::SYS_rseq, std::ptr::null::<u8>(), 0, 0, 0);
        (bytes, errno() != libc::ENOSYS)
    };
    let value = match (bytes, known) {
        (1.., _) => format!("{bytes} bytes of features"),
        (0, true) => "works, without a feature size".to_owned(),
        (0, false) => "not in this kernel".to_owned(),
    };
    ProbeResult::new(
        "rseq",
        "rseq",
        bytes > 0 || known,
        value,
        "restartable sequences, the current core without a system call; longer time slices, see the next line, are asked for there",
    )
}

fn huge_pages() -> ProbeResult {
    let setting = text("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    let info = text("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|l| l.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let free = field("HugePages_Free:").unwrap_or(0);
    let each = field("Hugepagesize:").unwrap_or(0) * 1024;
    let transparent = matches!(chosen.as_str(), "always" | "within_size" | "advise" | "force");
    ProbeResult::new(
        "huge-pages",
        "huge pages",
        transparent || free > 0,
        format!("transparent in shared memory: {chosen}; reserved and free: {free} of {}", shown_size(each)),
        "fewer TLB misses in large worlds; worth it for bulk transfers only",
    )
}

fn single_copy() -> ProbeResult {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let scope = text("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.map_or("no Yama".to_owned(), |s| format!("ptrace_scope {s}"));
    let secret = black_box(0x746f_7770_6174_6821);
    // Ends when it is dropped.
    let child = Child::fork(|| {
        // Relaxed: read by another process, through the kernel.
        WORD.store(secret, Ordering::Relaxed);
        loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    });
    let child = match child {
        Ok(child) => child,
        Err(error) => {
            return ProbeResult::new(
                "single-copy",
                "single copy",
                false,
                format!("no process: {error}"),
                "not tried",
            );
        }
    };
    let mut value = 0u64;
    let mut result = Ok(());
    for _ in 0..2000 {
        let to = libc::iovec { iov_base: (&raw mut value).cast(), iov_len: 8 };
        let from = libc::iovec { iov_base: WORD.as_ptr().cast(), iov_len: 8 };
        // SAFETY: both ranges are 8 valid bytes: ours is `value`, the child has `WORD` at the same
        // address.
        let n = unsafe { libc::process_vm_readv(child.pid(), &to, 1, &from, 1, 0) };
        if n != 8 {
            result = Err(io::Error::last_os_error().to_string());
            break;
        }
        if value == secret {
            break;
        }
        result = Err("the child does not answer".to_owned());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    if value == secret {
        result = Ok(());
    }
    ProbeResult::new(
        "single-copy",
        "single copy",
        result.is_ok(),
        format!("process_vm_readv from a child: {}; {scope}", how(&result)),
        "bulk data in one copy from private memory; with ptrace_scope 1 only from children, not between siblings",
    )
}

fn slice_extension() -> ProbeResult {
    let is_there = Native::can_stay();
    let value = if is_there { "granted" } else { "not in this kernel, or switched off" };
    ProbeResult::new(
        "slice_extension",
        "slice extension",
        is_there,
        value.to_owned(),
        "a holder whose time slice ends may run on for some microseconds (Linux 7.0): asked for by the lock `scheduler-conscious/published`",
    )
}

fn membarrier() -> ProbeResult {
    const QUERY: i32 = 0;
    const GLOBAL_EXPEDITED: i64 = 1 << 1;
    // SAFETY: a query.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    let (ok, value) = match commands {
        ..0 => (false, io::Error::last_os_error().to_string()),
        c if c & GLOBAL_EXPEDITED != 0 => (true, "expedited, also between processes".to_owned()),
        _ => (false, "only the slow kinds".to_owned()),
    };
    ProbeResult::new(
        "membarrier",
        "membarrier",
        ok,
        value,
        "moves the cost of a fence to the rare side: queues with a ring for each sender (`per_sender`) make none for each value",
    )
}

fn counters() -> ProbeResult {
    let paranoid = text("/proc/sys/kernel/perf_event_paranoid").unwrap_or("?".to_owned());
    let result = may_count_cycles().map_err(|e| e.to_string());
    ProbeResult::new(
        "counters",
        "hardware counters",
        result.is_ok(),
        format!("{}; perf_event_paranoid {paranoid}", how(&result)),
        "cache misses and cycles beside the times; virtual machines often have none",
    )
}

fn clock() -> ProbeResult {
    let source = text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or("unknown".to_owned());
    let info = text("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|l| l.starts_with("flags")).unwrap_or("");
    let has = |flag: &str| flags.split_ascii_whitespace().any(|f| f == flag);
    let steady = has("constant_tsc") && has("nonstop_tsc");
    let tsc = match (cfg!(target_arch = "x86_64"), steady) {
        (true, true) => ", TSC constant and nonstop",
        (true, false) => ", TSC not declared steady",
        (false, _) => "",
    };
    // Those that a program reads without a system call.
    let fast = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource"];
    ProbeResult::new(
        "clock",
        "clock",
        fast.contains(&source.as_str()),
        format!("{source}{tsc}"),
        "reading the time without a system call (about 20 ns); with others measurements of single operations are coarse",
    )
}

fn pid_namespace() -> ProbeResult {
    /// The inode of the first namespace on every machine.
    const INITIAL: u64 = 0xefff_fffc;
    let inode = fs::metadata("/proc/self/ns/pid").map(|m| m.ino());
    let (own, value) = match inode {
        Ok(INITIAL) => (false, "the machine's".to_owned()),
        Ok(other) => (true, format!("one of its own ({other})")),
        Err(e) => (false, format!("unknown: {e}")),
    };
    ProbeResult::new(
        "pid-namespace",
        "pid namespace",
        own,
        value,
        "worlds may span namespaces: a lock in the segment then tells which processes are alive",
    )
}
