//! The floor of bulk transfer: copying within one process.

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use towpath_host::Error;
use towpath_host::topology::pinned;

/// Minimum time of one measurement.
const TIME: Duration = Duration::from_millis(4);

/// Bytes of a page, at whose beginning source and target lie.
///
/// Elsewhere the C library's copy may take ten times as long: where the target lies a little behind
/// the source, modulo the page.
pub const PAGE: usize = 4096;

/// The place of so many bytes in a buffer that is longer by [`PAGE`].
pub fn at_page(buffer: &[u8], bytes: usize) -> Range<usize> {
    let begin = buffer.as_ptr().align_offset(PAGE);
    begin..begin + bytes
}

/// Two buffers and the loop that copies one into the other again and again: small ones
/// stay in a cache.
pub struct Copier {
    from: Vec<u8>,
    to: Vec<u8>,
    largest: usize,
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
            let whole = largest.saturating_add(PAGE);
            bytes.try_reserve_exact(whole).map_err(|_| {
                Error::NotAvailable(format!("there is no memory for a buffer of {largest} bytes"))
            })?;
            bytes.resize(whole, byte);
            Ok(bytes)
        };
        Ok(Copier { from: buffer(1)?, to: buffer(2)?, largest })
    }

    /// Bytes per second when copying `bytes` at a time, on this core.
    pub fn measure(&mut self, bytes: usize, core: Option<usize>) -> f64 {
        let bytes = bytes.clamp(1, self.largest.max(1));
        pinned(core, || {
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
        let (from, to) = (&self.from[at_page(&self.from, bytes)], at_page(&self.to, bytes));
        for _ in 0..times {
            // The copies must happen, each of them: neither buffer's contents may be known to the
            // compiler.
            black_box(&mut self.to[to.clone()]).copy_from_slice(black_box(from));
        }
        black_box(&mut self.to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_really_happen() {
        let mut copier = Copier::new(1 << 16).unwrap();
        let rate = copier.measure(1 << 16, None);
        assert!(rate.is_finite() && rate > 0.0);
        assert_eq!(copier.to.iter().filter(|&&b| b == 1).count(), 1 << 16);
    }

    #[test]
    fn a_buffer_that_cannot_be_had_is_an_error() {
        assert!(Copier::new(usize::MAX / 2).is_err());
    }
}
