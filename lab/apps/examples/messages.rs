//! Runs one application over messages natively, and prints the result:
//! `cargo run --release -p towpath-apps --example messages -- APPLICATION SIZE RANKS [CLAIM]`.

use std::time::Duration;

use towpath::{Algorithm, WorldConfig};
use towpath_apps::Size;
use towpath_apps::messages::processes::run_processes;
use towpath_apps::messages::{MessageApplication, MessageInput};

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |n: usize, default: &str| words.get(n).cloned().unwrap_or_else(|| default.into());
    let application = MessageApplication::from_name(&word(0, "fft")).ok_or("no such application")?;
    let size = Size::from_name(&word(1, "medium")).ok_or("no such size")?;
    let procs: u32 = word(2, "2").parse().map_err(|_| "no such number of ranks")?;
    let algorithm = Algorithm::from_name(&word(3, "towpath")).ok_or("no such claim algorithm")?;
    let config = WorldConfig { algorithm, ..WorldConfig::new(procs) };
    let input = MessageInput { size, seed: 1 };
    let runs = run_processes(application, input, &config, &[], Duration::from_secs(600))?;
    let ns = runs.iter().map(|r| r.ns).max().unwrap_or(0);
    let requests: u64 = runs.iter().map(|r| r.requests).sum();
    #[allow(clippy::print_stdout)]
    {
        let time = Duration::from_nanos(ns);
        println!("{}: {time:?} on {procs}, {requests} requests: {}", application.name(), runs[0].text);
    }
    Ok(())
}
