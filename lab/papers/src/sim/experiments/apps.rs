//! The papers' applications: each under several locks, barriers, queues or claims of
//! messages.

use std::sync::Arc;

use towpath_apps::program::AnyApplication;
use towpath_apps::{Application, ProblemInput};
use towpath_sync::Policy;

use super::multiprogramming::with_scheduler;
use super::{Point, Runner, Simulate, Sweep, no_such_algorithm, procs, show};
use crate::sim::Run;
use crate::sim::apps::teams::{MOST, NamedPart, PARTS, usual};
use crate::sim::apps::{pattern, solve, solve_by_messages};
use crate::sim::messages::MessageAlgorithm;
use towpath_host::Error;
use towpath_report::record::RecordSubject;
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub(super) struct Applications;

/// Processors that an application runs on unless the user chooses.
const PROCS: [usize; 4] = [1, 4, 16, 64];

impl Experiment for Applications {
    fn name(&self) -> &'static str {
        "apps"
    }
    fn about(&self) -> &'static str {
        "the papers' applications, by lock, barrier, queue or claim of messages (L table 4, N figure 9)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        let mut all: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        let claims = MessageAlgorithm::ALL.map(MessageAlgorithm::name);
        all.extend(claims.iter().filter(|name| !PARTS.iter().any(|part| part.name == **name)));
        all
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        show::sections_of(self.name(), results)
    }
}

/// Algorithms of an application over shared memory.
fn parts(sweep: &Sweep, application: Application, copies: usize) -> Result<Vec<NamedPart>, Error> {
    let machine = &sweep.run.machine;
    let names: Vec<&str> = match sweep.algorithms.is_empty() {
        true => usual(machine, application).to_vec(),
        false => sweep.algorithms.iter().map(String::as_str).collect(),
    };
    let mut parts = Vec::new();
    for part in names.into_iter().filter_map(|name| NamedPart::find(machine, name)) {
        if let Some(why) = part.lacks(machine, copies) {
            return Err(Error::NotAvailable(why));
        }
        if part.is_used_by(application) {
            parts.push(part);
        }
    }
    Ok(parts)
}

/// Algorithms of an application over messages.
fn claims(sweep: &Sweep) -> Vec<MessageAlgorithm> {
    match sweep.algorithms.is_empty() {
        true => MessageAlgorithm::PAPER.to_vec(),
        false => sweep.algorithms.iter().filter_map(|name| MessageAlgorithm::from_name(name)).collect(),
    }
}

/// Refuses settings that an application over messages does not have.
fn check_settings_of_messages(sweep: &Sweep, name: &str) -> Result<(), Error> {
    let option = if sweep.waiting.iter().any(|&waiting| waiting != Policy::Spin) {
        "--waiting"
    } else if sweep.copies.iter().any(|&copies| copies != 1) {
        "--copies"
    } else {
        return Ok(());
    };
    Err(Error::NotAvailable(format!(
        "`{name}` is an application over messages, in one copy, whose ranks poll: leave {option} out"
    )))
}

/// Setting of an application's run, but for its algorithm.
struct Setting<'a> {
    sweep: &'a Sweep,
    name: &'a str,
    run: Run,
    scheduler: Option<&'a str>,
}

impl Setting<'_> {
    fn point(&self, algorithm: &str, runner: Runner) -> Point {
        let (run, sweep) = (self.run.clone(), self.sweep);
        let waiting = run.waiting.name();
        let subject = RecordSubject::new(sweep.experiment, algorithm, waiting, run.procs as u32);
        let mut subject = subject.with("pattern", self.name);
        if let Some(scheduler) = self.scheduler {
            subject = subject.with("copies", run.copies).with("scheduler", scheduler);
        }
        Point { subject, run, runner }
    }

    fn shared(&self, application: Application, input: ProblemInput) -> Result<Vec<Point>, Error> {
        let of = |part: NamedPart| {
            self.point(part.name, Arc::new(move |run: &Run| solve(run, application, input, part)))
        };
        Ok(parts(self.sweep, application, self.run.copies)?.into_iter().map(of).collect())
    }
}

impl Simulate for Applications {
    fn points(&self, sweep: &Sweep) -> Result<Vec<Point>, Error> {
        let mut sweep = sweep.clone();
        let machine = sweep.run.machine.clone();
        if sweep.procs.is_empty() {
            let fits = |n: &usize| *n <= machine.processors as usize;
            sweep.procs = PROCS.into_iter().filter(fits).collect();
        }
        let all = procs(&sweep)?;
        if let Some(n) = all.iter().find(|n| **n > MOST) {
            return Err(Error::NotAvailable(format!("{n} processors: applications run on 1 to {MOST}")));
        }
        let known = self.algorithms();
        if let Some(name) = sweep.algorithms.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(no_such_algorithm(name, &known));
        }
        let mut patterns = sweep.patterns.clone();
        if patterns.is_empty() {
            patterns = AnyApplication::all().map(|application| application.name().into()).collect();
        }
        let mut points = Vec::new();
        for name in &patterns {
            let (application, input) = pattern(name)?;
            for &procs in &all {
                let run = Run { procs, copies: 1, ..sweep.run.clone() };
                let mut setting = Setting { sweep: &sweep, name, run, scheduler: None };
                let application = match application {
                    AnyApplication::Shared(application) => application,
                    AnyApplication::Messages(application) => {
                        if !sweep.patterns.is_empty() {
                            check_settings_of_messages(&sweep, name)?;
                        }
                        setting.run.waiting = Policy::Spin;
                        points.extend(claims(&sweep).into_iter().map(|algorithm| {
                            let runner =
                                move |run: &Run| solve_by_messages(run, application, input.size, algorithm);
                            setting.point(algorithm.name(), Arc::new(runner))
                        }));
                        continue;
                    }
                };
                for &waiting in &sweep.waiting {
                    setting.run.waiting = waiting;
                    for &copies in &sweep.copies {
                        setting.run.copies = copies;
                        if copies == 1 {
                            (setting.scheduler, setting.run.machine) = (None, machine.clone());
                            points.extend(setting.shared(application, input)?);
                            continue;
                        }
                        for scheduler in &sweep.schedulers {
                            setting.scheduler = Some(scheduler);
                            setting.run.machine = with_scheduler(&machine, scheduler)?;
                            points.extend(setting.shared(application, input)?);
                        }
                    }
                }
            }
        }
        if points.is_empty() {
            let text = format!("none of these algorithms is a part of {}", patterns.join(", "));
            return Err(Error::NotAvailable(text));
        }
        Ok(points)
    }
}
