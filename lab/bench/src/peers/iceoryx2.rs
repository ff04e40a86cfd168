//! iceoryx2: publish-subscribe between processes. A full buffer blocks the publisher
//! (which then yields and later sleeps, by its own rules). There is no blocking receive: the
//! receiver polls, with `sched_yield` when there is nothing; in the round trip it spins if both
//! processes have a core.
//!
//! All its files are kept apart from those of other users of iceoryx2 and are removed afterwards,
//! also when a process was killed.

mod ring;
mod stage;

use std::error::Error as AnyError;
use std::fmt::Debug;
use std::time::Instant;

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::*;

pub use self::ring::IceoryxRing;
use self::stage::{Attempt, CREATED, DONE, RESULT, SHARED_MEMORY, Service, Stage, failed};
use crate::transport::{Circumstances, Contender, Stress};
use towpath_host::Error;
use towpath_host::process::cpu_time;
use towpath_report::stats::median_of_batches;

/// The peer.
pub struct Iceoryx2;

/// Samples that a subscriber's buffer holds per publisher: as many as one of our queues
/// has packets.
const PLACES: usize = 1024;
/// Number of places for bulk transfers of `bytes` each: about a mebibyte, as more would
/// only take more of the cache and of /dev/shm.
fn bulk_places(bytes: u64) -> usize {
    ((1 << 20) / bytes.max(1)).clamp(4, 16) as usize
}

fn publisher(service: &Service<u64>) -> Attempt<Publisher<ipc::Service, u64, ()>> {
    service
        .publisher_builder()
        .max_loaned_samples(1)
        .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
        .create()
        .map_err(failed("creating a publisher (is there room in /dev/shm?)"))
}

fn subscriber<T: IceoryxSend + Debug + ?Sized>(
    service: &Service<T>,
) -> Attempt<Subscriber<ipc::Service, T, ()>> {
    service
        .subscriber_builder()
        .create()
        .map_err(failed("creating a subscriber (is there room in /dev/shm?)"))
}

/// Connects to the publishers: only from then on does a full buffer block.
fn connect<T: IceoryxSend + Debug + ?Sized>(subscriber: &Subscriber<ipc::Service, T, ()>) -> Attempt {
    subscriber.update_connections().map_err(failed("connecting to the publishers"))
}

fn send(publisher: &Publisher<ipc::Service, u64, ()>, message: u64) -> Attempt {
    delivered(publisher.send_copy(message).map_err(failed("sending"))?)
}

fn delivered(receivers: usize) -> Attempt {
    if receivers == 1 { Ok(()) } else { Err(format!("a message was sent to {receivers} receivers").into()) }
}

/// Messages that the reader of the stress test has received.
struct Tally {
    /// Counts of each writer.
    counts: Vec<u64>,
    arrived: u64,
    ended: usize,
    /// Messages that were lost, came twice or came out of order.
    wrong: u64,
}

impl Tally {
    /// A writer's last message; its number is then how many went before it.
    const END: u64 = 1 << 63;
    const NUMBER_BITS: u32 = 48;

    fn message(writer: usize, number: u64) -> u64 {
        (writer as u64) << Tally::NUMBER_BITS | number
    }

    fn new(writers: usize) -> Tally {
        Tally { counts: vec![0; writers], arrived: 0, ended: 0, wrong: 0 }
    }

    fn take(&mut self, message: u64) {
        let writer = ((message & !Tally::END) >> Tally::NUMBER_BITS) as usize;
        let number = message & ((1 << Tally::NUMBER_BITS) - 1);
        let Some(count) = self.counts.get_mut(writer) else {
            self.wrong += 1;
            return;
        };
        self.wrong += number.abs_diff(*count);
        if message & Tally::END != 0 {
            self.ended += 1;
            return;
        }
        *count = number + 1;
        self.arrived += 1;
    }
}

impl Contender for Iceoryx2 {
    fn name(&self) -> &str {
        "iceoryx2"
    }

    fn variant(&self) -> Option<String> {
        Some("publish-subscribe, polling".into())
    }

    fn round_trip(&mut self, run: &Circumstances<'_>) -> Result<f64, Error> {
        const ROUNDS: u64 = 200;
        const LAST: u64 = 1;
        let stage = Stage::new(2, 1)?;
        let oversubscribed = run.placement.cores() < 2;
        stage.perform(run, |node, rank| {
            let there = stage.short((node, rank), "there", 2)?;
            let back = stage.short((node, rank), "back", 2)?;
            stage.set(CREATED, 1);
            let (to, from) = if rank == 0 { (&back, &there) } else { (&there, &back) };
            let (to, from) = (publisher(to)?, subscriber(from)?);
            stage.enter(rank, || connect(&from))?;
            let receive = || loop {
                if let Some(sample) = from.receive().map_err(failed("receiving"))? {
                    return Ok::<u64, Box<dyn AnyError>>(*sample);
                }
                stage.check()?;
                // Its best in each case: a yield takes longer than the message.
                if oversubscribed { std::thread::yield_now() } else { std::hint::spin_loop() }
            };
            if rank == 0 {
                while receive()? != LAST {
                    send(&to, 0)?;
                }
                stage.set(DONE, 1);
                return Ok(());
            }
            let each = median_of_batches(run.limit / 2, ROUNDS, |n| {
                (0..n).try_for_each(|_| {
                    send(&to, 0)?;
                    receive().map(drop)
                })
            })?;
            stage.set(RESULT, each.to_bits());
            send(&to, LAST)?;
            stage.leave()
        })?;
        Ok(f64::from_bits(stage.get(RESULT)))
    }

    fn stress(&mut self, writers: u32, messages: u64, run: &Circumstances<'_>) -> Result<Stress, Error> {
        let (w, all) = (writers as usize, u64::from(writers));
        let (nanoseconds, arrived, wrong) = (RESULT, RESULT + 1, RESULT + 2);
        let shares = RESULT + 3;
        let cpu = shares + w;
        let stage = Stage::new(w + 1, 3 + w + w + 1)?;
        stage.perform(run, |node, rank| {
            let service = stage.short((node, rank), "stress", PLACES)?;
            if rank > 0 {
                let writer = rank - 1;
                let to = publisher(&service)?;
                stage.enter(rank, || Ok(()))?;
                let used = cpu_time();
                let deadline = Instant::now() + run.limit;
                let mine = messages / all + u64::from(messages % all > writer as u64);
                let mut sent = 0;
                while sent < mine && (sent % 256 != 255 || Instant::now() < deadline) {
                    send(&to, Tally::message(writer, sent))?;
                    sent += 1;
                }
                send(&to, Tally::END | Tally::message(writer, sent))?;
                stage.set(cpu + rank, (cpu_time() - used).as_nanos() as u64);
                return stage.leave();
            }
            stage.set(CREATED, 1);
            let from = subscriber(&service)?;
            let mut tally = Tally::new(w);
            let (mut start, mut used) = (Instant::now(), cpu_time());
            stage.enter(rank, || {
                connect(&from)?;
                (start, used) = (Instant::now(), cpu_time());
                Ok(())
            })?;
            while tally.ended < w {
                let Some(sample) = from.receive().map_err(failed("receiving"))? else {
                    stage.check()?;
                    std::thread::yield_now();
                    continue;
                };
                let ended = tally.ended;
                tally.take(*sample);
                if ended == 0 && tally.ended == 1 {
                    for (n, count) in tally.counts.iter().enumerate() {
                        stage.set(shares + n, *count);
                    }
                }
            }
            stage.set(nanoseconds, start.elapsed().as_nanos() as u64);
            stage.set(cpu, (cpu_time() - used).as_nanos() as u64);
            stage.set(arrived, tally.arrived);
            stage.set(wrong, tally.wrong);
            stage.set(DONE, 1);
            Ok(())
        })?;
        if stage.get(wrong) > 0 {
            return Err(Error::NotAvailable(format!(
                "{} messages were lost, came twice or came out of order",
                stage.get(wrong)
            )));
        }
        let seconds = |word: usize| stage.get(word) as f64 / 1e9;
        Ok(Stress {
            messages: stage.get(arrived),
            seconds: seconds(nanoseconds),
            shares: (shares..shares + w).map(|n| stage.get(n) as f64).collect(),
            cpu_seconds: Some((cpu..=cpu + w).map(seconds).sum()),
        })
    }

    /// The sender copies into a sample, the receiver has it until it takes the next.
    fn bulk(&mut self, bytes: u64, _path: &str, run: &Circumstances<'_>) -> Result<f64, Error> {
        let places = bulk_places(bytes);
        // The buffer's, one that is written, one that is read.
        let needed = (bytes + 4096) * (places as u64 + 2);
        let free = rustix::fs::statvfs(SHARED_MEMORY).map_or(u64::MAX, |s| s.f_bavail * s.f_frsize);
        if free < needed {
            return Err(Error::NotAvailable(format!(
                "{bytes} bytes need {needed} in {SHARED_MEMORY}, which has {free} left: make it larger, or choose smaller --sizes"
            )));
        }
        let stage = Stage::new(2, 1)?;
        stage.perform(run, |node, rank| {
            let service =
                stage.service::<[u8]>((node, rank), "bulk", places, |b| b.create(), |b| b.open())?;
            if rank == 0 {
                stage.set(CREATED, 1);
                let from = subscriber(&service)?;
                stage.enter(rank, || connect(&from))?;
                loop {
                    match from.receive().map_err(failed("receiving"))? {
                        // The byte after the data is for us.
                        Some(sample) if sample.last() == Some(&1) => break,
                        Some(_) => {}
                        None => {
                            stage.check()?;
                            std::thread::yield_now();
                        }
                    }
                }
                stage.set(DONE, 1);
                return Ok(());
            }
            let to = service
                .publisher_builder()
                .max_loaned_samples(1)
                .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
                .initial_max_slice_len(bytes as usize + 1)
                .create()
                .map_err(failed("creating a publisher (is there room in /dev/shm?)"))?;
            stage.enter(rank, || Ok(()))?;
            let mut data = vec![0u8; bytes as usize + 1];
            let transfer = |data: &[u8]| {
                let sample = to.loan_slice_uninit(data.len()).map_err(failed("getting a sample"))?;
                delivered(sample.write_from_slice(data).send().map_err(failed("sending"))?)
            };
            let round = (4_000_000 / bytes.max(1)).clamp(4, 2_000);
            // So that each sample has been used once.
            for _ in 0..round {
                transfer(&data)?;
            }
            let (start, mut count) = (Instant::now(), 1u64);
            while start.elapsed() < run.limit / 2 {
                for _ in 0..round {
                    transfer(&data)?;
                }
                count += round;
            }
            data[bytes as usize] = 1;
            transfer(&data)?;
            stage.wait_for(DONE, 1, std::thread::yield_now)?;
            let rate = count as f64 * bytes as f64 / start.elapsed().as_secs_f64();
            stage.set(RESULT, rate.to_bits());
            Ok(())
        })?;
        Ok(f64::from_bits(stage.get(RESULT)))
    }
}

#[cfg(test)]
mod tests {
    use super::stage::{GO, RunFolder};
    use super::*;
    use crate::primitives::broadcast::{BROADCAST_SIZES, BroadcastLoad, RingKind, fan_out};
    use crate::settings::BenchSettings;
    use crate::structures::Sharing;
    use std::path::PathBuf;
    use std::time::Duration;
    use towpath_host::topology::{Pin, Placement};
    use towpath_report::record::metrics::MESSAGES_PER_S;

    fn with_run<T>(body: impl FnOnce(&Circumstances<'_>) -> T) -> T {
        let (settings, placement) = (BenchSettings::default(), Placement::detect(Pin::Auto));
        let limit = Duration::from_millis(100);
        body(&Circumstances { settings: &settings, placement: &placement, round: 0, seed: 1, limit })
    }

    /// Files whose names begin with this prefix.
    fn files(prefix: &str) -> Vec<PathBuf> {
        [std::env::temp_dir(), SHARED_MEMORY.into()]
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap().flatten())
            .filter(|e| e.file_name().to_string_lossy().starts_with(prefix))
            .map(|e| e.path())
            .collect()
    }

    // One test, because files are looked for that another measurement of this process would have.
    #[test]
    fn everything_is_measured_and_no_file_stays() {
        let prefix = &RunFolder::common_prefix();
        with_run(|run| {
            let result =
                Iceoryx2.stress(3, 6_000, &Circumstances { limit: Duration::from_secs(60), ..*run }).unwrap();
            assert_eq!((result.messages, result.shares.len()), (6_000, 3));
            assert!(result.shares.contains(&2_000.0), "one of them was done first: {:?}", result.shares);
            assert!(result.seconds > 0.0 && result.cpu_seconds.unwrap() > 0.0);
            assert!(Iceoryx2.round_trip(run).unwrap() > 0.0);
            for bytes in [64, 1 << 20] {
                assert!(Iceoryx2.bulk(bytes, "", run).unwrap() > 0.0);
            }
            for bytes in BROADCAST_SIZES {
                let (ring, sharing) = (RingKind::Iceoryx2, Sharing::Processes);
                let samples = fan_out(&BroadcastLoad { ring, sharing, procs: 3, bytes }, run).unwrap();
                assert!(samples.values.iter().any(|(metric, rate)| *metric == MESSAGES_PER_S && *rate > 0.0));
            }
            assert_eq!(files(prefix), [] as [PathBuf; 0]);

            let stage = Stage::new(2, 0).unwrap();
            let killed = stage.perform(run, |node, rank| {
                let service = stage.short((node, rank), "killed", 2)?;
                stage.set(CREATED, 1);
                let _ports = (publisher(&service)?, rank == 0 && subscriber(&service).is_ok());
                stage.enter(rank, || Ok(()))?;
                assert!(files(prefix).len() > 2, "they have our prefix: {:?}", files(prefix));
                std::process::abort();
            });
            let killed = killed.unwrap_err().to_string();
            assert!(killed.contains("signal 6"), "{killed}");
            assert_eq!(files(prefix), [] as [PathBuf; 0]);

            let stage = Stage::new(2, 0).unwrap();
            let failed = stage.perform(run, |_, rank| match rank {
                0 => stage.wait_for(GO, 1, std::thread::yield_now),
                _ => Err("no room".into()),
            });
            assert_eq!(failed.unwrap_err().to_string(), "no room (process 1)");
        });
    }

    #[test]
    fn what_is_lost_doubled_or_out_of_order_is_counted() {
        let wrong = |numbers: &[u64], sent: u64| {
            let mut tally = Tally::new(2);
            numbers.iter().for_each(|&n| tally.take(Tally::message(1, n)));
            tally.take(Tally::END | Tally::message(1, sent));
            assert_eq!((tally.ended, tally.arrived), (1, numbers.len() as u64));
            tally.wrong
        };
        assert_eq!(wrong(&[0, 1, 2], 3), 0);
        assert_eq!(wrong(&[], 0), 0);
        assert_eq!(wrong(&[0, 1], 3), 1, "the last is lost");
        assert_eq!(wrong(&[0, 2], 3), 1, "one between is lost");
        assert!(wrong(&[0, 1, 1, 2], 3) > 0, "one came twice");
        assert!(wrong(&[0, 2, 1], 3) > 0, "two are out of order");
        let mut tally = Tally::new(1);
        tally.take(Tally::message(1, 0));
        assert_eq!((tally.wrong, tally.arrived), (1, 0), "there is no such writer");
    }
}
