//! One run under one schedule.

mod checkpoints;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Once;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use towpath_machine::Ordering;

use crate::coroutine::thread;
use crate::end::End;
use crate::fault::{Fault, LocatedFault};
use crate::footprint::{Footprint, TouchedObject};
use crate::machine::{ExploredMemory, Machine, RunState};
use crate::merging::Histories;
use crate::pending::Gate;
use crate::plan::{Liberties, Plan};
use crate::processor::Explorer;
use crate::retrace::Acting;
use crate::schedule::{Schedule, StepChoice, Turn};
use crate::strong::StrongOrder;
use crate::subject::{Subject, SubjectExtras, SubjectRun};
use crate::thread::Life;
use crate::trace::TraceLine;
use crate::words::{MemoryModel, StateScale};
use checkpoints::Checkpoints;

/// Scheduler's view before a step.
pub(crate) struct View<'a> {
    /// Possible next steps, by thread; never empty.
    pub options: &'a [StepChoice],
    /// Options that there are only because an ordering is weakened.
    pub breaches: &'a [StepChoice],
    /// Threads whose next access is weakened, a bit each.
    pub weakened: u32,
    /// Thread that took the last step.
    pub last: Option<usize>,
    /// True if it now gives way to the others.
    pub gives_way: bool,
    /// Number of the step, from 0.
    pub step: usize,
    /// A digest of the state, where states are merged.
    pub state: Option<u64>,
}

/// Chooser of the next step.
pub(crate) trait Chooser {
    /// Chooses one of the options, or `None` to give the run up: others were like it.
    fn choose(&mut self, view: &View) -> Option<StepChoice>;
    /// Next step of a schedule that is known so far.
    ///
    /// It is taken without a look at the others.
    fn known(&mut self) -> Option<StepChoice> {
        None
    }
    /// Returns whether another choice will be tried at this step, in the same run.
    fn comes_back(&self) -> bool {
        false
    }
    /// Learns the footprint of the step that was chosen last.
    fn executed(&mut self, _footprint: &Footprint) {}
}

/// Outcome of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The fault, if there was one.
    pub failure: Option<LocatedFault>,
    /// All decisions.
    pub schedule: Schedule,
    /// A digest of everything that the threads did: two runs that did the same have the
    /// same.
    pub digest: u64,
    /// True if the run was given up, since others are like it.
    pub given_up: bool,
    /// The step after which its states cannot be told apart, if there is one.
    pub unmergeable: Option<&'static str>,
    /// True if a thread waits for the dead, for ever.
    pub stranded: bool,
    /// True if the run could have differed because an ordering is weakened.
    pub breached: bool,
    /// Steps of all threads, if they were asked for.
    pub trace: Vec<TraceLine>,
}

/// Maximum number of signals of a run.
const SIGNALS: u32 = 2;
/// Stack of a coroutine: algorithms need little, a panic's message more.
const STACK: usize = 256 << 10;

/// Runs schedules one after the other.
pub(crate) struct Runner {
    stacks: Vec<DefaultStack>,
    options: Vec<StepChoice>,
    breaches: Vec<StepChoice>,
    histories: Rc<RefCell<Histories>>,
    scale: StateScale,
    /// Number of words and of data of the last run.
    extent: (usize, usize),
}

/// Terms that all runs of a search have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub model: MemoryModel,
    pub plan: Plan,
    pub liberties: Liberties,
    /// Number of steps after which threads take turns; after ten times as many the run
    /// counts as endless.
    pub bound: usize,
    /// True if runs that come to a state that was seen are given up.
    pub merges: bool,
}

type Thread = Coroutine<(), (), (), DefaultStack>;

struct Play<'a> {
    memory: &'a ExploredMemory,
    body: &'a Rc<dyn SubjectRun>,
    threads: Vec<Thread>,
    schedule: Schedule,
    last: Option<usize>,
    /// Number of the plan's threads.
    planned: usize,
    /// Checkpoints, if states are merged (`run/checkpoints.rs`).
    checkpoints: Checkpoints,
}

thread_local! {
    /// True if panics of this thread are caught, and reported elsewhere.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

fn quietly<T>(run: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let result = run();
    QUIET.set(false);
    result
}

pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_string()
}

impl Runner {
    pub fn new() -> Runner {
        Runner {
            stacks: Vec::new(),
            options: Vec::new(),
            breaches: Vec::new(),
            histories: Rc::default(),
            scale: StateScale::default(),
            extent: (0, 0),
        }
    }

    /// Runs the subject once.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn run(
        &mut self,
        subject: &dyn Subject,
        terms: &Terms,
        strategy: &mut dyn Chooser,
        traced: bool,
    ) -> Result<RunOutcome, String> {
        let (memory, body) = self.set_up(subject, terms, traced)?;
        Ok(quietly(|| self.play(subject, &body, terms, strategy, &memory)))
    }

    /// Makes the subject anew in a memory.
    fn set_up(
        &self,
        subject: &dyn Subject,
        terms: &Terms,
        traced: bool,
    ) -> Result<(ExploredMemory, Rc<dyn SubjectRun>), String> {
        let memory = ExploredMemory::new(terms.model, terms.liberties, traced);
        let SubjectExtras { loses_stores, is_interrupted, has_free_order, fences_wholly, sandboxed } =
            subject.extras();
        {
            let mut inner = memory.0.inner.borrow_mut();
            (inner.fences_wholly, inner.sandboxed, inner.merges) = (fences_wholly, sandboxed, terms.merges);
            inner.histories = Rc::clone(&self.histories);
            inner.words.reserve(self.extent.0);
            inner.data.reserve(self.extent.1);
        }
        let body = subject.set_up(&terms.plan, &memory)?;
        let mut inner = memory.0.inner.borrow_mut();
        inner.loses_stores = loses_stores || is_interrupted;
        inner.strong = has_free_order.then(StrongOrder::default);
        if is_interrupted {
            (inner.signals, inner.data_steps) = (SIGNALS, true);
            *memory.0.body.borrow_mut() = Some(Rc::downgrade(&body));
        }
        drop(inner);
        Ok((memory, body))
    }

    fn play(
        &mut self,
        subject: &dyn Subject,
        body: &Rc<dyn SubjectRun>,
        terms: &Terms,
        strategy: &mut dyn Chooser,
        memory: &ExploredMemory,
    ) -> RunOutcome {
        let mut play = self.start(terms, memory, body);
        let threads = play.planned;
        let mut stranded = false;
        let mut given_up = !self.advance(&mut play, terms, strategy, &mut stranded);
        let deaths = memory.0.dead.load(Ordering::Relaxed);
        let over = given_up || stranded || memory.0.inner.borrow().failure.is_some();
        if !over && (deaths == 0 || subject.endures_deaths()) {
            // Under the name of a thread that is alive.
            let id = (0..threads).find(|id| deaths >> id & 1 == 0).unwrap_or(0);
            play.start_last(self.stack(), id);
            given_up = !self.advance(&mut play, terms, strategy, &mut stranded);
        }
        if stranded && subject.endures_deaths() {
            let text = memory.0.inner.borrow().stuck();
            memory
                .0
                .inner
                .borrow_mut()
                .fail(Fault::Deadlock, format!("a thread died, and the others get no further\n{text}"));
        }
        if !given_up {
            play.judge();
        }
        play.threads.into_iter().for_each(|thread| self.take_down(thread));
        let mut inner = memory.0.inner.borrow_mut();
        self.extent = (inner.words.len(), inner.data.len());
        RunOutcome {
            failure: inner.failure.take(),
            schedule: play.schedule,
            digest: inner.digest,
            given_up,
            stranded,
            unmergeable: inner.unmergeable,
            breached: inner.is_breached,
            trace: inner.trace.take().unwrap_or_default(),
        }
    }

    /// Lets all threads announce their first steps.
    fn start<'a>(
        &mut self,
        terms: &Terms,
        memory: &'a ExploredMemory,
        body: &'a Rc<dyn SubjectRun>,
    ) -> Play<'a> {
        let planned = terms.plan.threads;
        memory.0.inner.borrow_mut().start(planned);
        let (threads, schedule, checkpoints) = (Vec::new(), Schedule::default(), Checkpoints::default());
        let mut play = Play { memory, body, threads, schedule, last: None, planned, checkpoints };
        for index in 0..planned {
            play.threads.push(play.coroutine(self.stack(), index, index));
            play.resume(index);
        }
        play
    }

    fn stack(&mut self) -> DefaultStack {
        // A host that has no memory for a few small stacks has none for us.
        self.stacks
            .pop()
            .unwrap_or_else(|| DefaultStack::new(STACK).expect("no memory for a coroutine's stack"))
    }

    /// Lets threads take steps until all have ended or none can. `false`: the strategy
    /// has given the run up.
    fn advance(
        &mut self,
        play: &mut Play,
        terms: &Terms,
        strategy: &mut dyn Chooser,
        stranded: &mut bool,
    ) -> bool {
        let inner = &play.memory.0.inner;
        while inner.borrow().failure.is_none() {
            if let Some(choice) = strategy.known() {
                play.take(choice);
                strategy.executed(&inner.borrow().footprint);
                continue;
            }
            inner.borrow().options(&mut self.options);
            let weakened = inner.borrow_mut().breaches(&self.options, &mut self.breaches);
            let step = play.schedule.0.len();
            if self.options.is_empty() {
                let mut inner = inner.borrow_mut();
                if inner.threads.iter().any(|t| t.life == Life::Alive) {
                    *stranded = inner.threads.iter().any(|t| t.life == Life::Dead);
                    if !*stranded {
                        let (kind, text) = (inner.kind_of_stuck(), inner.stuck());
                        inner.fail(kind, text);
                    }
                }
                return true;
            }
            let gives_way = play
                .last
                .is_some_and(|last| matches!(inner.borrow().threads[last].pending.gate, Gate::Moved { .. }));
            let (options, breaches) = (&self.options, &self.breaches);
            let state = match terms.merges {
                true => play.state(terms, &mut self.scale),
                false => None,
            };
            let view = View { options, breaches, weakened, last: play.last, gives_way, step, state };
            let choice = if step < terms.bound {
                match strategy.choose(&view) {
                    Some(choice) => {
                        if strategy.comes_back() {
                            play.keep_checkpoint();
                        }
                        choice
                    }
                    None => return false,
                }
            } else {
                in_turns(&view)
            };
            if step > 10 * terms.bound {
                let mut inner = inner.borrow_mut();
                // A waiter for the dead may look again and again.
                *stranded = inner.threads.iter().any(|t| t.life == Life::Dead);
                if !*stranded {
                    let text = format!("no end after {step} steps\n{}", inner.stuck());
                    inner.fail(Fault::Livelock, text);
                }
                return true;
            }
            play.take(choice);
            if step < terms.bound {
                strategy.executed(&inner.borrow().footprint);
            }
        }
        true
    }
}

/// Chooses the next thread by number.
pub(crate) fn in_turns(view: &View) -> StepChoice {
    let after = view.last.map_or(0, |last| last + 1);
    let lively = || view.options.iter().filter(|o| o.turn == Turn::Normal);
    let next = lively().find(|o| o.thread >= after).or_else(|| lively().next());
    *next.unwrap_or(&view.options[0])
}

impl Play<'_> {
    /// A digest of the state. `None`: the subject has none.
    fn state(&self, terms: &Terms, scale: &mut StateScale) -> Option<u64> {
        let inner = self.memory.0.inner.borrow();
        let open = self.body.open_calls(&End { inner: &inner, threads: terms.plan.threads })?;
        inner.unmergeable.is_none().then(|| inner.fingerprint(&open, scale))
    }

    fn take(&mut self, choice: StepChoice) {
        self.schedule.0.push(choice);
        self.last = Some(choice.thread);
        let inner = &self.memory.0.inner;
        inner.borrow_mut().choose(choice);
        self.act(choice);
        let mut inner = inner.borrow_mut();
        if inner.model == MemoryModel::C11 && !inner.merges {
            inner.depend(choice.thread);
        }
    }

    fn act(&mut self, choice: StepChoice) {
        let inner = &self.memory.0.inner;
        if choice.turn.is_death() {
            // Its coroutine stays where it is, and is taken down with the others.
            if let Turn::Lose(n) = choice.turn {
                let _ = inner.borrow_mut().undo_store(choice.thread, n);
            }
            inner.borrow_mut().kill(choice.thread, choice.thread);
            inner.borrow_mut().line(choice.thread, "dies", Default::default);
            self.memory.0.dead.fetch_or(1 << choice.thread, Ordering::Relaxed);
            return;
        }
        if let Turn::Signal(n) = choice.turn {
            inner.borrow_mut().interrupt(choice.thread, n);
        }
        self.resume(choice.thread);
    }

    /// A thread; the one after those of the plan takes the last look.
    fn coroutine(&self, stack: DefaultStack, index: usize, id: usize) -> Thread {
        let (body, is_last) = (self.body.clone(), index == self.planned);
        let act = move |cpu: &Explorer| if is_last { body.last(cpu) } else { body.thread(cpu) };
        thread(stack, self.memory, index, id, act)
    }

    /// Lets the last look begin, under the name of a thread that is alive.
    fn start_last(&mut self, stack: DefaultStack, id: usize) {
        {
            let mut inner = self.memory.0.inner.borrow_mut();
            inner.start_last();
            (inner.left_over.kills, inner.signals) = (0, 0);
        }
        self.threads.push(self.coroutine(stack, self.planned, id));
        self.resume(self.planned);
    }

    /// Lets the subject judge the run; a fault that was found before stands.
    fn judge(&self) {
        let verdict = self.body.judge(&End { inner: &self.memory.0.inner.borrow(), threads: self.planned });
        let mut inner = self.memory.0.inner.borrow_mut();
        if let (Err(failure), None) = (verdict, &inner.failure) {
            inner.failure = Some(failure);
        }
    }

    /// Lets a thread go on until it has announced its next step.
    fn resume(&mut self, index: usize) {
        let Machine { inner, logs, .. } = &*self.memory.0;
        inner.borrow_mut().current = Some(index);
        let acting = if inner.borrow().merges { Acting::Kept } else { Acting::Once };
        let is_behind = self.checkpoints.leaves_behind(index);
        let result = catch_unwind(AssertUnwindSafe(|| {
            if is_behind {
                logs.begin_again(index);
                self.threads[index].resume(());
            }
            logs.acting.set(acting);
            self.threads[index].resume(())
        }));
        logs.acting.set(Acting::Once);
        let mut inner = inner.borrow_mut();
        inner.current = None;
        match result {
            Ok(CoroutineResult::Yield(())) => return,
            Ok(CoroutineResult::Return(())) => {}
            Err(payload) => {
                let text = format!("thread {index}: {}", panic_text(&*payload));
                inner.fail(Fault::Broken, text);
            }
        }
        inner.threads[index].life = Life::Ended;
        inner.changes += 1;
        inner.release_mutexes(index);
    }
}

impl RunState {
    fn kind_of_stuck(&self) -> Fault {
        let forgotten = self.threads.iter().any(|t| match t.pending.gate {
            Gate::Woken { word, expected } => {
                t.life == Life::Alive && self.words[word].value() as u32 != expected as u32
            }
            _ => false,
        });
        if forgotten { Fault::LostWakeUp } else { Fault::Deadlock }
    }

    /// Describes the waits of all threads.
    fn stuck(&self) -> String {
        let line = |(index, t): (usize, &crate::thread::ExploredThread)| {
            let name = self.name_of(t.pending.object);
            match (t.life, t.pending.gate) {
                (Life::Ended, _) => format!("thread {index} has ended"),
                (Life::Dead, _) => format!("thread {index} is dead"),
                (_, Gate::Woken { word, expected }) => {
                    let now = self.words[word].value();
                    format!(
                        "thread {index} sleeps on {name} as long as it is {:#x}; it is {now:#x}",
                        expected as u32
                    )
                }
                (_, Gate::Changed { word }) => {
                    format!("thread {index} spins on {name}, which is {:#x}", self.words[word].value())
                }
                (_, Gate::Free { mutex }) => {
                    format!("thread {index} waits for mutex {mutex}, held by {:?}", self.mutexes[mutex].owner)
                }
                (_, Gate::Moved { .. } | Gate::Open) => format!(
                    "thread {index} looks again and again ({}{}{name})",
                    t.pending.what,
                    if t.pending.object == TouchedObject::Nothing { "" } else { " " }
                ),
            }
        };
        self.threads.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
    }
}
