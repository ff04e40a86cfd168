//! Kills a process after instruction k of locking, changing two words that belong
//! together, and unlocking; and looks whether the others go on: the next process that locks learns
//! of the death if and only if the dead one held the lock (`mcs`: or stood in its queue), the lock
//! then works for every waiter, or tells every waiter that it can't, and no process hangs.
//!
//! `cargo test -p towpath-shm --test lock_kill_every_step -- every robust` does it for every k
//! (names of a lock, an act or a policy choose among the cases). In the ordinary tests k grows by a
//! quarter at a time, for each policy from another remainder, and by less if no kill met the lock
//! held.
//!
//! This process is the tracer, the judge, and one survivor; a forked child is the other survivor.
//! `robust` and `posix` know their owners; for `mcs` it is the mutex that knows which processes may
//! be in the way.
//!
//! * `subject.rs`: the locks, and what their memory says.
//! * `player.rs`: what the victim and the survivors do.
//! * This file: the judge.
#![allow(unsafe_code)]

mod player;
mod subject;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use player::{AWAY, Act, Around, DONE, Data, HOLDING, Player, Scene};
use subject::Found::{Abandoned, Consistent, OwnerDied, Poisoned};
use subject::{Dead, FORMER, JUDGE, OTHER, Queue, Subject, VICTIM};
use towpath_machine::{Native, Park};
use towpath_shm::{World, WorldSpec};
use towpath_sync::locks::{Posix, Robust, TestAndSet, TestAndTestAndSet, Ticket};
use towpath_sync::{Mutex, Policy};
use towpath_testkit::{Child, Choice, Share, Victim, give_way, pin, share_cases, shared_words, watchdog};

/// Number of steps for which the victim waits for a lock that we hold, if it doesn't fall
/// asleep before. Enough to get as far as the wait: under `mcs` a release waits for a waiter that
/// has not linked itself yet, and this one would stand still.
const PATIENCE: u64 = 1_000;
/// Number of times that each survivor takes the lock at the end, against the other.
const VISITS: u64 = 5;

/// Setting of a case.
#[derive(Clone, Copy)]
struct Case {
    act: Act,
    policy: Policy,
    /// True if `adaptive` is to believe that more processes run than there are cores.
    oversubscribed: bool,
    /// Its number among the act's cases.
    number: u64,
}

/// Findings of the survivors, over all steps.
#[derive(Debug, Default)]
struct Summary {
    killed: u64,
    deaths: u64,
    poisoned: u64,
}

/// This process: the judge, and one of the survivors.
struct Judge<'a, L> {
    case: Case,
    scene: &'a Scene<L>,
    words: &'a [AtomicU64],
    me: Player<'a, L>,
    /// The surroundings of the children.
    theirs: &'a Around<'a, L>,
    other: Child,
    orders: u64,
    /// The number of visits when the other was last asked.
    visits: u64,
    /// True if a survivor that is told of a death repairs the data in this round, or else
    /// poisons the lock.
    repair: bool,
    summary: Summary,
}

impl<'a, L: Subject> Judge<'a, L> {
    /// Makes the lock new.
    fn reset(&self) {
        let mutex = &self.words[..size_of::<Mutex<Data, L>>() / 8];
        mutex.iter().for_each(|word| word.store(0, SeqCst));
        self.scene.mutex.prepare();
    }

    fn ask(&mut self, times: u64) {
        self.orders += 1;
        self.visits = self.scene.visits.load(SeqCst);
        self.scene.order.store(self.orders << 9 | times << 1 | u64::from(self.repair), SeqCst);
        Native::current().wake(&self.scene.order, 1);
    }

    fn has_answered(&self) -> bool {
        assert!(!self.other.has_ended(), "the other survivor failed");
        self.scene.answered.load(SeqCst) == self.scene.order.load(SeqCst)
    }

    /// Findings of the other: the number of each.
    fn answer(&self) -> [u64; 4] {
        while !self.has_answered() {
            Native::current().park(&self.scene.answered, self.scene.answered.load(SeqCst), 1_000_000);
        }
        std::array::from_fn(|i| self.scene.answer[i].load(SeqCst))
    }

    /// Asks the other for a visit, and waits until it waits.
    fn send_other(&mut self) {
        self.ask(1);
        let order = self.scene.order.load(SeqCst);
        let waits = || self.scene.taken.load(SeqCst) == order && L::in_line(self.words, &self.other);
        while !waits() && !self.has_answered() {
            std::thread::yield_now();
        }
    }

    /// A process dies in the middle of a change.
    fn former(&self) -> Dead {
        let scene = self.scene;
        let child = Child::fork(|| {
            let former = Player::enter(self.theirs, self.case.policy, FORMER);
            let guard = former.lock().unwrap();
            guard[0].fetch_add(1, SeqCst);
            scene.progress.store(HOLDING, SeqCst);
            loop {
                std::thread::park();
            }
        });
        while scene.progress.load(SeqCst) != HOLDING {
            assert!(!child.has_ended(), "the former owner failed");
            std::thread::yield_now();
        }
        scene.progress.store(AWAY, SeqCst);
        let (rank, pid) = (FORMER, child.pid());
        child.kill();
        self.theirs.world.process_ended(FORMER, pid, true);
        Dead { rank, pid: pid.into(), identity: scene.identities[FORMER as usize].load(SeqCst) }
    }

    /// Kills the victim after so many steps, and lets the survivors go on. Returns
    /// whether its act was complete.
    fn round(&mut self, steps: u64) -> bool {
        let Case { act, policy, .. } = self.case;
        let (scene, words, theirs) = (self.scene, self.words, self.theirs);
        for word in [&scene.progress, &scene.go] {
            word.store(0, SeqCst);
        }
        self.repair = self.summary.deaths % 3 != 2;
        let former = (act == Act::Repairing).then(|| self.former());
        let mut ours = matches!(act, Act::Behind | Act::Between).then(|| self.me.lock().unwrap());

        let mut victim = Victim::fork(|| Player::enter(theirs, policy, VICTIM).suffer(act));
        let mut asked = act == Act::Awaited;
        if asked {
            while scene.progress.load(SeqCst) != HOLDING {
                assert!(!victim.has_ended(), "the victim did not get the lock");
                std::thread::yield_now();
            }
            self.send_other();
            scene.go.store(1, SeqCst);
        }
        victim.reach_mark();
        let complete = victim.run(steps, |step, asleep| {
            if ours.is_some() && (asleep || step >= PATIENCE) {
                if act == Act::Between {
                    self.send_other();
                    asked = true;
                }
                drop(ours.take());
            }
        });

        // Where things stand: the victim changes nothing any more, and if it is in their way the
        // others can't.
        let (rank, pid) = (VICTIM, victim.pid());
        let identity = scene.identities[VICTIM as usize].load(SeqCst);
        let waits = asked && scene.visits.load(SeqCst) == self.visits;
        let behind_it = waits && L::DEATH == Abandoned && L::in_line(words, &self.other);
        let mut in_the_way = behind_it || L::in_the_way(words, &Dead { rank, pid: pid.into(), identity });
        match scene.progress.load(SeqCst) {
            AWAY | DONE => assert!(!in_the_way, "in the way before or after its act"),
            HOLDING => assert!(in_the_way, "holds the lock, and isn't in the way"),
            _ => {}
        }
        victim.kill();
        theirs.world.process_ended(VICTIM, pid, true);
        in_the_way |= former.is_some_and(|former| L::in_the_way(words, &former));

        // The other survivor's possible findings: it has been served, or it comes first, or (under
        // a lock with a queue) it may stand before the victim.
        let due = match (asked, L::DEATH) {
            (true, Abandoned) => behind_it,
            (true, _) => waits && in_the_way,
            (false, _) => in_the_way,
        };
        // It may also give up while it waits for us: a dead process had begun.
        let unsure = ours.is_some() && act == Act::Between && L::DEATH == Abandoned;
        if ours.is_some() && act == Act::Between {
            self.send_other();
            asked = true;
        }
        if ours.is_some() {
            drop(ours.take());
        }
        if act == Act::Behind {
            self.ask(1);
            asked = true;
        }
        self.summary.killed += 1;
        self.summary.deaths += u64::from(in_the_way);
        self.go_on(asked, in_the_way, due, unsure);
        complete
    }

    /// The survivors' visits: the other's, if it was asked for one; then ours; then both
    /// against each other.
    fn go_on(&mut self, asked: bool, in_the_way: bool, due: bool, unsure: bool) {
        let death = |due| if due { L::DEATH } else { Consistent };
        let then = |found, next, repair| match found {
            OwnerDied if repair => Consistent,
            OwnerDied => Poisoned,
            Consistent => next,
            _ => found,
        };
        let (mut next, due) = (death(in_the_way), death(due));
        if due == Abandoned {
            // Both at once, since it takes a while to learn that a wait can't end.
            if !asked {
                self.ask(1);
            }
            assert_eq!(self.me.visit(false), Abandoned, "we");
            assert_eq!(self.answer()[Abandoned as usize], 1, "the other: {:?}", self.answer());
            return self.reset();
        }
        if asked {
            let answer = self.answer();
            let found = if unsure && answer[Abandoned as usize] == 1 { Abandoned } else { due };
            assert_eq!(answer[found as usize], 1, "the other should have found {due:?}: {answer:?}");
            next = then(found, next, self.repair);
        }
        let found = self.me.visit(self.repair);
        assert_eq!(found, next, "we");
        next = then(found, next, self.repair);
        let (times, before) = (if next == Consistent { VISITS } else { 1 }, self.scene.visits.load(SeqCst));
        self.ask(times);
        (0..times).for_each(|_| assert_eq!(self.me.visit(self.repair), next, "we, in the end"));
        assert_eq!(self.answer()[next as usize], times, "the other, in the end: {:?}", self.answer());
        if next == Consistent {
            assert_eq!(self.scene.visits.load(SeqCst) - before, 2 * times, "two at a time");
        } else {
            self.summary.poisoned += u64::from(next == Poisoned);
            self.reset();
        }
    }
}

fn run<L: Subject>(
    case: Case,
    choice: &Choice,
    words: &'static [AtomicU64],
    [here, there]: [usize; 2],
) -> Summary {
    assert!(size_of::<Scene<L>>() <= size_of_val(words));
    // SAFETY: shared words begin on a page, are enough (checked above), and stay for good; a scene
    // consists of plain data, for which any bits will do.
    let scene: &'static Scene<L> = unsafe { &*words.as_ptr().cast() };
    words.iter().for_each(|word| word.store(0, SeqCst));
    let world = World::create(&WorldSpec {
        name: None,
        processes: 4,
        area_bytes: 0,
        object_bytes: 0,
        params: [0; 16],
    })
    .unwrap();
    let handle = world.reopen().unwrap();
    let ours = Around { world: &handle, scene, oversubscribed: case.oversubscribed };
    let theirs = Around { world: &world, scene, oversubscribed: case.oversubscribed };
    pin(here);
    let other = Child::fork(|| {
        pin(there);
        if here == there {
            give_way();
        }
        Player::enter(&theirs, case.policy, OTHER).serve();
    });
    while scene.identities[OTHER as usize].load(SeqCst) == 0 {
        assert!(!other.has_ended(), "the other survivor can't enter");
        std::thread::yield_now();
    }
    let mut judge = Judge {
        case,
        scene,
        words,
        me: Player::enter(&ours, case.policy, JUDGE),
        theirs: &theirs,
        other,
        orders: 0,
        visits: 0,
        repair: true,
        summary: Summary::default(),
    };
    judge.reset();
    // A victim that waits for long holds the lock for a few steps at the end.
    choice.until_seen(|part| {
        let mut steps = 0;
        loop {
            // Where steps are left out, each policy leaves out others: what they execute is mostly
            // the same.
            let next = choice.after_part(steps, part);
            let at = steps + case.number % (next - steps);
            watchdog::at(at);
            if judge.round(at) {
                return judge.summary.deaths > 0;
            }
            steps = next;
        }
    });
    judge.summary
}

fn all<L: Subject>(choice: &Choice, words: &'static [AtomicU64], share: &mut Share) {
    for &act in L::ACTS {
        let mut waitings: Vec<(Policy, bool)> = Policy::ALL.map(|(policy, _)| (policy, false)).into();
        waitings.push((Policy::Adaptive, true));
        let one_of = |wanted: [Policy; 3]| move |w: &(Policy, bool)| wanted.contains(&w.0) && !w.1;
        match act {
            // It waits in its own way.
            _ if L::NAME == "posix" => waitings.retain(one_of([Policy::Adaptive; 3])),
            _ if choice.every() => {}
            // The victim doesn't wait.
            Act::Alone | Act::Repairing => {
                waitings.retain(one_of([Policy::Spin, Policy::Park, Policy::Adaptive]));
            }
            Act::Between => {
                waitings.retain(one_of([Policy::SpinThenYield, Policy::SpinThenPark, Policy::Adaptive]));
            }
            Act::Awaited | Act::Behind => {}
        }
        for ((policy, oversubscribed), number) in waitings.into_iter().zip(0..) {
            let case = Case { act, policy, oversubscribed, number };
            let act = format!("{act:?}").to_lowercase();
            if !choice.includes(&[L::NAME, &act, policy.name()]) || !share.takes_next() {
                continue;
            }
            let waiting =
                format!("{}{}", policy.name(), if oversubscribed { ", oversubscribed" } else { "" });
            watchdog::begin(format!("{} {act} {waiting}", L::NAME), 300);
            let summary = run::<L>(case, choice, words, share.cores);
            let Summary { killed, deaths, poisoned } = summary;
            assert!(killed > 6 && deaths > 0 && deaths < killed, "{act}: {summary:?}");
            println!("{:<24}{act:<11}{waiting:<20}{killed:>8}{deaths:>8}{poisoned:>10}", L::NAME);
        }
    }
}

fn main() {
    let choice = Choice::from_arguments();
    println!("{:<24}{:<11}{:<20}{:>8}{:>8}{:>10}", "lock", "act", "waiting", "killed", "deaths", "poisoned");
    share_cases(|share| {
        let words = shared_words(size_of::<Scene<Robust<Native>>>().max(size_of::<Scene<Queue>>()) / 8);
        all::<Robust<Native>>(&choice, words, share);
        all::<Queue>(&choice, words, share);
        all::<Posix<Native>>(&choice, words, share);
        all::<TestAndSet<Native>>(&choice, words, share);
        all::<TestAndTestAndSet<Native>>(&choice, words, share);
        all::<Ticket<Native>>(&choice, words, share);
    });
}
