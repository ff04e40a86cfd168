//! Orderings by their places in the source, for tests that weaken one at run time.
//!
//! A machine for tests asks here, at each access, with the place of the caller
//! (`#[track_caller]`). The place is chosen by [`choose`] for a thread, or for a process by the
//! environment variable [`VARIABLE`]; [`RECORD`] makes a process tell its places instead. The
//! native machine has none of this.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::panic::Location;
use core::str::FromStr;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;

use crate::Ordering;

/// Name of the variable with the [`Weakening`] of a process, as text.
pub const VARIABLE: &str = "TOWPATH_WEAKEN";

/// Name of the variable with the file to which a process appends its accesses' places.
///
/// A line for each place and thread.
pub const RECORD: &str = "TOWPATH_PLACES";

/// Part of an access that an ordering belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrderingPart {
    /// The only ordering of the access. Of a compare-exchange: that of success, from
    /// which that of failure follows.
    Whole,
    /// The ordering of a compare-exchange that succeeds.
    Success,
    /// The ordering of a compare-exchange that fails.
    Failure,
}

const PARTS: [(OrderingPart, &str); 3] =
    [(OrderingPart::Whole, "whole"), (OrderingPart::Success, "success"), (OrderingPart::Failure, "failure")];

/// The orderings and their names; `None` stands for a fence that is not there.
const ORDERINGS: [(Option<Ordering>, &str); 6] = [
    (None, "none"),
    (Some(Ordering::Relaxed), "Relaxed"),
    (Some(Ordering::Acquire), "Acquire"),
    (Some(Ordering::Release), "Release"),
    (Some(Ordering::AcqRel), "AcqRel"),
    (Some(Ordering::SeqCst), "SeqCst"),
];

/// Place of an access in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessPlace {
    /// File, as the compiler names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column of the method's name (or of the function's path), from 1.
    pub column: u32,
}

/// An ordering to be weakened, and the ordering that it becomes.
///
/// As text: `core/sync/src/locks/mcs.rs:90:21 success AcqRel Release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weakening {
    /// Place of the access.
    pub place: AccessPlace,
    /// Ordering of the access that is weakened.
    pub part: OrderingPart,
    /// The ordering that is written there. Other accesses of this place stay as they are.
    pub from: Ordering,
    /// Its weaker replacement; `None`: the fence, the store or the update is left out.
    pub to: Option<Ordering>,
}

/// Name of an ordering, or of none.
pub fn name(order: Option<Ordering>) -> &'static str {
    ORDERINGS.iter().find(|(known, _)| *known == order).map_or("", |(_, name)| name)
}

/// Ordering of this name, if there is one: none, too.
pub fn from_name(name: &str) -> Option<Option<Ordering>> {
    ORDERINGS.iter().find(|(_, known)| *known == name).map(|(order, _)| *order)
}

impl fmt::Display for AccessPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl fmt::Display for Weakening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = PARTS.iter().find(|(part, _)| *part == self.part).map_or("", |(_, name)| name);
        write!(f, "{} {part} {} {}", self.place, name(Some(self.from)), name(self.to))
    }
}

impl FromStr for Weakening {
    type Err = String;

    fn from_str(text: &str) -> Result<Weakening, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let parsed = || {
            let [place, part, from, to] = words[..] else { return None };
            let (rest, column) = place.rsplit_once(':')?;
            let (file, line) = rest.rsplit_once(':')?;
            let place = AccessPlace {
                file: file.to_string(),
                line: line.parse().ok()?,
                column: column.parse().ok()?,
            };
            let part = PARTS.iter().find(|(_, name)| *name == part)?.0;
            Some(Weakening { place, part, from: from_name(from)??, to: from_name(to)? })
        };
        parsed().ok_or_else(|| {
            format!("`{text}` is no weakening: write FILE:LINE:COLUMN, whole, success or failure, the ordering there, and the one that it becomes (or none)")
        })
    }
}

#[derive(Clone, Copy, PartialEq)]
enum WeakenMode {
    /// The variable has not been looked at.
    Unknown,
    AsWritten,
    Weakened,
    Recording,
}

thread_local! {
    static MODE: Cell<WeakenMode> = const { Cell::new(WeakenMode::Unknown) };
    static CHOSEN: RefCell<Option<Weakening>> = const { RefCell::new(None) };
    static SEEN: RefCell<BTreeSet<AccessPlace>> = const { RefCell::new(BTreeSet::new()) };
    static RECORDED_IN: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// Weakens an ordering, or none, in all accesses of this thread from now on.
pub fn choose(weakening: Option<Weakening>) {
    MODE.set(if weakening.is_some() { WeakenMode::Weakened } else { WeakenMode::AsWritten });
    CHOSEN.set(weakening);
}

/// Returns whether an ordering is weakened in this thread, by choice.
pub fn is_chosen() -> bool {
    MODE.get() == WeakenMode::Weakened
}

/// The places of all accesses of this thread while `run` runs, with a result.
pub fn places<T>(run: impl FnOnce() -> T) -> (BTreeSet<AccessPlace>, T) {
    let before = MODE.replace(WeakenMode::Recording);
    let result = run();
    MODE.set(before);
    (SEEN.take(), result)
}

/// Reads the environment, in a thread that has no choice yet.
///
/// Panics if a variable's text makes no sense: a test would pass for nothing.
#[cold]
fn look_at_environment() {
    let text = std::env::var(VARIABLE).ok();
    choose(text.map(|text| text.parse().unwrap_or_else(|error| panic!("{VARIABLE}: {error}"))));
    if let Some(path) = std::env::var_os(RECORD) {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.unwrap_or_else(|error| panic!("{RECORD}: {}: {error}", path.display()));
        RECORDED_IN.set(Some(file));
        MODE.set(WeakenMode::Recording);
    }
}

/// Keeps a place, in the file too if there is one.
#[cold]
fn record(place: AccessPlace) {
    let line = format!("{place}\n");
    if SEEN.with_borrow_mut(|seen| seen.insert(place)) {
        RECORDED_IN.with_borrow_mut(|file| {
            // One call for a line: lines of several threads do not mix.
            let written = file.as_mut().map_or(Ok(()), |file| file.write_all(line.as_bytes()));
            written.unwrap_or_else(|error| panic!("{RECORD}: {error}"));
        });
    }
}

/// Weakening of this place, if it is chosen.
#[cold]
fn unusual(at: &'static Location<'static>) -> Option<Weakening> {
    if MODE.get() == WeakenMode::Unknown {
        look_at_environment();
    }
    if MODE.get() == WeakenMode::Recording {
        record(AccessPlace { file: at.file().into(), line: at.line(), column: at.column() });
        return None;
    }
    let is_here = |w: &&Weakening| {
        (w.place.line, w.place.column) == (at.line(), at.column()) && w.place.file == at.file()
    };
    CHOSEN.with_borrow(|chosen| chosen.as_ref().filter(is_here).cloned())
}

#[inline]
fn chosen(at: &'static Location<'static>) -> Option<Weakening> {
    if MODE.get() == WeakenMode::AsWritten { None } else { unusual(at) }
}

/// Order of an access at this place.
#[inline]
pub fn access(at: &'static Location<'static>, order: Ordering) -> Ordering {
    chosen(at).filter(|w| w.from == order).and_then(|w| w.to).unwrap_or(order)
}

/// Returns whether the store or update at this place is left out.
///
/// A store then changes nothing, and an update answers as if it had been made.
#[inline]
pub fn leaves_out(at: &'static Location<'static>) -> bool {
    chosen(at).is_some_and(|w| w.to.is_none())
}

/// Order of a fence at this place, if it is one.
#[inline]
pub fn fence(at: &'static Location<'static>, order: Ordering) -> Option<Ordering> {
    chosen(at).filter(|w| w.from == order).map_or(Some(order), |w| w.to)
}

/// Orders of success and failure of a compare-exchange at this place.
#[inline]
pub fn exchange(at: &'static Location<'static>, orders: (Ordering, Ordering)) -> (Ordering, Ordering) {
    let Some(Weakening { part, from, to: Some(to), .. }) = chosen(at) else { return orders };
    match part {
        OrderingPart::Success if orders.0 == from => (to, orders.1),
        OrderingPart::Failure if orders.1 == from => (orders.0, to),
        OrderingPart::Whole if orders.0 == from => (to, failure(to)),
        _ => orders,
    }
}

/// The order of a failure that belongs to that of success.
const fn failure(order: Ordering) -> Ordering {
    match order {
        Ordering::AcqRel | Ordering::Acquire => Ordering::Acquire,
        Ordering::SeqCst => Ordering::SeqCst,
        _ => Ordering::Relaxed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn here(order: Ordering) -> (Ordering, &'static Location<'static>) {
        (access(Location::caller(), order), Location::caller())
    }

    #[test]
    fn only_the_chosen_place_is_weakened() {
        let look = |weakened: bool| {
            let mut places = Vec::new();
            let mut orders = Vec::new();
            for _ in 0..2 {
                let (order, at) = here(Ordering::Acquire);
                orders.push(order);
                places.push(at);
            }
            assert_eq!(here(Ordering::Acquire).0, Ordering::Acquire, "{weakened}");
            (orders, places[0])
        };
        choose(None);
        let (orders, at) = look(false);
        assert_eq!(orders, [Ordering::Acquire; 2]);
        let text = format!("{}:{}:{} whole Acquire Relaxed", at.file(), at.line(), at.column());
        let weakening: Weakening = text.parse().unwrap();
        assert_eq!(weakening.to_string(), text);
        choose(Some(weakening));
        assert_eq!(look(true).0, [Ordering::Relaxed; 2]);
        let absent: Weakening = text.replace("Relaxed", "none").parse().unwrap();
        choose(Some(absent));
        assert!(leaves_out(at));
        assert_eq!(look(true).0, [Ordering::Acquire; 2], "only what asks is left out");
        choose(None);
        assert!(!leaves_out(at));
        let (seen, _) = places(|| look(false));
        assert_eq!(seen.len(), 2);
        assert!(seen.iter().any(|place| place.line == at.line()));
    }

    #[test]
    fn nonsense_is_named() {
        for text in [
            "",
            "a.rs:1:2 whole",
            "a.rs:1 whole Release Relaxed",
            "a.rs:1:2 half Release Relaxed",
            "a.rs:1:2 whole strong Relaxed",
            "a.rs:1:2 whole none Relaxed",
        ] {
            assert!(text.parse::<Weakening>().unwrap_err().contains("is no weakening"), "{text}");
        }
        let exchanged = |part, from| {
            let at = Location::caller();
            let place = AccessPlace { file: at.file().into(), line: at.line(), column: at.column() };
            choose(Some(Weakening { place, part, from, to: Some(Ordering::Release) }));
            exchange(at, (Ordering::AcqRel, Ordering::Acquire))
        };
        use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
        assert_eq!(exchanged(OrderingPart::Success, AcqRel), (Release, Acquire));
        assert_eq!(exchanged(OrderingPart::Whole, AcqRel), (Release, Relaxed));
        assert_eq!(exchanged(OrderingPart::Failure, Acquire), (AcqRel, Release));
        assert_eq!(exchanged(OrderingPart::Whole, SeqCst), (AcqRel, Acquire));
        choose(None);
    }
}
