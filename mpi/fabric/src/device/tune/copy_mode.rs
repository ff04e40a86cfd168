//! Copy mode of long messages: copied straight out of the sender's memory, or pipelined.
//! A direct copy is one copy by the kernel
//! ([`cross_memory`](crate::device::protocol::cross_memory)); a pipeline comes through the queue in
//! pieces. The mode is measured at run time, since it depends on the kernel, the caches and the
//! ranks that share a core: Gropp & Lusk 1997, §3 leave the thresholds to the machine, too.
//!
//! **What is measured.** The receiver's time per byte, on the clock: for a direct copy the time of
//! the copy; for a pipelined message the time from asking for it to its last byte, over all bytes
//! that came meanwhile, since several may be under way. A first touch of memory, a slow sender and
//! lost turns of the core make single values too large and never too small: the least of a few
//! counts.
//!
//! **Classes.** One [`AbTest`] for each size (powers of two) and [`PairPlacement`].
//!
//! **A refusal.** A system that has no such copies (ENOSYS) is not asked again; one that does not
//! permit them (EPERM) is not asked again for that peer. **A death.** A message that never arrives
//! gives no value; the class stays as it is until others have.
//!
//! **Memory.** 2 KiB, in the endpoint; nothing is allocated. **Cost.** Settled: a few instructions
//! a message; otherwise two readings of the clock. **Don't use it** for messages to come in a given
//! way: the settings say so (`TOWPATH_CMA`).

use towpath_machine::{Native, Processor};

use towpath_channel::ab_test::{AbTest, Round};

/// The sizes of the smallest and of the largest class, as powers of two. Others are
/// counted as these.
const SIZES: (u32, u32) = (10, 25);
const CLASSES: usize = (SIZES.1 - SIZES.0 + 1) as usize;

/// The clock.
pub fn now() -> u64 {
    Native::with_id(0).now()
}

/// Copy mode of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMode {
    /// Copy through the queue, twice, by two processes at the same time.
    Pipelined,
    /// One copy.
    Direct,
}

/// Placement of sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairPlacement {
    /// Two that have a core each.
    Apart = 0,
    /// Two of more processes than there are cores.
    Oversubscribed = 1,
    /// One, and itself.
    Own = 2,
}

/// A message that is measured.
#[derive(Clone, Copy, Debug)]
pub struct CopyTrial {
    place: u8,
    class: u8,
    round: Round,
    at: u64,
    moved: u64,
}

/// Chooser of copy modes: the measurements of an endpoint.
#[derive(Clone, Debug)]
pub struct CopyModes {
    /// The first way is [`CopyMode::Pipelined`].
    classes: [[AbTest; CLASSES]; 3],
    /// Bytes of long messages that have come, in whatever way.
    moved: u64,
    refused: bool,
}

impl Default for CopyModes {
    fn default() -> Self {
        // Where cores are shared a sender that need not run is worth most; so this begins with what
        // is most likely right.
        let of = |way| [AbTest::new(way == CopyMode::Direct); CLASSES];
        CopyModes {
            classes: [of(CopyMode::Pipelined), of(CopyMode::Direct), of(CopyMode::Direct)],
            moved: 0,
            refused: false,
        }
    }
}

impl CopyModes {
    /// The way for a message of this length, and its trial if it is to be measured: from
    /// now on, by this clock.
    pub fn choose(
        &mut self,
        place: PairPlacement,
        len: usize,
        now: impl FnOnce() -> u64,
    ) -> (CopyMode, Option<CopyTrial>) {
        if self.refused {
            return (CopyMode::Pipelined, None);
        }
        let size = len.max(1).ilog2().clamp(SIZES.0, SIZES.1) - SIZES.0;
        let (direct, round) = self.classes[place as usize][size as usize].turn();
        let way = if direct { CopyMode::Direct } else { CopyMode::Pipelined };
        let trial =
            |round| CopyTrial { place: place as u8, class: size as u8, round, at: now(), moved: self.moved };
        (way, round.map(trial))
    }

    /// Bytes of a long message have come.
    #[inline(always)]
    pub fn moved(&mut self, bytes: usize) {
        self.moved = self.moved.wrapping_add(bytes as u64);
    }

    /// A message that is measured has come, whole.
    pub fn arrived(&mut self, trial: &CopyTrial, now: u64) {
        let class = &mut self.classes[usize::from(trial.place)][usize::from(trial.class)];
        let bytes = self.moved.wrapping_sub(trial.moved);
        if bytes == 0 {
            return;
        }
        let time = u128::from(now.saturating_sub(trial.at)) << 20;
        class.took(trial.round, u64::try_from(time / u128::from(bytes)).unwrap_or(u64::MAX));
    }

    /// The system has no direct copies.
    pub fn refuse(&mut self) {
        self.refused = true;
    }

    /// Returns whether direct copies are not to be tried.
    #[inline(always)]
    pub fn is_refused(&self) -> bool {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_channel::ab_test::{REST, SAMPLES};

    impl CopyMode {
        fn other(self) -> CopyMode {
            if self == CopyMode::Direct { CopyMode::Pipelined } else { CopyMode::Direct }
        }
    }

    /// A machine with a made-up clock: a byte takes `[pipelined, direct]` picoseconds.
    struct Machine {
        copy_modes: CopyModes,
        now: u64,
        costs: [u64; 2],
        /// Number of messages that came in each mode.
        came: [u32; 2],
    }

    impl Machine {
        fn new(costs: [u64; 2]) -> Machine {
            Machine { copy_modes: CopyModes::default(), now: 1 << 40, costs, came: [0; 2] }
        }

        /// One message, `late` nanoseconds later than usual.
        fn message(&mut self, place: PairPlacement, len: usize, late: u64) -> CopyMode {
            let now = self.now;
            let (way, trial) = self.copy_modes.choose(place, len, || now);
            self.now += len as u64 * self.costs[way as usize] / 1000 + late;
            self.copy_modes.moved(len);
            if let Some(trial) = trial {
                self.copy_modes.arrived(&trial, self.now);
            }
            self.came[way as usize] += 1;
            way
        }

        fn messages(&mut self, place: PairPlacement, len: usize, count: usize) -> [u32; 2] {
            self.came = [0; 2];
            (0..count).for_each(|_| {
                self.message(place, len, 0);
            });
            self.came
        }
    }

    const TRIALS: usize = SAMPLES as usize * 2;
    const ALL: [PairPlacement; 3] = [PairPlacement::Apart, PairPlacement::Oversubscribed, PairPlacement::Own];

    #[test]
    fn the_better_way_is_found_for_each_size_and_place() {
        for place in ALL {
            let mut machine = Machine::new([100, 100]);
            for len in [300, 70_000, 1 << 20, 1 << 40] {
                for (costs, better) in [([100, 50], CopyMode::Direct), ([50, 100], CopyMode::Pipelined)] {
                    machine.copy_modes = CopyModes::default();
                    machine.costs = costs;
                    machine.messages(place, len, TRIALS);
                    for _ in 0..REST.0 {
                        assert_eq!(machine.message(place, len, 0), better, "{place:?} {len}");
                    }
                    // Others are not affected.
                    let other = ALL[(place as usize + 1) % 3];
                    machine.costs = [costs[1], costs[0]];
                    machine.messages(other, len, TRIALS);
                    assert_eq!(machine.message(other, len, 0), better.other());
                    assert_eq!(machine.message(place, len, 0), better);
                }
            }
        }
    }

    #[test]
    fn what_was_held_up_counts_for_little() {
        // Direct is better, but all its messages but one are late, as are some of the others.
        let mut machine = Machine::new([100, 50]);
        for i in 0..TRIALS {
            machine.message(PairPlacement::Apart, 1 << 20, if i % 4 == 2 { 0 } else { 1_000_000_000 });
        }
        assert_eq!(machine.message(PairPlacement::Apart, 1 << 20, 0), CopyMode::Direct);
    }

    #[test]
    fn a_small_difference_changes_nothing() {
        for place in ALL {
            let mut machine = Machine::new([100, 95]);
            let before = machine.message(place, 1 << 20, 0);
            machine.messages(place, 1 << 20, TRIALS);
            assert_eq!(machine.message(place, 1 << 20, 0), before);
        }
    }

    #[test]
    fn it_looks_again_now_and_then_and_follows_what_has_changed() {
        let mut machine = Machine::new([100, 50]);
        machine.messages(PairPlacement::Apart, 1 << 20, TRIALS);
        // Less and less often: four in a hundred, then next to none.
        let came = machine.messages(PairPlacement::Apart, 1 << 20, 1000);
        assert!(came[0] >= u32::from(SAMPLES) && came[0] <= 40, "{came:?}");
        let came = machine.messages(PairPlacement::Apart, 1 << 20, 100_000);
        assert!(came[0] >= u32::from(SAMPLES) && came[0] <= 60, "{came:?}");
        machine.costs = [20, 50];
        machine.messages(PairPlacement::Apart, 1 << 20, REST.1 as usize + TRIALS);
        assert_eq!(machine.message(PairPlacement::Apart, 1 << 20, 0), CopyMode::Pipelined);
    }

    #[test]
    fn concurrent_messages_are_judged_by_their_common_time() {
        // Windows of eight, which share a pipeline: all end when all have come, and each alone
        // would look eight times as slow as it is.
        let len = 1 << 20;
        let (mut choice, mut now) = (CopyModes::default(), 0);
        for _ in 0..10 {
            let mut window = Vec::new();
            for _ in 0..8 {
                match choice.choose(PairPlacement::Apart, len, || now) {
                    (CopyMode::Pipelined, trial) => window.push(trial),
                    (CopyMode::Direct, trial) => {
                        // Half as fast.
                        now += 2 * len as u64;
                        choice.moved(len);
                        if let Some(trial) = trial {
                            choice.arrived(&trial, now);
                        }
                    }
                }
            }
            now += (window.len() * len) as u64;
            choice.moved(window.len() * len);
            for trial in window.into_iter().flatten() {
                choice.arrived(&trial, now);
            }
        }
        assert_eq!(choice.choose(PairPlacement::Apart, len, || now).0, CopyMode::Pipelined);
    }

    #[test]
    fn a_refusal_ends_it() {
        let mut machine = Machine::new([100, 50]);
        machine.copy_modes.refuse();
        assert!(machine.copy_modes.is_refused());
        for place in ALL {
            assert_eq!(machine.messages(place, 1 << 20, 1000), [1000, 0]);
        }
    }

    #[test]
    fn messages_that_never_arrive_keep_it_from_judging() {
        let mut choice = CopyModes::default();
        for i in 0..100 {
            let (way, trial) = choice.choose(PairPlacement::Apart, 1 << 20, || i);
            assert_eq!((way, trial.is_some()), (CopyMode::Pipelined, true));
        }
        // A sample that comes too late, or without a byte, is no value.
        let (_, old) = choice.choose(PairPlacement::Apart, 1 << 20, || 0);
        for _ in 0..SAMPLES {
            let (_, trial) = choice.choose(PairPlacement::Apart, 1 << 20, || 0);
            choice.arrived(&trial.unwrap(), 5);
            choice.moved(10);
            choice.arrived(&trial.unwrap(), 5);
        }
        assert_eq!(choice.choose(PairPlacement::Apart, 1 << 20, || 0).0, CopyMode::Direct);
        for _ in 0..SAMPLES {
            choice.arrived(&old.unwrap(), 5);
        }
        assert_eq!(choice.choose(PairPlacement::Apart, 1 << 20, || 0).0, CopyMode::Direct);
    }
}
