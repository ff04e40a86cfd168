//! Places of threads in a table that processes share.

use towpath_machine::Native;

/// Number of the place of a processor among `n`: the first threads of `n` processes have
/// one each.
///
/// Numbers of a process's threads follow each other ([`Native::of_participant`]). Where threads of
/// one process have the first numbers, they too have a place each.
#[inline]
pub(crate) const fn place_of(processor: usize, n: usize) -> usize {
    let group = Native::threads_per_process() as usize;
    let first_of_groups = n / group;
    if first_of_groups == 0 {
        return processor % n;
    }
    (processor / group).wrapping_add(processor % group * first_of_groups) % n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_process_or_first_threads_of_many_differ() {
        let group = Native::threads_per_process() as usize;
        for n in [1, 3, 8, 16, 64] {
            let distinct = |processors: &mut dyn Iterator<Item = usize>| {
                let places: std::collections::BTreeSet<usize> =
                    processors.map(|processor| place_of(processor, n)).collect();
                assert!(places.iter().all(|&place| place < n));
                places.len()
            };
            assert_eq!(distinct(&mut (0..n)), n, "threads, {n} places");
            if n >= group {
                assert_eq!(distinct(&mut (0..n).map(|process| process * group)), n, "{n} processes");
            }
        }
    }
}
