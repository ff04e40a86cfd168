//! Cases in processes of their own, and pthread's objects for them.

use std::cell::UnsafeCell;
use std::convert::identity;
use std::env;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libc::{pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_mutexattr_t, timespec};

/// Variable with the name of the case that a process is to run.
const CASE: &str = "TOWPATH_PRELOAD_CASE";
/// Time after which a case hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names of waiting policies under which the library runs the cases.
const WAITING: [&str; 2] = ["adaptive", "spin-then-yield"];

/// Runs a case without the library and with it. In the process of the case: the case.
pub fn with_and_without(name: &str, case: fn()) {
    if is_case() {
        return case();
    }
    run(name, None, "");
    for waiting in WAITING {
        run(name, Some(waiting), "");
    }
}

/// Runs a case with each lock that can be chosen. In the process of the case: the case.
pub fn with_each_lock(name: &str, case: fn()) {
    if is_case() {
        return case();
    }
    for lock in ["compact/handing", "test-and-set", "test-and-test-and-set", "ticket"] {
        for waiting in ["adaptive", "park"] {
            run(name, Some(waiting), lock);
        }
    }
}

/// Returns whether this process has the library.
pub fn has_library() -> bool {
    env::var_os("LD_PRELOAD").is_some()
}

/// The library, beside this program.
fn library() -> PathBuf {
    let file = env::current_exe().unwrap().with_file_name("libtowpath_pthread.so");
    assert!(file.is_file(), "{} is built with the tests", file.display());
    file
}

/// A process that runs a case with these settings of the library, or without it.
fn command(name: &str, settings: Option<&[(&str, &str)]>) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(CASE, "1");
    if let Some(settings) = settings {
        command.env("LD_PRELOAD", library());
        command.envs(settings.iter().map(|(name, value)| (format!("TOWPATH_PRELOAD_{name}"), value)));
    }
    command
}

/// Output of a case that runs with these settings.
pub fn output(name: &str, settings: &[(&str, &str)]) -> Output {
    let output = command(name, Some(settings)).output().unwrap();
    assert!(output.status.success(), "{name}");
    output
}

/// Output of a case that ends by a signal, or otherwise than by returning.
pub fn output_to_the_end(name: &str, settings: &[(&str, &str)]) -> Output {
    command(name, Some(settings)).output().unwrap()
}

/// A file for a case, of no other one: tests run beside each other.
pub fn file(kind: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Relaxed: a number.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    env::temp_dir().join(format!("towpath-{kind}-{}-{number}", std::process::id()))
}

/// Returns whether this is the process of a case.
pub fn is_case() -> bool {
    env::var_os(CASE).is_some()
}

/// Report and picture of a case.
pub fn report_of(name: &str) -> (String, String) {
    let file = file("picture");
    let output = output(name, &[("REPORT", "1"), ("PICTURE", file.to_str().unwrap())]);
    let picture = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    (String::from_utf8(output.stderr).unwrap(), picture)
}

/// Runs a case with a trace of so many events. Returns the trace, and the case's output.
pub fn run_traced(name: &str, events: u64) -> (PathBuf, String) {
    let file = file("trace");
    let settings = [("TRACE", file.to_str().unwrap()), ("EVENTS", &events.to_string())];
    let output = output(name, &settings);
    (file, String::from_utf8(output.stdout).unwrap())
}

/// Output of a case with a trace in this file.
///
/// A shell starts it by `$@` in this script.
pub fn output_traced_by(script: &str, name: &str, file: &Path, events: u64) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", "env"]);
    // Not of the shell.
    shell.arg(format!("LD_PRELOAD={}", library().display()));
    shell.arg(format!("TOWPATH_PRELOAD_TRACE={}", file.display()));
    shell.arg(format!("TOWPATH_PRELOAD_EVENTS={events}"));
    shell.arg(env::current_exe().unwrap()).args([name, "--exact", "--nocapture", "--test-threads=1"]);
    shell.env(CASE, "1").output().unwrap()
}

fn run(name: &str, waiting: Option<&str>, lock: &str) {
    let settings = waiting.map(|waiting| [("WAITING", waiting), ("LOCK", lock)]);
    let mut command = command(name, settings.as_ref().map(|settings| &settings[..]));
    command.stdout(Stdio::null());
    let (mut child, start) = (command.spawn().unwrap(), Instant::now());
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > PATIENCE => {
                child.kill().unwrap();
                panic!("{name} hangs, waiting: {waiting:?}, lock: {lock}");
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    assert!(status.success(), "{name} fails, waiting: {waiting:?}, lock: {lock}, {status}");
}

/// Cases: tests that run with the library and without.
macro_rules! cases {
    ($($(#[$doc:meta])* fn $name:ident() $body:block)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            fn case() $body
            let module = module_path!().split_once("::").map_or("", |(_, module)| module);
            $crate::support::with_and_without(&format!("{module}::{}", stringify!($name)), case);
        }
    )*};
}
pub(crate) use cases;

/// Place of an object of pthread's, which threads share.
pub struct Object<T>(UnsafeCell<T>);
// SAFETY: pthread's objects are made to be used by several threads; data under them are touched by
// their holders.
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    pub const fn new(value: T) -> Self {
        Object(UnsafeCell::new(value))
    }
    pub const fn at(&self) -> *mut T {
        self.0.get()
    }
}

pub type Mutex = Object<pthread_mutex_t>;
pub type Condition = Object<pthread_cond_t>;

/// A mutex as its static initialiser makes it.
pub const fn new_mutex() -> Mutex {
    Object::new(libc::PTHREAD_MUTEX_INITIALIZER)
}

/// A condition as its static initialiser makes it.
pub const fn new_condition() -> Condition {
    Object::new(libc::PTHREAD_COND_INITIALIZER)
}

/// Methods of an object that each call one function with the object and these arguments.
///
/// `$outcome` makes the methods' result of the functions'.
macro_rules! calls {
    ($object:ty, $outcome:expr; $(
        $visibility:vis fn $name:ident($($given:ident: $of:ty),*) => $($function:ident)::+($($argument:expr),*);
    )*) => {
        impl $object {
            $($visibility fn $name(&self $(, $given: $of)*) -> c_int {
                // SAFETY: the tests call methods only of objects that are initialised and stay
                // where they are; other arguments are numbers and references.
                $outcome(unsafe { $($function)::+(self.at() $(, $argument)*) })
            })*
        }
    };
}
pub(crate) use calls;

unsafe extern "C" {
    fn pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: c_int, time: *const timespec) -> c_int;
    fn pthread_cond_clockwait(
        condition: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t,
        clock: c_int,
        time: *const timespec,
    ) -> c_int;
}

calls! { Mutex, identity;
    pub fn lock() => libc::pthread_mutex_lock();
    pub fn try_lock() => libc::pthread_mutex_trylock();
    pub fn timed_lock(time: timespec) => libc::pthread_mutex_timedlock(&time);
    pub fn clock_lock(clock: c_int, time: timespec) => pthread_mutex_clocklock(clock, &time);
    pub fn unlock() => libc::pthread_mutex_unlock();
    pub fn destroy() => libc::pthread_mutex_destroy();
}

calls! { Condition, identity;
    pub fn wait(mutex: &Mutex) => libc::pthread_cond_wait(mutex.at());
    pub fn timed_wait(mutex: &Mutex, time: timespec) => libc::pthread_cond_timedwait(mutex.at(), &time);
    pub fn clock_wait(mutex: &Mutex, clock: c_int, time: timespec) => pthread_cond_clockwait(mutex.at(), clock, &time);
    fn signalled() => libc::pthread_cond_signal();
    fn broadcasted() => libc::pthread_cond_broadcast();
    pub fn destroy() => libc::pthread_cond_destroy();
}

impl Mutex {
    /// Initialises it, with attributes that `change` has changed.
    pub fn init(&self, change: impl Fn(*mut pthread_mutexattr_t) -> c_int) {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are changed and used; no thread uses
        // the mutex yet.
        unsafe {
            assert_eq!(libc::pthread_mutexattr_init(attributes.as_mut_ptr()), 0);
            assert_eq!(change(attributes.as_mut_ptr()), 0);
            assert_eq!(libc::pthread_mutex_init(self.at(), attributes.as_ptr()), 0);
            assert_eq!(libc::pthread_mutexattr_destroy(attributes.as_mut_ptr()), 0);
        }
    }
    pub fn of_type(kind: c_int) -> Mutex {
        let mutex = new_mutex();
        // SAFETY: initialised attributes.
        mutex.init(|attributes| unsafe { libc::pthread_mutexattr_settype(attributes, kind) });
        mutex
    }
    pub fn make_shared(attributes: *mut pthread_mutexattr_t) -> c_int {
        // SAFETY: initialised attributes.
        unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) }
    }
    pub fn make_robust(attributes: *mut pthread_mutexattr_t) -> c_int {
        // SAFETY: initialised attributes.
        unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) }
    }
}

impl Condition {
    pub fn signal(&self) {
        assert_eq!(self.signalled(), 0);
    }
    pub fn broadcast(&self) {
        assert_eq!(self.broadcasted(), 0);
    }
    /// Initialises it, with attributes that `change` has changed.
    pub fn init(&self, change: impl Fn(*mut pthread_condattr_t) -> c_int) {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are changed and used; no thread uses
        // the condition yet.
        unsafe {
            assert_eq!(libc::pthread_condattr_init(attributes.as_mut_ptr()), 0);
            assert_eq!(change(attributes.as_mut_ptr()), 0);
            assert_eq!(libc::pthread_cond_init(self.at(), attributes.as_ptr()), 0);
        }
    }
    pub fn make_shared(attributes: *mut pthread_condattr_t) -> c_int {
        // SAFETY: initialised attributes.
        unsafe { libc::pthread_condattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) }
    }
}

/// The time of a clock in so many milliseconds.
pub fn in_ms(clock: c_int, ms: i64) -> timespec {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time; the clock exists.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0);
    let ns = time.tv_nsec + ms * 1_000_000;
    timespec { tv_sec: time.tv_sec + ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) }
}

/// Memory for an object that this process shares with the children that it forks.
pub fn shared<T>() -> &'static Object<T> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of the kernel's choice, which is zeroed, aligned, long enough, and
    // never unmapped.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), size_of::<T>(), access, kind, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*page.cast()
    }
}

/// Forks; the child does its part and ends with its code, which this returns.
pub fn in_child(part: impl FnOnce() -> c_int, meanwhile: impl FnOnce()) -> c_int {
    // SAFETY: the child calls what a child of several threads may, and ends without more.
    match unsafe { libc::fork() } {
        0 => {
            let code = part();
            // SAFETY: no preconditions.
            unsafe { libc::_exit(code) }
        }
        child => {
            meanwhile();
            let mut status = 0;
            // SAFETY: a place for the status; the child is this process's.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            libc::WEXITSTATUS(status)
        }
    }
}
