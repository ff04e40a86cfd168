//! Services between processes: a client finds a server by node and service, also one that
//! is stopped; a killed server leaves nothing; and a C program in the manner of libfabric's man
//! pages, `c/hello.c`, does what it says.
//!
//! Forks; so it has no test harness: it must be the only thread of its process.
#![allow(unsafe_code)]

#[path = "ofi/support.rs"]
mod support;

use std::ffi::c_int;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::*;
use sys::*;
use towpath_testkit::{Child, watchdog};

const NO_DATA: c_int = -(FI_ENODATA as c_int);

/// A name that no other process has.
fn service(of: &str) -> String {
    format!("{of}-{}", std::process::id())
}

fn named(service: &str, flags: u64) -> Result<Info, c_int> {
    Info::named(None, Some(service), flags, |hints| hints.caps = ALL)
}

/// An endpoint that has the service.
fn server(service: &str) -> Node {
    let options = Options::default();
    Node::new(&Home::of(named(service, FI_SOURCE).expect("a source"), &options), &options)
}

/// The address of the endpoint that has it.
fn found(service: &str) -> Result<[u8; NAME], c_int> {
    // SAFETY: libfabric filled it in; an address of ours is as long.
    named(service, 0).map(|info| unsafe { (*info.0).dest_addr.cast::<[u8; NAME]>().read() })
}

/// A child that has the service and says so, then answers whatever comes, once it is told
/// to go on.
fn child(service: &str) -> (Child, UnixStream) {
    let (mut mine, mut its) = UnixStream::pair().expect("a pair of sockets");
    let child = Child::fork(move || {
        let mut node = server(service);
        its.write_all(b"x").expect("the other is there");
        let mut name = [0; NAME];
        its.read_exact(&mut name).expect("the other is there");
        node.meet(&name);
        let mut into = [0; 8];
        assert_eq!(node.receive(node.peers[0], Some((1, 0)), &mut into, 1), 0);
        while node.take(node.rx).is_none() {}
        let answer = into.map(|byte| byte + 1);
        while node.send(node.peers[0], Some(2), &answer, 2) != 0 {}
        std::thread::sleep(PATIENCE);
    });
    mine.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    mine.read_exact(&mut [0]).expect("the server is ready");
    (child, mine)
}

/// A server that makes no progress, or is stopped, is found; one that is killed is not,
/// and its service is free at once.
fn service_lives_as_long_as_its_process() {
    let name = service("a-service");
    assert_eq!(found(&name).err(), Some(NO_DATA), "no endpoint has it yet");
    for round in 0..5u8 {
        watchdog::begin(format!("server {round} is found and killed"), 60);
        let (child, mut line) = child(&name);
        child.stop();
        let address = found(&name).expect("a server that is stopped");
        child.go_on();
        let options = Options::default();
        let mut node = Node::new(&Home::new(&options), &options);
        node.meet(&address);
        line.write_all(&node.name()).expect("the server is there");
        let mut into = [0; 8];
        assert_eq!(node.receive(node.peers[0], Some((2, 0)), &mut into, 3), 0);
        while node.send(node.peers[0], Some(1), &[round; 8], 4) != 0 {}
        while node.take(node.rx).is_none() {}
        assert_eq!(into, [round + 1; 8]);
        // It is taken here too.
        let second = Node::bound(&Home::of(named(&name, FI_SOURCE).expect("a source"), &options), &options);
        assert_eq!(second.enable(), -(FI_EADDRINUSE as c_int));
        child.kill();
        assert_eq!(found(&name).err(), Some(NO_DATA), "it has ended");
    }
}

/// Compiles `c/hello.c` into a folder; `None` without a C compiler.
fn compiled(folder: &Path) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let library =
        maps.lines().filter_map(|line| line.split_once('/')).find(|(_, path)| path.contains("/libfabric.so"));
    let library = format!("/{}", library.expect("libfabric is loaded").1);
    let beside = Path::new(&library).parent().expect("it lies in a folder").to_str().expect("in UTF-8");
    let program = folder.join("hello");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-I", env!("TOWPATH_FABRIC_INCLUDE")])
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/hello.c"), &library, "-o"])
        .arg(&program)
        // Libraries that libfabric itself needs are not resolved.
        .args([&format!("-Wl,-rpath,{beside}"), "-Wl,--allow-shlib-undefined"])
        .status();
    match compiled {
        Ok(status) => {
            assert!(status.success(), "c/hello.c does not compile");
            Some(program)
        }
        Err(why) => {
            eprintln!("SKIPPED: no C compiler ({why}), so c/hello.c was not run");
            None
        }
    }
}

/// The program's server and client talk to each other; a second server is refused, and so
/// is a client without a server.
fn program_in_c_finds_its_server(folder: &Path) {
    watchdog::begin("the program in C".into(), 60);
    let Some(program) = compiled(folder) else { return };
    let name = service("hello");
    let provider = support::library::provider();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).env("FI_PROVIDER", "towpath").env("FI_PROVIDER_PATH", &provider);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let client = || run(&["client", "localhost", &name]).output().expect("it runs");
    let early = client();
    assert!(!early.status.success() && text(&early.stderr).contains("No data available"), "{early:?}");
    let server = run(&["server", &name]).spawn().expect("it runs");
    while found(&name).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let second = run(&["server", &name]).output().expect("it runs");
    assert!(!second.status.success() && text(&second.stderr).contains("already in use"), "{second:?}");
    let client = client();
    assert!(client.status.success(), "{client:?}");
    assert_eq!(text(&client.stdout), "client: hello to you\n");
    let server = server.wait_with_output().expect("it ends");
    assert!(server.status.success(), "{server:?}");
    assert_eq!(text(&server.stdout), "server: hello\n");
    std::fs::remove_dir_all(provider).expect("our own folder");
}

fn main() {
    library();
    service_lives_as_long_as_its_process();
    let folder = std::env::temp_dir().join(format!("towpath-service-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder can be made");
    program_in_c_finds_its_server(&folder);
    std::fs::remove_dir_all(&folder).expect("our own folder");
    watchdog::begin("the end".into(), 0);
    println!("ofi_service: ok");
}
