//! The native machine costs nothing: builds `examples/zero_cost.rs` as users build the
//! library (release), and runs it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::PoisonError;

/// Package of a user: the example and its dependencies.
///
/// The crates that this crate's other tests
/// need are not built with it.
const PACKAGE: &str = r#"
[workspace]

[package]
name = "zero_cost"
edition = "2024"

[[bin]]
name = "zero_cost"
path = "CORE/sync/examples/zero_cost.rs"

[dependencies]
libc = "0.2"
towpath-machine = { path = "CORE/machine" }
towpath-sync = { path = "CORE/sync" }
"#;

#[test]
#[ignore = "compiles a program of release"]
fn the_generic_ticket_lock_is_the_hand_written_one() {
    let cores = crate::CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // target/PROFILE/deps/zero_cost-…; a folder of its own, so that it waits for no other build.
    let folder: PathBuf = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("zero-cost");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("Cargo.toml"), PACKAGE.replace("CORE", core.to_str().unwrap())).unwrap();
    std::fs::copy(core.join("../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(folder.join("target"))
        .status()
        .unwrap();
    drop(cores);
    assert!(built.success(), "building the example");
    let run = Command::new(folder.join("target/release/zero_cost")).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}{errors}");
    let last = said.lines().last().unwrap_or_default();
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        assert_eq!(last, "The same: the native machine costs nothing.", "{said}{errors}");
    } else {
        assert!(last.starts_with("Not compared"), "{said}{errors}");
    }
}
