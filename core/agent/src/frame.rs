//! Frames between agents.
//!
//! ```text
//! greeting       0 | JSON                       first frame of a link, from both ends
//! beat           1 | JSON                       several times in a lease's time
//! confirmation   2 | time of the beat (8)
//! consensus      3 | JSON of the library
//! lock           4 | number (8) | epoch (4) | letter
//! question       5 | number (8) | 0, or 1 | name    asks for the status: of all locks, or of one
//! answer         6 | number (8) | JSON
//! ```
//!
//! A *letter* is about locks:
//!
//! ```text
//! machine        0 | number of words (1) | words (4 each) | payload: as towpath-mplock encodes
//!                a message of the state machines
//! tell           1 | lock (16) | protocol (1) | flags (1): 1 an owner may have died
//! told           2                              no more of these in this epoch
//! join           3 | lock (16)                  may a reader join those of its host?
//! joined         4 | lock (16) | 1 yes, 0 no
//! ```
//!
//! Bytes that make no frame are none: the receiver passes over them.

use serde::{Deserialize, Serialize};
use towpath_mplock::wire::{Identity, LetterContent, decode, encode};
use towpath_mplock::{Epoch, Node, Protocol};

use crate::membership::Incarnation;

/// First frame of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub host: Node,
    pub incarnation: Incarnation,
    /// Incarnation of the receiver with which the sender has a session; 0: none.
    pub known: Incarnation,
    /// Number of frames of that session that the sender has received.
    pub received: u64,
}

/// Suspected incarnation, as an agent reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Doubt {
    pub host: Node,
    pub incarnation: Incarnation,
    /// Time since the sender has last confirmed a beat of it, in milliseconds.
    pub confirmed: u64,
}

/// Beat of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beat {
    /// Time of the sender's clock, in nanoseconds.
    pub sent: u64,
    /// Number of frames of the session that the sender has received.
    pub received: u64,
    /// Time for which the sender has heard nothing of each host, in milliseconds.
    pub silences: Vec<u64>,
    /// Incarnations that are suspected, as the sender has learnt.
    pub doubts: Vec<Doubt>,
}

/// Frame between two agents.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Frame {
    Greeting(Greeting),
    Beat(Beat),
    Confirmation(u64),
    Consensus(Vec<u8>),
    Lock { number: u64, epoch: Epoch, letter: Vec<u8> },
    Question { number: u64, lock: Option<String> },
    Answer(u64, Vec<u8>),
}

/// Letter about a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentLetter {
    Machine(LetterContent),
    Tell { lock: Identity, protocol: Protocol, doubtful: bool },
    Told,
    Join { lock: Identity },
    Joined { lock: Identity, may: bool },
}

impl Frame {
    pub fn encode(&self) -> Vec<u8> {
        let json =
            |kind: u8, json: serde_json::Result<Vec<u8>>| [vec![kind], json.unwrap_or_default()].concat();
        match self {
            Frame::Greeting(greeting) => json(0, serde_json::to_vec(greeting)),
            Frame::Beat(beat) => json(1, serde_json::to_vec(beat)),
            Frame::Confirmation(sent) => [&[2][..], &sent.to_le_bytes()].concat(),
            Frame::Consensus(bytes) => [&[3][..], bytes].concat(),
            Frame::Lock { number, epoch, letter } => Frame::lock(*number, *epoch, letter),
            Frame::Question { number, lock } => {
                let (one, name) = lock.as_ref().map_or((0, ""), |name| (1, name));
                [&[5][..], &number.to_le_bytes(), &[one], name.as_bytes()].concat()
            }
            Frame::Answer(number, bytes) => [&[6][..], &number.to_le_bytes(), bytes].concat(),
        }
    }

    /// Encodes a lock's frame.
    pub fn lock(number: u64, epoch: Epoch, letter: &[u8]) -> Vec<u8> {
        [&[4][..], &number.to_le_bytes(), &epoch.to_le_bytes(), letter].concat()
    }

    /// Returns the frame, if the bytes are one.
    pub fn decode(bytes: &[u8]) -> Option<Frame> {
        let (&kind, rest) = bytes.split_first()?;
        let number = || Some(u64::from_le_bytes(*rest.first_chunk()?));
        Some(match kind {
            0 => Frame::Greeting(serde_json::from_slice(rest).ok()?),
            1 => Frame::Beat(serde_json::from_slice(rest).ok()?),
            2 if rest.len() == 8 => Frame::Confirmation(number()?),
            3 => Frame::Consensus(rest.to_vec()),
            4 => {
                let (epoch, letter) = rest.get(8..)?.split_first_chunk()?;
                Frame::Lock { number: number()?, epoch: u32::from_le_bytes(*epoch), letter: letter.to_vec() }
            }
            5 => {
                let (one, name) = rest.get(8..)?.split_first()?;
                let name = str::from_utf8(name).ok()?;
                Frame::Question { number: number()?, lock: (*one == 1).then(|| name.to_owned()) }
            }
            6 => Frame::Answer(number()?, rest[8..].to_vec()),
            _ => return None,
        })
    }
}

impl AgentLetter {
    pub fn encode(&self, me: Node) -> Vec<u8> {
        let about =
            |kind: u8, lock: &Identity, rest: &[u8]| [&[kind][..], &lock.0.to_le_bytes(), rest].concat();
        match self {
            AgentLetter::Machine(content) => {
                let words = encode(me, content);
                let mut bytes = vec![0, words.as_slice().len() as u8];
                words.as_slice().iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
                bytes.extend_from_slice(words.payload());
                bytes
            }
            AgentLetter::Tell { lock, protocol, doubtful } => {
                about(1, lock, &[*protocol as u8, u8::from(*doubtful)])
            }
            AgentLetter::Told => vec![2],
            AgentLetter::Join { lock } => about(3, lock, &[]),
            AgentLetter::Joined { lock, may } => about(4, lock, &[u8::from(*may)]),
        }
    }

    /// Returns the letter, if the bytes are one of this sender.
    pub fn decode(from: Node, bytes: &[u8]) -> Option<AgentLetter> {
        let (&kind, rest) = bytes.split_first()?;
        let about = || {
            let (lock, rest) = rest.split_first_chunk()?;
            Some((Identity(u128::from_le_bytes(*lock)), rest))
        };
        Some(match kind {
            0 => {
                let (&count, rest) = rest.split_first()?;
                let (words, payload) = rest.split_at_checked(4 * usize::from(count))?;
                let words: Vec<u32> =
                    words.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
                let (sender, content) = decode(&words, payload)?;
                if sender != from {
                    return None;
                }
                AgentLetter::Machine(content)
            }
            1 => {
                let (lock, &[protocol, doubtful]) = about()? else { return None };
                let protocol = Protocol::ALL.into_iter().find(|&p| p as u8 == protocol)?;
                AgentLetter::Tell { lock, protocol, doubtful: doubtful != 0 }
            }
            2 if rest.is_empty() => AgentLetter::Told,
            3 => {
                let (lock, []) = about()? else { return None };
                AgentLetter::Join { lock }
            }
            4 => {
                let (lock, &[may]) = about()? else { return None };
                AgentLetter::Joined { lock, may: may != 0 }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use towpath_mplock::{FencingToken, LockRequest, Message, MessageBody, Mode};

    use super::*;

    #[test]
    fn frame_that_is_decoded_is_what_was_encoded() {
        let doubt = Doubt { host: 1, incarnation: u64::MAX, confirmed: 3 };
        let beat = Beat { sent: 1, received: 2, silences: vec![0, 7], doubts: vec![doubt] };
        for frame in [
            Frame::Greeting(Greeting { host: 2, incarnation: u64::MAX, known: 0, received: 9 }),
            Frame::Beat(beat),
            Frame::Confirmation(7),
            Frame::Consensus(vec![1, 2]),
            Frame::Lock { number: 1 << 40, epoch: 3, letter: vec![4, 5] },
            Frame::Question { number: 6, lock: None },
            Frame::Question { number: 7, lock: Some("a lock".to_owned()) },
            Frame::Answer(6, b"{}".to_vec()),
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
    }

    #[test]
    fn letter_that_is_decoded_is_what_was_encoded() {
        let lock = Identity::of("x");
        let (protocol, request) = (Protocol::Reactive, LockRequest::waiting(8, Mode::Shared));
        let body = MessageBody::Request { request, seen: FencingToken::from_number(5), warned: true };
        let content = LetterContent::Lock { lock, protocol, message: Message::new(4, body) };
        for letter in [
            AgentLetter::Machine(content),
            AgentLetter::Tell { lock, protocol, doubtful: true },
            AgentLetter::Told,
            AgentLetter::Join { lock },
            AgentLetter::Joined { lock, may: false },
        ] {
            let bytes = letter.encode(3);
            assert_eq!(AgentLetter::decode(3, &bytes).as_ref(), Some(&letter));
            assert_eq!(AgentLetter::decode(3, &bytes[..bytes.len() - 1]), None, "{letter:?}");
            if let AgentLetter::Machine(_) = letter {
                assert_eq!(AgentLetter::decode(2, &bytes), None, "another sender");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn hostile_bytes_are_a_frame_or_none(kind in 0..8u8, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [vec![kind], bytes].concat();
            let _ = Frame::decode(&bytes);
            if let Some(letter) = AgentLetter::decode(1, &bytes) {
                prop_assert_eq!(AgentLetter::decode(1, &letter.encode(1)), Some(letter));
            }
        }
    }
}
