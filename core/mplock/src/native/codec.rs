//! Messages as arguments of an Active Message, at most fifteen, and its payload.
//!
//! The payload is the lock's data.
//! All but a report of a passing and a loan fit into one cache line, with twelve arguments.
//!
//! ```text
//! 0     kind (4 bits) | protocol (2) | flags (10) | rank of the sender (16)
//! 1–4   identity of the lock
//! 5     epoch
//! 6–7   token                                        Stored, Seat
//! 8–9   seat, generation                             Seat
//! 6     ticket                                       all others but Inquire, Deposit
//! 7–8   token                                        Request, Grant, Return, Report, Lend
//! 9     seat (16) | lender (16)                      Lend
//! 10–12 generation, number of acquisitions, ticket   Lend
//! 7–8   next node, its ticket                        Forward, Probe
//! 7     node                                         InUse
//! 9–12  passing of the lock: node, ticket, token     Report
//! last  two words: version of the data, if there are data
//! ```
//!
//! Bits that make no message are no message: the receiver passes over it.

use towpath_am::MAX_ARGS;

use super::identity::Identity;
use crate::data::LockData;
use crate::loan::Loan;
use crate::message::{
    Grant, Holding, LockRequest, Message, MessageBody, Mode, NodeReport, Passage, SeatMessage, Successor,
};
use crate::numbers::{Node, Ticket};
use crate::protocol::Protocol;
use crate::token::FencingToken;

/// Content of a message between two managers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterContent {
    /// Message of the state machines about a lock.
    #[allow(missing_docs)]
    Lock { lock: Identity, protocol: Protocol, message: Message },
    /// Node to a lock's new home: the node has state of the lock.
    #[allow(missing_docs)]
    Tell { lock: Identity, protocol: Protocol },
    /// Last message of a rank that closes its manager.
    ///
    /// `clean`: it takes no lock with it, and the locks at home there are consistent.
    #[allow(missing_docs)]
    Farewell { clean: bool },
    /// Answer to a rank that the sender does not know: a successor of a dead one.
    Stranger,
}

/// Message as arguments and payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterWords {
    words: [u32; LENGTH],
    count: usize,
    data: Option<LockData>,
}

/// Maximum number of arguments of a message.
const LENGTH: usize = 15;
const _: () = assert!(LENGTH <= MAX_ARGS);

/// Kinds of messages.
mod kind {
    pub(super) const SEAT: u32 = 0;
    pub(super) const REQUEST: u32 = 1;
    pub(super) const GRANT: u32 = 2;
    pub(super) const FORWARD: u32 = 3;
    pub(super) const RETURN: u32 = 4;
    pub(super) const INQUIRE: u32 = 5;
    pub(super) const REPORT: u32 = 6;
    pub(super) const TELL: u32 = 7;
    pub(super) const FAREWELL: u32 = 8;
    pub(super) const STRANGER: u32 = 9;
    pub(super) const REFUSE: u32 = 10;
    pub(super) const PROBE: u32 = 11;
    pub(super) const IN_USE: u32 = 12;
    pub(super) const DEPOSIT: u32 = 13;
    pub(super) const STORED: u32 = 14;
    pub(super) const LEND: u32 = 15;
}

/// Access is shared.
const SHARED: u32 = 1 << 6;
/// The receiver, or the next node, may keep the lock.
const CACHABLE: u32 = 1 << 7;
/// An owner died and its work was not repaired since.
const INCONSISTENT: u32 = 1 << 8;
/// The lock's next receiver is a node; otherwise its home.
const TO_NODE: u32 = 1 << 9;
/// The lock was passed to a node.
const PASSED: u32 = 1 << 10;
/// The lock was passed on with a warning: beside the node.
const WARNED: u32 = 1 << 16;
/// The rank leaves in good order.
const CLEAN: u32 = 1 << 11;
/// First bit of a [`Holding`]: 0 absent, 1 waits, 2 held, 3 given up.
const HOLDING: u32 = 12;
/// The request only tries.
const TRIES: u32 = 1 << 14;
/// Mark of a letter with data of the lock.
const DATA: u32 = 1 << 15;

impl LetterWords {
    /// Returns the arguments.
    pub fn as_slice(&self) -> &[u32] {
        &self.words[..self.count]
    }

    /// Returns the payload; empty for none.
    pub fn payload(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], LockData::bytes)
    }

    fn of(bits: u32, from: Node) -> LetterWords {
        let mut words = LetterWords { words: [0; LENGTH], count: 0, data: None };
        words.push(bits | u32::from(from) << 16);
        words
    }

    fn push(&mut self, word: u32) {
        self.words[self.count] = word;
        self.count += 1;
    }

    fn push_token(&mut self, token: FencingToken) {
        self.push(token.get() as u32);
        self.push((token.get() >> 32) as u32);
    }

    fn push_lock(&mut self, lock: Identity, epoch: u32) {
        for word in 0..4 {
            self.push((lock.0 >> (32 * word)) as u32);
        }
        self.push(epoch);
    }
}

/// Returns a message of `from` as arguments.
pub fn encode(from: Node, content: &LetterContent) -> LetterWords {
    let (lock, protocol, message) = match *content {
        LetterContent::Lock { lock, protocol, ref message } => (lock, protocol, message),
        LetterContent::Tell { lock, protocol } => {
            let mut words = LetterWords::of(kind::TELL | protocol_bits(protocol), from);
            words.push_lock(lock, 0);
            return words;
        }
        LetterContent::Farewell { clean } => {
            return LetterWords::of(kind::FAREWELL | flag(CLEAN, clean), from);
        }
        LetterContent::Stranger => return LetterWords::of(kind::STRANGER, from),
    };
    let (bits, ticket) = match message.body {
        MessageBody::Request { request: LockRequest { ticket, mode, tries }, warned, .. } => {
            let flags = flag(TRIES, tries) | flag(INCONSISTENT, warned);
            (kind::REQUEST | mode_bits(mode) | flags, Some(ticket))
        }
        MessageBody::Grant(grant) => {
            let flags = flag(CACHABLE, grant.cachable) | flag(INCONSISTENT, grant.previous_owner_died);
            (kind::GRANT | mode_bits(grant.mode) | flags, Some(grant.ticket))
        }
        MessageBody::Forward { behind, next } => (kind::FORWARD | successor_bits(next), Some(behind)),
        MessageBody::Return { ticket, inconsistent, .. } => {
            (kind::RETURN | flag(INCONSISTENT, inconsistent), Some(ticket))
        }
        MessageBody::Refuse { ticket } => (kind::REFUSE, Some(ticket)),
        MessageBody::Probe { behind, .. } => (kind::PROBE, Some(behind)),
        MessageBody::InUse { ticket, .. } => (kind::IN_USE, Some(ticket)),
        MessageBody::Inquire => (kind::INQUIRE, None),
        MessageBody::Deposit => (kind::DEPOSIT, None),
        MessageBody::Stored { .. } => (kind::STORED, None),
        MessageBody::Lend { ticket, loan } => (kind::LEND | flag(CACHABLE, loan.cachable), Some(ticket)),
        MessageBody::Seat(seat) => {
            (kind::SEAT | flag(PASSED, seat.passes) | flag(INCONSISTENT, seat.inconsistent), None)
        }
        MessageBody::Report(report) => {
            let flags = holding_bits(report.holding) | flag(PASSED, report.passed.is_some());
            (kind::REPORT | flags, Some(report.ticket))
        }
    };
    let has_data = flag(DATA, message.data.is_some());
    let mut words = LetterWords::of(bits | protocol_bits(protocol) | has_data, from);
    words.push_lock(lock, message.epoch);
    ticket.into_iter().for_each(|ticket| words.push(ticket));
    match message.body {
        MessageBody::Request { seen: token, .. } | MessageBody::Return { token, .. } => {
            words.push_token(token)
        }
        MessageBody::Grant(grant) => words.push_token(grant.token),
        MessageBody::Stored { version } => words.push_token(version),
        MessageBody::Forward { next: Successor::Node { node, ticket, .. }, .. }
        | MessageBody::Probe { node, ticket, .. } => {
            words.push(node.into());
            words.push(ticket);
        }
        MessageBody::InUse { node, .. } => words.push(node.into()),
        MessageBody::Lend { loan, .. } => {
            words.push_token(loan.token);
            words.push(u32::from(loan.seat) << 16 | u32::from(loan.lender));
            words.push(loan.generation);
            words.push(loan.most);
            words.push(loan.ticket);
        }
        MessageBody::Seat(seat) => {
            words.push_token(seat.token);
            words.push(seat.seat.into());
            words.push(seat.generation);
        }
        MessageBody::Forward { next: Successor::Home, .. }
        | MessageBody::Refuse { .. }
        | MessageBody::Deposit
        | MessageBody::Inquire => {}
        MessageBody::Report(report) => {
            words.push_token(match report.holding {
                Holding::Held { token, .. } | Holding::GivenUp { token, .. } => token,
                Holding::Absent | Holding::Waits { .. } => FencingToken::NONE,
            });
            if let Some(passed) = report.passed {
                words.push(u32::from(passed.node) | flag(WARNED, passed.inconsistent));
                words.push(passed.ticket);
                words.push_token(passed.token);
            }
        }
    }
    if let Some(data) = &message.data {
        words.push_token(data.version());
        words.data = Some(data.clone());
    }
    words
}

/// Returns sender and content of a message, if arguments and payload are one.
pub fn decode(args: &[u32], payload: &[u8]) -> Option<(Node, LetterContent)> {
    let bits = *args.first()?;
    let from = (bits >> 16) as Node;
    let content = match (bits & 0xf, args.len()) {
        (kind::FAREWELL | kind::STRANGER | kind::TELL, _) if !payload.is_empty() => return None,
        (kind::FAREWELL, 1) => LetterContent::Farewell { clean: bits & CLEAN != 0 },
        (kind::STRANGER, 1) => LetterContent::Stranger,
        (kind::TELL, 6) => LetterContent::Tell { lock: identity(args)?, protocol: protocol(bits)? },
        (_, 6..) => {
            let (rest, data) = data(bits, &args[6..], payload)?;
            let message = Message { epoch: args[5], body: body(bits, rest)?, data };
            LetterContent::Lock { lock: identity(args)?, protocol: protocol(bits)?, message }
        }
        _ => return None,
    };
    Some((from, content))
}

/// Separates the version of the data from the other arguments.
fn data<'a>(bits: u32, rest: &'a [u32], payload: &[u8]) -> Option<(&'a [u32], Option<LockData>)> {
    if bits & DATA == 0 {
        return payload.is_empty().then_some((rest, None));
    }
    let (rest, version) = rest.split_last_chunk::<2>()?;
    Some((rest, Some(LockData::new(token(version[0], version[1]), payload)?)))
}

fn body(bits: u32, rest: &[u32]) -> Option<MessageBody> {
    let mode = mode(bits);
    let inconsistent = bits & INCONSISTENT != 0;
    Some(match (bits & 0xf, rest) {
        (kind::REQUEST, &[ticket, low, high]) => {
            let request = LockRequest { ticket: some(ticket)?, mode, tries: bits & TRIES != 0 };
            MessageBody::Request { request, seen: token(low, high), warned: inconsistent }
        }
        (kind::GRANT, &[ticket, low, high]) => MessageBody::Grant(Grant {
            ticket: some(ticket)?,
            token: token(low, high),
            mode,
            cachable: bits & CACHABLE != 0,
            previous_owner_died: inconsistent,
        }),
        (kind::FORWARD, &[behind, node, ticket]) if bits & TO_NODE != 0 => MessageBody::Forward {
            behind: some(behind)?,
            next: Successor::Node {
                node: Node::try_from(node).ok()?,
                ticket: some(ticket)?,
                cachable: bits & CACHABLE != 0,
            },
        },
        (kind::FORWARD, &[behind]) if bits & TO_NODE == 0 => {
            MessageBody::Forward { behind: some(behind)?, next: Successor::Home }
        }
        (kind::RETURN, &[ticket, low, high]) => {
            MessageBody::Return { ticket: some(ticket)?, token: token(low, high), inconsistent }
        }
        (kind::REFUSE, &[ticket]) => MessageBody::Refuse { ticket: some(ticket)? },
        (kind::PROBE, &[behind, node, ticket]) => MessageBody::Probe {
            behind: some(behind)?,
            node: Node::try_from(node).ok()?,
            ticket: some(ticket)?,
        },
        (kind::IN_USE, &[ticket, node]) => {
            MessageBody::InUse { node: Node::try_from(node).ok()?, ticket: some(ticket)? }
        }
        (kind::INQUIRE, &[]) => MessageBody::Inquire,
        (kind::DEPOSIT, &[]) => MessageBody::Deposit,
        (kind::STORED, &[low, high]) => MessageBody::Stored { version: token(low, high) },
        (kind::LEND, &[behind, low, high, seat, generation, most, ticket]) => {
            let (token, cachable) = (token(low, high), bits & CACHABLE != 0);
            let (seat, lender) = ((seat >> 16) as u16, seat as Node);
            let loan = Loan { seat, generation, lender, ticket, token, most, cachable };
            MessageBody::Lend { ticket: some(behind)?, loan }
        }
        (kind::SEAT, &[low, high, seat, generation]) => {
            let (token, passes) = (token(low, high), bits & PASSED != 0);
            let seat = u16::try_from(seat).ok()?;
            MessageBody::Seat(SeatMessage { seat, generation, token, passes, inconsistent })
        }
        (kind::REPORT, &[ticket, low, high, ref passed @ ..]) => {
            let holding = match bits >> HOLDING & 3 {
                0 => Holding::Absent,
                1 => Holding::Waits { mode, tries: bits & TRIES != 0 },
                2 => Holding::Held { token: token(low, high), mode, inconsistent },
                _ => Holding::GivenUp { token: token(low, high), inconsistent },
            };
            let passed = match (bits & PASSED != 0, passed) {
                (true, &[node, ticket, low, high]) => Some(Passage {
                    node: Node::try_from(node & !WARNED).ok()?,
                    ticket,
                    token: token(low, high),
                    inconsistent: node & WARNED != 0,
                }),
                (false, &[]) => None,
                _ => return None,
            };
            MessageBody::Report(NodeReport { ticket, holding, passed })
        }
        _ => return None,
    })
}

fn flag(bit: u32, set: bool) -> u32 {
    if set { bit } else { 0 }
}

fn mode_bits(mode: Mode) -> u32 {
    flag(SHARED, mode == Mode::Shared)
}

fn mode(bits: u32) -> Mode {
    if bits & SHARED != 0 { Mode::Shared } else { Mode::Exclusive }
}

fn successor_bits(next: Successor) -> u32 {
    match next {
        Successor::Node { cachable, .. } => TO_NODE | flag(CACHABLE, cachable),
        Successor::Home => 0,
    }
}

fn holding_bits(holding: Holding) -> u32 {
    match holding {
        Holding::Absent => 0,
        Holding::Waits { mode, tries } => 1 << HOLDING | mode_bits(mode) | flag(TRIES, tries),
        Holding::Held { mode, inconsistent, .. } => {
            2 << HOLDING | mode_bits(mode) | flag(INCONSISTENT, inconsistent)
        }
        Holding::GivenUp { inconsistent, .. } => 3 << HOLDING | flag(INCONSISTENT, inconsistent),
    }
}

fn protocol_bits(protocol: Protocol) -> u32 {
    (protocol as u32) << 4
}

fn protocol(bits: u32) -> Option<Protocol> {
    Protocol::ALL.into_iter().find(|&protocol| protocol_bits(protocol) == bits & 0x30)
}

fn identity(args: &[u32]) -> Option<Identity> {
    let words = args.get(1..5)?;
    Some(Identity(words.iter().rev().fold(0, |bits, &word| bits << 32 | u128::from(word))))
}

fn token(low: u32, high: u32) -> FencingToken {
    FencingToken::from_number(u64::from(high) << 32 | u64::from(low))
}

/// Returns the ticket of a request; 0 is none.
fn some(ticket: Ticket) -> Option<Ticket> {
    (ticket != 0).then_some(ticket)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn modes() -> impl Strategy<Value = Mode> {
        prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)]
    }

    fn tokens() -> impl Strategy<Value = FencingToken> {
        any::<u64>().prop_map(FencingToken::from_number)
    }

    fn bodies() -> impl Strategy<Value = MessageBody> {
        let ticket = || 1..=Ticket::MAX;
        let passage = (any::<Node>(), ticket(), tokens(), any::<bool>())
            .prop_map(|(node, ticket, token, inconsistent)| Passage { node, ticket, token, inconsistent });
        let holding = prop_oneof![
            Just(Holding::Absent),
            (modes(), any::<bool>()).prop_map(|(mode, tries)| Holding::Waits { mode, tries }),
            (tokens(), modes(), any::<bool>()).prop_map(|(token, mode, inconsistent)| Holding::Held {
                token,
                mode,
                inconsistent
            }),
            (tokens(), any::<bool>())
                .prop_map(|(token, inconsistent)| Holding::GivenUp { token, inconsistent }),
        ];
        let next =
            prop_oneof![
                Just(Successor::Home),
                (any::<Node>(), ticket(), any::<bool>())
                    .prop_map(|(node, ticket, cachable)| Successor::Node { node, ticket, cachable }),
            ];
        prop_oneof![
            (ticket(), modes(), any::<[bool; 2]>(), tokens()).prop_map(|(ticket, mode, flags, seen)| {
                let [tries, warned] = flags;
                MessageBody::Request { request: LockRequest { ticket, mode, tries }, seen, warned }
            }),
            ticket().prop_map(|ticket| MessageBody::Refuse { ticket }),
            (ticket(), any::<Node>(), ticket()).prop_map(|(behind, node, ticket)| MessageBody::Probe {
                behind,
                node,
                ticket
            }),
            (any::<Node>(), ticket()).prop_map(|(node, ticket)| MessageBody::InUse { node, ticket }),
            (ticket(), tokens(), modes(), any::<bool>(), any::<bool>()).prop_map(
                |(ticket, token, mode, cachable, previous_owner_died)| MessageBody::Grant(Grant {
                    ticket,
                    token,
                    mode,
                    cachable,
                    previous_owner_died
                })
            ),
            (ticket(), next).prop_map(|(behind, next)| MessageBody::Forward { behind, next }),
            (ticket(), tokens(), any::<bool>()).prop_map(|(ticket, token, inconsistent)| {
                MessageBody::Return { ticket, token, inconsistent }
            }),
            (ticket(), any::<(u16, u32, u32, bool, Node, Ticket)>(), tokens()).prop_map(
                |(behind, numbers, token)| {
                    let (seat, generation, most, cachable, lender, ticket) = numbers;
                    let loan = Loan { seat, generation, lender, ticket, token, most, cachable };
                    MessageBody::Lend { ticket: behind, loan }
                }
            ),
            (any::<(u16, u32, bool, bool)>(), tokens()).prop_map(|(numbers, token)| {
                let (seat, generation, passes, inconsistent) = numbers;
                MessageBody::Seat(SeatMessage { seat, generation, token, passes, inconsistent })
            }),
            Just(MessageBody::Inquire),
            Just(MessageBody::Deposit),
            tokens().prop_map(|version| MessageBody::Stored { version }),
            (any::<Ticket>(), holding, proptest::option::of(passage)).prop_map(
                |(ticket, holding, passed)| MessageBody::Report(NodeReport { ticket, holding, passed })
            ),
        ]
    }

    fn messages() -> impl Strategy<Value = Message> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..=8);
        let data = (tokens(), bytes).prop_map(|(version, bytes)| LockData::new(version, &bytes).unwrap());
        (any::<u32>(), bodies(), proptest::option::of(data)).prop_map(|(epoch, body, data)| Message {
            epoch,
            body,
            data,
        })
    }

    fn contents() -> impl Strategy<Value = LetterContent> {
        let lock = || any::<u128>().prop_map(Identity);
        let protocol = || (0..3usize).prop_map(|n| Protocol::ALL[n]);
        prop_oneof![
            8 => (lock(), protocol(), messages())
                .prop_map(|(lock, protocol, message)| LetterContent::Lock { lock, protocol, message }),
            1 => (lock(), protocol()).prop_map(|(lock, protocol)| LetterContent::Tell { lock, protocol }),
            1 => any::<bool>().prop_map(|clean| LetterContent::Farewell { clean }),
            1 => Just(LetterContent::Stranger),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn message_that_is_decoded_is_what_was_encoded(from in any::<Node>(), content in contents()) {
            let words = encode(from, &content);
            prop_assert_eq!(decode(words.as_slice(), words.payload()), Some((from, content)));
        }

        #[test]
        fn hostile_words_are_a_message_or_none(
            args in proptest::collection::vec(any::<u32>(), 0..17),
            bytes in proptest::collection::vec(any::<u8>(), 0..3),
        ) {
            if let Some((from, content)) = decode(&args, &bytes) {
                let words = encode(from, &content);
                prop_assert_eq!(decode(words.as_slice(), words.payload()), Some((from, content)));
            }
        }

        #[test]
        fn message_with_a_word_more_or_less_is_none(content in contents(), more in any::<u32>()) {
            let words = encode(1, &content);
            let (args, bytes) = (words.as_slice(), words.payload());
            prop_assert_eq!(decode(&args[..args.len() - 1], bytes), None);
            prop_assert_eq!(decode(&[args, &[more]].concat(), bytes), None);
            prop_assert_eq!(decode(args, &[0; LockData::MAX + 1]), None);
        }
    }
}
