//! Waiting in turns: outside the GIL, and with a look at signals after each turn.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::fault::Fault;

/// Longest time between two looks at signals.
const TURN: Duration = Duration::from_millis(50);

/// Number of seconds of Python's as a duration; `None`: without end. Negative: zero.
pub fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds.is_nan() => Err(PyValueError::new_err("a time-out must be a number")),
        Some(seconds) if seconds <= 0.0 => Ok(Some(Duration::ZERO)),
        // Longer than a process lives.
        Some(seconds) => Ok(Duration::try_from_secs_f64(seconds).ok()),
    }
}

/// An argument as a condition: any object, as in multiprocessing.
pub fn truth(argument: &Bound<'_, PyAny>) -> PyResult<bool> {
    argument.is_truthy()
}

/// Acts at once if that can be; otherwise waits. `None`: the time was over.
///
/// `act` gives up after the time that it is given, and leaves nothing half done then: a turn that
/// ends loses no wake-up.
#[inline]
pub fn waiting<R: Send>(
    py: Python<'_>,
    time: Option<Duration>,
    mut act: impl FnMut(Duration) -> Result<R, Fault> + Send,
) -> PyResult<Option<R>> {
    match act(Duration::ZERO) {
        Err(fault) if fault.is_timeout() => slowly(py, time, act),
        other => Ok(Some(other?)),
    }
}

#[cold]
#[inline(never)]
fn slowly<R: Send>(
    py: Python<'_>,
    time: Option<Duration>,
    mut act: impl FnMut(Duration) -> Result<R, Fault> + Send,
) -> PyResult<Option<R>> {
    if time == Some(Duration::ZERO) {
        return Ok(None);
    }
    let until = time.and_then(|time| Instant::now().checked_add(time));
    loop {
        let left = until.map_or(TURN, |until| until.saturating_duration_since(Instant::now()));
        let last = left < TURN;
        match py.detach(|| act(left.min(TURN))) {
            Err(fault) if fault.is_timeout() => py.check_signals()?,
            other => return Ok(Some(other?)),
        }
        if last {
            return Ok(None);
        }
    }
}
