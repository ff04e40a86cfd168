//! crossbeam's `ArrayQueue`, between threads of one process: spinning, and yielding when
//! there are more threads than cores.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_queue::ArrayQueue;

use crate::transport::{Circumstances, Contender, Stress};
use towpath_host::Error;
use towpath_host::process::cpu_time;
use towpath_host::topology::pinned;
use towpath_report::stats::median_of_batches;

/// The peer.
pub struct Crossbeam;

/// Places in the queue: as many as one of ours has packets.
const PLACES: usize = 1024;

fn wait(oversubscribed: bool) {
    if oversubscribed { std::thread::yield_now() } else { std::hint::spin_loop() }
}

impl Contender for Crossbeam {
    fn name(&self) -> &str {
        "crossbeam"
    }

    fn variant(&self) -> Option<String> {
        Some("ArrayQueue, threads of one process".into())
    }

    fn round_trip(&mut self, run: &Circumstances<'_>) -> Result<f64, Error> {
        let (there, back) = (ArrayQueue::new(PLACES), ArrayQueue::new(PLACES));
        let stop = AtomicBool::new(false);
        let oversubscribed = run.placement.cores() < 2;
        let limit = run.limit / 2;
        Ok(std::thread::scope(|scope| {
            scope.spawn(|| {
                pinned(run.placement.core_for(0, 2), || {
                    // Relaxed: only ends the loop.
                    while !stop.load(Ordering::Relaxed) {
                        match there.pop() {
                            Some(word) => drop(back.push(word)),
                            None => wait(oversubscribed),
                        }
                    }
                });
            });
            pinned(run.placement.core_for(1, 2), || {
                let each = median_of_batches(limit, 200, |n| {
                    for count in 0..n {
                        let _ = there.push(count);
                        while back.pop().is_none() {
                            wait(oversubscribed);
                        }
                    }
                    Ok::<(), std::convert::Infallible>(())
                });
                stop.store(true, Ordering::Relaxed);
                each.unwrap_or_else(|never| match never {})
            })
        }))
    }

    fn stress(&mut self, writers: u32, messages: u64, run: &Circumstances<'_>) -> Result<Stress, Error> {
        let queue = ArrayQueue::new(PLACES);
        let (w, procs) = (writers as usize, writers as usize + 1);
        let oversubscribed = run.placement.cores() < procs;
        // Writers still at work.
        let left = AtomicU64::new(u64::from(writers));
        let mut result = Stress { shares: vec![0.0; w], ..Stress::default() };
        let before = cpu_time();
        std::thread::scope(|scope| {
            for n in 0..w {
                let (queue, left, placement) = (&queue, &left, run.placement);
                let mine = messages / w as u64 + u64::from(messages % w as u64 > n as u64);
                let deadline = Instant::now() + run.limit;
                scope.spawn(move || {
                    pinned(placement.core_for(n + 1, procs), || {
                        for sent in 0..mine {
                            while queue.push(n as u64).is_err() {
                                wait(oversubscribed);
                            }
                            if sent % 1024 == 1023 && Instant::now() > deadline {
                                break;
                            }
                        }
                    });
                    // (C1) Release: after the last push; pairs with the reader's Acquire (C2).
                    left.fetch_sub(1, Ordering::Release);
                });
            }
            pinned(run.placement.core_for(0, procs), || {
                let mut counts = vec![0u64; w];
                let start = Instant::now();
                loop {
                    if let Some(from) = queue.pop() {
                        counts[from as usize % w] += 1;
                        result.messages += 1;
                        continue;
                    }
                    // (C2) Acquire: pairs with the writers' Release (C1).
                    let left = left.load(Ordering::Acquire);
                    if left < u64::from(writers) && result.shares.iter().all(|&s| s == 0.0) {
                        result.shares = counts.iter().map(|&c| c as f64).collect();
                    }
                    if left == 0 && queue.is_empty() {
                        break;
                    }
                    wait(oversubscribed);
                }
                result.seconds = start.elapsed().as_secs_f64();
                if result.shares.iter().all(|&s| s == 0.0) {
                    result.shares = counts.iter().map(|&c| c as f64).collect();
                }
            });
        });
        result.cpu_seconds = Some((cpu_time() - before).as_secs_f64());
        Ok(result)
    }
}
