//! `towpath lock --etcd`, by a small server that answers as etcd does.
//!
//! And by an etcd, where one is installed (`scripts/install-lock-servers.sh`).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::launching::common::{Directory, Member, Watchdog};
use crate::launching::{is_gone, own_address, signal, until, with_default_signals};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

/// Time of the leases of the small server.
const LEASE: Duration = Duration::from_secs(1);

/// Key of the small server.
#[derive(Clone)]
struct Pair {
    made: u64,
    lease: u64,
    value: Value,
}

/// Keys and leases of the small server.
#[derive(Default)]
struct Store {
    revision: u64,
    keys: BTreeMap<String, Pair>,
    /// Keys that were deleted, and when.
    deleted: Vec<(u64, String)>,
    /// Ends of the leases.
    leases: BTreeMap<u64, Instant>,
    /// Number of watches that it has cancelled at once, if it does so.
    cancelled: Option<u32>,
    /// Tokens that it takes, if it asks for a user.
    tokens: Option<Vec<String>>,
}

impl Store {
    /// Answers a request for a token, or one with a wrong token.
    fn admit(&mut self, method: &str, asked: &Value, token: &str) -> Option<Value> {
        let refused =
            |code: u32, why: &str| Some(json!({ "error": format!("etcdserver: {why}"), "code": code }));
        match (&mut self.tokens, method) {
            (None, "auth/authenticate") => refused(9, "authentication is not enabled"),
            (Some(tokens), "auth/authenticate") => {
                if (&asked["name"], &asked["password"]) != (&json!("ann"), &json!("p@ss")) {
                    return refused(3, "authentication failed, invalid user ID or password");
                }
                tokens.push(format!("token.{}", self.revision));
                self.revision += 1;
                Some(json!({ "token": tokens.last() }))
            }
            (Some(_), _) if token.is_empty() => refused(3, "user name is empty"),
            (Some(tokens), _) if !tokens.iter().any(|it| it == token) => refused(16, "invalid auth token"),
            _ => None,
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let ended: Vec<u64> = self.leases.iter().filter(|(_, end)| **end < now).map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|id| self.revoke(id));
    }

    fn revoke(&mut self, id: u64) {
        self.leases.remove(&id);
        self.revision += 1;
        let gone = |(_, pair): &(&String, &Pair)| pair.lease == id;
        let keys: Vec<String> = self.keys.iter().filter(gone).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.keys.remove(&key);
            self.deleted.push((self.revision, key));
        }
    }

    /// Carries out a request of a transaction.
    fn act(&mut self, request: &Value) -> Result<Value, String> {
        if request["request_range"].is_object() {
            return Ok(json!({ "response_range": self.range(&request["request_range"]) }));
        }
        let (put, lease) = (&request["request_put"], number(&request["request_put"]["lease"]));
        if !self.leases.contains_key(&lease) {
            return Err("etcdserver: requested lease not found".into());
        }
        self.revision += 1;
        let pair = Pair { made: self.revision, lease, value: put["value"].clone() };
        self.keys.insert(text(&put["key"]), pair);
        Ok(json!({ "response_put": {} }))
    }

    fn range(&self, asked: &Value) -> Value {
        let key = text(&asked["key"]);
        let end = if asked["range_end"].is_null() { format!("{key}\0") } else { text(&asked["range_end"]) };
        let newest = asked["max_create_revision"].as_str().map_or(u64::MAX, |it| it.parse().unwrap());
        let mut found: Vec<(&String, &Pair)> =
            self.keys.range(key..end).filter(|(_, pair)| pair.made <= newest).collect();
        found.sort_by_key(|(_, pair)| pair.made);
        if asked["sort_order"] == json!("DESCEND") {
            found.reverse();
        }
        found.truncate(asked["limit"].as_str().map_or(usize::MAX, |it| it.parse().unwrap()));
        let kv = |(key, pair): (&String, &Pair)| json!({ "key": BASE64.encode(key), "create_revision": pair.made.to_string(), "lease": pair.lease.to_string(), "value": pair.value });
        let header = json!({ "revision": self.revision.to_string() });
        // Etcd leaves out lists that are empty.
        match found.into_iter().map(kv).collect::<Vec<_>>() {
            kvs if kvs.is_empty() => json!({ "header": header }),
            kvs => json!({ "header": header, "kvs": kvs }),
        }
    }
}

/// Server that answers as etcd's gateway does, in threads of this process.
struct SmallEtcd {
    url: String,
    /// True while it answers nothing.
    is_mute: Arc<AtomicBool>,
    store: Arc<Mutex<Store>>,
}

impl SmallEtcd {
    fn start() -> SmallEtcd {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (store, is_mute) = (Arc::new(Mutex::new(Store::default())), Arc::new(AtomicBool::new(false)));
        let (shared, muted) = (store.clone(), is_mute.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (store, muted) = (shared.clone(), muted.clone());
                thread::spawn(move || serve(stream.unwrap(), &store, &muted));
            }
        });
        SmallEtcd { url, is_mute, store }
    }
}

/// Answers the requests of a connection.
fn serve(stream: TcpStream, store: &Mutex<Store>, is_mute: &AtomicBool) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut line, mut method, mut token, mut len) = (String::new(), String::new(), String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(rest) = line.strip_prefix("POST /v3/") {
                method = rest.split(' ').next().unwrap().to_owned();
            }
            let lower = line.to_ascii_lowercase();
            if let Some(rest) = lower.strip_prefix("authorization:") {
                token = rest.trim().to_owned();
            }
            if let Some(rest) = lower.strip_prefix("content-length:") {
                len = rest.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; len];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        while is_mute.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        let asked: Vec<Value> =
            serde_json::Deserializer::from_slice(&body).into_iter().map(Result::unwrap).collect();
        let admitted = store.lock().unwrap().admit(&method, &asked[0], &token);
        if method == "watch" && admitted.is_none() {
            return watch(&stream, &asked, store, is_mute);
        }
        let (status, answer) = match admitted.map_or_else(|| answer(&method, &asked[0], store), Ok) {
            Ok(answer) => ("200 OK", answer),
            Err(why) => ("404 Not Found", json!({ "error": why, "code": 5 })),
        };
        let text = answer.to_string();
        let sent = write!(&stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        if sent.is_err() {
            return;
        }
    }
}

fn text(value: &Value) -> String {
    String::from_utf8(BASE64.decode(value.as_str().unwrap()).unwrap()).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

/// Answers watches until one of their keys is deleted, and closes the connection.
fn watch(mut stream: &TcpStream, asked: &[Value], store: &Mutex<Store>, is_mute: &AtomicBool) {
    let watched: Vec<(u64, String)> = asked
        .iter()
        .map(|it| &it["create_request"])
        .map(|it| (number(&it["start_revision"]), text(&it["key"])))
        .collect();
    let begin = json!({ "result": { "created": true } });
    let sent = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{begin}\n");
    if let Some(count) = &mut store.lock().unwrap().cancelled {
        *count += 1;
        let _ = writeln!(stream, "{}", json!({ "result": { "canceled": true } }));
        return;
    }
    let is_deleted = || {
        let mut locked = store.lock().unwrap();
        locked.expire();
        let is_watched =
            |(when, key): &(u64, String)| watched.iter().any(|(from, it)| it == key && when >= from);
        !is_mute.load(Ordering::Relaxed) && locked.deleted.iter().any(is_watched)
    };
    while sent.is_ok() && !is_deleted() {
        thread::sleep(Duration::from_millis(2));
    }
    let _ = writeln!(stream, "{}", json!({ "result": { "events": [{ "type": "DELETE" }] } }));
}

/// Answers a request as etcd 3.4 does: numbers of 64 bits as text, bytes in base 64.
fn answer(method: &str, asked: &Value, store: &Mutex<Store>) -> Result<Value, String> {
    let mut locked = store.lock().unwrap();
    locked.expire();
    match method {
        "lease/grant" => {
            locked.revision += 1;
            let id = 1_000_000 + locked.revision;
            locked.leases.insert(id, Instant::now() + LEASE);
            Ok(json!({ "ID": id.to_string(), "TTL": LEASE.as_secs().to_string() }))
        }
        "lease/keepalive" => {
            let id = number(&asked["ID"]);
            let Some(end) = locked.leases.get_mut(&id) else {
                return Ok(json!({ "result": { "ID": id.to_string() } }));
            };
            *end = Instant::now() + LEASE;
            Ok(json!({ "result": { "ID": id.to_string(), "TTL": "1" } }))
        }
        "lease/revoke" => {
            locked.revoke(number(&asked["ID"]));
            Ok(json!({}))
        }
        "kv/txn" => {
            let is_new = !locked.keys.contains_key(&text(&asked["compare"][0]["key"]));
            let requests = &asked[if is_new { "success" } else { "failure" }];
            let responses: Result<Vec<Value>, String> =
                requests.as_array().unwrap().iter().map(|it| locked.act(it)).collect();
            let header = json!({ "revision": locked.revision.to_string() });
            Ok(json!({ "header": header, "succeeded": is_new, "responses": responses? }))
        }
        "kv/range" => Ok(locked.range(asked)),
        other => panic!("etcd has no {other}"),
    }
}

/// An etcd, which ends with it.
struct RealEtcd {
    url: String,
    child: Child,
    _directory: Directory,
}

impl RealEtcd {
    /// Starts it; says so where none is installed.
    fn start() -> Option<RealEtcd> {
        let Some(program) = installed() else {
            eprintln!("skipped: there is no etcd; scripts/install-lock-servers.sh installs one");
            return None;
        };
        // Ports that are let go again: launchers of other tests take such of 127.0.0.1.
        let ports = [(); 2].map(|()| TcpListener::bind((own_address(), 0)).unwrap());
        let [url, peer] = ports.map(|listener| format!("http://{}", listener.local_addr().unwrap()));
        let directory = Directory::new();
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(directory.0.join("etcd"));
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--initial-cluster").arg(format!("default={peer}"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let etcd = RealEtcd { url, child, _directory: directory };
        until(|| TcpStream::connect(etcd.url.trim_start_matches("http://")).is_ok());
        Some(etcd)
    }
}

impl RealEtcd {
    /// Posts a request that etcd is to take.
    fn ask(&self, method: &str, body: &Value) {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        let text = body.to_string();
        write!(
            stream,
            "POST /v3/{method} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{method}: {answer}");
    }
}

impl Drop for RealEtcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn installed() -> Option<PathBuf> {
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let data = data.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push(data.join("towpath/peers/lock-servers/usr/bin"));
    folders.into_iter().map(|folder| folder.join("etcd")).find(|program| program.is_file())
}

/// `towpath lock --etcd` with these arguments.
fn lock(dog: &Watchdog, directory: &Directory, url: &str, arguments: &[&str]) -> Member {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.args(["lock", "--etcd", url]).args(arguments).current_dir(&directory.0);
    command.env("TOWPATH_SHM_DIR", &directory.0).env("SHELL", "/bin/sh");
    // A proxy is none of its business.
    command.env("HTTP_PROXY", "http://127.0.0.1:1").env("http_proxy", "http://127.0.0.1:1");
    dog.spawn(with_default_signals(command))
}

fn locked(dog: &Watchdog, directory: &Directory, url: &str, arguments: &[&str]) -> (i32, String, String) {
    let (status, output, errors) = lock(dog, directory, url, arguments).finish();
    (status.code().unwrap(), output, errors)
}

/// A holder whose command says its process and token, and waits.
fn holder(dog: &Watchdog, directory: &Directory, url: &str) -> (Member, u32, u64) {
    let mut holder =
        lock(dog, directory, url, &["x", "--", "sh", "-c", "echo $$ $TOWPATH_TOKEN; exec sleep 60"]);
    let line = holder.line();
    let (pid, token) = line.split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
    (holder, pid.parse().unwrap(), token.parse().unwrap())
}

fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Has eight shells exclude each other, with increasing tokens, and tries the options.
fn exclude_each_other(dog: &Watchdog, url: &str) {
    let directory = Directory::new();
    let script =
        "[ ! -e in ] || echo beside >> violations; : > in; echo $TOWPATH_TOKEN >> tokens; sleep 0.01; rm in";
    let mut shells: Vec<Member> =
        (0..8).map(|_| lock(dog, &directory, url, &["many", "-c", script])).collect();
    for shell in shells.drain(..) {
        let (status, _, errors) = shell.finish();
        assert!(status.success() && errors.is_empty(), "{errors}");
    }
    assert!(!directory.0.join("violations").exists());
    let text = std::fs::read_to_string(directory.0.join("tokens")).unwrap();
    let tokens: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens.len() == 8 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");

    let (held, ..) = holder(dog, &directory, url);
    let run = |arguments: &[&str]| locked(dog, &directory, url, arguments);
    assert_eq!(run(&["x", "-n", "--", "true"]), (1, String::new(), String::new()));
    assert_eq!(run(&["x", "-n", "-E", "7", "--", "true"]), (7, String::new(), String::new()));
    assert_eq!(run(&["x", "-w", "50ms", "--", "true"]), (1, String::new(), String::new()));
    assert_eq!(run(&["x/y", "-n", "-c", "echo $TOWPATH_LOCK; exit 5"]), (5, "x/y\n".into(), String::new()));
    drop(held);
}

/// Holders die, and waiters go on with larger tokens.
fn pass_on_after_deaths(dog: &Watchdog, url: &str, kills_all: bool) {
    let directory = Directory::new();
    let (mut killed, command, first) = holder(dog, &directory, url);
    signal(command, libc::SIGKILL);
    assert_eq!(killed.wait().code(), Some(128 + libc::SIGKILL));
    // The command `towpath lock`: its supervisor gives the lock back.
    let (killed, command, second) = holder(dog, &directory, url);
    signal(killed.pid(), libc::SIGKILL);
    let (last, next_command, third) = holder(dog, &directory, url);
    assert!(first < second && second < third);
    until(|| is_gone(command));
    if kills_all {
        // Nothing but the lease gives it back.
        let supervisors = children(last.pid());
        [last.pid(), supervisors[0], next_command].iter().for_each(|pid| signal(*pid, libc::SIGKILL));
        let (_, _, fourth) = holder(dog, &directory, url);
        assert!(third < fourth);
    }
}

/// Has readers beside each other and writers alone, in their order, as the status says.
fn read_together(dog: &Watchdog, url: &str) {
    let directory = Directory::new();
    let script = "echo $TOWPATH_TOKEN; cat";
    let user = |arguments: &[&str]| lock(dog, &directory, url, &[arguments, &["-c", script]].concat());
    let status = |name: &str| -> Value {
        let (code, output, errors) = locked(dog, &directory, url, &["--status", "--json", name]);
        assert_eq!((code, errors.as_str()), (0, ""));
        serde_json::from_str(&output).unwrap()
    };
    let waiting = |n: usize| until(|| status("r")[0]["waiters"].as_array().is_some_and(|it| it.len() == n));
    let token = |user: &mut Member| -> u64 { user.line().parse().unwrap() };
    assert_eq!(status("r"), json!([]));
    let mut readers = [user(&["r", "--shared"]), user(&["r", "--shared"])];
    let mut tokens = readers.each_mut().map(token);
    tokens.sort();
    let mut writer = user(&["r"]);
    waiting(1);
    // A reader that comes after a writer waits behind it.
    let mut late = user(&["r", "-s", "-w", "60"]);
    waiting(2);
    let run = |arguments: &[&str]| locked(dog, &directory, url, arguments).0;
    assert_eq!([run(&["r", "-n", "-s", "-c", "true"]), run(&["r", "-n", "-c", "true"])], [1, 1]);
    let seen = &status("r")[0];
    let of = |role: &str, field: &str| -> Vec<Value> {
        seen[role].as_array().unwrap().iter().map(|user| user[field].clone()).collect()
    };
    assert_eq!(
        (of("holders", "token"), &seen["token"]),
        (tokens.map(Value::from).to_vec(), &tokens[1].into())
    );
    assert_eq!(
        (of("holders", "shared"), of("waiters", "shared")),
        (vec![json!(true); 2], vec![json!(false), json!(true)])
    );
    let mut pids = readers.each_ref().map(|it| u64::from(it.pid()));
    let mut shown: Vec<u64> = of("holders", "pid").iter().map(|it| it.as_u64().unwrap()).collect();
    pids.sort();
    shown.sort();
    assert_eq!((shown, of("waiters", "pid")), (pids.to_vec(), vec![writer.pid().into(), late.pid().into()]));
    assert!(of("holders", "command")[0].as_str().unwrap().contains("TOWPATH_TOKEN"), "{seen}");
    let (_, text, _) = locked(dog, &directory, url, &["--status"]);
    assert!(text.contains("r: held, 2 waiting") && text.contains("waiter  process"), "{text}");
    // A waiter that is killed is passed over; readers end, and a writer goes first.
    let mut killed = user(&["r"]);
    waiting(3);
    signal(killed.pid(), libc::SIGKILL);
    killed.wait();
    for reader in readers {
        assert!(reader.finish().0.success());
    }
    let second = token(&mut writer);
    assert_eq!(run(&["r", "-n", "-s", "-c", "true"]), 1);
    assert!(writer.finish().0.success());
    let third = token(&mut late);
    assert!(tokens[1] < second && second < third, "{tokens:?} {second} {third}");
    assert_eq!(run(&["r", "-n", "-s", "-c", "true"]), 0);
    assert!(late.finish().0.success());
}

#[test]
fn etcd_locks_exclude_and_pass_on() {
    let dog = Watchdog::new("etcd_locks_exclude_and_pass_on");
    let etcd = SmallEtcd::start();
    exclude_each_other(&dog, &etcd.url);
    read_together(&dog, &etcd.url);
    pass_on_after_deaths(&dog, &etcd.url, true);
}

#[test]
fn installed_etcd_locks_exclude_and_pass_on() {
    let dog = Watchdog::new("installed_etcd_locks_exclude_and_pass_on");
    let Some(etcd) = RealEtcd::start() else { return };
    exclude_each_other(&dog, &etcd.url);
    read_together(&dog, &etcd.url);
    pass_on_after_deaths(&dog, &etcd.url, false);
}

#[test]
#[ignore = "waits for the end of a lease: see CONTRIBUTING.md"]
fn installed_etcd_gives_a_lock_on_after_its_lease() {
    let dog = Watchdog::new("installed_etcd_gives_a_lock_on_after_its_lease");
    let Some(etcd) = RealEtcd::start() else { return };
    pass_on_after_deaths(&dog, &etcd.url, true);
}

#[test]
fn holder_is_told_when_etcd_does_not_answer() {
    let dog = Watchdog::new("holder_is_told_when_etcd_does_not_answer");
    let (directory, etcd) = (Directory::new(), SmallEtcd::start());
    let script = "trap 'echo told; exit 3' TERM; echo in; while :; do sleep 0.01; done";
    let mut held = lock(&dog, &directory, &etcd.url, &["x", "--on-loss", "term", "--", "sh", "-c", script]);
    assert_eq!(held.line(), "in");
    // Kept alive beyond a lease's time.
    thread::sleep(LEASE * 3 / 2);
    assert_eq!(locked(&dog, &directory, &etcd.url, &["x", "-n", "--", "true"]).0, 1);
    etcd.is_mute.store(true, Ordering::Relaxed);
    assert_eq!(held.line(), "told");
    // It can't be given back before etcd answers.
    etcd.is_mute.store(false, Ordering::Relaxed);
    let (status, _, errors) = held.finish();
    assert_eq!(status.code(), Some(3));
    assert!(errors.contains("could not be kept alive") && errors.contains("SIGTERM"), "{errors}");
}

#[test]
fn waiter_whose_watches_are_cancelled_asks_seldom() {
    let dog = Watchdog::new("waiter_whose_watches_are_cancelled_asks_seldom");
    let (directory, etcd) = (Directory::new(), SmallEtcd::start());
    etcd.store.lock().unwrap().cancelled = Some(0);
    let (held, command, _) = holder(&dog, &directory, &etcd.url);
    let begun = Instant::now();
    let waiter = lock(&dog, &directory, &etcd.url, &["x", "--", "true"]);
    let count = || etcd.store.lock().unwrap().cancelled.unwrap();
    until(|| count() >= 3);
    // Two pauses of a fifth of a second at least.
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
    signal(command, libc::SIGKILL);
    held.finish();
    let (status, _, errors) = waiter.finish();
    assert!(status.success(), "{errors}");
}

#[test]
fn wrong_address_is_answered_with_the_remedy() {
    let dog = Watchdog::new("wrong_address_is_answered_with_the_remedy");
    let directory = Directory::new();
    for (url, words) in [
        ("http://127.0.0.1:1", "is it running"),
        ("http://127.0.0.1:1,http://127.0.0.1:2", "http://127.0.0.1:1, http://127.0.0.1:2"),
        ("127.0.0.1:2379", "http://HOST:PORT"),
    ] {
        let (code, output, errors) = locked(&dog, &directory, url, &["x", "--", "echo", "ran"]);
        assert!(code == 73 && output.is_empty() && errors.contains(words), "{url}: {code} {output} {errors}");
    }
    // Not an etcd.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let _ = write!(&stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>");
        }
    });
    let (code, _, errors) = locked(&dog, &directory, &url, &["x", "--", "true"]);
    assert!(code == 73 && errors.contains("does not answer as an etcd"), "{code} {errors}");
    let (code, _, errors) = locked(&dog, &directory, "http://127.0.0.1:1", &["--status"]);
    assert!(code == 73 && errors.contains("is it running"), "{code} {errors}");
}

/// Has the user `ann` (`p@ss`) take locks of an etcd that asks for a user.
fn name_a_user(dog: &Watchdog, url: &str) {
    let directory = Directory::new();
    let as_user = |user: &str| url.replace("//", &format!("//{user}@"));
    let (code, _, errors) = locked(dog, &directory, url, &["x", "--", "true"]);
    assert!(code == 73 && errors.contains("ETCDCTL_USER=NAME:PASSWORD"), "{errors}");
    let (code, _, errors) = locked(dog, &directory, &as_user("ann:wrong"), &["x", "--", "true"]);
    assert!(code == 73 && errors.contains("refuses the user 'ann'"), "{errors}");
    assert!(!errors.contains("wrong"), "{errors}");
    let known = as_user("ann:p%40ss");
    exclude_each_other(dog, &known);
    read_together(dog, &known);
    let (code, text, errors) = locked(dog, &directory, &known, &["--status"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{text}");
}

#[test]
fn etcd_that_asks_for_a_user_is_told_one() {
    let dog = Watchdog::new("etcd_that_asks_for_a_user_is_told_one");
    let (directory, etcd) = (Directory::new(), SmallEtcd::start());
    // One that asks for none takes a client that has one.
    let url = etcd.url.replace("//", "//ann:p%40ss@");
    assert_eq!(locked(&dog, &directory, &url, &["x", "--", "true"]), (0, String::new(), String::new()));
    etcd.store.lock().unwrap().tokens = Some(Vec::new());
    name_a_user(&dog, &etcd.url);
    // A token that etcd no longer takes: the lease is kept alive with another one.
    let mut held = lock(&dog, &directory, &url, &["x", "-c", "echo in; cat"]);
    assert_eq!(held.line(), "in");
    etcd.store.lock().unwrap().tokens = Some(Vec::new());
    thread::sleep(LEASE * 3 / 2);
    let (status, _, errors) = held.finish();
    assert!(status.success() && errors.is_empty(), "{errors}");
}

#[test]
fn installed_etcd_that_asks_for_a_user_is_told_one() {
    let dog = Watchdog::new("installed_etcd_that_asks_for_a_user_is_told_one");
    let Some(etcd) = RealEtcd::start() else { return };
    for (method, body) in [
        ("user/add", json!({ "name": "root", "password": "r" })),
        ("role/add", json!({ "name": "root" })),
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("user/add", json!({ "name": "ann", "password": "p@ss" })),
        ("role/add", json!({ "name": "locks" })),
        ("user/grant", json!({ "user": "ann", "role": "locks" })),
    ] {
        etcd.ask(&format!("auth/{method}"), &body);
    }
    // All keys that begin with `towpath/`.
    let keys = json!({ "permType": "READWRITE", "key": BASE64.encode("towpath/"), "range_end": BASE64.encode("towpath0") });
    etcd.ask("auth/role/grant", &json!({ "name": "locks", "perm": keys }));
    etcd.ask("auth/enable", &json!({}));
    name_a_user(&dog, &etcd.url);
}
