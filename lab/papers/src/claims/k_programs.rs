//! Paper K: barnes, radiosity, raytrace, and all five programs.
//!
//! K6 to K14, K20, K21, K24, K29.
//!
//! The programs are the applications of the room `apps`, run whole, each result checked against its
//! reference. One number of each is an input: the time of an instruction of its own
//! ([`PROGRAMS`]), by which the cycles between two acquisitions of a node are Table 4's on 4 nodes
//! under MP-dist with fast switches. Mixes of locks, all other numbers of nodes, switches and locks
//! follow.

use super::context::{At, Lookup, Series, judge_together, within_factor};
use super::k_kernels::{EXCLUDED, varied};
use super::k_patterns::BOTH;
use super::{Claim, Context, Finding, Verdict, above, below, not_above};
use crate::sim::Sweep;
use crate::sim::show::{OfPaper, by_processors_beside};
use towpath_host::Error;
use towpath_report::format::{digits, percent};
use towpath_report::record::Metric;
use towpath_report::record::metrics::{
    ACQUISITIONS, COMPLETION_CYCLES, HOLDERS_ASKED, KERNEL_TIME, LOCAL_IDLE, REMOTE_BUSY, SHARED_TIME,
    TIME_PER_OPERATION,
};
use towpath_report::stats::summarise;
use towpath_report::svg::PlotValue;

pub(super) const PROCS: [usize; 4] = [4, 8, 16, 32];
pub(super) const TTS: &str = "test-and-test-and-set";
pub(super) const MCS: &str = "mcs";
pub(super) const CENTRAL: &str = "mp-central";
pub(super) const DISTRIBUTED: &str = "mp-distributed";
pub(super) const REACTIVE: &str = "mp-reactive";
pub(super) const SHARED: [&str; 2] = [TTS, MCS];
pub(super) const MESSAGES: [&str; 3] = [CENTRAL, DISTRIBUTED, REACTIVE];
const ALL: [&str; 5] = [TTS, MCS, CENTRAL, DISTRIBUTED, REACTIVE];
/// Programs whose access patterns change with the number of nodes, and the other ones.
const CHANGING: [&str; 3] = ["barnes", "radiosity", "raytrace"];
const UNCHANGING: [&str; 2] = ["mp3d", "spark98"];
/// Places of the machines in [`BOTH`].
const FAST: usize = 0;
const SLOW: usize = 1;

/// Programs with their applications, and Table 4's cycles between two acquisitions.
///
/// Of each the application and its size, the time of one of its instructions (an input), and the
/// cycles between two acquisitions of a node (D: pairs ÷ rate).
const PROGRAMS: [(&str, &str, &str, [f64; 4]); 5] = [
    ("barnes", "barnes/medium", "processor.own_instruction=9.4ns", [32_000.0, 30_968.0, 32_000.0, 33_684.0]),
    (
        "radiosity",
        "radiosity/tiny",
        "processor.own_instruction=418ns",
        [20_870.0, 22_857.0, 22_857.0, 39_184.0],
    ),
    (
        "raytrace",
        "raytrace/small",
        "processor.own_instruction=298ns",
        [18_462.0, 20_870.0, 24_304.0, 36_571.0],
    ),
    ("mp3d", "mp3d/small", "processor.own_instruction=47ns", [3243.0, 4085.0, 4764.0, 5486.0]),
    ("spark98", "spark98/small", "processor.own_instruction=72ns", [1655.0, 1901.0, 2261.0, 2855.0]),
];

const fn claim(
    id: &'static str,
    what: &'static str,
    paper: &'static str,
    tolerance: &'static str,
    simulated: fn(&Context<'_>) -> Result<Finding, Error>,
) -> Claim {
    Claim { id, what, paper, tolerance, input: false, simulated, native: None }
}

pub(super) const CLAIMS: &[Claim] = &[
    claim(
        "K6",
        "barnes: MCS, T&T&S, MP-dist and MP-react are equal, but for 32 nodes with slow switches",
        "equal",
        "within 5 % of the fastest of the four, everywhere else",
        k6,
    ),
    claim(
        "K7",
        "barnes: MP-cent, which caches nothing, is 5 % slower than the four others",
        "about 5 %",
        "2 to 10 % above their mean, but for 32 nodes with slow switches",
        k7,
    ),
    claim(
        "K8",
        "barnes on 32 nodes with slow switches: MP-dist is 8 % better than MCS, and T&T&S drops dramatically",
        "8 %; drops",
        "a factor 2; T&T&S slower than all others beyond 3 %; also with other values without a source (beside MCS and MP-dist)",
        k8,
    ),
    claim(
        "K9",
        "radiosity on 4 nodes: MCS is 18 % better than locks by message, 13 % with slow switches",
        "18 %, 13 %",
        "a factor 2, against the best by message",
        k9,
    ),
    claim(
        "K10",
        "radiosity: MP-react passes MCS on 16 nodes, and is up to 64 % better on 32",
        "16; 64 %",
        "fast or slow switches: first faster beyond 3 % on 8, 16 or 32; the largest gain on 32: a factor 2",
        k10,
    ),
    claim(
        "K11",
        "radiosity: MP-cent beats MP-dist where contention is low, MP-dist MP-cent on many nodes or slow switches",
        "order",
        "4 nodes, fast, and 32 nodes, slow; beyond 3 %",
        k11,
    ),
    claim(
        "K12",
        "radiosity: MP-react is up to 10 % better than both MP-cent and MP-dist",
        "10 %",
        "0 to 15 % better at best, nowhere more than 5 % worse than the better one",
        k12,
    ),
    claim(
        "K13",
        "raytrace on 4 and 8 nodes: locks in shared memory are up to 14 % better",
        "14 %",
        "the best of each kind, fast or slow switches: a factor 2",
        k13,
    ),
    claim(
        "K14",
        "raytrace on 32 nodes: locks by message are up to 75 % better than MCS",
        "75 %",
        "fast or slow switches: a factor 2; also with other values without a source (MP-dist, slow switches)",
        k14,
    ),
    claim(
        "K20",
        "Locks by message overtake those in shared memory on 16 nodes with fast switches, on 8 with slow ones",
        "16; 8",
        "each of the five programs, the best of each kind, beyond 3 %: at most twice as many nodes",
        k20,
    ),
    claim(
        "K21",
        "On 4 and 8 nodes locks by message lose at most 18 % in three programs, and 180 % in the other two",
        "18 %, 180 %",
        "the largest loss of the best by message, fast or slow switches: a factor 2 each",
        k21,
    ),
    claim(
        "K24",
        "On many nodes locks in shared memory make accesses to shared data slow, and the kernels' time under locks by message grows little",
        "order",
        "barnes, fast and slow: from 4 to 32 nodes shared data's time grows beyond 3 % under T&T&S and MCS, is on 32 longer than under MP-dist and MP-react beyond 3 %, and grows by a larger factor than the kernels' time under these",
        k24,
    ),
    claim(
        "K29",
        "The paper's slips: 97 % (Table 4: 96 %); radiosity's remote idle \"constant about 20 %\" (Table 4: 37 to 22 %); 15 % in the summary, 18 % in the text",
        "-",
        "none: a note",
        k29,
    ),
];

/// A program on both machines.
fn both(context: &Context<'_>, program: &str) -> Result<[Series; 2], Error> {
    both_on(context, program, &PROCS)
}

/// A program on both machines, on so many nodes.
fn both_on(context: &Context<'_>, program: &str, procs: &[usize]) -> Result<[Series; 2], Error> {
    let on = |machine| context.ask(&Sweep { procs: procs.to_vec(), ..question(machine, program) });
    Ok([on(BOTH[FAST])?, on(BOTH[SLOW])?])
}

/// The runs of a program on a machine.
pub(super) fn question(machine: &str, program: &str) -> Sweep {
    let (_, pattern, instruction, _) = *of_table_4(program);
    let sweep = Sweep::on("apps", machine, &ALL, &PROCS).set(instruction);
    Sweep { patterns: vec![pattern.into()], copies: vec![1], ..sweep }
}

fn of_table_4(program: &str) -> &'static (&'static str, &'static str, &'static str, [f64; 4]) {
    PROGRAMS.iter().find(|it| it.0 == program).expect("one of the paper's programs")
}

/// The cycles between two acquisitions of a node under MP-dist, fast switches, beside
/// those of Table 4. The first one is an input.
pub(super) fn rates(series: &Series, program: &str) -> String {
    let of = |(n, table): (usize, f64)| {
        let median = |metric| series.median(At::new(DISTRIBUTED, n), metric);
        let ours = median(COMPLETION_CYCLES) * n as f64 / median(ACQUISITIONS);
        format!("{n}: {} ({})", digits(ours), digits(table))
    };
    let text = PROCS.into_iter().zip(of_table_4(program).3).map(of).collect::<Vec<_>>().join(", ");
    format!("cycles between two acquisitions, and by Table 4: {text}")
}

/// A program's times, by machine, lock and nodes.
struct Times<'a>(&'a Lookup<'a>);

impl Times<'_> {
    fn of(&self, machine: usize, algorithm: &str, procs: usize) -> f64 {
        self.0(machine, At::new(algorithm, procs), COMPLETION_CYCLES)
    }

    fn best(&self, machine: usize, algorithms: &[&str], procs: usize) -> f64 {
        algorithms.iter().map(|a| self.of(machine, a, procs)).fold(f64::INFINITY, f64::min)
    }

    /// Gain of the best of some locks over the best of others, as a part of its time.
    fn gain(&self, machine: usize, fast: &[&str], slow: &[&str], procs: usize) -> f64 {
        self.best(machine, slow, procs) / self.best(machine, fast, procs) - 1.0
    }
}

fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::MIN, f64::max)
}

/// Judges a program's times on so many nodes, and shows them on all, of one seed, in
/// relation to MCS's.
fn judge(
    context: &Context<'_>,
    program: &str,
    procs: &[usize],
    against: impl Fn(&Times<'_>) -> Vec<String>,
) -> Result<Finding, Error> {
    let series = both_on(context, program, procs)?;
    judge_by(context, program, [&series[FAST], &series[SLOW]], against)
}

/// Judges a program by runs that were made already, and shows its times.
fn judge_by(
    context: &Context<'_>,
    program: &str,
    series: [&Series; 2],
    against: impl Fn(&Times<'_>) -> Vec<String>,
) -> Result<Finding, Error> {
    let against = judge_together(&series, &|v| against(&Times(v)));
    let series = both(&context.with_seeds(1), program)?;
    let ours = format!("{}; {}", show(&series), rates(&series[FAST], program));
    Ok(Finding::new(ours, against))
}

/// The paper's charts of a program, left column: times by MCS's, on each machine, with
/// what the text gives of the paper's; ours of one seed.
pub(super) fn charts(
    context: &Context<'_>,
    program: &str,
    paper: [&[OfPaper<'_>]; 2],
) -> Result<[String; 2], Error> {
    let series = both(&context.with_seeds(1), program)?;
    Ok([FAST, SLOW].map(|m| {
        let value = |a: &str, n: u32| {
            let n = n as usize;
            let of = |seed| {
                let time = |a: &str| series[m].with_seed(At::new(a, n), COMPLETION_CYCLES, seed);
                time(a) / time(MCS)
            };
            summarise(&(0..series[m].seeds()).map(of).collect::<Vec<_>>()).map(PlotValue::from)
        };
        let title = format!("{program} on {}: time ÷ MCS's (K figures 1 to 3, left)", BOTH[m]);
        by_processors_beside(&title, &ALL, &PROCS.map(|n| n as u32), value, paper[m], digits)
    }))
}

/// Times in relation to MCS's, and how far the mix is Table 4's.
pub(super) fn show(series: &[Series; 2]) -> String {
    let time = |s: &Series, a: &str, n| s.median(At::new(a, n), COMPLETION_CYCLES);
    let parts = BOTH.iter().zip(series).map(|(machine, s)| {
        let of = |a: &&str| {
            let parts = PROCS.map(|n| format!("{n}: {}", digits(time(s, a, n) / time(s, MCS, n))));
            format!("{a} {}", parts.join(", "))
        };
        let all = ALL.iter().filter(|a| **a != MCS).map(of).collect::<Vec<_>>().join("; ");
        format!("times ÷ MCS's on {machine}: {all}")
    });
    let mix = PROCS.map(|n| {
        let of = |metric| percent(series[FAST].median(At::new(DISTRIBUTED, n), metric));
        format!("{n}: {}, {}, {}", of(LOCAL_IDLE), of(REMOTE_BUSY), of(HOLDERS_ASKED))
    });
    let mix = format!("local idle, busy and holders interrupted under MP-dist, fast: {}", mix.join("; "));
    parts.chain([mix]).collect::<Vec<_>>().join("; ")
}

/// All machines and numbers of nodes but the one that the paper excepts.
fn usual() -> impl Iterator<Item = (usize, usize)> {
    [FAST, SLOW].into_iter().flat_map(|m| PROCS.map(|n| (m, n))).filter(|&at| at != (SLOW, 32))
}

fn k6(context: &Context<'_>) -> Result<Finding, Error> {
    let four = [TTS, MCS, DISTRIBUTED, REACTIVE];
    let plots = charts(context, "barnes", [&[], &[(DISTRIBUTED, vec![(32, 1.0 / 1.08)])]])?;
    judge(context, "barnes", &PROCS, |t| {
        let mut against = Vec::new();
        for (m, n) in usual() {
            let worst = four.iter().map(|a| t.of(m, a, n) / t.best(m, &four, n)).fold(f64::MIN, f64::max);
            if worst.is_nan() || worst > 1.05 {
                against.push(format!("{}, {n} nodes: {} times the fastest", BOTH[m], digits(worst)));
            }
        }
        against
    })
    .map(|finding| finding.with(plots).because("on 32 nodes half of the acquisitions are of locks that another node had last or has, as in Table 4, and one of these by message takes with fast switches two interrupts of 828 cycles (by K2, an input), where MCS takes four to twelve short hops: 2,000 cycles more for each acquisition of 39,000"))
}

fn k7(context: &Context<'_>) -> Result<Finding, Error> {
    judge(context, "barnes", &PROCS, |t| {
        let mut against = Vec::new();
        for (m, n) in usual() {
            let four = [TTS, MCS, DISTRIBUTED, REACTIVE].map(|a| t.of(m, a, n));
            let slower = t.of(m, CENTRAL, n) / (four.iter().sum::<f64>() / 4.0) - 1.0;
            if !(0.02..=0.10).contains(&slower) {
                against.push(format!("{}, {n} nodes: {}", BOTH[m], percent(slower)));
            }
        }
        against
    })
    .map(|finding| {
        finding.because("on up to 16 nodes it is as in the paper. On 32 a quarter of the acquisitions are of busy locks, as in Table 4, and each of these passes through its home's interrupt")
    })
}

fn k8(context: &Context<'_>) -> Result<Finding, Error> {
    // With fast switches nothing is asked of it.
    let slow = context.ask(&Sweep { procs: vec![32], ..question(BOTH[SLOW], "barnes") })?;
    judge_by(context, "barnes", [&slow, &slow], |t| {
        let mut against =
            within_factor("MP-dist's gain", t.gain(SLOW, &[DISTRIBUTED], &[MCS], 32), 0.08, 2.0);
        for other in [MCS, CENTRAL, DISTRIBUTED, REACTIVE] {
            if !above(t.of(SLOW, TTS, 32), t.of(SLOW, other, 32)) {
                against.push(format!("T&T&S is no slower than {other}"));
            }
        }
        against
    })
    .and_then(|finding| {
        slow_varied(context, finding, "barnes", &[TTS, MCS, DISTRIBUTED], &|name, t| {
            let mut against =
                within_factor(&format!("{name}: gain"), t.gain(0, &[DISTRIBUTED], &[MCS], 32), 0.08, 2.0);
            for other in [MCS, DISTRIBUTED] {
                if !above(t.of(0, TTS, 32), t.of(0, other, 32)) {
                    against.push(format!("{name}: T&T&S is no slower than {other}"));
                }
            }
            against
        })
    })
    .map(|finding| Finding { caveat: ONE_AT_A_TIME.into(), ..finding })
}

/// Adds contradictions on 32 nodes with slow switches and other values without a source.
fn slow_varied(
    context: &Context<'_>,
    mut finding: Finding,
    program: &str,
    algorithms: &[&str],
    judge: &dyn Fn(&str, &Times<'_>) -> Vec<String>,
) -> Result<Finding, Error> {
    for (name, series) in varied(context, BOTH[SLOW], program, algorithms, &[32])? {
        let against = judge_together(&[&series], &|v| judge(&name, &Times(v)));
        let medians = |_: usize, at: At<'_>, metric: Metric| series.median(at, metric);
        let gain = Times(&medians).gain(0, &[DISTRIBUTED], &[MCS], 32);
        finding.ours.push_str(&format!("; MP-dist's gain on 32, slow, {name}: {}", percent(gain)));
        finding = finding.varied(&name, against);
    }
    for change in EXCLUDED {
        let sweep = question(BOTH[SLOW], program);
        let algorithms = [DISTRIBUTED, MCS].map(str::to_string).into();
        let series = context.ask_once(&Sweep { algorithms, procs: vec![32], ..sweep }.set(change))?;
        let medians = |_: usize, at: At<'_>, metric: Metric| series.median(at, metric);
        let gain = Times(&medians).gain(0, &[DISTRIBUTED], &[MCS], 32);
        finding.ours.push_str(&format!("; with {change}, which K18 excludes, {}", percent(gain)));
    }
    Ok(finding)
}

fn k9(context: &Context<'_>) -> Result<Finding, Error> {
    const BEST: &str = "the best by message";
    let plots = charts(context, "radiosity", [&[(BEST, vec![(4, 1.18)])], &[(BEST, vec![(4, 1.13)])]])?;
    judge(context, "radiosity", &PROCS, |t| {
        [(FAST, 0.18), (SLOW, 0.13)]
            .into_iter()
            .flat_map(|(m, paper)| within_factor(BOTH[m], t.gain(m, &[MCS], &MESSAGES, 4), paper, 2.0))
            .collect()
    })
    .map(|finding| {
        finding.with(plots).because(
            "Table 4's rate leaves 20,900 cycles between two acquisitions of a node. For 18 % one by message would have to cost 3,800 cycles more than MCS's; 43 % of Table 4's are of locks that another node had last (34 % of ours), and two hops take 1,400 (K2, an input)",
        )
    })
}

fn k10(context: &Context<'_>) -> Result<Finding, Error> {
    judge(context, "radiosity", &PROCS, |t| {
        let passes = |m| PROCS.into_iter().find(|&n| below(t.of(m, REACTIVE, n), t.of(m, MCS, n)));
        let mut against = Vec::new();
        if !BOTH.iter().enumerate().any(|(m, _)| passes(m).is_some_and(|n| n > 4)) {
            let first = |m: usize| passes(m).map_or("never".into(), |n| format!("on {n}"));
            against.push(format!(
                "MP-react is faster first {} (fast) and {} (slow)",
                first(FAST),
                first(SLOW)
            ));
        }
        let gain = most([FAST, SLOW].map(|m| t.gain(m, &[REACTIVE], &[MCS], 32)));
        against.extend(within_factor("the gain on 32", gain, 0.64, 2.0));
        against
    })
    .map(|finding| {
        finding.because(
            "33 % of our acquisitions on 32 nodes are of busy locks, where Table 4 has 59 %; a lock that is always busy passes in 46 µs under MCS and in 32 µs under MP-dist there with slow switches (K22), which bounds the gain by 46 %",
        )
    })
}

fn k11(context: &Context<'_>) -> Result<Finding, Error> {
    judge(context, "radiosity", &PROCS, |t| {
        let mut against = Vec::new();
        let ratio = |m, n| t.of(m, CENTRAL, n) / t.of(m, DISTRIBUTED, n);
        if !below(ratio(FAST, 4), 1.0) {
            against.push(format!("on 4, fast, MP-cent takes {} times as long as MP-dist", digits(ratio(FAST, 4))));
        }
        if !above(ratio(SLOW, 32), 1.0) {
            against.push(format!("on 32, slow, MP-cent takes {} times as long", digits(ratio(SLOW, 32))));
        }
        against
    })
    .map(|finding| finding.because("by Table 4 57 % of radiosity's locks on 4 nodes were last held by the same node; there MP-dist takes a system call and MP-cent two messages, an interrupt for the request and one for the release. The other 43 % would have to cost MP-dist 3,000 cycles more than MP-cent to make up for it; by Table 1 they cost it one hop and one interrupt more"))
}

fn k12(context: &Context<'_>) -> Result<Finding, Error> {
    judge(context, "radiosity", &PROCS, |t| {
        let at = || [FAST, SLOW].into_iter().flat_map(|m| PROCS.map(|n| (m, n)));
        let gains = || at().map(|(m, n)| t.gain(m, &[REACTIVE], &[CENTRAL, DISTRIBUTED], n));
        let mut against = Vec::new();
        if !(0.0..=0.15).contains(&most(gains())) {
            against.push(format!("at best {}", percent(most(gains()))));
        }
        against.extend(
            at().zip(gains())
                .filter(|(_, gain)| gain.is_nan() || *gain < -0.05)
                .map(|((m, n), gain)| format!("{}, {n} nodes: {}", BOTH[m], percent(gain))),
        );
        against
    })
    .map(|finding| Finding {
        caveat: "the tolerance includes no gain, so what would be shown is that MP-react is nowhere worse".into(),
        ..finding.because("two of three locks are at hand on 4 nodes, which MP-dist serves as well; MP-react, which has to find that out lock by lock, comes within 2 %")
    })
}

fn k13(context: &Context<'_>) -> Result<Finding, Error> {
    let plots = charts(context, "raytrace", [&[], &[]])?;
    judge(context, "raytrace", &[4, 8], |t| {
        let gains = [FAST, SLOW].into_iter().flat_map(|m| [4, 8].map(|n| t.gain(m, &SHARED, &MESSAGES, n)));
        within_factor("the gain", most(gains), 0.14, 2.0)
    })
    .and_then(|finding| also_varied(context, finding.with(plots), "raytrace", 0.14))
}

/// Adds the largest gain of locks in shared memory on 4 and 8 nodes with other values of
/// the parameters that have no source, and what of it contradicts the paper.
fn also_varied(
    context: &Context<'_>,
    mut finding: Finding,
    program: &str,
    paper: f64,
) -> Result<Finding, Error> {
    for (name, series) in varied(context, BOTH[FAST], program, &ALL, &[4, 8])? {
        let gain = |v: &Lookup<'_>| most([4, 8].map(|n| Times(v).gain(FAST, &SHARED, &MESSAGES, n)));
        let against = judge_together(&[&series], &|v| within_factor(&name, gain(v), paper, 2.0));
        let medians = |_: usize, at: At<'_>, metric: Metric| series.median(at, metric);
        finding.ours.push_str(&format!("; gain on {program}, fast, {name}: {}", percent(gain(&medians))));
        if !against.is_empty() && finding.verdict == Verdict::Reproduced {
            let text = format!("depends on values without a source: {}", against.join("; "));
            finding.verdict = Verdict::NotReproduced(text);
        }
    }
    Ok(finding)
}

fn k14(context: &Context<'_>) -> Result<Finding, Error> {
    judge(context, "raytrace", &[32], |t| {
        let gain = most([FAST, SLOW].map(|m| t.gain(m, &MESSAGES, &[MCS], 32)));
        within_factor("the gain", gain, 0.75, 2.0)
    })
    .and_then(|finding| {
        slow_varied(context, finding, "raytrace", &[MCS, DISTRIBUTED], &|name, t| {
            within_factor(&format!("{name}: gain"), t.gain(0, &[DISTRIBUTED], &[MCS], 32), 0.75, 2.0)
        })
    })
    .map(|finding| Finding { caveat: ONE_AT_A_TIME.into(), ..finding })
}

/// Caveat of claims that hold by parameters that an input has given.
const ONE_AT_A_TIME: &str = "missed with homes that have any number of transactions under way; that they have one at a time, and all locks in shared memory one home, is derived from K18's 163 % after this claim was known to be missed, and K18 is not counted";

/// Numbers of nodes from which on the best lock by message is faster than the best in
/// shared memory, by machine.
fn overtakes(t: &Times<'_>) -> [Option<usize>; 2] {
    [FAST, SLOW].map(|m| PROCS.into_iter().find(|&n| below(t.best(m, &MESSAGES, n), t.best(m, &SHARED, n))))
}

fn k20(context: &Context<'_>) -> Result<Finding, Error> {
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    for program in CHANGING.iter().chain(&UNCHANGING) {
        let series = both(context, program)?;
        let series = [&series[FAST], &series[SLOW]];
        let text = |first: Option<usize>| first.map_or("never".into(), |n| format!("on {n}"));
        against.extend(judge_together(&series, &|v| {
            let late = overtakes(&Times(v)).into_iter().zip([32, 16]).zip(["fast", "slow"]);
            late.filter(|((first, most), _)| first.is_none_or(|n| n > *most))
                .map(|((first, _), switches)| format!("{program}, {switches}: {}", text(first)))
                .collect()
        }));
        let medians = |m: usize, at: At<'_>, metric: Metric| series[m].median(at, metric);
        let first = overtakes(&Times(&medians)).map(text);
        ours.push(format!("{program} {} (fast), {} (slow)", first[FAST], first[SLOW]));
    }
    let finding = Finding::new(ours.join("; "), against);
    Ok(finding.because(
        "locks by message win where a lock or the locks' home is busy and hops are long. With fast switches twelve hops of MCS take less than two interrupts of 828 cycles (by K2, an input), and only mp3d's locks occupy their home then",
    ))
}

fn k21(context: &Context<'_>) -> Result<Finding, Error> {
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    for (programs, paper) in [(CHANGING.as_slice(), 0.18), (UNCHANGING.as_slice(), 1.8)] {
        let all = programs.iter().map(|p| both_on(context, p, &[4, 8])).collect::<Result<Vec<_>, _>>()?;
        let flat: Vec<&Series> = all.iter().flatten().collect();
        let worst = |v: &Lookup<'_>| {
            let t = Times(v);
            most((0..flat.len()).flat_map(|i| [4, 8].map(|n| t.gain(i, &SHARED, &MESSAGES, n))))
        };
        let name = programs.join(", ");
        against.extend(judge_together(&flat, &|v| within_factor(&name, worst(v), paper, 2.0)));
        let medians = |i: usize, at: At<'_>, metric: Metric| flat[i].median(at, metric);
        ours.push(format!("{name}: {}", percent(worst(&medians))));
    }
    let finding = Finding::new(ours.join("; "), against);
    // The programs with the largest losses.
    let finding = also_varied(context, finding, "raytrace", 0.18)?;
    also_varied(context, finding, "mp3d", 1.8)
}

fn k24(context: &Context<'_>) -> Result<Finding, Error> {
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    for (machine, series) in BOTH.iter().zip(both(context, "barnes")?) {
        against.extend(series.judge(|v| {
            let mut against = Vec::new();
            let on = |a, n, metric| v(At::new(a, n), metric);
            let grows = |a, metric| on(a, 32, metric) / on(a, 4, metric);
            for a in SHARED {
                if not_above(grows(a, SHARED_TIME), 1.0) {
                    against.push(format!("{machine}: shared data's time does not grow under {a}"));
                }
                for b in [DISTRIBUTED, REACTIVE] {
                    if !above(on(a, 32, SHARED_TIME), on(b, 32, SHARED_TIME)) {
                        against.push(format!("{machine}, 32 nodes: no longer under {a} than under {b}"));
                    }
                    if !below(grows(b, KERNEL_TIME), grows(a, SHARED_TIME)) {
                        against.push(format!(
                            "{machine}: {b}'s kernels grow as much as shared data's time under {a}"
                        ));
                    }
                }
            }
            against
        }));
        let text = |a: &str, metric, name: &str| {
            let values = PROCS.map(|n| {
                let part =
                    series.median(At::new(a, n), metric) / series.median(At::new(a, n), TIME_PER_OPERATION);
                format!("{n}: {}", percent(part / n as f64))
            });
            format!("{a}'s {name} {}", values.join(", "))
        };
        let parts = [
            text(TTS, SHARED_TIME, "shared data"),
            text(MCS, SHARED_TIME, "shared data"),
            text(DISTRIBUTED, SHARED_TIME, "shared data"),
            text(DISTRIBUTED, KERNEL_TIME, "kernels"),
        ];
        ours.push(format!("part of all time on {machine}: {}", parts.join("; ")));
    }
    let finding = Finding::new(ours.join("; "), against);
    Ok(finding.because("not explained. With controllers eight times as slow, on 32 nodes with slow switches, shared data still takes 14,000 cycles for each acquisition under MCS and under MP-dist: so few locks as barnes has do not occupy the controllers"))
}

fn k29(_: &Context<'_>) -> Result<Finding, Error> {
    Ok(Finding::not_checkable(
        "the paper contradicts itself there; Table 4 and the text of Section 5 are taken",
    ))
}
