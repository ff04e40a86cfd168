//! Errors: each names the cause and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use towpath_derive::SentenceDebug;
use towpath_shm::shown;

/// Reason why a lock can't be used. `Debug` prints the sentence, as `Display` does.
#[derive(thiserror::Error, SentenceDebug)]
#[non_exhaustive]
pub enum Error {
    /// A name that no lock can have.
    #[error("{name:?} can't be the name of a lock: {why}", name = beginning(name))]
    InvalidName {
        /// The name.
        name: String,
        /// The fault.
        why: &'static str,
    },
    /// The operating system refused something that concerns the lock's file.
    #[error("{what} {path}: {source}{remedy}", path = shown(path), remedy = remedy(source))]
    File {
        /// The attempt.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file with the lock's name that is none of this user's locks.
    #[error("{path} can't be used as a lock: {why}; remove or rename it", path = shown(path))]
    NotTrusted {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// The lock's file was removed from outside, while it was in use.
    #[error(
        "{path} was removed while the lock was in use, so others may have had the lock, too: leave its file to its users and to `towpath clean`",
        path = shown(path)
    )]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// The place was given up while a thread waited at it.
    #[error("the wait for the lock was given up: take another place to wait again")]
    Withdrawn,
    /// No more places.
    #[error("the lock {0:?} has {most} users already: a lock has no more places; wait until some have ended", most = crate::record::MOST_PLACES)]
    Full(String),
}

impl Error {
    /// Returns a function that makes an error of the system's answer.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> Error {
        move |errno| Error::File { what, path: path.to_owned(), source: errno.into() }
    }
}

/// Returns a name as errors show it: the beginning of a long one.
fn beginning(name: &str) -> String {
    let mut shown: String = name.chars().take(40).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown
}

fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => " (make room in that directory)",
        Some(libc::EMFILE) => " (too many open files: raise the limit, `ulimit -n`)",
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            " (name a directory that you can write to in TOWPATH_SHM_DIR, the same for all commands that use the lock)"
        }
        Some(libc::ENOENT | libc::ENOTDIR) => " (locks lie in /dev/shm, or in TOWPATH_SHM_DIR)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_system_have_a_remedy() {
        for (errno, remedy) in [
            (Errno::NOSPC, "make room"),
            (Errno::MFILE, "ulimit -n"),
            (Errno::NOENT, "TOWPATH_SHM_DIR"),
            (Errno::ACCESS, "that you can write to"),
            (Errno::ROFS, "that you can write to"),
        ] {
            let text = Error::file("opening", Path::new("/a/file"))(errno).to_string();
            assert!(text.starts_with("opening /a/file: ") && text.contains(remedy), "{text}");
        }
    }
}
