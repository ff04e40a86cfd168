//! Requests to etcd's JSON gateway (`/v3/…`), and their answers.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Agent, Body};

use crate::Error;
use crate::queue::recipe_name;

/// Time-out of making a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Time-out of a request that etcd answers at once.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// Lease of etcd: its keys vanish with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdLease {
    /// Its number.
    pub id: i64,
    /// Time for which etcd keeps it without being told to keep it alive.
    pub time: Duration,
}

/// Client of an etcd, at one address or several of one cluster.
#[derive(Clone, Debug)]
pub struct Etcd {
    agent: Agent,
    urls: Vec<String>,
}

impl Etcd {
    /// Makes a client. Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] and [`Error::NoTls`], by the text alone.
    ///
    /// ```
    /// assert!(towpath_etcd::Etcd::new("http://10.0.0.1:2379,http://10.0.0.2:2379").is_ok());
    /// assert!(towpath_etcd::Etcd::new("10.0.0.1").is_err());
    /// ```
    pub fn new(addresses: &str) -> Result<Etcd, Error> {
        let urls: Vec<String> =
            addresses.split(',').map(|url| url.trim().trim_end_matches('/').to_owned()).collect();
        for url in &urls {
            if url.starts_with("https://") && !cfg!(feature = "tls") {
                return Err(Error::NoTls(url.clone()));
            }
            let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            if host.is_none_or(|host| host.is_empty() || host.contains(['/', ' '])) {
                return Err(Error::Address(url.clone()));
            }
        }
        // Proxies of the environment are for the web.
        let config = Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .build();
        Ok(Etcd { agent: config.into(), urls })
    }

    /// Makes a lease for this time; etcd may make it longer.
    ///
    /// # Errors
    ///
    /// No etcd answers, or it refuses.
    pub fn grant_lease(&self, time: Duration) -> Result<EtcdLease, Error> {
        let seconds = time.as_secs().max(1);
        let answer = self.ask("lease/grant", &json!({ "TTL": seconds.to_string() }), Some(ANSWER))?;
        let id = self.number(&answer, "ID")?;
        let time = Duration::from_secs(self.number(&answer, "TTL")?.try_into().unwrap_or(seconds));
        Ok(EtcdLease { id, time })
    }

    /// Keeps a lease alive for its time once more. False: it has ended.
    ///
    /// # Errors
    ///
    /// No etcd answers within `limit`, or it refuses.
    pub fn keep_alive(&self, lease: EtcdLease, limit: Duration) -> Result<bool, Error> {
        let answer = self.ask("lease/keepalive", &json!({ "ID": lease.id.to_string() }), Some(limit))?;
        // A stream of one answer, which is wrapped. Etcd leaves out numbers that are zero.
        Ok(number(&answer["result"]["TTL"]).is_some_and(|left| left > 0))
    }

    /// Ends a lease: its keys vanish, and with them its locks.
    ///
    /// # Errors
    ///
    /// No etcd answers, or it refuses.
    pub fn revoke(&self, lease: EtcdLease) -> Result<(), Error> {
        self.ask("lease/revoke", &json!({ "ID": lease.id.to_string() }), Some(ANSWER)).map(drop)
    }

    /// Waits for a lock, for at most `limit`. Returns the key that holds it.
    ///
    /// One request, which etcd answers when the lock is had.
    ///
    /// # Errors
    ///
    /// No etcd answers in time, or it refuses, as where the lease has ended.
    pub fn lock(&self, name: &str, lease: EtcdLease, limit: Option<Duration>) -> Result<Vec<u8>, Error> {
        let lock = BASE64.encode(recipe_name(name));
        let answer = self.ask("lock/lock", &json!({ "name": lock, "lease": lease.id.to_string() }), limit)?;
        self.bytes(&answer, "key")
    }

    /// Gives a lock back.
    ///
    /// # Errors
    ///
    /// No etcd answers, or it refuses.
    pub fn unlock(&self, key: &[u8]) -> Result<(), Error> {
        self.ask("lock/unlock", &json!({ "key": BASE64.encode(key) }), Some(ANSWER)).map(drop)
    }

    /// Posts a request to the first address that takes it, and returns its answer.
    pub(crate) fn ask(&self, method: &str, body: &Value, limit: Option<Duration>) -> Result<Value, Error> {
        self.post(method, &body.to_string(), limit, |url, mut response| {
            let status = response.status().as_u16();
            let text = response.body_mut().read_to_string().map_err(|error| self.no_answer(&error))?;
            understand(url, status, &text)
        })
    }

    /// Posts a request, one address after the other, until an answer can be read.
    pub(crate) fn post<T>(
        &self,
        method: &str,
        body: &str,
        limit: Option<Duration>,
        read: impl Fn(&str, Response<Body>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut failure = None;
        for url in &self.urls {
            let request = self.agent.post(format!("{url}/v3/{method}"));
            let request = request.config().timeout_global(limit).build();
            let answer = request.content_type("application/json").send(body);
            match answer.map_err(|error| self.no_answer(&error)).and_then(|response| read(url, response)) {
                Err(error @ (Error::NoAnswer { .. } | Error::NotReady { .. })) => failure = Some(error),
                answered => return answered,
            }
        }
        Err(failure.unwrap_or_else(|| Error::Address(String::new())))
    }

    pub(crate) fn no_answer(&self, error: &impl ToString) -> Error {
        Error::NoAnswer { urls: self.urls.join(", "), why: error.to_string() }
    }

    pub(crate) fn number(&self, answer: &Value, field: &str) -> Result<i64, Error> {
        number(&answer[field]).ok_or_else(|| self.strange(field))
    }

    pub(crate) fn bytes(&self, answer: &Value, field: &str) -> Result<Vec<u8>, Error> {
        let text = answer[field].as_str().ok_or_else(|| self.strange(field))?;
        BASE64.decode(text).map_err(|_| self.strange(field))
    }

    pub(crate) fn strange(&self, field: &str) -> Error {
        Error::NotEtcd { url: self.urls.join(", "), why: format!("its answer has no {field}") }
    }
}

/// Number in an answer; the gateway writes those of 64 bits as text.
pub(crate) fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// Takes an answer apart: its object, or etcd's refusal.
pub(crate) fn understand(url: &str, status: u16, text: &str) -> Result<Value, Error> {
    let answer: Option<Value> = serde_json::from_str(text).ok().filter(Value::is_object);
    let Some(answer) = answer else {
        let begin: String = text.chars().take(60).collect();
        return Err(Error::NotEtcd { url: url.into(), why: format!("status {status}, {begin:?}") });
    };
    let refusal = answer["error"]["message"].as_str().or_else(|| answer["error"].as_str());
    // Of gRPC: unavailable.
    let is_unavailable = [&answer["code"], &answer["error"]["grpc_code"]].contains(&&json!(14));
    match refusal {
        Some(why) if is_unavailable => Err(Error::NotReady { url: url.into(), why: why.into() }),
        Some(why) => Err(Error::Refused { url: url.into(), why: why.into() }),
        None if status == 200 => Ok(answer),
        None => Err(Error::NotEtcd { url: url.into(), why: format!("status {status}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_taken_apart_or_refused() {
        assert_eq!(number(&json!("12")), Some(12));
        assert_eq!(understand("u", 200, "{\"ID\":\"7\"}").map(|it| number(&it["ID"])), Ok(Some(7)));
        let refused =
            understand("u", 404, "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}");
        assert!(refused.unwrap_err().to_string().contains("lease not found"));
        let elects = understand("u", 503, "{\"error\":\"etcdserver: no leader\",\"code\":14}");
        assert!(matches!(elects, Err(Error::NotReady { .. })), "{elects:?}");
        let nginx = understand("http://x:80", 404, "<html>").unwrap_err().to_string();
        assert!(nginx.contains("http://x:80") && nginx.contains("404"), "{nginx}");
    }

    #[test]
    fn address_without_scheme_or_with_a_path_is_refused() {
        for wrong in ["localhost:2379", "http://", "http://a/b", "", "ftp://a", "http://a,b"] {
            let error = Etcd::new(wrong).expect_err(wrong).to_string();
            assert!(error.contains("http://HOST:PORT"), "{error}");
        }
        if !cfg!(feature = "tls") {
            assert!(Etcd::new("https://a:2379").unwrap_err().to_string().contains("etcd-tls"));
        }
    }
}
