//! The examples while random bytes are written over their world's area: messages may be
//! lost or nonsense, and a rank may wait for ever for one, but none panics and none touches memory
//! that is not there.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::launching::common::{Directory, Watchdog};
use crate::launching::examples;
use rustix::process::{Pid, Signal, kill_process};
use towpath_machine::Random;

/// Offset of the header's word with the area's offset (`core/shm/src/layout.rs`).
const AREA_OFFSET: u64 = 24;

/// Returns whether the launcher, a child not yet waited for, has ended.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Writes over the area, for a fifth of a second; returns how many times. One in eight
/// goes to its first page, where the first words are.
fn damage(file: &fs::File, random: &mut Random, launcher: u32) -> u32 {
    let mut start = [0; 8];
    file.read_exact_at(&mut start, AREA_OFFSET).unwrap();
    let (start, end) = (u64::from_le_bytes(start), file.metadata().unwrap().len());
    assert!((4096..end).contains(&start), "the area begins at {start} of {end}");
    let mut writes = 0;
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(200) && (writes % 64 != 0 || !has_ended(launcher)) {
        let room = if random.below(8) == 0 { 4096 } else { end - start };
        let length = 1 + random.below(64);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let at = start + random.below(room);
        file.write_all_at(&bytes[..bytes.len().min((end - at) as usize)], at).unwrap();
        writes += 1;
    }
    writes
}

/// Runs an example under damage, with several seeds.
fn survives(test: &'static str, options: &[&str], example: &str) {
    let dog = Watchdog::new(test);
    let directory = Directory::new();
    let mut writes = 0;
    for seed in 1..=4u64 {
        let mut random = Random::new(seed);
        let name = format!("hostile-{seed}");
        let path = directory.0.join(format!("towpath.{}.{name}", rustix::process::geteuid().as_raw()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.args(["run", "-n", "4", "--world", &name]).args(options).arg(examples().join(example));
        command.env("TOWPATH_SHM_DIR", &directory.0);
        let launcher = dog.spawn(command);
        let file = loop {
            match fs::OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => break file,
                Err(_) => assert!(!has_ended(launcher.pid()), "seed {seed}: no world was made"),
            }
        };
        // Odd seeds: from the start. Even ones: once messages go.
        sleep(Duration::from_millis(if seed % 2 == 0 { 10 } else { 0 }));
        writes += damage(&file, &mut random, launcher.pid());
        drop(file);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(400) && !has_ended(launcher.pid()) {
            sleep(Duration::from_millis(5));
        }
        // A rank waits for a message that is lost. The launcher is not waited for yet, so that the
        // number is still its own.
        let _ = kill_process(Pid::from_raw(launcher.pid() as i32).unwrap(), Signal::TERM);
        let (status, _, errors) = launcher.finish();
        let code = status.code().unwrap_or(0);
        assert!(![101, 128 + 7, 128 + 11].contains(&code), "seed {seed}: {status}: {errors}");
        for word in ["panicked", "code 101", "SIGSEGV", "SIGBUS"] {
            assert!(!errors.contains(word), "seed {seed}: {status}: {errors}");
        }
        let _ = fs::remove_file(&path);
    }
    assert!(writes > 0, "nothing was damaged");
}

#[test]
fn key_value_under_hostile_bytes_does_not_panic() {
    survives("key_value_under_hostile_bytes_does_not_panic", &["--on-death=report"], "key_value");
}

#[test]
fn survivors_under_hostile_bytes_do_not_panic() {
    survives("survivors_under_hostile_bytes_do_not_panic", &["--on-death=report"], "survivors");
}
