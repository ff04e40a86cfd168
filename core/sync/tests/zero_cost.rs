//! The native machine costs nothing: builds `examples/zero_cost.rs` as users build the
//! library (release), and runs it.

use std::path::PathBuf;
use std::process::Command;

#[test]
fn the_generic_ticket_lock_is_the_hand_written_one() {
    // target/PROFILE/deps/zero_cost-…; a folder of its own, so that it waits for no other build.
    let target: PathBuf = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("zero-cost");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "towpath-sync", "--example", "zero_cost"])
        // Crates that the tests alone depend on are built with it, and not run: optimising those
        // would take most of the time.
        .args(["--config", "profile.release.package.'*'.opt-level=0"])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "building the example");
    let run = Command::new(target.join("release/examples/zero_cost")).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}{errors}");
    let last = said.lines().last().unwrap_or_default();
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        assert_eq!(last, "The same: the native machine costs nothing.", "{said}{errors}");
    } else {
        assert!(last.starts_with("Not compared"), "{said}{errors}");
    }
}
