//! Matching: sources and tags, cancelling, peeking and claiming, buffers for several
//! messages, address vectors.

use std::ffi::{CStr, c_char, c_int};

use super::support::*;
use sys::*;

#[test]
fn receives_match_source_and_tag_in_posted_order() {
    let n = nodes(3, &Options::default());
    let mut into = [[0u8; 8]; 4];
    let [a, b, c, d] = &mut into;
    let from = |i: usize| n[2].peers[i];
    assert_eq!(n[2].receive(from(1), Some((5, 0)), a, 1), 0);
    assert_eq!(n[2].receive(ANY, Some((4, 1)), b, 2), 0);
    assert_eq!(n[2].receive(from(0), Some((5, 0)), c, 3), 0);
    assert_eq!(n[2].receive(ANY, Some((0, u64::MAX)), d, 4), 0);
    let send = |from: usize, tag, value| {
        start(&n, || n[from].send(n[from].peers[2], Some(tag), &[value; 8], 9));
        assert_eq!(sent(&n, from).context, 9);
    };
    // Fits 2, 3 and 4; then 3 and 4; then 4; then 1.
    for (i, (sender, tag, receive)) in [(0, 5, 2), (0, 5, 3), (0, 9, 4), (1, 5, 1)].into_iter().enumerate() {
        send(sender, tag, i as u8);
        let report = received(&n, 2);
        assert_eq!((report.context, report.tag, report.source), (receive, tag, from(sender)));
    }
    assert_eq!(into, [[3; 8], [0; 8], [1; 8], [2; 8]]);
    // Tagged and untagged messages don't meet.
    send(0, 0, 1);
    let mut rest = [0; 8];
    assert_eq!(n[2].receive(ANY, None, &mut rest, 5), 0);
    nothing_more(&n);
    start(&n, || n[0].send(n[0].peers[2], None, &[2; 8], 9));
    assert_eq!(received(&n, 2).context, 5);
    assert_eq!(n[2].receive(ANY, Some((0, 0)), &mut rest, 6), 0);
    assert_eq!((received(&n, 2).context, rest), (6, [1; 8]));
}

#[test]
fn cancelled_receives_get_nothing() {
    let n = nodes(2, &Options::default());
    let mut into = [[0u8; 8]; 3];
    for tag in [None, Some((3, 0))] {
        for (i, into) in into.iter_mut().enumerate() {
            assert_eq!(n[1].receive(ANY, tag, into, 10 + i), 0);
        }
        assert_eq!(n[1].cancel(11), 0);
        let report = received(&n, 1);
        assert_eq!((report.context, report.error), (11, FI_ECANCELED as i32));
        assert_ne!(n[1].cancel(11), 0, "it is gone");
        assert_ne!(n[1].cancel(99), 0, "it never was");
        for i in [10, 12] {
            start(&n, || n[0].send(n[0].peers[1], tag.map(|t| t.0), &[i as u8; 8], 1));
            assert_eq!((received(&n, 1).context, sent(&n, 0).context), (i, 1));
            assert_ne!(n[1].cancel(i), 0, "it was fulfilled");
        }
        assert_eq!(into, [[10; 8], [0; 8], [12; 8]]);
    }
    assert_eq!(n[1].errors(FI_RECV), 2);
    nothing_more(&n);
}

/// `FI_DISCARD`, which bindgen does not evaluate.
const DISCARD: u64 = 1 << 58;

#[test]
fn a_peek_finds_claims_and_discards() {
    let n = nodes(2, &Options::default());
    let peek = |tag: Option<u64>, flags| {
        let tag = tag.map(|tag| (tag, 0));
        assert_eq!(n[1].receive_message(n[1].peers[0], tag, &mut [], 5, u64::from(FI_PEEK) | flags), 0);
        received(&n, 1)
    };
    let claim = |tag: Option<u64>, pieces: &mut [&mut [u8]], flags| {
        n[1].receive_message(ANY, tag.map(|tag| (tag, 0)), pieces, 5, FI_CLAIM | flags)
    };
    for tag in [None, Some(8)] {
        let missing = peek(tag, 0);
        assert_eq!((missing.error, missing.context), (FI_ENOMSG as i32, 5));
        for len in [0, 16, 40_000, 1 << 20] {
            let bytes: Vec<_> = (0..4).map(|i| pattern(len, i)).collect();
            let flags = FI_REMOTE_CQ_DATA.into();
            for (i, bytes) in bytes.iter().enumerate() {
                start(&n, || n[0].send_message(n[0].peers[1], tag, &[bytes], i as u64, 1, flags));
            }
            settle(&n);
            // Looked at: it stays. Claimed: no other receive gets it.
            for _ in 0..2 {
                let found = peek(tag, 0);
                assert_eq!((found.error, found.len, found.data, found.tag), (0, len, 0, tag.unwrap_or(0)));
                assert_eq!(found.source, n[1].peers[0]);
            }
            assert_eq!(peek(tag, FI_CLAIM).data, 0);
            assert_eq!(peek(tag, 0).data, 1);
            let mut into = vec![0; len];
            assert_eq!(n[1].receive(ANY, tag.map(|t| (t, 0)), &mut into, 6), 0);
            let report = received(&n, 1);
            assert_eq!((report.context, report.len, report.data), (6, len, 1));
            assert!(into == bytes[1]);
            // A claimed message is received later.
            assert_eq!(claim(tag, &mut [&mut into], 0), 0);
            let report = received(&n, 1);
            assert_eq!((report.context, report.len, report.data, report.error), (5, len, 0, 0));
            assert!(into == bytes[0]);
            assert_eq!(claim(tag, &mut [&mut into], 0), INVALID, "it was claimed once");
            // Thrown away, at once and after it was claimed.
            assert_eq!(peek(tag, DISCARD).data, 2);
            assert_eq!(peek(tag, FI_CLAIM).data, 3);
            assert_eq!(claim(tag, &mut [], DISCARD), 0);
            assert_eq!(received(&n, 1).context, 5);
            assert_eq!(peek(tag, 0).error, FI_ENOMSG as i32);
            for _ in 0..4 {
                assert_eq!(sent(&n, 0).error, 0, "the sender learns of the end of each");
            }
        }
    }
    nothing_more(&n);
}

#[test]
fn a_buffer_takes_several_messages() {
    let options = Options::default();
    for tag in [None, Some((4, 0))] {
        for early in [true, false] {
            let n = nodes(2, &options);
            let ep = n[1].ep;
            let (least, mut now, mut len) = (200usize, 0usize, 8);
            // SAFETY: a value, and a place for one, of the length that is said.
            unsafe {
                let (level, name) = (FI_OPT_ENDPOINT as c_int, FI_OPT_MIN_MULTI_RECV as c_int);
                let at = (&raw const least).cast();
                assert_eq!(((*(*ep).ops).setopt.unwrap())(ep.cast(), level, name, at, 8), 0);
                let at = (&raw mut now).cast();
                assert_eq!(((*(*ep).ops).getopt.unwrap())(ep.cast(), level, name, at, &raw mut len), 0);
            }
            assert_eq!((now, len), (least, 8));
            let mut space = vec![0u8; 1000];
            let base = space.as_ptr() as usize;
            let lengths = [300, 0, 290, 211, 5];
            let bytes: Vec<_> = lengths.iter().enumerate().map(|(i, len)| pattern(*len, i)).collect();
            let post = |space: &mut [u8]| {
                let flags = FI_MULTI_RECV.into();
                assert_eq!(n[1].receive_message(ANY, tag, &mut [space], 6, flags), 0);
            };
            if early {
                post(&mut space);
            }
            for bytes in &bytes {
                start(&n, || n[0].send(n[0].peers[1], tag.map(|t| t.0), bytes, 1));
            }
            settle(&n);
            if !early {
                post(&mut space);
            }
            let mut at = 0;
            for (i, len) in lengths[..4].iter().enumerate() {
                let report = received(&n, 1);
                assert_eq!((report.context, report.len, report.buffer), (6, *len, base + at));
                // After the fourth there are 199 bytes left, and that is too few.
                assert_eq!(report.flags & u64::from(FI_MULTI_RECV) != 0, i == 3);
                assert!(space[at..at + len] == bytes[i]);
                at += len;
            }
            settle(&n);
            assert_eq!(n[1].take(n[1].rx), None, "the fifth waits for another buffer");
            // That one is taken back: it is released with its cancellation.
            let mut next = [0u8; 1000];
            post(&mut next);
            assert_eq!(received(&n, 1).len, 5);
            assert_eq!(n[1].cancel(6), 0);
            let report = received(&n, 1);
            assert_eq!((report.context, report.error), (6, FI_ECANCELED as i32));
            assert_ne!(report.flags & u64::from(FI_MULTI_RECV), 0);
        }
    }
}

#[test]
fn buffer_is_given_back_though_completions_are_selective() {
    let n = nodes(2, &Options { selective: true, ..Options::default() });
    for tag in [None, Some((4, 0))] {
        let mut space = vec![0u8; 600];
        assert_eq!(n[1].receive_message(ANY, tag, &mut [&mut space], 6, FI_MULTI_RECV.into()), 0);
        for i in 1..=3u64 {
            start(&n, || n[0].send(n[0].peers[1], tag.map(|t| t.0), &[i as u8; 200], 1));
        }
        // Only the last of the three is reported, since it has used the buffer up.
        let report = received(&n, 1);
        let (last, base) = (u64::from(FI_MULTI_RECV), space.as_ptr() as usize);
        assert_eq!((report.context, report.flags & last, report.buffer), (6, last, base + 400));
        assert_eq!((space[0], space[200], space[400]), (1, 2, 3));
        nothing_more(&n);
    }
}

#[test]
fn address_gets_the_lowest_free_place() {
    let n = nodes(3, &Options::default());
    let names = [n[0].name(), n[1].name(), n[2].name()];
    let remove = |mut number: fi_addr_t| {
        // SAFETY: one number.
        assert_eq!(unsafe { call!(n[0].av, ops, remove, &raw mut number, 1, 0) }, 0);
    };
    remove(0);
    remove(1);
    assert_eq!(
        (n[0].insert(&names[1]), n[0].insert(&names[0]), n[0].insert(&names[2])),
        (Some(0), Some(1), Some(3))
    );
    // The first node's former number is the second's now.
    let mut into = [0; 8];
    assert_eq!(n[1].receive(ANY, Some((1, 0)), &mut into, 1), 0);
    start(&n, || n[0].send(0, Some(1), &[5; 8], 2));
    assert_eq!((received(&n, 1).context, into), (1, [5; 8]));
    assert_eq!(n[0].receive(0, Some((1, 0)), &mut into, 1), 0);
    start(&n, || n[1].send(n[1].peers[0], Some(1), &[6; 8], 2));
    assert_eq!((received(&n, 0).source, into), (0, [6; 8]));
}

#[test]
fn address_vectors_map_addresses_to_numbers_and_back() {
    for kind in [FI_AV_TABLE, FI_AV_MAP] {
        let n = nodes(3, &Options { av: kind, ..Options::default() });
        let (name, av) = (n[1].name(), n[0].av);
        let (mut found, mut len) = ([0u8; NAME], NAME);
        let mut text = [0 as c_char; 200];
        // SAFETY: places of the lengths that are said.
        unsafe {
            assert_eq!(call!(av, ops, lookup, n[0].peers[1], found.as_mut_ptr().cast(), &raw mut len), 0);
            assert_eq!((found, len), (name, NAME));
            len = 5;
            let mut begin = [0u8; 5];
            assert_eq!(call!(av, ops, lookup, n[0].peers[1], begin.as_mut_ptr().cast(), &raw mut len), 0);
            assert_eq!((begin[..] == name[..5], len), (true, NAME), "cut, and told how long it is");
            let unknown = call!(av, ops, lookup, 77, found.as_mut_ptr().cast(), &raw mut len);
            assert_eq!(unknown, -(FI_EINVAL as c_int));
            let mut len = text.len();
            let words = call!(av, ops, straddr, name.as_ptr().cast(), text.as_mut_ptr(), &raw mut len);
            let words = CStr::from_ptr(words).to_str().expect("in ASCII");
            assert!(words.starts_with(&format!("towpath://{}/", std::process::id())), "{words}");
            assert_eq!(len, words.len() + 1);
        }
        // A peer that was taken out can't be sent to or received from; its messages have no source.
        let (mut into, number) = ([0; 8], n[0].peers[1]);
        // SAFETY: one number.
        unsafe {
            assert_eq!(call!(av, ops, remove, &raw const number as *mut _, 1, 0), 0);
            assert_eq!(call!(av, ops, remove, &raw const number as *mut _, 1, 0), -(FI_EINVAL as c_int));
        }
        assert_eq!(n[0].send(number, Some(1), &[1; 8], 1), INVALID);
        assert_eq!(n[0].receive(number, Some((1, 0)), &mut into, 1), INVALID);
        assert_eq!(n[0].receive(ANY, Some((1, 0)), &mut into, 1), 0);
        start(&n, || n[1].send(n[1].peers[0], Some(1), &[4; 8], 2));
        assert_eq!((received(&n, 0).source, into), (ANY, [4; 8]));
        // And learned anew.
        let number = n[0].insert(&name).expect("an address");
        assert_eq!(n[0].receive(number, Some((1, 0)), &mut into, 1), 0);
        start(&n, || n[1].send(n[1].peers[0], Some(1), &[5; 8], 2));
        assert_eq!((received(&n, 0).source, into), (number, [5; 8]));
        start(&n, || n[0].send(number, Some(1), &[6; 8], 3));
        assert_eq!(n[1].receive(n[1].peers[0], Some((1, 0)), &mut into, 1), 0);
        assert_eq!((received(&n, 1).context, into), (1, [6; 8]));
    }
}

#[test]
fn ten_thousand_receives_are_matched() {
    let n = nodes(2, &Options::default());
    let mut into = vec![[0u8; 8]; 10_000];
    for (i, into) in into.iter_mut().enumerate() {
        assert_eq!(n[1].receive(n[1].peers[0], Some((i as u64, 0)), into, i), 0);
    }
    for i in (0..10_000u64).rev() {
        start(&n, || n[0].send(n[0].peers[1], Some(i), &i.to_ne_bytes(), 1));
        assert_eq!(received(&n, 1).context, i as usize);
        assert_eq!(sent(&n, 0).context, 1);
    }
    assert!(into.iter().enumerate().all(|(i, bytes)| u64::from_ne_bytes(*bytes) == i as u64));
}
