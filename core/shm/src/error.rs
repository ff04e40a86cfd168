//! Errors: each names the cause and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use towpath_derive::SentenceDebug;

use crate::shown;

/// Cause of a failure in a world, and the remedy.
///
/// Its `Debug` is the sentence of its `Display`: the runtime prints that when `main` returns an
/// error.
#[derive(thiserror::Error, SentenceDebug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something that ought to work.
    #[error("{what}: {source}")]
    System {
        /// The attempt.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },

    /// The operating system refused something that concerns a file.
    #[error("{what} {path}: {source}", path = shown(path))]
    File {
        /// The attempt.
        what: &'static str,
        /// The file, or the directory in which it was to be made.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },

    /// A name that a world or a shared object can't have.
    #[error("{name:?} can't be a name: {why}")]
    InvalidName {
        /// The name.
        name: String,
        /// The fault.
        why: &'static str,
    },

    /// A number of processes out of range.
    #[error(
        "a world has 1 to {most} processes, not {wanted}; choose a number in this range (towpath run -n)"
    )]
    InvalidProcesses {
        /// Number of processes that were asked for.
        wanted: u32,
        /// Maximum number of processes.
        most: u32,
    },

    /// A number that the primitive of a world does not allow.
    #[error("{wanted} {of} are asked for: from {least} to {most} are possible")]
    NumberOutOfRange {
        /// Things that are counted.
        of: &'static str,
        /// The number that was asked for.
        wanted: u64,
        /// Minimum.
        least: u64,
        /// Maximum.
        most: u64,
    },

    /// A size that no address space holds.
    #[error(
        "a world with an area or objects of {0} bytes is larger than this machine can map; ask for less with --size or --objects"
    )]
    TooLarge(u64),

    /// Memory of the caller's that is too small.
    #[error(
        "a world or an object needs {wanted} bytes here, and the memory given for it has {room}; give more"
    )]
    NoRoom {
        /// Number of bytes that it needs.
        wanted: u64,
        /// Number of bytes that were given.
        room: u64,
    },

    /// Memory of the caller's in which processes of other namespaces take part.
    #[error(
        "this memory was prepared in another pid or time namespace (another container?), where the deaths of this process would not be seen; use a named world, which needs no common namespace"
    )]
    OtherNamespace,

    /// The world has no file that could be handed on: it lies in the caller's memory.
    #[error(
        "this world lies in memory that the program has mapped: other processes map the same memory and open it there (World::open_in)"
    )]
    NotAFile,

    /// No object of this name.
    #[error(
        "there is no object named {name:?} (yet); the process that makes it may not have come so far, or has died before"
    )]
    NoSuchObject {
        /// The object.
        name: String,
    },

    /// The name is in use by a world in which a process is alive.
    #[error("a world named {name:?} exists and is in use; choose another name, or end its processes first")]
    NameTaken {
        /// The name.
        name: String,
    },

    /// A process has begun to remove a dead world of that name, and stands still.
    #[error(
        "{path} is being removed by a process that stands still (is it stopped?); let it go on or end it, then try again",
        path = shown(path)
    )]
    BeingRemoved {
        /// The world's file.
        path: PathBuf,
    },

    /// No such world.
    #[error(
        "there is no world named {name:?} ({path}); start it first, for example with `towpath run --world {name}`",
        path = shown(path)
    )]
    NoSuchWorld {
        /// The name.
        name: String,
        /// Its path, if it existed.
        path: PathBuf,
    },

    /// The process was not started as a member of a world.
    #[error(
        "this process was not started by `towpath run`: {variable} is not set; start it with `towpath run -n N PROGRAM`, or create or open a named world",
        variable = crate::variables::RANK
    )]
    NotLaunched,

    /// A variable of the environment has a value that makes no sense.
    #[error(
        "the environment variable {variable} is {value:?}, which makes no sense; it is set by `towpath run`, leave it alone"
    )]
    BadEnvironment {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },

    /// The world that the environment names can't be reached.
    #[error(
        "the world of this process can't be reached: descriptor {descriptor} isn't it any more, and asking the launcher for it failed ({source}); is `towpath run` still there?"
    )]
    LauncherGone {
        /// The descriptor's number in the environment.
        descriptor: String,
        /// Cause of the failure.
        source: io::Error,
    },

    /// The name of this process's world leads to another world by now.
    #[error(
        "the world named {name:?} for which this process was started was removed, and another one was made under its name; start the processes again (or, to open another world than that of `towpath run`, unset {variable})",
        variable = crate::variables::WORLD_INODE
    )]
    WorldReplaced {
        /// The name.
        name: String,
    },

    /// The file has the name of a world, and is none, or belongs to another user, or
    /// others may write it. It is left as it is.
    #[error("{path} is not to be trusted: {why}; remove it, or choose another name", path = shown(path))]
    NotTrusted {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },

    /// The file system for shared memory is full.
    #[error(
        "{place} is full: {wanted} bytes wanted, {free} free; ask for less with --size or --objects, remove what dead worlds left behind with `towpath clean`, or enlarge it (`mount -o remount,size=2G {place}`; in a container start it with `docker run --shm-size=2g`)",
        place = shown(place)
    )]
    NoSpace {
        /// The file system's directory.
        place: PathBuf,
        /// The segment's size.
        wanted: u64,
        /// Number of free bytes.
        free: u64,
    },

    /// The process may not make files so large.
    #[error(
        "a segment of {wanted} bytes exceeds this process's limit for the size of a file, {limit} bytes; raise it (`ulimit -f unlimited`) or ask for less with --size or --objects"
    )]
    FileSizeLimit {
        /// The segment's size.
        wanted: u64,
        /// The limit.
        limit: u64,
    },

    /// The control group's memory limit leaves too little.
    #[error(
        "the memory limit of the control group {group} leaves {free} bytes, {wanted} are wanted; raise the limit (`docker run --memory=…`, systemd's MemoryMax=, memory.max) or ask for less with --size or --objects",
        group = shown(group)
    )]
    MemoryLimit {
        /// The group whose limit it is.
        group: PathBuf,
        /// The segment's size.
        wanted: u64,
        /// Number of bytes that the limit leaves.
        free: u64,
    },

    /// The machine has too little memory.
    #[error(
        "this machine has {free} bytes of memory left, {wanted} are wanted; ask for less with --size or --objects"
    )]
    NoMemory {
        /// The segment's size.
        wanted: u64,
        /// Number of bytes that are left.
        free: u64,
    },

    /// The process may not map so much.
    #[error(
        "{wanted} bytes of shared memory can't be mapped: this process's address space is limited to {limit} bytes; raise the limit (`ulimit -v unlimited`)"
    )]
    AddressSpace {
        /// The segment's size.
        wanted: u64,
        /// The limit.
        limit: u64,
    },

    /// The process has as many descriptors as it may.
    #[error(
        "this process has as many files open as it may, {limit}; each segment of shared memory needs one: raise the limit (`ulimit -n`)"
    )]
    TooManyFiles {
        /// The limit.
        limit: u64,
    },

    /// The file is no segment of a world.
    #[error("{what} is not a world of Towpath: {why}; if it is a file, remove it or choose another name")]
    NotAWorld {
        /// The file's path, or a description of the descriptor.
        what: String,
        /// Evidence.
        why: &'static str,
    },

    /// Made by another version.
    #[error(
        "this world was made by another version of Towpath: layout {here} here, {there} there; rebuild all programs of the world with the same version"
    )]
    OtherLayout {
        /// Ours.
        here: u32,
        /// The segment's.
        there: u32,
    },

    /// The creator has not finished, and never will.
    #[error(
        "this world was never finished: its creator (process {creator}) died or is still at it; create it again"
    )]
    Unfinished {
        /// The creator's pid.
        creator: u64,
    },

    /// The segment contradicts itself.
    #[error(
        "this world's segment is damaged: {what} is {found}, not {expected}; end the world and start it again"
    )]
    Damaged {
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The value that it should have.
        expected: u64,
    },

    /// A rank that the world does not have.
    #[error("there is no rank {rank} in a world of {size} processes")]
    NoSuchRank {
        /// The rank.
        rank: u32,
        /// The number of ranks.
        size: u32,
    },

    /// A living process has that rank.
    #[error(
        "rank {rank} is taken by process {pid}, which is alive; each rank of a world can be entered by one process"
    )]
    RankTaken {
        /// The rank.
        rank: u32,
        /// The pid of that process.
        pid: u32,
    },

    /// All ranks are taken.
    #[error("all {size} ranks of the world are taken by living processes; create a larger world")]
    WorldFull {
        /// The number of ranks.
        size: u32,
    },

    /// The process is a participant already.
    #[error("this process has already entered the world, as rank {rank}; it can do so once at a time")]
    AlreadyEntered {
        /// Its rank.
        rank: u32,
    },

    /// The process is no participant.
    #[error(
        "this process has not entered the world; call World::enter first (after a fork, in the child too)"
    )]
    NotEntered,

    /// A member died.
    #[error("rank {rank} died; the others can go on without it")]
    MemberDied {
        /// Its rank.
        rank: u32,
    },

    /// Something does not lie within the area.
    #[error("{len} bytes at offset {offset} don't lie within the area of {available} bytes")]
    OutOfBounds {
        /// Its offset.
        offset: u64,
        /// Its length.
        len: u64,
        /// The area's length.
        available: u64,
    },

    /// An offset that does not suit a type.
    #[error("offset {offset} is not a multiple of {align}, which the type there needs")]
    Misaligned {
        /// The offset.
        offset: u64,
        /// The alignment.
        align: usize,
    },

    /// A shared object of this name exists and is of another type.
    #[error(
        "the shared object {name:?} is a {found:?}, here it should be a {expected:?}; open it as what it is, choose another name, or build all programs of the world alike"
    )]
    OtherType {
        /// The object.
        name: String,
        /// Its type in the segment: kind, layout version, parameters, size and alignment.
        found: String,
        /// The type that was asked for.
        expected: String,
    },

    /// The process can't leave: it may hold locks of the world.
    #[error(
        "this process can't leave the world while it has {objects} of its mutexes or structures open; drop them first"
    )]
    ObjectsOpen {
        /// Number of open handles.
        objects: u64,
    },

    /// No room for another shared object.
    #[error(
        "no room for the named object {name:?}: it takes {wanted} bytes with its record, {free} of the {bytes} for all of the world's objects are free; make the world with more (towpath run --objects, WorldConfig::object_bytes)"
    )]
    DirectoryFull {
        /// The object.
        name: String,
        /// Number of bytes that it takes with its record.
        wanted: u64,
        /// Number of bytes that are free.
        free: u64,
        /// Number of bytes that the world has for objects and their records.
        bytes: u64,
    },

    /// A process has been creating a named object for too long.
    #[error(
        "the shared object {name:?} can't be created: rank {rank} has been creating another one for ten seconds; is it stopped?"
    )]
    CreatorBusy {
        /// The object.
        name: String,
        /// The creator's rank.
        rank: u32,
    },

    /// A shared object was asked for while another one is being prepared by the same
    /// thread.
    #[error(
        "the shared object {name:?} was asked for within the preparation of another one; ask for it before"
    )]
    NestedPreparation {
        /// The object.
        name: String,
    },
}

impl Error {
    /// Turns a system error into one of ours, naming the attempt, or the limit that stood
    /// against it.
    pub(crate) fn system(what: &'static str) -> impl Fn(Errno) -> Error {
        let system = Error::io(what);
        move |errno| system(errno.into())
    }

    /// Turns a system error into one of ours, naming the attempt and the file, or the
    /// limit that stood against it.
    pub(crate) fn file<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl Fn(E) -> Error {
        move |error| {
            let source = error.into();
            let path = path.to_owned();
            too_many_files(&source).unwrap_or(Error::File { what, path, source })
        }
    }

    /// Does the work of [`Error::system`] for the standard library's errors.
    pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| too_many_files(&source).unwrap_or(Error::System { what, source })
    }
}

/// The error for a process that has as many descriptors as it may.
fn too_many_files(error: &io::Error) -> Option<Error> {
    if Errno::from_io_error(error) != Some(Errno::MFILE) {
        return None;
    }
    Some(Error::TooManyFiles { limit: getrlimit(Resource::Nofile).current? })
}
