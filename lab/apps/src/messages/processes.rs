//! Applications over messages on the machine at hand: a process for each rank, in a world
//! of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use towpath::{Endpoint, World, WorldConfig};
use towpath_host::process::{SharedRow, team};

use super::{MessageApplication, MessageInput, Party, RankRun, run};

/// Exit code of a rank that failed.
const FAILED: i32 = 3;
/// Words of text that a rank leaves.
const WORDS: usize = 32;

/// Words that a rank leaves to its parent: time, requests, length of the text, and the
/// text.
const LEFT: usize = 3 + WORDS;

/// Leaves a rank's run, or the reason why it failed.
fn leave(row: &[AtomicU64], result: &Result<RankRun, String>) {
    // Relaxed: the rank's end orders it before its parent's reads.
    let put = |n: usize, value: u64| row[n].store(value, Ordering::Relaxed);
    let text = match result {
        Ok(run) => {
            put(0, run.ns);
            put(1, run.requests);
            &run.text
        }
        Err(why) => why,
    };
    let bytes = &text.as_bytes()[..text.len().min(8 * WORDS)];
    put(2, bytes.len() as u64);
    for (n, chunk) in bytes.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        put(3 + n, u64::from_le_bytes(word));
    }
}

fn left(row: &[AtomicU64]) -> RankRun {
    // Relaxed: as in `leave`.
    let get = |n: usize| row[n].load(Ordering::Relaxed);
    let bytes: Vec<u8> = (3..LEFT).flat_map(|n| get(n).to_le_bytes()).take(get(2) as usize).collect();
    RankRun { ns: get(0), requests: get(1), text: String::from_utf8_lossy(&bytes).into_owned() }
}

fn take_part(
    world: &World,
    rank: usize,
    application: MessageApplication,
    input: MessageInput,
) -> Result<RankRun, String> {
    let failed = |e: towpath::Error| e.to_string();
    world.enter(Some(rank as u32)).map_err(|e| failed(e.into()))?;
    let endpoint = Endpoint::new(world).map_err(failed)?;
    endpoint.map_world().map_err(failed)?;
    let party = Party::new(&endpoint, rank, world.size() as usize);
    let policy = endpoint.config().waiting;
    // All have set their handlers.
    world.barrier(policy).map_err(|e| failed(e.into()))?;
    let result = run(application, input, &party);
    world.barrier(policy).map_err(|e| failed(e.into()))?;
    result
}

/// Runs a body in a process of its own. Returns its result.
///
/// # Errors
///
/// If the body fails, with its reason, or does not end within `limit`.
pub fn run_apart(limit: Duration, body: impl Fn() -> Result<RankRun, String>) -> Result<RankRun, String> {
    gather(&[None], limit, |_| body()).map(|mut runs| runs.swap_remove(0))
}

/// Runs a body in a process for each core, and gathers their results.
fn gather(
    cores: &[Option<usize>],
    limit: Duration,
    body: impl Fn(usize) -> Result<RankRun, String>,
) -> Result<Vec<RankRun>, String> {
    let row: SharedRow<[AtomicU64; LEFT]> = SharedRow::row(cores.len()).map_err(|e| e.to_string())?;
    let ended = team(cores, limit, |rank| {
        let result = body(rank);
        leave(&row[rank], &result);
        if result.is_ok() { 0 } else { FAILED }
    });
    let runs: Vec<RankRun> = row.iter().map(|words| left(words)).collect();
    match ended {
        Ok(_) => Ok(runs),
        Err(error) => {
            let said = runs.iter().map(|r| r.text.as_str()).find(|text| !text.is_empty());
            Err(said.map_or(error.to_string(), |said| format!("{error}: {said}")))
        }
    }
}

/// Runs an application as processes of their own, one for each rank of the world.
/// `cores`: where each is to be pinned.
///
/// # Errors
///
/// If a rank fails, with its reason, or does not end within `limit`.
pub fn run_processes(
    application: MessageApplication,
    input: MessageInput,
    config: &WorldConfig,
    cores: &[Option<usize>],
    limit: Duration,
) -> Result<Vec<RankRun>, String> {
    let procs = config.processes as usize;
    let world = towpath::create(None, config).map_err(|e| e.to_string())?;
    let cores: Vec<Option<usize>> = (0..procs).map(|n| cores.get(n).copied().flatten()).collect();
    gather(&cores, limit, |rank| take_part(&world, rank, application, input))
}
