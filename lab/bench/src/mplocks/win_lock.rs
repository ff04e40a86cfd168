//! `MPI_Win_lock`, by the measuring program in C under each MPI that is installed.

use towpath_host::Error;
use towpath_launch::MpiKind;
use towpath_report::record::metrics::{ACQUIRE_NS, ACQUISITIONS_PER_S, LEAST_SHARE};

use super::{LockAlgorithm, LockState};
use crate::experiment::Samples;
use crate::measuring::MeasuringPrograms;
use crate::transport::Circumstances;

/// Measuring programs that were compiled.
#[derive(Default)]
pub struct WinLocks(MeasuringPrograms);

impl WinLocks {
    /// Measures an MPI's lock.
    ///
    /// # Errors
    ///
    /// It is not installed, or its program fails.
    pub fn measure(
        &mut self,
        algorithm: LockAlgorithm,
        state: LockState,
        procs: usize,
        run: &Circumstances<'_>,
    ) -> Result<Samples, Error> {
        let kind = if algorithm == LockAlgorithm::Mpich { MpiKind::Mpich } else { MpiKind::OpenMpi };
        let program = self.0.of(kind)?;
        // A lock that no other process uses needs another one all the same: the window's owner.
        let procs = procs.max(2);
        let what = match state {
            LockState::LocalIdle => "local",
            LockState::RemoteIdle => "remote",
            _ => "contended",
        };
        let seconds = run.limit.as_secs_f64().to_string();
        let text = program.run(run, procs as u32, &["win_lock".into(), what.into(), seconds], None)?;
        let samples = parse(&text);
        if samples.values.is_empty() {
            return Err(Error::NotAvailable("its program printed no figure".into()));
        }
        Ok(samples)
    }
}

/// Parses the figures in the program's output: lines of a name and a number.
fn parse(text: &str) -> Samples {
    let mut samples = Samples::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let Ok(value) = value.trim().parse::<f64>() else { continue };
        match name {
            "acquire_ns" => samples.push(ACQUIRE_NS, value),
            "acquisitions_per_s" => samples.push(ACQUISITIONS_PER_S, value),
            "least_share" => samples.push(LEAST_SHARE, value),
            _ => {}
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_program_become_figures() {
        let samples = parse("noise\nacquisitions_per_s 12.5\nleast_share 0.5\nacquire_ns x\n");
        assert_eq!(samples.values, [(ACQUISITIONS_PER_S, 12.5), (LEAST_SHARE, 0.5)]);
    }
}
