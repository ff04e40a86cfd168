//! Journal: an agent's part of the quorum's log, on disk before a message says so.
//!
//! A file of lines of JSON, each one operation; it is read back when the agent starts, and then
//! written anew. A line that is cut off was never answered for, and counts as not written.

use std::error::Error as AnyError;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::storage::{Entry, NoSnapshot, StopSign, Storage, StorageOp, StorageResult};
use serde::{Deserialize, Serialize};
use towpath_mplock::Epoch;

use crate::Error;
use crate::membership::MembershipChange;

impl Entry for MembershipChange {
    type Snapshot = NoSnapshot;
}

/// Operation on the journal.
#[derive(Serialize, Deserialize)]
enum JournalLine {
    /// Entries from this index on.
    Entries(usize, Vec<MembershipChange>),
    Promise(Ballot),
    Accepted(Ballot),
    Decided(usize),
}

/// State that the journal keeps.
#[derive(Debug, Default)]
struct JournalState {
    log: Vec<MembershipChange>,
    promise: Option<Ballot>,
    accepted: Option<Ballot>,
    decided: usize,
}

/// The log on disk.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    state: JournalState,
}

impl JournalState {
    fn apply(&mut self, line: JournalLine) -> bool {
        match line {
            JournalLine::Entries(from, entries) if from <= self.log.len() => {
                self.log.truncate(from);
                self.log.extend(entries);
            }
            JournalLine::Entries(..) => return false,
            JournalLine::Promise(ballot) => self.promise = Some(ballot),
            JournalLine::Accepted(ballot) => self.accepted = Some(ballot),
            JournalLine::Decided(index) => self.decided = index,
        }
        true
    }

    fn lines(&self) -> Vec<JournalLine> {
        let mut lines = vec![JournalLine::Entries(0, self.log.clone())];
        lines.extend(self.promise.map(JournalLine::Promise));
        lines.extend(self.accepted.map(JournalLine::Accepted));
        lines.push(JournalLine::Decided(self.decided));
        lines
    }
}

impl Journal {
    /// Opens the journal at a path, or makes it.
    pub fn open(path: &Path) -> Result<Journal, Error> {
        let failed = |error: std::io::Error| Error::state(path, &error);
        let mut state = JournalState::default();
        if let Ok(file) = File::open(path) {
            let mut lines = BufReader::new(file).split(b'\n').peekable();
            while let Some(line) = lines.next() {
                let line = line.map_err(failed)?;
                let is_last = lines.peek().is_none();
                let fits = serde_json::from_slice(&line).is_ok_and(|line| state.apply(line));
                if !fits && !is_last {
                    let why = "it is damaged; restore it, or give this host another name in the hosts file";
                    return Err(Error::State(path.to_owned(), why.to_owned()));
                }
            }
        }
        let file = text_of(&state.lines()).and_then(|bytes| replace(path, &bytes)).map_err(failed)?;
        Ok(Journal { path: path.to_owned(), file, state })
    }

    fn put(&mut self, lines: Vec<JournalLine>) -> StorageResult<()> {
        let written = text_of(&lines).and_then(|bytes| append(&mut self.file, &bytes));
        written.map_err(|error| Error::state(&self.path, &error))?;
        for line in lines {
            self.state.apply(line);
        }
        Ok(())
    }
}

/// File with the epochs that agents of this host have seen: a line of text each.
///
/// Also under another list of hosts. The last one counts, and is the largest. The file stays open:
/// an agent that may open no more files can note an epoch.
#[derive(Debug)]
pub(crate) struct EpochFile {
    path: PathBuf,
    file: File,
    /// The largest epoch in it.
    pub seen: Epoch,
}

impl EpochFile {
    /// Opens the file at a path, and writes it anew.
    pub fn open(path: PathBuf) -> Result<EpochFile, Error> {
        let failed = |error: std::io::Error| Error::state(&path, &error);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "0\n".to_owned(),
            Err(error) => return Err(failed(error)),
        };
        // A line that is cut off was not noted.
        let whole = text.rfind('\n').map_or(text.as_str(), |end| &text[..end]);
        let last = whole.lines().next_back().unwrap_or("").trim();
        let seen = last.parse().map_err(|_| {
            let why = "it is no epoch: a number is expected; restore it, or write a larger number than that of any token so far divided by 2^44";
            Error::State(path.clone(), why.to_owned())
        })?;
        let file = replace(&path, format!("{seen}\n").as_bytes()).map_err(failed)?;
        Ok(EpochFile { path, file, seen })
    }

    /// Notes a larger number.
    pub fn note(&mut self, epoch: Epoch) -> Result<(), Error> {
        if epoch <= self.seen {
            return Ok(());
        }
        let written = append(&mut self.file, format!("{epoch}\n").as_bytes());
        written.map_err(|error| Error::state(&self.path, &error))?;
        self.seen = epoch;
        Ok(())
    }
}

/// Makes a file with these bytes, in the place of the one at the path, and keeps it open.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<File> {
    let whole = path.with_extension("new");
    match fs::remove_file(&whole) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&whole)?;
    append(&mut file, bytes)?;
    fs::rename(&whole, path)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(file)
}

/// Appends bytes to a file, and waits until they are on disk.
///
/// Fails if the file has no name any more: what is written there ends with this process.
fn append(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(bytes)?;
    file.sync_data()?;
    if file.metadata()?.nlink() == 0 {
        let why = "it was replaced or removed while this agent runs: see that one agent alone uses this directory, and start it again";
        return Err(std::io::Error::other(why));
    }
    Ok(())
}

fn text_of(lines: &[JournalLine]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut bytes, line)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

fn unsupported() -> Box<dyn AnyError> {
    "the journal keeps neither snapshots nor reconfigurations".into()
}

impl Storage<MembershipChange> for Journal {
    fn write_atomically(&mut self, ops: Vec<StorageOp<MembershipChange>>) -> StorageResult<()> {
        let mut lines = Vec::new();
        let mut end = self.state.log.len();
        for op in ops {
            match op {
                StorageOp::AppendEntry(entry) => {
                    lines.push(JournalLine::Entries(end, vec![entry]));
                    end += 1;
                }
                StorageOp::AppendEntries(entries) => {
                    let count = entries.len();
                    lines.push(JournalLine::Entries(end, entries));
                    end += count;
                }
                StorageOp::AppendOnPrefix(from, entries) => {
                    end = from + entries.len();
                    lines.push(JournalLine::Entries(from, entries));
                }
                StorageOp::SetPromise(ballot) => lines.push(JournalLine::Promise(ballot)),
                StorageOp::SetAcceptedRound(ballot) => lines.push(JournalLine::Accepted(ballot)),
                StorageOp::SetDecidedIndex(index) => lines.push(JournalLine::Decided(index)),
                StorageOp::SetCompactedIdx(0)
                | StorageOp::SetStopsign(None)
                | StorageOp::SetSnapshot(None) => {}
                _ => return Err(unsupported()),
            }
        }
        self.put(lines)
    }

    fn append_entry(&mut self, entry: MembershipChange) -> StorageResult<()> {
        self.append_entries(vec![entry])
    }

    fn append_entries(&mut self, entries: Vec<MembershipChange>) -> StorageResult<()> {
        self.put(vec![JournalLine::Entries(self.state.log.len(), entries)])
    }

    fn append_on_prefix(&mut self, from_idx: usize, entries: Vec<MembershipChange>) -> StorageResult<()> {
        self.put(vec![JournalLine::Entries(from_idx, entries)])
    }

    fn set_promise(&mut self, n_prom: Ballot) -> StorageResult<()> {
        self.put(vec![JournalLine::Promise(n_prom)])
    }

    fn set_decided_idx(&mut self, ld: usize) -> StorageResult<()> {
        self.put(vec![JournalLine::Decided(ld)])
    }

    fn get_decided_idx(&self) -> StorageResult<usize> {
        Ok(self.state.decided)
    }

    fn set_accepted_round(&mut self, na: Ballot) -> StorageResult<()> {
        self.put(vec![JournalLine::Accepted(na)])
    }

    fn get_accepted_round(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.state.accepted)
    }

    fn get_entries(&self, from: usize, to: usize) -> StorageResult<Vec<MembershipChange>> {
        Ok(self.state.log.get(from..to).unwrap_or_default().to_vec())
    }

    fn get_log_len(&self) -> StorageResult<usize> {
        Ok(self.state.log.len())
    }

    fn get_suffix(&self, from: usize) -> StorageResult<Vec<MembershipChange>> {
        Ok(self.state.log.get(from..).unwrap_or_default().to_vec())
    }

    fn get_promise(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.state.promise)
    }

    fn set_stopsign(&mut self, s: Option<StopSign>) -> StorageResult<()> {
        s.map_or(Ok(()), |_| Err(unsupported()))
    }

    fn get_stopsign(&self) -> StorageResult<Option<StopSign>> {
        Ok(None)
    }

    fn trim(&mut self, _idx: usize) -> StorageResult<()> {
        Err(unsupported())
    }

    fn set_compacted_idx(&mut self, idx: usize) -> StorageResult<()> {
        if idx == 0 { Ok(()) } else { Err(unsupported()) }
    }

    fn get_compacted_idx(&self) -> StorageResult<usize> {
        Ok(0)
    }

    fn set_snapshot(&mut self, snapshot: Option<NoSnapshot>) -> StorageResult<()> {
        snapshot.map_or(Ok(()), |_| Err(unsupported()))
    }

    fn get_snapshot(&self) -> StorageResult<Option<NoSnapshot>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_is_read_back_and_a_cut_line_is_dropped() {
        let path = std::env::temp_dir().join(format!("test-of-towpath-journal-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let change = |host| MembershipChange::Suspect { host, incarnation: 5 };
        let ballot = Ballot::with(1, 2, 3, 4);
        let mut journal = Journal::open(&path).unwrap();
        journal.append_entries(vec![change(1), change(2), change(3)]).unwrap();
        let ops = vec![
            StorageOp::AppendOnPrefix(1, vec![change(7)]),
            StorageOp::AppendEntry(change(8)),
            StorageOp::SetPromise(ballot),
            StorageOp::SetDecidedIndex(2),
        ];
        journal.write_atomically(ops).unwrap();
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"Decided\":").unwrap();
        let journal = Journal::open(&path).unwrap();
        assert_eq!(journal.get_suffix(0).unwrap(), [change(1), change(7), change(8)]);
        assert_eq!((journal.get_promise().unwrap(), journal.get_decided_idx().unwrap()), (Some(ballot), 2));
        assert_eq!(journal.get_accepted_round().unwrap(), None);
        let mut older = journal;
        let mut newer = Journal::open(&path).unwrap();
        assert!(older.set_decided_idx(3).unwrap_err().to_string().contains("start it again"));
        newer.set_decided_idx(3).unwrap();
        fs::write(&path, "nonsense\n{\"Decided\":1}\n").unwrap();
        assert!(Journal::open(&path).is_err());
        fs::remove_file(&path).unwrap();
        for (note, seen) in [(3, 3), (9, 9), (4, 9)] {
            EpochFile::open(path.clone()).unwrap().note(note).unwrap();
            assert_eq!(EpochFile::open(path.clone()).unwrap().seen, seen);
        }
        for (text, seen) in
            [("7\n8\n", Some(8)), ("7\n1", Some(7)), ("12", Some(12)), ("7\nx\n", None), ("", None)]
        {
            fs::write(&path, text).unwrap();
            assert_eq!(EpochFile::open(path.clone()).ok().map(|file| file.seen), seen, "{text:?}");
        }
        fs::remove_file(&path).unwrap();
    }
}
