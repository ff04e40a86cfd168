//! Items that gateways tell each other. A frame of a link is a sequence of them.
//!
//! ```text
//! item   to (2 bytes) | from (2) | kind (1) | length of the body (4) | body
//! ```
//!
//! Numbers are little-endian. `to` and `from` are hosts; [`ALL`] are all but `from`. The host that
//! listens passes items on to where they belong, as they are. Everything is checked: the peer has
//! the cluster's key, and may have gone wrong all the same.

use towpath_am::packet::Form;
use towpath_am::{Direction, ForwardedMessage, ForwardedPiece, MAX_ARGS, Name, Tag};
use towpath_shm::HostArrival;

/// All hosts but the sender's.
pub const ALL: u16 = u16::MAX;
/// Number of bytes before an item's body.
const HEAD: usize = 9;

/// Change of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankChange {
    /// A process has entered as it.
    Came,
    /// Its process has left in order, or ended without having come.
    Left,
    /// Its process died.
    Died,
}

/// Content of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A message for an endpoint.
    Message {
        /// The receiver.
        to: Name,
        /// The message.
        message: ForwardedMessage<'a>,
    },
    /// Number of messages from the addressed host that were handled since the last such
    /// item.
    Handled {
        /// The endpoint that has handled them.
        by: Name,
        /// The queue.
        direction: Direction,
        /// Number of messages.
        count: u64,
    },
    /// A rank of the sender's host has changed.
    Rank(u32, RankChange),
    /// An endpoint of that rank was opened.
    Opened(Name, u32),
    /// An endpoint was closed.
    Closed(Name),
    /// Arrival of a host's ranks at the barrier, for the host that decides.
    Arrival(HostArrival),
    /// End of the barrier's episode, and the rank by whose death it has failed.
    Conclude(u32, Option<u32>),
    /// A launcher's message to another.
    Note(&'a [u8]),
}

/// Item as it came.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedItem<'a> {
    /// Host that it is for, or [`ALL`].
    pub to: u16,
    /// Host that it is from.
    pub from: u16,
    /// All of its bytes.
    pub bytes: &'a [u8],
    kind: u8,
    body: &'a [u8],
}

/// An item that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadItem;

/// Writes an item.
pub fn write(out: &mut Vec<u8>, to: u16, from: u16, item: &Item<'_>) {
    out.extend(to.to_le_bytes());
    out.extend(from.to_le_bytes());
    let start = out.len();
    out.extend([0; HEAD - 4]);
    let kind = write_body(out, item);
    let length = (out.len() - start - (HEAD - 4)) as u32;
    out[start] = kind;
    out[start + 1..start + 5].copy_from_slice(&length.to_le_bytes());
}

fn write_body(out: &mut Vec<u8>, item: &Item<'_>) -> u8 {
    match *item {
        Item::Message { to, message: m } => {
            out.extend(to.to_bits().to_le_bytes());
            let flags = m.form as u8 | u8::from(m.direction.is_reply()) << 4;
            out.extend([flags, m.handler, m.args.len() as u8]);
            out.extend(m.tag.0.to_le_bytes());
            out.extend(m.aux.to_le_bytes());
            out.extend(m.source.to_le_bytes());
            for arg in m.args {
                out.extend(arg.to_le_bytes());
            }
            if let Some(piece) = m.piece {
                for number in [piece.offset, piece.whole.0, piece.whole.1] {
                    out.extend(number.to_le_bytes());
                }
                out.extend_from_slice(piece.bytes);
            }
            1
        }
        Item::Handled { by, direction, count } => {
            out.extend(by.to_bits().to_le_bytes());
            out.push(direction.is_reply().into());
            out.extend(count.to_le_bytes());
            2
        }
        Item::Rank(rank, change) => {
            out.extend(rank.to_le_bytes());
            out.push(change as u8);
            3
        }
        Item::Opened(name, rank) => {
            out.extend(name.to_bits().to_le_bytes());
            out.extend(rank.to_le_bytes());
            4
        }
        Item::Closed(name) => {
            out.extend(name.to_bits().to_le_bytes());
            5
        }
        Item::Arrival(arrival) => {
            let (kind, episode) = match arrival {
                HostArrival::Awaited => (0, 0),
                HostArrival::All(episode) => (1, episode),
                HostArrival::NoneExpected => (2, 0),
            };
            out.push(kind);
            out.extend(episode.to_le_bytes());
            6
        }
        Item::Conclude(episode, dead) => {
            out.extend(episode.to_le_bytes());
            out.extend(dead.map_or(0, |rank| u64::from(rank) + 1).to_le_bytes());
            7
        }
        Item::Note(bytes) => {
            out.extend_from_slice(bytes);
            8
        }
    }
}

/// Takes the first item off a frame.
pub fn next<'a>(frame: &mut &'a [u8]) -> Result<ReceivedItem<'a>, BadItem> {
    let (head, rest) = frame.split_first_chunk::<HEAD>().ok_or(BadItem)?;
    let length = u32::from_le_bytes([head[5], head[6], head[7], head[8]]) as usize;
    let body = rest.get(..length).ok_or(BadItem)?;
    let bytes = &frame[..HEAD + length];
    *frame = &rest[length..];
    let host = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    Ok(ReceivedItem { to: host(0), from: host(2), bytes, kind: head[4], body })
}

/// Reader of a body.
struct ItemBody<'a>(&'a [u8]);

impl<'a> ItemBody<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadItem> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(BadItem)?;
        self.0 = rest;
        Ok(*first)
    }

    fn byte(&mut self) -> Result<u8, BadItem> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn word(&mut self) -> Result<u32, BadItem> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, BadItem> {
        self.take().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Result<Name, BadItem> {
        self.long().map(Name::from_bits)
    }

    fn end<T>(self, value: T) -> Result<T, BadItem> {
        if self.0.is_empty() { Ok(value) } else { Err(BadItem) }
    }
}

impl<'a> ReceivedItem<'a> {
    /// Reads the content. `args`: room for the arguments of a message.
    pub fn item<'b>(&self, args: &'b mut [u32; MAX_ARGS]) -> Result<Item<'b>, BadItem>
    where
        'a: 'b,
    {
        let mut body = ItemBody(self.body);
        let item = match self.kind {
            1 => return read_message(body, args),
            2 => {
                let by = body.name()?;
                let direction = direction_of(body.byte()?)?;
                Item::Handled { by, direction, count: body.long()? }
            }
            3 => {
                let rank = body.word()?;
                let change = match body.byte()? {
                    0 => RankChange::Came,
                    1 => RankChange::Left,
                    2 => RankChange::Died,
                    _ => return Err(BadItem),
                };
                Item::Rank(rank, change)
            }
            4 => Item::Opened(body.name()?, body.word()?),
            5 => Item::Closed(body.name()?),
            6 => Item::Arrival(match (body.byte()?, body.word()?) {
                (0, _) => HostArrival::Awaited,
                (1, episode) => HostArrival::All(episode),
                (2, _) => HostArrival::NoneExpected,
                _ => return Err(BadItem),
            }),
            7 => {
                let episode = body.word()?;
                let dead = match body.long()? {
                    0 => None,
                    rank => Some(u32::try_from(rank - 1).map_err(|_| BadItem)?),
                };
                Item::Conclude(episode, dead)
            }
            8 => return Ok(Item::Note(self.body)),
            _ => return Err(BadItem),
        };
        body.end(item)
    }
}

fn direction_of(byte: u8) -> Result<Direction, BadItem> {
    if byte > 1 { Err(BadItem) } else { Ok(Direction::of(byte == 1)) }
}

fn read_message<'b>(mut body: ItemBody<'b>, args: &'b mut [u32; MAX_ARGS]) -> Result<Item<'b>, BadItem> {
    let to = body.name()?;
    let [flags, handler, count] = body.take()?;
    let form = Form::from_bits((flags & 15).into()).ok_or(BadItem)?;
    let direction = direction_of(flags >> 4)?;
    let (tag, aux, source) = (Tag(body.long()?), body.long()?, body.word()?);
    let args = args.get_mut(..count.into()).ok_or(BadItem)?;
    for arg in args.iter_mut() {
        *arg = body.word()?;
    }
    let piece = if matches!(form, Form::Medium | Form::LongPart | Form::Long) {
        let (offset, whole) = (body.long()?, (body.long()?, body.long()?));
        Some(ForwardedPiece { bytes: std::mem::take(&mut body.0), offset, whole })
    } else {
        None
    };
    let message = ForwardedMessage { direction, form, handler, tag, args, aux, source, piece };
    // Blocks are not larger in any world.
    if !message.is_valid(1 << 20) {
        return Err(BadItem);
    }
    body.end(Item::Message { to, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(item: &Item<'_>) {
        let mut bytes = Vec::new();
        write(&mut bytes, 3, 1, item);
        write(&mut bytes, ALL, 2, &Item::Note(b"the next"));
        let mut rest = &bytes[..];
        let received = next(&mut rest).unwrap();
        assert_eq!((received.to, received.from), (3, 1));
        assert_eq!(received.item(&mut [0; MAX_ARGS]).unwrap(), *item);
        let mut again = received.bytes;
        assert_eq!(next(&mut again).unwrap().item(&mut [0; MAX_ARGS]).unwrap(), *item);
        let last = next(&mut rest).unwrap();
        assert_eq!((last.to, last.item(&mut [0; MAX_ARGS])), (ALL, Ok(Item::Note(b"the next"))));
        assert!(rest.is_empty());
        // A byte less makes no sense, unless the bytes are a payload's.
        let has_bytes = matches!(item, Item::Note(_))
            || matches!(item, Item::Message { message, .. } if message.piece.is_some());
        for len in HEAD..if has_bytes { HEAD } else { received.bytes.len() } {
            let mut short = received.bytes[..len].to_vec();
            short[5..9].copy_from_slice(&((len - HEAD) as u32).to_le_bytes());
            assert!(next(&mut &short[..]).unwrap().item(&mut [0; MAX_ARGS]).is_err(), "{len}");
        }
    }

    #[test]
    fn items_survive_the_journey() {
        let name = Name::from_bits(0x0123_4567_89ab_0007);
        let message = ForwardedMessage {
            direction: Direction::Request,
            form: Form::Short,
            handler: 250,
            tag: Tag(u64::MAX - 1),
            args: &[1, 2, u32::MAX],
            aux: 0,
            source: 0xf_ffff,
            piece: None,
        };
        let piece = Some(ForwardedPiece { bytes: b"payload", offset: 1 << 35, whole: (9, 1 << 34) });
        round_trip(&Item::Message { to: name, message });
        round_trip(&Item::Message {
            to: name,
            message: ForwardedMessage { args: &[7; MAX_ARGS], ..message },
        });
        for form in [Form::Medium, Form::LongPart, Form::Long] {
            round_trip(&Item::Message { to: name, message: ForwardedMessage { form, piece, ..message } });
        }
        let (form, direction) = (Form::Returned, Direction::Reply);
        let returned = ForwardedMessage { form, direction, aux: 77, args: &[], ..message };
        round_trip(&Item::Message { to: name, message: returned });
        round_trip(&Item::Handled { by: name, direction, count: 1 << 40 });
        for change in [RankChange::Came, RankChange::Left, RankChange::Died] {
            round_trip(&Item::Rank(4095, change));
        }
        round_trip(&Item::Opened(name, 3));
        round_trip(&Item::Closed(name));
        for arrival in [HostArrival::Awaited, HostArrival::All(u32::MAX), HostArrival::NoneExpected] {
            round_trip(&Item::Arrival(arrival));
        }
        round_trip(&Item::Conclude(7, None));
        round_trip(&Item::Conclude(7, Some(0)));
        round_trip(&Item::Note(b""));
    }

    proptest! {
        /// Any bytes are refused or read, without a panic.
        #[test]
        fn hostile_bytes_do_no_harm(kind in 0u8..10, body in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = vec![0, 0, 1, 0, kind];
            bytes.extend((body.len() as u32).to_le_bytes());
            bytes.extend(&body);
            let mut rest = &bytes[..];
            while let Ok(received) = next(&mut rest) {
                let _ = received.item(&mut [0; MAX_ARGS]);
            }
            let mut rest = &body[..];
            let _ = next(&mut rest);
        }
    }
}
