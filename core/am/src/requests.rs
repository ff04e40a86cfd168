//! Requests of an endpoint: short, medium and long ones.

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::outgoing::{Body, OnFull, Outgoing};
use crate::state::Domain;

impl<D: Domain> Endpoint<D> {
    /// Sends a request with arguments only. Waits for space if there is none, polling the
    /// bundle meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::NotInitialised`] (entry not mapped), [`Error::BadArgument`] (over 16 arguments),
    /// [`Error::InUse`] (from a handler). A destination that can't be reached is no error here: the
    /// message comes back to handler 0.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| assert_eq!(message.args(), [3, 4]));
    /// endpoint.request(0, 1, &[3, 4])?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline(always)]
    pub fn request(&self, index: usize, handler: u8, args: &[u32]) -> Result<(), Error> {
        self.core.request_short(index, handler, args, OnFull::Wait)
    }

    /// Sends a request with arguments only, if it can go out at once.
    ///
    /// # Errors
    ///
    /// [`Error::NotSent`] if it can't, with no effect; otherwise as [`Endpoint::request`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// match endpoint.try_request(0, 1, &[]) {
    ///     Ok(()) => {}
    ///     Err(towpath::Error::NotSent) => println!("no space now"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn try_request(&self, index: usize, handler: u8, args: &[u32]) -> Result<(), Error> {
        self.core.request_short(index, handler, args, OnFull::GiveUp)
    }

    /// Sends a request with a payload for the handler: at most a block
    /// ([`WorldConfig::block_size`](crate::WorldConfig::block_size)) long.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::request`], and [`Error::BadArgument`] if the payload is too long.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| assert_eq!(message.bytes(), b"a line"));
    /// endpoint.request_medium(0, 1, &[], b"a line")?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn request_medium(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
    ) -> Result<(), Error> {
        let body = Body::Medium(payload);
        self.core.request_to(index, Outgoing::request(handler, args, body, OnFull::Wait))
    }

    /// Sends a request with a payload for the handler, if it can go out at once.
    ///
    /// # Errors
    ///
    /// [`Error::NotSent`] if it can't, with no effect; otherwise as [`Endpoint::request_medium`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # endpoint.set_handler(1, |_| ());
    /// while endpoint.try_request_medium(0, 1, &[], b"a line").is_err() {
    ///     endpoint.poll(); // or do other work
    /// }
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn try_request_medium(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
    ) -> Result<(), Error> {
        let body = Body::Medium(payload);
        self.core.request_to(index, Outgoing::request(handler, args, body, OnFull::GiveUp))
    }

    /// Stores `payload` at `offset` of the destination's segment, then runs the handler
    /// there. May deliver a reply meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::request`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::with_private_segment(&world, 4096)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     let mut bytes = [0; 4];
    ///     message.segment().read(100, &mut bytes);
    ///     assert_eq!(bytes, *b"data");
    /// });
    /// endpoint.request_long(0, 1, &[], b"data", 100)?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn request_long(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: u64,
    ) -> Result<(), Error> {
        let body = Body::Long { payload, offset };
        self.core.request_to(index, Outgoing::request(handler, args, body, OnFull::Wait))
    }

    /// Stores and runs a handler as [`Endpoint::request_long`], if it can go out at once.
    /// The source may be reused on return all the same.
    ///
    /// # Errors
    ///
    /// [`Error::NotSent`] if it can't, with no effect but that bytes may have been stored in a
    /// shared segment; otherwise as [`Endpoint::request`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::with_private_segment(&world, 4096)?;
    /// # endpoint.map_world()?;
    /// # endpoint.set_handler(1, |_| ());
    /// while endpoint.request_long_async(0, 1, &[], b"data", 0).is_err() {
    ///     endpoint.poll(); // or do other work
    /// }
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn request_long_async(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: u64,
    ) -> Result<(), Error> {
        let body = Body::Long { payload, offset };
        self.core.request_to(index, Outgoing::request(handler, args, body, OnFull::GiveUp))
    }
}
