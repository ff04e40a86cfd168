//! Holders and waiters of locks, by their keys.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::system::uname;
use serde_json::{Value, json};

use crate::Error;
use crate::client::{ANSWER, Etcd, ROOT, number, recipe_name};
use crate::queue::READ;

/// Process that holds a lock of an etcd or waits for it.
///
/// Its key says so to all clients of the etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdUser {
    /// Name of the host; empty where another program made the key.
    pub host: String,
    /// Process, by the number in its own namespace.
    pub process: u32,
    /// Description: of `towpath lock`, the command.
    pub description: String,
    /// Time at which it came, in nanoseconds since 1970, by the host's clock.
    pub since: u64,
}

/// Holder or waiter of a lock of an etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdLockPlace {
    /// Its process.
    pub user: EtcdUser,
    /// True for a reader.
    pub shared: bool,
    /// Revision at which its key was made: a holder's token.
    pub revision: u64,
    /// Its lease.
    pub lease: i64,
}

/// Lock of an etcd that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdLock {
    /// Its name.
    pub name: String,
    /// Holders, in the order of their tokens.
    pub holders: Vec<EtcdLockPlace>,
    /// Waiters, in the order of their turns.
    pub waiters: Vec<EtcdLockPlace>,
}

impl EtcdUser {
    /// This process, from now on.
    #[must_use]
    pub fn new(process: u32, description: &str) -> EtcdUser {
        let host = uname().nodename().to_string_lossy().into_owned();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let since = now.map_or(0, |now| now.as_nanos().try_into().unwrap_or(u64::MAX));
        EtcdUser { host, process, description: description.to_owned(), since }
    }

    /// Text of a key.
    pub(crate) fn to_value(&self) -> String {
        let EtcdUser { host, process, description, since } = self;
        json!({ "host": host, "process": process, "description": description, "since": since }).to_string()
    }

    /// User in a key's text; other programs leave it empty.
    fn from_value(value: &[u8]) -> EtcdUser {
        let value: Value = serde_json::from_slice(value).unwrap_or_default();
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        EtcdUser {
            host: text("host"),
            process: value["process"].as_u64().and_then(|it| it.try_into().ok()).unwrap_or(0),
            description: text("description"),
            since: value["since"].as_u64().unwrap_or(0),
        }
    }
}

impl Etcd {
    /// Returns the locks that are held, of all names or of one.
    ///
    /// One request, which delays no holder or waiter.
    ///
    /// # Errors
    ///
    /// No etcd answers, or it refuses.
    pub fn locks(&self, name: Option<&str>) -> Result<Vec<EtcdLock>, Error> {
        // The end of a range of keys that begin with a text and '/': '0' instead.
        let root = name.map_or(ROOT.trim_end_matches('/').to_owned(), recipe_name);
        let (begin, end) = (BASE64.encode(format!("{root}/")), BASE64.encode(format!("{root}0")));
        let body = json!({ "key": begin, "range_end": end, "sort_order": "ASCEND", "sort_target": "CREATE" });
        let answer = self.ask("kv/range", &body, Some(ANSWER))?;
        let keys = answer["kvs"].as_array().map_or(&[][..], Vec::as_slice);
        let place = |kv: &Value| {
            let key = String::from_utf8_lossy(&self.bytes(kv, "key")?).into_owned();
            let value = kv["value"].as_str().and_then(|text| BASE64.decode(text).ok()).unwrap_or_default();
            let place = EtcdLockPlace {
                user: EtcdUser::from_value(&value),
                shared: false,
                revision: self.number(kv, "create_revision")?.cast_unsigned(),
                lease: number(&kv["lease"]).unwrap_or(0),
            };
            Ok((key, place))
        };
        Ok(arranged(keys.iter().map(place).collect::<Result<_, Error>>()?))
    }
}

/// Locks of keys, which are in the order of their revisions.
fn arranged(places: Vec<(String, EtcdLockPlace)>) -> Vec<EtcdLock> {
    let mut locks: BTreeMap<String, EtcdLock> = BTreeMap::new();
    for (key, mut place) in places {
        let Some((name, rest)) = key.strip_prefix(ROOT).and_then(|key| key.split_once('/')) else { continue };
        let name = name.replace("%2F", "/").replace("%25", "%");
        let new = EtcdLock { name: name.clone(), holders: Vec::new(), waiters: Vec::new() };
        let lock = locks.entry(name).or_insert(new);
        place.shared = rest.starts_with(READ);
        let read = lock.holders.iter().all(|holder| holder.shared);
        let waits_for_writer = lock.waiters.iter().any(|waiter| !waiter.shared);
        let holds = lock.holders.is_empty() || (place.shared && read && !waits_for_writer);
        (if holds { &mut lock.holders } else { &mut lock.waiters }).push(place);
    }
    locks.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_their_order_are_holders_and_waiters() {
        let place = |(n, key): (usize, &&str)| {
            let user = EtcdUser::default();
            (key.to_string(), EtcdLockPlace { user, shared: false, revision: n as u64, lease: 0 })
        };
        let keys = ["towpath/a/read/1", "towpath/b%2Fc/9", "towpath/a/read/2", "towpath/a/3"];
        let more = ["towpath/a/read/4", "towpath/b%2Fc/read/5", "towpath/strange", "towpath/a/6"];
        let locks = arranged(keys.iter().chain(&more).enumerate().map(place).collect());
        let seen = |places: &[EtcdLockPlace]| -> Vec<(u64, bool)> {
            places.iter().map(|place| (place.revision, place.shared)).collect()
        };
        assert_eq!(locks.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>(), ["a", "b/c"]);
        assert_eq!(seen(&locks[0].holders), [(0, true), (2, true)]);
        assert_eq!(seen(&locks[0].waiters), [(3, false), (4, true), (7, false)]);
        assert_eq!((seen(&locks[1].holders), seen(&locks[1].waiters)), (vec![(1, false)], vec![(5, true)]));
    }

    #[test]
    fn user_comes_back_from_its_text_and_others_are_unknown() {
        let user = EtcdUser::new(7, "./save \"all\"");
        assert_eq!(EtcdUser::from_value(user.to_value().as_bytes()), user);
        assert_eq!(EtcdUser::from_value(b""), EtcdUser::default());
    }
}
