//! Tables and plots of the experiments on non-blocking synchronisation: `dcas`, and
//! `structures` ([`crate::structures`]).

use crate::experiments::dcas::ALGORITHMS;
use crate::format::digits;
use crate::record::Record;
use crate::results::Results;
use crate::tables::{Cell, Kind, Table};

/// The tables that the results have figures for.
pub fn tables(results: &Results) -> Vec<Table> {
    std::iter::once(dcas(results)).chain(crate::structures::shown::tables(results)).collect()
}

/// A record of the experiment `dcas`.
pub fn dcas_figure<'a>(
    results: &'a Results,
    metric: &str,
    algorithm: &str,
    procs: u32,
    words: u64,
) -> Option<&'a Record> {
    let found = |r: &&Record| {
        r.experiment == "dcas"
            && r.metric == metric
            && r.algorithm == algorithm
            && r.procs == procs
            && r.number("words") == Some(words)
    };
    results.records.iter().find(found)
}

/// One figure by another, as a cell.
pub fn ratio(above: Option<&Record>, below: Option<&Record>) -> Cell {
    let ratio = above.zip(below).and_then(|(above, below)| above.divided_by(below));
    ratio.map_or(Cell::new("–", Kind::Missing), |ratio| Cell::new(digits(ratio), Kind::Figure))
}

fn dcas(results: &Results) -> Table {
    let mut rows = Vec::new();
    for (procs, words, what) in [
        (1, 2, "alone, two words"),
        (1, 64, "alone, one word and 63 others in turn"),
        (2, 2, "two processes, the same two words"),
    ] {
        for algorithm in ALGORITHMS {
            let of = |metric| dcas_figure(results, metric, algorithm, procs, words);
            let (dcas, cas) = (of("dcas_ns"), of("cas_ns"));
            if dcas.is_some() {
                rows.push(vec![
                    Cell::text(what),
                    Cell::text(algorithm),
                    Cell::figure(dcas),
                    Cell::figure(cas),
                    ratio(dcas, cas),
                ]);
            }
        }
    }
    Table {
        experiment: "dcas",
        title: "Double compare-and-swap by software".into(),
        note: "One double compare-and-swap with the reads of its words, one compare-and-swap with the loads of two words, and their ratio within the rounds. Alone: the shortest of many batches. Two \
               processes: the time by the number of operations that succeeded."
            .into(),
        header: ["", "implementation", "DCAS", "CAS and two loads", "ratio"].map(String::from).to_vec(),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::made_up;
    use crate::record::Subject;
    use crate::record::metrics::{CAS_NS, DCAS_NS};

    #[test]
    fn the_table_of_dcas_has_the_ratio_within_the_rounds() {
        let subject = || Subject::new("dcas", "guerraoui", "spin", 1).with("words", 2);
        let results = made_up(
            vec![(subject(), DCAS_NS, vec![30.0, 90.0, 24.0]), (subject(), CAS_NS, vec![10.0, 30.0, 6.0])],
            2,
        );
        let tables = tables(&results);
        assert_eq!(tables[0].rows.len(), 1);
        assert_eq!(tables[0].rows[0].iter().map(|c| c.text.as_str()).collect::<Vec<_>>()[4], "3.00");
    }
}
