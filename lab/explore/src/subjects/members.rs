//! Participants of a world: their table, and their barrier.
//!
//! Thread `t` is the process `t + 1`. The others find it dead when it is.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use towpath_machine::{Arena, Ordering, Park, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun, Word};
use towpath_shm::episodes::{MemberEpisodes, number, reached, result_of};
use towpath_shm::table::{EntryState, EntryWord, ParticipantTable};
use towpath_sync::{Policy, Surroundings, Wait, Waiting};

use super::told::ToldEpisodes;
use super::{BUDGET, ENDLESS, ExploredMember, PAUSE};

/// Ranks for which the threads of the table contend.
const RANKS: usize = 2;

/// Both of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    let make = |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let table = TableMemory::new(memory, RANKS);
        let claims = Cell::default();
        Ok(Rc::new(Comings { table, plan: *plan, claims }))
    };
    let about = "a rank has one participant at a time; each death counts once";
    cases.push(Case { endures_deaths: true, ..Case::new("members/table", about, make) });
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        Ok(Rc::new(MembersAtBarrier::new(plan, memory, policy)))
    };
    let about = "no participant leaves before all have come; a death is told once, to all";
    cases.push(Case { endures_deaths: true, ..Case::new("members/barrier", about, make) });
}

/// Memory of a table, and of its barrier.
struct TableMemory {
    words: Vec<Word>,
    deaths: Word,
    /// Mark of each rank: its participant says it of itself before it has entered.
    marks: Vec<Word>,
    arrivals: Vec<Word>,
    doorbells: Vec<Word>,
    episode: Word,
    at_doorbells: Word,
}

impl TableMemory {
    fn new(memory: &ExploredMemory, ranks: usize) -> TableMemory {
        let word = || memory.word(Place::NewLine, 0);
        let each = || (0..ranks).map(|_| word()).collect();
        TableMemory {
            words: each(),
            deaths: word(),
            marks: each(),
            arrivals: each(),
            doorbells: each(),
            episode: word(),
            at_doorbells: word(),
        }
    }

    fn seen_by<'a>(&'a self, cpu: &'a Explorer) -> ExploredTable<'a> {
        ExploredTable { memory: self, cpu }
    }
}

/// A table as a thread sees it.
struct ExploredTable<'a> {
    memory: &'a TableMemory,
    cpu: &'a Explorer,
}

impl ParticipantTable for ExploredTable<'_> {
    type Cpu = Explorer;

    fn cpu(&self) -> &Explorer {
        self.cpu
    }
    fn ranks(&self) -> u32 {
        self.memory.words.len() as u32
    }
    fn word(&self, index: u32) -> &Word {
        &self.memory.words[index as usize]
    }
    fn last_death(&self) -> &Word {
        &self.memory.deaths
    }
}

impl MemberEpisodes for ExploredTable<'_> {
    fn episode(&self) -> &Word {
        &self.memory.episode
    }
    fn at_doorbells(&self) -> &Word {
        &self.memory.at_doorbells
    }
    fn doorbell_word(&self, index: u32) -> &Word {
        &self.memory.doorbells[index as usize]
    }
    #[track_caller]
    fn load_arrival(&self, index: u32, order: Ordering) -> u32 {
        self.cpu.load(&self.memory.arrivals[index as usize], order) as u32
    }
    #[track_caller]
    fn store_arrival(&self, index: u32, episode: u32, order: Ordering) {
        self.cpu.store(&self.memory.arrivals[index as usize], episode.into(), order);
    }
}

impl ExploredTable<'_> {
    fn pid(&self) -> u32 {
        self.cpu.id() as u32 + 1
    }

    fn is_dead(&self, pid: u32) -> bool {
        !ExploredMember::new(self.cpu).is_alive(pid)
    }

    /// Looks after the participant of a rank, as `liveness.rs` does.
    fn look_after(&self, index: u32) {
        let bits = self.entry_bits(index);
        let word = EntryWord::unpack(bits);
        match word.state {
            EntryState::Entered | EntryState::Joining if self.is_dead(word.pid) => {
                self.mark_dead(index, bits);
            }
            EntryState::Dying => self.count_death(index),
            _ => {}
        }
    }

    /// Enters as a rank, as `entering.rs` does; `None`: it is taken. `claimed` is called
    /// once the rank is this thread's.
    fn enter(&self, index: u32, claimed: impl FnOnce()) -> Option<EntryWord> {
        let bits = self.entry_bits(index);
        let word = EntryWord::unpack(bits);
        if !matches!(word.state, EntryState::Free | EntryState::Dead) {
            self.look_after(index);
            return None;
        }
        let (generation, pid) = (word.next_generation(), self.pid());
        let claim = EntryWord { generation, start_hash: 0, pid, state: EntryState::Joining };
        if !self.change(index, bits, claim) {
            return None;
        }
        claimed();
        // Relaxed: published with the word.
        self.cpu.store(&self.memory.marks[index as usize], generation.into(), Ordering::Relaxed);
        let entered = EntryWord { state: EntryState::Entered, ..claim };
        assert!(self.change(index, claim.pack(), entered), "taken for dead");
        Some(entered)
    }

    /// Reads about the participant of a rank.
    fn look(&self, index: u32) {
        let word = self.entry_word(index);
        if word.state == EntryState::Entered {
            // Relaxed: written before the word that says ENTERED. A successor's is no fault.
            let mark = self.cpu.load(&self.memory.marks[index as usize], Ordering::Relaxed);
            assert!(mark >= word.generation.into(), "{mark} is of a predecessor of {word:?}");
        }
        let last = self.noted_deaths();
        if last.count() > 0 {
            let word = self.entry_word(last.rank());
            let is_dead = matches!(word.state, EntryState::Dying | EntryState::Dead);
            assert!(is_dead || word.generation > last.generation(), "{word:?} lives, and its death counts");
        }
    }
}

/// Threads that enter as one of a few ranks, look at the others and leave.
struct Comings {
    table: TableMemory,
    plan: Plan,
    /// Threads that have an entry, a bit each, kept by the host.
    claims: Cell<u64>,
}

impl Comings {
    fn has_entry(&self, cpu: &Explorer, has: bool) {
        let me = 1 << cpu.id();
        self.claims.set(self.claims.get() & !me | if has { me } else { 0 });
    }
}

impl SubjectRun for Comings {
    fn thread(&self, cpu: &Explorer) {
        let table = self.table.seen_by(cpu);
        for n in 0..self.plan.ops {
            let rank = ((cpu.id() + n) % RANKS) as u32;
            let entered = loop {
                if let Some(entered) = table.enter(rank, || self.has_entry(cpu, true)) {
                    break entered;
                }
                cpu.delay(PAUSE);
            };
            (0..RANKS as u32).for_each(|index| {
                table.look_after(index);
                table.look(index);
            });
            let free = EntryWord { state: EntryState::Free, pid: 0, ..entered };
            assert!(table.change(rank, entered.pack(), free), "taken for dead");
            self.has_entry(cpu, false);
        }
    }

    fn last(&self, cpu: &Explorer) {
        let table = self.table.seen_by(cpu);
        (0..RANKS as u32).for_each(|index| table.look_after(index));
        let dead = (0..self.plan.threads).filter(|&t| cpu.is_dead(t) && self.claims.get() >> t & 1 == 1);
        assert_eq!(table.noted_deaths().count(), dead.count() as u64, "deaths of participants");
    }
}

/// Participants at their barrier. Those of even ranks sleep at their doorbells.
struct MembersAtBarrier {
    table: TableMemory,
    policy: Policy,
    episodes: ToldEpisodes<u32>,
}

/// Surroundings of a waiter that looks around after each death.
struct UntilDeath {
    dead: Arc<AtomicU64>,
    /// Deaths that it has looked after.
    seen: u64,
}

impl Surroundings for UntilDeath {
    fn abandoned(&self) -> bool {
        // Relaxed: there is one thread of the host.
        self.dead.load(Ordering::Relaxed) != self.seen
    }
}

impl MembersAtBarrier {
    fn new(plan: &Plan, memory: &ExploredMemory, policy: Policy) -> MembersAtBarrier {
        let table = TableMemory::new(memory, plan.threads);
        let cpu = memory.at_rest();
        for (rank, word) in table.words.iter().enumerate() {
            let pid = rank as u32 + 1;
            let entry = EntryWord { generation: 1, start_hash: 0, pid, state: EntryState::Entered };
            // Relaxed: before all threads.
            cpu.store(word, entry.pack(), Ordering::Relaxed);
        }
        MembersAtBarrier { table, policy, episodes: ToldEpisodes::new(plan, memory) }
    }

    /// Waits for the end of an episode. Returns its word.
    fn wait(&self, table: &ExploredTable<'_>, mine: u32) -> u64 {
        let cpu = table.cpu;
        let mut around = UntilDeath { dead: cpu.memory().dead(), seen: 0 };
        loop {
            // Relaxed: as in `abandoned`.
            around.seen = around.dead.load(Ordering::Relaxed);
            (0..table.ranks()).for_each(|index| table.look_after(index));
            table.complete_episode(mine);
            if !cpu.id().is_multiple_of(2) {
                let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
                match wait.wait_until(cpu, table.episode(), |now| reached(number(now), mine)) {
                    Ok(now) => return now,
                    Err(_) => continue,
                }
            }
            let doorbell = table.doorbell_word(cpu.id() as u32);
            // Relaxed: the fences of the announcement and of the episode's end order it.
            let count = cpu.load(doorbell, Ordering::Relaxed);
            table.announce_sleep_at_doorbell(mine);
            let now = table.last_episode();
            if reached(number(now), mine) {
                return now;
            }
            cpu.park(doorbell, count, ENDLESS);
        }
    }
}

impl SubjectRun for MembersAtBarrier {
    fn thread(&self, cpu: &Explorer) {
        let (table, me) = (self.table.seen_by(cpu), cpu.id() as u32);
        self.episodes.pass_all(cpu, || {
            let mine = table.arrive_at_next(me);
            result_of(self.wait(&table, mine), mine)
        });
        // Leaves: later episodes do without it.
        let entered = table.entry_bits(me);
        let free = EntryWord { state: EntryState::Free, pid: 0, ..EntryWord::unpack(entered) };
        table.change(me, entered, free);
    }
}
