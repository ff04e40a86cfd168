//! Every operation of every structure, interrupted at every instruction: the victim, a
//! child that is stepped, stands in the middle of an operation, and
//! * **kill**: others act on the same structure, then it is killed, and a survivor looks after what
//!   it has left;
//! * **stop**: SIGSTOP; others act; then it goes on;
//! * **signal**: its own handler acts on the same structure; then it goes on;
//! * **nested**: that handler is interrupted by another one in the same way.
//!
//! Each time: no operation waits; what came of all operations is what some order of them explains
//! (one that was killed has happened, or not); what is free and what is reachable are all
//! descriptors; and the structure is good for more. The same structure under a lock stands still
//! (`twins.rs`; claim G20 of the paper).
//!
//! Not `ValoisList`: it has no audit, and is not for handlers.
//!
//! `cargo test -p towpath-sync --test every_step -- every list` does it for every k (many minutes
//! for each structure; names of a structure, an act, a way to interrupt or a DCAS choose among the
//! cases). In the ordinary tests a few k of every second act; `TOWPATH_FIRST_STEP=1` takes the
//! others.
//!
//! * `acts.rs`: the structures, and what they can do. `history.rs`: whether an order of the calls
//!   explains them.
//! * `scene.rs`: what is shared with the victim. `round.rs`: one round, and the judge.

mod acts;
mod history;
#[path = "../nonblocking/models.rs"]
#[allow(dead_code, reason = "shared with the tests of that name")]
mod models;
mod round;
mod scene;
#[path = "../nonblocking/subjects.rs"]
#[allow(dead_code, unused_macros, reason = "shared with the tests of that name")]
mod subjects;
mod twins;

use std::sync::atomic::Ordering;

use towpath_machine::Native;
use towpath_structures::dcas::{Guerraoui, Harris};
use towpath_structures::nonblocking::{
    ArrayFifo, ArrayStack, DependencyMap, Fifo, HarrisMichaelList, HashMap, List, PriorityQueue, Stack,
};
use towpath_testkit::{Choice, share_cases, shared_words, watchdog};

use acts::{Act, InSegment, Places, Room};
use models::Op;
use round::{How, Round};
use subjects::{SmallPageMap, TwoWords};

/// Number of places at which an operation is interrupted in the ordinary tests.
const SAMPLES: u64 = 2;

/// Contents of the structure when the victim begins: nothing, something, as much as there
/// is room for.
fn befores() -> [Vec<Op>; 3] {
    let some = vec![Op::Put(2, 8), Op::Put(1, 7), Op::Put(3, 9)];
    [some, Vec::new(), (0..8).map(|key| Op::Put(key, 20 + key)).collect()]
}

/// Acts of the victim.
fn acts<T: InSegment>() -> Vec<(Act, &'static str)> {
    let mut acts = vec![
        (Act::Op(Op::Put(1, 50)), "put-again"),
        (Act::Op(Op::Put(6, 60)), "put"),
        (Act::Op(Op::Take(1)), "take"),
        (Act::Op(Op::Take(6)), "take-absent"),
        (Act::Op(Op::Get(T::LOOK)), "get"),
    ];
    acts.extend(T::MORE.iter().enumerate().map(|(which, name)| (Act::More(which), *name)));
    acts.push((Act::Recover, "recover"));
    acts
}

/// All cases of a structure. Returns how many there were.
fn each<T: InSegment>(choice: &Choice) -> u64 {
    let (name, mut all, mut done) = (T::name(), 0, [0; 5]);
    let (structure, dcas) = name.split_once(" over ").unwrap_or((&name, "guerraoui"));
    let round = Round::<T>::new(acts::<T>().into_iter().map(|(act, _)| act).collect());
    for ((act, act_name), turn) in acts::<T>().into_iter().zip(choice.first()..) {
        // Half of the acts on each structure, others on the next.
        if !choice.every() && !(turn + structure.len() as u64).is_multiple_of(2) && act != Act::Recover {
            continue;
        }
        for (number, before) in befores().into_iter().enumerate() {
            // Evicting is something else only if it is full.
            if !choice.every() && number != if act_name.ends_with("evicting") { 2 } else { 0 } {
                continue;
            }
            // Long, and much the same for all that have a pool.
            if !choice.every() && act == Act::Recover && !["guerraoui", "pool", "list"].contains(&structure) {
                continue;
            }
            let included = HOW.map(|(how, name)| (how, choice.includes(&[structure, dcas, act_name, name])));
            if !included.iter().any(|(_, included)| *included) {
                continue;
            }
            watchdog::begin(format!("{name}: {act_name} after {before:?}"), 1_800);
            let begin = match act {
                Act::Recover => round.begin_with_dead(&before, Act::Op(Op::Take(1))),
                _ => round.begin(&before),
            };
            let (length, states) = round.every_death(act, &begin);
            assert!(length > 20, "{act_name} has {length} instructions only");
            done[0] += states;
            for (how, _) in included.into_iter().filter(|(_, included)| *included) {
                all += 1;
                if choice.every() {
                    (0..=length).for_each(|k| round.interrupt(how, act, &begin, &[k]));
                    done[1 + how as usize] += length + 1;
                } else {
                    // Not the same remainders everywhere. One that is killed is killed once.
                    let place = |turn| (turn * length + (all * 37) % length) / SAMPLES;
                    let places: Vec<u64> = match how {
                        How::Kill | How::Nested => vec![place(all % SAMPLES)],
                        How::Stop | How::Signal => (0..SAMPLES).map(place).collect(),
                    };
                    round.interrupt(how, act, &begin, &places);
                    done[1 + how as usize] += places.len() as u64;
                }
            }
        }
    }
    if all > 0 {
        let [states, killed, stopped, signals, nested] = done;
        println!("{name:<30}{states:>8}{killed:>8}{stopped:>8}{signals:>8}{nested:>8}");
    }
    all
}

const HOW: [(How, &str); 4] =
    [(How::Kill, "kill"), (How::Stop, "stop"), (How::Signal, "signal"), (How::Nested, "nested")];

type Dcas = Guerraoui<Native, Room>;
type Textbook = Harris<Native, Room>;

/// Structures, each one case for [`share_cases`].
fn structures() -> Vec<fn(&Choice) -> u64> {
    vec![
        each::<TwoWords<Native, Dcas, Room>>,
        each::<Places>,
        each::<Stack<Native, Dcas, Room>>,
        each::<Fifo<Native, Dcas, Room>>,
        each::<ArrayStack<Native, Dcas, Room>>,
        each::<ArrayFifo<Native, Dcas, Room>>,
        each::<List<Native, Dcas, Room>>,
        each::<HashMap<Native, Dcas, Room>>,
        each::<PriorityQueue<Native, Dcas, Room>>,
        each::<DependencyMap<Native, Dcas, Room>>,
        each::<SmallPageMap<Native, Dcas, Room>>,
        each::<HarrisMichaelList<Native, Room>>,
        each::<TwoWords<Native, Textbook, Room>>,
        each::<Fifo<Native, Textbook, Room>>,
        each::<List<Native, Textbook, Room>>,
        twins::stand_still,
    ]
}

fn main() {
    let _ = Native::pause_ps(); // Measured before there are children.
    let choice = Choice::from_arguments();
    println!(
        "{:<30}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "structure", "states", "killed", "stopped", "signals", "nested"
    );
    let words = shared_words(1);
    let cases = &words[0];
    share_cases(|share| {
        for structure in structures() {
            if share.takes_next() {
                // Relaxed: only a count.
                cases.fetch_add(structure(&choice), Ordering::Relaxed);
            }
        }
    });
    assert!(cases.load(Ordering::Relaxed) > 0, "there is no such case");
}
