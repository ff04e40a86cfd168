//! A packet: one line with a header and up to twelve arguments, and the rest that does
//! not fit there.
//!
//! The header is one word, and it is also the packet's hand-shake (the paper's *type*):
//!
//! | bits | field | meaning |
//! | --- | --- | --- |
//! | 0–3 | state | [`FREE`], [`CLAIMED`], [`READY`], [`READY_BULK`], [`SKIPPED`] |
//! | 4–6 | form | [`Form`]: short, medium, long, … |
//! | 7–14 | handler | index into the receiver's handler table |
//! | 15–19 | arguments | how many, 0 to 16 |
//! | 20–27 | block | which block of the bulk queue, in state [`READY_BULK`] |
//! | 28–47 | source | the sending endpoint ([`source_code`]) |
//! | 48–63 | lap | which time round the ring (`towpath`), or the owner's generation ([`CLAIMED`]) |
//!
//! Everything in it may have been written by a process that has gone wrong: [`Header`] only takes
//! it apart, and its users check.

use towpath_machine::{Arena, Place, Processor};

/// State of a packet that is not in use.
pub const FREE: u64 = 0;
/// State of a packet that a sender is filling: the one that the source field names.
pub const CLAIMED: u64 = 1;
/// State of a packet that can be delivered and has no block.
pub const READY: u64 = 2;
/// State of a packet that can be delivered and has a block of the bulk queue.
pub const READY_BULK: u64 = 3;
/// Its owner died before it was ready: the receiver passes over it.
pub const SKIPPED: u64 = 4;

/// Maximum number of a message's arguments.
pub const MAX_ARGS: usize = 16;
/// Number of arguments on the packet's line.
pub const LINE_ARGS: usize = 12;

/// The kind of a packet's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// Arguments only.
    Short = 0,
    /// A payload for the handler, in a block.
    Medium = 1,
    /// A piece of a long transfer, in a block; the handler does not run yet.
    LongPart = 2,
    /// The last piece of a long transfer, in a block.
    Long = 3,
    /// A long transfer whose bytes the sender has already stored in the receiver's
    /// segment.
    LongStored = 4,
    /// An undeliverable message on its way back to its sender.
    Returned = 5,
    /// A long transfer that its receiver copies out of the sender's memory; the last
    /// arguments on the line say where the bytes are.
    LongOffered = 6,
}

impl Form {
    /// The form with this number, if there is one.
    ///
    /// ```
    /// use towpath_channel::packet::Form;
    ///
    /// assert_eq!(Form::from_bits(Form::Medium as u64), Some(Form::Medium));
    /// assert_eq!(Form::from_bits(7), None); // nonsense
    /// ```
    #[inline]
    pub const fn from_bits(bits: u64) -> Option<Form> {
        Some(match bits {
            0 => Form::Short,
            1 => Form::Medium,
            2 => Form::LongPart,
            3 => Form::Long,
            4 => Form::LongStored,
            5 => Form::Returned,
            6 => Form::LongOffered,
            _ => return None,
        })
    }
}

/// Number of bits of an endpoint's index in a source code.
pub const ENDPOINT_BITS: u32 = 12;
/// Number of bits of a source code, with those of the generation.
const SOURCE_BITS: u32 = ENDPOINT_BITS + 8;

/// An endpoint's incarnation in 20 bits: its index below 8 bits of its generation.
///
/// ```
/// use towpath_channel::packet::source_code;
///
/// assert_eq!(source_code(3, 1), source_code(3, 257)); // eight bits of a generation
/// assert_ne!(source_code(3, 1), source_code(3, 2));
/// ```
#[inline(always)]
pub const fn source_code(endpoint: u16, generation: u64) -> u32 {
    endpoint as u32 & ((1 << ENDPOINT_BITS) - 1) | ((generation & 0xff) as u32) << ENDPOINT_BITS
}

/// The index and the generation's bits of a source code, which may be nonsense.
///
/// ```
/// use towpath_channel::packet::{from_source_code, source_code};
///
/// assert_eq!(from_source_code(source_code(3, 2)), (3, 2));
/// ```
#[inline(always)]
pub const fn from_source_code(code: u32) -> (u16, u64) {
    (code as u16 & ((1 << ENDPOINT_BITS) - 1), (code >> ENDPOINT_BITS) as u64 & 0xff)
}

/// A header, as read from shared memory: not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub u64);

impl Header {
    /// A header without state and lap, which publishing adds.
    ///
    /// ```
    /// use towpath_channel::packet::{Form, Header, source_code};
    ///
    /// let header = Header::new(Form::Short, 7, 2, source_code(3, 1));
    /// assert_eq!((header.handler(), header.args(), header.is_ready()), (7, 2, false));
    /// ```
    #[inline(always)]
    pub const fn new(form: Form, handler: u8, args: usize, source: u32) -> Header {
        Header((form as u64) << 4 | (handler as u64) << 7 | (args as u64) << 15 | (source as u64) << 28)
    }
    /// The header of a packet that `owner` has claimed.
    ///
    /// ```
    /// use towpath_channel::packet::{CLAIMED, Header};
    ///
    /// let header = Header::claimed(3, 9);
    /// assert_eq!((header.state(), header.source(), header.lap()), (CLAIMED, 3, 9));
    /// ```
    #[inline(always)]
    pub const fn claimed(owner: u16, generation: u16) -> Header {
        Header(CLAIMED | (owner as u64) << 28 | (generation as u64) << 48)
    }
    /// This header with a block.
    ///
    /// ```
    /// # use towpath_channel::packet::{Form, Header, READY_BULK};
    /// let header = Header::new(Form::Medium, 7, 0, 0).with_block(5).with_state(READY_BULK);
    /// assert!(header.has_block() && header.block() == 5);
    /// ```
    #[inline(always)]
    pub const fn with_block(self, block: usize) -> Header {
        Header(self.0 | (block as u64 & 0xff) << 20)
    }
    /// This header with another number of arguments.
    ///
    /// ```
    /// # use towpath_channel::packet::{Form, Header};
    /// assert_eq!(Header::new(Form::Short, 7, 2, 0).with_args(4).args(), 4);
    /// ```
    #[inline(always)]
    pub const fn with_args(self, args: usize) -> Header {
        Header(self.0 & !(0x1f << 15) | (args as u64 & 0x1f) << 15)
    }
    /// This header with a state (of a header without one).
    ///
    /// ```
    /// # use towpath_channel::packet::{Form, Header, READY};
    /// assert!(Header::new(Form::Short, 7, 0, 0).with_state(READY).is_ready());
    /// ```
    #[inline(always)]
    pub const fn with_state(self, state: u64) -> Header {
        Header(self.0 & !0xf | state)
    }
    /// This header with a lap.
    ///
    /// ```
    /// # use towpath_channel::packet::{Form, Header};
    /// let header = Header::new(Form::Short, 7, 0, 0).with_lap(65_535);
    /// // it replaces another one
    /// assert_eq!((header.lap(), header.with_lap(1).lap()), (65_535, 1));
    /// ```
    #[inline(always)]
    pub const fn with_lap(self, lap: u16) -> Header {
        Header(self.0 & 0x0000_ffff_ffff_ffff | (lap as u64) << 48)
    }
    /// The state.
    ///
    /// ```
    /// # use towpath_channel::packet::{FREE, Header};
    /// assert_eq!(Header(0).state(), FREE); // as memory is at first
    /// ```
    #[inline(always)]
    pub const fn state(self) -> u64 {
        self.0 & 0xf
    }
    /// Returns whether the packet can be delivered.
    ///
    /// ```
    /// # use towpath_channel::packet::{Header, READY, READY_BULK, SKIPPED};
    /// let is_ready = |state| Header(0).with_state(state).is_ready();
    /// assert_eq!([READY, READY_BULK, SKIPPED].map(is_ready), [true, true, false]);
    /// ```
    #[inline(always)]
    pub const fn is_ready(self) -> bool {
        self.0 & 0xe == READY
    }
    /// Returns whether a block belongs to the packet (if it is ready).
    ///
    /// ```
    /// # use towpath_channel::packet::{Header, READY, READY_BULK};
    /// let has_block = |state| Header(0).with_state(state).has_block();
    /// assert_eq!([READY, READY_BULK].map(has_block), [false, true]);
    /// ```
    #[inline(always)]
    pub const fn has_block(self) -> bool {
        self.state() == READY_BULK
    }
    /// Returns whether it is ready, of the short form, without a block.
    ///
    /// ```
    /// # use towpath_channel::packet::{Form, Header, READY};
    /// let is_short = |form| Header::new(form, 7, 0, 0).with_state(READY).is_short();
    /// assert_eq!([Form::Short, Form::Long].map(is_short), [true, false]);
    /// ```
    #[inline(always)]
    pub const fn is_short(self) -> bool {
        self.0 & 0x7f == (Form::Short as u64) << 4 | READY
    }
    /// The form, if it is one.
    ///
    /// ```
    /// # use towpath_channel::packet::{Form, Header};
    /// assert_eq!(Header::new(Form::LongStored, 7, 0, 0).form(), Some(Form::LongStored));
    /// assert_eq!(Header(u64::MAX).form(), None); // of a process that has gone wrong
    /// ```
    #[inline(always)]
    pub const fn form(self) -> Option<Form> {
        Form::from_bits(self.0 >> 4 & 7)
    }
    /// The handler's index.
    ///
    /// ```
    /// # use towpath_channel::packet::{Form, Header};
    /// assert_eq!(Header::new(Form::Short, 255, 16, 0).handler(), 255);
    /// ```
    #[inline(always)]
    pub const fn handler(self) -> u8 {
        (self.0 >> 7) as u8
    }
    /// Number of arguments: 0 to 31, more than 16 being nonsense.
    ///
    /// ```
    /// # use towpath_channel::packet::{Header, MAX_ARGS};
    /// assert!(Header(u64::MAX).args() > MAX_ARGS); // nonsense: its reader checks
    /// ```
    #[inline(always)]
    pub const fn args(self) -> usize {
        (self.0 >> 15 & 0x1f) as usize
    }
    /// The block's number.
    ///
    /// ```
    /// # use towpath_channel::packet::{Form, Header};
    /// assert_eq!(Header::new(Form::Long, 7, 0, 0).with_block(254).block(), 254);
    /// ```
    #[inline(always)]
    pub const fn block(self) -> usize {
        (self.0 >> 20 & 0xff) as usize
    }
    /// The sending endpoint's incarnation ([`source_code`]); of a claimed packet, just
    /// its index.
    ///
    /// ```
    /// # use towpath_channel::packet::{Form, Header, source_code};
    /// let code = source_code(3, 1);
    /// assert_eq!(Header::new(Form::Short, 7, 0, code).source(), code);
    /// ```
    #[inline(always)]
    pub const fn source(self) -> u32 {
        (self.0 >> 28) as u32 & ((1 << SOURCE_BITS) - 1)
    }
    /// The lap, or the owner's generation.
    ///
    /// ```
    /// # use towpath_channel::packet::Header;
    /// assert_eq!(Header::claimed(3, 9).lap(), 9); // the owner's generation
    /// ```
    #[inline(always)]
    pub const fn lap(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// One place of a packet queue: exactly one line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot<P: Processor> {
    /// See [`Header`].
    pub header: P::Word,
    /// The tag that the sender addressed.
    pub tag: P::Cell,
    /// Arguments 0 to 11, two in a cell, the even one in the low half.
    pub args: [P::Cell; LINE_ARGS / 2],
}

/// The part of a packet that does not fit on its line.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Extra<P: Processor> {
    /// First ticket that may use the place, or a [hole](crate::queue::hole) (`towpath`
    /// only): written by the receiver, see `claim/towpath.rs`.
    pub valid_from: P::Word,
    /// Arguments 12 to 15.
    pub args: [P::Cell; (MAX_ARGS - LINE_ARGS) / 2],
    /// Words by form: offset and length of a long transfer ([`pack_range`]), or status
    /// and operation of a returned message.
    pub aux: P::Cell,
}

/// The first line of a block of the bulk queue.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct BlockHead<P: Processor> {
    /// 0 if free, or else the claimer ([`block_owner`], [`TAKEN`]).
    pub owner: P::Word,
    /// Bytes in the block.
    pub len: P::Cell,
    /// Long: where in the receiver's segment they belong.
    pub offset: P::Cell,
    /// Long: where the whole transfer starts, and its length.
    pub whole: [P::Cell; 2],
    /// Long, not short: ticket of a piece whose time the sender asks for, or else 0.
    pub timed: P::Cell,
    /// The receiver: time that it took for such a piece
    /// ([`report`](crate::store_mode::report)).
    pub told: P::Word,
    /// Unused.
    pub spare: P::Cell,
}

impl<P: Processor> Slot<P> {
    /// A free place.
    ///
    /// ```
    /// use towpath_channel::packet::Slot;
    /// use towpath_machine::{Heap, LINE, Native};
    ///
    /// assert_eq!(size_of_val(&Slot::<Native>::new(&Heap)), LINE);
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        Slot {
            header: arena.word(Place::NewLine, 0),
            tag: arena.cell(Place::SameLine, 0),
            args: core::array::from_fn(|_| arena.cell(Place::SameLine, 0)),
        }
    }
}

impl<P: Processor> Extra<P> {
    /// The part of a free place: all zero.
    ///
    /// ```
    /// use towpath_channel::packet::{Extra, LINE_ARGS, MAX_ARGS};
    /// use towpath_machine::{Heap, Native};
    ///
    /// let extra = Extra::<Native>::new(&Heap);
    /// assert_eq!(2 * extra.args.len(), MAX_ARGS - LINE_ARGS); // two in a cell
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        Extra {
            valid_from: arena.word(Place::NewLine, 0),
            args: core::array::from_fn(|_| arena.cell(Place::SameLine, 0)),
            aux: arena.cell(Place::SameLine, 0),
        }
    }
}

impl<P: Processor> BlockHead<P> {
    /// A free block.
    ///
    /// ```
    /// use towpath_channel::packet::BlockHead;
    /// use towpath_machine::{Heap, Native, Ordering, Processor};
    ///
    /// let block = BlockHead::<Native>::new(&Heap);
    /// assert_eq!(Native::current().load(&block.owner, Ordering::Relaxed), 0); // free
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        let cell = || arena.cell(Place::SameLine, 0);
        BlockHead {
            owner: arena.word(Place::NewLine, 0),
            len: cell(),
            offset: cell(),
            whole: [cell(), cell()],
            timed: cell(),
            told: arena.word(Place::SameLine, 0),
            spare: cell(),
        }
    }
}

/// The owner word of a block of a closed queue that its next owner has taken, so that no
/// sender claims it.
pub const TAKEN: u64 = u64::MAX;

/// The owner word of a block that an endpoint has claimed: never 0.
///
/// ```
/// use towpath_channel::packet::block_owner;
///
/// assert_ne!(block_owner(0, 0), 0); // 0 is a free block
/// assert_ne!(block_owner(3, 1), block_owner(3, 2)); // another incarnation
/// ```
#[inline(always)]
pub const fn block_owner(endpoint: u16, generation: u16) -> u64 {
    1 << 32 | (generation as u64) << 16 | endpoint as u64
}

/// The largest offset of a long transfer, plus one.
pub const MAX_OFFSET: u64 = 1 << 36;
/// Maximum number of bytes that one packet can announce as already stored.
pub const MAX_STORED: u64 = (1 << 28) - 1;

/// Offset and length in one cell. The caller has checked [`MAX_OFFSET`] and
/// [`MAX_STORED`].
///
/// ```
/// use towpath_channel::packet::{MAX_OFFSET, MAX_STORED, pack_range, unpack_range};
///
/// let largest = (MAX_OFFSET - 1, MAX_STORED);
/// assert_eq!(unpack_range(pack_range(largest.0, largest.1)), largest);
/// ```
#[inline(always)]
pub const fn pack_range(offset: u64, len: u64) -> u64 {
    offset << 28 | len
}

/// The inverse of [`pack_range`].
///
/// ```
/// use towpath_channel::packet::{pack_range, unpack_range};
///
/// let (offset, len) = unpack_range(pack_range(4096, 100));
/// assert_eq!(offset..offset + len, 4096..4196);
/// ```
#[inline(always)]
pub const fn unpack_range(packed: u64) -> (u64, u64) {
    (packed >> 28, packed & MAX_STORED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_machine::Native;

    #[test]
    fn a_packet_is_one_line() {
        assert_eq!(size_of::<Slot<Native>>(), 64);
        assert_eq!(size_of::<Extra<Native>>(), 32);
        assert_eq!(size_of::<BlockHead<Native>>(), 64);
    }

    #[test]
    fn header_fields_do_not_overlap() {
        let h = Header::new(Form::Returned, 255, 16, 0xf_ffff).with_block(255).with_lap(0xffff);
        for state in [CLAIMED, READY, READY_BULK, SKIPPED] {
            let h = h.with_state(state);
            assert_eq!(
                (h.state(), h.form(), h.handler(), h.args(), h.block(), h.source(), h.lap()),
                (state, Some(Form::Returned), 255, 16, 255, 0xf_ffff, 0xffff)
            );
        }
        assert_eq!(Header::new(Form::Short, 0, 0, 0).0, 0);
        assert!(!Header(FREE).is_ready() && !Header(CLAIMED).is_ready() && !Header(SKIPPED).is_ready());
        assert!(Header(READY).is_ready() && Header(READY_BULK).is_ready());
    }

    #[test]
    fn a_source_code_names_each_of_4096_endpoints() {
        for (endpoint, generation) in [(0, 0), (255, 1), (256, 255), (1023, 256), (4095, 0x1_2345)] {
            let code = source_code(endpoint, generation);
            assert_eq!(Header::new(Form::Short, 0, 0, code).source(), code);
            assert_eq!(from_source_code(code), (endpoint, generation & 0xff));
        }
        assert_eq!(Header::claimed(4095, 0xffff).source(), 4095);
    }

    #[test]
    fn ranges_survive_packing() {
        for (o, l) in [(0, 0), (MAX_OFFSET - 1, MAX_STORED), (4096, 1 << 20)] {
            assert_eq!(unpack_range(pack_range(o, l)), (o, l));
        }
    }
}
