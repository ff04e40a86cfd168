use super::LockEventKind::{Acquired, GaveUp, Released, Rests, Returns, Shared, Site, Sleeps, Tried, Waits};
use super::ReplayStep::{Hold, Idle, Work};
use super::*;

/// A trace of threads with these events, in which none lacks a core.
fn trace(threads: &[&[(u64, LockEventKind, u64)]]) -> LockTrace {
    let events = |events: &[(u64, LockEventKind, u64)]| {
        events.iter().map(|&(ns, kind, object)| TracedEvent { ns, kind, object }).collect::<Vec<_>>()
    };
    let threads: BTreeMap<u64, Vec<TracedEvent>> = (1..).zip(threads.iter().map(|e| events(e))).collect();
    let length = threads.values().flatten().map(|event| event.ns).max().unwrap_or(0);
    LockTrace { threads, length, processor_time: 64 * length, ..LockTrace::default() }
}

fn replay(threads: &[&[(u64, LockEventKind, u64)]]) -> LockReplay {
    LockReplay::new(&trace(threads), 32, 64).unwrap()
}

/// The file's bytes for a trace, as the library writes it.
fn bytes(trace: &LockTrace) -> Vec<u8> {
    let mut words = vec![
        u64::from_le_bytes(MAGIC),
        100,
        0,
        trace.dropped,
        7,
        trace.length,
        trace.processor_time,
        trace.forks,
    ];
    words.resize(HEADER / 8, 0);
    for (thread, events) in &trace.threads {
        for chunk in events.chunks(RECORDS - 1) {
            words[2] += 1;
            words.extend([0, *thread]);
            for event in chunk {
                let kind = LockEventKind::ALL.iter().position(|kind| *kind == event.kind).unwrap() as u64 + 1;
                words.extend([event.ns << KIND_BITS | kind, event.object]);
            }
            words.extend([0, 0].repeat(RECORDS - 1 - chunk.len()));
        }
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn written(name: &str, bytes: &[u8]) -> Result<LockTrace, String> {
    let file = std::env::temp_dir().join(format!("towpath-{name}-{}", std::process::id()));
    std::fs::write(&file, bytes).unwrap();
    let result = LockTrace::read(&file);
    std::fs::remove_file(&file).unwrap();
    result
}

#[test]
fn trace_is_read_as_it_was_written() {
    let many: Vec<_> = (0..300).map(|n| (n, if n % 2 == 0 { Acquired } else { Released }, 64)).collect();
    let mut trace = trace(&[&many, &[(5, Waits, 64), (9, GaveUp, 64)]]);
    (trace.dropped, trace.disk_was_full, trace.forks) = (3, true, 1);
    assert_eq!(written("trace", &bytes(&trace)).unwrap(), trace);
    assert_eq!(trace.acquisitions(), 150);
    // It ends with its last event, where the program went on without.
    let mut header = bytes(&trace);
    header[40..48].copy_from_slice(&1_000_000u64.to_le_bytes());
    assert_eq!(written("trace-full", &header).unwrap(), trace);
    // Or when there was no room for an event of any thread.
    header[40..48].copy_from_slice(&7u64.to_le_bytes());
    let cut = written("trace-cut", &header).unwrap();
    assert_eq!((cut.length, cut.threads[&1].len(), cut.threads[&2].len()), (7, 8, 1));
}

#[test]
fn damaged_traces_are_refused_with_the_cause() {
    let good = bytes(&trace(&[&[(1, Acquired, 64), (2, Released, 64)]]));
    let refused = |name: &str, bytes: &[u8], cause: &str| {
        let error = written(name, bytes).unwrap_err();
        assert!(error.contains(cause) && error.contains("towpath preload --trace"), "{error}");
    };
    refused("empty", &[], "no trace of locks");
    refused("other", &[7; 5000], "no trace of locks");
    refused("short", &good[..good.len() - 1], "shorter than it says");
    let with = |at: usize, word: u64| {
        let mut bytes = good.clone();
        bytes[HEADER + 8 * at..HEADER + 8 * at + 8].copy_from_slice(&word.to_le_bytes());
        bytes
    };
    refused("kind", &with(2, 15), "unknown kind");
    refused("order", &with(2, 9 << KIND_BITS | 2), "not in their order");
}

#[test]
fn work_is_inside_outside_or_neither() {
    let replay = replay(&[&[
        (100, Acquired, 64),
        (150, Acquired, 128),
        (160, Released, 128),
        (180, Released, 64),
        (300, Waits, 64),
        (900, Acquired, 64),
        (950, Sleeps, 200),
        (950, Released, 64),
        (2_000, Acquired, 64),
        (2_010, Released, 64),
    ]]);
    let expected = [
        Idle(100),
        Hold { lock: 0, steps: 4 },
        Work(50),
        Hold { lock: 1, steps: 1 },
        Work(10),
        Work(20),
        Work(120),
        Hold { lock: 0, steps: 1 },
        Work(50),
        Idle(1_050),
        Hold { lock: 0, steps: 1 },
        Work(10),
    ];
    assert_eq!(replay.threads, [expected.to_vec()]);
    assert_eq!((replay.locks, replay.acquisitions, replay.waited, replay.scale), (2, 4, 1, 1.0));
    assert_eq!(replay.waited_ns, 600);
    assert!(
        replay.to_string().ends_with("for 1 of them a thread waited, 29.9 % of the threads' time"),
        "{replay}"
    );
}

#[test]
fn replay_of_a_full_trace_says_so() {
    let mut full = trace(&[&[(0, Acquired, 64), (10, Released, 64)]]);
    let text = |trace: &LockTrace| LockReplay::new(trace, 1, 64).unwrap().to_string();
    assert!(!text(&full).contains("beginning"), "{}", text(&full));
    full.dropped = 12;
    let said = "the trace is of the program's beginning, 12 later events had no room in it";
    assert!(text(&full).contains(said), "{}", text(&full));
}

#[test]
fn waits_for_semaphores_and_barriers_are_rests() {
    let replay = replay(&[&[
        (0, Acquired, 64),
        (10, Released, 64),
        (30, Rests, 256),
        (1_000, Returns, 256),
        (1_005, Acquired, 64),
        (1_010, Released, 64),
    ]]);
    let hold = Hold { lock: 0, steps: 1 };
    let expected = [hold, Work(10), Work(20), Idle(970), Work(5), hold, Work(5)];
    assert_eq!(replay.threads, [expected.to_vec()]);
    assert_eq!(replay.locks, 1);
}

#[test]
fn locks_that_overlap_are_held_to_the_later_end() {
    let replay = replay(&[&[
        (0, Acquired, 64),
        (10, Acquired, 128),
        (20, Released, 64),
        (30, Released, 128),
        (40, Released, 64),
        (50, Shared, 128),
        (60, Shared, 128),
        (70, Released, 128),
        (80, Released, 128),
        (90, Acquired, 64),
        (90, Acquired, 128),
    ]]);
    let expected = [
        Hold { lock: 1, steps: 3 },
        Work(10),
        Hold { lock: 0, steps: 1 },
        Work(20),
        Work(20),
        Hold { lock: 0, steps: 1 },
        Work(30),
        Work(10),
        Hold { lock: 1, steps: 1 },
        Hold { lock: 0, steps: 0 },
    ];
    assert_eq!(replay.threads[0], expected);
    assert_eq!(replay.readers, 1);
}

#[test]
fn tried_lock_under_another_is_left_out() {
    let under = replay(&[&[(0, Acquired, 64), (1, Tried, 128), (2, Released, 128), (3, Released, 64)]]);
    assert_eq!(under.threads[0], [Hold { lock: 0, steps: 1 }, Work(3)]);
    let alone = replay(&[&[(1, Tried, 128), (2, Released, 128)]]);
    assert_eq!(alone.threads[0], [Idle(1), Hold { lock: 0, steps: 1 }, Work(1)]);
}

#[test]
fn work_beyond_the_processor_time_is_rest() {
    let events: &[_] = &[(0, Acquired, 64), (10, Released, 64), (1_010, Acquired, 64), (1_020, Released, 64)];
    let mut trace = trace(&[events]);
    trace.processor_time = 120;
    let half = LockReplay::new(&trace, 32, 64).unwrap();
    assert_eq!(half.threads[0][2..4], [Idle(900), Work(100)]);
    trace.processor_time = 10;
    let scaled = LockReplay::new(&trace, 32, 64).unwrap();
    assert_eq!((scaled.threads[0][1], scaled.threads[0][2], scaled.scale), (Work(5), Idle(1_000), 0.5));
}

#[test]
fn busiest_part_and_threads_are_replayed() {
    let ms = 1_000_000;
    let few: Vec<_> =
        (0..10).flat_map(|n| [(n * 100 * ms, Acquired, 64), (n * 100 * ms + 5, Released, 64)]).collect();
    let many: Vec<_> = (0..50)
        .flat_map(|n| [(600 * ms + n * ms, Acquired, 64), (600 * ms + n * ms + 5, Released, 64)])
        .collect();
    let trace = trace(&[&few, &many]);
    let replay = LockReplay::new(&trace, 1, 64).unwrap();
    assert!((450 * ms..=600 * ms).contains(&replay.part.0), "{:?}", replay.part);
    assert_eq!((replay.acquisitions, replay.left_out, replay.shares()), (50, 1, vec![50]));
    assert!(replay.to_string().contains("the busiest of 900 ms"), "{replay}");
    let none = LockReplay::new(&LockTrace::default(), 1, 64).unwrap_err();
    assert!(none.contains("no acquisition"), "{none}");
}

#[test]
fn locks_have_their_waits_holds_and_hand_overs() {
    let first: &[_] = &[
        (0, Acquired, 64),
        (100, Released, 64),
        (200, Acquired, 64),
        (250, Released, 64),
        (900, Acquired, 128),
        (910, Sleeps, 256),
        (910, Released, 128),
    ];
    let second: &[_] = &[
        (20, Site, 0x1234),
        (20, Waits, 64),
        (110, Acquired, 64),
        (130, Released, 64),
        (240, Waits, 64),
        (245, GaveUp, 64),
    ];
    let [hot, cold] = trace(&[first, second]).locks().try_into().unwrap();
    let expected = TracedLock {
        address: 64,
        threads: 2,
        acquisitions: 3,
        hand_overs: 2,
        waits: 2,
        waited: 95,
        longest_wait: 90,
        held: 170,
        longest_hold: 100,
        site: Some((0x1234, 90)),
    };
    assert_eq!(hot, expected);
    assert_eq!((cold.address, cold.acquisitions, cold.waits, cold.held), (128, 1, 0, 10));
}

#[test]
fn places_are_named_by_their_file() {
    let lines = "1000-2000 r--p 00000000 08:01 7 /bin/server\n2000-3000 r-xp 00001000 08:01 7 /bin/server\n7000-8000 rw-p 00000000 00:00 0 [heap]\n9000-a000 r--p 00000000 08:01 9                          /my programs/a b\n";
    let mut bytes = bytes(&trace(&[&[(1, Acquired, 64), (2, Released, 64)]]));
    let room = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    bytes.resize(HEADER + room * RECORD * RECORDS, 0);
    bytes.extend(lines.as_bytes());
    bytes[64..72].copy_from_slice(&(lines.len() as u64).to_le_bytes());
    let trace = written("places", &bytes).unwrap();
    assert_eq!(
        [0x1010, 0x2345, 0x7100, 0x9004].map(|address| trace.place(address)),
        ["/bin/server+0x10", "/bin/server+0x1345", "0x7100", "/my programs/a b+0x4"]
    );
}
