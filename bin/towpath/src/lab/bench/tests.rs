use clap::Parser;
use towpath_host::Pin;
use towpath_lab::BenchSettings;
use towpath_lab::primitives::copies::CopyScheduler;
use towpath_lab::structures::{Sharing, Structure};

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

fn parse(arguments: &str) -> Result<BenchArgs, String> {
    let words = std::iter::once("towpath").chain(arguments.split_whitespace());
    Cli::try_parse_from(words).map(|c| c.bench).map_err(|e| {
        assert_eq!(e.exit_code(), 2);
        e.to_string()
    })
}

#[test]
fn without_arguments_the_defaults_hold() {
    let args = parse("").unwrap();
    assert_eq!(args.settings(), BenchSettings::default());
    assert!(args.budgeted() && args.experiment.is_none());
    assert_eq!(BenchArgs::default().settings(), BenchSettings::default());
}

#[test]
fn printer_of_everything_is_an_option_that_there_is() {
    // What `towpath` alone says must be a command: it has no options.
    assert_eq!(parse("").unwrap().printer_of_everything(), "`towpath bench --all`");
    let of_one = parse("stress").unwrap().printer_of_everything();
    assert!(parse(&format!("stress {of_one}")).unwrap().all);
}

#[test]
fn everything_can_be_chosen() {
    let args = parse(
        "stress --algorithms mcs,ticket,mcs --waiting spin,park --writers 1,31 --messages 5 --sizes 64,1K,4M --runs 3 --pin \
         --peers --kills 9 --seed 7 --json --report out",
    )
    .unwrap();
    let s = args.settings();
    assert_eq!(args.experiment.as_deref(), Some("stress"));
    assert_eq!(
        (s.algorithms, s.waiting),
        (vec!["mcs".into(), "ticket".into()], vec!["spin".into(), "park".into()])
    );
    assert_eq!((s.writers, s.messages, s.sizes), (vec![1, 31], 5, vec![64, 1024, 4 << 20]));
    assert_eq!((s.runs, s.pin, s.peers, s.kills, s.seed), (3, Pin::Yes, true, 9, 7));
    assert!(args.json && args.report == Some("out".into()) && !args.budgeted());
    assert_eq!(parse("--no-pin").unwrap().settings().pin, Pin::No);
}

#[test]
fn wrong_value_is_answered_with_the_right_ones() {
    for (arguments, words) in [
        ("nonsense", ["floor", "idle"]),
        ("--algorithms ticket,nonsense", ["test-and-set", "towpath"]),
        ("--waiting nonsense", ["spin-then-park", "adaptive"]),
        ("--writers 0", ["1..", "writers"]),
        ("--sizes 4X", ["4X", "4K"]),
        ("--runs none", ["none", "runs"]),
        ("--messages 0", ["messages", "1"]),
        ("--pin --no-pin", ["--pin", "--no-pin"]),
    ] {
        let error = parse(arguments).expect_err(arguments);
        for word in words {
            assert!(error.contains(word), "{word} is missing from: {error}");
        }
    }
}

#[test]
fn algorithm_of_another_experiment_is_refused() {
    let refused = parse("dcas --algorithms ticket").unwrap().check().unwrap_err();
    assert_eq!(refused.code, 2);
    assert!(refused.message.contains("ticket") && refused.message.contains("harris"), "{refused:?}");
    assert!(parse("--algorithms harris").unwrap().check().unwrap_err().message.contains("lock-free"));
    for right in ["dcas --algorithms harris", "stress --algorithms ticket", "--algorithms mcs", ""] {
        assert!(parse(right).unwrap().check().is_ok(), "{right}");
    }
}

#[test]
fn structures_have_options_of_their_own() {
    let s = parse("structures --structure fifo,hash-map,fifo --reads 0,90 --stop 2 --procs 4,8").unwrap();
    assert!(s.check().is_ok());
    let s = s.settings();
    assert_eq!(s.structures.structures, [Structure::Fifo, Structure::HashMap]);
    assert_eq!((s.structures.reads, s.structures.stop, s.procs, s.runs), (vec![0, 90], 2, vec![4, 8], 5));
    let s = parse("structures --kills 300 --pool 4096 --runs 2").unwrap().settings();
    assert_eq!((s.structures.kills, s.structures.pool, s.runs), (Some(300), 4096, 2));
    assert_eq!(s.sample, BenchSettings::default().sample);
    assert_eq!(parse("structures --kill 20").unwrap().settings().structures.kill_rate, 20.0);
    for wrong in [
        "structures --reads 101",
        "structures --stop 0",
        "structures --stop 1 --kills 3",
        "structures --kill 0",
        "structures --structure heap",
        "structures --pool 5",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    for (wrong, words) in [
        ("stress --stop 1", "--stop"),
        ("--structure fifo", "towpath bench structures"),
        ("structures --procs 33", "32"),
        ("structures --procs 1,2 --stop 2", "--procs 3"),
        ("structures --algorithms ticket", "dashmap"),
        ("mpi --procs 1", "2 processes"),
        ("mpi --app lu", "towpath bench apps"),
        ("--input tiny", "--input"),
        ("mplocks --procs 1", "2 processes"),
        ("locks --writers 3", "towpath bench stress --writers"),
        ("locks --messages 3", "towpath bench stress --messages"),
        ("locks --sizes 4K", "towpath bench bulk --sizes"),
        ("floor --kills 3", "towpath bench crash --kills"),
        ("stress --procs 4", "towpath bench locks --procs"),
        ("stress --impl mpich", "towpath bench mpi --impl"),
    ] {
        let refused = parse(wrong).unwrap().check().expect_err(wrong);
        assert!(refused.code == 2 && refused.message.contains(words), "{wrong}: {refused:?}");
    }
}

#[test]
fn primitives_have_options_of_their_own() {
    let s = parse("locks --critical-section 1000 --between 0 --sharing processes --procs 1,2").unwrap();
    assert!(s.check().is_ok());
    let s = s.settings();
    assert_eq!((s.primitives.inside, s.primitives.between, s.procs, s.runs), (1000, 0, vec![1, 2], 5));
    assert_eq!(s.primitives.sharing, [Sharing::Processes]);
    assert_eq!(parse("locks --participants 1,2").unwrap().settings().procs, [1, 2]);
    let s = parse("broadcast --sizes 64,1K,64 --procs 2,4").unwrap();
    assert!(s.check().is_ok());
    assert_eq!(s.settings().primitives.sizes, [64, 1024]);
    assert!(parse("counter --between 0 --procs 1,2 --algorithms atomics,mutex").unwrap().check().is_ok());
    assert!(parse("pool --sizes 64K --sharing processes").unwrap().check().is_ok());
    let s = parse("barriers --copies 2,3 --scheduler gang").unwrap();
    assert!(s.check().is_ok());
    let s = s.settings().primitives;
    assert_eq!((s.copies, s.schedulers), (vec![2, 3], vec![CopyScheduler::Gang]));
    assert!(parse("locks --scheduler gang").is_err() && parse("locks --copies 9").is_err());
    let s = parse("queues --kills 1000 --procs 4 --algorithms mpmc").unwrap();
    assert!(s.check().is_ok());
    assert_eq!((s.settings().primitives.kills, s.settings().runs), (Some(1000), 5));
    assert_eq!(parse("kills --kills 20").unwrap().settings().kills, 20);
    assert!(parse("barriers --between 10 --algorithms pthread,centralized").unwrap().check().is_ok());
    assert!(parse("locks --sharing fibres").unwrap_err().contains("threads"));
    for (wrong, words) in [
        ("stress --sharing threads", "towpath bench locks"),
        ("queues --between 3", "--between"),
        ("barriers --critical-section 3", "--critical-section"),
        ("queues --procs 1", "2 participants"),
        ("broadcast --procs 1", "2 participants"),
        ("broadcast --sizes 8", "24 bytes"),
        ("broadcast --between 3", "--between"),
        ("pool --procs 3", "three stages"),
        ("counter --kills 3", "towpath bench kills"),
        ("kills --procs 1", "2 participants"),
        ("kills --runs 3", "--kills 1000"),
        ("locks --kills 3 --runs 3", "--kills 1000"),
        ("mplocks --kills 3 --runs 3", "--kills 1000"),
        ("locks --kills 3 --procs 1", "2 participants"),
        ("kills --sharing threads", "--sharing"),
        ("queues --waiting park", "towpath bench locks --waiting"),
        ("broadcast --waiting park", "locks, barriers, counter"),
        ("pool --copies 2", "--copies"),
        ("locks --procs 33", "32"),
        ("locks --algorithms crossbeam", "parking-lot"),
    ] {
        let refused = parse(wrong).unwrap().check().expect_err(wrong);
        assert!(refused.code == 2 && refused.message.contains(words), "{wrong}: {refused:?}");
    }
}

#[test]
fn apps_have_options_of_their_own() {
    let s = parse("apps --app lu,fft,lu --input tiny --procs 1,2").unwrap();
    assert!(s.check().is_ok());
    let s = s.settings();
    assert_eq!(s.apps.applications.iter().map(|a| a.name()).collect::<Vec<_>>(), ["lu", "fft"]);
    assert_eq!((s.apps.input, s.procs, s.runs), (Size::Tiny.into(), vec![1, 2], 5));
    assert!(parse("apps --app gauss").unwrap_err().contains("barnes"));
    let pack = concat!("apps --input ", env!("CARGO_MANIFEST_DIR"), "/../../lab/apps/tests/two.1.pack");
    let s = parse(pack).unwrap().settings().apps;
    assert_eq!(s.applications.iter().map(|a| a.name()).collect::<Vec<_>>(), ["spark98", "spark98-reduced"]);
    assert_eq!(s.input.name(), "two.1.pack");
    assert!(parse(&format!("{pack} --app spark98")).unwrap().check().is_ok());
    let refused = parse(&format!("{pack} --app spark98,lu")).unwrap().check().unwrap_err().message;
    assert!(refused.contains("lu") && refused.contains("spark98"), "{refused}");
    let unknown = parse("apps --input huge").unwrap_err();
    assert!(unknown.contains("tiny, small") && unknown.contains("huge"), "{unknown}");
    assert!(parse("apps --algorithms crossbeam,mcs,lock-free").unwrap().check().is_ok());
}

#[test]
fn asking_for_something_in_particular_lifts_the_time_limit() {
    for arguments in ["floor", "--runs 9", "--messages 1000", "--kills 10"] {
        assert!(!parse(arguments).unwrap().budgeted(), "{arguments}");
    }
    assert!(parse("--writers 1 --peers").unwrap().budgeted());
}
