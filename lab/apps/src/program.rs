//! List of all applications, over shared memory and over messages.

use crate::messages::MessageApplication;
use crate::problem::Application;

/// Application of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyApplication {
    /// Program over shared memory.
    Shared(Application),
    /// Program over messages.
    Messages(MessageApplication),
}

impl AnyApplication {
    /// Returns whether a pack can be its input, in the place of a generated one.
    pub const fn takes_packs(self) -> bool {
        matches!(self, AnyApplication::Shared(Application::Spark98 | Application::Spark98Reduced))
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = AnyApplication> {
        let shared = Application::ALL.into_iter().map(AnyApplication::Shared);
        shared.chain(MessageApplication::ALL.into_iter().map(AnyApplication::Messages))
    }

    /// Its name, as users call it.
    pub const fn name(self) -> &'static str {
        match self {
            AnyApplication::Shared(application) => application.name(),
            AnyApplication::Messages(application) => application.name(),
        }
    }

    /// Returns its description, with the key of its paper, for lists.
    pub const fn about(self) -> &'static str {
        match self {
            AnyApplication::Shared(application) => application.about(),
            AnyApplication::Messages(application) => application.about(),
        }
    }

    /// The application of that name.
    pub fn from_name(name: &str) -> Option<AnyApplication> {
        AnyApplication::all().find(|a| a.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own() {
        for application in AnyApplication::all() {
            assert_eq!(AnyApplication::from_name(application.name()), Some(application));
            assert!(!application.about().is_empty());
        }
        assert_eq!(AnyApplication::from_name("gauss"), None);
    }
}
