//! Schedules: the threads that take the steps of a run, in a text that can be given back.

use std::fmt::{Display, Formatter, Write};
use std::str::FromStr;

/// End of a thread's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Turn {
    /// The expected one: the step takes the latest value that it may.
    Normal,
    /// An older write than the latest, so many possible ones back: the step takes its
    /// value, or places its own write behind it.
    Earlier(u8),
    /// The other way that it may: a wait times out, a store-conditional fails for no
    /// reason, a park returns at once.
    Other,
    /// None at all: the thread dies before the step.
    Kill,
    /// None: the thread dies before the step, and before a store that a compiler may have
    /// moved behind others, so many back.
    Lose(u8),
    /// A signal, whose handler runs before the step.
    ///
    /// Before a store, too, that a compiler may have moved behind others, so many back, unless
    /// that is 0.
    Signal(u8),
}

impl Turn {
    /// A number of its own.
    pub(crate) fn number(self) -> u64 {
        match self {
            Turn::Normal => 0,
            Turn::Other => 1,
            Turn::Kill => 2,
            Turn::Earlier(n) => 1_000 + u64::from(n),
            Turn::Lose(n) => 2_000 + u64::from(n),
            Turn::Signal(n) => 3_000 + u64::from(n),
        }
    }

    /// Returns whether the thread dies.
    pub(crate) fn is_death(self) -> bool {
        matches!(self, Turn::Kill | Turn::Lose(_))
    }

    /// Returns whether the thread's step is not taken now.
    pub(crate) fn is_event(self) -> bool {
        self.is_death() || matches!(self, Turn::Signal(_))
    }
}

/// One decision of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepChoice {
    /// The thread's number.
    pub thread: usize,
    /// End of its step.
    pub turn: Turn,
}

impl StepChoice {
    /// The thread takes an ordinary step.
    pub fn normal(thread: usize) -> StepChoice {
        StepChoice { thread, turn: Turn::Normal }
    }
}

/// All decisions of a run, in order.
///
/// Written as runs, separated by dots: `0x4.1x2.0t.2k` lets thread 0 take four steps, thread 1 two,
/// then thread 0's wait times out (or whatever else its next step may do), and thread 2 dies. `1r2`
/// lets thread 1 take a step with the value two before the latest; with `2l1` thread 2 dies without
/// the last of its stores; `2s0` interrupts it, `2s1` before it has made its last store. Where a
/// schedule ends, the thread that ran last goes on, and after it the next that can.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Schedule(pub Vec<StepChoice>);

impl Schedule {
    /// Returns the number of steps by another thread than the step before.
    pub fn switches(&self) -> usize {
        self.0.windows(2).filter(|pair| pair[0].thread != pair[1].thread).count()
    }

    /// Returns the number of steps that take an earlier value than the latest.
    pub fn stale(&self) -> usize {
        self.0.iter().filter(|c| matches!(c.turn, Turn::Earlier(_))).count()
    }

    /// Measure by which failing schedules are compared: the fewest old values, then the
    /// fewest switches, then the fewest steps.
    pub fn size(&self) -> (usize, usize, usize) {
        (self.stale(), self.switches(), self.0.len())
    }

    /// The runs: equal decisions one after the other, and how many.
    pub fn runs(&self) -> impl Iterator<Item = (StepChoice, usize)> {
        self.0.chunk_by(|a, b| a == b).map(|run| (run[0], run.len()))
    }
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let mut is_first = true;
        for (choice, count) in self.runs() {
            if !std::mem::take(&mut is_first) {
                f.write_char('.')?;
            }
            match choice.turn {
                Turn::Earlier(n) => {
                    let one = format!("{}r{n}", choice.thread);
                    f.write_str(&vec![one; count].join("."))?;
                }
                Turn::Lose(n) => write!(f, "{}l{n}", choice.thread)?,
                Turn::Signal(n) => {
                    let one = format!("{}s{n}", choice.thread);
                    f.write_str(&vec![one; count].join("."))?;
                }
                Turn::Normal => write!(f, "{}x{count}", choice.thread)?,
                Turn::Other => write!(f, "{}t{count}", choice.thread)?,
                Turn::Kill => write!(f, "{}k", choice.thread)?,
            }
        }
        Ok(())
    }
}

/// Error in the text of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{piece}` is no part of a schedule: write runs separated by dots, such as 0x4 (thread 0 takes four steps), 0t1 (its wait times out), 2k (thread 2 dies), 1r2 (thread 1 takes the value two before the latest)"
)]
pub struct BadSchedule {
    piece: String,
}

/// More steps than any run takes: a schedule that says so is a mistake.
const MOST: usize = 1_000_000;

impl FromStr for Schedule {
    type Err = BadSchedule;

    fn from_str(text: &str) -> Result<Schedule, BadSchedule> {
        let mut choices = Vec::new();
        for piece in text.split('.').filter(|p| !p.is_empty()) {
            let bad = || BadSchedule { piece: piece.to_string() };
            let at = piece.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
            let (thread, rest) = piece.split_at(at);
            let thread = thread.parse().map_err(|_| bad())?;
            let turn = match rest.as_bytes()[0] {
                which @ (b'r' | b'l' | b's') => {
                    let back = rest.get(1..).and_then(|n| n.parse().ok());
                    let back = back.filter(|n| *n > 0 || which == b's').ok_or_else(bad)?;
                    let turn = match which {
                        b'r' => Turn::Earlier(back),
                        b'l' => Turn::Lose(back),
                        _ => Turn::Signal(back),
                    };
                    choices.push(StepChoice { thread, turn });
                    continue;
                }
                b'x' => Turn::Normal,
                b't' => Turn::Other,
                b'k' => Turn::Kill,
                _ => return Err(bad()),
            };
            let count = match rest.get(1..) {
                Some("") => 1,
                Some(count) => count.parse().map_err(|_| bad())?,
                None => return Err(bad()),
            };
            if count > MOST || choices.len() + count > MOST {
                return Err(bad());
            }
            choices.extend(std::iter::repeat_n(StepChoice { thread, turn }, count));
        }
        Ok(Schedule(choices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let text = "0x4.1x2.0t1.2k.1r2.1r2.1x1.1s0.1l3";
        let schedule: Schedule = text.parse().unwrap();
        assert_eq!(schedule.to_string(), text);
        assert_eq!(schedule.0.len(), 13);
        assert_eq!((schedule.switches(), schedule.stale()), (4, 2));
        assert_eq!("0x.0t".parse::<Schedule>().unwrap().to_string(), "0x1.0t1");
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["7", "x4", "0y3", "0x4.1q", "0x99999999", "0r0", "0r", "0r999", "0xé", "0é"] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains("is no part of a schedule"), "{error}");
        }
    }
}
