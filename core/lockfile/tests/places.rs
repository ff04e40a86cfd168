//! Places of one process's threads: order, readers, tokens, deaths, files.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use towpath_lockfile::{Error, Leaving, LockAccess, LockPlace, survey};

const ALONE: LockAccess = LockAccess::Exclusive;

/// Name that no other test uses.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test of places/{}/{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn enter(name: &str, access: LockAccess) -> LockPlace {
    LockPlace::enter(name, access, "a test").unwrap()
}

fn is_there(name: &str) -> bool {
    !survey(Some(name)).unwrap().0.is_empty()
}

#[test]
fn threads_exclude_each_other_and_tokens_increase() {
    let name = unique();
    let tokens = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let place = enter(&name, ALONE);
                    let grant = place.wait().unwrap();
                    tokens.try_lock().expect("one holder at a time").push(grant.token);
                    place.leave(Leaving::Consistent).unwrap();
                }
            });
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert_eq!(tokens.len(), 400);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert!(!is_there(&name), "the last user removes the file");
}

#[test]
fn places_are_served_in_their_order() {
    let name = unique();
    let first = enter(&name, ALONE);
    first.try_take().unwrap().unwrap();
    let places: Vec<LockPlace> = (0..5).map(|_| enter(&name, ALONE)).collect();
    let served = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (number, place) in places.iter().enumerate().rev() {
            let served = &served;
            scope.spawn(move || {
                place.wait().unwrap();
                served.lock().unwrap().push(number);
                place.leave(Leaving::Consistent).unwrap();
            });
        }
        assert!(places[4].try_take().unwrap().is_none());
        first.leave(Leaving::Consistent).unwrap();
    });
    assert_eq!(served.into_inner().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn readers_share_and_do_not_overtake_a_writer() {
    let name = unique();
    let readers = [enter(&name, LockAccess::Shared), enter(&name, LockAccess::Shared)];
    assert!(readers.iter().all(|reader| reader.try_take().unwrap().is_some()));
    let writer = enter(&name, ALONE);
    let late = enter(&name, LockAccess::Shared);
    assert!(writer.try_take().unwrap().is_none() && late.try_take().unwrap().is_none());
    readers[0].leave(Leaving::Unchanged).unwrap();
    assert!(writer.try_take().unwrap().is_none());
    readers[1].leave(Leaving::Unchanged).unwrap();
    assert!(late.try_take().unwrap().is_none());
    assert!(writer.try_take().unwrap().is_some());
    assert_eq!(writer.give_up().unwrap(), writer.try_take().unwrap(), "a holder does not give up");
    writer.leave(Leaving::Consistent).unwrap();
    assert!(late.try_take().unwrap().is_some());
    late.leave(Leaving::Unchanged).unwrap();
    assert!(!is_there(&name));
}

#[test]
fn waiter_that_gives_up_is_passed_over() {
    let name = unique();
    let holder = enter(&name, ALONE);
    holder.try_take().unwrap().unwrap();
    let (middle, last) = (enter(&name, ALONE), enter(&name, ALONE));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| last.wait().unwrap());
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(middle.give_up().unwrap(), None);
        assert!(matches!(middle.wait(), Err(Error::Withdrawn)));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waits.is_finished(), "the holder still holds it");
        holder.leave(Leaving::Consistent).unwrap();
        waits.join().unwrap();
    });
    last.leave(Leaving::Consistent).unwrap();
    assert!(!is_there(&name));
}

#[test]
fn death_of_a_writer_is_told_until_it_is_repaired() {
    let name = unique();
    let told = |leaving| {
        let place = enter(&name, ALONE);
        let grant = place.wait().unwrap();
        place.leave(leaving).unwrap();
        grant.previous_owner_died
    };
    let first = enter(&name, ALONE);
    let token = first.wait().unwrap().token;
    drop(first);
    assert!(is_there(&name), "a death is remembered");
    assert!(told(Leaving::Unchanged) && told(Leaving::Unchanged));
    let reader = enter(&name, LockAccess::Shared);
    assert!(reader.wait().unwrap().previous_owner_died);
    reader.leave(Leaving::Consistent).unwrap();
    assert!(told(Leaving::Consistent), "a reader repairs nothing");
    assert!(!is_there(&name));
    let again = enter(&name, ALONE);
    let grant = again.wait().unwrap();
    assert!(!grant.previous_owner_died && grant.token > token, "also in a new file");
    again.leave(Leaving::Consistent).unwrap();
}

#[test]
fn lifeline_of_a_child_keeps_the_lock() {
    let name = unique();
    let place = enter(&name, ALONE);
    place.wait().unwrap();
    let kept = place.lifeline().try_clone_to_owned().unwrap();
    // As if the process had died: what it was is in the file.
    std::mem::forget(place);
    let next = enter(&name, ALONE);
    assert!(next.try_take().unwrap().is_none());
    let holders = || survey(Some(&name)).unwrap().0.remove(0).holders;
    assert_eq!(holders().len(), 1);
    // The forgotten place has a descriptor of its own, which no more than its copy is open.
    drop(kept);
    assert_eq!(holders().len(), 1);
    // Those of the other tests are there, too.
    let (locks, _) = survey(None).unwrap();
    assert!(locks.iter().any(|lock| lock.name == name && lock.waiters.len() == 1));
    drop(next);
    assert!(!survey(Some(&name)).unwrap().0.remove(0).remove().unwrap(), "it is in use");
    std::fs::remove_file(survey(Some(&name)).unwrap().0.remove(0).path).unwrap();
}

#[test]
fn file_that_is_no_lock_is_refused_and_stays() {
    let name = unique();
    let path = {
        let place = enter(&name, ALONE);
        place.wait().unwrap();
        survey(Some(&name)).unwrap().0.remove(0).path
    };
    for content in [&b"not a lock, but a text of someone"[..], &[0xff; 9000]] {
        std::fs::write(&path, content).unwrap();
        let error = LockPlace::enter(&name, ALONE, "").unwrap_err();
        assert!(matches!(error, Error::NotTrusted { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
        assert_eq!(survey(Some(&name)).unwrap().1.len(), 1);
    }
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(matches!(LockPlace::enter(&name, ALONE, ""), Err(Error::NotTrusted { .. })));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn holder_whose_file_was_removed_is_told() {
    let name = unique();
    let place = enter(&name, ALONE);
    place.wait().unwrap();
    assert!(!place.is_removed());
    std::fs::remove_file(survey(Some(&name)).unwrap().0.remove(0).path).unwrap();
    assert!(place.is_removed());
    let error = place.leave(Leaving::Consistent).unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    assert!(error.to_string().contains("towpath clean"), "{error}");
}

/// The child writes no further than the header, as in a file system that is full.
#[test]
fn place_that_can_not_be_written_leaves_no_file() {
    const NAME: &str = "TOWPATH_TEST_NAME";
    if let Ok(name) = std::env::var(NAME) {
        let error = LockPlace::enter(&name, ALONE, "a test").unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
        return;
    }
    let name = unique();
    let limited =
        "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact place_that_can_not_be_written_leaves_no_file";
    let run = |name: &str| {
        let program = std::env::current_exe().unwrap();
        let output =
            std::process::Command::new("sh").args(["-c", limited]).arg(program).env(NAME, name).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    };
    run(&name);
    assert!(!is_there(&name), "no file is left");
    let holder = enter(&name, ALONE);
    holder.try_take().unwrap().unwrap();
    run(&name);
    assert!(is_there(&name), "a file with a holder stays");
    holder.leave(Leaving::Consistent).unwrap();
    assert!(!is_there(&name));
}
