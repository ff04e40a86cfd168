//! Fetch-op cache of a home: the words that it has used last.

use crate::event_queue::Time;
use crate::parameters::Parameters;

/// Words in the cache; the word used last is at the end.
#[derive(Debug, Default)]
pub(crate) struct FetchCache(Vec<u32>);

impl FetchCache {
    /// Uses a word. Returns how long that occupies the home.
    pub fn occupancy(&mut self, p: &Parameters, word: u32) -> Time {
        if self.0.last() == Some(&word) {
            return p.fetch_occupancy;
        }
        let (cache, entries) = (&mut self.0, p.fetch_entries as usize);
        let found = cache.iter().position(|&w| w == word);
        if let Some(i) = found {
            cache.remove(i);
        } else if cache.len() >= entries {
            cache.drain(..1.min(cache.len()));
        }
        if entries != 0 {
            cache.push(word);
        }
        if found.is_some() { p.fetch_occupancy } else { p.fetch_miss }
    }
}
