//! Memory of a mutex that becomes something else while its last owner is killed in the
//! unlock (sourceware 14485): pthread's robust mutex, and ours, after the same kills.
//!
//! The mutex is unlocked, so another process may take it, find that it was the last user, and put
//! other data there. Then the kernel, which still has the address in the dead thread's list, may
//! take those data for the word of a mutex. Ours must be clean; pthread's outcome is printed.

use std::mem::size_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use towpath_shm::{World, WorldSpec};
use towpath_sync::Mutex;
use towpath_testkit::{Choice, Victim, mark, shared_words};

/// Number of kills, and of those after which data were changed that are no mutex.
#[derive(Debug, Default)]
struct Kills {
    all: u32,
    harmful: u32,
}

/// Kills a process at the steps of an act that the choice has, each time after
/// `act(round)` has forked it.
///
/// The act returns the victim, which stands at its mark before the unlock, and the words of the
/// mutex. `is_free` says whether another process may take these for something else.
fn kill_at_steps(
    choice: &Choice,
    is_free: fn(&[&AtomicU32]) -> bool,
    mut act: impl FnMut() -> (Victim, Vec<&'static AtomicU32>),
) -> Kills {
    let (mut kills, mut steps) = (Kills::default(), 0);
    loop {
        let (mut victim, words) = act();
        let complete = victim.run(steps, |_, _| {});
        // The worst that the new data can be: the id of the dead thread.
        let data = victim.pid();
        let is_free = is_free(&words);
        if is_free {
            words.iter().for_each(|word| word.store(data, SeqCst));
        }
        victim.kill();
        kills.all += 1;
        let is_harmed = is_free && words.iter().any(|word| word.load(SeqCst) != data);
        kills.harmful += u32::from(is_harmed);
        if complete {
            return kills;
        }
        steps = choice.after(steps);
    }
}

fn halves(words: &'static [AtomicU64], bytes: usize) -> Vec<&'static AtomicU32> {
    assert!(bytes <= size_of_val(words));
    let first = words.as_ptr().cast::<u32>().cast_mut();
    // SAFETY: halves of atomic words that stay for good; whole words are not used meanwhile.
    (0..bytes / 4).map(|n| unsafe { AtomicU32::from_ptr(first.add(n)) }).collect()
}

fn of_pthread(choice: &Choice) -> Kills {
    let words = shared_words(8);
    let mutex = words.as_ptr().cast_mut().cast::<libc::pthread_mutex_t>();
    // The first word has the owner.
    kill_at_steps(
        choice,
        |words| words[0].load(SeqCst) == 0,
        || {
            words.iter().for_each(|word| word.store(0, SeqCst));
            // SAFETY: the words are shared, zero, aligned, and large enough, as `halves` checks;
            // the attributes are initialized before they are used.
            unsafe {
                let mut attributes = std::mem::zeroed();
                libc::pthread_mutexattr_init(&mut attributes);
                libc::pthread_mutexattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED);
                libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST);
                assert_eq!(libc::pthread_mutex_init(mutex, &attributes), 0);
            }
            let mut victim = Victim::fork(|| {
                // SAFETY: initialized above.
                unsafe {
                    // The first call of each resolves its name.
                    libc::pthread_mutex_lock(mutex);
                    libc::pthread_mutex_unlock(mutex);
                    libc::pthread_mutex_lock(mutex);
                    mark();
                    libc::pthread_mutex_unlock(mutex);
                }
                mark();
                Ok(())
            });
            victim.reach_mark();
            (victim, halves(words, size_of::<libc::pthread_mutex_t>()))
        },
    )
}

fn ours(choice: &Choice) -> Kills {
    let mut worlds = Vec::new();
    // Nor may the death of an owner change it in another way than a process would.
    kill_at_steps(
        choice,
        |_| true,
        || {
            let spec =
                WorldSpec { name: None, processes: 2, area_bytes: 0, object_bytes: 1 << 14, params: [0; 16] };
            let world = World::create(&spec).unwrap();
            let theirs = world.reopen().unwrap();
            world.enter(Some(0)).unwrap();
            let mutex = world.mutex("m", 0u64).unwrap();
            let mut victim = Victim::fork(|| {
                theirs.enter(Some(1))?;
                let mutex = theirs.mutex("m", 0u64)?;
                drop(mutex.lock()?);
                let guard = mutex.lock()?;
                mark();
                drop(guard);
                mark();
                Ok(())
            });
            victim.reach_mark();
            let first = mutex.as_ptr().as_ptr().cast::<u32>();
            // SAFETY: the object is of that size, made of atomic words, and mapped as long as the
            // handle lives, which is kept below.
            let words =
                (0..size_of::<Mutex<u64>>() / 4).map(|n| unsafe { AtomicU32::from_ptr(first.add(n)) });
            let words = words.collect();
            worlds.push((world, mutex));
            (victim, words)
        },
    )
}

/// Both, one after the other.
pub fn side_by_side(choice: &Choice) {
    let (theirs, ours) = (of_pthread(choice), ours(choice));
    println!("{:<40}{theirs:?} of pthread's unlock; {ours:?} of ours", "mutex whose memory is reused");
    assert!(theirs.all > 6 && ours.all > 6, "too short to be an unlock");
    assert_eq!(ours.harmful, 0, "the death of an owner changed memory that was no mutex any more");
}
