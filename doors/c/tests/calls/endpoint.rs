//! Endpoints and structures as a C program calls them, right and wrong.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};

use crate::misuse::{opened, owned};
use towpath_c::call::Handle;
use towpath_c::endpoint::*;
use towpath_c::fault::Fault;
use towpath_c::structures::*;
use towpath_c::world::*;

/// Messages that handlers got.
#[derive(Default)]
struct Seen {
    args: Vec<u32>,
    bytes: Vec<u8>,
    stored: (u64, u64),
    status: c_int,
}

unsafe extern "C" fn answers(token: Handle<'_, TpToken>, context: *mut c_void) {
    // SAFETY: the context is a `Seen`, which the test keeps; counts are written.
    unsafe {
        let seen = &mut *context.cast::<Seen>();
        let mut count = MaybeUninit::uninit();
        let args = tp_token_args(token, Some(&mut count));
        seen.args = core::slice::from_raw_parts(args, count.assume_init()).to_vec();
        let bytes = tp_token_bytes(token, Some(&mut count)).cast::<u8>();
        seen.bytes = core::slice::from_raw_parts(bytes, count.assume_init()).to_vec();
        let (mut offset, mut length) = (MaybeUninit::new(0), MaybeUninit::new(0));
        if tp_token_stored(token, Some(&mut offset), Some(&mut length)) == 1 {
            seen.stored = (offset.assume_init(), length.assume_init());
        }
        if tp_token_is_request(token) == 1 {
            assert_eq!(tp_token_reply(token, 2, [7].as_ptr(), 1), 0);
            assert_ne!(tp_token_reply(token, 2, null(), 0), 0, "one reply");
        }
        seen.status = tp_token_status(token);
    }
}

#[test]
fn messages_reach_handlers_and_replies_come_back() {
    // SAFETY: texts, messages and contexts are as the calls ask.
    unsafe {
        let bare = opened(|out| tp_world_create(null(), 1, 0, out)).unwrap();
        assert_eq!(opened(|out| tp_endpoint_open(Some(bare), out)).err(), Some(Fault::TYPE));
        let world = opened(|out| tp_world_create_with_endpoints(null(), 1, 4096, 0, out)).unwrap();
        let endpoint = opened(|out| tp_endpoint_open(Some(world), out)).unwrap();
        let e = Some(endpoint);
        assert_eq!(tp_endpoint_request(e, 0, 1, null(), 0), Fault::NOTFOUND.number());
        assert_eq!(tp_endpoint_map_world(e), 0);
        let mut seen: [Seen; 3] = Default::default();
        for (index, seen) in seen.iter_mut().enumerate() {
            let context = core::ptr::from_mut(seen).cast();
            assert_eq!(tp_endpoint_set_handler(e, index as u8, Some(answers), context), 0);
        }
        let args = [1u32, 2, 3];
        assert_eq!(tp_endpoint_request(e, 0, 1, args.as_ptr(), 3), 0);
        assert_eq!(tp_endpoint_barrier(e), 0);
        assert_eq!((&seen[1].args[..], &seen[2].args[..]), (&args[..], &[7][..]));
        let text = b"for the handler";
        assert_eq!(tp_endpoint_request_medium(e, 0, 1, null(), 0, text.as_ptr().cast(), text.len()), 0);
        assert_eq!(tp_endpoint_wait(e, u64::MAX), 0);
        while tp_endpoint_poll(e) > 0 {}
        assert_eq!(seen[1].bytes, text);
        assert_eq!(tp_endpoint_request_long(e, 0, 1, null(), 0, text.as_ptr().cast(), text.len(), 100), 0);
        assert_eq!(tp_endpoint_barrier(e), 0);
        assert_eq!(seen[1].stored, (100, text.len() as u64));
        assert_eq!(tp_endpoint_segment_size(e), 4096);
        let mut read = [0u8; 15];
        assert_eq!(tp_endpoint_segment_read(e, 100, read.as_mut_ptr().cast(), 15), 0);
        assert_eq!(read, *text);
        let beyond = tp_endpoint_segment_read(e, 4090, read.as_mut_ptr().cast(), 15);
        assert_eq!(beyond, Fault::RANGE.number());
        assert_eq!(tp_endpoint_request(e, 0, 9, args.as_ptr(), 1), 0);
        assert_eq!(tp_endpoint_barrier(e), 0);
        assert_eq!(seen[0].status, 4, "no such handler");
        assert_eq!(tp_endpoint_request(e, 0, 1, args.as_ptr(), 17), Fault::RANGE.number());
        assert_eq!(tp_endpoint_request(e, 0, 1, null(), 1), Fault::INVALID.number());
        assert_eq!(tp_endpoint_set_handler(e, 1, None, null_mut()), 0);
        assert_eq!(tp_endpoint_wait(e, 1000), Fault::TIMEDOUT.number());
        tp_endpoint_close(owned(endpoint));
        assert_eq!([tp_endpoint_poll(None), tp_endpoint_barrier(None)], [Fault::INVALID.number(); 2]);
    }
}

#[test]
fn structures_hold_numbers() {
    // SAFETY: texts.
    unsafe {
        let world = opened(|out| tp_world_create(null(), 2, 8 << 20, out)).unwrap();
        let name = CStr::as_ptr;
        for (size, room) in [(0, 255), (1, 16_383)] {
            let text = if size == 0 { [c"f", c"s", c"m"] } else { [c"F", c"S", c"M"] };
            let fifo = opened(|out| tp_world_fifo(Some(world), name(text[0]), size, out)).unwrap();
            let stack = opened(|out| tp_world_stack(Some(world), name(text[1]), size, out)).unwrap();
            let map = opened(|out| tp_world_map(Some(world), name(text[2]), size, out)).unwrap();
            let mut value = MaybeUninit::new(0);
            let (f, s, m) = (Some(fifo), Some(stack), Some(map));
            let (mut pushed, mut last) = (0, 0);
            while last == 0 {
                last = tp_stack_push(s, pushed);
                pushed += u64::from(last == 0);
            }
            assert_eq!((pushed, last), (room, Fault::FULL.number()));
            assert_eq!((tp_stack_pop(s, Some(&mut value)), value.assume_init()), (1, pushed - 1));
            assert_eq!([tp_fifo_push(f, 5), tp_fifo_push(f, 6)], [0; 2]);
            assert_eq!((tp_fifo_pop(f, Some(&mut value)), value.assume_init()), (1, 5));
            assert_eq!([tp_fifo_pop(f, None), tp_fifo_pop(f, None)], [1, 0]);
            assert_eq!(tp_map_insert(m, 3, 30, None), 0);
            assert_eq!((tp_map_insert(m, 3, 31, Some(&mut value)), value.assume_init()), (1, 30));
            assert_eq!((tp_map_get(m, 3, Some(&mut value)), value.assume_init()), (1, 31));
            assert_eq!(
                [tp_map_get(m, 4, None), tp_map_remove(m, 3, None), tp_map_get(m, 3, None)],
                [0, 1, 0]
            );
            assert_eq!([tp_fifo_recover(f), tp_stack_recover(s), tp_map_recover(m)], [0; 3]);
            let other = opened(|out| tp_world_fifo(Some(world), name(text[0]), 1 - size, out));
            assert_eq!(other.err(), Some(Fault::TYPE));
            tp_fifo_close(owned(fifo));
            tp_stack_close(owned(stack));
            tp_map_close(owned(map));
        }
        assert_eq!(tp_map_get(None, 3, None), Fault::INVALID.number());
        let third = opened(|out| tp_world_fifo(Some(world), name(c"third"), 2, out));
        assert_eq!(third.err(), Some(Fault::RANGE));
    }
}

#[test]
fn structures_are_none_of_a_forked_child() {
    // SAFETY: texts; the child makes calls that take no lock of another thread's, and ends.
    unsafe {
        let world = opened(|out| tp_world_create(null(), 2, 1 << 20, out)).unwrap();
        let fifo = opened(|out| tp_world_fifo(Some(world), c"f".as_ptr(), 0, out)).unwrap();
        let map = opened(|out| tp_world_map(Some(world), c"m".as_ptr(), 0, out)).unwrap();
        let (f, m) = (Some(fifo), Some(map));
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            let refused = || {
                let calls =
                    [tp_fifo_push(f, 1), tp_fifo_pop(f, None), tp_fifo_recover(f), tp_map_get(m, 1, None)];
                calls == [Fault::NOTENTERED.number(); 4]
            };
            let before = refused();
            let entered = tp_world_enter(Some(world)) == 0;
            libc::_exit(if before && entered && refused() { 7 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
        assert_eq!([tp_fifo_pop(f, None), tp_fifo_push(f, 1), tp_fifo_pop(f, None)], [0, 0, 1]);
    }
}
