//! Hostile files of machines: an error with its place and cause, or a machine that works;
//! never a panic, never an endless run.

use proptest::prelude::*;
use towpath_machine::{Arena, FetchOp, Ordering::Relaxed, Park, Place, Processor};
use towpath_sim::machines::from_text;
use towpath_sim::{Parameters, Simulation, machines};

const FILES: [&str; 7] = [
    include_str!("../../../sim/src/machines/enterprise5000.toml"),
    include_str!("../../../sim/src/machines/origin2000.toml"),
    include_str!("../../../sim/src/machines/epyc-milan.toml"),
    include_str!("../../../sim/src/machines/graviton3.toml"),
    include_str!("../../../sim/src/machines/sx4.toml"),
    include_str!("../../../sim/src/machines/paradigm.toml"),
    include_str!("../../../sim/src/machines/avalanche.toml"),
];

const VALUES: [&str; 24] = [
    "0",
    "1",
    "-1",
    "1024",
    "18446744073709551615",
    "99999999999999999999999",
    "0x7fff",
    "3.5",
    "inf",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"0\"",
    "\"1ps\"",
    "\"86400s\"",
    "\"1e300s\"",
    "\"1s\"",
    "\"infinite\"",
    "\"16777216GiB\"",
    "\"4KiB\"",
    "\"µs\"",
    "{ value = 1, source = 2 }",
    "{ value = { value = 1 } }",
];

/// Damage to a file.
#[derive(Clone, Debug)]
enum Change {
    /// A line's value is replaced.
    Value(prop::sample::Index, &'static str),
    Delete(prop::sample::Index),
    Repeat(prop::sample::Index),
    Insert(prop::sample::Index, String),
    Truncate(prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let line = || any::<prop::sample::Index>();
    prop_oneof![
        8 => (line(), prop::sample::select(&VALUES[..])).prop_map(|(l, v)| Change::Value(l, v)),
        1 => line().prop_map(Change::Delete),
        1 => line().prop_map(Change::Repeat),
        1 => (line(), "[a-z.=\\[\\]{}\"'#µ\\\\\n 0-9-]{0,20}").prop_map(|(l, t)| Change::Insert(l, t)),
        1 => line().prop_map(Change::Truncate),
    ]
}

fn apply(text: &str, changes: &[Change]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for change in changes {
        if lines.is_empty() {
            break;
        }
        match change {
            Change::Value(at, value) => {
                let valued: Vec<usize> = (0..lines.len()).filter(|&i| lines[i].contains(" = ")).collect();
                if !valued.is_empty() {
                    let line = &mut lines[valued[at.index(valued.len())]];
                    *line = format!("{} = {value}", line.split(" = ").next().unwrap_or(""));
                }
            }
            Change::Delete(at) => drop(lines.remove(at.index(lines.len()))),
            Change::Repeat(at) => {
                let i = at.index(lines.len());
                lines.insert(i, lines[i].clone());
            }
            Change::Insert(at, text) => {
                let i = at.index(lines.len());
                let line = &mut lines[i];
                let at = line.char_indices().map(|c| c.0).nth(at.index(line.len() + 1)).unwrap_or(line.len());
                line.insert_str(at, text);
            }
            Change::Truncate(at) => {
                let text = lines.join("\n");
                let end =
                    (0..=at.index(text.len() + 1)).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
                lines = text[..end].lines().map(str::to_owned).collect();
            }
        }
    }
    lines.join("\n")
}

/// A bit of everything, for a bounded time.
fn use_it(p: &Parameters) {
    assert!(p.check().is_ok());
    let processors = p.processors.min(3) as usize;
    let mut s = Simulation::new(p, processors, 1);
    let arena = s.arena();
    let words = [Place::NewLine, Place::SameLine, Place::Home(1), Place::AtMemory(0)]
        .map(|place| arena.word(place, 0));
    for id in 0..processors + 1 {
        s.spawn_in_job(id % processors, id, id % 2, move |cpu| {
            for round in 0..20 {
                cpu.fetch_add(&words[round % 3], 1, Relaxed);
                cpu.fetch_increment(&words[3]);
                cpu.load(&words[(round + 1) % 3], Relaxed);
                let _ = cpu.spin_until(&words[0], Relaxed, 500, |v| v > 30);
                cpu.work(100);
                cpu.park(&words[2], 5, 1_000);
            }
        });
    }
    // An end, or the message that there is none within that time.
    let _ = s.run_until(20_000_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn a_file_is_refused_with_a_reason_or_works(
        file in 0..FILES.len(),
        changes in prop::collection::vec(change(), 1..4),
    ) {
        let text = apply(FILES[file], &changes);
        match from_text("hostile.toml", &text) {
            Ok(p) => use_it(&p),
            Err(e) => {
                prop_assert!(e.to_string().starts_with("hostile.toml"));
                let lines = text.lines().count().max(1) + 1;
                match e.line {
                    Some(line) => prop_assert!((1..=lines).contains(&line), "line {line} of {lines}"),
                    // Nothing is wrong but what isn't there.
                    None => prop_assert!(e.what.contains("no value"), "{e}"),
                }
            }
        }
    }

    #[test]
    fn any_text_is_refused(text in "\\PC{0,200}") {
        prop_assert!(from_text("x", &text).is_err());
    }
}

#[test]
fn all_values_at_their_limits_work() {
    for name in machines::names() {
        let p = machines::by_name(name).unwrap();
        for extreme in ["0", "1ps", "1s", "86400s"] {
            let mut all = p.clone();
            for parameter in p.describe() {
                // A value that can't be set alone may be possible with others, and the other way
                // round.
                let before = all.clone();
                if all.set_from_text(&format!("{}={extreme}", parameter.name)).is_err() {
                    all = before;
                }
                let mut one = p.clone();
                if one.set_from_text(&format!("{}={extreme}", parameter.name)).is_ok() {
                    use_it(&one);
                }
            }
            use_it(&all);
        }
    }
}

#[test]
fn deep_nesting_is_refused_or_read() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        let text = format!("a = {}1{}", open.repeat(100_000), close.repeat(100_000));
        assert!(from_text("deep.toml", &text).is_err());
    }
    assert!(from_text("deep.toml", &format!("a{} = 1", ".a".repeat(100_000))).is_err());
}

#[test]
fn errors_of_what_does_not_fit_together_have_a_line_too() {
    let text = "like = \"enterprise5000\"\n\n[bus]\nsnoop = \"170ns\"\n";
    let error = from_text("my.toml", text).unwrap_err();
    assert_eq!(
        error.to_string(),
        "my.toml, line 4: `bus.upgrade` can't be shorter than `bus.snoop`, which is a part of it"
    );
    let error = from_text("my.toml", "like = \"origin2000\"\nos.switch = \"1s\"").unwrap_err();
    assert_eq!(
        error.to_string(),
        "my.toml, line 2: `os.quantum` is at least 1us, and longer than `os.switch`"
    );
}

#[test]
fn nothing_on_a_bus_ends_before_its_snoop() {
    // Otherwise the requester would have the line before the others have lost it. As long as the
    // snoop (60 ns) it may take.
    for key in ["upgrade", "memory", "cache_to_cache"] {
        let text =
            |ns: u64| format!("like = \"enterprise5000\"\n[bus]\naddress = \"24ns\"\n{key} = \"{ns}ns\"\n");
        let error = from_text("my.toml", &text(59)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("my.toml, line 4: `bus.{key}` can't be shorter than `bus.snoop`, which is a part of it")
        );
        use_it(&from_text("my.toml", &text(60)).unwrap());
    }
}

#[test]
fn the_pages_example_is_a_machine_and_its_errors_are_these() {
    let page = include_str!("../../../../docs/simulator.md");
    let block = |begin: &str| page.split(begin).nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let example = block("```toml\n");
    let ring = from_text("ring.toml", example).unwrap();
    assert_eq!((ring.hop, ring.first_router), (120_000, 300_000));
    let errors: Vec<String> = [
        ("hop = \"120ns\"", "hops = \"120ns\""),
        ("hop = \"120ns\"", "hop = 120"),
        ("busy = \"queue\"", "busy = \"wait\""),
    ]
    .map(|(right, wrong)| from_text("ring.toml", &example.replace(right, wrong)).unwrap_err().to_string())
    .into();
    let shown: Vec<&str> = block("```text\n").lines().take(3).collect();
    assert_eq!(errors, shown);
}
