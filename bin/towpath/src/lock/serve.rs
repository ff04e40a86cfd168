//! `towpath lock --serve`: the agent of a host.

use std::os::fd::AsFd;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use towpath_agent::Agent;

use super::{Arguments, NOT_MADE, SYSTEM_FAILED, read_hosts};
use crate::output::remark;
use crate::run::signals::Signals;
use crate::{CommandFailure, Outcome};

/// Serves until a signal says to end.
pub fn serve(arguments: &Arguments) -> Outcome {
    let Some(hosts) = read_hosts(arguments)? else {
        return Err(CommandFailure::new("--serve needs --hosts FILE").with_code(2));
    };
    let failed =
        |e: std::io::Error| CommandFailure::new(format!("blocking signals: {e}")).with_code(SYSTEM_FAILED);
    // Before any thread is started.
    let signals = Signals::block().map_err(failed)?;
    let refused = |e: towpath_agent::Error| CommandFailure::new(e).with_code(NOT_MADE);
    open_many_files();
    let say = |text: &str| remark!("towpath: {text}");
    let mut agent = Agent::start(hosts, arguments.host.as_deref(), say).map_err(refused)?;
    remark!("towpath: agent of {}, process {}", agent.host(), std::process::id());
    agent.serve(Some(signals.as_fd())).map_err(refused)?;
    Ok(ExitCode::SUCCESS)
}

/// Lets this process open as many files as it may.
///
/// Each of its clients takes two.
fn open_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where that is refused the limit stays, and clients wait for each other.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
