//! What can go wrong.

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// No order of the calls explains their results.
    NotLinearizable,
    /// Nobody can go on.
    Deadlock,
    /// Nobody can go on, and somebody sleeps for a word that has changed.
    LostWakeUp,
    /// The threads run without end.
    Livelock,
    /// Two threads access a datum, and no word orders that.
    Race,
    /// A check or an assertion failed.
    Broken,
}

impl Fault {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Fault::NotLinearizable => "not linearizable",
            Fault::Deadlock => "deadlock",
            Fault::LostWakeUp => "lost wake-up",
            Fault::Livelock => "livelock",
            Fault::Race => "race",
            Fault::Broken => "broken",
        }
    }
}

/// What went wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which kind.
    pub fault: Fault,
    /// The particulars, in several lines.
    pub text: String,
}
