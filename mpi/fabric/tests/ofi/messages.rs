//! Messages: all calls that send and receive, in both ways of reporting.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::support::*;
use sys::*;

const LENGTHS: [usize; 7] = [0, 8, 48, 256, 5000, 40_000, 300_000];
const TAG: u64 = 0x1234_5678_9abc_def0;

/// The calls that send.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Send {
    Plain,
    Vector,
    Message,
    Inject,
    Data,
    InjectData,
}

impl Send {
    const ALL: [Send; 6] =
        [Send::Plain, Send::Vector, Send::Message, Send::Inject, Send::Data, Send::InjectData];

    fn injects(self) -> bool {
        matches!(self, Send::Inject | Send::InjectData)
    }

    fn has_data(self) -> bool {
        matches!(self, Send::Data | Send::InjectData | Send::Message)
    }

    /// Two pieces where several are possible.
    unsafe fn call(self, n: &Node, to: u64, tagged: bool, bytes: &[u8], context: usize) -> isize {
        let (at, len, ctx, d) = (bytes.as_ptr().cast(), bytes.len(), context as *mut c_void, null_mut());
        let (a, b) = bytes.split_at(len / 3);
        let iov = [a, b].map(|p| iovec { iov_base: p.as_ptr() as *mut _, iov_len: p.len() });
        let (tag, data) = (TAG, 77);
        // SAFETY: the caller keeps the bytes until the completion.
        unsafe {
            match (self, tagged) {
                (Send::Plain, false) => call!(n.ep, msg, send, at, len, d, to, ctx),
                (Send::Plain, true) => call!(n.ep, tagged, send, at, len, d, to, tag, ctx),
                (Send::Vector, false) => call!(n.ep, msg, sendv, iov.as_ptr(), null_mut(), 2, to, ctx),
                (Send::Vector, true) => call!(n.ep, tagged, sendv, iov.as_ptr(), null_mut(), 2, to, tag, ctx),
                (Send::Message, _) => {
                    n.send_iov(to, tagged.then_some(tag), &iov, data, context, FI_REMOTE_CQ_DATA.into())
                }
                (Send::Inject, false) => call!(n.ep, msg, inject, at, len, to),
                (Send::Inject, true) => call!(n.ep, tagged, inject, at, len, to, tag),
                (Send::Data, false) => call!(n.ep, msg, senddata, at, len, d, data, to, ctx),
                (Send::Data, true) => call!(n.ep, tagged, senddata, at, len, d, data, to, tag, ctx),
                (Send::InjectData, false) => call!(n.ep, msg, injectdata, at, len, data, to),
                (Send::InjectData, true) => call!(n.ep, tagged, injectdata, at, len, data, to, tag),
            }
        }
    }
}

/// The calls that receive: 0 plain, 1 a vector, 2 a message.
unsafe fn receive(way: usize, n: &Node, from: u64, tagged: bool, into: &mut [u8], context: usize) -> isize {
    let (at, len, ctx, d) = (into.as_mut_ptr().cast(), into.len(), context as *mut c_void, null_mut());
    let (a, b) = into.split_at_mut(len / 2);
    let iov = [&mut *a, &mut *b].map(|p| iovec { iov_base: p.as_mut_ptr().cast(), iov_len: p.len() });
    // SAFETY: the caller keeps the space until the completion.
    unsafe {
        match (way, tagged) {
            (0, false) => call!(n.ep, msg, recv, at, len, d, from, ctx),
            (0, true) => call!(n.ep, tagged, recv, at, len, d, from, TAG, 0, ctx),
            (1, false) => call!(n.ep, msg, recvv, iov.as_ptr(), null_mut(), 2, from, ctx),
            (1, true) => call!(n.ep, tagged, recvv, iov.as_ptr(), null_mut(), 2, from, TAG, 0, ctx),
            _ => n.receive_message(from, tagged.then_some((TAG, 0)), &mut [a, b], context, 0),
        }
    }
}

#[test]
fn every_call_that_sends_meets_every_call_that_receives() {
    for together in [true, false] {
        let n = nodes(2, &Options { together, ..Options::default() });
        let mut round = 0;
        for tagged in [false, true] {
            for how in Send::ALL {
                for way in 0..3 {
                    for len in LENGTHS {
                        if how.injects() && len > 256 {
                            continue;
                        }
                        round += 1;
                        let (bytes, mut into) = (pattern(len, round), vec![0; len + 5]);
                        let from = if round % 3 == 0 { ANY } else { n[1].peers[0] };
                        let early = round % 2 == 0;
                        // SAFETY: both stay until the reports are here.
                        unsafe {
                            if early {
                                assert_eq!(receive(way, &n[1], from, tagged, &mut into, 7), 0);
                            }
                            start(&n, || how.call(&n[0], n[0].peers[1], tagged, &bytes, 8));
                            if !early {
                                settle(&n);
                                assert_eq!(receive(way, &n[1], from, tagged, &mut into, 7), 0);
                            }
                        }
                        let got = received(&n, 1);
                        let kind = if tagged { FI_TAGGED } else { FI_MSG };
                        let data = if how.has_data() { FI_REMOTE_CQ_DATA } else { 0 };
                        let expected = Report {
                            context: 7,
                            flags: (kind | FI_RECV | data).into(),
                            len,
                            data: if how.has_data() { 77 } else { 0 },
                            tag: if tagged { TAG } else { 0 },
                            source: n[1].peers[0],
                            ..Report::default()
                        };
                        assert_eq!(got, expected, "{how:?}, way {way}, {len} bytes");
                        assert!(into[..len] == bytes && into[len..] == [0; 5], "{how:?}, {len} bytes");
                        if !how.injects() {
                            let report = sent(&n, 0);
                            assert_eq!((report.context, report.error), (8, 0));
                            assert_eq!(report.flags, u64::from(kind | FI_SEND));
                        }
                    }
                }
            }
        }
        nothing_more(&n);
        // The counters have seen them all, also those that were not reported.
        assert_eq!((n[0].count(FI_SEND), n[1].count(FI_RECV)), (round as u64, round as u64));
        assert_eq!((n[0].errors(FI_SEND), n[1].errors(FI_RECV)), (0, 0));
    }
}

/// Reads from a queue with room for so many reports. How many there were.
fn read(n: &Node, room: usize) -> usize {
    // SAFETY: space for so many entries of the longest format; plain C structures may be zero.
    unsafe {
        let mut entries: Vec<fi_cq_tagged_entry> = vec![core::mem::zeroed(); room];
        match call!(n.rx, ops, read, entries.as_mut_ptr().cast(), room) {
            AGAIN => 0,
            given => usize::try_from(given).expect("no errors"),
        }
    }
}

#[test]
fn draining_read_is_told_once_without_a_look() {
    let n = nodes(2, &Options { together: false, ..Options::default() });
    let mut into = [[0; 8]; 42];
    for into in &mut into {
        assert_eq!(n[1].receive(n[1].peers[0], None, into, 7), 0);
    }
    let send = || start(&n[..1], || n[0].send(n[0].peers[1], None, &[3; 8], 1));
    for (room, looks) in [(100, false), (8, true)] {
        // More than it takes to earn slots: both ways.
        for _ in 0..10 {
            send();
            let given = until(&n[..1], || Some(read(&n[1], room)).filter(|&given| given > 0));
            assert_eq!(given, 1);
            send();
            // It has come, but a reader with room for a hundred only wanted to know that the one
            // was all.
            assert_eq!(read(&n[1], room), usize::from(looks), "room for {room}");
            assert_eq!(read(&n[1], room), usize::from(!looks), "room for {room}");
            assert_eq!(read(&n[1], room), 0);
        }
    }
    // Nor is it told so if it has started something.
    send();
    assert_eq!(until(&n[..1], || Some(read(&n[1], 100)).filter(|&given| given > 0)), 1);
    let mut last = [0; 8];
    assert_eq!(n[1].receive(n[1].peers[0], None, &mut last, 7), 0);
    send();
    assert_eq!(read(&n[1], 100), 1);
}

#[test]
fn eight_pieces_are_scattered_and_gathered() {
    let n = nodes(2, &Options::default());
    for len in [64, 9000, 500_000] {
        let bytes = pattern(len, 3);
        let mut into = vec![0; len];
        let cut = |i: usize| len * i * i / 64;
        let pieces: Vec<&[u8]> = (0..8).map(|i| &bytes[cut(i)..cut(i + 1)]).collect();
        let mut rest = &mut into[..];
        let mut places = Vec::new();
        for i in 0..8 {
            // Widths in the reverse order.
            let (place, others) = rest.split_at_mut(cut(8 - i) - cut(7 - i));
            places.push(place);
            rest = others;
        }
        assert_eq!(n[1].receive_message(ANY, Some((1, 0)), &mut places, 2, 0), 0);
        start(&n, || n[0].send_message(n[0].peers[1], Some(1), &pieces, 0, 1, 0));
        assert_eq!((received(&n, 1).len, sent(&n, 0).context), (len, 1));
        assert!(into == bytes);
        // Nine are too many, on both sides.
        let piece = &bytes[..1];
        assert_eq!(n[0].send_message(n[0].peers[1], Some(1), &[piece; 9], 0, 1, 0), INVALID);
        let mut nine = [0u8; 9];
        let mut pieces: Vec<&mut [u8]> = nine.chunks_mut(1).collect();
        assert_eq!(n[1].receive_message(ANY, Some((1, 0)), &mut pieces, 2, 0), INVALID);
    }
    nothing_more(&n);
}

#[test]
fn selective_completions_report_only_what_is_asked_for() {
    let n = nodes(2, &Options { selective: true, ..Options::default() });
    let (bytes, mut into) = ([1u8; 8], [0u8; 8]);
    let asked = u64::from(FI_COMPLETION);
    let mut expected = [0, 0];
    for (flags, wanted) in [(0, 0), (0, asked), (asked, 0), (asked, asked)] {
        for tag in [None, Some(5)] {
            let pair = tag.map(|tag| (tag, 0));
            assert_eq!(n[1].receive_message(ANY, pair, &mut [&mut into], 2, wanted), 0);
            start(&n, || n[0].send_message(n[0].peers[1], tag, &[&bytes], 0, 1, flags));
            expected[0] += u64::from(flags != 0);
            expected[1] += u64::from(wanted != 0);
        }
    }
    settle(&n);
    let reports = |node: &Node, cq| std::iter::from_fn(|| node.take(cq)).count() as u64;
    assert_eq!([reports(&n[0], n[0].tx), reports(&n[1], n[1].rx)], expected);
    assert_eq!((n[0].count(FI_SEND), n[1].count(FI_RECV)), (8, 8));
    // Calls without flags have the endpoint's: none, until they are set.
    for (flags, reported) in [(0, false), (asked, true)] {
        for (node, side) in [(&n[0], FI_SEND), (&n[1], FI_RECV)] {
            let mut flags = flags | u64::from(side);
            // SAFETY: flags, as these commands want them.
            unsafe {
                assert_eq!(control(node.ep, FI_SETOPSFLAG, (&raw mut flags).cast()), 0);
                let mut now = u64::from(side);
                assert_eq!(control(node.ep, FI_GETOPSFLAG, (&raw mut now).cast()), 0);
                assert_eq!(now, flags & !u64::from(side));
            }
        }
        assert_eq!(n[1].receive(ANY, Some((5, 0)), &mut into, 2), 0);
        start(&n, || n[0].send(n[0].peers[1], Some(5), &bytes, 1));
        settle(&n);
        assert_eq!(n[0].take(n[0].tx).is_some(), reported);
        assert_eq!(n[1].take(n[1].rx).is_some(), reported);
    }
    // Errors are always reported.
    let mut short = [0; 4];
    assert_eq!(n[1].receive_message(ANY, None, &mut [&mut short], 9, 0), 0);
    start(&n, || n[0].send_message(n[0].peers[1], None, &[&bytes], 0, 1, 0));
    assert_eq!(received(&n, 1).error, FI_ETRUNC as i32);
    nothing_more(&n);
}

#[test]
fn each_format_tells_what_it_has() {
    for format in [FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED] {
        let n = nodes(2, &Options { format, ..Options::default() });
        let (bytes, mut into) = ([1u8; 100], [0u8; 100]);
        for i in 0..3 {
            assert_eq!(n[1].receive(ANY, Some((0, u64::MAX)), &mut into, 10 + i), 0);
            let flags = FI_REMOTE_CQ_DATA.into();
            start(&n, || n[0].send_message(n[0].peers[1], Some(9), &[&bytes], 33, 1, flags));
        }
        settle(&n);
        // All three in one read, the sources too.
        let mut space = [[0u64; 6]; 4];
        let mut sources = [7; 4];
        let at = space.as_mut_ptr().cast();
        // SAFETY: space for four entries of the longest format, and for their sources.
        let got = unsafe { call!(n[1].rx, ops, readfrom, at, 4, sources.as_mut_ptr()) };
        assert_eq!(got, 3);
        assert_eq!(sources, [n[1].peers[0], n[1].peers[0], n[1].peers[0], 7]);
        let words = space.as_flattened();
        let each = match format {
            FI_CQ_FORMAT_CONTEXT => 1,
            FI_CQ_FORMAT_MSG => 3,
            FI_CQ_FORMAT_DATA => 5,
            _ => 6,
        };
        let flags = u64::from(FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA);
        for i in 0..3u64 {
            let all = [10 + i, flags, 100, 0, 33, 9];
            assert_eq!(words[i as usize * each..][..each], all[..each], "format {format}");
        }
        assert!(words[3 * each..].iter().all(|&word| word == 0), "nothing beyond");
    }
}

#[test]
fn completion_means_what_was_asked_for() {
    let n = nodes(2, &Options::default());
    let to = n[0].peers[1];
    for len in [8, 5000, 300_000] {
        let bytes = pattern(len, 1);
        let mut into = vec![0; len];
        // Matched: not before there is a receive.
        start(&n, || {
            n[0].send_message(to, Some(1), &[&bytes], 0, 5, u64::from(FI_MATCH_COMPLETE | FI_COMPLETION))
        });
        settle(&n);
        assert_eq!(n[0].take(n[0].tx), None, "{len} bytes that no node has received");
        assert_eq!(n[1].receive(ANY, Some((1, 0)), &mut into, 6), 0);
        assert_eq!((received(&n, 1).context, sent(&n, 0).context), (6, 5));
        assert!(into == bytes);
        // The others at least once there is one.
        for flag in [FI_TRANSMIT_COMPLETE, FI_INJECT_COMPLETE, FI_DELIVERY_COMPLETE] {
            assert_eq!(n[1].receive(ANY, Some((1, 0)), &mut into, 6), 0);
            start(&n, || n[0].send_message(to, Some(1), &[&bytes], 0, 5, flag.into()));
            assert_eq!((received(&n, 1).context, sent(&n, 0).context), (6, 5));
        }
    }
    // Delivered: a message that the receiver can hold does not wait for a receive. No receiver may
    // have to read, either: two that send to each other before they receive would wait for ever.
    for len in [8, 257, 5000, 60_000] {
        let bytes = pattern(len, 3);
        for k in [0, 1] {
            let other = n[k].peers[1 - k];
            let flags = u64::from(FI_DELIVERY_COMPLETE | FI_COMPLETION);
            assert_eq!(n[k].send_message(other, Some(1), &[&bytes], 0, 5, flags), 0);
            assert_eq!(sent(&n[k..=k], 0).context, 5, "{len} bytes");
        }
        for k in [0, 1] {
            let mut into = vec![0; len];
            assert_eq!(n[k].receive(ANY, Some((1, 0)), &mut into, 6), 0);
            assert_eq!(received(&n, k).context, 6);
            assert!(into == bytes);
        }
    }
    // Injected by a flag: the buffer is ours at once, and the end is reported all the same.
    for len in [8, 256] {
        let mut bytes = pattern(len, 2);
        start(&n, || n[0].send_message(to, Some(1), &[&bytes], 0, 5, FI_INJECT.into()));
        bytes.fill(0);
        let mut into = vec![0; len];
        assert_eq!(n[1].receive(ANY, Some((1, 0)), &mut into, 6), 0);
        assert_eq!((received(&n, 1).context, sent(&n, 0).context), (6, 5));
        assert!(into == pattern(len, 2));
    }
    nothing_more(&n);
}

#[test]
fn a_full_receiver_refuses_and_takes_up_again() {
    // A receiver takes nothing: its senders are told to come back, and nothing is lost. Injected
    // messages too.
    let n = nodes(2, &Options::default());
    let mut accepted = 0u64;
    loop {
        let bytes = accepted.to_ne_bytes();
        // SAFETY: the bytes are taken at once.
        let result = unsafe { call!(n[0].ep, tagged, inject, bytes.as_ptr().cast(), 8, n[0].peers[1], 1) };
        if result == AGAIN {
            break;
        }
        assert_eq!(result, 0);
        accepted += 1;
    }
    assert!(accepted > 100, "{accepted}");
    for i in 0..accepted {
        let mut into = [0; 8];
        assert_eq!(n[1].receive(n[1].peers[0], Some((1, 0)), &mut into, 4), 0);
        assert_eq!(received(&n, 1).context, 4);
        assert_eq!(u64::from_ne_bytes(into), i);
    }
    nothing_more(&n);
}

#[test]
fn a_message_to_oneself_arrives() {
    let n = nodes(1, &Options::default());
    for len in LENGTHS {
        let (bytes, mut into) = (pattern(len, 4), vec![0; len]);
        assert_eq!(n[0].receive(n[0].peers[0], Some((TAG, 0)), &mut into, 1), 0);
        start(&n, || n[0].send(n[0].peers[0], Some(TAG), &bytes, 2));
        assert_eq!((received(&n, 0).context, sent(&n, 0).context), (1, 2));
        assert!(into == bytes);
    }
    nothing_more(&n);
}
