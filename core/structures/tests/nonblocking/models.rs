//! Models of the structures, for one operation after the other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Operation of a model. The meaning of the numbers is the structure's business: a key, a
/// priority, an object; a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Puts something in.
    Put(u64, u64),
    /// Takes something out.
    Take(u64),
    /// Looks.
    Get(u64),
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Done, with this answer.
    Is(Option<u64>),
    /// No room.
    Full,
    /// Unknown: its participant died meanwhile.
    Died,
}

/// A sequential model.
pub trait Model: Clone + Default + PartialEq + std::fmt::Debug {
    fn apply(&mut self, op: Op) -> Option<u64>;
    /// Number of entries.
    fn len(&self) -> usize;
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackModel(Vec<u64>);

impl Model for StackModel {
    fn apply(&mut self, op: Op) -> Option<u64> {
        match op {
            Op::Put(_, value) => self.0.push(value),
            Op::Take(_) => return self.0.pop(),
            Op::Get(_) => {}
        }
        None
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct FifoModel(VecDeque<u64>);

impl Model for FifoModel {
    fn apply(&mut self, op: Op) -> Option<u64> {
        match op {
            Op::Put(_, value) => self.0.push_back(value),
            Op::Take(_) => return self.0.pop_front(),
            Op::Get(_) => {}
        }
        None
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Model of a map; an insertion does, or does not, replace the old value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MapModel<const REPLACES: bool>(BTreeMap<u64, u64>);

impl<const REPLACES: bool> Model for MapModel<REPLACES> {
    fn apply(&mut self, op: Op) -> Option<u64> {
        match op {
            Op::Put(key, value) => {
                let there = self.0.get(&key).copied();
                if REPLACES || there.is_none() {
                    self.0.insert(key, value);
                }
                there
            }
            Op::Take(key) => self.0.remove(&key),
            Op::Get(key) => self.0.get(&key).copied(),
        }
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The least priority first, in the order of arrival among equals. Answers with priority
/// and value in one number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriorityModel(Vec<(u64, u64)>);

impl PriorityModel {
    pub fn both(of: (u64, u64)) -> u64 {
        of.0 << 32 | of.1
    }
}

impl Model for PriorityModel {
    fn apply(&mut self, op: Op) -> Option<u64> {
        match op {
            Op::Put(priority, value) => {
                let at = self.0.partition_point(|(p, _)| *p <= priority);
                self.0.insert(at, (priority, value));
                None
            }
            Op::Take(_) => (!self.0.is_empty()).then(|| Self::both(self.0.remove(0))),
            Op::Get(_) => self.0.first().map(|first| Self::both(*first)),
        }
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Model of a dependency map. `Get` asks for the pair of `key / 8` and `key % 8`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DependencyModel(BTreeSet<(u64, u64)>);

impl Model for DependencyModel {
    fn apply(&mut self, op: Op) -> Option<u64> {
        match op {
            Op::Put(object, dependent) => self.0.insert((object, dependent)).then_some(1),
            Op::Take(object) => {
                let first = self.0.range((object, 0)..=(object, u64::MAX)).next().copied()?;
                self.0.remove(&first);
                Some(first.1)
            }
            Op::Get(pair) => self.0.contains(&(pair / 8, pair % 8)).then_some(1),
        }
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Two words that begin with 0 and are changed together: `Put` counts the first up and
/// gives the second a value if that has another one (and answers which), `Take` takes one away from
/// the first and gives it to the second, `Get` reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WordsModel([u64; 2]);

impl Model for WordsModel {
    fn apply(&mut self, op: Op) -> Option<u64> {
        match op {
            Op::Put(_, value) => {
                let former = self.0[1];
                self.0 = [self.0[0] + 1, value];
                Some(former)
            }
            Op::Take(_) => {
                let first = self.0[0].checked_sub(1)?;
                self.0 = [first, self.0[1] + 1];
                Some(first)
            }
            Op::Get(word) => Some(self.0[word as usize]),
        }
    }
    fn len(&self) -> usize {
        0
    }
}
