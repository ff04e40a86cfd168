//! Pipes and Unix sockets: 8-byte messages through the kernel.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::shared::{Left, ReaderFigures};
use crate::transport::{Circumstances, Contender, Stress};
use towpath_host::Error;
use towpath_host::process::{SharedPages, SharedRow, team};
use towpath_report::stats::median_of_batches;

use std::sync::atomic::Ordering;

/// A kind of byte stream.
pub struct Stream {
    name: &'static str,
    connect: fn() -> std::io::Result<(File, File)>,
}

/// A writer's last message.
const END: u64 = u64::MAX;
/// Time to start and end when cores are few.
const GRACE: Duration = Duration::from_secs(30);

fn system(source: std::io::Error) -> Error {
    Error::system("using a stream", source)
}

impl Stream {
    /// A pipe. (Writing end, reading end.)
    pub fn pipe() -> Stream {
        Stream {
            name: "pipe",
            connect: || {
                let (read, write) = rustix::pipe::pipe()?;
                Ok((File::from(write), File::from(read)))
            },
        }
    }

    /// A pair of Unix stream sockets.
    pub fn unix_socket() -> Stream {
        Stream {
            name: "unix-socket",
            connect: || {
                let (a, b): (OwnedFd, OwnedFd) =
                    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
                Ok((File::from(a), File::from(b)))
            },
        }
    }

    fn cores(run: &Circumstances<'_>, procs: usize) -> Vec<Option<usize>> {
        (0..procs).map(|n| run.placement.core_for(n, procs)).collect()
    }
}

fn succeed(result: std::io::Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            towpath_report::console::remark(format_args!("{error}"));
            3
        }
    }
}

impl Contender for Stream {
    fn name(&self) -> &str {
        self.name
    }

    fn round_trip(&mut self, run: &Circumstances<'_>) -> Result<f64, Error> {
        let (there, back) = ((self.connect)().map_err(system)?, (self.connect)().map_err(system)?);
        let figure = SharedRow::<Left>::row(1)?;
        const ROUNDS: u64 = 200;
        let limit = run.limit / 2;
        team(&Self::cores(run, 2), run.limit * 4 + GRACE, |rank| {
            succeed((|| {
                let mut word = [0u8; 8];
                if rank == 0 {
                    // Answers until it is told to stop.
                    loop {
                        (&there.1).read_exact(&mut word)?;
                        (&back.0).write_all(&word)?;
                        if word[0] == 1 {
                            return Ok(());
                        }
                    }
                }
                let each = median_of_batches(limit, ROUNDS, |n| {
                    (0..n).try_for_each(|_| {
                        (&there.0).write_all(&[0; 8])?;
                        (&back.1).read_exact(&mut word)
                    })
                })?;
                figure[0].put(each);
                (&there.0).write_all(&[1; 8])?;
                (&back.1).read_exact(&mut word)
            })())
        })?;
        Ok(figure[0].get())
    }

    /// One stream, which all write to (writes of 8 bytes are atomic); the reader takes
    /// what is there, up to 4 KiB at a time.
    fn stress(&mut self, writers: u32, messages: u64, run: &Circumstances<'_>) -> Result<Stress, Error> {
        let (into, from) = (self.connect)().map_err(system)?;
        let w = writers as usize;
        let (start_word, figures) = (SharedPages::new(1)?, SharedRow::<ReaderFigures>::row(1)?);
        let shares = SharedRow::<Left>::row(w)?;
        let limit = run.limit;
        let exits = {
            let (go, figures, shares) = (start_word.word(0), &figures[0], &shares);
            let (into, from) = (&into, &from);
            team(&Self::cores(run, w + 1), limit * 4 + GRACE, |rank| {
                succeed((|| {
                    let (mut into, mut from) = (into, from);
                    if rank > 0 {
                        let n = rank as u64 - 1;
                        let mine =
                            messages / u64::from(writers) + u64::from(messages % u64::from(writers) > n);
                        // (W1) Acquire: pairs with the reader's Release (W2).
                        while go.load(Ordering::Acquire) == 0 {
                            std::thread::yield_now();
                        }
                        let deadline = Instant::now() + limit;
                        let message = n.to_le_bytes();
                        for sent in 0..mine {
                            into.write_all(&message)?;
                            if sent % 256 == 255 && Instant::now() > deadline {
                                break;
                            }
                        }
                        return into.write_all(&END.to_le_bytes());
                    }
                    let mut buffer = [0u8; 4096];
                    let mut counts = vec![0u64; w];
                    let (mut arrived, mut kept) = (0u64, 0);
                    // (W2) Release: pairs with the writers' Acquire (W1).
                    go.store(1, Ordering::Release);
                    let start = Instant::now();
                    let mut ended = 0;
                    while ended < w {
                        let have = kept + from.read(&mut buffer[kept..])?;
                        for message in buffer[..have].chunks_exact(8) {
                            let writer = u64::from_le_bytes(message.try_into().unwrap_or_default());
                            if writer == END {
                                if ended == 0 {
                                    for (share, count) in shares.iter().zip(&counts) {
                                        share.put(*count as f64);
                                    }
                                }
                                ended += 1;
                                continue;
                            }
                            counts[(writer as usize).min(w - 1)] += 1;
                            arrived += 1;
                        }
                        kept = have % 8;
                        buffer.copy_within(have - kept..have, 0);
                    }
                    figures.seconds.put(start.elapsed().as_secs_f64());
                    figures.messages.put(arrived as f64);
                    Ok(())
                })())
            })?
        };
        Ok(Stress {
            messages: figures[0].messages.get() as u64,
            seconds: figures[0].seconds.get(),
            shares: shares.iter().map(Left::get).collect(),
            cpu_seconds: Some(exits.iter().map(|e| e.cpu.as_secs_f64()).sum()),
        })
    }

    fn bulk(&mut self, bytes: u64, _path: &str, run: &Circumstances<'_>) -> Result<f64, Error> {
        let (there, back) = ((self.connect)().map_err(system)?, (self.connect)().map_err(system)?);
        let figure = SharedRow::<Left>::row(1)?;
        let limit = run.limit / 2;
        team(&Self::cores(run, 2), run.limit * 4 + GRACE, |rank| {
            succeed((|| {
                let mut buffer = vec![0u8; bytes as usize + 1];
                let mut word = [0u8; 1];
                if rank == 0 {
                    loop {
                        (&there.1).read_exact(&mut buffer)?;
                        if buffer[0] == 1 {
                            return (&back.0).write_all(&word);
                        }
                    }
                }
                let (start, mut count) = (Instant::now(), 0u64);
                while start.elapsed() < limit || count < 2 {
                    (&there.0).write_all(&buffer)?;
                    count += 1;
                }
                buffer[0] = 1;
                (&there.0).write_all(&buffer)?;
                (&back.1).read_exact(&mut word)?;
                let rate = (count + 1) as f64 * bytes as f64 / start.elapsed().as_secs_f64();
                figure[0].put(rate);
                Ok(())
            })())
        })?;
        Ok(figure[0].get())
    }
}
