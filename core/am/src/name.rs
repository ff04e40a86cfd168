//! Names and tags.

use crate::packet::source_code;

/// Name of an endpoint: opaque, to be compared and passed on. A later endpoint in the
/// same place has another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pub(crate) endpoint: u16,
    pub(crate) generation: u64,
}

impl Name {
    /// Returns it as a number, to pass it on in arguments or by other means.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// let bits: u64 = endpoint.name().to_bits();
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.generation << 16 | self.endpoint as u64
    }

    /// Returns the name with this number ([`Name::to_bits`]). Any number gives a name;
    /// mapping it fails if there is no such endpoint.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// let name = endpoint.name();
    /// assert_eq!(towpath::Name::from_bits(name.to_bits()), name);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub const fn from_bits(bits: u64) -> Name {
        Name { endpoint: bits as u16, generation: bits >> 16 }
    }

    /// Returns the code of the incarnation, as headers have it.
    #[inline]
    pub(crate) const fn code(self) -> u32 {
        source_code(self.endpoint, self.generation)
    }
}

/// Tag: a key that a message shows at its destination. An endpoint accepts a message if
/// its own tag is [`Tag::ALL`] or equals the message's, and never if its own tag is [`Tag::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);

impl Tag {
    /// Tag of an endpoint that accepts no message.
    pub const NONE: Tag = Tag(0);
    /// Tag of an endpoint that accepts every message.
    pub const ALL: Tag = Tag(u64::MAX);

    /// Returns whether an endpoint with this tag accepts a message with that one.
    ///
    /// ```
    /// use towpath::Tag;
    ///
    /// assert!(Tag::ALL.accepts(Tag(7)) && Tag(7).accepts(Tag(7)));
    /// assert!(!Tag(8).accepts(Tag(7)) && !Tag::NONE.accepts(Tag(7)));
    /// ```
    #[inline]
    pub const fn accepts(self, message: Tag) -> bool {
        self.0 == u64::MAX || self.0 != 0 && self.0 == message.0
    }
}
