//! Fair lock between processes: a queue in a file, each of whose places is a locked byte.
//!
//! It is a queue lock in the manner of Craig and of Landin and Hagersten (each waiter waits for
//! the one before it), with places that may be given up, in which the kernel is the memory that
//! waiters watch: a waiter asks for a lock on the byte of the place before it, and sleeps until
//! that place's process unlocks it or is gone.
//!
//! *Entering*: at the desk (byte 0 locked, for a few system calls) a process takes the next ticket,
//! locks its byte, and writes its record. *Waiting*: a place for writing is blocked by all earlier
//! places, one for reading by the earlier ones for writing. At the desk the waiter looks for the
//! last place that blocks it and whose byte is locked, and then waits for that byte; again, until
//! none is left. Then it writes down that it holds the lock, with the next token. *Leaving*: at the
//! desk the record is cleared and the byte unlocked; the last one removes the file.
//!
//! **Order**: that of the tickets. **Wake-ups**: a place that is left wakes the process behind it;
//! all readers behind a writer. **Memory**: 4 KiB, and 512 bytes for each place that is used at a
//! time.
//!
//! | a process dies | others see |
//! | --- | --- |
//! | at the desk | its lock on byte 0 goes, and each record is the old or the new one |
//! | with a byte, and no record yet | nothing: no waiter looks at a ticket without a record |
//! | as a waiter | the next one passes over a record whose byte is not locked |
//! | as a holder | the byte is unlocked when the last process with the [`LockPlace::lifeline`] is gone; the next holder is told |
//! | between clearing its record and unlocking its byte | it has left; waiters go on when the byte is free |
//! | as the last user | the file stays, until the next user or `towpath clean` |
//!
//! **Stopped** processes keep their places, also those of waiters, and the desk.
//!
//! **Tokens** are larger than all before in the file, and not smaller than the host's clock
//! (nanoseconds since 1970): so they also increase when the file was removed in between, as long as
//! the clock was not set back meanwhile. A file whose last token is ahead of the clock stays.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::unlink;
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use crate::Error;
use crate::file::{
    ByteRight, DESK, byte_of, has_name, is_locked, lock_byte, open_file, open_second, path_of,
};
use crate::record::{HEADER, LockAccess, LockHeader, MOST_PLACES, PlaceRecord, PlaceState, RECORD};

/// Time for which a waiter that gives up tries to clear its record.
const PATIENCE: Duration = Duration::from_millis(200);
/// Pause between two attempts.
const MOMENT: Duration = Duration::from_millis(2);

/// Lock that was given to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockGrant {
    /// Its fencing token.
    pub token: u64,
    /// True if an earlier holder for writing died, and its work was not repaired since.
    pub previous_owner_died: bool,
}

/// State in which a holder for writing leaves the data that the lock protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Consistent: the next holder is told of no death.
    Consistent,
    /// No better and no worse than before.
    Unchanged,
    /// Perhaps inconsistent: the next holder is told that its owner died.
    Died,
}

/// A lock's file, as one process has opened it.
#[derive(Debug)]
pub(crate) struct LockFile {
    pub path: PathBuf,
    desk: OwnedFd,
    /// Lock between the threads of this process, for all of which the desk's byte is one.
    turn: Mutex<()>,
}

/// Right to change the table, until it is dropped.
#[derive(Debug)]
pub(crate) struct AtDesk<'a> {
    file: &'a LockFile,
    _turn: MutexGuard<'a, ()>,
}

/// Table of a lock.
#[derive(Debug)]
pub(crate) struct PlaceTable {
    pub header: LockHeader,
    /// Places that are in use, with their indices, by ticket.
    pub places: Vec<(usize, PlaceRecord)>,
    /// First index that is free.
    free: usize,
}

impl LockFile {
    pub fn new(path: PathBuf, desk: OwnedFd) -> LockFile {
        LockFile { path, desk, turn: Mutex::new(()) }
    }

    /// Goes to the desk, when it is free. `None`: the file was removed before.
    pub fn at_desk(&self) -> Result<Option<AtDesk<'_>>, Error> {
        self.to_desk(true)
    }

    /// Goes to the desk. [`Errno::AGAIN`] if it is not free, unless the caller waits.
    fn to_desk(&self, waits: bool) -> Result<Option<AtDesk<'_>>, Error> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        lock_byte(&self.desk, DESK, ByteRight::Exclusive, waits)
            .map_err(Error::file("locking", &self.path))?;
        let desk = AtDesk { file: self, _turn: turn };
        Ok(has_name(self.desk.as_fd(), &self.path)?.then_some(desk))
    }

    /// Reads the table.
    pub fn read(&self) -> Result<PlaceTable, Error> {
        let mut bytes = Vec::new();
        let mut part = vec![0; 1 << 16];
        while bytes.len() < HEADER + MOST_PLACES * RECORD {
            let count = retry_on_intr(|| pread(&self.desk, &mut part, bytes.len() as u64))
                .map_err(Error::file("reading", &self.path))?;
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&part[..count]);
        }
        let header = LockHeader::decode(&bytes[..bytes.len().min(HEADER)]);
        if header.is_none() && !bytes.is_empty() {
            let why = "it does not begin like a lock of Towpath".to_owned();
            return Err(Error::NotTrusted { path: self.path.clone(), why });
        }
        let records = bytes.get(HEADER..).unwrap_or_default().chunks(RECORD).map(PlaceRecord::decode);
        let all: Vec<Option<PlaceRecord>> = records.collect();
        let free = all.iter().position(Option::is_none).unwrap_or(all.len());
        let mut places: Vec<(usize, PlaceRecord)> =
            all.into_iter().enumerate().filter_map(|(index, record)| Some((index, record?))).collect();
        places.sort_by_key(|(_, record)| record.ticket);
        Ok(PlaceTable { header: header.unwrap_or_default(), places, free })
    }

    /// Returns whether a place is still in use: its byte is locked.
    pub fn lives(&self, record: &PlaceRecord) -> Result<bool, Error> {
        is_locked(&self.desk, byte_of(record.ticket)).map_err(Error::file("locking", &self.path))
    }
}

impl AtDesk<'_> {
    fn write(&self, bytes: &[u8], at: usize) -> Result<(), Error> {
        let written = retry_on_intr(|| pwrite(&self.file.desk, bytes, at as u64));
        match written.map_err(Error::file("writing", &self.file.path))? {
            count if count == bytes.len() => Ok(()),
            _ => Err(Error::file("writing", &self.file.path)(Errno::NOSPC)),
        }
    }

    fn write_header(&self, header: &LockHeader) -> Result<(), Error> {
        self.write(&header.encode(), 0)
    }

    fn write_place(&self, index: usize, record: &PlaceRecord) -> Result<(), Error> {
        self.write(&record.encode(), HEADER + index * RECORD)
    }

    /// Clears the record of a place.
    fn clear(&self, index: usize) -> Result<(), Error> {
        self.write(&[0; RECORD], HEADER + index * RECORD)
    }

    /// Clears the record of a place whose process is dead.
    fn bury(&self, header: &mut LockHeader, index: usize, record: &PlaceRecord) -> Result<(), Error> {
        if record.state == PlaceState::Holds && record.access == LockAccess::Exclusive && !header.inconsistent
        {
            // First, so that a survivor which dies in between loses nothing.
            header.inconsistent = true;
            self.write_header(header)?;
        }
        self.clear(index)
    }

    /// Removes the file if no process uses it. Returns whether it is gone.
    ///
    /// `forgets`: also if the next holder is to be told of a death, or its token would not be
    /// larger than the last one.
    pub fn remove_if_unused(&self, table: &mut PlaceTable, forgets: bool) -> Result<bool, Error> {
        for (index, record) in &table.places {
            if self.file.lives(record)? {
                return Ok(false);
            }
            self.bury(&mut table.header, *index, record)?;
        }
        table.places.clear();
        let keeps = table.header.inconsistent || table.header.token >= now();
        if keeps && !forgets {
            return Ok(false);
        }
        unlink(&self.file.path).map_err(Error::file("removing", &self.file.path))?;
        Ok(true)
    }
}

impl Drop for AtDesk<'_> {
    fn drop(&mut self) {
        // A byte that this process has locked can be unlocked.
        let _ = lock_byte(&self.file.desk, DESK, ByteRight::None, false);
    }
}

/// Place in the queue of a lock: of a waiter, then of a holder.
///
/// Dropped without [`LockPlace::leave`], a waiter gives up; a holder leaves as one that died.
#[derive(Debug)]
pub struct LockPlace {
    file: LockFile,
    /// Description that has the place's byte locked.
    lifeline: OwnedFd,
    index: usize,
    record: Mutex<Option<PlaceRecord>>,
}

impl LockPlace {
    /// Takes the next place of the queue of the lock of that name.
    ///
    /// The name may be any text. The lock belongs to this user: that of another user with the
    /// name is another one. `description`: for a survey of the lock's users.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::NotTrusted`] if the file's name is taken; [`Error::File`],
    /// as where the file system is full; [`Error::Full`].
    ///
    /// ```
    /// use towpath_lockfile::{LockAccess, LockPlace, Leaving};
    ///
    /// let place = LockPlace::enter("table 7", LockAccess::Exclusive, "an example")?;
    /// let grant = place.wait()?;
    /// println!("held, with token {}", grant.token);
    /// place.leave(Leaving::Consistent)?;
    /// # Ok::<(), towpath_lockfile::Error>(())
    /// ```
    pub fn enter(name: &str, access: LockAccess, description: &str) -> Result<LockPlace, Error> {
        let path = path_of(name)?;
        loop {
            let Some(desk) = open_file(&path, true)? else { continue };
            let file = LockFile::new(path.clone(), desk);
            // It may have been removed meanwhile: then there is a new one to be made.
            if let Some(entered) = try_enter(&file, name, access, description)? {
                let (lifeline, index, record) = entered;
                return Ok(LockPlace { file, lifeline, index, record: Mutex::new(Some(record)) });
            }
        }
    }

    /// Takes the lock if no place before this one blocks it.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn try_take(&self) -> Result<Option<LockGrant>, Error> {
        self.take().map(Result::ok)
    }

    /// Waits until the lock can be taken, and takes it.
    ///
    /// # Errors
    ///
    /// [`Error::File`]; [`Error::Withdrawn`] if another thread has left the place meanwhile.
    pub fn wait(&self) -> Result<LockGrant, Error> {
        loop {
            let blocker = match self.take()? {
                Ok(grant) => return Ok(grant),
                Err(blocker) => byte_of(blocker),
            };
            // The description of the place's own byte: children do not have it before the grant.
            let wait = lock_byte(&self.lifeline, blocker, ByteRight::Shared, true);
            wait.and_then(|()| lock_byte(&self.lifeline, blocker, ByteRight::None, false))
                .map_err(Error::file("waiting for a lock on", &self.file.path))?;
        }
    }

    /// Takes the lock, or returns the ticket of a place that blocks it.
    fn take(&self) -> Result<Result<LockGrant, u64>, Error> {
        let mut own = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let record = own.as_mut().ok_or(Error::Withdrawn)?;
        let desk = self.at_desk()?;
        let PlaceTable { mut header, places, .. } = self.file.read()?;
        if record.state == PlaceState::Holds {
            return Ok(Ok(LockGrant { token: record.token, previous_owner_died: header.inconsistent }));
        }
        let blocks = |other: &PlaceRecord| {
            other.ticket < record.ticket
                && (record.access == LockAccess::Exclusive || other.access == LockAccess::Exclusive)
        };
        for (index, other) in places.iter().rev().filter(|(_, other)| blocks(other)) {
            if self.file.lives(other)? {
                return Ok(Err(other.ticket));
            }
            desk.bury(&mut header, *index, other)?;
        }
        let now = now();
        header.token = header.token.saturating_add(1).max(now);
        desk.write_header(&header)?;
        let held =
            PlaceRecord { state: PlaceState::Holds, token: header.token, since: now, ..record.clone() };
        desk.write_place(self.index, &held)?;
        *record = held;
        Ok(Ok(LockGrant { token: header.token, previous_owner_died: header.inconsistent }))
    }

    /// Names another process, for people, instead of the one that has entered.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn name_process(&self, process: u32) -> Result<(), Error> {
        let mut own = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let record = own.as_mut().ok_or(Error::Withdrawn)?;
        record.process = process;
        self.at_desk()?.write_place(self.index, record)
    }

    /// Leaves the place: gives the lock on, or waits no more.
    ///
    /// Children that have the lifeline keep nothing. `outcome` is that of a holder for writing;
    /// others' counts for nothing.
    ///
    /// A thread that is in [`LockPlace::wait`] may be left behind: it gets no lock any more.
    ///
    /// # Errors
    ///
    /// [`Error::File`]: then the lock goes on when the processes that have the lifeline are gone.
    pub fn leave(&self, outcome: Leaving) -> Result<(), Error> {
        let mut own = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        self.leave_as(&mut own, outcome)
    }

    /// Leaves the place, unless the lock was given to it meanwhile.
    ///
    /// Takes little time, also where a process is stopped at the desk: survivors clear the record
    /// then.
    ///
    /// # Errors
    ///
    /// As [`LockPlace::leave`].
    pub fn give_up(&self) -> Result<Option<LockGrant>, Error> {
        let until = Instant::now() + PATIENCE;
        loop {
            // Another thread that has the record may wait at the desk.
            if let Ok(mut own) = self.record.try_lock()
                && let Some(desk) = self.desk_now()?
            {
                if let Some(record) = own.as_ref().filter(|record| record.state == PlaceState::Holds) {
                    let previous_owner_died = self.file.read()?.header.inconsistent;
                    return Ok(Some(LockGrant { token: record.token, previous_owner_died }));
                }
                self.leave_from(desk, &mut own, Leaving::Unchanged)?;
                return Ok(None);
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(MOMENT);
        }
    }

    fn leave_as(&self, own: &mut Option<PlaceRecord>, outcome: Leaving) -> Result<(), Error> {
        if own.is_none() {
            return Ok(());
        }
        self.leave_from(self.at_desk()?, own, outcome)
    }

    fn leave_from(
        &self,
        desk: AtDesk<'_>,
        own: &mut Option<PlaceRecord>,
        outcome: Leaving,
    ) -> Result<(), Error> {
        let Some(record) = own.take() else { return Ok(()) };
        let mut table = self.file.read()?;
        table.places.retain(|(index, _)| *index != self.index);
        if record.state == PlaceState::Holds && record.access == LockAccess::Exclusive {
            let inconsistent = match outcome {
                Leaving::Consistent => false,
                Leaving::Unchanged => table.header.inconsistent,
                Leaving::Died => true,
            };
            if table.header.inconsistent != inconsistent {
                table.header.inconsistent = inconsistent;
                desk.write_header(&table.header)?;
            }
        }
        desk.clear(self.index)?;
        desk.remove_if_unused(&mut table, false)?;
        lock_byte(&self.lifeline, byte_of(record.ticket), ByteRight::None, false)
            .map_err(Error::file("unlocking", &self.file.path))
    }

    /// Descriptor by which a child process keeps the place after this process's death.
    ///
    /// The child inherits it if its close-on-exec flag is cleared.
    #[must_use]
    pub fn lifeline(&self) -> BorrowedFd<'_> {
        self.lifeline.as_fd()
    }

    /// Returns whether the lock's file was removed from outside.
    ///
    /// Then the next process that asks for the lock makes a new file, and has the lock, too.
    ///
    /// ```
    /// use towpath_lockfile::{LockAccess, LockPlace};
    ///
    /// let place = LockPlace::enter("table 8", LockAccess::Exclusive, "an example")?;
    /// assert!(!place.is_removed());
    /// # Ok::<(), towpath_lockfile::Error>(())
    /// ```
    #[must_use]
    pub fn is_removed(&self) -> bool {
        has_name(self.file.desk.as_fd(), &self.file.path).is_ok_and(|has| !has)
    }

    /// Goes to the desk, if it is free.
    fn desk_now(&self) -> Result<Option<AtDesk<'_>>, Error> {
        match self.file.to_desk(false) {
            Err(Error::File { source, .. }) if source.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            other => other,
        }
    }

    fn at_desk(&self) -> Result<AtDesk<'_>, Error> {
        // A file in which a place is taken is not removed, except from outside.
        self.file.at_desk()?.ok_or_else(|| Error::Removed { path: self.file.path.clone() })
    }
}

impl Drop for LockPlace {
    fn drop(&mut self) {
        let mut own = self.record.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let held = own.as_ref().is_some_and(|record| record.state == PlaceState::Holds);
        // Survivors do the rest where this fails.
        let _ = self.leave_as(&mut own, if held { Leaving::Died } else { Leaving::Unchanged });
    }
}

/// Takes a place. `None`: the file was removed before.
fn try_enter(
    file: &LockFile,
    name: &str,
    access: LockAccess,
    description: &str,
) -> Result<Option<(OwnedFd, usize, PlaceRecord)>, Error> {
    let Some(desk) = file.at_desk()? else { return Ok(None) };
    let mut table = file.read()?;
    let PlaceTable { ref mut header, free, .. } = table;
    if !header.name.is_empty() && header.name != name {
        let why = format!("it is that of the lock {:?}", header.name);
        return Err(Error::NotTrusted { path: file.path.clone(), why });
    }
    if free >= MOST_PLACES {
        return Err(Error::Full(name.to_owned()));
    }
    let Some(lifeline) = open_second(file.desk.as_fd(), &file.path)? else { return Ok(None) };
    let ticket = header.next_ticket;
    lock_byte(&lifeline, byte_of(ticket), ByteRight::Exclusive, false)
        .map_err(Error::file("locking", &file.path))?;
    header.next_ticket += 1;
    name.clone_into(&mut header.name);
    let record = PlaceRecord {
        state: PlaceState::Waits,
        access,
        ticket,
        token: 0,
        since: now(),
        process: std::process::id(),
        description: description.to_owned(),
    };
    let written = desk.write_header(header).and_then(|()| desk.write_place(free, &record));
    if let Err(error) = written {
        // In a full file system no file without a place is left behind. Survivors do it if this
        // fails. The byte is unlocked with the lifeline, before the desk is free.
        let _ = desk.remove_if_unused(&mut table, false);
        return Err(error);
    }
    drop(desk);
    Ok(Some((lifeline, free, record)))
}

/// Returns the time in nanoseconds since 1970; 0 before.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2)
}
