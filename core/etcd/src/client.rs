//! Requests to etcd's JSON gateway (`/v3/…`), and their answers.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Agent, Body};

use crate::Error;
use crate::login::{Login, LoginState};

/// Begin of all keys.
pub(crate) const ROOT: &str = "towpath/";

/// Time-out of making a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Time-out of a request that etcd answers at once.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// Remedy where a user may not use the keys of locks.
const GRANT: &str =
    "; its role needs them (`etcdctl role grant-permission ROLE readwrite towpath/ --prefix`)";

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
    login: Option<Arc<Login>>,
}

impl Etcd {
    /// Makes a client. Connects to nothing yet.
    ///
    /// An etcd that asks for a user gets the one of the first address that has one
    /// (`http://NAME:PASSWORD@HOST:PORT`, with `%40` for `@`), or that of `etcdctl`'s variables
    /// `ETCDCTL_USER` and `ETCDCTL_PASSWORD`.
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
        let mut login = None;
        let mut address = |text: &str| {
            let text = text.trim().trim_end_matches('/');
            let Some((begin, host)) = text.rsplit_once('@') else { return text.to_owned() };
            let (scheme, user) = begin.split_at(begin.find("//").map_or(0, |at| at + 2));
            login.get_or_insert_with(|| Login::of_address(user));
            format!("{scheme}{host}")
        };
        let urls: Vec<String> = addresses.split(',').map(&mut address).collect();
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
        let login = login.or_else(|| Login::of_variables(|name| std::env::var(name).ok())).map(Arc::new);
        Ok(Etcd { agent: config.into(), urls, login })
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
        self.post(method, &body.to_string(), limit, |url, response| self.object(url, response))
    }

    /// Posts a request as this client's user, with a new token where the old has ended.
    pub(crate) fn post<T>(
        &self,
        method: &str,
        body: &str,
        limit: Option<Duration>,
        read: impl Fn(&str, Response<Body>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Some(login) = &self.login else { return self.post_once(method, body, limit, None, &read) };
        let token = self.token(login)?;
        match self.post_once(method, body, limit, token.as_deref(), &read) {
            Err(Error::NoUser { .. }) => {
                login.forget(token.as_deref());
                self.post_once(method, body, limit, self.token(login)?.as_deref(), &read)
            }
            answered => answered,
        }
    }

    /// Returns etcd's token for a user, or `None` if it asks for none.
    fn token(&self, login: &Login) -> Result<Option<String>, Error> {
        let mut state = login.state();
        if *state == LoginState::NotAsked {
            let body = json!({ "name": login.name, "password": login.password }).to_string();
            let read = |url: &str, response| self.object(url, response);
            *state = match self.post_once("auth/authenticate", &body, Some(ANSWER), None, &read) {
                Ok(answer) => match answer["token"].as_str() {
                    Some(token) => LoginState::Token(token.to_owned()),
                    None => return Err(self.strange("token")),
                },
                Err(Error::Refused { why, .. }) if why.contains("authentication is not enabled") => {
                    LoginState::NotNeeded
                }
                Err(Error::Refused { url, why }) => {
                    return Err(Error::WrongUser { url, name: login.name.clone(), why });
                }
                Err(other) => return Err(other),
            };
        }
        Ok(if let LoginState::Token(token) = &*state { Some(token.clone()) } else { None })
    }

    /// Reads an answer that is an object.
    fn object(&self, url: &str, mut response: Response<Body>) -> Result<Value, Error> {
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().map_err(|error| self.no_answer(&error))?;
        understand(url, status, &text)
    }

    /// Posts a request, one address after the other, until an answer can be read.
    fn post_once<T>(
        &self,
        method: &str,
        body: &str,
        limit: Option<Duration>,
        token: Option<&str>,
        read: &impl Fn(&str, Response<Body>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut failure = None;
        for url in &self.urls {
            let mut request = self.agent.post(format!("{url}/v3/{method}"));
            if let Some(token) = token {
                request = request.header("Authorization", token);
            }
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
    let has_code = |code: u32| [&answer["code"], &answer["error"]["grpc_code"]].contains(&&json!(code));
    // Of gRPC: unavailable, unauthenticated. The others are invalid arguments there.
    let asks_for_user =
        |why: &str| has_code(16) || why.contains("user name is empty") || why.contains("auth store is old");
    match refusal {
        Some(why) if has_code(14) => Err(Error::NotReady { url: url.into(), why: why.into() }),
        Some(why) if asks_for_user(why) => Err(Error::NoUser { url: url.into(), why: why.into() }),
        Some(why) => {
            let url = url.into();
            // Permission denied.
            let remedy = if has_code(7) { GRANT } else { "" };
            Err(Error::Refused { url, why: format!("{why}{remedy}") })
        }
        None if status == 200 => Ok(answer),
        None => Err(Error::NotEtcd { url: url.into(), why: format!("status {status}") }),
    }
}

/// Name of a lock for etcd's recipe, whose keys lie below it.
///
/// Without a slash of its own: the keys of one lock are never below another's.
pub(crate) fn recipe_name(name: &str) -> String {
    format!("{ROOT}{}", name.replace('%', "%25").replace('/', "%2F"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_slashes_makes_no_keys_below_another() {
        assert_eq!(recipe_name("a"), "towpath/a");
        assert_eq!(recipe_name("a/b"), "towpath/a%2Fb");
        assert_eq!(recipe_name("a%2Fb"), "towpath/a%252Fb");
    }

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
