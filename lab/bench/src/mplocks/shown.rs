//! Tables of the experiment `mplocks`.

use super::{LockAlgorithm, LockState};
use towpath_report::Section;
use towpath_report::format::{digits, in_unit};
use towpath_report::record::Record;
use towpath_report::record::metrics::{
    ACQUIRE_AT_AGENT_NS, ACQUIRE_NS, ACQUISITIONS_PER_S, HAND_OVER_NS, HOPS_PER_GRANT, LEAST_SHARE,
    MESSAGES_PER_GRANT, NEXT_GRANT_MS, NEXT_GRANT_P99_MS,
};
use towpath_report::results::Results;
use towpath_report::table::{Cell, Kind, Table, header, mark_best, ratio};

/// A figure of a lock in a state; where processes contend, of the largest number of them.
pub fn lock_figure<'a>(
    results: &'a Results,
    metric: &'a str,
    algorithm: LockAlgorithm,
    state: LockState,
) -> Option<&'a Record> {
    let is = |r: &&Record| r.algorithm == algorithm.name() && r.text("state") == Some(state.name());
    results.of("mplocks", metric).filter(is).max_by_key(|r| r.procs)
}

/// Tables of all states.
pub fn sections(results: &Results) -> Vec<Section> {
    let tables = [latencies(results), contended(results, false), contended(results, true), deaths(results)];
    tables.map(Section::new).to_vec()
}

fn present(results: &Results, metrics: &[&str]) -> Vec<LockAlgorithm> {
    let has = |it: &LockAlgorithm, metric: &&str| {
        results.of("mplocks", metric).any(|record| record.algorithm == it.name())
    };
    LockAlgorithm::ALL.into_iter().filter(|it| metrics.iter().any(|metric| has(it, metric))).collect()
}

fn hops(results: &Results, algorithm: LockAlgorithm, state: LockState) -> Cell {
    let number = lock_figure(results, HOPS_PER_GRANT.name, algorithm, state);
    number.map_or(Cell::new("–", Kind::Missing), |r| Cell::new(digits(r.value), Kind::Figure))
}

fn latencies(results: &Results) -> Table {
    let states = [
        (ACQUIRE_NS.name, LockState::LocalIdle),
        (ACQUIRE_NS.name, LockState::RemoteIdle),
        (HAND_OVER_NS.name, LockState::RemoteBusy),
        (ACQUIRE_NS.name, LockState::Computing),
    ];
    let list = present(results, &[ACQUIRE_NS.name, HAND_OVER_NS.name]);
    let mut rows = Vec::new();
    for &algorithm in &list {
        let figure = |n: usize| Cell::figure(lock_figure(results, states[n].0, algorithm, states[n].1));
        rows.push(vec![
            Cell::text(algorithm.name()),
            figure(0),
            figure(1),
            hops(results, algorithm, LockState::RemoteIdle),
            figure(2),
            hops(results, algorithm, LockState::RemoteBusy),
            figure(3),
        ]);
        if let Some(record) = lock_figure(results, ACQUIRE_AT_AGENT_NS.name, algorithm, LockState::RemoteIdle)
        {
            let mut row = vec![Cell::new("–", Kind::Missing); 7];
            (row[0], row[2]) = (Cell::text("hosts, at the agent"), Cell::figure(Some(record)));
            rows.push(row);
        }
    }
    Table {
        experiment: "mplocks",
        title: "Locks: one acquisition".into(),
        note: "Local idle: acquire and release of a lock that this process has used last. Remote idle: acquire one that another process has used last. \
               Remote busy: from the holder's release until the waiter has it. Hops: messages that the grant waits for; the home is one of the two processes, and \
               its own part takes none. \
               Computing: acquire one that another process has used last, its home, which computes for 2 ms between two calls; `-thread`: managers with a progress thread; \
               `endpoint-signal`: no lock, but a request to a process that computes and that a signal interrupts, and its reply. `endpoint` and `link` are no locks: a request and its reply over what `central` and `hosts` use. etcd and Redis run on this host, \
               with one member; a waiter for Redis asks every millisecond."
            .into(),
        header: header(&["lock", "local idle", "remote idle", "hops", "remote busy", "hops", "computing"]),
        rows,
    }
}

fn contended(results: &Results, back_to_back: bool) -> Table {
    let state = if back_to_back { LockState::BackToBack } else { LockState::Contended };
    let figure = |algorithm, metric| lock_figure(results, metric, algorithm, state);
    let mut list = present(results, &[ACQUISITIONS_PER_S.name]);
    list.retain(|&it| figure(it, ACQUISITIONS_PER_S.name).is_some());
    let posix = figure(LockAlgorithm::Posix, ACQUISITIONS_PER_S.name);
    let rates: Vec<Option<f64>> =
        list.iter().map(|&it| figure(it, ACQUISITIONS_PER_S.name).map(|r| r.value)).collect();
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for &algorithm in &list {
        let rate = figure(algorithm, ACQUISITIONS_PER_S.name);
        rows.push(vec![
            Cell::text(algorithm.name()),
            Cell::new(rate.map_or("–".into(), |r| r.procs.to_string()), Kind::Figure),
            Cell::scaled(rate, 1e3),
            Cell::figure(figure(algorithm, LEAST_SHARE.name)),
            ratio(rate, posix),
            Cell::figure(figure(algorithm, MESSAGES_PER_GRANT.name)),
        ]);
    }
    mark_best(&mut rows, 2, &rates, false);
    Table {
        experiment: "mplocks",
        title: if back_to_back {
            "Locks that all want back to back"
        } else {
            "Locks that all want again and again"
        }
        .into(),
        note: format!(
            "Thousand acquisitions a second of all processes together, {}; the slowest process's part of an equal share.",
            if back_to_back {
                "each of which asks again at once"
            } else {
                "each of which works outside for 50 pauses of the processor, about a microsecond, between two"
            }
        ),
        header: header(&["lock", "processes", "thousand/s", "smallest share", "÷ posix", "messages"]),
        rows,
    }
}

fn deaths(results: &Results) -> Table {
    let rows = present(results, &[NEXT_GRANT_MS.name]).into_iter().map(|algorithm| {
        let figure = |metric| lock_figure(results, metric, algorithm, LockState::Killed);
        let times = figure(NEXT_GRANT_MS.name);
        let longest = times
            .map_or(Cell::new("–", Kind::Missing), |r| Cell::new(in_unit(r.max, &r.unit), Kind::Figure));
        vec![
            Cell::text(algorithm.name()),
            Cell::new(times.map_or("–".into(), |r| r.runs.to_string()), Kind::Figure),
            Cell::figure(times),
            Cell::figure(figure(NEXT_GRANT_P99_MS.name)),
            longest,
        ]
    });
    Table {
        experiment: "mplocks",
        title: "Holders that are killed".into(),
        note: "From `kill -9` until the waiter has the lock. etcd waits for the end of the lease (5 s), Redis for that of the lock's time (5 s). An MPI ends with the process.".into(),
        header: header(&["lock", "kills", "median", "p99", "longest"]),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_report::record::RecordSubject;

    #[test]
    fn tables_have_a_row_for_each_lock_that_was_measured() {
        let subject = |name: &str, state: LockState, procs| {
            RecordSubject::new("mplocks", name, "own", procs).with("state", state.name())
        };
        let results = Results::from_figures(
            &[
                (subject("central", LockState::RemoteIdle, 2), ACQUIRE_NS, vec![500.0]),
                (subject("central", LockState::RemoteIdle, 2), HOPS_PER_GRANT, vec![2.0]),
                (subject("hosts", LockState::RemoteIdle, 2), ACQUIRE_AT_AGENT_NS, vec![27_000.0]),
                (subject("hosts", LockState::RemoteIdle, 2), ACQUIRE_NS, vec![54_000.0]),
                (subject("posix", LockState::Contended, 8), ACQUISITIONS_PER_S, vec![10.0]),
                (subject("central", LockState::Contended, 8), ACQUISITIONS_PER_S, vec![20.0]),
                (subject("central", LockState::Contended, 2), ACQUISITIONS_PER_S, vec![1.0]),
                (subject("etcd", LockState::Killed, 2), NEXT_GRANT_MS, vec![5000.0, 6000.0]),
            ],
            2,
        );
        let tables = sections(&results).into_iter().map(|s| s.table).collect::<Vec<_>>();
        assert!(tables.iter().all(|t| t.rows.iter().all(|row| row.len() == t.header.len())));
        assert_eq!(tables.iter().map(|t| t.rows.len()).collect::<Vec<_>>(), [3, 2, 0, 1]);
        assert_eq!(tables[0].rows[0][3].text, "2.00");
        // The largest number of processes counts.
        assert_eq!((tables[1].rows[0][1].text.as_str(), tables[1].rows[0][4].text.as_str()), ("8", "2.00"));
        assert_eq!(tables[3].rows[0][1].text, "2");
    }
}
