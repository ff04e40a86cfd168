//! Shared cores: hardware threads beside this machine's, which take a part of the units.
//!
//! A virtual machine may have one of two hardware threads of each core, and another machine the
//! other one. Nothing tells when that one computes, but that instructions which could run side by
//! side take longer: up to twice as long. Dependent ones take as long as ever, so the ratio of
//! the two tells, whatever the clock rate is. The costs of cache lines change little, so a ratio
//! of a program's time to a line's is another one while neighbours compute.
//!
//! A look takes some 0.2 ms. Looks are taken between measurements, never beside them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::topology::{Placement, pinned};

/// Chains of dependent operations that could run side by side.
const CHAINS: usize = 4;
/// Rounds of two operations in each chain.
const ROUNDS: u32 = 12_000;
/// Number of times that a look measures.
const TIMES: usize = 5;
/// Number of chains side by side below which a look does not tell: few units, perhaps.
const LEAST: f64 = 2.9;
/// Part of the best look below which a neighbour computed.
const BESIDE: f64 = 0.85;
/// Share of the looks from which it is worth a word.
const WORTH_A_WORD: f64 = 0.1;

/// Number of chains that a core has run in the time of one, in each look.
#[derive(Clone, Debug, Default)]
pub struct CoreLooks(Vec<f64>);

impl CoreLooks {
    /// CoreLooks at the cores on which two processes are measured.
    pub fn look(&mut self, placement: &Placement) {
        for core in 0..placement.cores().min(2) {
            self.0.push(pinned(placement.core(core), chains_side_by_side));
        }
    }

    /// Summary of the looks; `None`: there was no neighbour, or it can not be told.
    pub fn tell(&self) -> Option<SharedCores> {
        let best = self.0.iter().copied().fold(0.0, f64::max);
        let beside: Vec<f64> = self.0.iter().copied().filter(|chains| *chains < BESIDE * best).collect();
        let share = beside.len() as f64 / self.0.len().max(1) as f64;
        let slowdown = best / (beside.iter().sum::<f64>() / beside.len().max(1) as f64);
        (best >= LEAST && share >= WORTH_A_WORD).then_some(SharedCores {
            share,
            slowdown,
            looks: self.0.len(),
        })
    }
}

/// Neighbours that computed during a run: the cores were shared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedCores {
    /// Share of the looks in which there was one.
    pub share: f64,
    /// Time of independent instructions then ÷ without a neighbour.
    pub slowdown: f64,
    /// Number of looks.
    pub looks: usize,
}

impl std::fmt::Display for SharedCores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Shared cores: in {:.0} % of {} looks another hardware thread used their execution units (instructions took {:.1} times as long). Ratios to the cost of a cache line are larger than on a quiet machine.",
            100.0 * self.share,
            self.looks,
            self.slowdown
        )
    }
}

/// Number of chains of operations that the core runs in the time of one.
fn chains_side_by_side() -> f64 {
    let times = || (0..TIMES).map(|_| (time(one_chain), time(all_chains)));
    let (one, mut all): (Vec<Duration>, Vec<Duration>) = times().unzip();
    // Interrupts and other processes only add time: the shortest of the dependent ones, and of the
    // others the one in the middle, since a neighbour that rests for a moment is one, too.
    let shortest = one.into_iter().min().unwrap_or_default();
    all.sort();
    CHAINS as f64 * shortest.as_secs_f64() / all[TIMES / 2].as_secs_f64().max(1e-9)
}

fn time(act: fn()) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

fn one_chain() {
    let mask = black_box(0x9e37_79b9_7f4a_7c15_u64);
    let mut a = mask;
    for _ in 0..ROUNDS / 2 {
        a = (a ^ mask).rotate_left(7);
        a = (a ^ mask).rotate_left(9);
    }
    black_box(a);
}

/// Rotates by different numbers of bits: a compiler can't make one vector of the four.
fn all_chains() {
    let mask = black_box(0x9e37_79b9_7f4a_7c15_u64);
    let (mut a, mut b, mut c, mut d) = (mask, mask + 1, mask + 2, mask + 3);
    for _ in 0..ROUNDS / 2 {
        a = (a ^ mask).rotate_left(7);
        b = (b ^ mask).rotate_left(9);
        c = (c ^ mask).rotate_left(11);
        d = (d ^ mask).rotate_left(13);
        a = (a ^ mask).rotate_left(9);
        b = (b ^ mask).rotate_left(11);
        c = (c ^ mask).rotate_left(13);
        d = (d ^ mask).rotate_left(15);
    }
    black_box((a, b, c, d));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Pin;

    #[test]
    fn looks_tell_of_neighbours_that_were_there_now_and_then() {
        let told = |looks: &[f64]| CoreLooks(looks.to_vec()).tell();
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[3.5, 3.6, 3.4, 3.5]), None, "alone all the time");
        assert_eq!(told(&[2.2, 2.0, 2.1, 2.2]), None, "a core of few units, for all that is known");
        let mut looks = [3.6; 20];
        looks[3] = 1.8;
        assert_eq!(told(&looks), None, "once");
        looks[10..].fill(1.8);
        let seen = told(&looks).unwrap();
        assert_eq!((seen.looks, (seen.share * 20.0).round()), (20, 11.0));
        assert!((seen.slowdown - 2.0).abs() < 1e-9, "{seen:?}");
        assert!(seen.to_string().contains("in 55 % of 20 looks"), "{seen}");
        assert!(seen.to_string().contains("2.0 times as long"), "{seen}");
    }

    #[test]
    fn a_look_counts_each_core_once() {
        let placement = Placement::detect(Pin::Auto);
        let mut looks = CoreLooks::default();
        looks.look(&placement);
        assert_eq!(looks.0.len(), placement.cores().min(2));
        assert!(looks.0.iter().all(|chains| *chains > 0.0 && chains.is_finite()), "{looks:?}");
    }
}
