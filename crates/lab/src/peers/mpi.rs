//! MPICH and Open MPI, where their `mpiexec` is found: our C program, compiled by their `mpicc` when it is first needed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::transport::{Contender, Run, Stress};

const SOURCE: &str = include_str!("../../peers/mpi_bench.c");
/// Beyond the measurement's own limit, for starting and ending.
const GRACE: Duration = Duration::from_secs(60);

/// An MPI.
pub struct Mpi {
    name: &'static str,
    /// What `mpiexec --version` says of itself.
    says: &'static str,
    variable: &'static str,
    place: Option<PathBuf>,
    program: Option<PathBuf>,
}

impl Mpi {
    /// MPICH.
    pub fn mpich() -> Mpi {
        Mpi::find("mpich", "HYDRA", "TOWPATH_MPICH")
    }

    /// Open MPI.
    pub fn open_mpi() -> Mpi {
        Mpi::find("open-mpi", "Open MPI", "TOWPATH_OPENMPI")
    }

    fn find(name: &'static str, says: &'static str, variable: &'static str) -> Mpi {
        let data = std::env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")));
        let named = std::env::var_os(variable).map(|p| PathBuf::from(p).join("bin"));
        let installed = data.map(|d| d.join("towpath/peers").join(name).join("bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let place = named
            .into_iter()
            .chain(installed)
            .chain(std::env::split_paths(&path))
            .find(|bin| is_it(&bin.join("mpiexec"), says));
        Mpi { name, says, variable, place, program: None }
    }

    /// The measuring program, compiled for this MPI.
    fn program(&mut self) -> Result<PathBuf, Error> {
        if let Some(program) = &self.program {
            return Ok(program.clone());
        }
        let bin = self.place.clone().ok_or(Error::NotSupported)?;
        let folder = std::env::temp_dir().join(format!("towpath-peers-{}-{}", self.name, std::process::id()));
        let failed = |what: &str, error: std::io::Error| Error::system(what.to_owned(), error);
        std::fs::create_dir_all(&folder)
            .map_err(|e| failed("making a folder for the measuring program", e))?;
        let (source, program) = (folder.join("mpi_bench.c"), folder.join("mpi_bench"));
        std::fs::write(&source, SOURCE).map_err(|e| failed("writing the measuring program", e))?;
        let mut compile = Command::new(bin.join("mpicc"));
        compile.args(["-O2", "-o"]).arg(&program).arg(&source).stdin(Stdio::null());
        let output = compile.output().map_err(|e| failed("starting mpicc", e))?;
        if !output.status.success() {
            return Err(Error::NotAvailable(format!(
                "mpicc can't compile the measuring program (is there a C compiler?): {}",
                String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default()
            )));
        }
        self.program = Some(program.clone());
        Ok(program)
    }

    /// Runs the program; returns the numbers that it printed.
    fn measure(&mut self, run: &Run<'_>, procs: u32, arguments: &[String]) -> Result<Vec<f64>, Error> {
        let program = self.program()?;
        let bin = self.place.clone().ok_or(Error::NotSupported)?;
        let crowded = procs as usize > run.placement.cores();
        let pinned = run.placement.core_for(0, procs as usize).is_some();
        let mut command = Command::new(bin.join("mpiexec"));
        command.arg("-n").arg(procs.to_string());
        if self.name == "open-mpi" {
            command.args(["--oversubscribe", "--allow-run-as-root"]);
            command.args(["--bind-to", if pinned { "core" } else { "none" }]);
            if crowded {
                // Its best setting there.
                command.args(["--mca", "mpi_yield_when_idle", "1"]);
            }
        } else if pinned {
            command.args(["-bind-to", "core"]);
        }
        command
            .arg(&program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = crate::process::output_within(command, run.limit * 4 + GRACE)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Vec<f64> = text
            .lines()
            .find_map(|line| line.split_whitespace().map(|w| w.parse().ok()).collect())
            .unwrap_or_default();
        if !output.status.success() || numbers.is_empty() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let first = errors.lines().find(|l| !l.trim().is_empty()).unwrap_or("it printed nothing");
            return Err(Error::NotAvailable(format!("its program failed ({}): {first}", output.status)));
        }
        Ok(numbers)
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if let Some(folder) = self.program.as_deref().and_then(Path::parent) {
            // Ours, made by `program`; if it can't be removed it is small, and in the folder for such things.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn is_it(mpiexec: &Path, says: &str) -> bool {
    mpiexec.is_file()
        && Command::new(mpiexec)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains(says))
}

impl Contender for Mpi {
    fn name(&self) -> &str {
        self.name
    }

    fn available(&self) -> Result<(), String> {
        match &self.place {
            Some(_) => Ok(()),
            None => Err(format!(
                "no mpiexec of it ({}) in PATH, in ${} or where scripts/install-peers.sh puts it: run that script",
                self.says, self.variable
            )),
        }
    }

    fn round_trip(&mut self, run: &Run<'_>) -> Result<f64, Error> {
        let seconds = run.limit.as_secs_f64().to_string();
        Ok(self.measure(run, 2, &["round_trip".into(), seconds])?[0])
    }

    fn stress(&mut self, writers: u32, messages: u64, run: &Run<'_>) -> Result<Stress, Error> {
        let seconds = run.limit.as_secs_f64().to_string();
        let started = Instant::now();
        let n = self.measure(run, writers + 1, &["stress".into(), messages.to_string(), seconds])?;
        if n.len() < 3 {
            return Err(Error::NotAvailable(format!(
                "its program said too little after {:?}",
                started.elapsed()
            )));
        }
        Ok(Stress { messages: n[0] as u64, seconds: n[1], shares: n[3..].to_vec(), cpu_seconds: Some(n[2]) })
    }

    fn bulk(&mut self, bytes: u64, _path: &str, run: &Run<'_>) -> Result<f64, Error> {
        let seconds = run.limit.as_secs_f64().to_string();
        Ok(self.measure(run, 2, &["bulk".into(), bytes.to_string(), seconds])?[0])
    }
}
