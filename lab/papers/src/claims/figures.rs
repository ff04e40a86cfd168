//! The papers' figures and tables, and the claims that are read from each: the order of
//! the page that `towpath reproduce` writes.

use super::Judged;
use super::show::line;
use towpath_report::{Exhibit, Exhibition};

/// Parts of a figure of a paper whose values are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownPoints {
    /// All: they stand beside ours.
    All,
    /// Some, from the text: they stand beside ours.
    Some,
    /// None: an image, and the text gives no values beside those of the claims.
    None,
    /// No figure: a section of the text.
    Text,
}

impl KnownPoints {
    fn note(self) -> &'static str {
        match self {
            KnownPoints::All => "The paper's values stand beside ours.",
            KnownPoints::Some => "The paper's is an image. The values that its text gives stand beside ours.",
            KnownPoints::None => {
                "The paper's is an image, and its text gives no values but those of the claims. Ours alone."
            }
            KnownPoints::Text => "Read from the text.",
        }
    }
}

/// Place in a paper: its contents, the claims read from it.
struct CitedPlace(&'static str, &'static str, KnownPoints, &'static [&'static str]);

/// Paper: its key, its title and machine, its places.
struct Paper(char, &'static str, &'static [CitedPlace]);

const PAPERS: [Paper; 5] = [
    Paper(
        'L',
        "S. S. Lumetta and D. E. Culler: Managing Concurrent Access for Shared Memory Active Messages, 1998. Sun Enterprise 5000, 8 processors",
        &[
            CitedPlace(
                "Table 1",
                "LogP and round trip of six claim algorithms",
                KnownPoints::All,
                &["L2", "L3", "L4"],
            ),
            CitedPlace(
                "Table 2",
                "the stress test: many writers, one reader",
                KnownPoints::All,
                &["L6", "L7", "L8", "L9", "L10", "L11", "L12"],
            ),
            CitedPlace("Table 4", "applications, time by lock-free's", KnownPoints::All, &["L14"]),
            CitedPlace("Section 2", "the machine", KnownPoints::Text, &["L1", "L18"]),
            CitedPlace("Section 3", "the algorithms", KnownPoints::Text, &["L13", "L15", "L19"]),
            CitedPlace(
                "Section 4",
                "bulk transfers, multiprogramming",
                KnownPoints::Text,
                &["L5", "L16", "L17"],
            ),
        ],
    ),
    Paper(
        'N',
        "D. S. Nikolopoulos and T. S. Papatheodorou: A Quantitative Architectural Evaluation of Synchronization Algorithms and Disciplines on ccNUMA Systems, 1999. SGI Origin2000, 64 processors",
        &[
            CitedPlace("Section 2", "load-linked and store-conditional", KnownPoints::Text, &["N34"]),
            CitedPlace("Figure 1", "the lock-free queue over fetch-ops", KnownPoints::Text, &["N35"]),
            CitedPlace(
                "Figure 3",
                "the shared counter, without work and with 5 µs",
                KnownPoints::None,
                &["N5", "N6", "N7", "N8", "N9", "N10"],
            ),
            CitedPlace(
                "Figure 4",
                "hardware counts of the counter on 64 processors",
                KnownPoints::Some,
                &["N1", "N2", "N3", "N4"],
            ),
            CitedPlace(
                "Figure 5",
                "FIFO queues under locks and lock-free, and hardware counts",
                KnownPoints::Some,
                &["N11", "N12", "N13", "N14", "N15", "N16", "N17", "N18", "N19", "N20", "N21"],
            ),
            CitedPlace("Figure 6", "barriers", KnownPoints::None, &["N22", "N23"]),
            CitedPlace(
                "Figure 7",
                "queues in two and three copies",
                KnownPoints::None,
                &["N24", "N25", "N26", "N27", "N28"],
            ),
            CitedPlace(
                "Figure 8",
                "barriers in two and three copies",
                KnownPoints::None,
                &["N29", "N30", "N31"],
            ),
            CitedPlace("Figure 9", "Cholesky, LU and Radiosity", KnownPoints::None, &["N32", "N33"]),
        ],
    ),
    Paper(
        'G',
        "M. Greenwald and D. Cheriton: The Synergy Between Non-blocking Synchronization and Operating System Structure, 1996. Proteus, 16 processors simulated",
        &[
            CitedPlace(
                "Sections 2 to 6",
                "DCAS, type-stable memory, advisory locks",
                KnownPoints::Text,
                &["G15", "G16", "G17", "G18", "G19", "G20"],
            ),
            CitedPlace("Figure 4", "what synchronising a deletion adds", KnownPoints::All, &["G1", "G3"]),
            CitedPlace("Section 7.1", "the 68040", KnownPoints::Text, &["G2"]),
            CitedPlace(
                "Figure 5",
                "a list, 20 cycles of work, a process on each processor",
                KnownPoints::None,
                &["G5", "G6", "G7", "G8", "G9"],
            ),
            CitedPlace(
                "Figure 6",
                "the same with 2,000 cycles of work",
                KnownPoints::None,
                &["G4", "G10", "G11"],
            ),
            CitedPlace(
                "Figure 7",
                "the same with three processes",
                KnownPoints::None,
                &["G12", "G13", "G14"],
            ),
        ],
    ),
    Paper(
        'K',
        "C. Kuo, J. Carter and R. Kuramkote: MP-LOCKs, 1998. Avalanche, 4 to 32 nodes simulated",
        &[
            CitedPlace("Sections 3 and 4.1", "the machine", KnownPoints::Text, &["K2", "K3", "K4"]),
            CitedPlace("Table 1", "hops and interrupts of an acquisition", KnownPoints::Text, &["K1"]),
            CitedPlace("Table 4", "states of locks in the programs", KnownPoints::Some, &["K5", "K25"]),
            CitedPlace(
                "Figure 1",
                "barnes and mp3d: time by MCS's",
                KnownPoints::None,
                &["K6", "K7", "K8", "K15", "K16", "K17", "K24"],
            ),
            CitedPlace(
                "Figure 2",
                "radiosity and raytrace: time by MCS's",
                KnownPoints::None,
                &["K9", "K10", "K11", "K12", "K13", "K14"],
            ),
            CitedPlace("Figure 3", "spark98: time by MCS's", KnownPoints::None, &["K18", "K19"]),
            CitedPlace(
                "Sections 2 to 6",
                "all programs; properties of the locks",
                KnownPoints::Text,
                &["K20", "K21", "K22", "K23", "K26", "K27", "K28", "K29"],
            ),
        ],
    ),
    Paper(
        'M',
        "W. Gropp and E. Lusk: A High-Performance MPI Implementation on a Shared-Memory Vector Supercomputer, 1997. NEC SX-4",
        &[
            CitedPlace("Figure 1", "semaphores", KnownPoints::None, &["M1", "M2", "M3"]),
            CitedPlace(
                "Figures 2 and 3",
                "control packets without locks",
                KnownPoints::Text,
                &["M13", "M14", "M19"],
            ),
            CitedPlace("Figure 4", "slots and semaphores", KnownPoints::None, &["M4", "M5"]),
            CitedPlace("Figure 5", "test&set locks", KnownPoints::None, &["M6"]),
            CitedPlace("Figure 6", "slots and test&set locks", KnownPoints::None, &["M7", "M8", "M9"]),
            CitedPlace("Figure 7", "all versions", KnownPoints::None, &["M10", "M11"]),
            CitedPlace(
                "Sections 7 to 9",
                "other designs",
                KnownPoints::Text,
                &["M12", "M15", "M16", "M17", "M18"],
            ),
        ],
    ),
];

/// The judged claims below the figures that they are read from, with our plots of these.
pub(super) fn exhibitions(judged: &[Judged]) -> Vec<Exhibition> {
    let exhibit = |key: char, CitedPlace(place, shows, known, ids): &CitedPlace| {
        let here: Vec<&Judged> = judged.iter().filter(|j| ids.contains(&j.claim.id)).collect();
        let plots: Vec<String> = here.iter().flat_map(|j| j.finding.plots.clone()).collect();
        let note = match plots.is_empty() && *known != KnownPoints::Text {
            true => format!("Not drawn: no claim of this run draws it; `towpath reproduce {key}` does."),
            false => known.note().into(),
        };
        let claims = here.iter().map(|j| line(j)).collect();
        (!here.is_empty()).then(|| Exhibit { title: format!("{place}: {shows}"), note, plots, claims })
    };
    let exhibition = |Paper(key, title, places): &Paper| {
        let exhibits: Vec<Exhibit> = places.iter().filter_map(|place| exhibit(*key, place)).collect();
        (!exhibits.is_empty()).then(|| Exhibition { key: *key, title: title.to_string(), exhibits })
    };
    PAPERS.iter().filter_map(exhibition).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{ClaimCost, Evidence, Finding, claims};

    #[test]
    fn each_claim_is_read_from_one_place_of_its_paper() {
        let all = claims();
        for claim in &all {
            let places = PAPERS.iter().flat_map(|Paper(key, _, places)| places.iter().map(move |p| (key, p)));
            let here: Vec<char> =
                places.filter(|(_, place)| place.3.contains(&claim.id)).map(|(key, _)| *key).collect();
            assert_eq!(here, [claim.id.chars().next().unwrap()], "{}", claim.id);
        }
        let known = |id: &&str| all.iter().any(|claim| claim.id == *id);
        assert!(PAPERS.iter().flat_map(|p| p.2).all(|place| place.3.iter().all(known)));
    }

    #[test]
    fn plots_and_claims_of_a_figure_stand_together() {
        let judged = |id: &str, plot: &str| {
            let claim = *claims().iter().find(|claim| claim.id == id).unwrap();
            let finding = Finding::new("1".into(), vec![]).with([plot.to_string()]);
            Judged { claim, evidence: Evidence::Simulated, finding, seeds: 1, cost: ClaimCost::default() }
        };
        let papers = exhibitions(&[judged("L7", "stress"), judged("N11", "queues"), judged("L10", "")]);
        assert_eq!(papers.iter().map(|p| p.key).collect::<Vec<_>>(), ['L', 'N']);
        let [table] = papers[0].exhibits.as_slice() else { panic!("one table") };
        assert!(table.title.starts_with("Table 2") && table.plots[0] == "stress");
        assert_eq!(table.claims.iter().map(|c| c.id).collect::<Vec<_>>(), ["L7", "L10"]);
        let standing = |line: &towpath_report::ClaimLine| line.details.iter().any(|d| d.0 == "depends on");
        assert!(table.claims.iter().all(standing));
    }

    #[test]
    fn figure_without_its_drawing_claim_says_so() {
        let judged = |id: &str, plots: &[&str]| {
            let claim = *claims().iter().find(|claim| claim.id == id).unwrap();
            let finding = Finding::new("1".into(), vec![]).with(plots.iter().map(|plot| plot.to_string()));
            Judged { claim, evidence: Evidence::Simulated, finding, seeds: 1, cost: ClaimCost::default() }
        };
        let note = |judged: &[Judged]| exhibitions(judged)[0].exhibits[0].note.clone();
        let without = note(&[judged("L10", &[])]);
        assert!(without.starts_with("Not drawn") && without.contains("towpath reproduce L"), "{without}");
        assert!(note(&[judged("L7", &["stress"])]).contains("beside ours"));
        assert_eq!(note(&[judged("L17", &[])]), KnownPoints::Text.note());
    }
}
