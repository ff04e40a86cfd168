//! Every state, once: depth-first, without a way on from a state that was seen.
//!
//! **Source.** Godefroid 1996 (as `dfs.rs`): sleep sets beside a memory of states. A state that is
//! met again with other sleepers is gone on from by those that have slept at each visit. Orders of
//! calls are those of Wing & Gong 1993 and Lowe 2017 (`linearizability.rs`), all at once.
//!
//! Two runs are in the same state if no continuation can tell them apart: the same writes can be
//! taken of each word (`words/fingerprint.rs`), each thread has learned the same since its call
//! began ([`Processor::begin_anew`](towpath_machine::Processor::begin_anew) takes back what an
//! attempt in vain has learned), and the calls so far can be put in the same orders. States are
//! compared by a digest of 64 bits.
//!
//! **Left out.** Deaths, waits that give up, and steps of the system (parks, mutexes, reservations,
//! heavy fences): a subject that takes one is refused. A thread that backs off goes on at once, so
//! that one which would wait for ever is not noticed. An algorithm that breaks the promise of
//! `begin_anew` may have states that are taken for others.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;

use crate::dfs::Branching;
use crate::end::End;
use crate::footprint::Footprint;
use crate::history::History;
use crate::linearizability::Specification;
use crate::machine::CLOCKS;
use crate::run::{Chooser, View};
use crate::schedule::StepChoice;
use crate::thread::ExploredThread;

/// Orders of a run's calls on which later calls can depend; by default of no calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenCalls {
    /// A digest of the orders in which the calls can have taken effect.
    pub(crate) digest: u64,
    /// Ends of calls that others may still come before: thread, and its clock.
    pub(crate) ends: Vec<(usize, u32)>,
}

/// The states that were seen, and the place in the tree of schedules.
#[derive(Debug, Default)]
pub(crate) struct SeenStates {
    /// Options of each state, a bit each, that were not tried from there: sleep sets.
    seen: HashMap<u64, u64, BuildHasherDefault<Mixer>>,
    nodes: Vec<Branching>,
    depth: usize,
    /// True if a state had no digest.
    pub is_refused: bool,
}

impl SeenStates {
    /// Returns the number of states.
    pub fn count(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Goes to the next schedule. `false`: there is none.
    pub fn advance(&mut self) -> bool {
        while let Some(node) = self.nodes.last_mut() {
            if node.advance() {
                self.depth = self.nodes.len() - 1;
                return true;
            }
            self.nodes.pop();
        }
        false
    }
}

impl Chooser for SeenStates {
    fn known(&mut self) -> Option<StepChoice> {
        let node = self.nodes.get(self.depth)?;
        self.depth += 1;
        Some(node.choice())
    }

    fn choose(&mut self, view: &View) -> Option<StepChoice> {
        self.is_refused |= view.state.is_none() || view.options.len() > u64::BITS as usize;
        let state = view.state.filter(|_| !self.is_refused)?;
        let asleep = self.nodes.last().map(Branching::sleepers).unwrap_or_default();
        let sleeps = |choice: &StepChoice| asleep.iter().any(|(c, _)| c == choice);
        let bits = view.options.iter().enumerate().map(|(n, choice)| u64::from(sleeps(choice)) << n);
        let left = bits.fold(0, |set, bit| set | bit);
        // Those that slept at each visit before, and do not now.
        let before = self.seen.entry(state).or_insert(u64::MAX);
        let wake = *before & !left;
        *before &= left;
        let options = view.options.iter().enumerate().filter(|(n, _)| wake >> n & 1 == 1);
        let options: Vec<StepChoice> = options.map(|(_, choice)| *choice).collect();
        let first = *options.first()?;
        self.nodes.push(Branching::new(options, asleep));
        self.depth += 1;
        Some(first)
    }

    fn comes_back(&self) -> bool {
        self.nodes.last().is_some_and(Branching::has_more)
    }

    fn executed(&mut self, footprint: &Footprint) {
        let Some(node) = self.depth.checked_sub(1).and_then(|at| self.nodes.get_mut(at)) else { return };
        node.executed(footprint);
    }
}

/// Hasher of few numbers, which mixes each in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixer(u64);

impl Mixer {
    /// A hasher that goes on from where another one was.
    pub fn resume(at: u64) -> Mixer {
        Mixer(at)
    }

    /// Digest so far, not mixed for the last time.
    pub fn at(self) -> u64 {
        self.0
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        // Both halves of a product, by which each bit reaches all others.
        let product = u128::from(self.0 ^ n) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(0xc4ce_b9fe_1a85_ec53);
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn finish(&self) -> u64 {
        // Murmur3's last mixing.
        let mut x = self.0;
        x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ x >> 33
    }
}

pub(crate) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = Mixer::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Calls, a bit each.
type Calls = u128;

fn each(calls: Calls) -> impl Iterator<Item = usize> {
    (0..Calls::BITS as usize).filter(move |call| calls >> call & 1 == 1)
}

/// Calls that took effect, and the state that they leave.
///
/// For those without a result also a digest of the states in which they took it.
type Taken<State> = (Calls, State, u64);

impl<Op: Clone + Debug + Hash, Res: Clone + Debug + Hash> History<Op, Res> {
    /// Lists the orders of the calls so far on which later calls can depend.
    ///
    /// An order of some of them matters if what is not known yet can come next in it: the result
    /// of a call that has not ended, or a call that has not begun.
    pub fn open<S: Specification<Op = Op, Result = Res>>(&self, end: &End, specification: &S) -> OpenCalls {
        let by_clocks = end.is_by_clocks().then(|| self.digest_by_clocks(end));
        if let Some(orders) =
            by_clocks.and_then(|history| end.inner.histories.borrow().get(&history).cloned())
        {
            return self.calls_of(&orders);
        }
        let calls = self.so_far(end);
        let set = |is_in: &dyn Fn(&CallSoFar<Op, Res>) -> bool| {
            calls.iter().enumerate().fold(0, |set: Calls, (n, call)| set | Calls::from(is_in(call)) << n)
        };
        let has_ended = set(&|call| call.ended.is_some());
        let alive = end.inner.alive();
        // For each thread the calls that its next one comes after.
        let known: Vec<Calls> =
            alive.map(|(index, t)| set(&|call| call.comes_before_calls_of(index, t, end))).collect();
        let history = by_clocks.unwrap_or_else(|| digest(&(&calls, &known)));
        if let Some(orders) = end.inner.histories.borrow().get(&history) {
            return self.calls_of(orders);
        }
        let all = set(&|_| true);
        let mut found: HashSet<Taken<S::State>, BuildHasherDefault<Mixer>> = HashSet::default();
        let mut next = vec![(0, specification.initial(), 0u64)];
        let mut kept: Vec<(Calls, u64, u64)> = Vec::new();
        while let Some((done, state, implied)) = next.pop() {
            let rest = all & !done;
            let comes_next = |i: &usize| calls[*i].before & rest == 0;
            let is_open = each(rest & !has_ended).any(|i| comes_next(&i));
            if rest == 0 || is_open || known.iter().any(|known| rest & known == 0) {
                kept.push((done, digest(&state), implied));
            }
            for i in each(rest).filter(comes_next) {
                let call = &calls[i];
                let Some(after) = specification.step(&state, &call.op, call.result.as_ref()) else {
                    continue;
                };
                let implied = match call.result {
                    Some(_) => implied,
                    None => implied.wrapping_add(digest(&(i, &state))),
                };
                let taken = (done | 1 << i, after, implied);
                if found.insert(taken.clone()) {
                    next.push(taken);
                }
            }
        }
        kept.sort_unstable();
        let open = kept.iter().fold(0, |set, (done, ..)| set | !done) & all;
        let mut hasher = Mixer::default();
        (calls.len(), kept).hash(&mut hasher);
        for i in each(open) {
            let call = &calls[i];
            (i, digest(&call.result), call.before & open, call.thread).hash(&mut hasher);
        }
        let place = |i: usize| calls[..i].iter().filter(|call| call.thread == calls[i].thread).count();
        let ended = each(open & has_ended).filter(|&i| calls[i].thread < CLOCKS);
        let ended = ended.map(|i| (calls[i].thread, place(i))).collect();
        let orders = OpenOrders { digest: hasher.finish(), ended };
        let open = self.calls_of(&orders);
        end.inner.histories.borrow_mut().insert(history, orders);
        open
    }

    fn calls_of(&self, orders: &OpenOrders) -> OpenCalls {
        let ends = orders.ended.iter().filter_map(|&(thread, n)| Some((thread, self.end_of(thread, n)?)));
        OpenCalls { digest: orders.digest, ends: ends.collect() }
    }
}

/// Orders of a history's calls on which later calls can depend.
#[derive(Clone, Debug)]
pub(crate) struct OpenOrders {
    digest: u64,
    /// Ended calls that others may still come before: thread, and number among its calls.
    ended: Rc<[(usize, usize)]>,
}

/// States by the digest of a history.
pub(crate) type Histories = HashMap<u64, OpenOrders, BuildHasherDefault<Mixer>>;

impl<Op: Hash, Res: Hash> Hash for CallSoFar<Op, Res> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.thread, digest(&self.op), digest(&self.result), self.before).hash(hasher);
    }
}

/// A call so far.
pub(crate) struct CallSoFar<Op, Res> {
    pub thread: usize,
    pub op: Op,
    pub result: Option<Res>,
    /// Thread's own clock when it ended.
    pub ended: Option<u32>,
    /// Ended calls that came before it, a bit each.
    pub before: Calls,
}

impl<Op, Res> CallSoFar<Op, Res> {
    /// Returns whether it comes before all calls of this thread that have not begun.
    fn comes_before_calls_of(&self, index: usize, thread: &ExploredThread, end: &End) -> bool {
        index == self.thread
            || self.ended.is_some_and(|ended| {
                self.thread >= CLOCKS || !end.is_by_clocks() || thread.clock[self.thread] >= ended
            })
    }
}
