//! Errors as a `main` prints them that returns one.

use std::error::Error;

use towpath::mplock::{Fence, FencingToken};
use towpath::structures::PoolError;
use towpath::structures::dcas::DcasError;
use towpath::structures::nonblocking::StableError;
use towpath::structures::queues::QueueError;
use towpath::sync::BarrierError;
use towpath::{EpisodeError, LockError, TransferError, WorldError};

/// Checks that an error prints its sentence.
fn check_sentence(error: impl Error) {
    let sentence = error.to_string();
    assert_eq!(format!("{error:?}"), sentence);
    assert!(sentence.contains(' '), "{sentence}");
}

/// Checks that an error prints its sentence, and its variant only when that is asked for.
fn check(error: impl Error, variant: &str) {
    let whole = format!("{error:#?}");
    assert!(whole.starts_with(variant), "{whole}");
    assert!(!error.to_string().contains(variant), "{error}");
    check_sentence(error);
}

#[test]
fn debug_of_an_error_is_its_sentence() {
    check(towpath::Error::NotSent, "NotSent");
    check_sentence(WorldError::NotLaunched);
    check_sentence(towpath::mplock::Error::AlreadyHeld("table".into()));
    check_sentence(towpath::mplock::hosts::Error::AgentEnded);
    check(LockError::<()>::TimedOut, "TimedOut");
    check(EpisodeError::NotEntered, "NotEntered");
    check(TransferError::Closed, "Closed");
    check(BarrierError::NoSuchParticipant, "NoSuchParticipant");
    check(QueueError::Full, "Full");
    check(PoolError::Exhausted, "Exhausted");
    check(DcasError::SameWord, "SameWord");
    check(StableError::Exhausted, "Exhausted");
    let fence = Fence::new(FencingToken::from_number(7));
    check(fence.check(FencingToken::from_number(3)).unwrap_err(), "StaleToken");
}

#[cfg(feature = "readiness")]
#[test]
fn debug_of_a_descriptors_error_is_its_sentence() {
    use towpath::readiness::PollableError;

    check(PollableError::Operation(TransferError::Closed), "Operation");
    check(PollableError::<TransferError>::System(std::io::Error::other("no memory")), "System");
}
