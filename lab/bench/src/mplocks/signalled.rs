//! Request to a process that computes and that a signal interrupts, and its reply.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath::{Endpoint, SignalEndpoint, World};

use super::plays::LockPart;

/// Number of the signal above the first real-time one.
const SIGNAL: u8 = 7;
/// Longest wait between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Part of a process: 1 computes and is interrupted, 0 asks it.
pub fn ask_or_compute(world: &World, part: &LockPart<'_>) -> Result<(), towpath::Error> {
    world.enter(Some(part.me as u32))?;
    let endpoint = Endpoint::new(world)?;
    let turn = part.board.turn();
    if part.me == 1 {
        endpoint.map_world()?;
        let endpoint = SignalEndpoint::new(endpoint, SIGNAL)?;
        // SAFETY: the handler replies, and touches nothing else.
        unsafe {
            endpoint.set_signal_handler(1, |request| {
                // A request is replied to once: this can't fail.
                let _ = request.reply(2, request.args());
            });
        }
        // Relaxed, here and below: the two only meet.
        turn.store(1, Ordering::Relaxed);
        // No call: signals alone answer.
        part.compute(1, || ());
        return Ok(());
    }
    let answered = Arc::new(AtomicU64::new(0));
    let answers = answered.clone();
    endpoint.set_handler(2, move |_| {
        answers.fetch_add(1, Ordering::Relaxed);
    });
    endpoint.map_world()?;
    let begins = Instant::now();
    while turn.load(Ordering::Relaxed) == 0 {
        assert!(begins.elapsed() < 2 * part.limit + LOOK * 2000, "the other process has not begun");
        endpoint.poll();
        endpoint.wait(Some(LOOK));
    }
    let (begun, mut times) = (Instant::now(), Vec::new());
    for round in 0u64.. {
        part.await_moment(round);
        let (start, before) = (Instant::now(), answered.load(Ordering::Relaxed));
        endpoint.request(1, 1, &[0; 8])?;
        while answered.load(Ordering::Relaxed) == before {
            if endpoint.poll() == 0 {
                endpoint.wait(Some(LOOK));
            }
        }
        times.push(start.elapsed().as_nanos() as f64);
        if begun.elapsed() > part.limit {
            break;
        }
    }
    part.board.note(0, &times);
    turn.store(2, Ordering::Relaxed);
    Ok(())
}
