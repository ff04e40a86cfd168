//! Children of a member that were forked with its handles, and have not entered: handles
//! that they drop stay their parent's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use towpath::structures::nonblocking;
use towpath::{Endpoint, WorldConfig};

/// Runs `act` in a forked child, which then ends. Returns its exit code.
fn in_child(act: impl FnOnce()) -> i32 {
    // SAFETY: the child uses what a child of a process with several threads may use in practice
    // with glibc (which makes its allocator safe across fork), and ends without running anything of
    // the parent's.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            libc::_exit(if done.is_ok() { 0 } else { 101 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        libc::WEXITSTATUS(status)
    }
}

#[test]
fn endpoint_dropped_by_a_forked_child_stays_its_parents() {
    let world = towpath::create(None, &WorldConfig::new(2)).unwrap();
    world.enter(Some(0)).unwrap();
    let other = world.reopen().unwrap();
    other.enter(Some(1)).unwrap();
    let (near, far) = (Endpoint::new(&world).unwrap(), Endpoint::new(&other).unwrap());
    let seen = Arc::new(AtomicU32::new(0));
    let count = seen.clone();
    far.set_handler(1, move |_| {
        count.fetch_add(1, Relaxed);
    });
    near.map(0, far.name(), towpath::Tag::ALL).unwrap();
    // The child has copies of all handles; it ends as a program does that returns from `main`.
    let mut handles = Some((near, far, other));
    assert_eq!(in_child(|| drop(handles.take())), 0);
    let (near, far, _other) = handles.unwrap();
    for n in 1..=10 {
        near.request(0, 1, &[n]).unwrap();
        far.poll();
        assert_eq!(seen.load(Relaxed), n);
    }
    assert_eq!(near.audit(), towpath::Audit::default());
}

#[test]
fn place_dropped_by_a_forked_child_stays_its_parents() {
    let world = towpath::create(None, &WorldConfig::new(2)).unwrap();
    world.enter(Some(0)).unwrap();
    let open = || nonblocking::open::<nonblocking::in_world::Stack<101, 2>>(&world, "stack");
    let first = open().unwrap();
    let mut copy = Some(first);
    assert_eq!(in_child(|| drop(copy.take())), 0);
    let first = copy.unwrap();
    let second = open().unwrap();
    assert_ne!(first.participant(), second.participant(), "two handles with one place");
}
