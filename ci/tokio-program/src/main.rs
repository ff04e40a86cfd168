//! A message to a task in tokio, there and back, between two processes, beside an eventfd.
//!
//! `bash ci/tokio-program/run.sh [ROUNDS]` prints the median
//! time of a round trip, of nine interleaved runs, and its ratio to the eventfd's.

use std::error::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use towpath::readiness::{AsyncReceiver, AsyncSender, Pollable};
use towpath::{World, WorldConfig, mpmc};

type Failure = Box<dyn Error>;

const RUNS: usize = 9;
const WAYS: [&str; 3] = ["eventfd", "descriptor", "waker"];

/// One end of the eventfds: what the other writes, and what it reads.
struct Eventfds {
    read: AsyncFd<OwnedFd>,
    write: OwnedFd,
}

impl Eventfds {
    async fn receive(&self) -> Result<(), Failure> {
        loop {
            let mut ready = self.read.readable().await?;
            let read = |fd: &AsyncFd<OwnedFd>| Ok(rustix::io::read(fd.get_ref(), &mut [0u8; 8])?);
            if let Ok(read) = ready.try_io(read) {
                read?;
                return Ok(());
            }
        }
    }

    fn send(&self) -> Result<(), Failure> {
        rustix::io::write(&self.write, &1u64.to_ne_bytes())?;
        Ok(())
    }
}

struct End {
    eventfds: Eventfds,
    sender: mpmc::WorldSender<u64>,
    receiver: mpmc::WorldReceiver<u64>,
    polled: AsyncFd<Pollable<mpmc::WorldReceiver<u64>>>,
}

impl End {
    fn new(world: &World, read: OwnedFd, write: OwnedFd, names: [&str; 2]) -> Result<End, Failure> {
        let queue = world.mpmc(names[0], 16)?;
        // SAFETY, both: the descriptor stays the same and open as long as its owner lives.
        let read = unsafe { AsyncFd::register_with_interest(read, Interest::READABLE)? };
        let polled = Pollable::new(queue.receiver()?)?;
        let polled = unsafe { AsyncFd::register_with_interest(polled, Interest::READABLE)? };
        Ok(End {
            eventfds: Eventfds { read, write },
            sender: world.mpmc(names[1], 16)?.sender()?,
            receiver: queue.receiver()?,
            polled,
        })
    }

    async fn receive(&mut self, way: &str) -> Result<(), Failure> {
        match way {
            "eventfd" => self.eventfds.receive().await,
            "waker" => Ok(self.receiver.receive_async().await.map(drop)?),
            _ => loop {
                if self.polled.get_mut().try_receive()?.is_some() {
                    return Ok(());
                }
                self.polled.readable().await?.clear_ready();
            },
        }
    }

    async fn send(&self, way: &str) -> Result<(), Failure> {
        match way {
            "eventfd" => self.eventfds.send(),
            _ => Ok(self.sender.send_async(1).await?),
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_io().build()?)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn start_other(world: &World, descriptors: [&OwnedFd; 2], rounds: usize) -> Result<Child, Failure> {
    let descriptors = descriptors.map(|fd| fd.as_raw_fd().to_string());
    let mut other = Command::new(std::env::current_exe()?);
    Ok(other
        .args([
            "other",
            world.name().unwrap_or_default(),
            &descriptors[0],
            &descriptors[1],
            &rounds.to_string(),
        ])
        .spawn()?)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == "other") {
        return answer(&arguments[2..]);
    }
    let rounds: usize = arguments.get(1).map_or(Ok(5000), |rounds| rounds.parse())?;
    let world = towpath::create(Some(&format!("tokio-{}", std::process::id())), &WorldConfig::new(2))?;
    world.enter(Some(0))?;
    // Inherited by the other process.
    let [there, back] = [eventfd(0, EventfdFlags::NONBLOCK)?, eventfd(0, EventfdFlags::NONBLOCK)?];
    let mut other = start_other(&world, [&there, &back], rounds)?;
    let measured = runtime()?.block_on(async {
        let mut end = End::new(&world, back, there, ["back", "there"])?;
        end.eventfds.receive().await?; // the other one is there
        println!("by {:?}", end.polled.get_ref().means());
        let mut times = [const { Vec::new() }; WAYS.len()];
        for _ in 0..RUNS {
            for (way, times) in WAYS.iter().zip(&mut times) {
                let start = Instant::now();
                for _ in 0..rounds {
                    end.send(way).await?;
                    end.receive(way).await?;
                }
                times.push(start.elapsed().as_secs_f64() * 1e6 / rounds as f64);
            }
        }
        Ok::<_, Failure>(times)
    });
    let mut times = measured?;
    other.wait()?;
    let base = median(&mut times[0].clone());
    for (way, times) in WAYS.iter().zip(&mut times) {
        let middle = median(times);
        println!(
            "{way:<11} {middle:7.2} µs there and back ({:.2} to {:.2}), {:.2} of an eventfd's",
            times[0],
            times[times.len() - 1],
            middle / base
        );
    }
    Ok(())
}

/// The other process: answers each message.
fn answer(arguments: &[String]) -> Result<(), Failure> {
    let [name, there, back, rounds] = arguments else { return Err("arguments are missing".into()) };
    let world = World::open(name)?;
    world.enter(Some(1))?;
    let inherited = |number: &String| -> Result<OwnedFd, Failure> {
        // SAFETY: inherited for this purpose, and used once.
        Ok(unsafe { OwnedFd::from_raw_fd(number.parse()?) })
    };
    let (read, write) = (inherited(there)?, inherited(back)?);
    let rounds: usize = rounds.parse()?;
    runtime()?.block_on(async {
        let mut end = End::new(&world, read, write, ["there", "back"])?;
        end.eventfds.send()?;
        for _ in 0..RUNS {
            for way in WAYS {
                for _ in 0..rounds {
                    end.receive(way).await?;
                    end.send(way).await?;
                }
            }
        }
        Ok(())
    })
}
