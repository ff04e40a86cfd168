//! Numbers and names of a world's processes, for exceptions that tell of a death.
//!
//! They lie in the world's bytes named `towpath-processes`, a row for each rank: pid, then the
//! name. A process writes its row when it enters; another one reads it when it learns of the death.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use towpath_shm::World;

/// Number of words of a row.
const ROW: usize = 8;
/// Number of bytes of a name.
const NAME: usize = 8 * (ROW - 1);

/// The calling process's name.
static MINE: Mutex<[u8; NAME]> = Mutex::new([0; NAME]);

/// Number of bytes that the rows of so many processes take in a world.
pub const fn bytes_for(processes: u32) -> u64 {
    8 * ROW as u64 * processes as u64 + 1024
}

/// Sets the name by which others know this process.
#[pyfunction]
pub fn set_name(name: &str) {
    let mut mine = [0; NAME];
    let mut len = name.len().min(NAME);
    while !name.is_char_boundary(len) {
        len -= 1;
    }
    mine[..len].copy_from_slice(&name.as_bytes()[..len]);
    *MINE.lock().unwrap_or_else(PoisonError::into_inner) = mine;
}

/// Acts on the row of a rank, if the world has room for rows.
fn at_row<R>(world: &World, rank: u32, act: impl FnOnce(&[AtomicU64]) -> R) -> Option<R> {
    let rows = world.size() as usize;
    let bytes = world.bytes("towpath-processes", 8 * ROW * rows).ok()?;
    let first = ROW * usize::try_from(rank).ok().filter(|&rank| rank < rows)?;
    let words = bytes.as_ptr().as_ptr().cast::<AtomicU64>().wrapping_add(first);
    // SAFETY: a row of as many as there are (just checked), in bytes that begin at a line and stay
    // mapped as long as `bytes` lives; any bits are words.
    Some(act(unsafe { core::slice::from_raw_parts(words, ROW) }))
}

/// Writes down number and name of this process, which has entered.
pub fn write(world: &World) {
    let Some(me) = world.entered() else { return };
    let name = *MINE.lock().unwrap_or_else(PoisonError::into_inner);
    at_row(world, me.index, |row| {
        // Relaxed, all: read after this process's death, of which another store told.
        row[0].store(u64::from(std::process::id()), Ordering::Relaxed);
        for (word, bytes) in row[1..].iter().zip(name.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), Ordering::Relaxed);
        }
    });
}

/// An object as users are shown it.
pub fn shown(kind: &str, name: &str, world: &World) -> String {
    match world.name() {
        Some(world) => format!("<towpath.{kind} {name:?} of world {world:?}>"),
        None => format!("<towpath.{kind} {name:?} of a world without a name>"),
    }
}

/// Number and name of a rank that died.
///
/// `None` if they are not known, or if another process has its rank already.
pub fn of_dead(world: &World, rank: u32) -> Option<(u32, String)> {
    if world.participant(rank).is_some_and(|id| world.is_alive(id)) {
        return None;
    }
    at_row(world, rank, |row| {
        let mut name = Vec::with_capacity(NAME);
        for word in &row[1..] {
            name.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        let len = name.iter().position(|&byte| byte == 0).unwrap_or(NAME);
        let pid = row[0].load(Ordering::Relaxed) as u32;
        (pid, String::from_utf8_lossy(&name[..len]).into_owned())
    })
    .filter(|&(pid, _)| pid != 0)
}
