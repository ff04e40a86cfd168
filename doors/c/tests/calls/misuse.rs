//! Calls as a C program makes them, right and wrong: each is answered by a number.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};

use towpath_c::barrier::*;
use towpath_c::broadcast::*;
use towpath_c::call::guarded;
use towpath_c::condition::*;
use towpath_c::event::*;
use towpath_c::fault::{Fault, tp_last_error, tp_strerror};
use towpath_c::messages::*;
use towpath_c::mutex::*;
use towpath_c::queue::*;
use towpath_c::rw_lock::*;
use towpath_c::semaphore::*;
use towpath_c::world::*;

const FOREVER: u64 = u64::MAX;

/// Zeroed memory that stays.
fn memory(bytes: usize) -> *mut c_void {
    towpath_testkit::shared_words(bytes.div_ceil(8)).as_ptr().cast_mut().cast()
}

/// A handle that `open` makes.
pub(crate) fn opened<T>(
    open: impl FnOnce(Option<&mut MaybeUninit<*mut T>>) -> c_int,
) -> Result<&'static T, Fault> {
    let mut place = MaybeUninit::uninit();
    match open(Some(&mut place)) {
        // SAFETY: written by each call; not null after success.
        0 => Ok(unsafe { &*place.assume_init() }),
        error => {
            // SAFETY: written by each call.
            assert!(unsafe { place.assume_init() }.is_null());
            Err(Fault(error))
        }
    }
}

/// Gives a handle back.
pub(crate) fn owned<T>(handle: &'static T) -> Option<Box<T>> {
    // SAFETY: made by `opened`, out of a box; each is given back once.
    Some(unsafe { Box::from_raw(core::ptr::from_ref(handle).cast_mut()) })
}

/// A world of this process's threads.
fn tp_world_of_threads(out: Option<&mut MaybeUninit<*mut TpWorld>>) -> c_int {
    // SAFETY: without a name.
    unsafe { tp_world_create(null(), 2, 0, out) }
}

/// A mutex in memory of its own.
fn mutex() -> (&'static TpMutex, *mut c_void, usize) {
    let room = tp_mutex_size(4, 2);
    let at = memory(room);
    // SAFETY: the memory stays, and is this test's.
    (opened(|out| unsafe { tp_mutex_init(at, room, 4, out) }).unwrap(), at, room)
}

#[test]
fn null_pointers_are_refused() {
    let invalid = Fault::INVALID.number();
    // SAFETY: null pointers, which the calls must find.
    unsafe {
        assert_eq!(tp_mutex_init(null_mut(), 1 << 20, 4, Some(&mut MaybeUninit::uninit())), invalid);
        assert_eq!(tp_mutex_open(memory(64), 64, None), invalid);
        assert_eq!(tp_cond_open(None, null(), Some(&mut MaybeUninit::uninit())), invalid);
        assert_eq!(tp_sender_send(None, null(), 0), invalid);
        assert_eq!(tp_world_open(null(), Some(&mut MaybeUninit::uninit())), invalid);
        assert_eq!(tp_rwlock_read_unlock(None, None), invalid);
    }
    for result in [tp_mutex_lock(None), tp_mutex_unlock(None), tp_sem_wait(None, 0), tp_event_set(None)] {
        assert_eq!(result, invalid);
    }
    assert!(tp_mutex_value(None).is_null() && tp_bytes_at(None).is_null());
    tp_mutex_close(None);
    tp_world_close(None);
}

#[test]
fn mutex_knows_its_holder() {
    let (first, at, room) = mutex();
    // SAFETY: as in `mutex`.
    let second = opened(|out| unsafe { tp_mutex_open(at, room, out) }).unwrap();
    assert_eq!(tp_mutex_unlock(Some(first)), Fault::PERM.number());
    assert_eq!(tp_mutex_lock(Some(first)), 0);
    assert_eq!(tp_mutex_lock(Some(first)), Fault::DEADLOCK.number());
    assert_eq!(tp_mutex_trylock(Some(second)), Fault::TIMEDOUT.number());
    assert_eq!(tp_mutex_timedlock(Some(second), 1_000_000), Fault::TIMEDOUT.number());
    assert_eq!(tp_mutex_unlock(Some(second)), Fault::PERM.number());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| (tp_mutex_trylock(Some(first)), tp_mutex_unlock(Some(first))));
        assert_eq!(other.join().unwrap(), (Fault::TIMEDOUT.number(), Fault::PERM.number()));
    });
    // SAFETY: held.
    unsafe { *tp_mutex_value(Some(first)) = 7 };
    assert_eq!(tp_mutex_unlock(Some(first)), 0);
    // A handle that is closed while it holds the mutex counts as a death.
    assert_eq!(tp_mutex_lock(Some(second)), 0);
    // SAFETY: held.
    assert_eq!(unsafe { *tp_mutex_value(Some(second)) }, 7);
    tp_mutex_close(owned(second));
    for _ in 0..2 {
        assert_eq!(tp_mutex_lock(Some(first)), Fault::OWNERDEAD.number());
        assert_eq!(tp_mutex_unlock(Some(first)), 0);
    }
    assert_eq!(tp_mutex_lock(Some(first)), Fault::OWNERDEAD.number());
    assert_eq!(tp_mutex_consistent(Some(first)), 0);
    assert_eq!(tp_mutex_unlock(Some(first)), 0);
    assert_eq!(tp_mutex_consistent(Some(first)), Fault::PERM.number());
    assert_eq!(tp_mutex_lock(Some(first)), 0);
    assert_eq!(tp_mutex_unlock(Some(first)), 0);
    tp_mutex_close(owned(first));
}

#[test]
fn threads_share_a_handle() {
    let (mutex, ..) = mutex();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    assert_eq!(tp_mutex_lock(Some(mutex)), 0);
                    // SAFETY: held.
                    unsafe { *tp_mutex_value(Some(mutex)) += 1 };
                    assert_eq!(tp_mutex_unlock(Some(mutex)), 0);
                }
            });
        }
    });
    // SAFETY: no other thread has it.
    assert_eq!(unsafe { *tp_mutex_value(Some(mutex)) }, 8000);
}

#[test]
fn conditions_wake_and_time_out() {
    let (mutex, ..) = mutex();
    // SAFETY: a text.
    let condition = opened(|out| unsafe { tp_cond_open(Some(mutex), c"full".as_ptr(), out) }).unwrap();
    assert_eq!(tp_cond_wait(Some(condition), Some(mutex), 1), Fault::PERM.number(), "not held");
    assert_eq!(tp_mutex_lock(Some(mutex)), 0);
    assert_eq!(tp_cond_wait(Some(condition), Some(mutex), 1_000_000), Fault::TIMEDOUT.number());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(tp_mutex_lock(Some(mutex)), 0);
            // SAFETY: held.
            unsafe { *tp_mutex_value(Some(mutex)) = 1 };
            assert_eq!(tp_cond_signal(Some(condition)), 0);
            assert_eq!(tp_mutex_unlock(Some(mutex)), 0);
        });
        // SAFETY: held.
        while unsafe { *tp_mutex_value(Some(mutex)) } == 0 {
            assert_eq!(tp_cond_wait(Some(condition), Some(mutex), FOREVER), 0);
        }
    });
    assert_eq!(tp_mutex_unlock(Some(mutex)), 0);
    assert_eq!(tp_cond_broadcast(Some(condition)), 0);
    let (other, ..) = self::mutex();
    assert_eq!(tp_mutex_lock(Some(other)), 0);
    assert_eq!(tp_cond_wait(Some(condition), Some(other), 0), Fault::APART.number());
    // There is room for two.
    // SAFETY: texts.
    let third = [c"empty", c"a", c"b", c"c", c"d"]
        .map(|name| unsafe { opened(|out| tp_cond_open(Some(mutex), name.as_ptr(), out)).err() });
    assert_eq!(third[4], Some(Fault::FULL));
}

#[test]
fn readers_and_a_writer_exclude_each_other() {
    let room = tp_rwlock_size(4);
    let at = memory(room);
    // SAFETY: the memory stays, and is this test's.
    let lock = opened(|out| unsafe { tp_rwlock_init(at, room, 4, out) }).unwrap();
    // SAFETY: the memory stays, and is this test's; a lock was made there.
    let other = opened(|out| unsafe { tp_rwlock_open(at, room, out) }).unwrap();
    let mut reading = [MaybeUninit::uninit(), MaybeUninit::uninit()];
    let [first, second] = &mut reading;
    assert_eq!(tp_rwlock_read(Some(lock), 0, Some(first)), 0);
    assert_eq!(tp_rwlock_read(Some(other), 0, Some(second)), 0);
    assert_eq!(tp_rwlock_write(Some(lock), 0), Fault::TIMEDOUT.number());
    // SAFETY: written by the calls above, which belong to these handles.
    unsafe {
        assert_eq!(tp_rwlock_read_unlock(Some(lock), Some(first.assume_init_mut())), 0);
        assert_eq!(tp_rwlock_read_unlock(Some(lock), Some(first.assume_init_mut())), Fault::PERM.number());
        assert_eq!(tp_rwlock_write(Some(lock), 0), Fault::TIMEDOUT.number());
        assert_eq!(tp_rwlock_read_unlock(Some(other), Some(second.assume_init_mut())), 0);
    }
    // SAFETY: two words, of numbers.
    let state = |words: [u64; 2]| unsafe { core::mem::transmute::<[u64; 2], TpReading>(words) };
    // SAFETY: no reader's states, which is noticed.
    let refused = |mut state: TpReading| unsafe { tp_rwlock_read_unlock(Some(lock), Some(&mut state)) };
    let perm = Fault::PERM.number();
    // First without a reader, then with one in the first place, which none of them releases.
    for _ in 0..2 {
        assert_eq!([[9999; 2], [0; 2], [0, 1], [3, 0]].map(|words| refused(state(words))), [perm; 4]);
        assert_eq!(tp_rwlock_read(Some(lock), 0, Some(first)), 0);
        assert_eq!(refused(state([0; 2])), perm);
        assert_eq!(tp_rwlock_write(Some(other), 0), Fault::TIMEDOUT.number(), "a reader is in");
        // SAFETY: written by the call above; two words, of numbers, each.
        let copy =
            state(unsafe { core::mem::transmute_copy::<TpReading, [u64; 2]>(first.assume_init_ref()) });
        // SAFETY: written by `tp_rwlock_read`, of this handle.
        assert_eq!(unsafe { tp_rwlock_read_unlock(Some(lock), Some(first.assume_init_mut())) }, 0);
        assert_eq!(refused(copy), perm, "it was released");
    }
    // A call whose time is over leaves a state that is refused.
    assert_eq!(tp_rwlock_write(Some(other), 0), 0);
    first.write(state([0, 1]));
    assert_eq!(tp_rwlock_read(Some(lock), 0, Some(first)), Fault::TIMEDOUT.number());
    // SAFETY: written above.
    assert_eq!(unsafe { tp_rwlock_read_unlock(Some(lock), Some(first.assume_init_mut())) }, perm);
    assert_eq!(tp_rwlock_write_unlock(Some(other)), 0);
    assert_eq!(tp_rwlock_write_unlock(Some(lock)), Fault::PERM.number());
    assert_eq!(tp_rwlock_write(Some(lock), FOREVER), 0);
    assert_eq!(tp_rwlock_write(Some(lock), FOREVER), Fault::DEADLOCK.number());
    assert_eq!(tp_rwlock_read(Some(lock), FOREVER, Some(second)), Fault::DEADLOCK.number());
    assert_eq!(tp_rwlock_read(Some(other), 0, Some(second)), Fault::TIMEDOUT.number());
    tp_rwlock_close(owned(lock));
    assert_eq!(tp_rwlock_read(Some(other), FOREVER, Some(second)), Fault::OWNERDEAD.number());
    // SAFETY: held for writing.
    unsafe { *tp_rwlock_value(Some(other)) = 7 };
    assert_eq!(tp_rwlock_consistent(Some(other)), 0);
    assert_eq!(tp_rwlock_write_unlock(Some(other)), 0);
    assert_eq!(tp_rwlock_read(Some(other), 0, Some(second)), 0);
}

#[test]
fn memory_says_what_it_holds() {
    let room = tp_sem_size(4).max(tp_event_size(4)).max(tp_barrier_size(4));
    let at = memory(room);
    // SAFETY: the memory stays, and is this test's; damage is what is tested.
    unsafe {
        assert_eq!(opened(|out| tp_sem_open(at, room, out)).err(), Some(Fault::NOTMADE));
        assert_eq!(opened(|out| tp_sem_init(at, 100, 4, 2, out)).err(), Some(Fault::ROOM));
        assert_eq!(opened(|out| tp_sem_init(at, room, 0, 2, out)).err(), Some(Fault::RANGE));
        let made = opened(|out| tp_sem_open_or_init(at, room, 4, 2, out)).unwrap();
        assert_eq!(opened(|out| tp_event_open(at, room, out)).err(), Some(Fault::TYPE));
        assert_eq!(opened(|out| tp_mutex_open(at, room, out)).err(), Some(Fault::TYPE));
        assert_eq!(opened(|out| tp_messages_open(at, room, 8, 2, 10_000, out)).err(), Some(Fault::TYPE));
        assert_eq!(tp_sem_wait(Some(made), FOREVER), 0);
        assert_eq!(tp_sem_wait(Some(made), FOREVER), 0);
        assert_eq!(tp_sem_wait(Some(made), 1_000_000), Fault::TIMEDOUT.number());
        let more: Vec<_> = (0..3).map(|_| opened(|out| tp_sem_open(at, room, out)).unwrap()).collect();
        assert_eq!(opened(|out| tp_sem_open(at, room, out)).err(), Some(Fault::FULL));
        assert_eq!(tp_sem_release(Some(more[0])), Fault::PERM.number());
        assert_eq!(tp_sem_release(Some(made)), 0);
        assert_eq!(tp_sem_available(Some(made)), 1);
        more.into_iter().for_each(|handle| tp_sem_close(owned(handle)));
        // The header's first lines, word by word: no damage is believed.
        let words = core::slice::from_raw_parts_mut(at.cast::<u32>(), 64);
        let version = words.iter().position(|&word| word == towpath_c::fault::tp_layout_version()).unwrap();
        let damaged = (0..words.len()).filter(|&k| {
            let before = words[k];
            words[k] = before ^ 0x40;
            let result = opened(|out| tp_sem_open(at, room, out));
            words[k] = before;
            if k == version {
                assert_eq!(result.err(), Some(Fault::VERSION));
            }
            result.map(|handle| tp_sem_close(owned(handle))).is_err()
        });
        assert!(damaged.count() >= 8);
        tp_sem_close(owned(made));
    }
}

#[test]
fn queues_carry_messages_and_tell_of_ends() {
    assert_eq!(tp_queue_size(4, 0, 0, 8), 0);
    assert_eq!(tp_queue_size(4, 0, (1 << 16) + 1, 8), 0);
    assert_eq!(tp_queue_size(4, 3, 16, 8), 0);
    assert_eq!(tp_queue_size(4, 0, 16, 0), 0);
    for (kind, size) in (0..3).flat_map(|kind| [1, 8, 13, 56, 64, 128, 4096].map(|size| (kind, size))) {
        let room = tp_queue_size(4, kind, size, 8);
        let at = memory(room);
        // SAFETY: the memory stays, and is this test's; messages have `size` bytes.
        unsafe {
            let queue = opened(|out| tp_queue_init(at, room, 4, kind, size, 8, out)).unwrap();
            for (kind, size) in [(kind, 24), ((kind + 1) % 3, size)] {
                let other = opened(|out| tp_queue_open(at, room, kind, size, 8, out));
                assert_eq!(other.err(), Some(Fault::TYPE));
            }
            let again = opened(|out| tp_queue_open(at, room, kind, size, 8, out)).unwrap();
            let sender = opened(|out| tp_sender_open(Some(queue), out)).unwrap();
            let receiver = opened(|out| tp_receiver_open(Some(again), out)).unwrap();
            tp_queue_close(owned(queue));
            let message: Vec<u8> = (0..=size).map(|k| k as u8).collect();
            // Not aligned.
            let from = message[1..].as_ptr().cast();
            for _ in 0..8 {
                assert_eq!(tp_sender_send(Some(sender), from, FOREVER), 0);
            }
            assert_eq!(tp_sender_send(Some(sender), from, 0), Fault::TIMEDOUT.number());
            assert_eq!(tp_receiver_waiting(Some(receiver)), 8);
            let mut to = vec![0u8; size + 1];
            for _ in 0..8 {
                to.fill(0);
                assert_eq!(tp_receiver_receive(Some(receiver), to.as_mut_ptr().add(1).cast(), FOREVER), 0);
                assert_eq!(to[1..], message[1..]);
            }
            let to = to.as_mut_ptr().cast();
            assert_eq!(tp_receiver_receive(Some(receiver), to, 1_000_000), Fault::TIMEDOUT.number());
            tp_sender_close(owned(sender));
            assert_eq!(tp_receiver_receive(Some(receiver), to, FOREVER), Fault::DISCONNECTED.number());
        }
    }
}

#[test]
fn leased_messages_come_again_or_go_on() {
    let world = opened(tp_world_of_threads).unwrap();
    let queue = |name: &CStr, kind, size| {
        // SAFETY: a text.
        opened(|out| unsafe { tp_world_queue(Some(world), name.as_ptr(), kind, size, 4, out) }).unwrap()
    };
    let (jobs, results, single) = (queue(c"jobs", 0, 3), queue(c"results", 1, 8), queue(c"single", 2, 3));
    let sender = opened(|out| tp_sender_open(Some(jobs), out)).unwrap();
    let receiver = opened(|out| tp_receiver_open(Some(jobs), out)).unwrap();
    let next = opened(|out| tp_sender_open(Some(results), out)).unwrap();
    let lease = |receiver: &_| {
        let (mut at, mut lease) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        match tp_receiver_lease(Some(receiver), 0, Some(&mut at), Some(&mut lease)) {
            // SAFETY: written after a success.
            0 => Ok(unsafe { (at.assume_init().cast::<[u8; 3]>().read(), lease.assume_init()) }),
            error => Err(Fault(error)),
        }
    };
    // SAFETY: messages of 3 and of 8 bytes.
    unsafe {
        assert_eq!(tp_sender_send(Some(sender), b"job".as_ptr().cast(), 0), 0);
        let (job, mut lease_of_it) = lease(receiver).unwrap();
        assert_eq!(job, *b"job");
        assert_eq!(lease(receiver).err(), Some(Fault::TIMEDOUT));
        assert_eq!(tp_receiver_end(Some(receiver), Some(&mut lease_of_it), 0), 0);
        let (_, mut lease_of_it) = lease(receiver).unwrap();
        let result = b"a result".as_ptr().cast();
        assert_eq!(tp_receiver_end_into(Some(receiver), Some(&mut lease_of_it), Some(next), result, 0), 0);
        assert_eq!(tp_receiver_end(Some(receiver), Some(&mut lease_of_it), 0), 0);
        assert_eq!(tp_receiver_waiting(Some(receiver)), 0);
        let results = opened(|out| tp_receiver_open(Some(results), out)).unwrap();
        assert_eq!(tp_receiver_waiting(Some(results)), 1);
        let twice = opened(|out| tp_receiver_open(Some(single), out)).unwrap();
        assert_eq!(opened(|out| tp_receiver_open(Some(single), out)).err(), Some(Fault::TAKEN));
        assert_eq!(lease(twice).err(), Some(Fault::RANGE));
        assert_eq!(tp_receiver_lease(Some(receiver), 0, None, None), Fault::INVALID.number());
        assert_eq!(tp_receiver_end(Some(receiver), None, 1), Fault::INVALID.number());
    }
}

#[test]
fn messages_of_any_length_stay_until_they_are_done_with() {
    assert_eq!(tp_messages_size(4, 4, 0, 1000), 0);
    let room = tp_messages_size(4, 3, 2, 1000);
    let at = memory(room);
    // SAFETY: the memory stays, and is this test's.
    unsafe {
        let made = opened(|out| tp_messages_init(at, room, 4, 3, 2, 1000, out)).unwrap();
        let messages = opened(|out| tp_messages_open(at, room, 3, 2, 1000, out)).unwrap();
        tp_messages_close(owned(made));
        assert_eq!(tp_messages_longest(Some(messages)), 1000);
        let poster = opened(|out| tp_poster_open(Some(messages), out)).unwrap();
        let fetcher = opened(|out| tp_fetcher_open(Some(messages), out)).unwrap();
        let text: Vec<u8> = (0..1001).map(|k| k as u8).collect();
        let send = |bytes| tp_poster_send(Some(poster), text.as_ptr().cast(), bytes, 0);
        assert_eq!([send(1001), send(1000), send(0), send(9)], [Fault::TOOLONG.number(), 0, 0, 0]);
        assert_eq!(send(1), Fault::TIMEDOUT.number());
        assert_eq!(tp_poster_send(Some(poster), null(), 1, 0), Fault::INVALID.number());
        let receive = || {
            let (mut at, mut bytes) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            let held =
                opened(|out| tp_fetcher_receive(Some(fetcher), 0, Some(&mut at), Some(&mut bytes), out))?;
            Ok::<_, Fault>((
                core::slice::from_raw_parts(at.assume_init().cast::<u8>(), bytes.assume_init()),
                held,
            ))
        };
        let (first, held) = receive().unwrap();
        assert_eq!(first, &text[..1000]);
        tp_message_give_back(owned(held));
        for len in [0, 9, 1000] {
            let (message, held) = receive().unwrap();
            assert_eq!(message, &text[..len]);
            tp_message_done(owned(held));
        }
        assert_eq!(receive().err(), Some(Fault::TIMEDOUT));
        assert_eq!(tp_poster_shut(Some(poster)), 0);
        assert_eq!((send(1), receive().err()), (Fault::CLOSED.number(), Some(Fault::CLOSED)));
        assert_eq!(tp_fetcher_waiting(Some(fetcher)), 0);
        tp_fetcher_close(owned(fetcher));
        tp_poster_close(owned(poster));
    }
}

#[test]
fn rings_carry_messages_to_all_readers() {
    for lossy in [0, 1] {
        let room = tp_broadcast_size(4, 4096);
        let at = memory(room);
        // SAFETY: the memory stays, and is this test's.
        unsafe {
            let ring = opened(|out| tp_broadcast_init(at, room, 4, 4096, lossy, out)).unwrap();
            let wrong = opened(|out| tp_broadcast_open(at, room, 4096, 1 - lossy, out));
            assert_eq!(wrong.err(), Some(Fault::TYPE));
            let mut writer = owned(opened(|out| tp_writer_open(Some(ring), out)).unwrap()).unwrap();
            assert_eq!(opened(|out| tp_writer_open(Some(ring), out)).err(), Some(Fault::TAKEN));
            let readers: Vec<_> = (0..2)
                .map(|_| owned(opened(|out| tp_reader_open(Some(ring), out)).unwrap()).unwrap())
                .collect();
            assert_eq!(tp_writer_readers(Some(&writer)), 2);
            let text = b"a message of any length";
            assert_eq!(tp_writer_send(Some(&mut writer), text.as_ptr().cast(), text.len(), FOREVER), 0);
            assert_eq!(tp_writer_send(Some(&mut writer), null(), 0, FOREVER), 0);
            assert_eq!(tp_writer_lost_reader(Some(&mut writer)), 0);
            tp_writer_close(Some(writer));
            for mut reader in readers {
                let (mut at, mut bytes) = (MaybeUninit::uninit(), MaybeUninit::uninit());
                let mut receive = |at: &mut _, bytes: &mut _| {
                    tp_reader_receive(Some(&mut reader), FOREVER, Some(at), Some(bytes), None)
                };
                assert_eq!(receive(&mut at, &mut bytes), 0);
                let got = core::slice::from_raw_parts(at.assume_init().cast::<u8>(), bytes.assume_init());
                assert_eq!(got, text);
                assert_eq!(receive(&mut at, &mut bytes), 0);
                assert_eq!(bytes.assume_init(), 0);
                assert_eq!(receive(&mut at, &mut bytes), Fault::DISCONNECTED.number());
            }
        }
    }
}

#[test]
fn worlds_have_objects_by_name() {
    // SAFETY: texts.
    unsafe {
        let world = opened(|out| tp_world_create(null(), 2, 0, out)).unwrap();
        assert_eq!((tp_world_rank(Some(world)), tp_world_size(Some(world))), (0, 2));
        assert_eq!((tp_world_is_alive(Some(world), 0), tp_world_is_alive(Some(world), 1)), (1, 0));
        let name = c"thing".as_ptr();
        let event = opened(|out| tp_world_event(Some(world), name, out)).unwrap();
        assert_eq!(opened(|out| tp_world_mutex(Some(world), name, 0, out)).err(), Some(Fault::TYPE));
        assert!(CStr::from_ptr(tp_last_error()).to_str().unwrap().contains("thing"));
        assert_eq!(tp_event_wait(Some(event), 1_000_000), Fault::TIMEDOUT.number());
        assert_eq!((tp_event_set(Some(event)), tp_event_is_set(Some(event))), (0, 1));
        assert_eq!((tp_event_wait(Some(event), FOREVER), tp_event_reset(Some(event))), (0, 1));
        let barrier = opened(|out| tp_world_barrier_of(Some(world), c"b".as_ptr(), 1, out)).unwrap();
        let other = opened(|out| tp_world_barrier_of(Some(world), c"b".as_ptr(), 2, out));
        assert_eq!(other.err(), Some(Fault::TYPE), "it is for one");
        assert_eq!((tp_barrier_join(Some(barrier)), tp_barrier_wait(Some(barrier), FOREVER)), (0, 0));
        let leave = || tp_barrier_leave(Some(barrier));
        assert_eq!((leave(), leave()), (0, Fault::PERM.number()));
        let mutex = opened(|out| tp_world_mutex(Some(world), c"m".as_ptr(), 5, out)).unwrap();
        let condition = opened(|out| tp_world_cond(Some(world), c"c".as_ptr(), out)).unwrap();
        assert_eq!(tp_mutex_lock(Some(mutex)), 0);
        assert_eq!(tp_cond_wait(Some(condition), Some(mutex), 1000), Fault::TIMEDOUT.number());
        let table = || opened(|out| tp_world_bytes(Some(world), c"t".as_ptr(), 100, out)).unwrap();
        let (one, other) = (table(), table());
        let bytes = [tp_bytes_at(Some(one)), tp_bytes_at(Some(other))].map(|at| at.cast::<[u8; 100]>());
        assert!(bytes[0].addr() % 64 == 0 && *bytes[1] == [0; 100]);
        (*bytes[0])[99] = 7;
        assert_eq!((*bytes[1])[99], 7);
        assert_eq!(
            opened(|out| tp_world_bytes(Some(world), c"t".as_ptr(), 1000, out)).err(),
            Some(Fault::TYPE)
        );
        tp_bytes_close(owned(one));
        assert_eq!(opened(|out| tp_world_open(c"no/name".as_ptr(), out)).err(), Some(Fault::INVALID));
        assert_eq!(
            opened(|out| tp_world_sem(Some(world), c"s".as_ptr(), 1 << 40, out)).err(),
            Some(Fault::RANGE)
        );
    }
}

#[test]
fn errors_have_sentences_and_panics_stay_inside() {
    for &(name, number) in Fault::ALL {
        // SAFETY: a text.
        let text = unsafe { CStr::from_ptr(tp_strerror(number)) }.to_str().unwrap();
        assert!(text.len() > 10 && text != "not an error of Towpath", "{name}");
    }
    // SAFETY: a text.
    assert_eq!(unsafe { CStr::from_ptr(tp_strerror(-99)) }, c"not an error of Towpath");
    assert_eq!(guarded(|| panic!("on purpose {}", 1)), Fault::PANIC.number());
    // SAFETY: a text, valid until the next error of this thread.
    assert_eq!(unsafe { CStr::from_ptr(tp_last_error()) }, c"on purpose 1");
}

#[test]
fn errors_name_what_a_program_in_c_can_do() {
    let last = || {
        // SAFETY: valid until the next call that opens something.
        let text = unsafe { CStr::from_ptr(tp_last_error()) }.to_str().unwrap().to_owned();
        for foreign in ["towpath run -n", "WorldConfig", "--objects", "if it is a file"] {
            assert!(!text.contains(foreign), "{text}");
        }
        text
    };
    let room = tp_mutex_size(64, 0);
    let at = memory(room);
    // SAFETY: the memory stays, and is this test's; a lack of room is what is tested.
    unsafe {
        // However little it is: one code, and the same remedy.
        for less in [10, 5000, room - 1000, room / 2] {
            let made = opened(|out| tp_mutex_init(at, less, 64, out));
            if less < room - 2000 {
                assert_eq!(made.err(), Some(Fault::ROOM), "{less} of {room}");
                assert!(last().contains("the function for the size"), "{}", last());
            }
        }
        let half = tp_messages_size(4, 8, 2, 100_000) / 2;
        let made = opened(|out| tp_messages_init(memory(half), half, 4, 8, 2, 100_000, out));
        assert_eq!(made.err(), Some(Fault::ROOM));
        assert!(last().contains("the function for the size"), "{}", last());
        assert_eq!(opened(|out| tp_mutex_init(at, room, 5000, out)).err(), Some(Fault::RANGE));
        assert!(last().contains("users"), "{}", last());
        let zeroed = memory(room);
        assert_eq!(opened(|out| tp_mutex_open(zeroed, room, out)).err(), Some(Fault::NOTMADE));
        assert!(last().contains("make the object first"), "{}", last());
        let of_two = memory(room);
        let handles = [(); 2].map(|()| opened(|out| tp_mutex_open_or_init(of_two, room, 2, out)));
        assert!(handles.iter().all(Result::is_ok));
        assert_eq!(opened(|out| tp_mutex_open(of_two, room, out)).err(), Some(Fault::FULL));
        assert!(last().contains("more users"), "{}", last());
        let nowhere = c"no-such-world-of-c".as_ptr();
        assert_eq!(opened(|out| tp_world_open(nowhere, out)).err(), Some(Fault::NOTFOUND));
        assert!(last().contains("tp_world_create"), "{}", last());
        let world = opened(|out| tp_world_create(null(), 2, 0, out)).unwrap();
        let endpoint = opened(|out| towpath_c::endpoint::tp_endpoint_open(Some(world), out));
        assert_eq!(endpoint.err(), Some(Fault::TYPE));
        assert!(last().contains("tp_world_create_with_endpoints"), "{}", last());
    }
}
