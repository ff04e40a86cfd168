//! The floor of bulk transfer: copying within one process.

use std::hint::black_box;
use std::time::{Duration, Instant};

use towpath_host::Error;
use towpath_host::topology::{Placement, pinned};

/// Minimum time of one measurement.
const TIME: Duration = Duration::from_millis(4);

/// Two buffers and the loop that copies one into the other again and again: small ones
/// stay in a cache.
pub struct Copier {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Copier {
    /// Buffers for copies of up to `largest` bytes, touched, so that no page fault is
    /// measured.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub fn new(largest: usize) -> Result<Copier, Error> {
        let buffer = |byte: u8| -> Result<Vec<u8>, Error> {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(largest).map_err(|_| {
                Error::NotAvailable(format!("there is no memory for a buffer of {largest} bytes"))
            })?;
            bytes.resize(largest, byte);
            Ok(bytes)
        };
        Ok(Copier { from: buffer(1)?, to: buffer(2)? })
    }

    /// Bytes per second when copying `bytes` at a time, on the placement's first core.
    pub fn measure(&mut self, bytes: usize, placement: &Placement) -> f64 {
        let bytes = bytes.clamp(1, self.from.len().max(1));
        pinned(placement.core(0), || {
            self.copy(bytes, 1);
            let mut copies = 1;
            loop {
                let begun = Instant::now();
                self.copy(bytes, copies);
                let spent = begun.elapsed();
                if spent >= TIME {
                    return (copies * bytes) as f64 / spent.as_secs_f64();
                }
                let missing = TIME.as_secs_f64() / spent.as_secs_f64().max(1e-7);
                copies = (copies as f64 * missing.clamp(1.5, 100.0)).ceil() as usize;
            }
        })
    }

    fn copy(&mut self, bytes: usize, times: usize) {
        for _ in 0..times {
            // The copies must happen, each of them: neither buffer's contents may be known to the
            // compiler.
            black_box(&mut self.to[..bytes]).copy_from_slice(black_box(&self.from[..bytes]));
        }
        black_box(&mut self.to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_host::topology::Pin;

    #[test]
    fn copies_really_happen() {
        let mut copier = Copier::new(1 << 16).unwrap();
        let rate = copier.measure(1 << 16, &Placement::detect(Pin::Auto));
        assert!(rate.is_finite() && rate > 0.0);
        assert!(copier.to.iter().all(|&b| b == 1));
    }

    #[test]
    fn a_buffer_that_cannot_be_had_is_an_error() {
        assert!(Copier::new(usize::MAX / 2).is_err());
    }
}
