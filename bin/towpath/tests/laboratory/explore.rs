//! `towpath explore`, as a user sees it.

use std::process::Command;

fn explore(arguments: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    let output = command.arg("explore").args(arguments.split_whitespace()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_passes_and_what_fails() {
    let (code, output, errors) = explore("counter --schedules 200");
    assert_eq!((code, output.lines().count()), (0, 3), "{output}");
    assert!(errors.starts_with("counter: 3 subjects"), "{errors}");
    assert!(output.lines().all(|l| l.ends_with("No fault.")), "{output}");

    let (code, output, errors) = explore("planted/michael_scott_no_recheck");
    assert_eq!((code, errors.as_str()), (1, ""), "{output}");
    assert!(output.contains("FAULT: not linearizable") && output.contains("compare_exchange"), "{output}");
    // The command that it names shows the same trace.
    let again = output.lines().find_map(|l| l.strip_prefix("Again: towpath explore ")).unwrap();
    let (code, second, _) = explore(again);
    let trace = |text: &str| {
        text.lines().skip_while(|l| !l.starts_with("  step")).map(String::from).collect::<Vec<_>>()
    };
    assert_eq!((code, trace(&second)[..10].to_vec()), (1, trace(&output)[..10].to_vec()));
}

#[test]
fn replay_that_the_help_names_shows_the_fault() {
    let (code, help, _) = explore("--help");
    assert_eq!(code, 0);
    let example = help.lines().find(|l| l.contains("--replay ") && l.contains("towpath explore planted"));
    let example = example.unwrap().trim().strip_prefix("towpath explore ").unwrap();
    let (code, output, _) = explore(example);
    assert!(code == 1 && output.contains("FAULT: not linearizable"), "{example}: {output}");
}

#[test]
fn every_schedule_of_a_small_subject() {
    let (code, output, _) = explore("lock/ticket --threads 2 --ops 1 --dfs");
    assert!(code == 0 && output.contains("There are no others"), "{output}");
}

#[test]
fn records() {
    let (code, output, errors) = explore("counter/ll-sc --schedules 50 --pct --kill --json");
    assert_eq!(code, 0);
    assert!(errors.contains("No fault."), "{errors}");
    let record: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(record["subject"], "counter/ll-sc");
    assert_eq!(
        (&record["schedules"], &record["kill"], &record["fault"]),
        (&50.into(), &true.into(), &serde_json::Value::Null)
    );

    let (code, output, _) = explore("planted/fetch-op-array-as-printed --json");
    assert_eq!(code, 1);
    let record: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(record["fault"]["kind"], "not-linearizable");
    assert!(record["fault"]["replay"].as_str().unwrap().contains("--replay"));

    let names = explore("--list");
    assert!(names.0 == 0 && names.1.contains("list/harris-michael "), "{}", names.1);
    assert_eq!(explore(""), names);

    let (code, output, _) = explore("--list --json");
    assert!(
        code == 0 && output.lines().all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()),
        "{output}"
    );
    assert!(
        output.contains("\"queue/michael-scott\"") && output.contains("\"barrier/dissemination\""),
        "{output}"
    );
}

#[test]
fn mistakes_are_explained() {
    for (arguments, words) in [
        ("queue/nothing", "Families"),
        ("nonsense", "--list"),
        ("queue/micheal-scott", "queue/michael-scott"),
        ("counter --threads 9", "1..=8"),
        ("counter --replay 0y7", "is no part of a schedule"),
        ("counter/ll-sc --replay 0x2.9x9", "does not fit"),
        ("counter --dfs --replay 7", "there are no seeds"),
        ("counter --depth 3", "--pct"),
    ] {
        let (code, output, errors) = explore(arguments);
        assert_eq!((code, output.as_str()), (2, ""), "{arguments}: {errors}");
        assert!(errors.contains(words), "{arguments}: {errors}");
    }
}
