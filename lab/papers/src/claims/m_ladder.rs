//! Paper M §4 to §8, §9.2: latency and bandwidth of the device's versions on the SX-4 (M1
//! to M11, M17).
//!
//! Inputs, which never count: what a semaphore's call takes (M1), what flushing the cache takes
//! (M6), and what MPICH's own instructions take (M9). The rate of `memcpy` is a parameter too (M8
//! is about what is left of it).

use towpath_sim::machines;

use super::context::{At, Series, rising, within, within_factor};
use super::{Claim, Context, Finding, below, not_above};
use crate::ladder::Version;
use crate::sim::Sweep;
use crate::sim::ladder::{MEMORY, Rung, copy_rate, ping_pong, single_copy};
use towpath_host::Error;
use towpath_report::format::{bandwidth, digits, nanoseconds, size};
use towpath_report::record::Metric;
use towpath_report::record::metrics::{BYTES_PER_S, ROUND_TRIP_US};
use towpath_report::stats::{percentile, summarise};

/// Messages that travel in a packet.
const SHORT: [u64; 4] = [0, 8, 256, 1023];
const MB: u64 = 1 << 20;
/// The longest message that goes through the shared memory in one piece, slots or not.
const ONE_PIECE: u64 = 3 * MB;

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "M1",
        what: "With System V semaphores the latency is 750 µs, from 1 KB on above a millisecond",
        paper: "750 µs; > 1000 µs",
        tolerance: "± 25 %",
        input: true,
        simulated: m1,
        native: None,
    },
    Claim {
        id: "M2",
        what: "The step at 1024 bytes shows, because two locks are needed instead of one",
        paper: "a step",
        tolerance: "at least one lock's cost; twice the operations on locks",
        input: false,
        simulated: m2,
        native: None,
    },
    Claim {
        id: "M3",
        what: "With semaphores the bandwidth still rises at 4 MB; it is limited by the locks",
        paper: "rises",
        tolerance: "order, 3 % is a tie; without the locks' cost it is higher",
        input: false,
        simulated: m3,
        native: None,
    },
    Claim {
        id: "M4",
        what: "Lock-free slots and semaphores: about 40 µs for short messages",
        paper: "40 µs",
        tolerance: "± 25 %",
        input: false,
        simulated: m4,
        native: None,
    },
    Claim {
        id: "M5",
        what: "The bandwidth dips at about 3 MB, where one segment becomes two, because the slots of 32 × 32 pairs have taken from the 8 MB of shared memory",
        paper: "3 MB",
        tolerance: "by one power of two; without the slots no dip up to 4 MB",
        input: false,
        simulated: m5,
        native: None,
    },
    Claim {
        id: "M6",
        what: "Test&set locks: about 80 µs for short messages, 120 µs for eager ones, bandwidth approaching 1.2 GB/s",
        paper: "80 µs, 120 µs, 1.2 GB/s",
        tolerance: "± 25 %",
        input: true,
        simulated: m6,
        native: None,
    },
    Claim {
        id: "M7",
        what: "Lock-free slots and test&set locks: 37 µs for empty messages, 40 µs for short ones, 90 µs at 1 KB, 1.2 GB/s",
        paper: "37 µs, 40 µs, 90 µs, 1.2 GB/s",
        tolerance: "± 25 %",
        input: false,
        simulated: m7,
        native: None,
    },
    Claim {
        id: "M8",
        what: "memcpy moves 2.5 GB/s; with two copies for a message 1.25 GB/s are possible, 1.2 GB/s are reached",
        paper: "96 % of what two copies allow",
        tolerance: "± 25 %, and not more than they allow",
        input: false,
        simulated: m8,
        native: None,
    },
    Claim {
        id: "M9",
        what: "MPICH's own instructions take about 30 µs for a message",
        paper: "30 µs",
        tolerance: "a parameter",
        input: true,
        simulated: m9,
        native: None,
    },
    Claim {
        id: "M10",
        what: "Order of latencies of short messages: the two lock-free versions coincide, then test&set locks, then semaphores",
        paper: "slots-tas = slots-sysv < tas < sysv",
        tolerance: "order, 3 % is a tie; the two within 5 %",
        input: false,
        simulated: m10,
        native: None,
    },
    Claim {
        id: "M11",
        what: "Short messages: 19 times as fast as with semaphores, twice as fast as with test&set locks",
        paper: "19; 2.0",
        tolerance: "a factor 2",
        input: false,
        simulated: m11,
        native: None,
    },
    Claim {
        id: "M17",
        what: "A single copy, between threads, would double the bandwidth",
        paper: "2 (1.8 to 2.0)",
        tolerance: "1.8 to 2.0",
        input: false,
        simulated: m17,
        native: None,
    },
];

fn of(version: Version, bytes: u64) -> At<'static> {
    At { bytes: Some(bytes), ..At::new(version.name(), 2) }
}

/// All versions at all lengths: everything below takes its figures from here.
fn ladder(context: &Context<'_>) -> Result<Series, Error> {
    context.ask(&Sweep::on("ladder", "sx4", &Version::ALL.map(Version::name), &[2]))
}

/// One version's curves, as in the paper's figure.
fn figure(context: &Context<'_>, version: Version, name: &str) -> Result<[String; 2], Error> {
    let series = context.ask(&Sweep::on("ladder", "sx4", &[version.name()], &[2]))?;
    Ok(plots(&series, name))
}

fn plots(series: &Series, name: &str) -> [String; 2] {
    [("left: round trip", ROUND_TRIP_US), ("right: bandwidth", BYTES_PER_S)]
        .map(|(part, metric)| series.plot_by_bytes(&format!("{name}, {part} by size"), metric))
}

type Look<'f> = &'f dyn Fn(At<'_>, Metric) -> f64;

/// One way, in microseconds.
fn latency(f: Look<'_>, version: Version, bytes: u64) -> f64 {
    f(of(version, bytes), ROUND_TRIP_US) / 2.0
}

fn gigabytes(f: Look<'_>, version: Version, bytes: u64) -> f64 {
    f(of(version, bytes), BYTES_PER_S) / 1e9
}

/// One way, of some lengths: median, from … to.
fn show(series: &Series, version: Version, lengths: &[u64]) -> String {
    let one = |&bytes: &u64| {
        let all = summarise(series.each(of(version, bytes), ROUND_TRIP_US));
        let text = all.map_or("not measured".into(), |a| {
            let [median, min, max] = [a.median, a.min, a.max].map(|us| digits(us / 2.0));
            format!("{median} ({min} to {max}) µs")
        });
        format!("{} {text}", size(bytes))
    };
    lengths.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn show_bandwidth(series: &Series, version: Version, bytes: u64) -> String {
    let all = summarise(series.each(of(version, bytes), BYTES_PER_S));
    all.map_or("not measured".into(), |a| {
        format!("{} {} ({} to {})", size(bytes), bandwidth(a.median), bandwidth(a.min), bandwidth(a.max))
    })
}

fn stuck(stuck: towpath_sim::Stuck) -> Error {
    Error::NotAvailable(stuck.to_string())
}

fn m1(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ladder(context)?;
    let against = series.judge(|f| {
        let mut against = within("short", latency(f, Version::SystemV, 8), 750.0, 0.25);
        let eager = latency(f, Version::SystemV, 1024);
        if eager <= 1000.0 {
            against.push(format!("1 KB takes {} µs", digits(eager)));
        }
        against
    });
    let ours = show(&series, Version::SystemV, &[8, 1024]);
    Ok(Finding::new(ours, against).with(figure(context, Version::SystemV, "M figure 1")?))
}

fn m2(context: &Context<'_>) -> Result<Finding, Error> {
    let machine = machines::by_name("sx4").expect("a machine that comes with Towpath");
    let series = ladder(context)?;
    let (version, mut text, mut against) = (Version::SystemV, Vec::new(), Vec::new());
    // Entering and leaving.
    let lock = 2.0 * machine.semaphore as f64 / 1e6;
    against.extend(series.judge(|f| {
        let step = latency(f, version, 1024) - latency(f, version, 1023);
        let small = format!("the step is {} µs, less than a lock's {} µs", digits(step), digits(lock));
        if step < lock { vec![small] } else { Vec::new() }
    }));
    text.push(show(&series, version, &[1023, 1024]));
    let rung = |bytes| Rung::on(&machine, version, bytes);
    let operations = |bytes| ping_pong(&rung(bytes)).map(|f| f.lock_operations).map_err(stuck);
    let (short, eager) = (operations(1023)?, operations(1024)?);
    if eager != 2.0 * short {
        against.push(format!("{} and {} operations on locks", digits(short), digits(eager)));
    }
    text.push(format!("{} and {} operations on locks for a message", digits(short), digits(eager)));
    Ok(Finding::new(text.join("; "), against))
}

fn m3(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ladder(context)?;
    let version = Version::SystemV;
    let lengths = [1, 2, 4].map(|n| n << 20).into();
    let free = Sweep { bytes: lengths, ..Sweep::on("ladder", "sx4", &[version.name()], &[2]) };
    let free = context.ask(&free.set("os.semaphore=1ns"))?;
    let rises = |f: Look<'_>| {
        let [one, two, four] = [1, 2, 4].map(|n| gigabytes(f, version, n * MB));
        let flat = |a: f64, b: f64| not_above(b, a);
        let text = format!("{}, {}, {} GB/s at 1, 2, 4 MB", digits(one), digits(two), digits(four));
        if flat(one, two) || flat(two, four) { vec![text] } else { Vec::new() }
    };
    let mut against = series.judge(rises);
    let without = free.judge(rises);
    let at = of(version, 4 * MB);
    if not_above(free.median(at, BYTES_PER_S), series.median(at, BYTES_PER_S)) {
        against.push("semaphores that cost nothing change nothing".into());
    }
    let text = [1, 2, 4].map(|n| show_bandwidth(&series, version, n * MB)).join(", ");
    let free = bandwidth(free.median(at, BYTES_PER_S));
    let finding = Finding::new(format!("{text}; with semaphores that cost nothing {free}"), against);
    Ok(finding.sabotaged("semaphores that cost nothing", &without))
}

fn m4(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ladder(context)?;
    let version = Version::SlotsSystemV;
    let claim = |f: Look<'_>| within("short", latency(f, version, 8), 40.0, 0.25);
    let against = series.judge(claim);
    let quick = short_of(context, &[version], "memory.latency=48ns")?.judge(claim);
    let ours = show(&series, version, &[8]);
    let finding = Finding::new(ours, against).with(figure(context, version, "M figure 4")?);
    Ok(finding.sabotaged("memory ten times as fast", &quick))
}

/// Short messages of some versions with a parameter changed.
fn short_of(context: &Context<'_>, versions: &[Version], change: &str) -> Result<Series, Error> {
    let names: Vec<&str> = versions.iter().map(|version| version.name()).collect();
    let sweep = Sweep { bytes: vec![8], ..Sweep::on("ladder", "sx4", &names, &[2]) };
    context.ask(&sweep.set(change))
}

/// The first of some lengths at which the bandwidth is less than at the one before, by
/// more than 3 %.
fn dip(lengths: &[usize], bandwidths: &[f64]) -> Option<usize> {
    let at = bandwidths.windows(2).position(|w| below(w[1], w[0]))?;
    lengths.get(at + 1).copied()
}

fn m5(context: &Context<'_>) -> Result<Finding, Error> {
    let version = Version::SlotsSystemV;
    let lengths: Vec<usize> = (4..=16).map(|quarters| quarters << 18).collect();
    let question = Sweep::on("ladder", "sx4", &[version.name()], &[2]);
    let series = context.ask(&Sweep { bytes: lengths.clone(), ..question })?;
    let paper = 3.0 * MB as f64;
    let position = |f: Look<'_>| {
        let all: Vec<f64> = lengths.iter().map(|&n| gigabytes(f, version, n as u64)).collect();
        dip(&lengths, &all)
    };
    let mut against = series.judge(|f| match position(f) {
        Some(at) => within_factor("the dip's place", at as f64, paper, 2.0),
        None => vec!["no dip up to 4 MB".into()],
    });
    let found = position(&|at, metric| series.median(at, metric));
    // With all of the memory for data, as if the slots took none of it.
    let machine = machines::by_name("sx4").expect("a machine that comes with Towpath");
    let whole = |bytes| Rung { pool: MEMORY, ..Rung::on(&machine, version, bytes) };
    let unshrunk: Result<Vec<f64>, Error> =
        lengths.iter().map(|&n| ping_pong(&whole(n)).map(|f| n as f64 / f.latency).map_err(stuck)).collect();
    if let Some(at) = dip(&lengths, &unshrunk?) {
        against.push(format!("without the slots there is a dip too, at {}", size(at as u64)));
    }
    let place = found.map_or("no dip".into(), |at| format!("first dip at {}", size(at as u64)));
    Ok(Finding::new(format!("{place}; without the slots none up to 4 MB"), against))
}

fn m6(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ladder(context)?;
    let version = Version::TestAndSet;
    let against = series.judge(|f| {
        [
            within("short", latency(f, version, 8), 80.0, 0.25),
            within("eager", latency(f, version, 1024), 120.0, 0.25),
            within("bandwidth", gigabytes(f, version, ONE_PIECE), 1.2, 0.25),
        ]
        .concat()
    });
    let ours =
        format!("{}, {}", show(&series, version, &[8, 1024]), show_bandwidth(&series, version, ONE_PIECE));
    Ok(Finding::new(ours, against).with(figure(context, version, "M figure 5")?))
}

fn m7(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ladder(context)?;
    let version = Version::SlotsTestAndSet;
    let against = series.judge(|f| {
        [
            within("empty", latency(f, version, 0), 37.0, 0.25),
            within("short", latency(f, version, 8), 40.0, 0.25),
            within("1 KB", latency(f, version, 1024), 90.0, 0.25),
            within("bandwidth", gigabytes(f, version, ONE_PIECE), 1.2, 0.25),
        ]
        .concat()
    });
    let latencies = show(&series, version, &[0, 8, 1024]);
    let ours = format!("{latencies}, {}", show_bandwidth(&series, version, ONE_PIECE));
    Ok(Finding::new(ours, against).with(figure(context, version, "M figure 6")?))
}

fn m8(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ladder(context)?;
    let machine = machines::by_name("sx4").expect("a machine that comes with Towpath");
    let copy = copy_rate(&machine).map_err(stuck)?;
    let part = |f: Look<'_>| gigabytes(f, Version::SlotsTestAndSet, ONE_PIECE) / (copy / 2.0);
    let against = series.judge(|f| {
        let mut against = within("the part", part(f), 0.96, 0.25);
        if part(f) > 1.0 {
            against.push(format!("{} of what two copies allow", digits(part(f))));
        }
        against
    });
    let ours = part(&|at, metric| series.median(at, metric));
    let text = format!(
        "copies at {}, of which two allow half; {} % of that",
        bandwidth(copy * 1e9),
        digits(ours * 100.0)
    );
    Ok(Finding::new(text, against))
}

fn m9(_: &Context<'_>) -> Result<Finding, Error> {
    let machine = machines::by_name("sx4").expect("a machine that comes with Towpath");
    let software = Rung::on(&machine, Version::SystemV, 0).software as f64;
    Ok(Finding::new(nanoseconds(software), within("it", software, 30_000.0, 0.0)))
}

fn m10(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ladder(context)?;
    let against = series.judge(|f| {
        let mut against = Vec::new();
        for bytes in SHORT {
            let [free, also, locks, semaphores] =
                [Version::SlotsTestAndSet, Version::SlotsSystemV, Version::TestAndSet, Version::SystemV]
                    .map(|v| latency(f, v, bytes));
            against.extend(within("slots-sysv over slots-tas", also, free, 0.05));
            let order = [("slots-sysv", also), ("tas", locks), ("sysv", semaphores)];
            against.extend(rising(&size(bytes), &order));
            if not_above(locks, also) || not_above(semaphores, locks) {
                against.push(format!("{}: a tie", size(bytes)));
            }
        }
        against
    });
    let versions = [Version::SlotsTestAndSet, Version::SlotsSystemV, Version::TestAndSet, Version::SystemV];
    let one = |v: Version| format!("{}: {}", v.name(), show(&series, v, &[8, 1023]));
    let mut ours: Vec<String> = versions.map(one).into();
    ours.push(format!("(and ours: {})", show(&series, Version::Towpath, &[8, 1023])));
    Ok(Finding::new(ours.join("; "), against).with(plots(&series, "M figure 7 and Towpath")))
}

fn m11(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ladder(context)?;
    let factors = |f: Look<'_>| {
        let [free, locks, semaphores] =
            [Version::SlotsTestAndSet, Version::TestAndSet, Version::SystemV].map(|v| latency(f, v, 8));
        [semaphores / free, locks / free]
    };
    let claim = |f: Look<'_>| {
        let [semaphores, locks] = factors(f);
        [
            within_factor("over semaphores", semaphores, 19.0, 2.0),
            within_factor("over locks", locks, 2.0, 2.0),
        ]
        .concat()
    };
    let against = series.judge(claim);
    let all = [Version::SlotsTestAndSet, Version::TestAndSet, Version::SystemV];
    let free = short_of(context, &all, "cache.flush=1ns")?.judge(claim);
    let [semaphores, locks] = factors(&|at, metric| series.median(at, metric));
    let text = format!(
        "{}; {} (what the locks add is an input, what is left without them is not)",
        digits(semaphores),
        digits(locks)
    );
    Ok(Finding::new(text, against).sabotaged("a flush of the cache that costs nothing", &free))
}

/// Two copies between processes by the paper's last version, against one between threads
/// whose control packets lie in queues under locks. Of pthread's locks the paper says that they
/// "cannot be much more efficient than the combination of lock-free queues and test-and-set locks",
/// and may flush caches, too: test&set locks that flush stand for them.
fn m17(context: &Context<'_>) -> Result<Finding, Error> {
    let machine = machines::by_name("sx4").expect("a machine that comes with Towpath");
    let rung = |version| Rung::on(&machine, version, ONE_PIECE as usize);
    let (mut factors, mut without, mut against) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=u64::from(context.seeds()) {
        let two = ping_pong(&rung(Version::SlotsTestAndSet).seed(seed)).map_err(stuck)?.latency;
        let one = |version| match context.own_sabotage() {
            0 => single_copy::ping_pong(&rung(version).seed(seed)).map(|f| f.latency).map_err(stuck),
            _ => Ok(two),
        };
        let factor = two / one(Version::TestAndSet)?;
        factors.push(factor);
        without.push(two / one(Version::SlotsTestAndSet)?);
        if !(1.8..=2.0).contains(&factor) {
            against.push(format!("with seed {seed} the factor is {}", digits(factor)));
        }
    }
    let [factor, without] = [factors, without].map(|all| digits(percentile(&all, 50.0).unwrap_or(f64::NAN)));
    let ours = format!(
        "{factor} with messages of {}; with threads whose control packets need no locks {without}",
        size(ONE_PIECE)
    );
    let caveat = "that threads need locks was read off the paper after the factor without any was known to be above 2.0";
    Ok(Finding { caveat: caveat.into(), ..Finding::new(ours, against) })
}
