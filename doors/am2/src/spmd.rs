//! Start-up of AM programs of which every rank runs the same text.
//!
//! `towpath run` starts the ranks. Beside messages they need bytes of the world: marks
//! of ranks that have called `AMMPI_SPMDExit`, the code with which the job is to end, and a place
//! for gathering.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use towpath_am::Tag;
use towpath_shm::{World, WorldBytes};

use crate::bundle::{AM_AllocateBundle, AM_SEQ, AmBundle, free};
use crate::call::{AM_OK, AmError, answered, bytes, check, null, put, refused, told};
use crate::endpoint::{AM_AllocateEndpoint, AmEndpoint, AmName};
use crate::translation::{AM_SetNumTranslations, map};
use crate::{process, translation, use_of_layer};

/// Name of the job's bytes in the world.
const NAME: &str = "am2-spmd";
/// Number of bytes before the marks: the job's number, the code of its end.
const HEAD: usize = 64;
/// Word of the head: number of the job.
const JOB_NUMBER: usize = 0;
/// Word of the head: code with which the job is to end, and [`ENDS`].
const CODE_OF_END: usize = 1;
/// Word of the head: not 0 as soon as all ranks have started.
const HAS_STARTED: usize = 2;
/// Tags of a job's endpoints: this and the rank, plus one.
const FIRST_TAG: u64 = 0x616d_3200_0000_0000;
/// Maximum number of bytes in which all ranks gather at one time.
const GATHER: usize = 256 << 10;
/// Maximum number of bytes of one rank of these.
const MAX_PIECE: usize = 4096;
/// Bit that tells the code of the end from none.
const ENDS: u64 = 1 << 32;
/// Time for which a rank whose work is done polls before it asks whether the others live.
const ASK_EVERY: Duration = Duration::from_millis(2);

/// Signals that end a job in good order, where they would end the process.
const SIGNALS: [c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);
/// Signal that has come; 0: none.
static SIGNALLED: AtomicU8 = AtomicU8::new(0);
/// The word in which the code of the end is told, while a job is under way.
static END: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// Set while the rank, whose work is done, waits for the others.
static IS_AWAITING_OTHERS: AtomicBool = AtomicBool::new(false);
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Address of the program's function that is told of the end; 0: none.
static CALLBACK: AtomicUsize = AtomicUsize::new(0);

/// Function that ends this process: the program may set another one.
#[unsafe(no_mangle)]
pub static AMMPI_SPMDkillmyprocess: AtomicPtr<c_void> = AtomicPtr::new(end_process as *mut c_void);

extern "C" fn end_process(code: c_int) {
    // SAFETY: ends the process, whatever its state.
    unsafe { libc::_exit(code) }
}

static JOB: Mutex<Option<SpmdJob>> = Mutex::new(None);

/// This rank's part of the job.
#[derive(Clone)]
struct SpmdJob {
    world: World,
    shared: WorldBytes,
    rank: u32,
    size: u32,
    /// Address of its endpoint; 0: the program has freed it.
    endpoint: usize,
    /// [`process::forks`] of the rank: its forked children have no job.
    forks: u32,
}

fn locked_job() -> MutexGuard<'static, Option<SpmdJob>> {
    JOB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The job of this process, if it is a rank of one.
fn known_job() -> Option<SpmdJob> {
    locked_job().clone().filter(|job| job.forks == process::forks())
}

/// The job, also after `AM_Terminate`.
fn job() -> Result<SpmdJob, AmError> {
    known_job().ok_or_else(|| refused(AmError::NOT_INIT, "call AMMPI_SPMDStartup first"))
}

/// The job and its endpoint, while they can be used.
fn job_in_use() -> Result<SpmdJob, AmError> {
    let job = job()?;
    check()?;
    match job.endpoint() {
        Some(_) => Ok(job),
        None => Err(refused(AmError::RESOURCE, "the endpoint of AMMPI_SPMDStartup has been freed")),
    }
}

/// Notes that an endpoint ends, which may be the job's.
pub(crate) fn endpoint_ends(endpoint: *const AmEndpoint) {
    if is_under_way()
        && let Some(job) = &mut *locked_job()
        && job.endpoint == endpoint.addr()
    {
        job.endpoint = 0;
    }
}

/// Ends the job in a forked child, which is no rank: stores to numbers only.
pub(crate) fn begin_child() {
    // Relaxed, all: the child has one thread.
    IS_UNDER_WAY.store(false, Relaxed);
    END.store(core::ptr::null_mut(), Relaxed);
    SIGNALLED.store(0, Relaxed);
}

/// Number of bytes of one rank in the place for gathering.
fn piece_of(size: u32) -> usize {
    (GATHER / size as usize / 64 * 64).clamp(64, MAX_PIECE)
}

impl SpmdJob {
    fn word(&self, number: usize) -> &AtomicU64 {
        // SAFETY: within the head, aligned; the job's ranks use it as such a word only.
        unsafe { &*self.shared.as_ptr().cast::<AtomicU64>().as_ptr().add(number) }
    }

    /// The mark that a rank has done its work.
    fn done(&self, rank: u32) -> &AtomicU8 {
        // SAFETY: within the marks; the job's ranks use it as such a byte only.
        unsafe { &*self.shared.as_ptr().cast::<AtomicU8>().as_ptr().add(HEAD + rank as usize) }
    }

    /// Address of a rank's place for gathering.
    fn place(&self, rank: u32) -> *mut u8 {
        let marks = (self.size as usize).next_multiple_of(64);
        let at = HEAD + marks + rank as usize * piece_of(self.size);
        self.shared.as_ptr().as_ptr().wrapping_add(at)
    }

    /// The job's endpoint, unless it has been freed.
    fn endpoint(&self) -> Option<&AmEndpoint> {
        // SAFETY: 0, or the job's endpoint, which is there until `endpoint_ends`; the caller says
        // that no other call uses one that it frees.
        unsafe { core::ptr::with_exposed_provenance::<AmEndpoint>(self.endpoint).as_ref() }
    }

    fn bundle(&self) -> Option<&AmBundle> {
        // SAFETY: an endpoint's bundle is there as long as the endpoint.
        self.endpoint().map(|endpoint| unsafe { &*endpoint.bundle() })
    }

    /// Returns whether no handler of the job's bundle is running.
    fn is_idle(&self) -> bool {
        self.bundle().is_none_or(|bundle| bundle.check_idle().is_ok())
    }

    fn barrier(&self) -> Result<(), AmError> {
        let (Some(endpoint), Some(bundle)) = (self.endpoint(), self.bundle()) else {
            return Err(AmError::RESOURCE);
        };
        let turn = bundle.turn();
        bundle.check_idle()?;
        let outcome = endpoint.endpoint.barrier();
        drop(turn);
        look();
        Ok(outcome?)
    }

    /// Returns whether a rank has done its work, or is gone.
    fn is_over(&self, rank: u32) -> bool {
        // Relaxed: the mark says nothing about other memory.
        self.done(rank).load(Relaxed) != 0
            || self.world.participant(rank).is_none_or(|id| !self.world.is_alive(id))
    }

    /// Polls for a moment. Without an endpoint others need no answers: it only waits.
    fn poll_for_a_moment(&self) {
        let (Some(endpoint), Some(bundle)) = (self.endpoint(), self.bundle()) else {
            return std::thread::sleep(ASK_EVERY);
        };
        let until = Instant::now() + ASK_EVERY;
        let _turn = bundle.turn();
        while Instant::now() < until {
            if bundle.bundle.poll() == 0 {
                let _ = endpoint.endpoint.wait(Some(Duration::from_micros(200)));
            }
        }
    }

    /// Polls until all ranks have done their work: they may need this one's answers.
    fn await_others(&self) {
        // Relaxed: see `is_over`.
        self.done(self.rank).store(1, Relaxed);
        IS_AWAITING_OTHERS.store(true, Relaxed);
        let mut others: Vec<u32> = (0..self.size).filter(|&rank| rank != self.rank).collect();
        while !others.is_empty() && end_code().is_none() {
            self.poll_for_a_moment();
            others.retain(|&rank| !self.is_over(rank));
        }
    }
}

/// The code with which the job is to end, if it is.
///
/// That of the first rank that has given one. A signal comes after it where a launcher ends the
/// other ranks by one.
fn end_code() -> Option<c_int> {
    // Relaxed, all: numbers by themselves.
    let end = END.load(Relaxed);
    if !end.is_null() {
        // SAFETY: the word of a job's bytes, which stay mapped until the process ends.
        let code = unsafe { &*end }.load(Relaxed);
        if code & ENDS != 0 {
            return Some(code as u32 as c_int);
        }
    }
    match c_int::from(SIGNALLED.load(Relaxed)) {
        0 => None,
        signal => Some(128 + signal),
    }
}

/// The code with which a rank ends that gives this one. A code other than 0 of whose bits
/// the system hands none to the launcher is 255: it would look like success.
const fn told_code(code: c_int) -> c_int {
    if code != 0 && code & 0xff == 0 { 255 } else { code }
}

/// Returns whether the process is a rank of a job.
pub(crate) fn is_under_way() -> bool {
    // Relaxed: a hint how long to wait in one go.
    IS_UNDER_WAY.load(Relaxed)
}

/// Ends the process if the job is to end.
#[inline]
pub(crate) fn look() {
    if is_under_way()
        && let Some(code) = end_code()
    {
        end(code);
    }
}

/// Ends this rank: tells the program, flushes its streams, leaves the world. The code is
/// the job's, if another rank has given one.
#[cold]
fn end(code: c_int) -> ! {
    let code = end_code().unwrap_or(code);
    // Relaxed: of this process alone; the callback may call `AMMPI_SPMDExit`.
    if !IS_ENDING.swap(true, Relaxed) {
        let callback = CALLBACK.load(Relaxed);
        if callback != 0 {
            // SAFETY: set by `AMMPI_SPMDSetExitCallback`, from a function of this type.
            let callback = unsafe { core::mem::transmute::<usize, extern "C" fn(c_int)>(callback) };
            callback(code);
        }
    }
    // SAFETY: writes the streams of C's library.
    unsafe { libc::fflush(core::ptr::null_mut()) };
    leave();
    let function = AMMPI_SPMDkillmyprocess.load(Relaxed);
    if !function.is_null() {
        // SAFETY: a function of this type, says the header.
        let function = unsafe { core::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(function) };
        function(code);
    }
    end_process(code);
    unreachable!("the process has ended")
}

/// Leaves the world in good order, unless a handler runs: then the process's end does.
fn leave() {
    let Some(job) = known_job() else { return };
    if job.is_idle() {
        if process::present_use() != 0 {
            use_of_layer::AM_Terminate();
        }
        // A world that can't be left ends with the process.
        let _ = job.world.leave();
    }
}

extern "C" fn note_signal(signal: c_int) {
    // Relaxed, all: numbers by themselves.
    let is_at_its_end = IS_AWAITING_OTHERS.load(Relaxed) || IS_ENDING.load(Relaxed);
    let is_noticed = is_under_way() && (process::present_use() != 0 || is_at_its_end);
    if SIGNALLED.swap(signal as u8, Relaxed) != 0 || !is_noticed {
        // The program does not come to the end: the second signal ends it, and the first one if
        // it does not poll any more, or is a forked child, which is no rank.
        // SAFETY: both calls may be made in a signal's handler.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

fn catch_signals() {
    for signal in SIGNALS {
        // SAFETY: a zeroed action is one with the default handler, without flags.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        // SAFETY: places for an action.
        unsafe {
            libc::sigaction(signal, core::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_DFL {
                action.sa_sigaction = note_signal as *const () as usize;
                libc::sigaction(signal, &action, core::ptr::null_mut());
            }
        }
    }
}

/// A number of the job's that no other job has.
fn job_number(job: &SpmdJob) -> u64 {
    let number = process::random_number();
    // Relaxed: a number by itself; the first one stays.
    match job.word(JOB_NUMBER).compare_exchange(0, number, Relaxed, Relaxed) {
        Ok(_) => number,
        Err(first) => first,
    }
}

fn start(
    number: *mut u64,
    bundle: *mut *mut AmBundle,
    endpoint: *mut *mut AmEndpoint,
) -> Result<(), AmError> {
    if known_job().is_some() {
        return Err(refused(AmError::RESOURCE, "the job was started already"));
    }
    passed(use_of_layer::AM_Init())?;
    start_initialised(number, bundle, endpoint).inspect_err(|_| {
        // The others wait for a rank that stays, and has no part in the job.
        // SAFETY: places for handles, given by the caller; null, or the bundle that was made.
        unsafe {
            if let Some(bundle) = (*bundle).as_ref() {
                let _ = free(core::ptr::from_ref(bundle).cast_mut());
            }
            bundle.write(core::ptr::null_mut());
            endpoint.write(core::ptr::null_mut());
        }
        use_of_layer::AM_Terminate();
    })
}

fn passed(result: c_int) -> Result<(), AmError> {
    if result == AM_OK { Ok(()) } else { Err(AmError(result)) }
}

fn start_initialised(
    number: *mut u64,
    bundle: *mut *mut AmBundle,
    endpoint: *mut *mut AmEndpoint,
) -> Result<(), AmError> {
    // SAFETY: places for handles, given by the caller.
    unsafe {
        bundle.write(core::ptr::null_mut());
        endpoint.write(core::ptr::null_mut());
    }
    let world = process::ask(|world, _| world.clone())?;
    let (rank, size) = (world.rank(), world.size());
    let marks = (size as usize).next_multiple_of(64);
    let shared = world.bytes(NAME, HEAD + marks + size as usize * piece_of(size))?;
    let mut name = AmName { number: 0 };
    // SAFETY: places for handles, given by the caller.
    let own_endpoint = unsafe {
        passed(AM_AllocateBundle(AM_SEQ, bundle))?;
        passed(AM_AllocateEndpoint(Some(&**bundle), endpoint, &mut name))?;
        &**endpoint
    };
    own_endpoint.endpoint.set_tag(Tag(FIRST_TAG + u64::from(rank) + 1));
    let entries = (size as usize).clamp(256, translation::MAX_ENTRIES);
    // SAFETY: the endpoint was just made.
    passed(unsafe { AM_SetNumTranslations(Some(own_endpoint), entries as c_int) })?;
    // Waits until every rank has its endpoint.
    own_endpoint.endpoint.map_world()?;
    for other in 0..size {
        if let Some((name, _)) = own_endpoint.endpoint.mapping(other as usize) {
            map(own_endpoint, other as usize, name, Tag(FIRST_TAG + u64::from(other) + 1))?;
        }
    }
    let job = SpmdJob {
        world,
        shared,
        rank,
        size,
        endpoint: core::ptr::from_ref(own_endpoint).expose_provenance(),
        forks: process::forks(),
    };
    // No rank that has started ends before the others have found its endpoint. One that comes
    // later, in the place of another one, must not take part in their barriers.
    // Relaxed, both: the word says nothing about other memory.
    if job.word(HAS_STARTED).load(Relaxed) == 0 {
        own_endpoint.endpoint.barrier()?;
        job.word(HAS_STARTED).store(1, Relaxed);
    }
    let the_number = job_number(&job);
    if !number.is_null() {
        // SAFETY: not null: a place for a number, says the header.
        unsafe { number.write(the_number) };
    }
    // Relaxed: the word says nothing about other memory.
    END.store(core::ptr::from_ref(job.word(CODE_OF_END)).cast_mut(), Relaxed);
    IS_UNDER_WAY.store(true, Relaxed);
    // So that its bytes stay mapped until the process ends.
    core::mem::forget(job.shared.clone());
    *locked_job() = Some(job);
    catch_signals();
    Ok(())
}

/// Starts this rank of the job: its bundle, and an endpoint that has all ranks mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_SPMDStartup(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    depth: c_int,
    number: *mut u64,
    bundle: *mut *mut AmBundle,
    endpoint: *mut *mut AmEndpoint,
) -> c_int {
    // The arguments stay as they are.
    let _ = (argc, argv);
    answered("AMMPI_SPMDStartup", || {
        if bundle.is_null() || endpoint.is_null() {
            return Err(null());
        }
        if depth < 0 {
            return Err(refused(AmError::BAD_ARG, &format!("networkdepth is {depth}: it is 0 or more")));
        }
        start(number, bundle, endpoint)
    })
}

/// Ends the job: at once, or with code 0 when all ranks have called it.
#[unsafe(no_mangle)]
pub extern "C" fn AMMPI_SPMDExit(code: c_int) -> c_int {
    let job = match job() {
        Ok(job) => job,
        Err(refusal) => return told("AMMPI_SPMDExit", refusal),
    };
    let code = told_code(code);
    if !IS_ENDING.load(Relaxed) {
        if code != 0 {
            let ends = ENDS | u64::from(code.cast_unsigned());
            // Relaxed: a number by itself; the first one stays.
            let _ = job.word(CODE_OF_END).compare_exchange(0, ends, Relaxed, Relaxed);
        } else if job.is_idle() {
            job.await_others();
        } else {
            job.done(job.rank).store(1, Relaxed);
        }
    }
    end(code)
}

/// Sets the function that is told of the job's end.
#[unsafe(no_mangle)]
pub extern "C" fn AMMPI_SPMDSetExitCallback(function: Option<extern "C" fn(c_int)>) -> c_int {
    CALLBACK.store(function.map_or(0, |function| function as usize), Relaxed);
    AM_OK
}

/// Says how threads may use the layer: those of a parallel bundle take turns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_SPMDSetThreadMode(
    _uses_threads: c_int,
    level: *mut *const c_char,
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
) -> c_int {
    // SAFETY: null, or a place for a text, says the header.
    let _ = unsafe { put(level, c"MPI_THREAD_SERIALIZED".as_ptr()) };
    1
}

/// Returns whether a launcher has started this process: all ranks are workers.
#[unsafe(no_mangle)]
pub extern "C" fn AMMPI_SPMDIsWorker(_argv: *mut *mut c_char) -> c_int {
    1
}

/// Number of ranks; -1 before the start.
#[unsafe(no_mangle)]
pub extern "C" fn AMMPI_SPMDNumProcs() -> c_int {
    job().map_or(-1, |job| job.size as c_int)
}

/// This rank; -1 before the start.
#[unsafe(no_mangle)]
pub extern "C" fn AMMPI_SPMDMyProc() -> c_int {
    job().map_or(-1, |job| job.rank as c_int)
}

/// Waits for all ranks, and polls meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn AMMPI_SPMDBarrier() -> c_int {
    answered("AMMPI_SPMDBarrier", || job_in_use()?.barrier())
}

/// Hands `bytes` of each rank to all: `to` gets those of rank 0, then those of rank 1,
/// and so on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_SPMDAllGather(from: *const c_void, to: *mut c_void, count: usize) -> c_int {
    answered("AMMPI_SPMDAllGather", || {
        let job = job_in_use()?;
        if count > 0 && to.is_null() {
            return Err(null());
        }
        // SAFETY: so many bytes can be read, says the header.
        let own = unsafe { bytes(from.cast(), count) }?;
        gather(&job, own, 0..job.size, |rank, at, piece, len| {
            // SAFETY: room for the bytes of all ranks, says the header; the piece's writers are
            // behind a barrier.
            unsafe { piece.copy_to(to.cast::<u8>().add(rank as usize * count + at), len) };
        })
    })
}

/// Hands `bytes` of one rank to all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_SPMDBroadcast(buffer: *mut c_void, count: usize, root: c_int) -> c_int {
    answered("AMMPI_SPMDBroadcast", || {
        let job = job_in_use()?;
        let root = u32::try_from(root).ok().filter(|&root| root < job.size);
        let root = root.ok_or_else(|| refused(AmError::BAD_ARG, "there is no such rank"))?;
        // SAFETY: so many bytes can be read, says the header.
        let own = unsafe { bytes(buffer.cast_const().cast(), count) }?;
        gather(&job, own, root..root + 1, |rank, at, piece, len| {
            if rank != job.rank {
                // SAFETY: room for the bytes, says the header; the piece's writer is behind a
                // barrier.
                unsafe { piece.copy_to(buffer.cast::<u8>().add(at), len) };
            }
        })
    })
}

/// Hands the bytes of some ranks to all, a piece after the other.
fn gather(
    job: &SpmdJob,
    own: &[u8],
    from: core::ops::Range<u32>,
    take: impl Fn(u32, usize, *const u8, usize),
) -> Result<(), AmError> {
    if job.world.local_ranks().len() != job.size as usize {
        return Err(refused(AmError::RESOURCE, "ranks of several hosts have no memory to gather in"));
    }
    let step = piece_of(job.size);
    for at in (0..own.len()).step_by(step) {
        let len = step.min(own.len() - at);
        if from.contains(&job.rank) {
            // SAFETY: this rank's place; the others read it between the two barriers only.
            unsafe { job.place(job.rank).copy_from(own[at..].as_ptr(), len) };
        }
        job.barrier()?;
        for rank in from.clone() {
            take(rank, at, job.place(rank), len);
        }
        job.barrier()?;
    }
    Ok(())
}
