//! `towpath sim` and `towpath reproduce` as a user sees them.

use std::path::PathBuf;
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("towpath-sim-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn towpath(folder: &Folder, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.args(arguments.split_whitespace()).current_dir(&folder.0).output().unwrap()
}

/// Output of a run that is killed if it has not ended after so long.
fn towpath_within(folder: &Folder, arguments: &str, most: std::time::Duration) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.args(arguments.split_whitespace()).current_dir(&folder.0);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let until = std::time::Instant::now() + most;
    while child.try_wait().unwrap().is_none() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

/// Standard output, of a run that succeeds.
fn text(folder: &Folder, arguments: &str) -> String {
    let output = towpath(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error, of a run that is refused.
fn refused(folder: &Folder, arguments: &str) -> String {
    let output = towpath(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn machines_are_listed_and_described() {
    let folder = Folder::new("list");
    let list = text(&folder, "sim list");
    for word in [
        "origin2000",
        "epyc-milan",
        "sx4",
        "slots-tas",
        "paradigm",
        "avalanche-slow",
        "mp-distributed",
        "dcas-cload",
        "multiprogramming",
        "michael-scott/ll-sc",
        "centralized/fetch-op",
    ] {
        assert!(list.contains(word), "{word}: {list}");
    }
    let origin = text(&folder, "sim describe origin2000 --set network.hop=100ns");
    assert!(
        origin.contains("directory.occupancy_data") && origin.contains("P TAMU: memory 800 MB/s"),
        "{origin}"
    );
    assert!(origin.lines().any(|l| l.starts_with("network.hop ") && l.contains("100ns")), "{origin}");
    assert!(!origin.contains("bus.address"), "a machine has its own parameters only");
}

#[test]
fn an_experiment_prints_tables_and_writes_a_report() {
    let folder = Folder::new("run");
    let found =
        text(&folder, "sim origin2000 counter --procs 1,2-8 --work 1us --operations 400 --seeds 2 --all");
    assert!(found.contains("ll-sc") && found.contains("SC fail") && found.contains("report:"), "{found}");
    let page = std::fs::read_to_string(folder.0.join("towpath-report/sim/index.html")).unwrap();
    assert!(
        page.contains("<svg") && page.contains("fetch-op") && !page.contains("http"),
        "one file, with plots"
    );
    let records = std::fs::read_to_string(folder.0.join("towpath-report/sim/results.jsonl")).unwrap();
    assert!(records.lines().all(|l| l.contains("\"machine\":\"origin2000\"")));
}

#[test]
fn curves_by_size_have_a_column_for_each_size_and_plots() {
    let folder = Folder::new("ladder");
    let found = text(&folder, "sim sx4 ladder --algorithms towpath --seeds 1");
    let (lines, columns) = crate::screen::extent(&found);
    assert!(lines <= 40 && columns <= 100, "{lines} lines of {columns} columns:\n{found}");
    assert!(found.contains("round trip by size") && found.contains("bandwidth by size"), "{found}");
    let page = std::fs::read_to_string(folder.0.join("towpath-report/sim/index.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    let records = std::fs::read_to_string(folder.0.join("towpath-report/sim/results.jsonl")).unwrap();
    let of =
        |metric: &str| records.lines().filter(|l| l.contains(&format!("\"metric\":\"{metric}\""))).count();
    assert_eq!((of("round_trip_us"), of("bytes_per_s")), (14, 13));
}

#[test]
fn lists_run_with_several_processes_and_amounts_of_work() {
    let folder = Folder::new("lists");
    let command =
        "sim paradigm list --procs 1,3 --per-processor 1,2 --work 20,2us --operations 120 --seeds 1 --all";
    let found = text(&folder, command);
    for words in [
        "work_cycles 20",
        "work_cycles 50",
        "per_processor 2",
        "cycles until the last process is done",
        "cas-valois",
    ] {
        assert!(found.contains(words), "{words}: {found}");
    }
    let records = std::fs::read_to_string(folder.0.join("towpath-report/sim/results.jsonl")).unwrap();
    let times = records.lines().filter(|l| l.contains("\"metric\":\"completion_cycles\""));
    assert_eq!(times.count(), 5 * 2 * 2 * 2);
    // Without DCAS there are two algorithms.
    let found =
        text(&folder, "sim epyc-milan list --procs 2 --per-processor 1 --work 1us --operations 60 --seeds 1");
    assert!(
        found.contains("spin-lock") && found.contains("cas-valois") && !found.contains("dcas"),
        "{found}"
    );
}

#[test]
fn tables_of_applications_are_of_whole_solutions() {
    let folder = Folder::new("solutions");
    let found = text(&folder, "sim epyc-milan apps --app lu/tiny --procs 2 --seeds 1");
    let says = |words: &str| found.contains(words);
    assert!(says(": time of the solution") && says(": what the solution costs"), "{found}");
    assert!(!found.contains("operation"), "{found}");
}

#[test]
fn tables_of_barriers_are_of_passages() {
    let folder = Folder::new("passages");
    let found = text(&folder, "sim epyc-milan barriers --procs 4 --operations 40 --seeds 1 --all");
    let says = |words: &str| found.contains(words);
    assert!(
        says(": time for each processor's passage") && says(": what a processor's passage costs"),
        "{found}"
    );
    let advice = text(&folder, "recommend --machine epyc-milan --participants 2 --primitive barriers");
    let advice = advice.replace('\n', " ");
    assert!(advice.contains("ns for each processor's passage"), "{advice}");
    let report = std::fs::read_to_string(folder.0.join("towpath-report/recommend/index.html")).unwrap();
    let sentence =
        report.split("<p class=\"advice\" id=\"advice\">").nth(1).expect("the advice").split("</p>").next();
    assert!(sentence.is_some_and(|sentence| advice.contains(sentence)), "{report}");
}

#[test]
fn messages_of_two_processors_have_their_logp_parameters() {
    let folder = Folder::new("logp");
    let command = "sim enterprise5000 messages --procs 2,3 --operations 300 --seeds 1 --algorithms towpath";
    let found = text(&folder, command);
    let at = |line: &str| found.lines().skip_while(|l| !l.contains(line)).nth(1).unwrap_or("").to_owned();
    let head = at("LogP parameters");
    let heads: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(heads, ["2", "processors", "L", "o_s", "o_r", "g", "RTT", "bandwidth"], "{found}");
}

#[test]
fn cycles_are_the_machines_own_or_said_to_be_nanoseconds() {
    let folder = Folder::new("cycles");
    let run = |machine: &str| {
        let command =
            "mplocks --patterns one-lock --procs 2 --operations 40 --seeds 1 --algorithms mcs --json";
        let records = text(&folder, &format!("sim {machine} {command}"));
        let value = |metric: &str| {
            let mut all = records.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
            all.find(|r| r["metric"] == metric).unwrap()
        };
        let (cycles, ns) = (value("completion_cycles"), value("time_per_operation_ns"));
        let has = cycles.get("cycle").and_then(|c| c.as_str()).map(String::from);
        (cycles["value"].as_f64().unwrap(), ns["value"].as_f64().unwrap(), has)
    };
    // A cycle of 0.4 ns, as the machine's file says.
    let (short, _, has) = run("rdma-cluster");
    let (long, _, _) = run("rdma-cluster --set processor.cycle=0.8ns");
    assert!(has.is_none() && (short / long / 2.0 - 1.0).abs() < 0.01, "{short} {long}");
    let (.., has) = run("epyc-milan");
    assert_eq!(has.as_deref(), Some("1 ns"));
}

#[test]
fn report_that_cannot_be_written_is_refused_at_once() {
    let folder = Folder::new("unwritable");
    std::fs::write(folder.0.join("file"), "").unwrap();
    // Simulations of days: only what is refused before them ends.
    for arguments in [
        "sim origin2000 locks --operations 1000000000 --report file/report",
        "bench locks --runs 1000 --procs 1 --algorithms mutex --report file/report",
        "reproduce --seeds 1000 --record file/record",
        "reproduce --seeds 1000 --timings file/timings",
    ] {
        let output = towpath_within(&folder, arguments, std::time::Duration::from_secs(60));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {error}");
        assert!(error.contains("file/"), "{arguments}: {error}");
    }
    assert!(!folder.0.join("towpath-report").exists());
}

#[test]
fn json_is_records_and_the_same_again() {
    let folder = Folder::new("json");
    let command =
        "sim enterprise5000 locks --procs 3 --operations 300 --seeds 2 --algorithms mcs,ticket --json";
    let values = |text: &str| -> Vec<(String, String, f64)> {
        let objects = text.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        objects
            .map(|o| {
                let word = |key: &str| o[key].as_str().unwrap().to_string();
                (word("algorithm"), word("metric"), o["value"].as_f64().unwrap())
            })
            .collect()
    };
    let first = values(&text(&folder, command));
    assert!(first.iter().any(|r| r.0 == "mcs" && r.1 == "time_per_operation_ns" && r.2 > 100.0), "{first:?}");
    assert_eq!(first, values(&text(&folder, command)));
}

#[test]
fn a_machine_of_ones_own() {
    let folder = Folder::new("own");
    let file = |text: &str| std::fs::write(folder.0.join("mine.toml"), text).unwrap();
    file("like = \"origin2000\"\ntitle = \"with slow links\"\nnetwork.hop = \"500ns\"\n");
    let found = text(&folder, "sim --machine mine.toml counter --procs 8 --operations 100 --seeds 1");
    assert!(found.contains("with slow links") && found.contains("counter on mine"), "{found}");
    assert!(text(&folder, "sim --machine mine.toml describe").contains("500ns"));
    file("like = \"origin2000\"\nnetwork.hop = 500\n");
    let error = refused(&folder, "sim --machine mine.toml counter");
    assert!(error.contains("mine.toml, line 2: `network.hop` is a time with its unit"), "{error}");
}

#[test]
fn what_is_wrong_is_answered_with_what_is_right() {
    let folder = Folder::new("wrong");
    for (arguments, words) in [
        ("sim", "towpath sim list"),
        ("sim cray counter", "origin2000"),
        ("sim origin2000", "multiprogramming"),
        ("sim origin2000 quilts", "queues"),
        ("sim origin2000 counter --algorithms nonsense", "ll-sc"),
        ("sim origin2000 counter --procs 65", "1 to 64 processors"),
        ("sim origin2000 counter --procs 0", "1 to 1024"),
        ("sim origin2000 counter --work 5", "5us"),
        ("sim origin2000 counter --work 1us,x", "5us"),
        ("sim origin2000 list --algorithms dcas-cload", "processor.dcas=llp-scp"),
        ("sim paradigm list --set os.active_counts=no --algorithms dcas-active-count", "os.active_counts"),
        ("sim paradigm list --set os.roll_back=no --algorithms dcas-bershad", "os.roll_back"),
        ("sim paradigm list --waiting park", "leave --waiting out"),
        ("sim avalanche mplocks --patterns two-locks", "no pattern is called `two-locks`"),
        ("sim origin2000 mplocks --algorithms mp-central", "message.handler"),
        ("sim origin2000 list --set processor.dcas=cas2", "a bus that a processor can hold"),
        ("sim sx4 ladder --procs 4", "ping-pong is for two"),
        ("sim origin2000 counter --set network.hops=1ns", "network.hop"),
        ("sim origin2000 counter --copies 2", "--copies is an option of multiprogramming and apps"),
        ("sim origin2000 queues --scheduler gang", "--scheduler is an option of multiprogramming and apps"),
        ("sim origin2000 locks --per-processor 2", "--per-processor is an option of list"),
        (
            "sim avalanche apps --patterns fft --waiting park",
            "messages, in one copy, whose ranks poll: leave --waiting",
        ),
        ("sim avalanche apps --patterns fft --procs 2 --copies 3", "leave --copies out"),
        ("sim origin2000 barriers --patterns zzz", "--patterns is an option of mplocks and apps"),
        ("sim sx4 ladder --work 1us", "leave --work out"),
        ("sim origin2000 apps --operations 5", "leave --operations out"),
        ("sim --machine nowhere.toml counter", "nowhere.toml can't be read"),
        ("sim origin2000 messages --procs 1", "2 to 64 processors"),
        ("reproduce N999", "N1, "),
    ] {
        let error = refused(&folder, arguments);
        assert!(error.contains(words), "{arguments}: {error}");
    }
}

#[test]
fn claims_are_judged() {
    let folder = Folder::new("claims");
    let found = text(&folder, "reproduce N34,K28 M18 --seeds 1 --json");
    let verdicts: Vec<serde_json::Value> = found.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |id: &str| {
        verdicts.iter().find(|v| v["claim"] == id).unwrap()["verdict"].as_str().unwrap().to_string()
    };
    for id in ["N34", "K28", "M18"] {
        assert_eq!(of(id), "reproduced", "{id}");
    }
    let page = std::fs::read_to_string(folder.0.join("towpath-report/reproduce/index.html")).unwrap();
    assert!(page.contains("N34"));
    for verdict in &verdicts {
        let sabotage = verdict["sabotage"].as_str().unwrap();
        assert!(sabotage.contains("): noticed (") && page.contains("): noticed ("), "{sabotage}");
    }
}

/// A trace of two threads, each of which holds a lock for a microsecond, ten times.
fn write_trace(folder: &Folder) {
    let mut words = vec![u64::from_le_bytes(*b"twptrac1"), 2, 2, 0, 1, 100_000, 200_000, 0];
    words.resize(512, 0);
    for thread in 1..=2u64 {
        let mut chunk = vec![0, thread];
        for n in 0..10u64 {
            for (kind, ns) in [(2, 5_000 * n), (6, 5_000 * n + 1_000)] {
                chunk.extend([ns << 4 | kind, 64]);
            }
        }
        chunk.resize(256, 0);
        words.extend(chunk);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(folder.0.join("trace"), bytes).unwrap();
}

#[test]
fn trace_of_locks_is_replayed() {
    let folder = Folder::new("trace");
    write_trace(&folder);
    let replay = "sim epyc-milan locks --trace trace --algorithms mcs,ticket --seeds 1 --json";
    let records = text(&folder, replay);
    let times: Vec<f64> = records
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|record| record["metric"] == "time_per_operation_ns" && record["procs"] == 2)
        .map(|record| record["value"].as_f64().unwrap())
        .collect();
    assert!(times.len() == 2 && times.iter().all(|ns| (500.0..6_000.0).contains(ns)), "{records}");
    let error = refused(&folder, "sim epyc-milan queues --trace trace");
    assert!(error.contains("`locks`, not by `queues`"), "{error}");
    for command in ["sim epyc-milan locks --trace none", "recommend --trace none"] {
        let error = refused(&folder, command);
        assert!(error.contains("towpath preload --trace FILE"), "{error}");
    }
}
