//! `towpath lock --status`: holders and waiters of locks.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use towpath_agent::{ClientRow, HostLockRow, HostReport, HostsFile, cluster_status};
#[cfg(feature = "etcd")]
use towpath_etcd::{Etcd, EtcdLock, EtcdLockPlace};
use towpath_lockfile::{LockAccess, LockInfo, LockUser, survey};
use towpath_shm::shown;

use super::{Arguments, NOT_MADE};
use crate::output::{printable, remark, say};
use crate::{CommandFailure, Outcome};

/// Holder or waiter, as JSON.
#[derive(Serialize)]
struct UserRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    pid: u32,
    command: String,
    shared: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    seconds: f64,
}

/// Lock, as JSON.
#[derive(Serialize)]
struct LockRow {
    name: String,
    token: u64,
    previous_owner_died: bool,
    holders: Vec<UserRow>,
    waiters: Vec<UserRow>,
}

/// Lock as one of several hosts sees it, as JSON.
#[derive(Serialize)]
struct LockOfHostRow {
    #[serde(flatten)]
    lock: LockRow,
    home: Option<String>,
    cached: bool,
    hops: u32,
    waited_seconds: f64,
    lost: Vec<UserRow>,
    omitted: usize,
}

/// One of several hosts, as JSON.
#[derive(Serialize)]
struct HostRow {
    host: String,
    reachable: bool,
    member: bool,
    lease: bool,
    epoch: u32,
    locks: Vec<LockOfHostRow>,
    omitted: usize,
}

/// Shows the locks of the hosts of a file, as their agents see them.
pub fn show_cluster(arguments: &Arguments, hosts: &HostsFile) -> Outcome {
    let (host, lock) = (arguments.host.as_deref(), arguments.name.as_deref());
    let reports =
        cluster_status(hosts, host, lock).map_err(|e| CommandFailure::new(e).with_code(NOT_MADE))?;
    if arguments.json {
        let rows: Vec<HostRow> = reports.into_iter().map(|report| row_of_host(report, hosts)).collect();
        let text = serde_json::to_string_pretty(&rows).map_err(CommandFailure::new)?;
        say!("{text}")?;
        return Ok(ExitCode::SUCCESS);
    }
    for report in &reports {
        let HostReport { host, reachable, member, lease, epoch, .. } = report;
        let state = match (reachable, member, lease) {
            (false, ..) => "not reachable".to_owned(),
            (_, false, _) => format!("takes no part, epoch {epoch}"),
            (.., true) => format!("takes part, has a lease, epoch {epoch}"),
            _ => format!("takes part, has no lease, epoch {epoch}"),
        };
        say!("{}: {state}", shown(host))?;
        for row in &report.locks {
            let home = hosts.hosts.get(usize::from(row.home)).map_or("?", |host| host.name.as_str());
            say!("{}", text_of_row(row, home))?;
        }
        if report.omitted > 0 {
            say!("  and {} locks more: name one to see it", report.omitted)?;
        }
    }
    if let Some(name) = lock.filter(|_| reports.iter().all(|report| report.locks.is_empty())) {
        // A host that does not answer may have it.
        let state = if reports.iter().all(|report| report.reachable) { "free" } else { "not in use there" };
        say!("{}: {state}", printable(name))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row_of_host(report: HostReport, hosts: &HostsFile) -> HostRow {
    let user = |user: ClientRow| UserRow {
        host: Some(report.host.clone()),
        pid: user.pid,
        command: user.command,
        shared: user.shared,
        token: user.token,
        seconds: seconds_since(user.since),
    };
    let users = |rows: Vec<ClientRow>| rows.into_iter().map(user).collect();
    let lock = |row: HostLockRow| LockOfHostRow {
        lock: LockRow {
            name: row.name,
            token: row.token,
            previous_owner_died: row.previous_owner_died,
            holders: users(row.holders),
            waiters: users(row.waiters),
        },
        home: hosts.hosts.get(usize::from(row.home)).map(|home| home.name.clone()),
        cached: row.cached,
        hops: row.hops,
        waited_seconds: row.waited as f64 / 1e9,
        lost: users(row.lost),
        omitted: row.omitted,
    };
    HostRow {
        locks: report.locks.into_iter().map(lock).collect(),
        reachable: report.reachable,
        member: report.member,
        lease: report.lease,
        epoch: report.epoch,
        omitted: report.omitted,
        host: report.host.clone(),
    }
}

fn text_of_row(row: &HostLockRow, home: &str) -> String {
    let died = if row.previous_owner_died { ", an owner died before" } else { "" };
    let state = match (row.holders.is_empty(), row.cached, row.waiters.is_empty()) {
        (false, ..) => "held",
        (_, true, _) => "idle, kept here",
        (.., false) => "waited for",
        _ => "lost with this host's lease",
    };
    let mut text = format!("  {}: {state}", shown(&row.name));
    // Of a grant to this host.
    if row.token != 0 {
        let (waited, hops) = (row.waited as f64 / 1e6, row.hops);
        text.push_str(&format!(", last grant after {waited:.3} ms by {hops} messages between hosts"));
        text.push_str(&format!(", last token {}", row.token));
    }
    text.push_str(&format!(", home {}{died}", shown(home)));
    let users = row.holders.iter().map(|user| ("holder", user));
    let users = users.chain(row.waiters.iter().map(|user| ("waiter", user)));
    for (role, user) in users.chain(row.lost.iter().map(|user| ("former holder", user))) {
        let access = if user.shared { "shared" } else { "exclusive" };
        let token = user.token.map_or(String::new(), |token| format!(", token {token}"));
        let (pid, since, command) = (user.pid, seconds_since(user.since), shown(&user.command));
        text.push_str(&format!("\n    {role}  process {pid}, {access}{token}, for {since:.1} s: {command}"));
    }
    if row.omitted > 0 {
        text.push_str(&format!("\n    and {} holders and waiters more", row.omitted));
    }
    text
}

/// Shows the locks of this user, or the one of that name.
pub fn show(name: Option<&str>, as_json: bool) -> Outcome {
    let (locks, strange) = survey(name).map_err(CommandFailure::new)?;
    for file in &strange {
        remark!("towpath: {}", printable(&file.error.to_string()));
    }
    let code = if strange.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) };
    let locks = locks.into_iter().filter(|lock| !lock.is_unused() || lock.previous_owner_died);
    show_rows(&locks.map(row).collect::<Vec<_>>(), name, as_json)?;
    Ok(code)
}

/// Shows the locks of an etcd, or the one of that name, as its keys say.
#[cfg(feature = "etcd")]
pub fn show_etcd(urls: &str, arguments: &Arguments) -> Outcome {
    let (name, failed) = (arguments.name.as_deref(), |e| CommandFailure::new(e).with_code(NOT_MADE));
    let locks = Etcd::new(urls).and_then(|etcd| etcd.locks(name)).map_err(failed)?;
    show_rows(&locks.into_iter().map(row_of_etcd).collect::<Vec<_>>(), name, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Says that this build knows no etcd.
#[cfg(not(feature = "etcd"))]
pub fn show_etcd(_: &str, _: &Arguments) -> Outcome {
    Err(CommandFailure::new(super::NO_ETCD).with_code(NOT_MADE))
}

fn show_rows(rows: &[LockRow], name: Option<&str>, as_json: bool) -> Result<(), CommandFailure> {
    if as_json {
        let text = serde_json::to_string_pretty(rows).map_err(CommandFailure::new)?;
        say!("{text}")?;
        return Ok(());
    }
    if rows.is_empty() {
        match name {
            Some(name) => say!("{}: free", printable(name))?,
            None => say!("no lock is held")?,
        }
    }
    for lock in rows {
        say!("{}", text_of(lock))?;
    }
    Ok(())
}

fn row(lock: LockInfo) -> LockRow {
    let user = |user: LockUser| UserRow {
        host: None,
        pid: user.process,
        command: user.description,
        shared: user.access == LockAccess::Shared,
        token: (user.token != 0).then_some(user.token),
        seconds: seconds_since(user.since),
    };
    LockRow {
        name: lock.name,
        token: lock.token,
        previous_owner_died: lock.previous_owner_died,
        holders: lock.holders.into_iter().map(user).collect(),
        waiters: lock.waiters.into_iter().map(user).collect(),
    }
}

#[cfg(feature = "etcd")]
fn row_of_etcd(lock: EtcdLock) -> LockRow {
    let user = |place: EtcdLockPlace, holds: bool| UserRow {
        pid: place.user.process,
        seconds: if place.user.since == 0 { 0.0 } else { seconds_since(place.user.since) },
        command: match place.user.host.as_str() {
            "" => format!("another client of the etcd, lease {:x}", place.lease),
            _ => place.user.description,
        },
        host: Some(place.user.host).filter(|host| !host.is_empty()),
        shared: place.shared,
        token: holds.then_some(place.revision),
    };
    LockRow {
        name: lock.name,
        token: lock.holders.last().map_or(0, |holder| holder.revision),
        previous_owner_died: false,
        holders: lock.holders.into_iter().map(|place| user(place, true)).collect(),
        waiters: lock.waiters.into_iter().map(|place| user(place, false)).collect(),
    }
}

fn seconds_since(nanoseconds: u64) -> f64 {
    let then = UNIX_EPOCH + Duration::from_nanos(nanoseconds);
    let seconds = SystemTime::now().duration_since(then).unwrap_or_default().as_secs_f64();
    (seconds * 1000.0).round() / 1000.0
}

fn text_of(lock: &LockRow) -> String {
    let state = match lock.holders.len() {
        0 => "free".to_owned(),
        _ => "held".to_owned(),
    };
    let died =
        if lock.previous_owner_died { ", an owner died and its work was not repaired since" } else { "" };
    let name = shown(&lock.name);
    let mut text =
        format!("{name}: {state}, {} waiting, last token {}{died}", lock.waiters.len(), lock.token);
    let users = lock.holders.iter().map(|user| ("holder", user));
    for (role, user) in users.chain(lock.waiters.iter().map(|user| ("waiter", user))) {
        let access = if user.shared { "shared" } else { "exclusive" };
        let token = user.token.map_or(String::new(), |token| format!(", token {token}"));
        let host = user.host.as_ref().map_or(String::new(), |host| format!(" of {}", shown(host)));
        let process = if user.pid == 0 { String::new() } else { format!("process {}{host}, ", user.pid) };
        let (since, command) = (user.seconds, shown(&user.command));
        text.push_str(&format!("\n  {role}  {process}{access}{token}, for {since:.1} s: {command}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_of_a_host_says_how_it_has_the_lock() {
        let user = |pid: u32| serde_json::json!([{ "pid": pid, "command": "true", "shared": false, "token": 7, "since": 0 }]);
        let none = serde_json::json!([]);
        let text = |token: u64, cached: bool, users: [&serde_json::Value; 3]| {
            let row = serde_json::json!({
                "name": "x", "home": 1, "token": token, "cached": cached, "hops": 3, "waited": 2_000_000,
                "previous_owner_died": false, "holders": users[0], "waiters": users[1], "lost": users[2],
            });
            text_of_row(&serde_json::from_value(row).unwrap(), "beta")
        };
        let grant = "last grant after 2.000 ms by 3 messages between hosts, last token 7, home beta";
        assert_eq!(text(7, true, [&none; 3]), format!("  x: idle, kept here, {grant}"));
        assert!(text(7, false, [&user(1), &none, &none]).starts_with(&format!("  x: held, {grant}\n")));
        let waits = text(0, false, [&none, &user(2), &none]);
        assert!(waits.starts_with("  x: waited for, home beta\n    waiter  process 2, "), "{waits}");
        let lost = text(0, false, [&none, &none, &user(3)]);
        assert!(lost.starts_with("  x: lost with this host's lease, home beta\n    former"), "{lost}");
    }
}
