//! Errors of links.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use towpath_derive::SentenceDebug;

/// Failure of a link, or of a key. `Debug` prints the sentence, as `Display` does.
#[derive(thiserror::Error, SentenceDebug)]
#[non_exhaustive]
pub enum Error {
    /// The peer is not to be reached, or gone.
    #[error("{0}: {1}")]
    Unreachable(SocketAddr, #[source] io::Error),
    /// The address can't be listened on.
    #[error("cannot listen on {0}: {1}; name an address of this host, and a free port")]
    CannotListen(SocketAddr, #[source] io::Error),
    /// The peer has another key, another version of Towpath, or another purpose.
    #[error(
        "{0} has another cluster key, serves something else, or is no Towpath of this version; \
         both hosts need the same key file"
    )]
    NotOurs(SocketAddr),
    /// The link carries bytes that its peer did not send: it is closed.
    #[error("{0} sent bytes that are damaged; the link is closed")]
    Damaged(SocketAddr),
    /// The peer has closed the link.
    #[error("{0} has closed the link")]
    Closed(SocketAddr),
    /// The link can't use libfabric.
    #[error("libfabric, with {0}: {1}")]
    Fabric(SocketAddr, String),
    /// The frame is too long.
    #[error("a frame of {0} bytes; at most {max} are possible", max = crate::MAX_FRAME)]
    TooLong(usize),
    /// The key's file can't be used.
    #[error("{path}: {reason}", path = .0.display(), reason = .1)]
    KeyFile(PathBuf, String),
}

impl Error {
    /// Returns whether the peer is gone or unreachable. Another attempt may succeed.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Unreachable(..) | Error::Closed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn debug_prints_the_sentence() {
        let error = Error::TooLong(1 << 30);
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
