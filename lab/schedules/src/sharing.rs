//! Body for locks of many readers or one writer: the threads' operations, and the checks
//! of what they see.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Ordering, Place, Processor};

use crate::end::End;
use crate::fault::LocatedFault;
use crate::history::History;
use crate::machine::{DatumId, ExploredMemory};
use crate::plan::Plan;
use crate::processor::Explorer;
use crate::subject::SubjectRun;

/// An acquisition of a lock for many readers or one writer.
#[derive(Debug)]
pub enum Admission<R, W> {
    /// Holder for reading.
    Reader(R),
    /// Writer; `true`: the last one died and may have changed half of the data.
    Writer(W, bool),
}

/// A lock for many readers or one writer.
pub trait ExploredSharing: 'static {
    /// State of a reader.
    type Reader;
    /// State of a writer.
    type Writer;
    /// Acquires for reading, or for writing after a death.
    fn read(&self, cpu: &Explorer) -> Admission<Self::Reader, Self::Writer>;
    /// Acquires for writing. `None`: its time was over.
    fn write(&self, cpu: &Explorer, tries: bool) -> Option<Admission<Self::Reader, Self::Writer>>;
    /// Releases after reading.
    fn leave(&self, cpu: &Explorer, reader: Self::Reader);
    /// Releases after writing. `repaired`: the data are whole after a death.
    fn finish(&self, cpu: &Explorer, writer: Self::Writer, repaired: bool);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharingStep {
    Read,
    Write,
    Try,
}

use SharingStep::{Read, Try, Write};

/// Operations of each thread, by its number, again from the start after four.
const SCRIPTS: [[SharingStep; 4]; 3] =
    [[Write, Read, Try, Write], [Read, Write, Read, Try], [Read, Read, Write, Read]];

struct SharingRun<L> {
    lock: L,
    plan: Plan,
    /// Data that are equal when they are whole; not atomic.
    data: [DatumId; 2],
    /// Number of changes, kept by the host, for which only one thread runs at a time.
    changes: Cell<u64>,
    calls: History<SharingStep, bool>,
}

/// Makes threads that read and change two data. A reader sees them whole, or is told; no
/// two touch them at a time unless all read. A thread that is told of a death repairs them every
/// second time, or leaves that to the next.
pub fn sharing<L: ExploredSharing>(plan: &Plan, memory: &ExploredMemory, lock: L) -> Rc<dyn SubjectRun> {
    let data = [0, 1].map(|_| memory.cell(Place::NewLine, 0));
    Rc::new(SharingRun { lock, plan: *plan, data, changes: Cell::default(), calls: History::default() })
}

impl<L: ExploredSharing> SharingRun<L> {
    /// Acts as it was let in. `repair`: repairs after a death.
    fn act(&self, cpu: &Explorer, access: Admission<L::Reader, L::Writer>, changes: bool, repair: bool) {
        let [first, second] = &self.data;
        match access {
            Admission::Reader(reader) => {
                assert_eq!(cpu.read(first), cpu.read(second), "half changed, and no thread was told");
                self.lock.leave(cpu, reader);
            }
            Admission::Writer(writer, true) => {
                assert_ne!(cpu.memory().0.dead.load(Ordering::Relaxed), 0, "told of a death without one");
                if repair {
                    let whole = cpu.read(first);
                    cpu.write(second, whole);
                }
                self.lock.finish(cpu, writer, repair);
            }
            Admission::Writer(writer, false) => {
                let value = cpu.read(first);
                assert_eq!(value, cpu.read(second), "half changed, and no thread was told");
                if changes {
                    cpu.write(first, value + 1);
                    cpu.write(second, value + 1);
                    self.changes.set(self.changes.get() + 1);
                }
                self.lock.finish(cpu, writer, true);
            }
        }
    }
}

impl<L: ExploredSharing> SubjectRun for SharingRun<L> {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            let step = SCRIPTS[cpu.id() % SCRIPTS.len()][n % 4];
            let mut access = None;
            self.calls.call(cpu, step, || {
                access = match step {
                    Read => Some(self.lock.read(cpu)),
                    Write => self.lock.write(cpu, false),
                    Try => self.lock.write(cpu, true),
                };
                access.is_some()
            });
            match access {
                Some(access) => self.act(cpu, access, true, n % 2 == 0),
                None => assert_eq!(step, Try, "no time was over"),
            }
        }
    }

    fn last(&self, cpu: &Explorer) {
        // All others have ended: it is had at once, if not by the first try.
        let access = (0..3).find_map(|_| self.lock.write(cpu, true)).expect("free at the end");
        self.act(cpu, access, false, true);
        let access = self.lock.read(cpu);
        assert!(matches!(access, Admission::Reader(_)), "told of a repaired death");
        self.act(cpu, access, false, true);
        if cpu.memory().0.dead.load(Ordering::Relaxed) == 0 {
            assert_eq!(cpu.read(&self.data[0]), self.changes.get(), "a change was lost");
        }
    }

    fn judge(&self, _end: &End) -> Result<(), LocatedFault> {
        // Threads that are in at one time race for the data.
        Ok(())
    }
}
