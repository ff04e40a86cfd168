//! One round: the victim runs for k instructions of its act, is interrupted there, and
//! what came of it is judged.

use std::sync::atomic::Ordering::SeqCst;

use towpath_machine::Random;
use towpath_testkit::{Victim, watchdog};

use crate::acts::{Act, InSegment};
use crate::history::{Call, is_linearizable};
use crate::models::{Model, Op};
use crate::scene::{self, Never, OTHER, SURVIVOR, Shared, VICTIM};

/// Kind of interruption of the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Kill,
    Stop,
    Signal,
    Nested,
}

/// Maximum number of instructions into the first handler at which the second one comes.
const INTO_HANDLER: u64 = 1_500;

/// A structure under test.
pub struct Round<T: InSegment> {
    shared: &'static Shared<T>,
    empty: Vec<u8>,
    /// Acts of those that come in between.
    acts: Vec<Act>,
}

/// Contents of the structure when the victim begins.
pub struct Begin<T: InSegment> {
    saved: Vec<u8>,
    model: T::Model,
    /// Call in the middle of which participant [`OTHER`] has died.
    dead: Option<Call>,
}

impl<T: InSegment> Round<T> {
    pub fn new(acts: Vec<Act>) -> Self {
        let shared = Shared::new();
        Round { shared, empty: shared.save(), acts }
    }

    /// The structure after these operations, as far as there is room.
    pub fn begin(&self, before: &[Op]) -> Begin<T> {
        let mut model = T::Model::default();
        self.shared.restore(&self.empty);
        // The number with which some structures begin is never used again: get rid of it. Then the
        // victim has a free descriptor of its own, or (if there is nothing before) has to look
        // elsewhere.
        let first = if before.is_empty() { SURVIVOR } else { VICTIM };
        for (turn, op) in [Op::Put(5, 5), Op::Take(5)].iter().chain(before).enumerate() {
            let me = if turn < 2 { first } else { SURVIVOR };
            if scene::perform(&self.shared.subject, &Never, me, Act::Op(*op), |_| false).is_ok() {
                model.apply(*op);
            }
        }
        Begin { saved: self.shared.save(), model, dead: None }
    }

    /// Begins as [`Round::begin`] does; then [`OTHER`] dies in the middle of an
    /// operation, with something in its hands if it ever has.
    pub fn begin_with_dead(&self, before: &[Op], act: Act) -> Begin<T> {
        let begin = self.begin(before);
        let mut victim = self.victim(&begin, OTHER, act);
        let mut states = Vec::new();
        victim.run(u64::MAX, |step, _| states.extend(step.is_multiple_of(16).then(|| self.shared.save())));
        victim.kill();
        let leaves_something = |state: &&Vec<u8>| {
            self.shared.restore(state);
            self.shared.recover(SURVIVOR, |p| p == OTHER).is_ok_and(|audit| audit.freed > 0)
        };
        let middle = &states[states.len() / 2];
        let saved = states.iter().rev().find(leaves_something).unwrap_or(middle).clone();
        let dead = Some(Call { act, invoked: 0, responded: None });
        Begin { saved, dead, ..begin }
    }

    /// A victim about to do this.
    fn victim(&self, begin: &Begin<T>, me: usize, act: Act) -> Victim {
        let shared = self.shared;
        let mut victim = Victim::fork(|| scene::live(shared, me));
        victim.reach_mark();
        self.set(begin, act);
        victim
    }

    fn set(&self, begin: &Begin<T>, act: Act) {
        self.shared.restore(&begin.saved);
        self.shared.act.store(act.encode(), SeqCst);
    }

    /// Takes the act through, step by step, and looks at the memory that a death there
    /// leaves behind, wherever that differs from one instruction before: others act on it, and a
    /// survivor recovers. Returns how many instructions the act has, and how many states were
    /// looked at.
    pub fn every_death(&self, act: Act, begin: &Begin<T>) -> (u64, u64) {
        let (mut length, mut last, mut states) = (0, Vec::new(), Vec::new());
        let mut victim = self.victim(begin, VICTIM, act);
        victim.run(u64::MAX, |step, _| {
            length = step;
            let state = self.shared.save_all();
            if state != last {
                states.push((step, state.clone()));
                last = state;
            }
        });
        victim.kill();
        let mut random = Random::new(length);
        for (step, state) in &states {
            watchdog::at(*step);
            self.shared.restore_all(state);
            let script = self.script(&mut random);
            self.others(&script, begin);
            self.check(begin, act, true, || {
                format!("dead after {step} of {length} instructions, {script:?}")
            });
        }
        (length, states.len() as u64)
    }

    /// Interrupts the act after each of these numbers of instructions (counted anew after
    /// handlers).
    pub fn interrupt(&self, how: How, act: Act, begin: &Begin<T>, places: &[u64]) {
        let mut random = Random::stream(places[0], how as u64);
        let mut victim = self.victim(begin, VICTIM, act);
        let (mut at, mut complete) = (0, false);
        let mut scripts = Vec::new();
        for place in places {
            watchdog::at(*place);
            complete = complete || victim.run(place - at, |_, _| {});
            at = *place;
            let script = self.script(&mut random);
            scripts.push((place, script));
            match how {
                How::Kill => self.others(&script, begin),
                How::Stop => {
                    if !complete {
                        victim.halt();
                    }
                    self.others(&script, begin);
                }
                How::Signal | How::Nested if !complete => {
                    let inner = (how == How::Nested).then(|| random.below(INTO_HANDLER));
                    self.signal(&mut victim, &script, inner);
                }
                How::Signal | How::Nested => {}
            }
        }
        if how != How::Kill && !complete {
            victim.go_on();
            victim.reach_mark();
        }
        victim.kill();
        self.check(begin, act, how == How::Kill, || format!("{how:?} after instructions {scripts:?}"));
    }

    fn script(&self, random: &mut Random) -> [Act; 6] {
        std::array::from_fn(|_| self.acts[random.below(self.acts.len() as u64) as usize])
    }

    /// Others act while the victim stands where it is: as long as they don't wait, they
    /// get through.
    fn others(&self, script: &[Act; 6], begin: &Begin<T>) {
        for (turn, act) in script[..4].iter().enumerate() {
            let me = if turn % 2 == 1 && begin.dead.is_none() { OTHER } else { SURVIVOR };
            // Written down, whatever came of it.
            let _ = self.shared.call(&Never, me, *act, |p| p == OTHER);
        }
    }

    /// `inner`: after how many instructions of the handler another one comes.
    fn signal(&self, victim: &mut Victim, script: &[Act; 6], inner: Option<u64>) {
        for (word, act) in self.shared.script.iter().zip(script) {
            word.store(act.encode(), SeqCst);
        }
        victim.interrupt(libc::SIGUSR1);
        if let Some(inner) = inner {
            if victim.run(inner, |_, _| {}) {
                return;
            }
            victim.interrupt(libc::SIGUSR2);
            victim.go_on();
            victim.reach_mark();
        }
        victim.go_on();
        victim.reach_mark();
    }

    fn check(&self, begin: &Begin<T>, act: Act, died: bool, what: impl FnOnce() -> String) {
        if let Err(why) = self.judge(begin, died) {
            panic!("{}: {act:?}, {}: {why}", T::name(), what());
        }
    }

    /// Judges the contents. `died`: the victim has.
    fn judge(&self, begin: &Begin<T>, died: bool) -> Result<(), String> {
        let shared = self.shared;
        let is_dead = |p| died && p == VICTIM || begin.dead.is_some() && p == OTHER;
        if died || begin.dead.is_some() {
            // As a survivor, and as the victim's successor.
            for me in [SURVIVOR, VICTIM] {
                match shared.recover(me, is_dead) {
                    Ok(audit) if audit.pending == 0 => {}
                    other => return Err(format!("recovery: {other:?}")),
                }
            }
        }
        shared.is_complete()?;
        // Everything comes out, and it is still good for something, under both numbers.
        let look = Op::Get(T::LOOK);
        let rest = [look].into_iter().chain((0..8).chain(0..8).map(Op::Take));
        for (turn, op) in rest.chain([Op::Put(4, 4), Op::Take(4), look]).enumerate() {
            let me = if turn % 2 == 1 { VICTIM } else { SURVIVOR };
            let _ = shared.call(&Never, me, Act::Op(op), |_| false);
        }
        shared.is_complete()?;
        let mut calls = shared.calls()?;
        calls.extend(begin.dead);
        let judged = !calls.iter().any(|call| T::LOOSE.iter().any(|which| call.act == Act::More(*which)));
        if judged && !is_linearizable::<T>(&begin.model, &calls) {
            return Err(format!("no order explains {calls:#?} after {:?}", begin.model));
        }
        Ok(())
    }
}
