//! Figures of samples.

use std::time::{Duration, Instant};

/// Summary of the runs of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Number of samples.
    pub runs: u32,
}

/// Median, smallest and largest of the finite samples; `None` if there are none.
pub fn summarise(samples: &[f64]) -> Option<Summary> {
    let sorted = sorted(samples);
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    Some(Summary {
        median: percentile_of_sorted(&sorted, 50.0),
        min: first,
        max: last,
        runs: sorted.len() as u32,
    })
}

/// The `p`-th percentile (0 to 100) of the finite samples, interpolated between
/// neighbours; `None` if there are none.
pub fn percentile(samples: &[f64], p: f64) -> Option<f64> {
    let sorted = sorted(samples);
    (!sorted.is_empty()).then(|| percentile_of_sorted(&sorted, p))
}

/// Repeats a batch of `size` operations until `limit` has passed; the median over the
/// batches of an operation's time, in nanoseconds. A preemption then spoils a batch and not the
/// figure: every round trip is measured like this, the floor's too.
///
/// # Errors
///
/// The first one of a batch.
pub fn median_of_batches<E>(
    limit: Duration,
    size: u64,
    mut batch: impl FnMut(u64) -> Result<(), E>,
) -> Result<f64, E> {
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || begun.elapsed() < limit {
        let start = Instant::now();
        batch(size)?;
        times.push(start.elapsed().as_nanos() as f64 / size as f64);
    }
    Ok(percentile(&times, 50.0).unwrap_or(f64::NAN))
}

/// Two operations whose batches were measured in turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InTurn {
    /// The median of the second operation's batches.
    pub second: f64,
    /// The median of the pairs' ratios: the second batch's time by the first's.
    pub ratio: f64,
}

/// Repeats a pair of neighbouring batches of two operations until `limit` has passed, at
/// least `least` times. The pair returns the time of each operation. A machine that changes its
/// speed from one second to the next changes both batches of nearly all pairs: their ratios stay.
///
/// # Errors
///
/// The first one of a pair.
pub fn medians_in_turn<E>(
    limit: Duration,
    least: usize,
    mut pair: impl FnMut() -> Result<(f64, f64), E>,
) -> Result<InTurn, E> {
    let begun = Instant::now();
    let (mut seconds, mut ratios) = (Vec::new(), Vec::new());
    while ratios.len() < least || begun.elapsed() < limit {
        let (first, second) = pair()?;
        seconds.push(second);
        ratios.push(second / first);
    }
    let median = |samples: &[f64]| percentile(samples, 50.0).unwrap_or(f64::NAN);
    Ok(InTurn { second: median(&seconds), ratio: median(&ratios) })
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut finite: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    finite.sort_by(f64::total_cmp);
    finite
}

fn percentile_of_sorted(sorted: &[f64], p: f64) -> f64 {
    let position = p.clamp(0.0, 100.0) / 100.0 * (sorted.len() - 1) as f64;
    let below = sorted[position.floor() as usize];
    let above = sorted[position.ceil() as usize];
    below + (above - below) * position.fract()
}

/// Jain's fairness index of the participants' shares: 1 if all are equal, 1/n if one has
/// everything. `None` if all are zero.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The least-served participant's part of the mean: 1 if all got the same, 0 if one got
/// nothing. `None` if no participant got anything.
pub fn least_share(shares: &[f64]) -> Option<f64> {
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    (mean > 0.0).then(|| least / mean)
}

/// The geometric mean of positive numbers; `None` if there are none or one is not
/// positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|x| !x.is_finite() || *x <= 0.0) {
        return None;
    }
    Some((values.iter().map(|x| x.ln()).sum::<f64>() / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_median_and_the_extremes() {
        let odd = summarise(&[5.0, 1.0, 3.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.runs), (3.0, 1.0, 5.0, 3));
        let even = summarise(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((even.median, even.runs), (2.5, 4));
        assert_eq!(summarise(&[]), None);
    }

    #[test]
    fn what_is_not_a_number_does_not_count() {
        let summary = summarise(&[f64::NAN, 2.0, f64::INFINITY]).unwrap();
        assert_eq!((summary.median, summary.runs), (2.0, 1));
        assert_eq!(summarise(&[f64::NAN]), None);
    }

    #[test]
    fn percentiles_interpolate() {
        let samples: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert_eq!(percentile(&samples, 0.0), Some(1.0));
        assert_eq!(percentile(&samples, 99.0), Some(100.0));
        assert_eq!(percentile(&samples, 100.0), Some(101.0));
        assert_eq!(percentile(&[1.0, 2.0], 25.0), Some(1.25));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn batches_in_turn_keep_their_ratio_when_the_machine_changes() {
        // Slow for three pairs of ten, and then once between the two batches of a pair.
        let mut pairs = 0;
        let found = medians_in_turn(Duration::ZERO, 20, || {
            let pair = pairs % 10;
            pairs += 1;
            let (first, second) = if pair < 3 { (2.0, 2.0) } else { (1.0, 1.0) };
            Ok::<_, ()>((100.0 * first, if pair == 3 { 2.0 } else { second } * 120.0))
        });
        assert_eq!((pairs, found), (20, Ok(InTurn { second: 120.0, ratio: 1.2 })));
        assert_eq!(medians_in_turn(Duration::ZERO, 20, || Err("lost")), Err("lost"));
        let mut more = 0;
        let until_lost = medians_in_turn(Duration::MAX, 1, || {
            more += 1;
            if more < 1000 { Ok((1.0, 1.0)) } else { Err("lost") }
        });
        assert_eq!((more, until_lost), (1000, Err("lost")), "there was time for more");
    }

    #[test]
    fn fairness_is_one_for_equals_and_one_nth_for_a_monopoly() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[0.0, 8.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
        assert_eq!(least_share(&[1.0, 3.0]), Some(0.5));
        assert_eq!(least_share(&[0.0, 3.0]), Some(0.0));
        assert_eq!(least_share(&[0.0]), None);
    }

    #[test]
    fn geometric_means_need_positive_numbers() {
        let mean = geometric_mean(&[2.0, 8.0]).unwrap();
        assert!((mean - 4.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[]), None);
    }
}
