//! Ranks of other hosts, as the gateway represents them: participants and proxies.
//!
//! Changes of a rank are applied in their order. Its leaving and the closing of its endpoints wait
//! until its messages are placed. Its death does not, but for that of the last rank that could
//! place replies which wait: without them a request that was handled would stay open.

use std::collections::VecDeque;

use towpath_am::packet::{from_source_code, source_code};
use towpath_am::path::Failure;
use towpath_am::{ForwardedMessage, Name, Proxy};
use towpath_shm::World;

use crate::Error;
use crate::hosts::{Hosts, index_of};

/// Change of a remote rank that is to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteChange {
    Came,
    Left,
    Opened(Name),
    Closed(Name),
    /// Death, untold while replies wait that this rank alone can place.
    Died,
}

/// Rank of another host.
#[derive(Debug)]
struct RemoteRank {
    world: World,
    is_present: bool,
    changes: VecDeque<RemoteChange>,
}

/// Ranks of other hosts.
#[derive(Debug)]
pub struct RemoteRanks {
    /// Host of each rank; `None`: it runs here.
    ranks: Vec<Option<RemoteRank>>,
    /// Proxies by place in the directory, with their ranks.
    endpoints: Vec<Option<(Proxy, u32)>>,
    /// Endpoints that are to be opened.
    opening: Vec<Name>,
}

/// Outcome of placing a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// Placed, with this ticket.
    Placed(u64),
    /// No space, or its sender's proxy is about to be opened: to be tried again.
    Later,
    /// No sender is left that could place it.
    NoSender,
    /// The receiver is gone, or no sender can reach it.
    NoReceiver,
}

impl RemoteRanks {
    /// Gets ready to enter the world for each rank of another host that comes.
    pub fn new(world: &World, hosts: &Hosts, endpoints: u32) -> Result<RemoteRanks, Error> {
        let get_ready = |rank| {
            if world.is_local(rank) {
                return Ok(None);
            }
            let world = world.reopen()?;
            Ok(Some(RemoteRank { world, is_present: false, changes: VecDeque::new() }))
        };
        let ranks = (0..hosts.size()).map(get_ready).collect::<Result<_, towpath_shm::Error>>()?;
        let endpoints = (0..endpoints).map(|_| None).collect();
        Ok(RemoteRanks { ranks, endpoints, opening: Vec::new() })
    }

    /// Proxies that are open.
    pub fn proxies(&mut self) -> impl Iterator<Item = &mut Proxy> {
        self.endpoints.iter_mut().flatten().map(|(proxy, _)| proxy)
    }

    /// The proxy of an endpoint, if it is open under this name.
    pub fn proxy(&mut self, name: Name) -> Option<&mut Proxy> {
        match self.endpoints.get_mut(usize::from(index_of(name))) {
            Some(Some((proxy, _))) if proxy.name() == name => Some(proxy),
            _ => None,
        }
    }

    /// Places a message in a local queue, in its sender's name.
    ///
    /// One whose sender is gone is placed by any other proxy.
    pub fn place(&self, to: Name, message: &ForwardedMessage<'_>) -> Placing {
        let (endpoint, _) = from_source_code(message.source);
        let is_source = |name: Name| code_of(name) == message.source;
        let source = self.endpoints.get(usize::from(endpoint)).and_then(Option::as_ref);
        let carrier = match source.map(|(proxy, _)| proxy) {
            Some(proxy) if is_source(proxy.name()) => Some(proxy),
            _ if self.opening.iter().any(|name| is_source(*name)) => return Placing::Later,
            _ => self.endpoints.iter().flatten().map(|(proxy, _)| proxy).next(),
        };
        match carrier.map(|proxy| proxy.put(to, message)) {
            None => Placing::NoSender,
            Some(Ok(ticket)) => Placing::Placed(ticket),
            Some(Err(Failure::NotSent)) => Placing::Later,
            Some(Err(Failure::Gone)) => Placing::NoReceiver,
        }
    }

    /// Adds a change of a rank to those that are to be applied.
    pub fn change(&mut self, rank: u32, change: RemoteChange) {
        if let Some(Some(rank)) = self.ranks.get_mut(rank as usize) {
            rank.changes.push_back(change);
            if let RemoteChange::Opened(name) = change {
                self.opening.push(name);
            }
        }
    }

    /// Returns whether changes wait.
    pub fn has_changes(&self) -> bool {
        self.ranks.iter().flatten().any(|rank| !rank.changes.is_empty())
    }

    /// Returns whether a rank's last process died, and is counted so.
    pub fn is_dead(&self, rank: u32) -> bool {
        let rank_of_other = self.ranks.get(rank as usize).and_then(Option::as_ref);
        rank_of_other.is_none_or(|known| match known.changes.back() {
            None => known.world.has_died(rank),
            last => last == Some(&RemoteChange::Died),
        })
    }

    /// The rank of an endpoint that is open or to be opened.
    pub fn rank_of(&self, name: Name) -> Option<u32> {
        let open = self.endpoints.get(usize::from(index_of(name))).and_then(Option::as_ref);
        let open = open.filter(|(proxy, _)| proxy.name() == name).map(|&(_, rank)| rank);
        open.or_else(|| {
            let mut ranks = self.ranks.iter().zip(0..);
            let opens = |rank: &RemoteRank| rank.changes.contains(&RemoteChange::Opened(name));
            ranks.find_map(|(rank, number)| rank.as_ref().is_some_and(opens).then_some(number))
        })
    }

    /// Applies the changes that can be applied. `waits`: whether messages of the
    /// endpoint with this source code wait to be placed; `replies_wait`: whether any replies do.
    /// Returns whether any was.
    pub fn apply(&mut self, waits: impl Fn(u32) -> bool, replies_wait: bool) -> bool {
        let mut any = false;
        for number in 0..self.ranks.len() {
            while let Some(rank) = &mut self.ranks[number]
                && let Some(&change) = rank.changes.front()
            {
                let is_last = rank.changes.len() == 1;
                if !self.apply_one(number as u32, change, is_last, &waits, replies_wait) {
                    break;
                }
                if let Some(rank) = &mut self.ranks[number] {
                    rank.changes.pop_front();
                }
                any = true;
            }
        }
        any
    }

    fn apply_one(
        &mut self,
        number: u32,
        change: RemoteChange,
        is_last: bool,
        waits: &impl Fn(u32) -> bool,
        replies_wait: bool,
    ) -> bool {
        let Some(Some(rank)) = self.ranks.get_mut(number as usize) else { return true };
        match change {
            RemoteChange::Died => return self.try_to_die(number, replies_wait),
            RemoteChange::Came => {
                if !rank.is_present {
                    // It has left, or is counted as dead.
                    let _ = rank.world.leave();
                    rank.is_present = enter(&rank.world, number).is_ok();
                }
            }
            RemoteChange::Opened(name) => {
                let place = &mut self.endpoints[usize::from(index_of(name))];
                // The last incarnation's end has been told, or is this.
                *place = None;
                match Proxy::open(&rank.world, name) {
                    Ok(None) => return false,
                    Ok(Some(proxy)) => *place = Some((proxy, number)),
                    // The rank is gone, or another process has it: nothing to represent.
                    Err(_) => {}
                }
                self.opening.retain(|opening| *opening != name);
            }
            RemoteChange::Closed(name) => {
                if is_last && waits(code_of(name)) {
                    return false;
                }
                let place = &mut self.endpoints[usize::from(index_of(name))];
                if place.as_ref().is_some_and(|(proxy, _)| proxy.name() == name) {
                    *place = None;
                }
            }
            RemoteChange::Left => {
                let has_waiting =
                    |(proxy, owner): &(Proxy, u32)| *owner == number && waits(code_of(proxy.name()));
                if is_last && self.endpoints.iter().flatten().any(has_waiting) {
                    return false;
                }
                self.close_all(number);
                if let Some(Some(rank)) = self.ranks.get_mut(number as usize) {
                    if std::mem::replace(&mut rank.is_present, false) {
                        let _ = rank.world.leave();
                    } else {
                        // It has not come, and is not waited for any more.
                        rank.world.process_ended(number, std::process::id(), false);
                    }
                }
            }
        }
        true
    }

    /// Notes the death of a rank, at once unless replies wait that it alone can place.
    pub fn die(&mut self, number: u32, replies_wait: bool) {
        let Some(Some(rank)) = self.ranks.get_mut(number as usize) else { return };
        for change in std::mem::take(&mut rank.changes) {
            if let RemoteChange::Opened(name) = change {
                self.opening.retain(|opening| *opening != name);
            }
        }
        if !self.try_to_die(number, replies_wait)
            && let Some(Some(rank)) = self.ranks.get_mut(number as usize)
        {
            rank.changes.push_back(RemoteChange::Died);
        }
    }

    /// Returns whether all proxies are those of this rank.
    fn places_alone(&self, number: u32) -> bool {
        let mut owners = self.endpoints.iter().flatten().map(|&(_, owner)| owner).peekable();
        owners.peek().is_some() && owners.all(|owner| owner == number)
    }

    /// Counts a rank as dead, unless replies wait that it alone can place.
    ///
    /// Returns whether it did.
    fn try_to_die(&mut self, number: u32, replies_wait: bool) -> bool {
        if replies_wait && self.places_alone(number) {
            return false;
        }
        let Some(Some(rank)) = self.ranks.get_mut(number as usize) else { return true };
        if std::mem::replace(&mut rank.is_present, false) {
            rank.world.fail();
        } else {
            // It failed before it had come, or after it had left: that counts, too.
            rank.world.process_ended(number, std::process::id(), true);
        }
        // After that: messages come back as unreachable.
        self.close_all(number);
        true
    }

    /// Closes the proxies of a rank.
    fn close_all(&mut self, rank: u32) {
        for place in &mut self.endpoints {
            if place.as_ref().is_some_and(|(_, owner)| *owner == rank) {
                *place = None;
            }
        }
    }

    /// Says that the gateway will sleep. `false` if it must not.
    pub fn arm(&mut self) -> bool {
        let mut may_sleep = true;
        for proxy in self.proxies() {
            if !proxy.arm() {
                // A sender stands in the middle of a send, unless a message has just come.
                proxy.look_after(false);
                may_sleep = false;
            }
        }
        may_sleep
    }

    /// Takes that back.
    pub fn disarm(&mut self) {
        self.proxies().for_each(|proxy| proxy.disarm());
    }

    /// Notes that the gateway's thread sleeps, or runs.
    pub fn show_asleep(&self, asleep: bool) {
        if let Some(rank) = self.ranks.iter().flatten().find(|rank| rank.is_present) {
            rank.world.surroundings().asleep(asleep);
        }
    }
}

/// Source code of an endpoint.
pub fn code_of(name: Name) -> u32 {
    source_code(index_of(name), name.to_bits() >> 16)
}

/// Enters a world for a rank of another host. The gateway is no runner that would need
/// a core.
fn enter(world: &World, rank: u32) -> Result<(), towpath_shm::Error> {
    world.enter(Some(rank))?;
    world.surroundings().asleep(true);
    Ok(())
}
