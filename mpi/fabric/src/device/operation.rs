//! Operations of a program: requests, refusals, and operations under way.

use std::cell::Cell;
use std::rc::Rc;

use crate::device::protocol::stream::TransferSource;
use crate::device::resource::buffers::Buffer;
use crate::device::resource::completion::CompletionTicket;
use crate::device::tune::copy_mode::CopyTrial;

/// Refusal: an operation did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No space now: make progress, and try again.
    Again,
    /// The peer is dead, gone, or can't be reached.
    Unreachable,
    /// No such peer.
    Unknown,
    /// An argument makes no sense.
    Invalid,
    /// The message is longer than any message, or than any atomic operation.
    TooLong,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Number of the receiver.
    pub peer: u32,
    /// Its tag, if it is a tagged message.
    pub tag: Option<u64>,
    /// Its bytes.
    pub buffer: &'a Buffer,
    /// Data for the receiver's completion.
    pub data: Option<u64>,
    /// The completion to report.
    pub ticket: CompletionTicket,
    /// The buffer is the caller's again when the call returns.
    pub inject: bool,
    /// Report only when the message has found its receive.
    pub matched: bool,
}

/// A message that its sender keeps until the receiver asks for it, or until it is known
/// to have arrived.
#[derive(Debug)]
pub struct HeldSend {
    /// Number of the receiver.
    pub peer: u32,
    /// Its bytes.
    pub source: TransferSource,
    /// The completion to report.
    pub ticket: CompletionTicket,
}

/// A receive that was posted.
#[derive(Clone, Debug)]
pub struct Receive {
    /// Buffer for the message.
    pub buffer: Buffer,
    /// The caller's context.
    pub context: usize,
    /// Flags of the completion.
    pub flags: u64,
    /// True if a success is reported.
    pub notify: bool,
    /// A buffer for several messages.
    pub multi: Option<Rc<Multi>>,
}

/// A multi-receive buffer.
#[derive(Debug, Default)]
pub struct Multi {
    pub(crate) used: Cell<usize>,
    pub(crate) filling: Cell<usize>,
    pub(crate) spent: Cell<bool>,
}

/// Envelope of a message: all but its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// Its sender.
    pub peer: u32,
    /// Its tag.
    pub tag: u64,
    /// Tagged or not.
    pub tagged: bool,
    /// Its length.
    pub len: usize,
    /// Its data.
    pub data: Option<u64>,
    /// The sender wants to know when it has found its receive: its number there, or 0.
    pub answer: u64,
}

/// A message without a receive.
#[derive(Debug)]
pub struct UnexpectedMessage {
    /// Its envelope.
    pub envelope: Envelope,
    /// Its bytes.
    pub body: PartialBody,
}

/// Body of a message, as far as it has come.
#[derive(Debug)]
pub enum PartialBody {
    /// The bytes that have come so far: all, if there are as many as its length.
    Bytes(Vec<u8>),
    /// Nothing: the sender keeps them, at this address (0: scattered) of its memory.
    Kept(u64),
    /// Its sender died.
    Lost,
}

/// A receive into which bytes flow.
#[derive(Debug)]
pub struct Active {
    /// The receive, its buffer cut to the part for this message.
    pub receive: Receive,
    /// The message.
    pub envelope: Envelope,
    /// Number of bytes that have come.
    pub came: usize,
    /// Number of bytes that will come.
    pub wanted: usize,
    /// The trial that the transfer is measured for.
    pub trial: Option<CopyTrial>,
}

/// An operation that waits for its answer.
#[derive(Debug)]
pub struct OneSided {
    /// Number of the peer that answers.
    pub peer: u32,
    /// The completion to report.
    pub ticket: CompletionTicket,
    /// Buffer of a read.
    pub into: Buffer,
    /// Number of bytes of it that have come.
    pub came: usize,
}
