//! Resource management (`FI_RM_ENABLED`): queues are not overrun, and a receiver that
//! takes nothing keeps its senders waiting.

use super::support::*;
use sys::*;

#[test]
fn resource_management_is_offered_and_reported() {
    for asked in [FI_RM_UNSPEC, FI_RM_DISABLED, FI_RM_ENABLED] {
        // SAFETY: hints have all their parts, and so has what was found.
        unsafe {
            let info = Info::asked(|hints| (*hints.domain_attr).resource_mgmt = asked).expect("offered");
            assert_eq!((*(*info.0).domain_attr).resource_mgmt, FI_RM_ENABLED);
        }
    }
    // SAFETY: hints have all their parts.
    let asked = Info::asked(|hints| unsafe { (*hints.domain_attr).resource_mgmt = FI_RM_ENABLED + 1 });
    assert_eq!(asked.err(), Some(-(FI_ENODATA as i32)), "no such management");
}

#[test]
fn completion_queues_hold_more_than_they_were_made_for() {
    const MESSAGES: u64 = 20_000;
    let n = nodes(2, &Options::default());
    // The queues of the tests have size 0; what is received is not read before all has come.
    let mut into = vec![[0u8; 8]; MESSAGES as usize];
    for (i, into) in into.iter_mut().enumerate() {
        assert_eq!(n[1].receive(n[1].peers[0], Some((i as u64, 0)), into, i), 0);
    }
    for i in 0..MESSAGES {
        start(&n, || n[0].send(n[0].peers[1], Some(i), &i.to_ne_bytes(), i as usize));
    }
    settle(&n);
    for i in 0..MESSAGES {
        assert_eq!((sent(&n, 0).context, received(&n, 1).context), (i as usize, i as usize));
        assert_eq!(u64::from_ne_bytes(into[i as usize]), i);
    }
    nothing_more(&n);
}

#[test]
fn sender_waits_for_a_receiver_that_takes_nothing() {
    let n = nodes(2, &Options::default());
    let bytes = pattern(1000, 3);
    let mut started = 0;
    // The receiver makes no progress: a message without room is refused, and not lost.
    while n[0].send(n[0].peers[1], Some(1), &bytes, 1) == 0 {
        started += 1;
        assert!(started < 10_000_000, "it is never refused");
    }
    let mut into = vec![0; 1000];
    for _ in 0..started {
        assert_eq!(n[1].receive(ANY, Some((1, 0)), &mut into, 2), 0);
        assert_eq!((received(&n, 1).len, &into), (1000, &bytes));
    }
    start(&n, || n[0].send(n[0].peers[1], Some(1), &bytes, 1));
    assert_eq!(n[1].receive(ANY, Some((1, 0)), &mut into, 2), 0);
    assert_eq!(received(&n, 1).error, 0);
    for _ in 0..=started {
        assert_eq!(sent(&n, 0).error, 0);
    }
    nothing_more(&n);
}
