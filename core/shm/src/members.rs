//! Waiting for a world, an object or a process, and the changes among processes.
//!
//! No process writes anything for it: the observer looks at intervals, and asks the kernel for
//! deaths.

use std::thread;
use std::time::{Duration, Instant};

use towpath_machine::Object;

use crate::{Error, ParticipantId, Shared, World};

/// Intervals between two looks: the first, and the longest.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(5)];

/// Looks again and again until there is a result, for so long a time.
fn look_until<T>(time: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now().checked_add(time);
    let mut interval = LOOK_AGAIN[0];
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        let left = end.map_or(interval, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return None;
        }
        thread::sleep(interval.min(left));
        interval = (interval * 2).min(LOOK_AGAIN[1]);
    }
}

/// Change among the processes of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberChange {
    /// A process has entered.
    Joined {
        /// Rank of the process.
        rank: u32,
        /// Its pid, as it sees it itself.
        pid: u32,
    },
    /// A process has left in order.
    Left {
        /// Rank of the process.
        rank: u32,
    },
    /// A process has died.
    Died {
        /// Rank of the process.
        rank: u32,
    },
    /// A process has left or died, and its successor had come when the observer looked.
    Replaced {
        /// Rank of both.
        rank: u32,
    },
}

/// Observer of the processes of a world ([`World::members`]).
#[derive(Debug)]
pub struct WorldMembers {
    world: World,
    seen: Vec<Option<ParticipantId>>,
    /// Rank to look at first.
    next: usize,
}

impl WorldMembers {
    /// Returns the next change, if there was one; never waits.
    ///
    /// Those that are there when the observer first looks have joined. Asks the kernel for deaths.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use towpath::MemberChange;
    ///
    /// let mut members = world.members();
    /// while let Some(change) = members.try_next() {
    ///     match change {
    ///         MemberChange::Died { rank } => println!("rank {rank} has died"),
    ///         other => println!("{other:?}"),
    ///     }
    /// }
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn try_next(&mut self) -> Option<MemberChange> {
        self.world.check_deaths();
        (0..self.seen.len()).find_map(|_| {
            let rank = self.next as u32;
            let change = self.change_of(rank);
            // A rank may have more to tell: it is looked at again until it has not.
            if change.is_none() {
                self.next = (self.next + 1) % self.seen.len();
            }
            change
        })
    }

    /// Returns the next change, when there is one; gives up after that time.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use std::time::Duration;
    /// use towpath::MemberChange;
    ///
    /// let mut members = world.members();
    /// let change = members.next_timeout(Duration::from_secs(1));
    /// assert!(matches!(change, Some(MemberChange::Joined { rank: 0, .. }))); // this process
    /// assert_eq!(members.next_timeout(Duration::from_millis(1)), None);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn next_timeout(&mut self, time: Duration) -> Option<MemberChange> {
        look_until(time, || self.try_next())
    }

    fn change_of(&mut self, rank: u32) -> Option<MemberChange> {
        let now = self.world.participant(rank);
        let before = self.seen.get_mut(rank as usize)?;
        match (*before, now) {
            (Some(one), Some(other)) if one == other => None,
            (Some(_), Some(_)) => {
                *before = None;
                Some(MemberChange::Replaced { rank })
            }
            (Some(_), None) => {
                *before = None;
                let died = self.world.has_died(rank);
                Some(if died { MemberChange::Died { rank } } else { MemberChange::Left { rank } })
            }
            (None, Some(id)) => {
                // If it has gone meanwhile, the next look has it.
                let pid = self.world.pid_of(id)?;
                *before = now;
                Some(MemberChange::Joined { rank, pid })
            }
            (None, None) => None,
        }
    }
}

impl World {
    /// Makes an observer of the processes that join, leave and die.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// use towpath::MemberChange;
    ///
    /// let mut members = world.members();
    /// assert_eq!(members.try_next(), None);
    /// world.enter(Some(1))?;
    /// assert!(matches!(members.try_next(), Some(MemberChange::Joined { rank: 1, .. })));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn members(&self) -> WorldMembers {
        WorldMembers { world: self.clone(), seen: vec![None; self.size() as usize], next: 0 }
    }

    /// Waits until processes are there with all ranks; gives up after that time. Returns
    /// whether they are.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use std::time::Duration;
    ///
    /// assert!(!world.wait_for_all(Duration::from_millis(1)));
    /// let other = world.reopen()?; // usually another process
    /// other.enter(Some(1))?;
    /// assert!(world.wait_for_all(Duration::from_secs(1)));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn wait_for_all(&self, time: Duration) -> bool {
        let is_there = |rank| self.participant(rank).is_some_and(|id| self.is_alive(id));
        look_until(time, || (0..self.size()).all(is_there).then_some(())).is_some()
    }

    /// Opens a named world when there is one; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`World::open`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use towpath::{World, WorldError};
    ///
    /// let late = World::open_timeout("never-made", Duration::from_millis(1));
    /// assert!(matches!(late, Err(WorldError::NoSuchWorld { .. })));
    /// ```
    pub fn open_timeout(name: &str, time: Duration) -> Result<World, Error> {
        let open = || match World::open(name) {
            Err(Error::NoSuchWorld { .. }) => None,
            opened => Some(opened),
        };
        look_until(time, open).unwrap_or_else(|| World::open(name))
    }

    /// Opens the object of that name when it has been made; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`World::find`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use std::time::Duration;
    /// use towpath::{Event, WorldError};
    ///
    /// let late = world.find_timeout::<Event>("ready", Duration::from_millis(1));
    /// assert!(matches!(late, Err(WorldError::NoSuchObject { .. })));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn find_timeout<T: Object>(&self, name: &str, time: Duration) -> Result<Shared<T>, Error> {
        let find = || match self.find(name) {
            Err(Error::NoSuchObject { .. }) => None,
            found => Some(found),
        };
        look_until(time, find).unwrap_or_else(|| self.find(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorldSpec;

    const LONG: Duration = Duration::from_secs(60);

    fn world(processes: u32) -> World {
        let spec =
            WorldSpec { name: None, processes, area_bytes: 4096, object_bytes: 1 << 14, params: [0; 16] };
        World::create(&spec).unwrap()
    }

    #[test]
    fn members_come_go_and_are_replaced() {
        let world = world(2);
        let mut members = world.members();
        assert_eq!(members.try_next(), None);
        let [one, other] = [world.reopen().unwrap(), world.reopen().unwrap()];
        let pid = std::process::id();
        one.enter(Some(1)).unwrap();
        assert_eq!(members.try_next(), Some(MemberChange::Joined { rank: 1, pid }));
        assert_eq!(members.try_next(), None);
        one.leave().unwrap();
        assert_eq!(members.try_next(), Some(MemberChange::Left { rank: 1 }));
        one.enter(Some(1)).unwrap();
        other.enter(Some(0)).unwrap();
        let changes: Vec<_> = std::iter::from_fn(|| members.try_next()).collect();
        assert!(changes.contains(&MemberChange::Joined { rank: 0, pid }) && changes.len() == 2);
        one.leave().unwrap();
        one.enter(Some(1)).unwrap();
        let changes: Vec<_> = std::iter::from_fn(|| members.try_next()).collect();
        assert_eq!(changes, [MemberChange::Replaced { rank: 1 }, MemberChange::Joined { rank: 1, pid }]);
    }

    #[test]
    fn waiters_find_what_comes_later() {
        let world = world(2);
        world.enter(Some(0)).unwrap();
        let other = world.reopen().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                other.enter(Some(1)).unwrap();
                other.event("ready").unwrap().set();
            });
            let mut members = world.members();
            assert!(matches!(members.next_timeout(LONG), Some(MemberChange::Joined { rank: 0, .. })));
            assert!(matches!(members.next_timeout(LONG), Some(MemberChange::Joined { rank: 1, .. })));
            assert!(world.wait_for_all(LONG));
            world.find_timeout::<towpath_sync::robust::Event>("ready", LONG).unwrap().wait().unwrap();
        });
    }

    #[test]
    fn late_worlds_are_found() {
        let name = format!("late-{}", std::process::id());
        let made = thread::scope(|scope| {
            let maker = scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                let spec = WorldSpec {
                    name: Some(name.clone()),
                    processes: 1,
                    area_bytes: 4096,
                    object_bytes: 1 << 14,
                    params: [0; 16],
                };
                World::create(&spec).unwrap()
            });
            let found = World::open_timeout(&name, LONG).unwrap();
            assert_eq!(found.name(), Some(name.as_str()));
            maker.join().unwrap()
        });
        made.unlink().unwrap();
    }
}
