//! Errors as a `main` prints them that returns one.

use std::error::Error;

use towpath::mplock::{Fence, FencingToken};
use towpath::structures::PoolError;
use towpath::structures::dcas::DcasError;
use towpath::structures::nonblocking::StableError;
use towpath::structures::queues::QueueError;
use towpath::sync::BarrierError;
use towpath::{EpisodeError, LockError, TransferError, WorldError};

/// Checks that an error prints its sentence, and its variant only when that is asked for.
fn check(error: impl Error, variant: &str) {
    let whole = format!("{error:#?}");
    assert!(whole.starts_with(variant), "{whole}");
    let sentence = error.to_string();
    assert!(!sentence.contains(variant) && sentence.contains(' '), "{sentence}");
    assert_eq!(format!("{error:?}"), sentence);
}

#[test]
fn debug_of_an_error_is_its_sentence() {
    check(towpath::Error::NotSent, "NotSent");
    check(towpath::Error::BadArgument("a".into()), "BadArgument(\n    \"a\",\n)");
    check(towpath::Error::World(WorldError::NotEntered), "World(\n    NotEntered,\n)");
    check(WorldError::NotLaunched, "NotLaunched");
    check(towpath::mplock::Error::AlreadyHeld("table".into()), "AlreadyHeld(");
    check(towpath::mplock::hosts::Error::AgentEnded, "AgentEnded");
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

#[test]
fn debug_of_an_error_leaves_out_its_guard() {
    struct Guard;

    let error = LockError::OwnerDied { rank: Some(3), guard: Guard };
    assert_eq!(format!("{error:?}"), error.to_string());
    assert_eq!(format!("{error:#?}"), "OwnerDied {\n    rank: Some(\n        3,\n    ),\n    ..\n}");
}

#[cfg(feature = "readiness")]
#[test]
fn debug_of_a_descriptors_error_is_its_sentence() {
    use towpath::readiness::PollableError;

    check(PollableError::Operation(TransferError::Closed), "Operation");
    check(PollableError::<TransferError>::System(std::io::Error::other("no memory")), "System");
}
