//! Sample sort of 32-bit keys: all ranks send their keys to the ranks that sort them.
//!
//! **Source.** The Split-C program of Culler, Dusseau, Martin & Schauser 1994 ("Fast parallel
//! sorting under LogP"); paper L, Section 4.3 (`SAMPLE`: "fine-grained, all-to-all communication").
//! Each rank sends a sample of its keys to rank 0, which chooses the keys that part the ranks'
//! ranges and sends them to all. Then each rank sends every key to its range's rank, two in a short
//! message, or in blocks; and sorts the keys that it got.
//!
//! **Sizes.** 1,024, 4,096, 65,536 and 262,144 keys of each rank (the last is the paper's).
//!
//! **Checked by** each rank: it makes all ranks' keys anew, and those of its range, sorted by the
//! standard library, are what it has. So no key is lost, none is there twice, all are in order; the
//! ranges together are all 32-bit numbers.
//!
//! **Fields.** `Keys`: written by the rank's handlers, read by it after the last key has come.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use towpath_machine::Random;

use super::party::FIRST;
use super::{MessageInput, Party, RankRun, SharedHandlers};

/// Form in which keys travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parcel {
    /// Two keys in each short message.
    Short,
    /// A block full of them.
    Block,
}

/// Keys of a rank's sample.
const SAMPLE: usize = 64;
/// Keys in a short message.
const PAIR: usize = 2;

/// Instructions for a key: making its bucket's number by bisection, and storing it.
const FIND: u64 = 40;
/// Instructions for a key in each of the four passes of a radix sort.
const PASS: u64 = 12;

const SAMPLES: u8 = FIRST;
const SPLITTERS: u8 = FIRST + 1;
const KEYS: u8 = FIRST + 2;
const COUNT: u8 = FIRST + 3;

/// Keys that a rank has got, and how many it will have.
#[derive(Default)]
struct KeyStore {
    keys: Vec<AtomicU32>,
    /// Number of keys that have come.
    len: AtomicU64,
    /// Number of keys that ranks have announced, and number of those ranks.
    announced: [AtomicU64; 2],
}

impl KeyStore {
    fn take(&self, keys: impl Iterator<Item = u32>) {
        // Relaxed, here and below: handlers run in the thread that reads.
        let mut len = self.len.load(Ordering::Relaxed) as usize;
        for key in keys {
            // More than all keys of all ranks would be none of ours: they are counted, not kept.
            if let Some(slot) = self.keys.get(len) {
                slot.store(key, Ordering::Relaxed);
            }
            len += 1;
        }
        self.len.store(len as u64, Ordering::Relaxed);
    }

    fn is_complete(&self, procs: usize) -> bool {
        let [keys, ranks] = &self.announced;
        ranks.load(Ordering::Relaxed) == procs as u64
            && self.len.load(Ordering::Relaxed) == keys.load(Ordering::Relaxed)
    }
}

/// Keys of a rank.
fn keys_of(input: MessageInput, rank: usize) -> impl Iterator<Item = u32> {
    let mut random = Random::stream(input.seed, rank as u64);
    (0..input.size.pick([1 << 10, 1 << 12, 1 << 16, 1 << 18])).map(move |_| random.word() as u32)
}

/// Keys of all ranks, one rank's after another's.
pub fn keys_of_all(input: MessageInput, procs: usize) -> impl Iterator<Item = u32> {
    (0..procs).flat_map(move |rank| keys_of(input, rank))
}

/// Keys in the bytes of a block.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Block of keys.
pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Sorts by four passes over a byte each.
fn radix_sort(keys: &mut Vec<u32>) {
    let mut other = vec![0; keys.len()];
    for shift in [0, 8, 16, 24] {
        let digit = |key: u32| (key >> shift) as usize & 255;
        let mut at = [0usize; 257];
        keys.iter().for_each(|&k| at[digit(k) + 1] += 1);
        (0..256).for_each(|d| at[d + 1] += at[d]);
        for &key in keys.iter() {
            other[at[digit(key)]] = key;
            at[digit(key)] += 1;
        }
        std::mem::swap(keys, &mut other);
    }
}

/// Lets all ranks agree on the keys that part their ranges.
fn splitters<D: SharedHandlers>(
    party: &Party<'_, D>,
    mine: &[u32],
    seed: u64,
    samples: &Mutex<Vec<u32>>,
    chosen: &Mutex<Option<Vec<u32>>>,
) -> Result<Vec<u32>, String> {
    let lock = |m: &Mutex<Vec<u32>>| m.lock().unwrap_or_else(|e| e.into_inner()).len();
    let (rank, procs) = (party.rank(), party.procs());
    let mut random = Random::stream(seed, (procs + rank) as u64);
    let sample: Vec<u32> = (0..SAMPLE).map(|_| mine[random.below(mine.len() as u64) as usize]).collect();
    party.send_block(0, SAMPLES, &[], &bytes(&sample))?;
    if rank == 0 {
        party.until(|| lock(samples) == SAMPLE * procs)?;
        let mut all = std::mem::take(&mut *samples.lock().unwrap_or_else(|e| e.into_inner()));
        all.sort_unstable();
        party.instructions(20 * all.len() as u64);
        let parts: Vec<u32> = (1..procs).map(|n| all[n * SAMPLE]).collect();
        for to in 0..procs {
            party.send_block(to, SPLITTERS, &[], &bytes(&parts))?;
        }
    }
    let chosen = || chosen.lock().unwrap_or_else(|e| e.into_inner());
    party.until(|| chosen().is_some())?;
    Ok(chosen().take().unwrap_or_default())
}

/// Number of the range of a key: of the first part that is larger, or the last.
fn range_of(splitters: &[u32], key: u32) -> usize {
    splitters.partition_point(|&s| s <= key)
}

/// Compares keys that were sorted with the keys that they were.
///
/// # Errors
///
/// The first difference from those keys in order.
pub fn check_sorted(got: &[u32], mut keys: Vec<u32>) -> Result<(), String> {
    keys.sort_unstable();
    if got == keys {
        return Ok(());
    }
    let at = got.iter().zip(&keys).position(|(a, b)| a != b).unwrap_or(got.len().min(keys.len()));
    Err(format!("{} keys that should be {}; the first difference is at {at}", got.len(), keys.len()))
}

/// Sorts the keys of all ranks as one of them.
///
/// # Errors
///
/// If this rank's keys are not those of its range in order, or a message can't be sent.
pub fn sort<D: SharedHandlers>(
    party: &Party<'_, D>,
    input: MessageInput,
    parcel: Parcel,
) -> Result<RankRun, String> {
    let (rank, procs) = (party.rank(), party.procs());
    let mine: Vec<u32> = keys_of(input, rank).collect();
    let store = Arc::new(KeyStore {
        keys: (0..mine.len() * procs).map(|_| AtomicU32::new(0)).collect(),
        ..KeyStore::default()
    });
    let (samples, chosen) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
    let here = Arc::clone(&samples);
    party.on(SAMPLES, move |token| {
        here.lock().unwrap_or_else(|e| e.into_inner()).extend(words(token.bytes()));
    });
    let here = Arc::clone(&chosen);
    party.on(SPLITTERS, move |token| {
        *here.lock().unwrap_or_else(|e| e.into_inner()) = Some(words(token.bytes()).collect());
    });
    let here = Arc::clone(&store);
    party.on(KEYS, move |token| match token.bytes() {
        [] => here.take(token.args().iter().copied()),
        bytes => here.take(words(bytes)),
    });
    let here = Arc::clone(&store);
    party.on(COUNT, move |token| {
        let [keys, ranks] = &here.announced;
        let count = token.args().first().copied().unwrap_or(0);
        keys.store(keys.load(Ordering::Relaxed) + u64::from(count), Ordering::Relaxed);
        ranks.store(ranks.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
    party.meet(false)?;
    let start = party.now();
    let splitters = splitters(party, &mine, input.seed, &samples, &chosen)?;
    deal(party, &mine, &splitters, parcel)?;
    party.until(|| store.is_complete(procs))?;
    let len = store.len.load(Ordering::Relaxed) as usize;
    let mut got: Vec<u32> = store.keys.iter().take(len).map(|k| k.load(Ordering::Relaxed)).collect();
    radix_sort(&mut got);
    party.instructions(4 * PASS * got.len() as u64);
    party.meet(false)?;
    let ns = party.now() - start;

    let own = keys_of_all(input, procs).filter(|&key| range_of(&splitters, key) == rank).collect();
    check_sorted(&got, own).map_err(|e| format!("rank {rank} has {e}"))?;
    let text = format!(
        "{} keys of {} in all, from {:#010x} to {:#010x}",
        got.len(),
        mine.len() * procs,
        got.first().copied().unwrap_or(0),
        got.last().copied().unwrap_or(0)
    );
    Ok(RankRun { ns, requests: party.sent(), text })
}

/// Sends each key to the rank of its range, and each rank the number of its keys.
fn deal<D: SharedHandlers>(
    party: &Party<'_, D>,
    mine: &[u32],
    splitters: &[u32],
    parcel: Parcel,
) -> Result<(), String> {
    let procs = party.procs();
    let full = match parcel {
        Parcel::Short => PAIR,
        Parcel::Block => (party.block() / 4).max(1),
    };
    let send = |to: usize, keys: &[u32]| match parcel {
        Parcel::Short => party.send(to, KEYS, keys),
        Parcel::Block => party.send_block(to, KEYS, &[], &bytes(keys)),
    };
    let mut parcels = vec![Vec::with_capacity(full); procs];
    let mut counts = vec![0u32; procs];
    for &key in mine {
        let to = range_of(splitters, key);
        party.instructions(FIND);
        counts[to] += 1;
        parcels[to].push(key);
        if parcels[to].len() == full {
            send(to, &parcels[to])?;
            parcels[to].clear();
            party.poll();
        }
    }
    for n in 0..procs {
        // Each begins elsewhere, so that not all send to the same one.
        let to = (party.rank() + n) % procs;
        if !parcels[to].is_empty() {
            send(to, &parcels[to])?;
        }
        party.send(to, COUNT, &[counts[to]])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radix_sort_sorts() {
        let mut random = Random::new(3);
        for len in [0, 1, 2, 1000] {
            let mut keys: Vec<u32> = (0..len).map(|_| random.word() as u32).collect();
            let mut expected = keys.clone();
            expected.sort_unstable();
            radix_sort(&mut keys);
            assert_eq!(keys, expected);
        }
    }

    #[test]
    fn lost_doubled_and_disordered_keys_are_noticed() {
        let keys = vec![7, 3, 9];
        assert_eq!(check_sorted(&[3, 7, 9], keys.clone()), Ok(()));
        for (wrong, at) in [(&[3, 7][..], 2), (&[3, 7, 7, 9], 2), (&[3, 9, 7], 1), (&[3, 7, 9, 9], 3)] {
            let error = check_sorted(wrong, keys.clone()).unwrap_err();
            assert!(error.ends_with(&format!("is at {at}")), "{error}");
        }
    }

    #[test]
    fn ranges_cover_all_keys() {
        let splitters = [5, 10, 10];
        assert_eq!([0, 4, 5, 9, 10, u32::MAX].map(|k| range_of(&splitters, k)), [0, 0, 1, 1, 3, 3]);
        assert_eq!(range_of(&[], 7), 0);
    }
}
