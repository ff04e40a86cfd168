//! Translation tables: entries that lead to endpoints and the tags that messages to them
//! show.
//!
//! A destination is attached once, when it is first mapped or answered, and kept: [`Core::peer`].

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::Processor;

use towpath_channel::answer_line::AnswerEnd;
use towpath_channel::stream::StreamSender;

use crate::directory::Directory;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::message::Direction;
use crate::name::{Name, Tag};
use crate::offer_choice::OffersToPeer;
use crate::queue::Sender;
use crate::reply_predictor::ReplyPredictor;
use crate::state::{Core, Domain, Mapping, PeerEndpoint, PeerQueue, Talk};
use crate::streams::IN_A_ROW;

/// Maximum number of ranks after each of which [`Endpoint::map_world`] asks the kernel.
const LARGE: u32 = 64;
/// First pause between two looks for an endpoint, and the longest in a world that is not
/// large, in nanoseconds.
const FIRST_LOOK: u64 = 200_000;

impl<D: Domain> Endpoint<D> {
    /// Maps entry `index` of the translation table to an endpoint and the tag that its
    /// messages shall show. Replaces what was there.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if there is no endpoint of that name (any more), or `index` is above
    /// 65,535.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::Tag;
    ///
    /// let server = endpoint.name_of_rank(0).expect("it is open");
    /// endpoint.map(3, server, Tag::ALL)?;
    /// assert_eq!(endpoint.mapping(3), Some((server, Tag::ALL)));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn map(&self, index: usize, name: Name, tag: Tag) -> Result<(), Error> {
        if index > usize::from(u16::MAX) {
            return Err(Error::BadArgument(format!("translation table index {index} is above 65535")));
        }
        let peer = self.core.peer(name)?;
        if peer.gone.get() || !self.core.is_here(&peer) {
            return Err(no_such_endpoint());
        }
        let mut table = self.core.tables.translations.borrow_mut();
        if table.len() <= index {
            table.resize_with(index + 1, || None);
        }
        table[index] = Some(Mapping { peer, name, tag });
        Ok(())
    }

    /// Unmaps entry `index`.
    ///
    /// # Errors
    ///
    /// [`Error::NotInitialised`] if it was not mapped.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.unmap(0)?;
    /// assert!(endpoint.request(0, 1, &[]).is_err(), "entry 0 leads nowhere");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn unmap(&self, index: usize) -> Result<(), Error> {
        match self.core.tables.translations.borrow_mut().get_mut(index).and_then(Option::take) {
            Some(_) => Ok(()),
            None => Err(Error::NotInitialised(format!("translation table entry {index} leads nowhere"))),
        }
    }

    /// Returns the endpoint and the tag that entry `index` leads to.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.mapping(0), None);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn mapping(&self, index: usize) -> Option<(Name, Tag)> {
        self.core.tables.translations.borrow().get(index)?.as_ref().map(|m| (m.name, m.tag))
    }

    /// Returns the name of the first open endpoint of the process with this rank, if it
    /// has one by now.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.name_of_rank(0), Some(endpoint.name()));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn name_of_rank(&self, rank: u32) -> Option<Name> {
        self.core.domain.name_of_rank(rank)
    }

    /// Maps entry `r` of the translation table to the first endpoint of rank `r`, for
    /// every rank of the world, with [`Tag::ALL`]. Waits until they exist. A rank that is dead, or
    /// has left, is not waited for: its entry stays unmapped.
    ///
    /// # Errors
    ///
    /// [`Error::World`] with [`MemberDied`](towpath_shm::Error::MemberDied) if a rank is dead,
    /// [`Error::Resource`] if one has left or ended in good order; all others are mapped then.
    /// [`Error::Resource`] if a living one has no endpoint after 30 seconds.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// endpoint.map_world()?;
    /// endpoint.request(0, 1, &[])?; // to rank 0
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn map_world(&self) -> Result<(), Error> {
        let domain = &self.core.domain;
        let start = domain.cpu().now();
        let size = domain.size();
        let (mut dead, mut left) = (None, None);
        // Where many wait for many, to ask the kernel after each and to look often would keep those
        // from starting that are waited for: only noted deaths count, and looks become rarer.
        let large = size > LARGE;
        let longest = if large { FIRST_LOOK * u64::from(size / LARGE).pow(2) } else { FIRST_LOOK };
        let mut pause = FIRST_LOOK;
        for rank in 0..size {
            loop {
                let name = if large { domain.name_unless_dead(rank) } else { domain.name_of_rank(rank) };
                // One that has been closed since is looked for again.
                match name.map(|name| self.map(rank as usize, name, Tag::ALL)) {
                    Some(Ok(())) => break,
                    Some(Err(Error::BadArgument(_))) | None => {}
                    Some(Err(error)) => return Err(error),
                }
                domain.check_deaths();
                if domain.has_died(rank) {
                    dead = dead.or(Some(rank));
                    break;
                }
                if domain.has_left(rank) {
                    left = left.or(Some(rank));
                    break;
                }
                if domain.cpu().now() - start >= 30_000_000_000 {
                    return Err(Error::Resource(format!(
                        "rank {rank} has no endpoint after 30 seconds: did it start, and does it create one?"
                    )));
                }
                domain.pause(pause);
                pause = (2 * pause).min(longest);
            }
        }
        match (dead, left) {
            (Some(rank), _) => Err(towpath_shm::Error::MemberDied { rank }.into()),
            (None, Some(rank)) => Err(Error::Resource(format!(
                "rank {rank} has no endpoint, and has ended or left the world; all others are mapped"
            ))),
            (None, None) => Ok(()),
        }
    }
}

fn no_such_endpoint() -> Error {
    Error::BadArgument("there is no endpoint of that name (any more); ask for its name again".into())
}

impl<D: Domain> Core<D> {
    /// Attaches the destination of that name.
    pub(crate) fn peer(&self, name: Name) -> Result<Rc<PeerEndpoint<D>>, Error> {
        let known = self.tables.peers.borrow().get(usize::from(name.endpoint)).and_then(Clone::clone);
        if let Some(peer) = &known
            && peer.name == name
        {
            return Ok(peer.clone());
        }
        let (entry, owner) = match self.domain.opened(name.endpoint) {
            Some((entry, owner, generation)) if generation == name.generation => (entry, owner),
            _ => return Err(no_such_endpoint()),
        };
        let link = |direction| -> Result<PeerQueue<D>, Error> {
            let side = self.domain.side(name.endpoint, direction)?;
            let sender = Sender::new(self.name.endpoint, self.name.generation as u16, name.generation);
            Ok(PeerQueue { side, sender: RefCell::new(sender) })
        };
        let line = self.domain.answer_line(self.name.endpoint, name.endpoint);
        let of = |name: Name| (name.endpoint, name.generation);
        let (me, other) = (of(self.name), of(name));
        let peer = Rc::new(PeerEndpoint {
            name,
            entry,
            participant: owner,
            request: link(Direction::Request)?,
            reply: link(Direction::Reply)?,
            gone: Cell::new(false),
            predictor: Cell::new(ReplyPredictor::NONE),
            talk: Talk {
                end: AnswerEnd::new(line, me, other),
                times: Cell::new(0),
                reached: Default::default(),
            },
            stream: StreamSender::default(),
            until_stream: Cell::new(IN_A_ROW),
            offers: OffersToPeer::default(),
        });
        if let Some(predecessor) = known {
            // Before this endpoint talks to the successor in the same line.
            self.lose(&predecessor);
        }
        self.tables.peers.borrow_mut()[usize::from(name.endpoint)] = Some(peer.clone());
        Ok(peer)
    }
}
