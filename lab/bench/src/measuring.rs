//! Our measuring program in C, compiled by an MPI's `mpicc` when it is first needed, and
//! started by its launcher.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use towpath_launch::{ANNOUNCE, CommandError, MpiKind, MpiLauncher, Provider, output_within};

use crate::transport::Circumstances;
use towpath_host::Error;

const SOURCE: &str = include_str!("../peers/mpi_bench.c");
/// Time beyond the measurement's own limit, for starting and ending.
const GRACE: Duration = Duration::from_secs(60);

/// The provider of a measurement, and its settings.
pub struct Over<'a> {
    /// The provider.
    pub provider: &'a Provider,
    /// The file in which processes say that they have loaded it.
    pub announced: &'a Path,
    /// Settings of the provider, for the environment.
    pub settings: &'a [(&'a str, &'a str)],
}

/// The program, compiled for one MPI. Its folder is removed with it.
pub struct Measuring {
    launcher: MpiLauncher,
    folder: PathBuf,
}

impl Measuring {
    /// Compiles it.
    ///
    /// # Errors
    ///
    /// There is no compiler, or it fails.
    pub fn compile(launcher: &MpiLauncher) -> Result<Measuring, Error> {
        let folder = std::env::temp_dir().join(format!(
            "towpath-peers-{}-{}",
            launcher.kind.name(),
            std::process::id()
        ));
        let failed = |what: &str, error: std::io::Error| Error::system(what.to_owned(), error);
        std::fs::create_dir_all(&folder)
            .map_err(|e| failed("making a folder for the measuring program", e))?;
        let measuring = Measuring { launcher: launcher.clone(), folder };
        let source = measuring.folder.join("mpi_bench.c");
        std::fs::write(&source, SOURCE).map_err(|e| failed("writing the measuring program", e))?;
        let mut compile = Command::new(launcher.command.with_file_name("mpicc"));
        compile.args(["-O2", "-o"]).arg(measuring.program()).arg(&source).stdin(Stdio::null());
        let output = compile.output().map_err(|e| failed("starting mpicc", e))?;
        if !output.status.success() {
            return Err(Error::NotAvailable(format!(
                "mpicc can't compile the measuring program (is there a C compiler?): {}",
                String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default()
            )));
        }
        Ok(measuring)
    }

    /// Its folder, for files of a measurement.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn program(&self) -> PathBuf {
        self.folder.join("mpi_bench")
    }

    /// Runs the program, over the MPI's own transport or over the provider. Returns its
    /// output.
    ///
    /// # Errors
    ///
    /// It fails, or takes too long.
    pub fn run(
        &self,
        run: &Circumstances<'_>,
        procs: u32,
        arguments: &[String],
        over: Option<Over<'_>>,
    ) -> Result<String, Error> {
        let oversubscribed = procs as usize > run.placement.cores();
        let pinned = run.placement.core_for(0, procs as usize).is_some();
        let mut command = Command::new(&self.launcher.command);
        command.arg("-n").arg(procs.to_string());
        if self.launcher.kind == MpiKind::OpenMpi {
            command.args(["--oversubscribe", "--allow-run-as-root"]);
            command.args(["--bind-to", if pinned { "core" } else { "none" }]);
            if oversubscribed {
                // Its best settings there.
                command.args(["--mca", "mpi_yield_when_idle", "1"]);
            }
            // Which `towpath mpirun` makes, too; they serve its own transport as well.
            command.envs(
                self.launcher
                    .kind
                    .oversubscribed_settings(procs as usize, run.placement.cores())
                    .iter()
                    .copied(),
            );
        } else if pinned {
            command.args(["-bind-to", "core"]);
        }
        if let Some(over) = over {
            command.envs(self.launcher.kind.settings(over.provider)).env(ANNOUNCE, over.announced);
            command.envs(over.settings.iter().copied());
        }
        command
            .arg(self.program())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = output_within(command, run.limit * 4 + GRACE).map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || text.trim().is_empty() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let first = errors.lines().find(|l| !l.trim().is_empty()).unwrap_or("it printed nothing");
            return Err(Error::NotAvailable(format!("its program failed ({}): {first}", output.status)));
        }
        Ok(text)
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        // Ours, made by `compile`; if it can't be removed it is small, and in the folder for such
        // things.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Measuring programs, one for each MPI that was asked for.
#[derive(Default)]
pub struct MeasuringPrograms(Vec<Measuring>);

impl MeasuringPrograms {
    /// The program for an MPI, compiled when it is first needed.
    ///
    /// # Errors
    ///
    /// The MPI is not installed, or the program can't be compiled.
    pub fn of(&mut self, kind: MpiKind) -> Result<&Measuring, Error> {
        let n = match self.0.iter().position(|program| program.launcher.kind == kind) {
            Some(n) => n,
            None => {
                let launcher = MpiLauncher::installed(kind);
                let launcher = launcher.ok_or_else(|| Error::NotAvailable(kind.not_installed()))?;
                self.0.push(Measuring::compile(&launcher)?);
                self.0.len() - 1
            }
        };
        Ok(&self.0[n])
    }
}

fn failed(error: CommandError) -> Error {
    match error {
        CommandError::System { what, source } => Error::System { what, source },
        CommandError::TimedOut { program, seconds } => {
            Error::Stuck { seconds, place: format!("{program} was still running") }
        }
    }
}
