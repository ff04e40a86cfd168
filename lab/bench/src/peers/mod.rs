//! The peers: a user's alternatives to Towpath. One file each.

mod crossbeam;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
mod mpi;
mod stream;

use crate::transport::Contender;
use towpath_launch::MpiKind;

#[cfg(not(feature = "iceoryx2"))]
use self::absent::Iceoryx2;
#[cfg(feature = "iceoryx2")]
use self::iceoryx2::Iceoryx2;

#[cfg(feature = "iceoryx2")]
pub(crate) use self::iceoryx2::IceoryxRing;

/// The reason why a build without it can't measure iceoryx2.
#[cfg(not(feature = "iceoryx2"))]
pub(crate) const WITHOUT_ICEORYX2: &str =
    "built without the feature `iceoryx2`: cargo build --release --features iceoryx2";

/// Stand-in for a peer that this build can't measure.
#[cfg(not(feature = "iceoryx2"))]
mod absent {
    use crate::transport::Contender;

    /// iceoryx2, not in this build: as a dependency it would make every build longer.
    pub struct Iceoryx2;

    impl Contender for Iceoryx2 {
        fn name(&self) -> &str {
            "iceoryx2"
        }
        fn available(&self) -> Result<(), String> {
            Err(super::WITHOUT_ICEORYX2.into())
        }
    }
}

/// All peers, measurable here or not.
pub fn peers() -> Vec<Box<dyn Contender>> {
    vec![
        Box::new(stream::Stream::pipe()),
        Box::new(stream::Stream::unix_socket()),
        Box::new(crossbeam::Crossbeam),
        Box::new(Iceoryx2),
        Box::new(mpi::Mpi::new(MpiKind::Mpich)),
        Box::new(mpi::Mpi::new(MpiKind::OpenMpi)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iceoryx2_missing_names_the_command_that_builds_it_in() {
        let peers = peers();
        let iceoryx2 = peers.iter().find(|p| p.name() == "iceoryx2").unwrap();
        let available = iceoryx2.available();
        assert_eq!(available.is_ok(), cfg!(feature = "iceoryx2"));
        if let Err(why) = available {
            assert!(why.contains("cargo build --release --features iceoryx2"), "{why}");
        }
    }
}
