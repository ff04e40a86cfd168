//! Replays of traces that `towpath preload --trace` has written, and the figures of the
//! program's own locks.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use towpath_host::trace::{LockReplay, LockTrace, TracedLock};
use towpath_report::files::write_files;
use towpath_report::format::nanoseconds;
use towpath_report::page::plain_page;
use towpath_report::svg::{Bar, Look, PlotValue, bars};
use towpath_report::table::header;
use towpath_report::{Cell, Section, Table};

use crate::{CommandFailure, output};

/// Maximum number of threads of a replay on a simulated machine.
pub const MOST_SIMULATED: usize = 64;
/// Number of the program's locks that are shown.
const SHOWN: usize = 10;
/// Folder of the program's own figures, in that of the report.
pub const PROGRAM: &str = "program";

/// Program of a trace: its replay, and the table of its own locks.
pub struct TracedProgram {
    pub replay: Arc<LockReplay>,
    pub locks: Table,
}

/// The replay of a file, by at most so many threads.
pub fn replay(file: &Path, most: usize) -> Result<Arc<LockReplay>, CommandFailure> {
    read(file, most).map(|(_, replay)| replay)
}

/// The trace of a file, and its replay.
fn read(file: &Path, most: usize) -> Result<(LockTrace, Arc<LockReplay>), CommandFailure> {
    let failed = |why: String| CommandFailure::new(why).with_code(2);
    let trace = LockTrace::read(file).map_err(failed)?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let replay = LockReplay::new(&trace, most, cores).map_err(failed)?;
    if trace.dropped > 0 {
        let more = match trace.disk_was_full {
            true => "more where the file system has room",
            false => "more with `towpath preload --trace-events N`",
        };
        output::remark!(
            "towpath: the trace had no room for {} events: it has the program's beginning; {more}",
            trace.dropped
        );
    }
    if trace.forks > 0 {
        output::remark!(
            "towpath: the trace has nothing of the {} processes that the program forked",
            trace.forks
        );
    }
    Ok((trace, Arc::new(replay)))
}

/// The program of a file. The picture of its locks is written into a folder of the
/// report.
pub fn traced_program(file: &Path, most: usize, report: &Path) -> Result<TracedProgram, CommandFailure> {
    let (trace, replay) = read(file, most)?;
    let locks = trace.locks();
    let shown = &locks[..locks.len().min(SHOWN)];
    let table = table(&trace, shown, locks.len());
    let waits = bars_of("waiting for it, all threads together", &trace, shown, |lock| lock.waited);
    let holds = bars_of("holding it", &trace, shown, |lock| lock.held);
    let introduction = format!(
        "{}: {} acquisitions of {} locks in {}, {} of processor time.",
        file.display(),
        trace.acquisitions(),
        locks.len(),
        nanoseconds(trace.length as f64),
        nanoseconds(trace.processor_time as f64)
    );
    let section = Section::new(table.clone()).with([waits, holds]);
    let page = plain_page("the program's locks", &introduction, &[], &[], &[section], &[]);
    let records: String = locks.iter().map(|lock| to_json(&trace, lock) + "\n").collect();
    write_files(&report.join(PROGRAM), &records, &page).map_err(CommandFailure::new)?;
    Ok(TracedProgram { replay, locks: table })
}

fn bars_of(title: &str, trace: &LockTrace, locks: &[TracedLock], ns: impl Fn(&TracedLock) -> u64) -> String {
    let look = Look { colour: 0, dashed: false, bold: false };
    let bar = |lock: &TracedLock| {
        let value = ns(lock) as f64;
        Bar { label: trace.place(lock.address), value: PlotValue { value, min: value, max: value }, look }
    };
    bars(title, &locks.iter().map(bar).collect::<Vec<_>>(), nanoseconds, None)
}

fn table(trace: &LockTrace, locks: &[TracedLock], all: usize) -> Table {
    let row = |lock: &TracedLock| {
        let count = |n: u64| Cell::text(n.to_string());
        let time = |ns: u64| Cell::text(nanoseconds(ns as f64));
        vec![
            Cell::text(trace.place(lock.address)),
            count(lock.threads as u64),
            count(lock.acquisitions),
            count(lock.hand_overs),
            count(lock.waits),
            time(lock.waited),
            time(lock.longest_wait),
            time(lock.held),
            time(lock.longest_hold),
            Cell::text(lock.site.map_or(String::new(), |(site, _)| trace.place(site))),
        ]
    };
    Table {
        experiment: "locks",
        title: format!("the program's own locks ({} of {all})", locks.len()),
        note: "Hand-overs: acquisitions by another thread than the one before. A longest hold far above the others is a holder without a core, or one that sleeps.".into(),
        header: header(&[
            "lock", "threads", "acquisitions", "hand-overs", "waits", "waited", "longest", "held", "longest hold", "waited for most from",
        ]),
        rows: locks.iter().map(row).collect(),
    }
}

fn to_json(trace: &LockTrace, lock: &TracedLock) -> String {
    json!({
        "lock": trace.place(lock.address),
        "threads": lock.threads,
        "acquisitions": lock.acquisitions,
        "hand_overs": lock.hand_overs,
        "waits": lock.waits,
        "waited_ns": lock.waited,
        "longest_wait_ns": lock.longest_wait,
        "held_ns": lock.held,
        "longest_hold_ns": lock.longest_hold,
        "waited_from": lock.site.map(|(site, _)| trace.place(site)),
    })
    .to_string()
}
