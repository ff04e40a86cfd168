//! Failures of requests.

use towpath_derive::SentenceDebug;

/// Failure of a request to etcd. `Debug` prints the sentence, as `Display` does.
#[derive(Clone, PartialEq, Eq, thiserror::Error, SentenceDebug)]
#[non_exhaustive]
pub enum Error {
    /// The address is none.
    #[error(
        "'{0}' is no address of an etcd: give http://HOST:PORT (its client port, mostly 2379), several separated by commas"
    )]
    Address(String),
    /// The address asks for TLS, which this build has not.
    #[error(
        "{0}: this build speaks http only; build with the feature `etcd-tls` (cargo install --features etcd-tls), or name etcd's http port"
    )]
    NoTls(String),
    /// No etcd answers.
    #[error("no etcd answers at {urls}: {why}; is it running, and is that its client port?")]
    NoAnswer {
        /// Addresses that were tried.
        urls: String,
        /// Failure of the last one.
        why: String,
    },
    /// Something answers, but not as etcd does.
    #[error(
        "{url} does not answer as an etcd of version 3.4 or later does: {why}; is that its client port, mostly 2379?"
    )]
    NotEtcd {
        /// Its address.
        url: String,
        /// Reason: a part of its answer.
        why: String,
    },
    /// Etcd can't answer now: it has no leader, mostly for a second or two.
    #[error(
        "etcd at {url} is not ready: {why}; try again in a moment, and see whether most of its members run"
    )]
    NotReady {
        /// Its address.
        url: String,
        /// Its message.
        why: String,
    },
    /// Etcd asks for a user.
    #[error(
        "etcd at {url} asks for a user: {why}; name one in the environment (ETCDCTL_USER=NAME:PASSWORD), or in the address (http://NAME:PASSWORD@HOST:PORT, which others see in the list of processes)"
    )]
    NoUser {
        /// Its address.
        url: String,
        /// Its message.
        why: String,
    },
    /// Etcd does not know the user, or another password.
    #[error(
        "etcd at {url} refuses the user '{name}': {why}; see ETCDCTL_USER and ETCDCTL_PASSWORD in the environment, or NAME:PASSWORD in the address (%40 for @)"
    )]
    WrongUser {
        /// Its address.
        url: String,
        /// Name of the user.
        name: String,
        /// Its message.
        why: String,
    },
    /// Etcd refuses the request.
    #[error("etcd at {url} refuses: {why}")]
    Refused {
        /// Its address.
        url: String,
        /// Its message.
        why: String,
    },
    /// The lease has ended.
    #[error(
        "the lease at etcd has ended: it could not be kept alive in time; see whether etcd is reachable, and acquire the lock anew"
    )]
    LeaseEnded,
    /// The system refuses a thread or a pipe.
    #[error("the system refuses a thread or a pipe: {0}")]
    System(String),
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn debug_prints_the_sentence() {
        let error = Error::LeaseEnded;
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
