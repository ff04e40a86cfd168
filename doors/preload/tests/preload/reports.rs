//! Report and picture at a program's end.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libc::{CLOCK_REALTIME, ETIMEDOUT};

use super::support::{
    Condition, Mutex, Object, file, in_ms, is_case, new_condition, new_mutex, output, output_to_the_end,
    report_of,
};

#[test]
fn report_names_the_locks_and_what_was_passed() {
    let (report, picture) = report_of("mutexes::one_thread_at_a_time");
    assert!(report.contains(" waits, ") && report.contains("longest"), "{report}");
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        let program = std::env::current_exe().unwrap();
        let is_site = |line: &&str| line.contains("    from 0x") && line.contains(program.to_str().unwrap());
        assert!(report.lines().any(|line| is_site(&line)), "{report}");
        assert!(picture.contains("<td>from 0x"), "{picture}");
    }
    for name in ["html", "main", "svg", "g", "text", "table", "tr", "td"] {
        let opened =
            picture.matches(&format!("<{name}>")).count() + picture.matches(&format!("<{name} ")).count();
        let closed = picture.matches(&format!("</{name}>")).count();
        assert!(opened == closed && opened > 0, "<{name}>: {opened}, {closed}");
    }
    let (report, picture) = report_of("worlds::robust_mutex_tells_of_a_death");
    assert!(report.contains("passed to libc: mutexes") && report.contains("1 initialised"), "{report}");
    assert!(picture.contains("No thread has waited"), "{picture}");
}

static HELD: Mutex = new_mutex();

/// Number of this thread's context switches that it did not ask for.
fn preemptions() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a place for the figures, which are plain data.
    unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
        usage.assume_init().ru_nivcsw
    }
}

/// Has this thread, and those that it makes, run on one core.
fn stay_on_one_core() {
    // SAFETY: a set of cores is plain data.
    unsafe {
        let mut set: libc::cpu_set_t = MaybeUninit::zeroed().assume_init();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Hand-overs, a holder that sleeps and one that is preempted are counted.
#[test]
fn report_counts_hand_overs_and_preempted_holders() {
    fn case() {
        let elsewhere = |call: fn()| std::thread::scope(|scope| scope.spawn(call).join().unwrap());
        let hold = |meanwhile: &dyn Fn()| {
            assert_eq!(HELD.lock(), 0);
            meanwhile();
            assert_eq!(HELD.unlock(), 0);
        };
        // From a first wait on.
        hold(&|| elsewhere(|| assert_eq!(HELD.timed_lock(in_ms(CLOCK_REALTIME, 5)), ETIMEDOUT)));
        for _ in 0..10 {
            elsewhere(|| assert_eq!([HELD.lock(), HELD.unlock()], [0; 2]));
            hold(&|| {});
        }
        hold(&|| std::thread::sleep(Duration::from_millis(2)));
        stay_on_one_core();
        static STOP: AtomicBool = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !STOP.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
            hold(&|| {
                let before = preemptions();
                while preemptions() == before {}
            });
            STOP.store(true, Ordering::Relaxed);
        });
    }
    if is_case() {
        return case();
    }
    let (report, picture) = report_of("reports::report_counts_hand_overs_and_preempted_holders");
    let (_, counts) = report.split_once("since the first wait: ").unwrap_or_else(|| panic!("{report}"));
    let counts: Vec<u64> = counts.split([' ', '\n']).filter_map(|word| word.parse().ok()).take(4).collect();
    let [acquisitions, hand_overs, preempted, slept] = counts[..] else { panic!("{report}") };
    assert_eq!((acquisitions, hand_overs), (22, 19), "{report}");
    // Others may have been preempted by chance.
    assert!(preempted >= 1 && preempted + slept >= 2, "{report}");
    assert!(picture.contains("<td>22</td>") && picture.contains("<td>19</td>"), "{picture}");
}

static READY: Condition = new_condition();
static SPIN: Object<libc::pthread_spinlock_t> = Object::new(0);

/// A wait counts once, however often the clock is looked at, and for its call's place.
///
/// Also one with a time, that of a notified waiter for its mutex, and that for a spin lock.
#[test]
fn report_has_each_wait_once_and_its_place() {
    fn case() {
        assert_eq!(HELD.lock(), 0);
        std::thread::scope(|scope| {
            let limit = || in_ms(CLOCK_REALTIME, 2_200);
            scope.spawn(move || assert_eq!(HELD.timed_lock(limit()), ETIMEDOUT)).join().unwrap();
            static WAITS: AtomicBool = AtomicBool::new(false);
            scope.spawn(|| {
                assert_eq!(HELD.lock(), 0);
                WAITS.store(true, Ordering::Relaxed);
                assert_eq!([READY.wait(&HELD), HELD.unlock()], [0; 2]);
            });
            while !WAITS.load(Ordering::Relaxed) {
                assert_eq!(HELD.unlock(), 0);
                std::thread::sleep(Duration::from_millis(1));
                assert_eq!(HELD.lock(), 0);
            }
            READY.signal();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(HELD.unlock(), 0);
        });
        // SAFETY: a spin lock that is initialised, and stays.
        unsafe {
            assert_eq!([libc::pthread_spin_init(SPIN.at(), 0), libc::pthread_spin_lock(SPIN.at())], [0; 2]);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert_eq!(
                        [libc::pthread_spin_lock(SPIN.at()), libc::pthread_spin_unlock(SPIN.at())],
                        [0; 2]
                    );
                });
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(libc::pthread_spin_unlock(SPIN.at()), 0);
            });
        }
    }
    if is_case() {
        return case();
    }
    let (report, _) = report_of("reports::report_has_each_wait_once_and_its_place");
    // The timed wait, which alone takes so long.
    let longest = report.lines().find(|line| line.contains("    from ")).unwrap();
    assert!(longest.contains(": 1 waits, "), "{report}");
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        assert!(!report.contains("from other places"), "{report}");
    }
}

/// The program's next file gets the number of standard error.
#[test]
fn report_goes_to_the_standard_error_of_the_beginning() {
    fn case() {
        // SAFETY: this process's own descriptor, which the next file gets.
        assert_eq!(unsafe { libc::close(2) }, 0);
        let file = std::env::temp_dir().join(format!("towpath-second-{}", std::process::id()));
        let data = std::fs::File::create_new(&file).unwrap();
        assert_eq!(data.as_raw_fd(), 2);
        println!("file {}", file.display());
        std::mem::forget(data);
    }
    if is_case() {
        return case();
    }
    let name = "reports::report_goes_to_the_standard_error_of_the_beginning";
    let output = output(name, &[("REPORT", "1")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("towpath preload: process "), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let file = said.lines().find_map(|line| line.split_once("file ")).unwrap().1;
    assert_eq!(std::fs::read_to_string(file).unwrap(), "");
    std::fs::remove_file(file).unwrap();
}

/// A program has overwritten its arguments, as those with a title do.
#[test]
fn report_names_the_program_s_file_not_its_title() {
    fn case() {
        unsafe extern "C" {
            static program_invocation_name: *mut libc::c_char;
        }
        // SAFETY: the first argument, which is the process's own, and no thread reads meanwhile.
        unsafe { program_invocation_name.write_bytes(b'x', libc::strlen(program_invocation_name)) };
        assert_eq!(HELD.lock(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(HELD.timed_lock(in_ms(CLOCK_REALTIME, 5)), ETIMEDOUT));
        });
        assert_eq!(HELD.unlock(), 0);
    }
    if is_case() {
        return case();
    }
    let (report, _) = report_of("reports::report_names_the_program_s_file_not_its_title");
    let program = std::env::current_exe().unwrap();
    assert!(report.contains(&format!("{}+0x", program.display())) && !report.contains("xxx"), "{report}");
}

/// A program that is killed, leaves past libc's `exit`, or becomes another one. While it
/// runs it has no child that it knows of.
#[test]
fn report_is_written_however_the_program_ends() {
    const ENDS: &str = "TOWPATH_PRELOAD_ENDS";
    fn case() {
        assert_eq!(HELD.lock(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(HELD.timed_lock(in_ms(CLOCK_REALTIME, 5)), ETIMEDOUT));
        });
        assert_eq!(HELD.unlock(), 0);
        // SAFETY: a call without a place for an answer; then this process ends.
        unsafe {
            let child = libc::wait(std::ptr::null_mut());
            let error = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((child, error), (-1, Some(libc::ECHILD)));
            match std::env::var(ENDS).unwrap().as_str() {
                "by a signal" => libc::kill(libc::getpid(), libc::SIGKILL),
                "past libc" => libc::syscall(libc::SYS_exit_group, 7) as libc::c_int,
                "as another" => {
                    let mut again = Command::new("/proc/self/exe");
                    panic!("{}", again.args(std::env::args_os().skip(1)).env(ENDS, "past libc").exec())
                }
                other => panic!("{other}"),
            };
        }
    }
    if is_case() {
        return case();
    }
    for (ends, signal, code) in [
        ("by a signal", Some(libc::SIGKILL), None),
        ("past libc", None, Some(7)),
        ("as another", None, Some(7)),
    ] {
        let picture = file("picture");
        let settings = [
            ("REPORT", "1"),
            ("REPORTER", "0000000000"),
            ("PICTURE", picture.to_str().unwrap()),
            ("ENDS", ends),
        ];
        let output = output_to_the_end("reports::report_is_written_however_the_program_ends", &settings);
        assert_eq!((output.status.signal(), output.status.code()), (signal, code), "{output:?}");
        let report = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            report.matches(": 1 waits, ").count(),
            2,
            "{ends}: once for the lock and its call: {report}"
        );
        assert!(std::fs::read_to_string(&picture).unwrap().ends_with("</html>\n"), "{ends}");
        std::fs::remove_file(picture).unwrap();
    }
}
