//! Each claim holds of figures like the paper's, and fails where they are not.

use super::*;
use crate::paper::{LOGP_TABLE, STRESS_TABLE};
use towpath_report::Missing;
use towpath_report::record::metrics::{BYTES_PER_S, GAP, MESSAGES_PER_S, SEND_OVERHEAD};
use towpath_report::record::{Metric, RecordSubject};

/// Made-up figures: subject, metric, rounds.
type Figures = Vec<(RecordSubject, Metric, Vec<f64>)>;

/// A value in seven rounds.
fn rounds(value: f64) -> Vec<f64> {
    vec![value; 7]
}

fn subject(experiment: &str, algorithm: &str) -> RecordSubject {
    RecordSubject::new(experiment, algorithm, "spin", 2)
}

/// Paper L's figures, as our records.
fn like_the_paper() -> Figures {
    let mut figures = Figures::new();
    for c in LOGP_TABLE {
        figures.push((subject("logp", c.algorithm), SEND_OVERHEAD, rounds(c.send_overhead * 1e3)));
        figures.push((subject("logp", c.algorithm), GAP, rounds(c.gap * 1e3)));
        let bandwidth = if c.algorithm == "posix" { 158e6 } else { 166e6 };
        let peak = subject("bulk", c.algorithm).with("bytes", 8192).with("path", "blocks");
        figures.push((peak, BYTES_PER_S, rounds(bandwidth)));
        let direct = subject("bulk", c.algorithm).with("bytes", 8192).with("path", "direct");
        figures.push((direct, BYTES_PER_S, rounds(5e9)));
    }
    figures.push((
        RecordSubject::new("bulk", "memcpy", "none", 1).with("bytes", 8192),
        BYTES_PER_S,
        rounds(203e6),
    ));
    for c in STRESS_TABLE {
        for (writers, seconds) in [(1, c.seconds[0]), (15, c.seconds[2])] {
            let stress = subject("stress", c.algorithm).with("writers", writers);
            figures.push((stress, MESSAGES_PER_S, rounds(1e6 / seconds)));
        }
    }
    figures
}

/// The paper's figures with one changed.
fn with(change: impl Fn(&RecordSubject, Metric, &mut Vec<f64>)) -> Figures {
    let mut figures = like_the_paper();
    for (subject, metric, samples) in &mut figures {
        change(subject, *metric, samples);
    }
    figures
}

fn judged(figures: Figures) -> Vec<Judged> {
    judge_native(&Results::from_figures(&figures, 2))
}

fn by_id(judgements: &[Judged], id: &str) -> Judged {
    judgements.iter().find(|j| j.claim.id == id).unwrap_or_else(|| panic!("{id} was not judged")).clone()
}

fn contradiction(figures: Figures, id: &str) -> String {
    match by_id(&judged(figures), id).finding.verdict {
        Verdict::NotReproduced(why) => why,
        other => panic!("{id} should not hold: {other:?}"),
    }
}

fn not_measured(figures: Figures, id: &str) -> String {
    match by_id(&judged(figures), id).finding.verdict {
        Verdict::NotCheckable(why) => why,
        other => panic!("{id} should not be judged: {other:?}"),
    }
}

#[test]
fn the_paper_s_own_figures_confirm_its_claims() {
    let judgements = judged(like_the_paper());
    assert_eq!(judgements.iter().map(|j| j.claim.id).collect::<Vec<_>>(), ["L3", "L5", "L6", "L17"]);
    for j in &judgements {
        assert_eq!((j.finding.verdict.clone(), j.waiting()), (Verdict::Reproduced, "spin"), "{j:?}");
    }
    let text = |id| by_id(&judgements, id).finding.ours;
    assert!(
        text("L3").contains("o_s 1.60 µs (test-and-set) to 1.90 µs (lock-free), × 1.19"),
        "{}",
        text("L3")
    );
    assert!(text("L3").contains("lock-free 300 ns above"), "{}", text("L3"));
    assert!(
        text("L5").contains("posix 0.778 at 8 KiB") && text("L5").contains("spread 5.06 %"),
        "{}",
        text("L5")
    );
    assert!(text("L6").contains("lock-free +2.90 %"), "{}", text("L6"));
    assert!(text("L17").contains("15 writers") && text("L17").contains("posix 3.98"), "{}", text("L17"));
}

#[test]
fn l3_other_order_or_distance_is_refuted() {
    let order = contradiction(
        with(|s, metric, samples| {
            if metric == SEND_OVERHEAD && s.algorithm == "lock-free" {
                *samples = rounds(1500.0);
            }
        }),
        "L3",
    );
    assert!(order.contains("o_s is not in the paper's order: test-and-set above lock-free"), "{order}");
    assert!(order.contains("held in 0 of 7 rounds"), "{order}");
    let distance = contradiction(
        with(|s, metric, samples| {
            if metric == GAP && s.algorithm == "lock-free" {
                *samples = rounds(3700.0);
            }
        }),
        "L3",
    );
    assert!(distance.contains("g of lock-free is not nearly that of test-and-set"), "{distance}");
    // A tie is no order, and POSIX may be as slow as it likes.
    let tie = with(|s, metric, samples| {
        if metric == GAP && s.algorithm == "lock-free" {
            *samples = rounds(2930.0);
        }
        if s.algorithm == "posix" {
            *samples = samples.iter().map(|ns| ns * 10.0).collect();
        }
    });
    assert_eq!(by_id(&judged(tie), "L3").finding.verdict, Verdict::Reproduced);
    // A value of the model below zero is no overhead to compare.
    let negative = contradiction(
        with(|s, metric, samples| {
            if metric == SEND_OVERHEAD && s.algorithm == "ticket" {
                *samples = rounds(-20.0);
            }
        }),
        "L3",
    );
    assert!(negative.contains("o_s of"), "{negative}");
}

#[test]
fn too_slow_too_fast_or_too_different_refutes_l5() {
    let bulk_of = |name: &'static str, value: f64| {
        with(move |s, _, samples| {
            if s.experiment == "bulk"
                && s.algorithm == name
                && s.extra.get("path").is_none_or(|p| p.as_str() != Some("direct"))
            {
                *samples = rounds(value);
            }
        })
    };
    let slow = contradiction(bulk_of("posix", 100e6), "L5");
    assert!(slow.contains("posix reaches 0.493, less") && slow.contains("66.0 % above posix"), "{slow}");
    let fast = contradiction(bulk_of("memcpy", 170e6), "L5");
    assert!(fast.contains("more than about 0.8") && !fast.contains("above"), "{fast}");
    // The spread alone: all within 0.7 to 0.9.
    let spread = contradiction(bulk_of("ticket", 146e6), "L5");
    assert!(spread.contains("13.7 % above ticket") && !spread.contains("reaches"), "{spread}");
    let no_copy = with(|s, _, samples| {
        if s.algorithm == "memcpy" {
            samples.clear();
        }
    });
    assert!(not_measured(no_copy, "L5").contains("memcpy"));
}

#[test]
fn l6_off_the_gap_is_refuted_and_noise_named() {
    let noisy = contradiction(
        with(|s, metric, samples| {
            if metric == GAP && s.algorithm == "ticket" {
                *samples = vec![2500.0, 3600.0, 3600.0, 3600.0, 3600.0, 3600.0, 3600.0];
            }
        }),
        "L6",
    );
    assert!(noisy.contains("1 of 6 are farther apart: ticket −17.8 %; of 1 of them"), "{noisy}");
    let far = contradiction(
        with(|s, metric, samples| {
            if metric == MESSAGES_PER_S && s.algorithm == "ticket" {
                *samples = rounds(1e5);
            }
        }),
        "L6",
    );
    assert!(far.contains("of 0 of them"), "{far}");
    let alone = like_the_paper().into_iter().filter(|(s, ..)| s.experiment != "stress").collect();
    assert!(not_measured(alone, "L6").contains("stress of test-and-set"));
}

#[test]
fn l17_paper_algorithm_that_loses_less_refutes() {
    let robust = |name: &'static str| {
        with(move |s, _, samples| {
            if s.experiment == "stress" && s.algorithm == name {
                *samples = rounds(if s.extra["writers"] == 15 { 2e6 } else { 3e5 });
            }
        })
    };
    let refuted = contradiction(robust("test-and-set"), "L17");
    assert!(refuted.starts_with("with 15 writers test-and-set lose less"), "{refuted}");
    let mut ours = like_the_paper();
    for (writers, rate) in [(1, 1e6), (15, 9e6)] {
        ours.push((subject("stress", "towpath").with("writers", writers), MESSAGES_PER_S, rounds(rate)));
    }
    let judgement = by_id(&judged(ours), "L17");
    assert_eq!(judgement.finding.verdict, Verdict::Reproduced);
    assert!(judgement.finding.ours.contains("beside: towpath 0.111"), "{}", judgement.finding.ours);
}

#[test]
fn l17_is_about_two_to_eight_processes_a_core() {
    let judgement =
        |cores| by_id(&judge_native(&Results::from_figures(&like_the_paper(), cores)), "L17").finding.verdict;
    assert_eq!(judgement(8), Verdict::Reproduced);
    for cores in [1, 16] {
        let Verdict::NotCheckable(why) = judgement(cores) else { panic!("15 writers on {cores} cores") };
        assert!(why.contains(&format!("from {} to {}", (2 * cores - 1).max(2), 8 * cores - 1)), "{why}");
    }
}

#[test]
fn l17_writers_that_one_of_six_lacks_are_named() {
    let mut figures = like_the_paper();
    for name in papers().filter(|n| *n != "ticket") {
        figures.push((subject("stress", name).with("writers", 7), MESSAGES_PER_S, rounds(1e6)));
    }
    let mut results = Results::from_figures(&figures, 2);
    let subject = subject("stress", "ticket").with("writers", 7);
    results.missing.push(Missing { subject, reason: "no message arrived".into() });
    let judgement = by_id(&judge_native(&results), "L17");
    assert_eq!(judgement.finding.verdict, Verdict::Reproduced);
    assert!(
        judgement.finding.ours.contains("7 writers not judged: ticket (spin) in stress: no message arrived")
    );
}

#[test]
fn a_claim_must_hold_in_five_rounds_and_not_only_in_the_medians() {
    let lucky = |bad: usize| {
        with(move |s, _, samples| {
            if s.experiment == "stress" && s.algorithm == "ticket" && s.extra["writers"] == 15 {
                samples[..bad].fill(9e5);
            }
        })
    };
    assert_eq!(by_id(&judged(lucky(2)), "L17").finding.verdict, Verdict::Reproduced);
    let why = contradiction(lucky(3), "L17");
    assert!(why.contains("not reliably (held in 4 of 7 rounds)"), "{why}");
    let few = with(|_, _, samples| samples.truncate(4));
    let why = not_measured(few, "L5");
    assert!(why.contains("4 rounds only") && why.ends_with("so far it holds"), "{why}");
    let why = not_measured(
        with(|_, metric, samples| *samples = vec![if metric == GAP { 1.0 } else { samples[0] }]),
        "L6",
    );
    assert!(why.contains("1 round only") && why.contains("so far it does not hold: 6 of 6"), "{why}");
    // More rounds than a record keeps: the medians decide.
    let many = with(|_, _, samples| *samples = vec![samples[0]; 100]);
    assert!(judged(many).iter().all(|j| j.finding.verdict == Verdict::Reproduced));
}

#[test]
fn other_policies_serve_where_nothing_spun_and_say_so() {
    let renamed = |from: &str, to: &str| -> Figures {
        let mut figures = like_the_paper();
        figures.iter_mut().filter(|(s, ..)| s.waiting == from).for_each(|(s, ..)| s.waiting = to.into());
        figures
    };
    for j in judged(renamed("spin", "adaptive")) {
        assert_eq!((j.waiting(), &j.finding.verdict), ("adaptive", &Verdict::Reproduced));
        assert_eq!(j.claim.id == "L17", j.finding.caveat.contains("--waiting spin"), "{j:?}");
    }
    let mut both = renamed("spin", "adaptive");
    both.extend(
        like_the_paper().into_iter().filter(|(s, ..)| s.algorithm != "ticket" && s.waiting == "spin"),
    );
    assert!(judged(both).iter().all(|j| j.waiting() == "adaptive"), "spin lacks the ticket lock");
}

#[test]
fn claim_not_asked_for_is_not_judged_missing_says_why() {
    let alone = |experiment: &str| -> Vec<&'static str> {
        let figures = like_the_paper().into_iter().filter(|(s, ..)| s.experiment == experiment).collect();
        judged(figures).iter().map(|j| j.claim.id).collect()
    };
    assert_eq!(alone("bulk"), ["L5"]);
    assert_eq!(alone("logp"), ["L3", "L6"]);
    assert!(judged(Figures::new()).is_empty());
    let mut results = Results::from_figures(
        &like_the_paper().into_iter().filter(|(s, ..)| s.algorithm != "anderson").collect::<Vec<_>>(),
        2,
    );
    results.missing.push(Missing { subject: subject("logp", "anderson"), reason: "it gave up".into() });
    let judgements = judge_native(&results);
    let why = |id| match by_id(&judgements, id).finding.verdict {
        Verdict::NotCheckable(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why("L3"), "anderson (spin) in logp: it gave up");
    assert_eq!(why("L17"), "stress of anderson (spin, writers 1) was not part of this run");
}
