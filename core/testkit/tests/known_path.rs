//! A victim that runs along a path stands where one stands that is stepped.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use towpath_testkit::{KnownPath, Victim, mark, pin, shared_words, two_cores, watchdog};

/// Act of a victim: loops within a loop, and a system call in each turn.
fn act(word: &AtomicU64, turns: u64) {
    word.store(0, Relaxed);
    mark();
    for turn in 0..turns {
        for i in 0..turn % 4 {
            word.fetch_add(i, Relaxed);
        }
        word.fetch_add(u64::from(std::process::id() > 0), Relaxed);
    }
    mark();
}

/// Place of a victim after so many steps, and its word. `None`: it is through.
fn stands(
    word: &'static AtomicU64,
    path: Option<&mut KnownPath>,
    steps: u64,
    turns: u64,
) -> Option<(u64, u64)> {
    let mut victim = Victim::fork(|| {
        act(word, turns);
        Ok(())
    });
    victim.reach_mark();
    let complete = match path {
        Some(path) => {
            let complete = victim.run_along(path, steps);
            assert!(complete || !path.is_done(complete));
            complete
        }
        None => victim.run(steps, |_, _| {}),
    };
    // Relaxed: the victim is stopped.
    (!complete).then(|| (victim.place(), word.load(Relaxed)))
}

fn main() {
    pin(two_cores()[0]);
    let word = &shared_words(1)[0];
    watchdog::begin("a victim along a path".into(), 100);
    let mut path = KnownPath::default();
    let mut steps = 0;
    loop {
        watchdog::at(steps);
        let stepped = stands(word, None, steps, 9);
        assert_eq!(stands(word, Some(&mut path), steps, 9), stepped, "after step {steps}");
        if stepped.is_none() {
            break;
        }
        steps += 1;
    }
    assert!(steps > 100, "{steps} steps");
    assert!(path.is_done(true));

    // One that does less never comes to the end of the path: it is through, and the case is not.
    assert_eq!(stands(word, Some(&mut path), steps / 2, 1), None);
    assert!(!path.is_done(true), "a victim that left the path ended the case");
    // Nor is the next one led astray by what is no longer true.
    assert_eq!(stands(word, Some(&mut path), 20, 1), stands(word, None, 20, 1));
    println!("test result: ok. 2 passed; 0 failed");
}
