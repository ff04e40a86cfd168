//! Concurrency Kit's locks, barrier and ring, where it is installed with a C compiler.
//!
//! Most of its functions are inline: a few lines of C around them (`peers/ck_bench.c`) are compiled
//! into a library when they are first needed, and loaded into this process. They wait by spinning,
//! whatever else runs.
//!
//! # Safety
//!
//! Each object is made by its `init` once, before other threads or processes know it, at an address
//! that it keeps; its memory is long enough for each of them, which is checked when the library is
//! loaded. The library is never unloaded.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::pthread::ForeignObject;
use towpath_host::Error;
use towpath_host::process::SharedRow;
use towpath_launch::data_folder;

const SOURCE: &str = include_str!("../../peers/ck_bench.c");
/// Number of words of an object's memory.
const WORDS: usize = 2048;

type OfObject = unsafe extern "C" fn(*mut c_void);
type BarrierWait = unsafe extern "C" fn(*mut c_void, *mut c_uint, c_uint);
type RingSend = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type RingReceive = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;

/// Functions of the library.
#[derive(Clone, Copy)]
struct CkLibrary {
    spinlock: [OfObject; 3],
    ticket: [OfObject; 3],
    rw_lock: [OfObject; 5],
    barrier_wait: BarrierWait,
    ring_init: OfObject,
    ring_send: RingSend,
    ring_receive: RingReceive,
}

/// Options of the compiler with which Concurrency Kit is found.
struct CkFolders(Vec<String>);

impl CkFolders {
    /// Finds the headers: where `scripts/install-ck.sh` puts them, or the system's.
    fn find() -> Option<CkFolders> {
        let header = |folder: &Path| folder.join("ck_spinlock.h").is_file();
        if let Some(data) = data_folder() {
            let base = data.join("towpath/peers/concurrency-kit/usr");
            let include = base.join("include");
            let archive = |folder: PathBuf| Some(folder.join("libck.a")).filter(|file| file.is_file());
            let libraries = std::fs::read_dir(base.join("lib")).into_iter().flatten().flatten();
            let library = libraries.into_iter().find_map(|entry| archive(entry.path()));
            if let Some(library) = library.filter(|_| header(&include)) {
                return Some(CkFolders(vec![
                    format!("-I{}", include.display()),
                    library.display().to_string(),
                ]));
            }
        }
        let system =
            ["/usr/include", "/usr/local/include"].iter().find(|folder| header(Path::new(folder)))?;
        Some(CkFolders(vec![format!("-I{system}"), "-lck".into()]))
    }
}

/// Returns whether it is installed, and a C compiler is, so that it can be measured.
pub fn is_installed() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let has_compiler = || {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join("cc").is_file())
    };
    *FOUND.get_or_init(|| CkFolders::find().is_some() && has_compiler())
}

/// Returns the library, compiled and loaded by the first call.
fn library() -> Result<&'static CkLibrary, Error> {
    static LIBRARY: OnceLock<Result<CkLibrary, String>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| compile().and_then(|file| load(&file)));
    loaded.as_ref().map_err(|why| Error::NotAvailable(format!("Concurrency Kit: {why}")))
}

/// Compiles the library into a folder of its own, which [`load`] removes.
fn compile() -> Result<PathBuf, String> {
    let folders = CkFolders::find()
        .ok_or("not installed: bash scripts/install-ck.sh installs it, without root".to_owned())?;
    let folder = std::env::temp_dir().join(format!("towpath-ck-{}", std::process::id()));
    let (source, file) = (folder.join("ck_bench.c"), folder.join("libck_bench.so"));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&source, SOURCE));
    written.map_err(|e| format!("{}: {e}; name another folder in TMPDIR", source.display()))?;
    let mut command = Command::new("cc");
    command.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&file).arg(&source).args(folders.0);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("cc: {e}; install a C compiler"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cc can't compile it: {}", words.lines().next().unwrap_or_default()));
    }
    Ok(file)
}

/// Loads the library.
fn load(file: &Path) -> Result<CkLibrary, String> {
    let name = CString::new(file.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: a name that ends with zero, of a library that runs nothing when it is loaded.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if let Some(folder) = file.parent() {
        // It stays mapped without its file.
        let _ = std::fs::remove_dir_all(folder);
    }
    if library.is_null() {
        return Err("the library that cc has made can't be loaded".into());
    }
    let symbol = |name: &str| {
        let text = CString::new(format!("ck_bench_{name}")).map_err(|e| e.to_string())?;
        // SAFETY: a loaded library, and a name that ends with zero.
        let found = unsafe { libc::dlsym(library, text.as_ptr()) };
        if found.is_null() { Err(format!("there is no {name} in it")) } else { Ok(found) }
    };
    /// A function of the library as one of this type.
    macro_rules! function {
        ($name:expr, $type:ty) => {{
            let found = symbol($name)?;
            // SAFETY: the function of that name in `ck_bench.c` has this type.
            unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
        }};
    }
    let of_object = |name: &str| Ok::<_, String>(function!(name, OfObject));
    let lock = |kind: &str| {
        let part = |what: &str| of_object(&format!("{kind}_{what}"));
        Ok::<_, String>([part("init")?, part("lock")?, part("unlock")?])
    };
    let bytes = function!("bytes", unsafe extern "C" fn() -> usize);
    // SAFETY: it has no preconditions.
    let bytes = unsafe { bytes() };
    if bytes > WORDS * 8 {
        return Err(format!("its ring takes {bytes} bytes, more than {}", WORDS * 8));
    }
    let parts = ["init", "read", "read_unlock", "write", "write_unlock"];
    let [init, read, read_unlock, write, write_unlock] =
        parts.map(|part| of_object(&format!("rwlock_{part}")));
    Ok(CkLibrary {
        spinlock: lock("spinlock")?,
        ticket: lock("ticket")?,
        rw_lock: [init?, read?, read_unlock?, write?, write_unlock?],
        barrier_wait: function!("barrier_wait", BarrierWait),
        ring_init: of_object("ring_init")?,
        ring_send: function!("ring_send", RingSend),
        ring_receive: function!("ring_receive", RingReceive),
    })
}

/// Memory of an object, all zero at first.
type CkObject = ForeignObject<[u64; WORDS]>;

fn at(row: &SharedRow<CkObject>) -> *mut c_void {
    row[0].get().cast()
}

/// Makes an object.
fn make(init: OfObject) -> Result<SharedRow<CkObject>, Error> {
    let row = SharedRow::row(1)?;
    // SAFETY: new memory, long enough (see the module).
    unsafe { init(at(&row)) };
    Ok(row)
}

/// Kind of a lock of one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CkKind {
    /// The spin lock, by fetch-and-store.
    Spin,
    /// The ticket lock.
    Ticket,
}

/// Lock of Concurrency Kit.
pub struct CkLock {
    object: SharedRow<CkObject>,
    lock: OfObject,
    unlock: OfObject,
}

impl CkLock {
    /// Makes a free lock.
    ///
    /// # Errors
    ///
    /// It is not installed, or there is no C compiler.
    pub fn new(kind: CkKind) -> Result<CkLock, Error> {
        let library = library()?;
        let [init, lock, unlock] = match kind {
            CkKind::Spin => library.spinlock,
            CkKind::Ticket => library.ticket,
        };
        Ok(CkLock { object: make(init)?, lock, unlock })
    }

    /// Acquires, calls `inside`, releases.
    #[inline]
    pub fn hold(&self, inside: impl FnOnce()) {
        // SAFETY: made by `new`.
        unsafe { (self.lock)(at(&self.object)) };
        inside();
        // SAFETY: held by this thread.
        unsafe { (self.unlock)(at(&self.object)) };
    }
}

/// Readers–writer lock of Concurrency Kit.
pub struct CkRwLock {
    object: SharedRow<CkObject>,
    parts: [OfObject; 5],
}

impl CkRwLock {
    /// Makes a free lock.
    ///
    /// # Errors
    ///
    /// As [`CkLock::new`].
    pub fn new() -> Result<CkRwLock, Error> {
        let parts = library()?.rw_lock;
        Ok(CkRwLock { object: make(parts[0])?, parts })
    }

    /// Acquires for reading or writing, calls `inside`, releases.
    #[inline]
    pub fn hold(&self, is_reader: bool, inside: impl FnOnce()) {
        let [_, read, read_unlock, write, write_unlock] = self.parts;
        let (lock, unlock) = if is_reader { (read, read_unlock) } else { (write, write_unlock) };
        // SAFETY: made by `new`.
        unsafe { lock(at(&self.object)) };
        inside();
        // SAFETY: held by this thread, in this way.
        unsafe { unlock(at(&self.object)) };
    }
}

/// Centralized barrier of Concurrency Kit.
pub struct CkBarrier {
    object: SharedRow<CkObject>,
    participants: u32,
    wait: BarrierWait,
}

impl CkBarrier {
    /// Makes a barrier.
    ///
    /// # Errors
    ///
    /// As [`CkLock::new`].
    pub fn new(participants: u32) -> Result<CkBarrier, Error> {
        // Zero is its initial state.
        Ok(CkBarrier { object: SharedRow::row(1)?, participants, wait: library()?.barrier_wait })
    }

    /// Waits for the others. `sense`: the participant's own, 0 at first.
    pub fn wait(&self, sense: &mut u32) {
        // SAFETY: zeros at first, and a word of this thread's, of a C `unsigned int`'s size.
        unsafe { (self.wait)(at(&self.object), sense, self.participants) };
    }
}

/// Ring of Concurrency Kit, of many senders and one receiver, of 1,023 places.
pub struct CkRing {
    object: SharedRow<CkObject>,
    library: CkLibrary,
}

impl CkRing {
    /// Makes an empty ring.
    ///
    /// # Errors
    ///
    /// As [`CkLock::new`].
    pub fn new() -> Result<CkRing, Error> {
        let library = *library()?;
        Ok(CkRing { object: make(library.ring_init)?, library })
    }

    /// Sends a value. Returns false if there is no room.
    #[inline]
    pub fn try_send(&self, value: u64) -> bool {
        let value = std::ptr::without_provenance_mut(value as usize);
        // SAFETY: made by `new`; values are never followed.
        unsafe { (self.library.ring_send)(at(&self.object), value) != 0 }
    }

    /// Receives a value, if there is one. For one thread.
    #[inline]
    pub fn try_receive(&self) -> Option<u64> {
        let mut value = std::ptr::null_mut();
        // SAFETY: made by `new`; the only receiver, with a place for the value.
        let is_there = unsafe { (self.library.ring_receive)(at(&self.object), &mut value) != 0 };
        is_there.then(|| value.addr() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const EACH: u64 = 400;

    #[test]
    fn locks_exclude_the_barrier_holds_back_and_the_ring_carries() {
        if !is_installed() {
            // CI installs it (`scripts/install-ck.sh`).
            return;
        }
        let locks = [CkLock::new(CkKind::Spin).unwrap(), CkLock::new(CkKind::Ticket).unwrap()];
        let (rw_lock, barrier, ring) =
            (CkRwLock::new().unwrap(), CkBarrier::new(3).unwrap(), CkRing::new().unwrap());
        let counts = [const { AtomicU64::new(0) }; 3];
        // Relaxed, all: each under its lock.
        let add = |count: &AtomicU64| count.store(count.load(Relaxed) + 1, Relaxed);
        let work = |me: u64| {
            let mut sense = 0;
            for n in 0..EACH {
                locks[0].hold(|| add(&counts[0]));
                locks[1].hold(|| add(&counts[1]));
                rw_lock.hold(n % 2 == 1, || {
                    if n % 2 == 0 {
                        add(&counts[2])
                    }
                });
                if n % 100 == 0 {
                    barrier.wait(&mut sense);
                    // Each of the three has counted so often, and none a hundred more.
                    let seen = counts[0].load(Relaxed);
                    assert!(seen >= 3 * (n + 1) && seen < 3 * (n + 101), "{seen} at {n}");
                }
                while me > 0 && !ring.try_send(me << 32 | n) {
                    std::thread::yield_now();
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3).map(|me| scope.spawn(move || work(me))).collect();
            let mut next = [0; 3];
            while next[1..] != [EACH; 2] {
                match ring.try_receive() {
                    Some(value) => {
                        let (sender, n) = ((value >> 32) as usize, value & 0xffff_ffff);
                        assert_eq!(next[sender], n, "values of a sender come in order");
                        next[sender] += 1;
                    }
                    None if workers.iter().all(|worker| worker.is_finished()) => {
                        assert_eq!(ring.try_receive(), None);
                        break;
                    }
                    None => std::thread::yield_now(),
                }
            }
            assert_eq!(next[1..], [EACH; 2]);
        });
        assert_eq!(counts.map(|count| count.load(Relaxed)), [3 * EACH, 3 * EACH, 3 * EACH / 2]);
    }
}
