//! User of an etcd that asks for one: name, password, and etcd's token for them.
//!
//! The token lasts for minutes after its last use, and until users or their roles are changed: a
//! request that is refused for its sake is made once more with a new one.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use percent_encoding::percent_decode_str;

/// Name and password of a user, and the state of the login.
pub(crate) struct Login {
    pub name: String,
    pub password: String,
    state: Mutex<LoginState>,
}

/// State of a login.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum LoginState {
    /// Etcd was not asked yet, or no longer takes its token.
    NotAsked,
    /// Etcd asks no client for a user.
    NotNeeded,
    /// Etcd's token for this user.
    Token(String),
}

impl Login {
    fn new(name: String, password: String) -> Login {
        Login { name, password, state: Mutex::new(LoginState::NotAsked) }
    }

    /// Reads a user from the begin of an address, `NAME:PASSWORD@`, with `%40` for `@`.
    pub fn of_address(user: &str) -> Login {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        Login::new(decoded(name), decoded(password))
    }

    /// Reads a user from the variables of `etcdctl`: `NAME:PASSWORD`, or both apart.
    pub fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Login> {
        let user = variable("ETCDCTL_USER").filter(|user| !user.is_empty())?;
        let (name, password) = match (variable("ETCDCTL_PASSWORD"), user.split_once(':')) {
            (Some(password), _) => (user.clone(), password),
            (None, Some((name, password))) => (name.to_owned(), password.to_owned()),
            (None, None) => (user.clone(), String::new()),
        };
        Some(Login::new(name, password))
    }

    /// Locks the state, so that one thread at a time asks for a token.
    pub fn state(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a token that etcd does not take, unless there is a newer one.
    pub fn forget(&self, token: Option<&str>) {
        let mut state = self.state();
        if !matches!(&*state, LoginState::Token(newer) if Some(newer.as_str()) != token) {
            *state = LoginState::NotAsked;
        }
    }
}

/// The name alone.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_an_address_and_of_variables() {
        let parts = |login: Login| (login.name, login.password);
        let pair = |name: &str, password: &str| (name.to_owned(), password.to_owned());
        assert_eq!(parts(Login::of_address("ann:p%40ss:1")), pair("ann", "p@ss:1"));
        assert_eq!(parts(Login::of_address("ann")), pair("ann", ""));
        for (user, password, expected) in [
            ("ann:p:1", None, Some(pair("ann", "p:1"))),
            ("ann", Some("p:1"), Some(pair("ann", "p:1"))),
            ("a:b", Some("p"), Some(pair("a:b", "p"))),
            ("ann", None, Some(pair("ann", ""))),
            ("", Some("p"), None),
        ] {
            let variable = |name: &str| match name {
                "ETCDCTL_USER" => Some(user.to_owned()),
                _ => password.map(str::to_owned),
            };
            assert_eq!(Login::of_variables(variable).map(parts), expected, "{user} {password:?}");
        }
    }

    #[test]
    fn newer_token_is_kept_and_no_password_is_printed() {
        let login = Login::of_address("ann:secret");
        *login.state() = LoginState::Token("new".into());
        login.forget(Some("old"));
        assert!(*login.state() == LoginState::Token("new".into()));
        login.forget(Some("new"));
        assert!(*login.state() == LoginState::NotAsked);
        assert!(!format!("{login:?}").contains("secret"));
    }
}
