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
    options: Vec<StepChoice>,
    /// Footprints of the choices tried; the last one is being tried.
    tried: Vec<Footprint>,
    current: usize,
    /// Choices that need not be tried here: an equal run was seen in another order.
    asleep: Vec<(StepChoice, Footprint)>,
    /// Interruptions before this step.
    interrupted: u32,
    last: Option<usize>,
}

impl DfsNode {
    fn interrupts(&self, choice: StepChoice) -> bool {
        let could_go_on = |last| self.options.contains(&StepChoice::normal(last));
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
        let choice = parent.options[parent.current];
        let interrupted = parent.interrupted + u32::from(parent.interrupts(choice));
        let Some(did) = parent.tried.get(parent.current).filter(|_| self.preemptions.is_none()) else {
            return (Vec::new(), interrupted);
        };
        let before = parent.options.iter().copied().zip(parent.tried.iter().copied()).take(parent.current);
        let asleep = parent.asleep.iter().copied().chain(before);
        let asleep = asleep.filter(|(c, f)| c.thread != choice.thread && !f.depends(did)).collect();
        (asleep, interrupted)
    }

    /// Goes to the next schedule. `false`: there is none.
    pub fn advance(&mut self) -> bool {
        self.depth = 0;
        while let Some(node) = self.nodes.last_mut() {
            if node.tried.len() == node.current + 1 && node.current + 1 < node.options.len() {
                node.current += 1;
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
            return Some(node.options[node.current]);
        }
        let (asleep, interrupted) = self.inherited();
        let mut options = view.options.to_vec();
        // The thread that ran last goes on first: few interruptions before many.
        options.sort_by_key(|o| (o.turn, Some(o.thread) != view.last, o.thread));
        let mut node =
            DfsNode { options, tried: Vec::new(), current: 0, asleep, interrupted, last: view.last };
        if self.preemptions.is_some_and(|bound| interrupted >= bound) {
            let kept: Vec<StepChoice> =
                node.options.iter().copied().filter(|o| o.turn.is_death() || !node.interrupts(*o)).collect();
            node.options = kept;
        }
        node.options.retain(|o| !node.asleep.iter().any(|(c, _)| c == o));
        let first = node.options.first().copied();
        if first.is_some() {
            self.nodes.push(node);
            self.depth += 1;
        }
        first
    }

    fn executed(&mut self, footprint: &Footprint) {
        let Some(node) = self.depth.checked_sub(1).and_then(|at| self.nodes.get_mut(at)) else { return };
        if node.tried.len() == node.current {
            node.tried.push(*footprint);
        }
    }
}
