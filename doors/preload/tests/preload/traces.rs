//! Traces of the locks that a program acquires and releases.

use std::collections::HashMap;
use std::env;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use libc::CLOCK_REALTIME;

use super::support::{
    Condition, Mutex, Object, cases, file, has_library, in_child, in_ms, is_case, new_condition, new_mutex,
    output_traced_by, run_traced,
};

/// Events of a thread, by their kinds (docs/preload.md) and objects.
type Events = Vec<(u64, u64)>;

/// Header's words, and the events of each thread in their order.
fn read(file: &PathBuf) -> (Vec<u64>, HashMap<u64, Events>) {
    let bytes = std::fs::read(file).unwrap();
    std::fs::remove_file(file).unwrap();
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let mut threads: HashMap<u64, Events> = HashMap::new();
    let claimed = words[2].min(words[1]) as usize;
    for chunk in words[512..].chunks_exact(256).take(claimed) {
        let records = chunk[2..].chunks_exact(2).map(|record| (record[0] & 15, record[1]));
        threads.entry(chunk[1]).or_default().extend(records.filter(|(kind, _)| *kind != 0));
    }
    (words[..8].to_vec(), threads)
}

fn at<T>(object: &super::support::Object<T>) -> u64 {
    object.at().addr() as u64
}

/// Says, with the trace on, where the case's objects are.
fn tell(objects: &[u64]) {
    let text: Vec<String> = objects.iter().map(u64::to_string).collect();
    println!("objects {}", text.join(" "));
}

/// Time for which a program goes on after its last event.
const AFTER: Duration = Duration::from_millis(200);

static MUTEX: Mutex = new_mutex();
static READY: Condition = new_condition();

cases! {
    /// One thread's uses of each kind are in the trace, in their order.
    fn uses_are_traced_in_their_order() {
        let mutex = Mutex::of_type(libc::PTHREAD_MUTEX_RECURSIVE);
        let (spin, semaphore) = (Object::new(0), Object::new(MaybeUninit::<libc::sem_t>::zeroed()));
        tell(&[at(&MUTEX), at(&mutex), at(&READY), at(&spin), at(&semaphore)]);
        assert_eq!([MUTEX.lock(), mutex.lock(), mutex.lock(), mutex.unlock(), mutex.unlock(), MUTEX.unlock()], [0; 6]);
        // SAFETY: objects that are initialised, and stay where they are.
        unsafe {
            let (spin, semaphore) = (spin.at(), semaphore.at().cast());
            assert_eq!([libc::pthread_spin_init(spin, 0), libc::sem_init(semaphore, 0, 0)], [0; 2]);
            assert_eq!([libc::pthread_spin_lock(spin), libc::pthread_spin_unlock(spin)], [0; 2]);
            assert_eq!(libc::sem_timedwait(semaphore, &in_ms(CLOCK_REALTIME, 1)), -1);
        }
        assert_eq!([MUTEX.try_lock(), MUTEX.try_lock()], [0, libc::EBUSY]);
        assert_eq!(READY.timed_wait(&MUTEX, in_ms(CLOCK_REALTIME, 1)), libc::ETIMEDOUT);
        assert_eq!(std::thread::scope(|s| s.spawn(|| MUTEX.timed_lock(in_ms(CLOCK_REALTIME, 1))).join().unwrap()), libc::ETIMEDOUT);
        assert_eq!(in_child(|| MUTEX.unlock(), || assert_eq!(MUTEX.unlock(), 0)), 0);
        if env::var_os("TOWPATH_PRELOAD_TRACE").is_none() && !has_library() {
            let (file, said) = run_traced("traces::uses_are_traced_in_their_order", 10_000);
            let objects: Vec<u64> = said.lines().find_map(|line| line.split_once("objects ")).unwrap().1
                .split(' ').map(|word| word.parse().unwrap()).collect();
            let (header, threads) = read(&file);
            let of_case = |events: &Events| -> Vec<(u64, usize)> {
                events.iter().filter_map(|(kind, object)| Some((*kind, objects.iter().position(|o| o == object)?))).collect()
            };
            let mut seen: Vec<Vec<(u64, usize)>> = threads.values().map(of_case).filter(|events| !events.is_empty()).collect();
            seen.sort_by_key(|events| events.contains(&(7, 2)));
            let all = [(2, 0), (2, 1), (6, 1), (6, 0), (2, 3), (6, 3), (9, 4), (10, 4), (4, 0), (7, 2), (6, 0), (2, 0), (6, 0)];
            let [waiter, main] = &seen[..] else { panic!("{seen:?}") };
            assert_eq!(main[..], all);
            // The other thread waits, and gives up.
            assert_eq!(waiter[..], [(1, 0), (5, 0)]);
            assert_eq!((header[3], header[7]), (0, 1), "nothing dropped, one fork");
            assert!(header[5] > 1_000_000 && header[6] > 0, "{header:?}");
        }
    }

    /// A child of a system call, past libc's `fork`, writes nothing into the trace.
    fn child_past_libc_is_not_traced() {
        tell(&[at(&MUTEX)]);
        assert_eq!([MUTEX.lock(), MUTEX.unlock()], [0; 2]);
        let part = || (0..300).map(|_| MUTEX.lock() | MUTEX.unlock()).max().unwrap_or(1);
        // SAFETY: as `fork`: no memory is shared, the stack is a copy; the child uses a lock and
        // ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
        if child == 0 {
            // SAFETY: no preconditions.
            unsafe { libc::_exit(part()) }
        }
        let mut status = 0;
        // SAFETY: a place for the status; the child is this process's.
        assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));
        assert_eq!([MUTEX.lock(), MUTEX.unlock()], [0; 2]);
        if env::var_os("TOWPATH_PRELOAD_TRACE").is_none() && !has_library() {
            let (file, said) = run_traced("traces::child_past_libc_is_not_traced", 10_000);
            let mutex: u64 = said.lines().find_map(|line| line.split_once("objects ")).unwrap().1.parse().unwrap();
            let (header, threads) = read(&file);
            let events = threads.values().flatten().filter(|(_, object)| *object == mutex);
            assert_eq!(events.map(|(kind, _)| *kind).collect::<Vec<_>>(), [2, 6, 2, 6]);
            assert_eq!((header[3], header[7]), (0, 1), "nothing dropped, one fork");
        }
    }

    /// A full trace counts the events for which there was no room.
    fn trace_is_bounded_and_counts_what_it_drops() {
        for _ in 0..1_000 {
            assert_eq!([MUTEX.lock(), MUTEX.unlock()], [0; 2]);
        }
        std::thread::sleep(AFTER);
        if env::var_os("TOWPATH_PRELOAD_TRACE").is_none() && !has_library() {
            let start = Instant::now();
            let (file, _) = run_traced("traces::trace_is_bounded_and_counts_what_it_drops", 500);
            let took = start.elapsed();
            let (header, threads) = read(&file);
            let events: usize = threads.values().map(Vec::len).sum();
            assert!((1..=4 * 127).contains(&events) && header[1] == 4, "{events}");
            // It ends before the program sleeps.
            assert!(Duration::from_nanos(header[5]) + AFTER <= took, "{header:?}");
            assert!(header[3] as usize + events >= 2_000, "{header:?}");
        }
    }
}

/// A trace that can't be written, or not to its end, does not end the program.
#[test]
fn program_goes_on_without_room_for_its_trace() {
    const NAME: &str = "traces::program_goes_on_without_room_for_its_trace";
    if is_case() {
        for _ in 0..20_000 {
            assert_eq!([MUTEX.lock(), MUTEX.unlock()], [0; 2]);
        }
        return;
    }
    let succeeds = |script: &str, file: &Path| {
        let output = output_traced_by(script, NAME, file, 1_000_000);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let none = file("trace-none");
    let said = succeeds("ulimit -f 64; exec \"$@\"", &none);
    assert!(said.contains("there is no trace") && said.contains("ulimit -f"), "{said}");
    let said = succeeds("exec \"$@\"", Path::new("/dev/null"));
    assert!(said.contains("there is no trace") && said.contains("ordinary file"), "{said}");

    // A full file system, where users may make one.
    let folder = file("trace-folder");
    std::fs::create_dir(&folder).unwrap();
    let mount = format!("mount -t tmpfs none {} -o size=", folder.display());
    let unshare = "unshare --user --map-root-user --mount sh -c";
    let may_mount = Command::new("sh").args(["-c", &format!("{unshare} '{mount}1m'")]).status();
    if may_mount.is_ok_and(|status| status.success()) {
        let file = folder.join("trace");
        let on = |size: &str, after: &str| {
            output_traced_by(
                &format!("{unshare} '{mount}{size} && \"$@\"{after}' sh \"$@\""),
                NAME,
                &file,
                1_000_000,
            )
        };
        let output = on("16k", "");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("the file system has no room"), "{output:?}");
        let output = on("128k", &format!(" && od -A n -t u8 -w24 -j 8 -N 24 {}", file.display()));
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let last = said.lines().last().unwrap();
        let words: Vec<u64> = last.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [room, claimed, dropped] = words[..] else { panic!("{said}") };
        assert!(claimed < room && dropped > 0, "{said}");
    } else {
        println!("left out, no file system can be mounted here: that without room");
    }
    std::fs::remove_dir(folder).unwrap();
}
