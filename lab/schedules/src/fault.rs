//! Faults: kinds of errors, and their descriptions.

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// No order of the calls explains their results.
    NotLinearizable,
    /// No thread can go on.
    Deadlock,
    /// No thread can go on, and one sleeps for a word that has changed.
    LostWakeUp,
    /// The threads run without end.
    Livelock,
    /// Two threads access a datum, and no word orders that.
    Race,
    /// A check or an assertion failed.
    Broken,
}

impl Fault {
    /// Describes it in words.
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

/// A fault, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedFault {
    /// Kind of the fault.
    pub fault: Fault,
    /// The particulars, in several lines.
    pub text: String,
}
