//! Waiters of a condition variable in a set order, for all of which thread 0 acts: each
//! notification comes to one that waits.

use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use towpath_machine::{Ordering, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};
use towpath_sync::robust::{ConditionWait, Condvar, Woken};
use towpath_sync::{Deadline, Policy, Surroundings, Wait};

use super::super::BUDGET;

/// Identities of a waiter that dies and of one that lives.
const MORTAL: u32 = 1;
const SURVIVOR: u32 = 2;

pub(super) fn all(cases: &mut Vec<Case>, policy: Policy) {
    let about = "the oldest waiter is notified; of those that have left or died none is";
    let make = move |_: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let condvars = [(); 4].map(|()| Condvar::in_arena(memory));
        Ok(Rc::new(SetOrder { condvars, policy, is_dead: AtomicBool::default() }))
    };
    cases.push(Case::new("condvar/set-order", about, make));
}

/// Participant, and whether the mortal one is dead.
struct MortalParticipant<'a>(u32, &'a AtomicBool);

impl Surroundings for MortalParticipant<'_> {
    fn identity(&self) -> u32 {
        self.0
    }
    fn is_alive(&self, identity: u32) -> bool {
        // Relaxed: there is one thread of the host.
        identity != MORTAL || !self.1.load(Ordering::Relaxed)
    }
}

struct SetOrder {
    /// Condition variable of each order of events.
    condvars: [Condvar<Explorer, 2>; 4],
    policy: Policy,
    is_dead: AtomicBool,
}

/// Participant of one condition variable.
struct CondvarWaiter<'a>(&'a Condvar<Explorer, 2>, &'a Explorer, Wait<'a>);

impl CondvarWaiter<'_> {
    fn begin(&self) -> ConditionWait {
        self.0.begin(self.1, &self.2)
    }

    /// Sleeps, for no time if no notification is there.
    fn sleep(&self, waiting: &ConditionWait) -> Woken {
        self.0.sleep(self.1, &self.2, waiting, Deadline::PAST)
    }

    fn end(&self, waiting: ConditionWait) {
        self.0.end(self.1, waiting);
    }

    fn notify(&self) {
        self.0.notify_one_by(self.1, &self.2);
    }
}

impl SubjectRun for SetOrder {
    fn thread(&self, cpu: &Explorer) {
        if cpu.id() > 0 {
            return;
        }
        // Relaxed: there is one thread of the host.
        let set_dead = |dead| self.is_dead.store(dead, Ordering::Relaxed);
        let around = [MORTAL, SURVIVOR].map(|identity| MortalParticipant(identity, &self.is_dead));
        let [oldest, left, died, kept] = self.condvars.each_ref().map(|condvar| {
            let wait =
                |around| CondvarWaiter(condvar, cpu, Wait { policy: self.policy, around, budget: BUDGET });
            let [mortal, survivor] = &around;
            [wait(mortal as &dyn Surroundings), wait(survivor)]
        });

        let [_, me] = &oldest;
        let [first, second] = [me.begin(), me.begin()];
        me.notify();
        assert_eq!([me.sleep(&first), me.sleep(&second)], [Woken::Notified, Woken::TimedOut], "the oldest");

        let [_, me] = &left;
        let early = me.begin();
        assert_eq!(me.sleep(&early), Woken::TimedOut);
        me.end(early);
        let later = me.begin();
        me.notify();
        assert_eq!(me.sleep(&later), Woken::Notified, "none other waits");

        // Notified, it dies: another one goes on for it, and waits no more.
        let [mortal, me] = &died;
        let [dead, mine] = [mortal.begin(), me.begin()];
        mortal.notify();
        set_dead(true);
        assert_eq!(me.sleep(&mine), Woken::Notified, "for the dead one");
        me.end(mine);
        let later = me.begin();
        me.notify();
        assert_eq!(me.sleep(&later), Woken::Notified, "none other waits");

        // It dies while it waits, in one of two places, which another one needs.
        set_dead(false);
        let [mortal, me] = &kept;
        let waiting = [mortal.begin(), me.begin()];
        set_dead(true);
        assert_eq!(me.sleep(&waiting[1]), Woken::TimedOut);
        let [third, fourth] = [me.begin(), me.begin()];
        (0..2).for_each(|_| me.notify());
        let woken = [me.sleep(&third), me.sleep(&fourth)];
        assert_eq!(woken, [Woken::Notified; 2], "both have a place");
        let _ = dead;
    }
}
