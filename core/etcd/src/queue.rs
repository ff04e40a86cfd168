//! Queue of a lock: its keys, in the order of the revisions at which they were made.
//!
//! A writer's key is that of etcd's own lock recipe, `towpath/NAME/LEASE`; a reader's is
//! `towpath/NAME/read/LEASE`. A writer has the lock when no older key lies below `towpath/NAME/`,
//! a reader when no older one of a writer does. A key is made once in its life, and an older one
//! is never made again, so a key that has the lock keeps it until it is deleted.
//!
//! A waiter watches the youngest of the keys that it waits for, and its own one: its end is that
//! of the wait. So a deletion wakes one writer, or the readers behind it.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::Error;
use crate::client::{ANSWER, Etcd, EtcdLease, number, recipe_name, understand};

/// Part of a reader's key before the number of its lease.
pub(crate) const READ: &str = "read/";

/// Key of a place in the queue of a lock.
#[derive(Debug)]
pub(crate) struct QueueKey {
    key: String,
    lease: EtcdLease,
    /// Text by which the status knows the place.
    value: String,
    /// Keys that it waits for, if they are older.
    begin: String,
    end: String,
}

/// Key that another one waits for.
#[derive(Debug)]
pub(crate) struct OlderKey {
    key: String,
    /// Revision at which etcd had it.
    seen: i64,
}

impl QueueKey {
    pub fn new(name: &str, lease: EtcdLease, shared: bool, value: String) -> QueueKey {
        let lock = recipe_name(name);
        let (begin, read) = (format!("{lock}/"), if shared { READ } else { "" });
        // Ends of ranges: '0' is behind '/', and 'g' behind each number of a lease.
        let end = if shared { format!("{lock}/g") } else { format!("{lock}0") };
        QueueKey { key: format!("{begin}{read}{:x}", lease.id), lease, value, begin, end }
    }

    /// The keys that it waits for, in an order of their revisions, the first one alone.
    fn range(&self, order: &str) -> Value {
        let (begin, end) = (BASE64.encode(&self.begin), BASE64.encode(&self.end));
        json!({ "key": begin, "range_end": end, "limit": "1", "sort_order": order, "sort_target": "CREATE" })
    }
}

impl Etcd {
    /// Makes a key, unless it is there.
    ///
    /// Returns its revision, and whether it has the lock.
    ///
    /// # Errors
    ///
    /// No etcd answers, or it refuses, as where the lease has ended.
    pub(crate) fn make(&self, entry: &QueueKey) -> Result<(u64, bool), Error> {
        let (key, oldest) = (BASE64.encode(&entry.key), entry.range("ASCEND"));
        let put =
            json!({ "key": key, "lease": entry.lease.id.to_string(), "value": BASE64.encode(&entry.value) });
        let body = json!({
            "compare": [{ "key": key, "target": "CREATE", "create_revision": "0" }],
            "success": [{ "request_put": put }, { "request_range": oldest }],
            "failure": [{ "request_range": { "key": key } }, { "request_range": oldest }],
        });
        let answer = self.ask("kv/txn", &body, Some(ANSWER))?;
        let made = |n: usize| number(&answer["responses"][n]["response_range"]["kvs"][0]["create_revision"]);
        let is_new = answer["succeeded"].as_bool() == Some(true);
        let mine = if is_new { number(&answer["header"]["revision"]) } else { made(0) };
        let mine = mine.ok_or_else(|| self.strange("revision"))?;
        Ok((mine.cast_unsigned(), made(1).is_none_or(|oldest| oldest >= mine)))
    }

    /// Returns the youngest of the older keys that this one waits for.
    ///
    /// # Errors
    ///
    /// No etcd answers, or it refuses.
    pub(crate) fn older(&self, entry: &QueueKey, revision: u64) -> Result<Option<OlderKey>, Error> {
        let mut body = entry.range("DESCEND");
        body["max_create_revision"] = json!(revision.saturating_sub(1).to_string());
        let answer = self.ask("kv/range", &body, Some(ANSWER))?;
        let key = match &answer["kvs"][0] {
            Value::Null => return Ok(None),
            found => String::from_utf8_lossy(&self.bytes(found, "key")?).into_owned(),
        };
        Ok(Some(OlderKey { key, seen: self.number(&answer["header"], "revision")? }))
    }

    /// Waits until one of the two keys is deleted, or for `limit`.
    ///
    /// Returns false if etcd cancels a watch, as where it has forgotten its revision.
    ///
    /// # Errors
    ///
    /// No etcd answers, or it refuses.
    pub(crate) fn watch(&self, entry: &QueueKey, older: &OlderKey, limit: Duration) -> Result<bool, Error> {
        let begun = Instant::now();
        let watch = |key: &str| {
            let from = (older.seen + 1).to_string();
            json!({ "create_request": { "key": BASE64.encode(key), "start_revision": from, "filters": ["NOPUT"] } })
        };
        let body = format!("{}{}", watch(&older.key), watch(&entry.key));
        let watched = self.post("watch", &body, Some(limit), |url, response| {
            for line in BufReader::new(response.into_body().into_reader()).lines() {
                let line = line.map_err(|error| self.no_answer(&error))?;
                let news = understand(url, 200, &line)?;
                let is_cancelled = news["result"]["canceled"] == json!(true);
                if news["result"]["events"].is_array() || is_cancelled {
                    return Ok(!is_cancelled);
                }
            }
            Err(self.no_answer(&"it has ended a watch"))
        });
        match watched {
            Err(Error::NoAnswer { .. }) if begun.elapsed() >= limit => Ok(true),
            watched => watched,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_waits_for_keys_of_writers_alone() {
        let lease = |id| EtcdLease { id, time: Duration::ZERO };
        let key = |id, shared| QueueKey::new("a", lease(id), shared, String::new());
        let waits = |entry: &QueueKey, other: &QueueKey| {
            entry.begin.as_str() <= other.key.as_str() && other.key.as_str() < entry.end.as_str()
        };
        for writer in [0, i64::MAX, 0x7a, -1] {
            let (writer, reader) = (key(writer, false), key(7, true));
            assert!(waits(&reader, &writer) && waits(&writer, &reader), "{writer:?}");
        }
        assert!(!waits(&key(7, true), &key(8, true)) && waits(&key(7, false), &key(8, false)));
        let other = QueueKey::new("a0", lease(1), false, String::new());
        assert!(!waits(&key(7, false), &other) && !waits(&key(7, true), &other));
    }
}
