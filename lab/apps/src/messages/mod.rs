//! Applications over Active Messages: the papers' Split-C programs, between endpoints of
//! real processes or of simulated processors.
//!
//! A kernel is a function of a [`Party`]: an endpoint, its rank, and a barrier made of messages. It
//! goes through phases with a barrier behind each, and checks its rank's part of the result.

pub mod components;
pub mod fft;
pub mod party;
pub mod processes;
pub mod sample;

pub use party::{Party, SharedHandlers};

use crate::problem::Size;

/// Application over messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageApplication {
    /// Sample sort, keys in short messages.
    Sample,
    /// Sample sort, keys in blocks.
    SampleBulk,
    /// Connected components on a lattice of three dimensions: it communicates.
    ConComm,
    /// Connected components on a lattice of two dimensions: it computes.
    ConComp,
    /// Fast Fourier transform in three dimensions.
    Fft,
}

impl MessageApplication {
    /// All of them.
    pub const ALL: [MessageApplication; 5] = [
        MessageApplication::Sample,
        MessageApplication::SampleBulk,
        MessageApplication::ConComm,
        MessageApplication::ConComp,
        MessageApplication::Fft,
    ];

    /// Its name, as users call it.
    pub const fn name(self) -> &'static str {
        match self {
            MessageApplication::Sample => "sample",
            MessageApplication::SampleBulk => "sample-bulk",
            MessageApplication::ConComm => "con-comm",
            MessageApplication::ConComp => "con-comp",
            MessageApplication::Fft => "fft",
        }
    }

    /// Returns its description, with the key of its paper, for lists.
    pub const fn about(self) -> &'static str {
        match self {
            MessageApplication::Sample => "sample sort, two keys in each short message (L)",
            MessageApplication::SampleBulk => "sample sort, keys in blocks",
            MessageApplication::ConComm => "connected components, three dimensions: communicates (L)",
            MessageApplication::ConComp => "connected components, two dimensions: computes (L)",
            MessageApplication::Fft => "Fourier transform in three dimensions, blocks between all (L)",
        }
    }

    /// The application of that name.
    pub fn from_name(name: &str) -> Option<MessageApplication> {
        MessageApplication::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// Input of a message application: its size for each rank, and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageInput {
    /// Size.
    pub size: Size,
    /// Seed.
    pub seed: u64,
}

/// Course of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankRun {
    /// Time from the first barrier to the last one, in nanoseconds.
    pub ns: u64,
    /// Number of requests that this rank has sent.
    pub requests: u64,
    /// Figures that a person can look at.
    pub text: String,
}

/// Runs an application as one rank of those that run it at the same time.
///
/// # Errors
///
/// If this rank's part of the result differs from the reference, or messages can't be sent.
pub fn run<D: SharedHandlers>(
    application: MessageApplication,
    input: MessageInput,
    party: &Party<'_, D>,
) -> Result<RankRun, String> {
    match application {
        MessageApplication::Sample => sample::sort(party, input, sample::Parcel::Short),
        MessageApplication::SampleBulk => sample::sort(party, input, sample::Parcel::Block),
        MessageApplication::ConComm => components::components(party, input, components::Dimensions::Three),
        MessageApplication::ConComp => components::components(party, input, components::Dimensions::Two),
        MessageApplication::Fft => fft::fft(party, input),
    }
}
