//! Files that the user names: no FIFO is waited for, nothing without an end is read, and
//! errors name the file.

use std::process::Command;

use crate::launching::common::{Directory, Watchdog};

#[cfg(feature = "lab")]
#[test]
fn machine_that_is_no_short_regular_file_is_refused() {
    let dog = Watchdog::new("machine_that_is_no_short_regular_file_is_refused");
    let directory = Directory::new();
    let path = |name: &str| directory.0.join(name).to_str().unwrap().to_owned();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    std::fs::File::create(path("gigabyte")).unwrap().set_len(1 << 30).unwrap();
    std::fs::write(path("bytes"), b"like = \"\xff\"").unwrap();
    std::os::unix::fs::symlink("/dev/zero", path("link")).unwrap();
    for (file, why) in [
        (path("fifo"), "it is a FIFO, not a regular file"),
        ("/dev/zero".into(), "it is a device, not a regular file"),
        (path("link"), "it is a device, not a regular file"),
        ("/dev/shm".into(), "it is a directory, not a regular file"),
        (path("gigabyte"), "is too long: at most 1048576 bytes are read"),
        (path("bytes"), "is not a text in UTF-8: byte 8 is none"),
        (path("missing"), "No such file or directory"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.args(["sim", "--machine", &file, "locks"]);
        let (status, _, errors) = dog.spawn(command).finish();
        assert_eq!(status.code(), Some(2), "{file}: {errors}");
        assert!(errors.contains(&file) && errors.contains(why), "{file}: {errors}");
    }
}

#[test]
fn program_that_is_a_fifo_is_not_waited_for() {
    let dog = Watchdog::new("program_that_is_a_fifo_is_not_waited_for");
    let directory = Directory::new();
    let fifo = directory.0.join("libtowpath-fi.so");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.args(["mpirun", "--provider"]).arg(&directory.0).args(["-n", "1"]).arg(&fifo);
    let (status, _, errors) = dog.spawn(command).finish();
    assert_eq!(status.code(), Some(125), "{errors}");
    assert!(errors.contains(directory.0.to_str().unwrap()), "{errors}");
}

#[cfg(feature = "lab")]
#[test]
fn machine_with_latencies_of_a_second_is_no_deadlock() {
    let dog = Watchdog::new("machine_with_latencies_of_a_second_is_no_deadlock");
    let directory = Directory::new();
    let machine = directory.0.join("slow.toml");
    std::fs::write(&machine, "like = \"epyc-milan\"\nprocessor.load = \"1s\"\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.arg("sim").arg("--machine").arg(&machine).current_dir(&directory.0);
    command.args("locks --procs 8 --seeds 1 --operations 50 --algorithms test-and-set,mcs".split(' '));
    let (status, output, errors) = dog.spawn(command).finish();
    assert_eq!(status.code(), Some(0), "{output}{errors}");
    assert!(!output.contains("deadlock") && !output.contains("not measured"), "{output}");
}
