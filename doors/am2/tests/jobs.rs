//! Jobs of several processes: their start, their end, forked children.
//!
//! The ranks are processes of this very program, which runs the test `rank_of_a_job` alone there,
//! and in it the program that a variable names.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::io::Read;
use std::process::{Child, Command, Stdio, exit};
use std::time::{Duration, Instant};

use towpath_am::WorldConfig;
use towpath_am2::bundle::*;
use towpath_am2::call::{AM_OK, AmError};
use towpath_am2::endpoint::*;
use towpath_am2::handler::*;
use towpath_am2::numbered::*;
use towpath_am2::spmd::*;
use towpath_am2::translation::*;
use towpath_am2::use_of_layer::*;
use towpath_shm::{Handover, World};

const NOT_INIT: c_int = AmError::NOT_INIT.0;
const BAD_ARG: c_int = AmError::BAD_ARG.0;
const RESOURCE: c_int = AmError::RESOURCE.0;
const PROGRAM: &str = "TOWPATH_AM2_TEST_PROGRAM";

/// Processes of a test: killed, by their pids, if they do not end.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            if let Ok(None) = child.try_wait() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// End of a process: its code, or that of its signal as a shell has it, and its output.
#[derive(Debug)]
struct Ended {
    code: i32,
    output: String,
}

fn command(program: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "rank_of_a_job", "--nocapture", "--test-threads=1"]);
    command.env(PROGRAM, program).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the ends; tells of each one.
fn ends(mut ranks: Ranks, program: &str, told: impl Fn(usize, &[Child], &[Option<i32>])) -> Vec<Ended> {
    use std::os::unix::process::ExitStatusExt;
    let start = Instant::now();
    let mut codes = vec![None; ranks.0.len()];
    while codes.contains(&None) {
        assert!(start.elapsed() < Duration::from_secs(100), "watchdog: {program} does not end: {codes:?}");
        for at in 0..codes.len() {
            if codes[at].is_none()
                && let Some(status) = ranks.0[at].try_wait().unwrap()
            {
                codes[at] = Some(status.code().or(status.signal().map(|signal| 128 + signal)).unwrap());
                told(at, &ranks.0, &codes);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let outputs = ranks.0.iter_mut().map(|child| {
        let mut output = String::new();
        child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut output).unwrap();
        }
        output
    });
    codes.into_iter().zip(outputs).map(|(code, output)| Ended { code: code.unwrap(), output }).collect()
}

/// Runs a job, as a launcher does; `ends_others`: by a signal when a rank fails.
fn run(program: &str, size: u32, ends_others: bool) -> Vec<Ended> {
    let world = World::create(&WorldConfig::new(size).spec(None)).unwrap();
    let handover = Handover::new(&world).unwrap();
    let mut ranks = Ranks(Vec::new());
    for rank in 0..size {
        let mut command = command(program);
        handover.prepare(&mut command, rank);
        ranks.0.push(command.spawn().unwrap());
    }
    let others_end = Cell::new(false);
    ends(ranks, program, |rank, children, codes| {
        let failed = codes[rank] != Some(0);
        world.process_ended(rank as u32, children[rank].id(), failed);
        // Once: a second signal would end a rank where it is.
        if failed && ends_others && !others_end.replace(true) {
            for (child, _) in children.iter().zip(codes).filter(|(_, code)| code.is_none()) {
                // SAFETY: a child that was not waited for.
                unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            }
        }
    })
}

fn run_alone(program: &str) -> Ended {
    let ranks = Ranks(vec![command(program).spawn().unwrap()]);
    ends(ranks, program, |_, _, _| ()).remove(0)
}

fn assert_codes(program: &str, ended: &[Ended], code: i32) {
    assert!(ended.iter().all(|ended| ended.code == code), "{program}: {ended:#?}");
}

/// Programs of the ranks: no test of its own.
#[test]
fn rank_of_a_job() {
    let Ok(program) = std::env::var(PROGRAM) else { return };
    let (name, steps) = program.split_once(' ').unwrap_or((&program, ""));
    match name {
        "steps" => take(steps),
        "one_never_starts" => one_never_starts(),
        "poll_until_the_end" => poll_until_the_end(steps.parse().unwrap()),
        "fail_in_many_ways" => fail_in_many_ways(),
        "keep_the_first_handler_0" => keep_the_first_handler_0(),
        "enter_by_another_way" => enter_by_another_way(),
        "signal" => take_a_signal(steps),
        "fork_alone" => fork_alone(),
        "fork_of_a_rank" => fork_of_a_rank(),
        _ => panic!("there is no such program: {program}"),
    }
    exit(77);
}

fn start() -> (c_int, *mut AmBundle, *mut AmEndpoint) {
    let (mut bundle, mut endpoint) = (null_mut(), null_mut());
    // SAFETY: places for the handles; the others may be null.
    let result =
        unsafe { AMMPI_SPMDStartup(null_mut(), null_mut(), 0, null_mut(), &mut bundle, &mut endpoint) };
    (result, bundle, endpoint)
}

/// Starts, and takes steps: letters that stand for calls and their results.
fn take(steps: &str) {
    let (result, bundle, endpoint) = start();
    assert_eq!(result, AM_OK);
    let is_first = AMMPI_SPMDMyProc() == 0;
    for step in steps.chars() {
        // SAFETY: the handles are used until they are freed.
        let (result, expected) = unsafe {
            match step {
                'E' => (AM_FreeEndpoint(endpoint.as_ref()), AM_OK),
                'B' => (AM_FreeBundle(bundle.as_ref()), AM_OK),
                'T' => (AM_Terminate(), AM_OK),
                'b' => (AMMPI_SPMDBarrier(), AM_OK),
                'n' => (AMMPI_SPMDBarrier(), NOT_INIT),
                'r' => (AMMPI_SPMDBarrier(), RESOURCE),
                'X' => (AMMPI_SPMDExit(0), -1),
                'Y' if is_first => (AMMPI_SPMDExit(256), -1),
                'Y' => (AMMPI_SPMDExit(0), -1),
                '0' => exit(0),
                _ => panic!("there is no such step: {step}"),
            }
        };
        assert_eq!(result, expected, "{step} of {steps}");
    }
}

#[test]
fn job_ends_after_what_it_has_freed() {
    for steps in ["TX", "TnX", "EX", "ErX", "BX", "BrX", "bTnX", "bErTnX"] {
        let program = format!("steps {steps}");
        assert_codes(&program, &run(&program, 3, false), 0);
    }
}

#[test]
fn failing_rank_ends_those_that_have_freed_their_endpoints() {
    for steps in ["EY", "BY"] {
        let program = format!("steps {steps}");
        assert_codes(&program, &run(&program, 3, false), 255);
    }
    // After `AM_Terminate` the others do not wait for it, and may have ended with 0.
    let ended = run("steps TY", 3, false);
    assert!(ended[0].code == 255 && ended.iter().all(|e| [0, 255].contains(&e.code)), "{ended:#?}");
}

#[test]
fn ranks_that_end_after_the_start_leave_no_rank_in_it() {
    for _ in 0..10 {
        assert_codes("steps T0", &run("steps T0", 3, false), 0);
    }
}

fn one_never_starts() {
    if std::env::var(towpath_shm::variables::RANK).unwrap() == "0" {
        exit(0);
    }
    towpath_am2::call::AMMPI_VerboseErrors.store(1, Relaxed);
    let (result, bundle, endpoint) = start();
    assert_eq!((result, bundle, endpoint), (RESOURCE, null_mut(), null_mut()));
    // Nothing is left of it.
    assert_eq!((AM_Terminate(), AMMPI_SPMDMyProc()), (NOT_INIT, -1));
    exit(0);
}

#[test]
fn rank_that_ends_before_the_start_is_not_waited_for() {
    let ended = run("one_never_starts", 3, false);
    assert_codes("one_never_starts", &ended, 0);
    // And not only that it has none after half a minute.
    let told = |ended: &Ended| ended.output.contains("rank 0 has no endpoint, and has ended or left");
    assert!(ended[1..].iter().all(told), "{ended:#?}");
}

extern "C" fn tell(code: c_int) {
    println!("told of {code}.");
}

/// Rank 0 ends the job with a code; the others poll, after the launcher's signal.
fn poll_until_the_end(code: c_int) {
    let (result, bundle, _) = start();
    assert_eq!(result, AM_OK);
    AMMPI_SPMDSetExitCallback(Some(tell));
    assert_eq!(AMMPI_SPMDBarrier(), AM_OK);
    if AMMPI_SPMDMyProc() == 0 {
        AMMPI_SPMDExit(code);
    }
    std::thread::sleep(Duration::from_millis(500));
    loop {
        // SAFETY: the job's bundle.
        assert_eq!(unsafe { AM_Poll(bundle.as_ref()) }, AM_OK);
    }
}

#[test]
fn code_of_the_end_is_never_that_of_success() {
    for (given, code, told) in [(256, 255, 255), (-256, 255, 255), (-1, 255, -1), (257, 1, 257)] {
        let ended = run(&format!("poll_until_the_end {given}"), 3, false);
        assert_codes(&given.to_string(), &ended, code);
        assert!(ended.iter().all(|e| e.output.contains(&format!("told of {told}."))), "{ended:#?}");
    }
}

#[test]
fn callbacks_are_told_of_the_code_and_not_of_the_signal() {
    let ended = run("poll_until_the_end 41", 3, true);
    assert_codes("41", &ended, 41);
    assert!(ended.iter().all(|e| e.output.contains("told of 41.")), "{ended:#?}");
}

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_token: *mut core::ffi::c_void) {
    HANDLED.fetch_add(1, Relaxed);
}

/// A bundle, and an endpoint in it that has itself as entry 0.
fn make() -> (&'static AmBundle, &'static AmEndpoint) {
    let (mut bundle, mut endpoint, mut name) = (null_mut(), null_mut(), AmName { number: 0 });
    // SAFETY: places for handles; a function of C's calling convention without further arguments.
    unsafe {
        assert_eq!(AM_AllocateBundle(AM_SEQ, &mut bundle), AM_OK);
        assert_eq!(AM_AllocateEndpoint(bundle.as_ref(), &mut endpoint, &mut name), AM_OK);
        assert_eq!(AM_SetTag(endpoint.as_ref(), u64::MAX), AM_OK);
        assert_eq!(AM_Map(endpoint.as_ref(), 0, name, 1), AM_OK);
        let function = core::mem::transmute::<*const (), unsafe extern "C" fn()>(count as *const ());
        assert_eq!(AM_SetHandler(endpoint.as_ref(), 1, Some(function)), AM_OK);
        (&*bundle, &*endpoint)
    }
}

/// Forks a child that runs `act`. Returns its code, or that of its signal.
fn fork(act: impl FnOnce()) -> i32 {
    // SAFETY: the other thread of this process waits for its end only.
    match unsafe { libc::fork() } {
        0 => {
            act();
            exit(6);
        }
        child => {
            let mut status = 0;
            // SAFETY: a child of this process, a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
        }
    }
}

fn fork_alone() {
    assert_eq!(AM_Init(), AM_OK);
    let (bundle, endpoint) = make();
    // SAFETY: handles that live.
    let poll = |bundle| unsafe { AM_Poll(Some(bundle)) };
    // SAFETY: handles that live.
    let request = |endpoint| unsafe { AM_Request0(Some(endpoint), 0, 1) };
    assert_eq!(request(endpoint), AM_OK);
    let code = fork(|| {
        // SAFETY: the parent's, which live in the child, too.
        let freed = unsafe { AM_FreeEndpoint(Some(endpoint)) };
        let parents = [poll(bundle), request(endpoint), freed];
        assert_eq!((parents, AM_Terminate(), HANDLED.load(Relaxed)), ([NOT_INIT; 3], NOT_INIT, 0));
        assert_eq!(AM_Init(), AM_OK);
        assert_eq!((poll(bundle), HANDLED.load(Relaxed)), (BAD_ARG, 0), "it is the parent's");
        let (own_bundle, own_endpoint) = make();
        assert_eq!(request(own_endpoint), AM_OK);
        assert_eq!((poll(own_bundle), HANDLED.load(Relaxed)), (AM_OK, 1));
        assert_eq!((AM_Terminate(), AM_Terminate()), (AM_OK, NOT_INIT));
    });
    assert_eq!((code, HANDLED.load(Relaxed)), (6, 0));
    assert_eq!((poll(bundle), HANDLED.load(Relaxed)), (AM_OK, 1), "its message was left to it");
    assert_eq!(AM_Terminate(), AM_OK);
    exit(7);
}

#[test]
fn forked_child_has_a_layer_of_its_own() {
    let ended = run_alone("fork_alone");
    assert_eq!(ended.code, 7, "{ended:#?}");
}

fn fork_of_a_rank() {
    assert_eq!(start().0, AM_OK);
    towpath_am2::call::AMMPI_VerboseErrors.store(1, Relaxed);
    let code = fork(|| {
        assert_eq!((AMMPI_SPMDMyProc(), AMMPI_SPMDBarrier(), AMMPI_SPMDExit(3)), (-1, NOT_INIT, NOT_INIT));
        assert_eq!(AM_Init(), RESOURCE);
    });
    assert_eq!(code, 6);
    assert_eq!(AMMPI_SPMDBarrier(), AM_OK);
    AMMPI_SPMDExit(0);
}

#[test]
fn forked_child_of_a_rank_is_no_rank() {
    let ended = run("fork_of_a_rank", 2, false);
    assert_codes("fork_of_a_rank", &ended, 0);
    let told = |ended: &Ended| ended.output.contains("a child that a rank has forked is no rank");
    assert!(ended.iter().all(told), "{ended:#?}");
}

fn fail_in_many_ways() {
    towpath_am2::call::AMMPI_VerboseErrors.store(1, Relaxed);
    let (bundle, endpoint) = (None::<&AmBundle>, None::<&AmEndpoint>);
    // SAFETY: handles that live, or none; places for the values.
    unsafe {
        AM_Poll(bundle);
        AM_Init();
        AM_Poll(bundle);
        AM_SetTag(endpoint, 1);
        let (bundle, endpoint) = make();
        let (bundle, endpoint) = (Some(bundle), Some(endpoint));
        AM_Request0(endpoint, 9, 1);
        AM_Request2(endpoint, -1, 1, 0, 0);
        AM_Request5(endpoint, -2, 1, 0, 0, 0, 0, 0);
        AM_RequestI1(endpoint, -1, 1, b"x".as_ptr(), 1, 0);
        AM_RequestXfer0(endpoint, -3, 0, 1, core::ptr::null(), 0);
        AM_GetXfer0(endpoint, -4, 0, 1, 0, 0);
        AM_Request0(endpoint, 0, 0);
        towpath_am2::message::AM2_Request(endpoint, 0, 1, 17, core::ptr::null());
        AM_Reply0(None, 1);
        AM_GetTranslationInuse(endpoint, 5);
        AM_GetTranslationTag(endpoint, 5, &mut 0);
        AM_Map(endpoint, -1, AmName { number: 0 }, 1);
        AM_SetNumTranslations(endpoint, -1);
        AM_SetNumHandlers(endpoint, -1);
        AM_SetEventMask(bundle, 9);
        AMMPI_SPMDBarrier();
        let (mut a, mut b) = (null_mut(), null_mut());
        AMMPI_SPMDStartup(null_mut(), null_mut(), -1, null_mut(), &mut a, &mut b);
    }
    exit(0);
}

const LINES: [&str; 19] = [
    "AM_Poll: AM_ERR_NOT_INIT: call AM_Init first (after a fork, in the child too)",
    "AM_Poll: AM_ERR_BAD_ARG: a pointer is null, or a length is impossible",
    "AM_SetTag: AM_ERR_BAD_ARG: a pointer is null, or a length is impossible",
    "AM_Request0: AM_ERR_BAD_ARG: translation table entry 9 leads nowhere; map it first (AM_Map)",
    "AM_Request2: AM_ERR_BAD_ARG: the translation table has no entry -1",
    "AM_Request5: AM_ERR_BAD_ARG: the translation table has no entry -2",
    "AM_RequestI1: AM_ERR_BAD_ARG: the translation table has no entry -1",
    "AM_RequestXfer0: AM_ERR_BAD_ARG: the translation table has no entry -3",
    "AM_GetXfer0: AM_ERR_BAD_ARG: the translation table has no entry -4",
    "AM_Request0: AM_ERR_BAD_ARG: handler 0 is for messages that come back",
    "AM2_Request: AM_ERR_BAD_ARG: 17 arguments: there are 0 to 16",
    "AM_Reply0: AM_ERR_BAD_ARG: a pointer is null, or a length is impossible",
    "AM_GetTranslationTag: AM_ERR_RESOURCE: translation table entry 5 leads nowhere",
    "AM_Map: AM_ERR_BAD_ARG: the translation table has no entry -1: the last one is 255",
    "AM_SetNumTranslations: AM_ERR_BAD_ARG: a translation table has no -1 entries: 0 to 65536",
    "AM_SetNumHandlers: AM_ERR_BAD_ARG: an endpoint has no -1 handlers: 0 to 256",
    "AM_SetEventMask: AM_ERR_BAD_ARG: an event is AM_NOTEMPTY or AM_CANSEND",
    "AMMPI_SPMDBarrier: AM_ERR_NOT_INIT: call AMMPI_SPMDStartup first",
    "AMMPI_SPMDStartup: AM_ERR_BAD_ARG: networkdepth is -1: it is 0 or more",
];

#[test]
fn failed_calls_say_their_names_and_why_by_one_write() {
    // Each write to standard error is a datagram.
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut command = command("fail_in_many_ways");
    command.stderr(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    let ended = ends(Ranks(vec![command.spawn().unwrap()]), "fail_in_many_ways", |_, _, _| ());
    assert_codes("fail_in_many_ways", &ended, 0);
    let mut packet = [0; 1000];
    let mut lines = Vec::new();
    while let Ok(count) = ours.recv(&mut packet) {
        lines.push(String::from_utf8_lossy(&packet[..count]).into_owned());
    }
    let expected: Vec<String> = LINES.iter().map(|line| format!("{line}\n")).collect();
    assert_eq!(lines, expected);
}

fn keep_the_first_handler_0() {
    assert_eq!(AM_Init(), AM_OK);
    let (bundle, endpoint) = make();
    // SAFETY: handles that live.
    unsafe {
        assert_eq!(AM_SetTag(Some(endpoint), 5), AM_OK);
        assert_eq!(AM_Request0(Some(endpoint), 0, 1), AM_OK);
        for _ in 0..1000 {
            AM_Poll(Some(bundle));
        }
    }
}

#[test]
fn first_handler_0_names_status_and_operation() {
    let ended = run_alone("keep_the_first_handler_0");
    assert_eq!(ended.code, 128 + libc::SIGABRT, "{ended:#?}");
    let line = "fatal error of Active Messages: a message came back: EBADTAG (AM_REQUEST_M); set handler 0";
    assert!(ended.output.contains(line), "{ended:#?}");
}

fn enter_by_another_way() {
    towpath_am2::call::AMMPI_VerboseErrors.store(1, Relaxed);
    let world = World::join().unwrap();
    assert_eq!(AM_Init(), RESOURCE);
    world.leave().unwrap();
    assert_eq!((AM_Init(), AM_Terminate()), (AM_OK, AM_OK));
    exit(0);
}

#[test]
fn rank_that_is_in_the_world_otherwise_is_told_so() {
    let ended = run("enter_by_another_way", 1, false);
    assert_codes("enter_by_another_way", &ended, 0);
    assert!(ended[0].output.contains("has entered the job's world as rank 0 already"), "{ended:#?}");
}

extern "C" fn end_after_a_signal(_code: c_int) {
    // SAFETY: a signal to this process; the program writes no more.
    unsafe {
        libc::raise(libc::SIGTERM);
        libc::_exit(9);
    }
}

/// Takes a signal at the very end of a rank, after `AM_Terminate`, or in a forked child.
fn take_a_signal(place: &str) {
    assert_eq!(start().0, AM_OK);
    // SAFETY: a signal to this process.
    let raise = || unsafe { libc::raise(libc::SIGTERM) };
    match place {
        "at_the_end" => {
            let function: extern "C" fn(c_int) = end_after_a_signal;
            AMMPI_SPMDkillmyprocess.store(function as *mut core::ffi::c_void, Relaxed);
            AMMPI_SPMDExit(3);
        }
        "after_terminate" => {
            assert_eq!(AM_Terminate(), AM_OK);
            raise();
        }
        _ => {
            let code = fork(|| {
                raise();
            });
            assert_eq!(code, 128 + libc::SIGTERM);
            AMMPI_SPMDExit(0);
        }
    }
}

#[test]
fn signal_ends_a_process_that_does_not_poll_any_more() {
    for (place, code) in [("at_the_end", 9), ("after_terminate", 128 + libc::SIGTERM), ("in_a_child", 0)] {
        let program = format!("signal {place}");
        assert_codes(&program, &run(&program, 2, false), code);
    }
}
