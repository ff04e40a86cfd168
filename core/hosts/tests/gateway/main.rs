//! Worlds that span "hosts" in one process: a segment and a gateway for each, links over
//! loopback, and ranks that are threads.

mod cluster;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use towpath_am::{Algorithm, Endpoint, Error, MAX_ARGS, Name, Operation, Payload, Status, Tag, WorldConfig};
use towpath_hosts::{Gateway, Hosts, News};
use towpath_shm::{Error as WorldError, RankState, World};
use towpath_sync::Policy;

use cluster::{Cluster, Watchdog, config, link, tiny};

const LONG: Duration = Duration::from_secs(60);

/// Counters that handlers move.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }
    fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

#[test]
fn ring_of_all_ranks_carries_all_forms() {
    let _dog = Watchdog::new("ring_of_all_ranks_carries_all_forms");
    let large = |ranks: &[u32]| WorldConfig { segment_bytes: 2 << 20, ..config(ranks) };
    for (ranks, config, long) in [
        (&[1, 1][..], large(&[1, 1]), 1 << 20),
        (&[2, 1, 2], large(&[2, 1, 2]), 1 << 20),
        (&[2, 1, 2], tiny(&[2, 1, 2], Algorithm::Towpath), 20_000),
        (&[0, 2, 1], tiny(&[0, 2, 1], Algorithm::LockFree), 20_000),
        (&[1, 2], tiny(&[1, 2], Algorithm::Posix), 20_000),
    ] {
        let cluster = Cluster::new(ranks, &config);
        let size = cluster.hosts.size();
        cluster.each_rank(|world| {
            let endpoint = match world.rank() % 2 {
                0 => Endpoint::with_private_segment(&world, 2 << 20).unwrap(),
                _ => Endpoint::with_shared_segment(&world).unwrap(),
            };
            let (seen, answers) = (Count::default(), Count::default());
            let (note, me) = (seen.clone(), world.rank());
            let before = (me + size - 1) % size;
            endpoint.set_handler(1, move |message| {
                let args = message.args();
                assert_eq!((args[0], args[1]), (before, note.get()), "in order, from the rank before");
                note.add();
                let n = args[1] as u8;
                match message.payload() {
                    Payload::None => {
                        assert_eq!((args.len(), args[15]), (MAX_ARGS, 77));
                        message.reply(2, &[args[1]]).unwrap();
                    }
                    Payload::Medium(bytes) => {
                        assert_eq!(bytes, [n; 999]);
                        message.reply_medium(2, &[args[1]], &[n; 500]).unwrap();
                    }
                    Payload::Long { offset, len } => {
                        assert_eq!((offset, len), (u64::from(args[1]), long as u64));
                        let mut bytes = vec![0; long];
                        message.segment().read(offset, &mut bytes);
                        assert!(bytes.iter().all(|&byte| byte == n));
                        message.reply_long(2, &[args[1]], &[n; 3000], 3 << 19).unwrap();
                    }
                }
            });
            let count = answers.clone();
            endpoint.set_handler(2, move |message| {
                assert_eq!(message.args()[0], count.get(), "answers in order");
                if let Payload::Long { offset, .. } = message.payload() {
                    let mut bytes = [0; 3000];
                    message.segment().read(offset, &mut bytes);
                    assert_eq!(bytes, [message.args()[0] as u8; 3000]);
                }
                count.add();
            });
            endpoint.map_world().unwrap();
            let next = ((me + 1) % size) as usize;
            for n in 0..40u32 {
                let mut args = [77; MAX_ARGS];
                args[..2].copy_from_slice(&[me, n]);
                match n % 4 {
                    0 | 1 => endpoint.request(next, 1, &args).unwrap(),
                    2 => endpoint.request_medium(next, 1, &[me, n], &[n as u8; 999]).unwrap(),
                    _ => {
                        endpoint.request_long(next, 1, &[me, n], &vec![n as u8; long], n.into()).unwrap();
                        // Until the handler has run the next transfer must not change the bytes.
                        endpoint.poll_until(|| answers.get() > n);
                    }
                }
            }
            endpoint.poll_until(|| answers.get() == 40);
            endpoint.barrier().unwrap();
            assert_eq!(seen.get(), 40);
            endpoint.poll_until(|| endpoint.audit().is_clean());
            endpoint.barrier().unwrap();
        });
    }
}

/// Makes a rank's endpoint that counts the messages to its handler 1.
fn counting(world: &World) -> (Endpoint, Count) {
    let endpoint = Endpoint::new(world).unwrap();
    let count = Count::default();
    let note = count.clone();
    endpoint.set_handler(1, move |_| note.add());
    endpoint.map_world().unwrap();
    (endpoint, count)
}

#[test]
fn barrier_returned_messages_sent_before_were_handled() {
    let _dog = Watchdog::new("barrier_returned_messages_sent_before_were_handled");
    for ranks in [&[2, 2][..], &[1, 1, 1]] {
        let cluster = Cluster::new(ranks, &tiny(ranks, Algorithm::Towpath));
        let size = cluster.hosts.size();
        cluster.each_rank(|world| {
            let (endpoint, count) = counting(&world);
            for round in 1..=30 {
                for peer in 0..size {
                    endpoint.request(peer as usize, 1, &[]).unwrap();
                }
                // Ranks may wait at either.
                if (round + world.rank()).is_multiple_of(3) {
                    world.barrier(Policy::default()).unwrap();
                    // The messages are there: a poll finds them.
                    while endpoint.poll() > 0 {}
                } else {
                    endpoint.barrier().unwrap();
                }
                assert_eq!(count.get(), round * size);
                endpoint.barrier().unwrap();
            }
        });
    }
}

#[test]
fn full_receiver_at_a_barrier_holds_up_no_rank() {
    let _dog = Watchdog::new("full_receiver_at_a_barrier_holds_up_no_rank");
    let ranks = [1, 1, 1];
    let cluster = Cluster::new(&ranks, &tiny(&ranks, Algorithm::Towpath));
    cluster.each_rank(|world| {
        let (endpoint, count) = counting(&world);
        endpoint.barrier().unwrap();
        for round in 1..=20 {
            if world.rank() > 0 {
                // Together twice as many as the receiver's queue takes.
                (0..16).for_each(|_| endpoint.request(0, 1, &[]).unwrap());
                world.barrier(Policy::default()).unwrap();
            } else if round % 2 == 0 {
                endpoint.barrier().unwrap();
                assert_eq!(count.get(), round * 32, "all that were sent before it");
            } else {
                world.barrier(Policy::default()).unwrap();
                endpoint.poll_until(|| count.get() == round * 32);
            }
            endpoint.barrier().unwrap();
        }
    });
}

#[test]
fn death_fails_one_barrier_for_all_alike() {
    let _dog = Watchdog::new("death_fails_one_barrier_for_all_alike");
    for victim in [0, 2, 4] {
        let ranks = [2, 2, 1];
        let cluster = Cluster::new(&ranks, &config(&ranks));
        let outcomes = cluster.each_rank(|world| {
            let endpoint = Endpoint::new(&world).unwrap();
            endpoint.map_world().unwrap();
            endpoint.barrier().unwrap();
            if world.rank() == victim {
                world.fail();
                return Vec::new();
            }
            let died = |outcome| match outcome {
                Ok(()) => None,
                Err(Error::World(WorldError::MemberDied { rank })) => Some(rank),
                Err(other) => panic!("{other}"),
            };
            (0..3).map(|_| died(endpoint.barrier())).collect()
        });
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            if rank as u32 != victim {
                assert_eq!(outcome, [Some(victim), None, None], "rank {rank} without {victim}");
            }
        }
        for host in 0..3 {
            cluster.until(host, |world| world.has_died(victim) && world.deaths() == 1);
        }
    }
}

/// Result of a rank whose requests a peer was to answer until it was gone.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    sent: u32,
    answered: u32,
    unreachable: u32,
    other: u32,
}

/// Sends to a rank, and counts answers and returns, until all requests are accounted for.
fn ask_until_gone(world: &World, peer: u32, gone: &AtomicBool) -> Tally {
    let endpoint = Endpoint::with_private_segment(world, 4096).unwrap();
    let (answered, unreachable, other) = (Count::default(), Count::default(), Count::default());
    let (a, u, o) = (answered.clone(), unreachable.clone(), other.clone());
    endpoint.set_handler(2, move |_| a.add());
    endpoint.set_handler(0, move |message| {
        let why = message.returned().unwrap();
        assert_eq!(why.operation == Operation::RequestMedium, message.args()[0] % 3 == 1);
        if why.status == Status::Unreachable { u.add() } else { o.add() }
    });
    endpoint.map_world().unwrap();
    endpoint.barrier().unwrap();
    let mut sent = 0;
    while !gone.load(Relaxed) || sent < 300 {
        match sent % 3 {
            1 => endpoint.request_medium(peer as usize, 1, &[sent], b"bytes").unwrap(),
            _ => endpoint.request(peer as usize, 1, &[sent]).unwrap(),
        }
        sent += 1;
        if sent.is_multiple_of(16) {
            endpoint.poll();
        }
    }
    endpoint.poll_until(|| answered.get() + unreachable.get() + other.get() >= sent);
    Tally { sent, answered: answered.get(), unreachable: unreachable.get(), other: other.get() }
}

/// Answers until told, without an orderly end.
fn answer_until(world: &World, asked: &AtomicU32, gone: &AtomicBool) {
    let endpoint = Endpoint::new(world).unwrap();
    endpoint.set_handler(1, |message| message.reply(2, &[]).unwrap());
    endpoint.map_world().unwrap();
    endpoint.barrier().unwrap();
    while !gone.load(Relaxed) {
        asked.fetch_add(endpoint.poll() as u32, Relaxed);
    }
    world.fail();
    // Its queues stay as they are, as those of a killed process.
    std::mem::forget(endpoint);
}

#[test]
fn each_request_to_the_dead_is_answered_or_returned_once() {
    let _dog = Watchdog::new("each_request_to_the_dead_is_answered_or_returned_once");
    for round in 0..12 {
        // The receiver on another host than both senders' or than one's.
        let (ranks, victim): (&[u32], u32) = if round % 2 == 0 { (&[2, 1], 2) } else { (&[1, 1, 1], 1) };
        let cluster = Cluster::new(ranks, &tiny(ranks, Algorithm::Towpath));
        let (asked, gone) = (AtomicU32::new(0), AtomicBool::new(false));
        let tallies = cluster.each_rank(|world| {
            if world.rank() == victim {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        while asked.load(Relaxed) < 50 + 100 * round {
                            thread::yield_now();
                        }
                        gone.store(true, Relaxed);
                    });
                    answer_until(&world, &asked, &gone);
                });
                return Tally::default();
            }
            ask_until_gone(&world, victim, &gone)
        });
        for tally in tallies {
            assert_eq!(tally.answered + tally.unreachable, tally.sent, "{tally:?}");
        }
    }
}

#[test]
fn lost_link_is_the_death_of_its_ranks_on_both_sides() {
    let _dog = Watchdog::new("lost_link_is_the_death_of_its_ranks_on_both_sides");
    for lost in [0, 1, 2] {
        let ranks = [1, 1, 1];
        let mut cluster = Cluster::new(&ranks, &tiny(&ranks, Algorithm::Towpath));
        let gone = AtomicBool::new(false);
        let cut = Mutex::new(cluster.gateways[lost].take());
        let tallies = cluster.each_rank(|world| {
            let me = world.rank();
            // Rank 1 asks rank 0, 0 asks 2, 2 asks 1: each pair of hosts talks.
            let peer = (me + 2) % 3;
            let endpoint = Endpoint::new(&world).unwrap();
            let (answered, back) = (Count::default(), Count::default());
            let (a, b) = (answered.clone(), back.clone());
            endpoint.set_handler(1, |message| message.reply(2, &[]).unwrap());
            endpoint.set_handler(2, move |_| a.add());
            endpoint.set_handler(0, move |message| {
                let why = message.returned().unwrap();
                assert_eq!(why.status, Status::Unreachable);
                if why.operation.is_request() {
                    b.add();
                }
            });
            endpoint.map_world().unwrap();
            endpoint.barrier().unwrap();
            let mut sent = 0;
            while sent < 2000 || back.get() == 0 && !gone.load(Relaxed) {
                endpoint.request(peer as usize, 1, &[sent]).unwrap();
                sent += 1;
                if sent == 500 && me as usize == lost {
                    drop(cut.lock().unwrap().take());
                    gone.store(true, Relaxed);
                }
                endpoint.poll();
            }
            endpoint.poll_until(|| answered.get() + back.get() >= sent);
            // Peers on the same side may still want answers.
            let quiet = Instant::now();
            endpoint.poll_until(|| quiet.elapsed() > Duration::from_millis(300));
            (sent, answered.get(), back.get())
        });
        for (rank, (sent, answered, back)) in tallies.into_iter().enumerate() {
            // One that was answered comes back, too, if the link was lost before that was told: at
            // most as many as are under way at a time.
            assert!(answered + back <= sent + 16, "{rank} without {lost}: {answered} + {back} of {sent}");
        }
        for host in (0..3).filter(|host| *host != lost) {
            cluster.until(host, |world| world.has_died(lost as u32));
            if host == 0 || lost == 0 {
                let news = cluster.next_news(host);
                assert!(matches!(news, News::HostLost { host, .. } if host == lost), "{news:?}");
            }
        }
        if lost == 0 {
            cluster.until(1, |world| world.has_died(2));
        }
    }
}

#[test]
fn full_receiver_holds_up_only_its_own_senders() {
    let _dog = Watchdog::new("full_receiver_holds_up_only_its_own_senders");
    let ranks = [2, 2];
    let cluster = Cluster::new(&ranks, &tiny(&ranks, Algorithm::Towpath));
    let (stuck, done) = (AtomicBool::new(false), AtomicBool::new(false));
    cluster.each_rank(|world| {
        let endpoint = Endpoint::new(&world).unwrap();
        let count = Count::default();
        let note = count.clone();
        endpoint.set_handler(1, move |message| {
            note.add();
            message.reply(2, &[]).unwrap();
        });
        let answers = Count::default();
        let note = answers.clone();
        endpoint.set_handler(2, move |_| note.add());
        endpoint.map_world().unwrap();
        match world.rank() {
            // Fills the queue of rank 2, which does not poll.
            0 => {
                let mut sent = 0;
                let mut last = Instant::now();
                while last.elapsed() < Duration::from_millis(300) {
                    match endpoint.try_request(2, 1, &[]) {
                        Ok(()) => (sent, last) = (sent + 1, Instant::now()),
                        Err(Error::NotSent) => thread::yield_now(),
                        Err(other) => panic!("{other}"),
                    }
                }
                assert_eq!(sent, 16, "as many as a local queue takes");
                stuck.store(true, Relaxed);
                endpoint.poll_until(|| answers.get() == sent);
            }
            // Goes on with rank 3 all the same.
            1 => {
                while !stuck.load(Relaxed) {
                    thread::yield_now();
                }
                for n in 1..=500 {
                    endpoint.request(3, 1, &[]).unwrap();
                    endpoint.poll_until(|| answers.get() == n);
                }
                done.store(true, Relaxed);
            }
            2 => {
                while !done.load(Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                endpoint.poll_until(|| count.get() == 16);
            }
            _ => endpoint.poll_until(|| count.get() >= 500),
        }
        endpoint.barrier().unwrap();
    });
}

#[test]
fn many_senders_keep_their_order_and_lose_nothing() {
    let _dog = Watchdog::new("many_senders_keep_their_order_and_lose_nothing");
    const EACH: u32 = 20_000;
    let ranks = [2, 1, 2];
    let cluster = Cluster::new(&ranks, &config(&ranks));
    cluster.each_rank(|world| {
        let endpoint = Endpoint::new(&world).unwrap();
        let seen = Arc::new(Mutex::new(HashMap::<u32, u32>::new()));
        let note = seen.clone();
        endpoint.set_handler(1, move |message| {
            let [from, n] = *message.args() else { panic!("two arguments") };
            let mut seen = note.lock().unwrap();
            let next = seen.entry(from).or_default();
            assert_eq!(n, *next, "from {from}");
            *next += 1;
        });
        endpoint.map_world().unwrap();
        if world.rank() == 2 {
            endpoint.poll_until(|| seen.lock().unwrap().values().sum::<u32>() == 4 * EACH);
        } else {
            for n in 0..EACH {
                endpoint.request(2, 1, &[world.rank(), n]).unwrap();
            }
        }
        endpoint.barrier().unwrap();
    });
}

#[test]
fn endpoint_that_opens_again_has_a_new_name_on_all_hosts() {
    let _dog = Watchdog::new("endpoint_that_opens_again_has_a_new_name_on_all_hosts");
    let ranks = [1, 1];
    let cluster = Cluster::new(&ranks, &config(&ranks));
    let step = AtomicU32::new(0);
    let await_step = |n| {
        while step.load(Relaxed) < n {
            thread::sleep(Duration::from_millis(1));
        }
    };
    cluster.each_rank(|world| {
        if world.rank() == 1 {
            for round in 1..=5 {
                let endpoint = Endpoint::new(&world).unwrap();
                let count = Count::default();
                let note = count.clone();
                endpoint.set_handler(1, move |_| note.add());
                endpoint.poll_until(|| count.get() >= 1);
                drop(endpoint);
                await_step(round);
            }
            world.leave().unwrap();
            return;
        }
        let endpoint = Endpoint::new(&world).unwrap();
        let back = Count::default();
        let note = back.clone();
        endpoint.set_handler(0, move |message| {
            assert_eq!(message.returned().unwrap().status, Status::BadEndpoint);
            note.add();
        });
        let mut before: Option<Name> = None;
        for round in 1..=5 {
            let name = loop {
                match endpoint.name_of_rank(1) {
                    Some(name) if Some(name) != before => break name,
                    _ => thread::sleep(Duration::from_millis(1)),
                }
            };
            endpoint.map(1, name, Tag::ALL).unwrap();
            before = Some(name);
            endpoint.request(1, 1, &[]).unwrap();
            // Until one comes back: the others were handled before it closed, or come back, too.
            while back.get() < round {
                endpoint.request(1, 1, &[]).unwrap();
                endpoint.wait(Some(Duration::from_millis(5)));
                endpoint.recover();
                endpoint.poll();
            }
            let seen = back.get();
            back.0.fetch_sub(seen - round, Relaxed);
            step.store(round, Relaxed);
        }
        cluster.until(0, |world| matches!(world.rank_state(1), RankState::HasLeft(_)));
        assert_eq!(world.deaths(), 0);
        // Alone at the barrier.
        endpoint.barrier().unwrap();
    });
}

#[test]
fn successor_of_the_dead_is_reached_from_other_hosts() {
    let _dog = Watchdog::new("successor_of_the_dead_is_reached_from_other_hosts");
    let ranks = [1, 1];
    let cluster = Cluster::new(&ranks, &config(&ranks));
    let (zero, one) = (cluster.enter(0), cluster.enter(1));
    let first = Endpoint::new(&one).unwrap();
    let endpoint = Endpoint::new(&zero).unwrap();
    endpoint.map_world().unwrap();
    let name = first.name();
    one.fail();
    std::mem::forget(first);
    cluster.until(0, |world| world.has_died(1));
    cluster.until(0, |_| endpoint.map(0, name, Tag::ALL).is_err());
    let successor = cluster.worlds[1].reopen().unwrap();
    successor.enter(Some(1)).unwrap();
    let second = Endpoint::new(&successor).unwrap();
    let count = Count::default();
    let note = count.clone();
    second.set_handler(1, move |_| note.add());
    cluster.until(0, |_| endpoint.name_of_rank(1).is_some());
    endpoint.map_world().unwrap();
    endpoint.request(1, 1, &[]).unwrap();
    second.poll_until(|| count.get() >= 1);
    assert_eq!((cluster.worlds[0].deaths(), cluster.worlds[1].deaths()), (1, 1));
}

#[test]
fn launchers_tell_each_other_in_order() {
    let _dog = Watchdog::new("launchers_tell_each_other_in_order");
    let ranks = [1, 1, 1];
    let cluster = Cluster::new(&ranks, &config(&ranks));
    let gateway = |host: usize| cluster.gateways[host].as_ref().unwrap();
    for n in 0..100u8 {
        gateway(1).tell(Some(2), &[n]);
        gateway(1).tell(None, &[n, n]);
        gateway(0).tell(Some(1), &[n]);
    }
    let note = |from, bytes: &[u8]| News::Note { from, bytes: bytes.to_vec() };
    for n in 0..100 {
        assert_eq!(cluster.next_news(2), note(1, &[n]));
        assert_eq!(cluster.next_news(2), note(1, &[n, n]));
        assert_eq!(cluster.next_news(0), note(1, &[n, n]));
        assert_eq!(cluster.next_news(1), note(0, &[n]));
    }
}

#[test]
fn peer_that_sends_nonsense_loses_its_link() {
    let _dog = Watchdog::new("peer_that_sends_nonsense_loses_its_link");
    let hosts = Hosts::new(&[1, 1], 0).unwrap();
    let frames: [&[u8]; 6] = [
        b"x",
        &[0, 0, 1, 0, 99, 0, 0, 0, 0],
        &[0, 0, 1, 0, 3, 0xff, 0xff, 0, 0],
        // As if it were this host; for a host that there is not; rank 0 of this host.
        &[0, 0, 0, 0, 8, 0, 0, 0, 0],
        &[0, 0, 7, 0, 8, 0, 0, 0, 0],
        &[0, 0, 1, 0, 3, 5, 0, 0, 0, 0, 0, 0, 0, 2],
    ];
    for frame in frames {
        let world = World::create_part(&config(&[1, 1]).spec(None), 0..1).unwrap();
        let (here, mut there) = link();
        let gateway = Gateway::start(&world, hosts.clone(), vec![(1, here)]).unwrap();
        there.send(frame).unwrap();
        let news = loop {
            if let Some(news) = gateway.news() {
                break news;
            }
            thread::sleep(Duration::from_millis(1));
        };
        assert!(matches!(&news, News::HostLost { host: 1, why } if why.contains("no sense")), "{news:?}");
        assert!(world.has_died(1) && !world.has_died(0));
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let hosts = |me| Hosts::new(&[1, 1], me).unwrap();
    let world = World::create_part(&config(&[1, 1]).spec(None), 0..1).unwrap();
    let refused = |hosts, links| Gateway::start(&world, hosts, links).unwrap_err().to_string();
    assert!(refused(hosts(1), Vec::new()).contains("part of the world"));
    assert!(refused(hosts(0), Vec::new()).contains("links to hosts"));
    let whole = World::create(&config(&[2]).spec(None)).unwrap();
    let all_here = Hosts::new(&[2, 0], 0).unwrap();
    assert!(Gateway::start(&whole, all_here, Vec::new()).is_err());
}
