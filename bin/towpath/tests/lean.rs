//! The build without the laboratory: its dependencies and its refusals.

use std::process::Command;

/// Packages of the laboratory, and some that only the laboratory uses.
const LABORATORY: [&str; 9] = [
    "towpath-lab",
    "towpath-sim",
    "towpath-explore",
    "indicatif",
    "comfy-table",
    "dashmap",
    "crossbeam-queue",
    "corosensei",
    "rayon",
];

/// Maximum number of others' packages in the lean build.
///
/// Links between hosts (the ciphers of the Noise protocol) and the quorum take some thirty.
const MOST: usize = 65;

#[test]
fn lean_build_has_few_packages_and_none_of_the_laboratory() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args("tree --package towpath-cli --no-default-features --edges normal,build".split(' '));
    cargo.args("--prefix none --no-dedupe --format {p} --locked --offline".split(' '));
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut packages: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    packages.sort_unstable();
    packages.dedup();
    for needed in ["towpath", "towpath-cli", "towpath-launch", "clap"] {
        assert!(packages.contains(&needed), "{needed}: {packages:?}");
    }
    for excluded in LABORATORY {
        assert!(!packages.contains(&excluded), "{excluded}: {packages:?}");
    }
    packages.retain(|name| !name.starts_with("towpath"));
    assert!(packages.len() <= MOST, "{} packages: {packages:?}", packages.len());
}

#[cfg(not(feature = "lab"))]
#[test]
fn help_of_the_lean_build_promises_no_measurements() {
    let output = Command::new(env!("CARGO_BIN_EXE_towpath")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.starts_with("Messages and locks between processes") && !help.contains("measur"), "{help}");
}

#[cfg(not(feature = "lab"))]
#[test]
fn commands_of_the_laboratory_name_the_build_that_has_them() {
    for arguments in [
        "",
        "bench",
        "bench --help",
        "bench stress --writers 1,3",
        "sim list",
        "reproduce N1 --seeds 1",
        "explore queue",
    ] {
        let mut towpath = Command::new(env!("CARGO_BIN_EXE_towpath"));
        let output = towpath.args(arguments.split_whitespace()).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments}");
        assert_eq!(errors.lines().count(), 1, "{arguments}: {errors}");
        assert!(errors.contains("cargo build --release -p towpath-cli"), "{arguments}: {errors}");
        if let Some(command) = arguments.split(' ').next().filter(|word| !word.is_empty()) {
            assert!(errors.contains(&format!("`towpath {command}`")), "{arguments}: {errors}");
        }
    }
}

#[cfg(not(feature = "lab"))]
#[test]
fn help_lists_only_commands_that_are_there() {
    let output = Command::new(env!("CARGO_BIN_EXE_towpath")).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for command in ["run", "lock", "key", "mpirun", "doctor", "clean"] {
        assert!(text.lines().any(|line| line.trim_start().starts_with(command)), "{command}: {text}");
    }
    for command in ["bench", "sim", "reproduce", "explore"] {
        assert!(!text.lines().any(|line| line.trim_start().starts_with(command)), "{command}: {text}");
    }
}
