//! Every schedule, one after the other: depth-first, without those that differ from an
//! earlier one only in the order of steps that have nothing to do with each other.
//!
//! **Source.** Godefroid 1996, *Partial-Order Methods for the Verification of Concurrent Systems*:
//! sleep sets. Two steps depend on each other if they are the same thread's, if one changes what
//! the other touches, or if one ends a call and the other begins one (which call came before which
//! is part of what is judged).
//!
//! With a bound on preemptions (Musuvathi & Qadeer 2007) sleep sets are off: an order that the
//! bound has cut off cannot stand for another.

use crate::footprint::Footprint;
use crate::run::{Chooser, View};
use crate::schedule::StepChoice;

/// Choices at a step, one of which is being tried.
#[derive(Debug)]
pub(crate) struct Branching {
    pub options: Vec<StepChoice>,
    /// Footprints of the choices tried; the last one is being tried.
    tried: Vec<Footprint>,
    current: usize,
    /// Choices that need not be tried here: an equal run was seen in another order.
    pub asleep: Vec<(StepChoice, Footprint)>,
}

impl Branching {
    pub fn new(options: Vec<StepChoice>, asleep: Vec<(StepChoice, Footprint)>) -> Branching {
        Branching { options, tried: Vec::new(), current: 0, asleep }
    }

    /// The choice that is being tried.
    pub fn choice(&self) -> StepChoice {
        self.options[self.current]
    }

    /// Returns whether there are choices after this one.
    pub fn has_more(&self) -> bool {
        self.current + 1 < self.options.len()
    }

    /// Goes to the next choice. `false`: there is none.
    pub fn advance(&mut self) -> bool {
        let is_there = self.tried.len() == self.current + 1 && self.has_more();
        self.current += usize::from(is_there);
        is_there
    }

    /// Notes the footprint of the choice that is being tried.
    pub fn executed(&mut self, footprint: &Footprint) {
        if self.tried.len() == self.current {
            self.tried.push(*footprint);
        }
    }

    /// Choices that sleep after this step.
    pub fn sleepers(&self) -> Vec<(StepChoice, Footprint)> {
        let Some(did) = self.tried.get(self.current) else { return Vec::new() };
        let before = self.options.iter().copied().zip(self.tried.iter().copied()).take(self.current);
        let sleeps = |(c, f): &(StepChoice, Footprint)| c.thread != self.choice().thread && !f.depends(did);
        self.asleep.iter().copied().chain(before).filter(sleeps).collect()
    }
}

/// The place in the tree of schedules.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<DfsNode>,
    depth: usize,
    /// Maximum number of interruptions of threads that could go on; `None`: without
    /// limit.
    preemptions: Option<u32>,
}

#[derive(Debug)]
struct DfsNode {
    branching: Branching,
    /// Interruptions before this step.
    interrupted: u32,
    last: Option<usize>,
}

impl DfsNode {
    fn interrupts(&self, choice: StepChoice) -> bool {
        let could_go_on = |last| self.branching.options.contains(&StepChoice::normal(last));
        self.last.is_some_and(|last| last != choice.thread && could_go_on(last))
    }
}

impl Tree {
    pub fn new(preemptions: Option<u32>) -> Tree {
        Tree { nodes: Vec::new(), depth: 0, preemptions }
    }

    /// Returns a new node's inheritance from the step that led to it.
    fn inherited(&self) -> (Vec<(StepChoice, Footprint)>, u32) {
        let Some(parent) = self.nodes.last() else { return (Vec::new(), 0) };
        let interrupted = parent.interrupted + u32::from(parent.interrupts(parent.branching.choice()));
        let asleep = if self.preemptions.is_none() { parent.branching.sleepers() } else { Vec::new() };
        (asleep, interrupted)
    }

    /// Goes to the next schedule. `false`: there is none.
    pub fn advance(&mut self) -> bool {
        self.depth = 0;
        while let Some(node) = self.nodes.last_mut() {
            if node.branching.advance() {
                return true;
            }
            self.nodes.pop();
        }
        false
    }
}

impl Chooser for Tree {
    fn choose(&mut self, view: &View) -> Option<StepChoice> {
        if let Some(node) = self.nodes.get(self.depth) {
            self.depth += 1;
            return Some(node.branching.choice());
        }
        let (asleep, interrupted) = self.inherited();
        let mut options = view.options.to_vec();
        // The thread that ran last goes on first: few interruptions before many.
        options.sort_by_key(|o| (o.turn, Some(o.thread) != view.last, o.thread));
        let branching = Branching::new(options, asleep);
        let mut node = DfsNode { branching, interrupted, last: view.last };
        if self.preemptions.is_some_and(|bound| interrupted >= bound) {
            let is_kept = |o: &StepChoice| o.turn.is_death() || !node.interrupts(*o);
            node.branching.options = node.branching.options.iter().copied().filter(is_kept).collect();
        }
        let Branching { options, asleep, .. } = &mut node.branching;
        options.retain(|o| !asleep.iter().any(|(c, _)| c == o));
        let first = options.first().copied();
        if first.is_some() {
            self.nodes.push(node);
            self.depth += 1;
        }
        first
    }

    fn executed(&mut self, footprint: &Footprint) {
        let Some(node) = self.depth.checked_sub(1).and_then(|at| self.nodes.get_mut(at)) else { return };
        node.branching.executed(footprint);
    }
}
