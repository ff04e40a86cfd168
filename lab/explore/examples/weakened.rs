//! Subjects of the explorer with an ordering weakened or a step left out, for
//! `ci/weaken-orderings` and `ci/leave-out-repairs`.
//!
//! `weakened list` prints the names of the subjects, `weakened reach` each place of an access with
//! the subjects that reach it (`weakened reach TEXT`: of those with this in their names). `weakened
//! try` reads trials from its input, a line each, and answers each with a line; `weakened show`
//! answers with the shortest schedule that fails, and its steps.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Write, stdin, stdout};

use towpath_explore::harness::Case;
use towpath_explore::subjects::subjects;
use towpath_explore::{Liberties, Method, Plan, SearchSettings, first_fault, search};
use towpath_machine::weaken::{self, AccessPlace, Weakening};
use towpath_sync::Policy;

/// Schedules of each kind by which a subject shows its places.
const LOOKS: u64 = 40;

fn settings(method: Method, plan: Plan, kills: u32, schedules: u64) -> SearchSettings {
    let liberties = Liberties { kills, ..Liberties::default() };
    SearchSettings { method, liberties, ..SearchSettings::new(plan, schedules) }
}

/// Prints place, subject, policy, and whether the subject endures deaths.
///
/// Only of subjects with this text in their names.
fn reach(text: &str) {
    let mut reached: BTreeMap<AccessPlace, Vec<String>> = BTreeMap::new();
    for (policy, policy_name) in Policy::ALL {
        for case in
            subjects(policy).iter().filter(|c| c.name.contains(text) && !c.name.starts_with("planted/"))
        {
            let (places, ()) = weaken::places(|| {
                for kills in [0, 1] {
                    for method in [Method::Random, Method::Pct { depth: 3 }] {
                        for (threads, ops) in [(2, 3), (3, 4), (5, 2)] {
                            let plan = Plan { threads, ops };
                            // A subject that does not take the plan reaches nothing by it.
                            let _ = first_fault(case, &settings(method, plan, kills, LOOKS));
                        }
                    }
                }
            });
            for place in places {
                let subject = format!("{}\t{policy_name}\t{}", case.name, case.endures_deaths);
                reached.entry(place).or_default().push(subject);
            }
        }
    }
    for (place, subjects) in reached {
        for subject in subjects {
            println!("{place}\t{subject}");
        }
    }
}

/// Method of this name: `random`, `pct`, with its depth, or `dfs`, with the bound on
/// preemptions if there is one.
fn method(text: &str) -> Option<Method> {
    let (name, number) = text.split_at(text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len()));
    let number: Option<u32> = number.parse().ok();
    match (name, number) {
        ("random", None) => Some(Method::Random),
        ("pct", Some(depth)) => Some(Method::Pct { depth }),
        ("states", None) => Some(Method::States),
        ("dfs", preemptions) => Some(Method::Dfs { preemptions }),
        _ => None,
    }
}

/// Subjects by policy, made once.
#[derive(Default)]
struct Known(BTreeMap<String, Vec<Case>>);

impl Known {
    /// Answer to a trial. Its words, by tabulators: weakening (or `-`), subject, policy,
    /// threads, operations, method, deaths, schedules.
    fn answer(&mut self, line: &str, shows: bool) -> Result<String, String> {
        let words: Vec<&str> = line.split('\t').collect();
        let [weakening, subject, policy, threads, ops, by, kills, schedules] = words[..] else {
            return Err(format!("eight words, not {}", words.len()));
        };
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        let method = method(by).ok_or_else(|| format!("{by}: no method"))?;
        let plan = Plan { threads: number(threads)? as usize, ops: number(ops)? as usize };
        let settings = settings(method, plan, number(kills)? as u32, number(schedules)?);
        if !self.0.contains_key(policy) {
            let waiting = Policy::from_name(policy).ok_or_else(|| format!("{policy}: no policy"))?;
            self.0.insert(policy.into(), subjects(waiting));
        }
        let case = self.0[policy].iter().find(|case| case.name == subject);
        let case = case.ok_or_else(|| format!("{subject}: no subject"))?;
        weaken::choose(if weakening == "-" { None } else { Some(weakening.parse::<Weakening>()?) });
        if shows {
            let report = search(case, &settings, &mut |_| {}).map_err(|error| error.to_string())?;
            let Some(found) = report.found else { return Ok("passed".into()) };
            return Ok(format!("{}\n{}\n{}", found.failure.text, found.replay, found.trace));
        }
        let (report, fault) = first_fault(case, &settings).map_err(|error| error.to_string())?;
        Ok(match fault {
            Some(fault) => format!("noticed\t{}\t{}", report.schedules, fault.fault.name()),
            None => {
                let extent = if report.exhausted { "all" } else { "some" };
                format!("passed\t{}\t{extent}, {} could differ", report.schedules, report.breached)
            }
        })
    }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("reach") => reach(&std::env::args().nth(2).unwrap_or_default()),
        Some("list") => {
            let names =
                Policy::ALL.into_iter().flat_map(|(policy, _)| subjects(policy)).map(|case| case.name);
            names.collect::<BTreeSet<_>>().iter().for_each(|name| println!("{name}"));
        }
        Some(how @ ("try" | "show")) => {
            let mut known = Known::default();
            for line in stdin().lock().lines().map_while(Result::ok) {
                let answer =
                    known.answer(&line, how == "show").unwrap_or_else(|error| format!("wrong\t0\t{error}"));
                println!("{answer}");
                if stdout().flush().is_err() {
                    return;
                }
            }
        }
        _ => {
            eprintln!("weakened list | reach | try | show: see ci/weaken-orderings");
            std::process::exit(2);
        }
    }
}
