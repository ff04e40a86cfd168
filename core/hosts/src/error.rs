//! Errors of gateways.

use towpath_derive::SentenceDebug;

/// Failure of a gateway. `Debug` prints the sentence, as `Display` does.
#[derive(thiserror::Error, SentenceDebug)]
#[non_exhaustive]
pub enum Error {
    /// The hosts make no world.
    #[error("these hosts make no world: {0}")]
    BadHosts(String),
    /// The world does not fit the hosts.
    #[error("this segment is not host {host}'s part of the world: its ranks here are {found:?}")]
    OtherPart {
        /// The host.
        host: usize,
        /// Ranks that run here, as the segment says.
        found: std::ops::Range<u32>,
    },
    /// Endpoints.
    #[error(transparent)]
    Endpoints(#[from] towpath_am::Error),
    /// World.
    #[error(transparent)]
    World(#[from] towpath_shm::Error),
    /// The system refused something.
    #[error("{0}: {1}")]
    System(&'static str, #[source] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn debug_prints_the_sentence() {
        let error = Error::BadHosts("no host".into());
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
