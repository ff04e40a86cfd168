//! Errors as the user of a program sees them.

use crate::common;

use std::process::Command;

use towpath_shm::{Handover, World, WorldSpec};

/// A program whose `main` returns the error.
fn join() -> Command {
    let mut command = Command::new(common::example("join"));
    command.env_remove(towpath_shm::variables::RANK);
    command
}

#[test]
fn main_that_returns_an_error_prints_a_sentence() {
    let output = join().output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        errors,
        "Error: this process was not started by `towpath run`: TOWPATH_RANK is not set; start it with `towpath run -n N PROGRAM`, or create or open a named world\n"
    );
}

#[test]
fn main_that_is_given_a_world_returns_none() {
    let spec = WorldSpec { name: None, processes: 100, area_bytes: 0, object_bytes: 0, params: [0; 16] };
    let world = World::create(&spec).unwrap();
    let handover = Handover::new(&world).unwrap();
    let mut command = join();
    handover.prepare(&mut command, 99);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "rank 99 of 100\n");
    // A rank beyond the world's.
    let mut command = join();
    handover.prepare(&mut command, 100);
    let errors = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert_eq!(errors, "Error: there is no rank 100 in a world of 100 processes\n");
}
