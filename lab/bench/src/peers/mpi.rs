//! MPICH and Open MPI, where their `mpiexec` is found, over their own shared memory.

use std::time::Instant;

use towpath_launch::{MpiKind, MpiLauncher};

use crate::measuring::Measuring;
use crate::transport::{Circumstances, Contender, Stress};
use towpath_host::Error;

/// An MPI.
pub struct Mpi {
    kind: MpiKind,
    launcher: Option<MpiLauncher>,
    program: Option<Measuring>,
}

impl Mpi {
    /// The MPI of that kind.
    pub fn new(kind: MpiKind) -> Mpi {
        Mpi { kind, launcher: MpiLauncher::installed(kind), program: None }
    }

    /// Runs the program; returns the numbers that it printed.
    fn measure(
        &mut self,
        run: &Circumstances<'_>,
        procs: u32,
        arguments: &[String],
    ) -> Result<Vec<f64>, Error> {
        let program = match &mut self.program {
            Some(program) => program,
            none => none.insert(Measuring::compile(self.launcher.as_ref().ok_or(Error::NotSupported)?)?),
        };
        let text = program.run(run, procs, arguments, None)?;
        text.lines()
            .find_map(|line| line.split_whitespace().map(|w| w.parse().ok()).collect())
            .filter(|numbers: &Vec<f64>| !numbers.is_empty())
            .ok_or_else(|| Error::NotAvailable("its program printed no figures".into()))
    }
}

impl Contender for Mpi {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn available(&self) -> Result<(), String> {
        match &self.launcher {
            Some(_) => Ok(()),
            None => Err(self.kind.not_installed()),
        }
    }

    fn round_trip(&mut self, run: &Circumstances<'_>) -> Result<f64, Error> {
        let seconds = run.limit.as_secs_f64().to_string();
        Ok(self.measure(run, 2, &["round_trip".into(), seconds])?[0])
    }

    fn stress(&mut self, writers: u32, messages: u64, run: &Circumstances<'_>) -> Result<Stress, Error> {
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

    fn bulk(&mut self, bytes: u64, _path: &str, run: &Circumstances<'_>) -> Result<f64, Error> {
        let seconds = run.limit.as_secs_f64().to_string();
        Ok(self.measure(run, 2, &["bulk".into(), bytes.to_string(), seconds])?[0])
    }
}
