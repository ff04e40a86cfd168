//! Bulk transfers: bandwidth by size, beside what copying the same amount within one
//! process achieves.

use crate::error::Error;
use crate::experiment::{Bench, Experiment, Samples, Variant, insert_beside_ours};
use crate::experiments::floor::memcpy::Copier;
use crate::record::Subject;
use crate::record::metrics::BYTES_PER_S;

/// The experiment.
pub struct Bulk;

/// Whom a variant measures.
enum Key {
    Contender(usize, u64, &'static str),
    Memcpy(u64),
}

impl Experiment for Bulk {
    fn name(&self) -> &'static str {
        "bulk"
    }
    fn about(&self) -> &'static str {
        "bandwidth of transfers from 64 B to 4 MB, beside memcpy of the same size"
    }
    fn seconds(&self) -> u64 {
        10
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let present = bench.present(self.name(), 2);
        let sizes = &bench.settings.sizes;
        let mut variants = Vec::new();
        for &bytes in sizes {
            let mut same_size = Vec::new();
            for (contender, subject) in &present {
                for &path in bench.contenders[*contender].bulk_paths() {
                    let mut subject = subject.clone().with("bytes", bytes);
                    if !path.is_empty() {
                        subject = subject.with("path", path);
                    }
                    same_size.push(Variant { subject, key: Key::Contender(*contender, bytes, path) });
                }
            }
            let memcpy = Subject::new(self.name(), "memcpy", "none", 1).with("bytes", bytes);
            insert_beside_ours(&mut same_size, Variant { subject: memcpy, key: Key::Memcpy(bytes) });
            variants.append(&mut same_size);
        }
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let mut copier = Copier::new(largest as usize)?;
        bench.compare(&variants, |contenders, key, run| match *key {
            Key::Memcpy(bytes) => {
                Ok(Samples::one(BYTES_PER_S, copier.measure(bytes as usize, run.placement)))
            }
            Key::Contender(n, bytes, path) => {
                Ok(Samples::one(BYTES_PER_S, contenders[n].bulk(bytes, path, run)?))
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;
    use crate::fake::{Collected, Fake, bench_with, quick};
    use crate::transport::Contender;

    #[test]
    fn every_size_is_measured_beside_memcpy() {
        let settings = Settings { sizes: vec![64, 4096], ..quick() };
        let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(Fake::ours("towpath", 1.0))];
        let mut sink = Collected::default();
        bench_with(&settings, &mut contenders, &mut sink, |b| Bulk.run(b).unwrap());
        let found: Vec<_> = sink.records.iter().map(|r| (r.algorithm.as_str(), r.number("bytes"))).collect();
        assert_eq!(
            found,
            [("towpath", Some(64)), ("memcpy", Some(64)), ("towpath", Some(4096)), ("memcpy", Some(4096))]
        );
        assert!(
            sink.records.iter().all(|r| r.value > 0.0 && r.unit == "bytes/s" && r.text("path").is_none())
        );
    }
}
