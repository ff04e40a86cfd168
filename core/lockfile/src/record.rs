//! The table of a lock as bytes: a header, and a record for each place.
//!
//! ```text
//! header   0     magic, with the version
//!          8     next ticket
//!          16    largest token so far
//!          24    1 if an owner died and its work was not repaired since
//!          32    length of the name; the name
//! place    0     0 free, 1 waits, 2 holds
//!          4     1 if it only reads
//!          8     ticket
//!          16    token, of a holder
//!          24    time since which it waits or holds, in nanoseconds since 1970
//!          32    process
//!          36    length of the description; the description
//! ```
//!
//! Numbers are little-endian. A record does not cross a page, so that a process which dies while it
//! writes one leaves the old one or the new one. Only this user can write the file; even so each
//! number is checked where it is used, and a record that is none counts as free.

/// Kind of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockAccess {
    /// One holder.
    #[default]
    Exclusive,
    /// Any number of holders that only read.
    Shared,
}

/// Number of bytes of the header.
pub(crate) const HEADER: usize = 4096;
/// Number of bytes of a place's record.
pub(crate) const RECORD: usize = 512;
/// Maximum number of places.
pub(crate) const MOST_PLACES: usize = 65_536;
/// Maximum number of bytes of a name.
pub(crate) const MOST_NAME: usize = 2048;

const MAGIC: u64 = u64::from_le_bytes(*b"towlock1");
const TEXT: usize = 40;

/// Header of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockHeader {
    pub next_ticket: u64,
    pub token: u64,
    pub inconsistent: bool,
    pub name: String,
}

/// State of a place that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceState {
    Waits,
    Holds,
}

/// Record of a place that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlaceRecord {
    pub state: PlaceState,
    pub access: LockAccess,
    pub ticket: u64,
    pub token: u64,
    pub since: u64,
    pub process: u32,
    pub description: String,
}

impl LockHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TEXT + self.name.len());
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&self.next_ticket.to_le_bytes());
        bytes.extend_from_slice(&self.token.to_le_bytes());
        bytes.extend_from_slice(&u64::from(self.inconsistent).to_le_bytes());
        push_text(&mut bytes, &self.name, MOST_NAME);
        bytes
    }

    /// Returns the header, if the bytes are one.
    pub fn decode(bytes: &[u8]) -> Option<LockHeader> {
        if number(bytes, 0)? != MAGIC {
            return None;
        }
        Some(LockHeader {
            next_ticket: number(bytes, 8)?,
            token: number(bytes, 16)?,
            inconsistent: number(bytes, 24)? != 0,
            name: text(bytes, 32)?,
        })
    }
}

impl PlaceRecord {
    pub fn encode(&self) -> [u8; RECORD] {
        let mut bytes = Vec::with_capacity(RECORD);
        let state: u32 = if self.state == PlaceState::Waits { 1 } else { 2 };
        bytes.extend_from_slice(&state.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.access == LockAccess::Shared).to_le_bytes());
        bytes.extend_from_slice(&self.ticket.to_le_bytes());
        bytes.extend_from_slice(&self.token.to_le_bytes());
        bytes.extend_from_slice(&self.since.to_le_bytes());
        bytes.extend_from_slice(&self.process.to_le_bytes());
        push_text(&mut bytes, &self.description, RECORD - TEXT);
        let mut record = [0; RECORD];
        record[..bytes.len()].copy_from_slice(&bytes);
        record
    }

    /// Returns the record, if the place is in use.
    pub fn decode(bytes: &[u8]) -> Option<PlaceRecord> {
        let state = match short(bytes, 0)? {
            1 => PlaceState::Waits,
            2 => PlaceState::Holds,
            _ => return None,
        };
        Some(PlaceRecord {
            state,
            access: if short(bytes, 4)? == 0 { LockAccess::Exclusive } else { LockAccess::Shared },
            ticket: number(bytes, 8).filter(|&ticket| ticket < u64::MAX >> 2)?,
            token: number(bytes, 16)?,
            since: number(bytes, 24)?,
            process: short(bytes, 32)?,
            description: text(bytes, 36)?,
        })
    }
}

/// Appends a text with its length, shortened to `most` bytes.
fn push_text(bytes: &mut Vec<u8>, text: &str, most: usize) {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    bytes.extend_from_slice(&(end as u32).to_le_bytes());
    bytes.extend_from_slice(&text.as_bytes()[..end]);
}

fn text(bytes: &[u8], at: usize) -> Option<String> {
    let length = short(bytes, at)? as usize;
    let text = bytes.get(at + 4..)?.get(..length)?;
    String::from_utf8(text.to_vec()).ok()
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn record_that_is_decoded_is_what_was_encoded(
            holds: bool, shared: bool, ticket in 0..u64::MAX >> 2, token: u64, since: u64, process: u32,
            description in ".{0,600}",
        ) {
            let state = if holds { PlaceState::Holds } else { PlaceState::Waits };
            let access = if shared { LockAccess::Shared } else { LockAccess::Exclusive };
            let record = PlaceRecord { state, access, ticket, token, since, process, description };
            let decoded = PlaceRecord::decode(&record.encode()).unwrap();
            prop_assert!(record.description.starts_with(&decoded.description));
            prop_assert!(decoded.description.len() + 4 > record.description.len().min(RECORD - TEXT));
            prop_assert_eq!(PlaceRecord { description: decoded.description.clone(), ..record }, decoded);
        }

        #[test]
        fn hostile_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..RECORD)) {
            if let Some(record) = PlaceRecord::decode(&bytes) {
                prop_assert_eq!(PlaceRecord::decode(&record.encode()), Some(record));
            }
            prop_assert_eq!(LockHeader::decode(&bytes), None);
        }

        #[test]
        fn header_that_is_decoded_is_what_was_encoded(next_ticket: u64, token: u64, name in ".{0,100}") {
            let header = LockHeader { next_ticket, token, inconsistent: token % 2 == 0, name };
            prop_assert_eq!(LockHeader::decode(&header.encode()), Some(header));
        }
    }
}
