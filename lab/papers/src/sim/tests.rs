//! Experiments at small sizes: every algorithm of every family on simulated machines, and
//! what is recorded.

use towpath_sync::Policy;

use super::*;
use towpath_report::record::metrics::{
    CONTENDERS, FAILED_CONDITIONALS, INVALIDATIONS, PROGRAM_TIME, SLICES, STANDSTILL, TIME_PER_OPERATION,
};

const EFFORT: Effort = Effort { seeds: 2, threads: 0 };

fn sweep(experiment: &'static str, machine: &str, procs: &[usize]) -> Sweep {
    Sweep::on(experiment, machine, &[], procs).work(500, 0.2).operations(200)
}

fn records(sweep: &Sweep, effort: Effort) -> Vec<Record> {
    let (records, failures) = run(sweep, effort, &Host::detect("not pinned"), &()).unwrap();
    assert!(failures.is_empty(), "{failures:?}");
    records
}

#[test]
fn every_algorithm_runs_on_1_2_3_8_and_all_processors() {
    for (machine, procs) in [
        ("origin2000", &[1, 2, 3, 8, 64][..]),
        ("enterprise5000", &[1, 2, 3, 8]),
        ("epyc-milan", &[3, 128]),
        ("sx4", &[3, 32]),
    ] {
        for experiment in ["counter", "locks", "queues", "barriers"] {
            let mut sweep = sweep(experiment, machine, procs);
            // All of them, also those that would not be chosen here.
            sweep.algorithms =
                find(experiment).unwrap().algorithms().iter().map(|name| name.to_string()).collect();
            let records = records(&sweep, Effort { seeds: 1, ..EFFORT });
            let times = records.iter().filter(|r| r.metric == TIME_PER_OPERATION.name);
            assert_eq!(times.count(), sweep.algorithms.len() * procs.len(), "{experiment} on {machine}");
        }
    }
}

#[test]
fn every_discipline_runs_under_both_schedulers() {
    let mut sweep = sweep("multiprogramming", "origin2000", &[4]);
    sweep.waiting = vec![Policy::Spin, Policy::SpinThenPark, Policy::Park];
    sweep.copies = vec![2, 3];
    sweep.run.machine.set_from_text("os.quantum=100us").unwrap();
    let records = records(&sweep, EFFORT);
    let switches = records.iter().filter(|r| r.metric == "context_switches_per_operation");
    assert!(switches.clone().count() > 80);
    assert!(switches.filter(|r| r.value > 0.0).count() > 80, "they take turns");
}

#[test]
fn equal_sweeps_give_equal_records_on_any_host_threads() {
    let strip = |threads| {
        let sweep = sweep("queues", "origin2000", &[2, 8]);
        records(&sweep, Effort { threads, ..EFFORT })
            .iter()
            .map(|r| (r.metric.clone(), r.samples.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(strip(1), strip(3));
}

#[test]
fn a_shared_counter_behaves_as_its_primitive() {
    let sweep = sweep("counter", "origin2000", &[8]).operations(2_000);
    let records = records(&sweep, EFFORT);
    let value = |algorithm: &str, metric: Metric| {
        records.iter().find(|r| r.algorithm == algorithm && r.metric == metric.name).unwrap().value
    };
    // N4: at memory nothing fails and nothing is invalidated.
    assert_eq!((value("fetch-op", FAILED_CONDITIONALS), value("fetch-op", INVALIDATIONS)), (0.0, 0.0));
    assert!(value("ll-sc", FAILED_CONDITIONALS) > 0.1 && value("ll-sc", INVALIDATIONS) > 0.5);
    assert!(records.iter().all(|r| r.machine == "origin2000" && r.runs == 2));
}

#[test]
fn what_does_not_fit_is_explained() {
    let error = |sweep: &Sweep| run(sweep, EFFORT, &Host::detect("not pinned"), &()).unwrap_err();
    let too_many = sweep("locks", "enterprise5000", &[9]);
    assert!(error(&too_many).to_string().contains("1 to 8 processors, not 9"));
    let mut unknown = sweep("locks", "origin2000", &[1]);
    unknown.algorithms = vec!["nonsense".into()];
    assert!(error(&unknown).to_string().contains("there are test-and-set"));
}

#[test]
fn the_report_has_tables_and_plots() {
    let records = records(&sweep("counter", "origin2000", &[1, 4]), EFFORT);
    let sections = show::sections(&records);
    assert_eq!(sections.len(), 3);
    assert_eq!(sections[0].plots.len(), 1);
    assert_eq!(sections[0].table.header, ["processors", "1", "4"]);
    let text = show::render(&records, &vec![(RecordSubject::new("counter", "x", "spin", 3), "why".into())]);
    assert!(
        text.contains("fetch-op") && text.contains("not measured: x (spin) on 3 processors: why"),
        "{text}"
    );
}

#[test]
fn copies_are_timed_each_by_itself() {
    let sweep = Sweep {
        copies: vec![1, 2],
        schedulers: vec!["gang".into()],
        ..Sweep::on("multiprogramming", "origin2000", &["two-ended/ticket/ll-sc"], &[4])
    };
    let records = records(&sweep.set("os.quantum=1ms").work(50_000, 0.2).operations(800), EFFORT);
    let value = |copies: u64, metric: Metric| {
        let is_it = |r: &&Record| r.number("copies") == Some(copies) && r.metric == metric.name;
        records.iter().find(is_it).unwrap().value
    };
    // Alone: its end is the end. With another one: about twice as long, for each of its own
    // operations.
    assert_eq!(value(1, PROGRAM_TIME), value(1, TIME_PER_OPERATION));
    let times = value(2, PROGRAM_TIME) / value(1, PROGRAM_TIME);
    assert!((1.8..2.2).contains(&times), "{times}");
    // Under gang scheduling no program gets on in the other one's slices; alone it always does.
    assert_eq!(value(1, STANDSTILL), 0.0);
    assert!((0.3..0.6).contains(&value(2, STANDSTILL)), "{}", value(2, STANDSTILL));
    assert_eq!(value(1, SLICES), 1.0);
    assert!(value(2, SLICES) > 5.0 && value(1, CONTENDERS) < 1.0);
}
