//! Errors as negative numbers, and their sentences.

use core::cell::{Cell, RefCell};
use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;

use towpath::structures::nonblocking::StableError;
use towpath_shm::Error;
use towpath_sync::LockError;
use towpath_sync::queues::TransferError;
use towpath_sync::robust::EpisodeError;

use crate::call::ALONE;

/// Error of a call: one of the header's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub c_int);

macro_rules! faults {
    ($($name:ident $number:literal $text:literal)*) => {
        impl Fault {
            $(#[doc = $text]
            pub const $name: Fault = Fault($number);)*

            /// Names and numbers of all errors: the header has them, too.
            pub const ALL: &[(&str, c_int)] = &[$((stringify!($name), $number)),*];
        }

        fn sentence(error: c_int) -> &'static CStr {
            const fn text(bytes: &'static str) -> &'static CStr {
                match CStr::from_bytes_with_nul(bytes.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => panic!("a text ends with its only zero"),
                }
            }
            match error {
                0 => const { text("success\0") },
                $($number => const { text(concat!($text, "\0")) },)*
                _ => const { text("not an error of Towpath\0") },
            }
        }
    };
}

faults! {
    OWNERDEAD -1 "the last owner died and may have left half-changed data: the caller has the lock; repair the data and declare them consistent"
    TIMEDOUT -2 "the time was over: try again, or wait longer"
    NOTENTERED -3 "this process is no user of the object: open it (after a fork the child opens it itself)"
    CAPACITY -4 "more processes or threads than the object has places for: make it for more"
    POISONED -5 "the data behind the lock was declared beyond repair: make it anew"
    ABANDONED -6 "a process died in a way that this lock can't repair: make it anew"
    PEERDIED -7 "a participant, or the last process on the other side, died: the others can go on"
    CLOSED -8 "the queue was closed: nothing more can be sent through it"
    DISCONNECTED -9 "the other side of the queue has gone"
    TAKEN -10 "there may be one only on this side, and it is there: wait until it has gone or died"
    TOOLONG -11 "the message is longer than the ring, or a buffer of the queue, can carry: make those larger"
    DAMAGED -12 "the memory contradicts itself: another program has written there; make the object anew"
    VERSION -13 "the memory was laid out by another version of Towpath: use the same version in all programs"
    TYPE -14 "the memory or the name holds an object of another type or size"
    NOTFOUND -15 "there is no such object or world (yet): make it first"
    NOTMADE -16 "the memory holds no object of Towpath: make it first, in zeroed memory"
    ROOM -17 "the memory is too small: give as many bytes as the function for the size says"
    RANGE -18 "a number is out of the possible range"
    FULL -19 "all places for users, or for objects, are taken: make it for more"
    UNFINISHED -20 "the process that makes the object died or is still at it: make it again"
    NAMESPACE -21 "the memory was prepared in another pid or time namespace: use a named world"
    EXISTS -22 "the name, the rank or the object is taken by a living process"
    SYSTEM -23 "the operating system refused; tp_last_error() says what"
    INVALID -24 "a pointer is null, or a name can't be one"
    PERM -25 "the calling thread does not hold what it would release"
    DEADLOCK -26 "the calling thread holds the lock already"
    APART -27 "the condition and the mutex lie in different memories: open the condition beside the mutex"
    PANIC -28 "a fault in Towpath itself; tp_last_error() says where"
    NOTLAUNCHED -29 "this process was not started by `towpath run`"
    MEMORY -30 "too little shared memory; tp_last_error() says what to do"
    BUSY -31 "the endpoint runs a handler, in which only replies are possible, or is in use otherwise"
    NOTSENT -32 "not sent: handle messages and try again"
}

impl Fault {
    /// The number that C gets.
    pub const fn number(self) -> c_int {
        self.0
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    /// True once the call at hand has noted a sentence.
    static IS_NOTED: Cell<bool> = const { Cell::new(false) };
}

/// Notes the sentence of the calling thread's last error.
#[cold]
pub(crate) fn note(sentence: &str) {
    let text = CString::new(sentence.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has no note any more.
    let _ = LAST.try_with(|last| last.replace(text));
    let _ = IS_NOTED.try_with(|noted| noted.set(true));
}

/// Runs a call whose error is noted: with details where there are some, or else by the
/// sentence of its number.
pub(crate) fn noted<T>(act: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    let _ = IS_NOTED.try_with(|noted| noted.set(false));
    act().inspect_err(|fault| {
        if !IS_NOTED.try_with(Cell::get).unwrap_or(true) {
            note(&sentence(fault.number()).to_string_lossy());
        }
    })
}

/// Part of the sentence of a world without endpoints.
const NO_AREA: &str = "no message area";

/// Returns whether the name is that of an object alone in a mapping, or of its buffers.
fn is_alone(name: &str) -> bool {
    name.strip_suffix("-buffers").unwrap_or(name) == ALONE
}

/// Sentence of a world's error, with the remedy that a program in C has.
fn in_words_of_c(error: &Error) -> String {
    match error {
        Error::InvalidProcesses { wanted, most } => {
            format!("1 to {most} users, or processes of a world, are possible, not {wanted}")
        }
        Error::NoRoom { room, .. } => {
            format!(
                "the memory given has {room} bytes, which is too little: give as many as the function for the size says"
            )
        }
        Error::DirectoryFull { name, wanted, free, .. } if is_alone(name) => format!(
            "the memory given has {free} bytes for the object, which takes {wanted}: give as many as the function for the \
             size says, for as many users (of a mutex: and conditions)"
        ),
        Error::DirectoryFull { name, wanted, free, .. } => format!(
            "no room for {name:?}, which takes {wanted} bytes of the {free} that are free: make the world with more \
             (object_bytes), or the mutex's memory for more conditions"
        ),
        Error::WorldFull { size } => format!(
            "all {size} handles, or ranks, that it was made for are open in living processes: make it for more users"
        ),
        Error::NoSuchWorld { name, .. } => {
            format!(
                "there is no world named {name:?}: make it first (tp_world_create), or start it by `towpath run --world`"
            )
        }
        Error::NotAWorld { what, why } if what.starts_with("the memory given") => {
            format!(
                "the memory given holds nothing of Towpath ({why}): make the object first, in zeroed memory"
            )
        }
        error => error.to_string(),
    }
}

impl From<Error> for Fault {
    #[cold]
    fn from(error: Error) -> Fault {
        note(&in_words_of_c(&error));
        match error {
            Error::InvalidName { .. } | Error::BadEnvironment { .. } | Error::NotAFile => Fault::INVALID,
            Error::InvalidProcesses { .. }
            | Error::NumberOutOfRange { .. }
            | Error::TooLarge(_)
            | Error::NoSuchRank { .. } => Fault::RANGE,
            Error::NoRoom { .. } => Fault::ROOM,
            Error::DirectoryFull { ref name, .. } if is_alone(name) => Fault::ROOM,
            Error::OtherNamespace => Fault::NAMESPACE,
            Error::NoSuchObject { .. } | Error::NoSuchWorld { .. } => Fault::NOTFOUND,
            Error::NameTaken { .. } | Error::RankTaken { .. } | Error::AlreadyEntered { .. } => Fault::EXISTS,
            Error::NotLaunched => Fault::NOTLAUNCHED,
            Error::NotAWorld { .. } | Error::NotTrusted { .. } => Fault::NOTMADE,
            Error::OtherLayout { .. } => Fault::VERSION,
            Error::Unfinished { .. } | Error::CreatorBusy { .. } | Error::BeingRemoved { .. } => {
                Fault::UNFINISHED
            }
            Error::Damaged { .. } | Error::OutOfBounds { .. } | Error::Misaligned { .. } => Fault::DAMAGED,
            Error::WorldFull { .. } | Error::DirectoryFull { .. } => Fault::FULL,
            Error::NotEntered => Fault::NOTENTERED,
            Error::MemberDied { .. } => Fault::PEERDIED,
            Error::OtherType { .. } => Fault::TYPE,
            Error::NoSpace { .. }
            | Error::MemoryLimit { .. }
            | Error::NoMemory { .. }
            | Error::AddressSpace { .. } => Fault::MEMORY,
            _ => Fault::SYSTEM,
        }
    }
}

impl From<towpath::Error> for Fault {
    #[cold]
    fn from(error: towpath::Error) -> Fault {
        if let towpath::Error::BadWorld(why) = &error
            && why.contains(NO_AREA)
        {
            note("the world has no area for messages: make it with tp_world_create_with_endpoints()");
            return Fault::TYPE;
        }
        note(&error.to_string());
        match error {
            towpath::Error::NotInitialised(_) => Fault::NOTFOUND,
            towpath::Error::BadArgument(_) => Fault::RANGE,
            towpath::Error::Resource(_) => Fault::FULL,
            towpath::Error::NotSent => Fault::NOTSENT,
            towpath::Error::InUse(_) => Fault::BUSY,
            towpath::Error::BadWorld(_) => Fault::VERSION,
            towpath::Error::World(error) => error.into(),
        }
    }
}

impl From<StableError> for Fault {
    #[cold]
    #[inline(never)]
    fn from(error: StableError) -> Fault {
        match error {
            StableError::Exhausted => Fault::FULL,
            StableError::TooLarge => Fault::RANGE,
            StableError::TooDeep => Fault::BUSY,
            StableError::UnknownParticipant | StableError::Corrupt | StableError::Unsuited => Fault::DAMAGED,
            StableError::Abandoned => Fault::ABANDONED,
        }
    }
}

impl<G> From<LockError<G>> for Fault {
    #[cold]
    #[inline(never)]
    fn from(error: LockError<G>) -> Fault {
        match error {
            LockError::Abandoned => Fault::ABANDONED,
            LockError::Poisoned => Fault::POISONED,
            LockError::Capacity => Fault::CAPACITY,
            LockError::NotEntered => Fault::NOTENTERED,
            LockError::TimedOut => Fault::TIMEDOUT,
            LockError::OwnerDied { .. } => Fault::OWNERDEAD,
        }
    }
}

impl From<TransferError> for Fault {
    #[cold]
    #[inline(never)]
    fn from(error: TransferError) -> Fault {
        match error {
            TransferError::TimedOut => Fault::TIMEDOUT,
            TransferError::Closed => Fault::CLOSED,
            TransferError::Disconnected => Fault::DISCONNECTED,
            TransferError::PeerDied { .. } => Fault::PEERDIED,
            TransferError::Capacity => Fault::CAPACITY,
            TransferError::Taken { .. } => Fault::TAKEN,
            TransferError::TooLong { .. } => Fault::TOOLONG,
            TransferError::NotEntered => Fault::NOTENTERED,
            TransferError::Apart => Fault::APART,
            TransferError::Damaged => Fault::DAMAGED,
        }
    }
}

impl From<EpisodeError> for Fault {
    #[cold]
    #[inline(never)]
    fn from(error: EpisodeError) -> Fault {
        match error {
            EpisodeError::PeerDied { .. } => Fault::PEERDIED,
            EpisodeError::TimedOut => Fault::TIMEDOUT,
            EpisodeError::Capacity => Fault::CAPACITY,
            EpisodeError::NotEntered => Fault::NOTENTERED,
        }
    }
}

/// Sentence of an error's number. May be called in signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn tp_strerror(error: c_int) -> *const c_char {
    sentence(error).as_ptr()
}

/// Sentence of the calling thread's last error of a call that opens or makes something,
/// valid until the next.
#[unsafe(no_mangle)]
pub extern "C" fn tp_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Version of the layouts in memory.
#[unsafe(no_mangle)]
pub extern "C" fn tp_layout_version() -> u32 {
    towpath_shm::LAYOUT_VERSION
}
