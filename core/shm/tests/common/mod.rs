//! Helpers of the tests: members in processes of their own, a watchdog, a directory.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// The example program `member`, built if need be.
pub fn member() -> &'static Path {
    static MEMBER: OnceLock<PathBuf> = OnceLock::new();
    MEMBER.get_or_init(|| example("member"))
}

/// An example program of this crate, built if need be.
///
/// Where all of the workspace is tested it is there, and would be built again with the features
/// that it needs alone.
pub fn example(name: &str) -> PathBuf {
    // target/PROFILE/deps/this-test
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    let directory = profile.file_name().unwrap().to_str().unwrap();
    let program = profile.join("examples").join(name);
    if is_fresh(&program) {
        return program;
    }
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "towpath-shm", "--example", name])
        .args(["--profile", if directory == "debug" { "dev" } else { directory }])
        .arg("--target-dir")
        .arg(profile.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "the example `{name}` can't be built");
    program
}

/// Returns whether a program is newer than all its sources, which cargo lists beside it.
pub fn is_fresh(program: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let Ok(list) = std::fs::read_to_string(program.with_extension("d")) else { return false };
    let Some((_, sources)) = list.trim_end().split_once(": ") else { return false };
    let built = changed(program);
    // A blank within a path has a backslash before it: such a source is not found, thus not fresh.
    built.is_some() && sources.split(' ').all(|s| changed(Path::new(s)).is_some_and(|at| Some(at) <= built))
}

/// Ends the test's own children if the test takes too long, after saying where they
/// stood, and then the test itself.
pub struct Watchdog {
    children: Arc<Mutex<Vec<u32>>>,
    _done: Sender<()>,
}

impl Watchdog {
    pub fn new(test: &'static str) -> Self {
        Self::with(test, Duration::from_secs(120))
    }

    pub fn with(test: &'static str, limit: Duration) -> Self {
        let children: Arc<Mutex<Vec<u32>>> = Arc::default();
        let (done, end) = channel::<()>();
        let watched = Arc::clone(&children);
        std::thread::spawn(move || {
            if end.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected) {
                return;
            }
            eprintln!("watchdog: {test} takes too long");
            for &pid in watched.lock().unwrap().iter() {
                for file in ["comm", "wchan", "syscall", "status"] {
                    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
                    let text: String = text.lines().take(3).collect::<Vec<_>>().join(" | ");
                    eprintln!("watchdog: process {pid}: {file}: {text}");
                }
                if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            // Time for the test to fail by itself.
            std::thread::sleep(Duration::from_secs(5));
            eprintln!("watchdog: {test} does not end: giving up");
            std::process::exit(99);
        });
        Watchdog { children, _done: done }
    }

    /// Starts a member.
    pub fn start(&self, directory: &Path, arguments: &[&str]) -> Member {
        let mut command = Command::new(member());
        command.args(arguments).env("TOWPATH_SHM_DIR", directory);
        self.spawn(command)
    }

    /// Starts any program.
    pub fn spawn(&self, mut command: Command) -> Member {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        self.children.lock().unwrap().push(child.id());
        let output = BufReader::new(child.stdout.take().unwrap());
        let errors = BufReader::new(child.stderr.take().unwrap());
        Member { stdin: child.stdin.take(), child, output, errors, children: Arc::clone(&self.children) }
    }
}

/// A process of the test's own. Killed when dropped.
pub struct Member {
    pub stdin: Option<ChildStdin>,
    child: Child,
    output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
    children: Arc<Mutex<Vec<u32>>>,
}

impl Member {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output, without its end; empty if there is none.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next line of its errors, without its end; empty if there is none.
    pub fn error_line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Kills it, without waiting for it: then it is a zombie.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        self.forget();
        status
    }

    /// Ends its input, waits, and returns how it ended, the rest of its output, and its
    /// errors.
    pub fn finish(mut self) -> (ExitStatus, String, String) {
        drop(self.stdin.take());
        let (mut output, mut errors) = (String::new(), String::new());
        std::thread::scope(|scope| {
            scope.spawn(|| self.errors.read_to_string(&mut errors));
            let _ = self.output.read_to_string(&mut output);
        });
        let status = self.child.wait().unwrap();
        self.forget();
        (status, output, errors)
    }

    fn forget(&self) {
        let pid = self.child.id();
        self.children.lock().unwrap().retain(|&p| p != pid);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.forget();
    }
}

/// A directory for named worlds of one test, in memory. Removed when dropped.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = loop {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = PathBuf::from(format!("/dev/shm/test-of-towpath-{}-{next}", std::process::id()));
            match std::fs::create_dir(&path) {
                // Of a killed test that had this process id.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => break made.map(|()| path).unwrap(),
            }
        };
        Directory(path)
    }

    /// The files there.
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A name for a world that no other test has.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
