//! The schedule explorer: runs a concurrent algorithm under schedule after schedule, and
//! looks for one in which it goes wrong.
//!
//! A machine of its own ([`ExploredMemory`], [`Explorer`]), the simulator's without time: each
//! thread is a coroutine, and memory is C11's or sequentially consistent ([`MemoryModel`]). A
//! thread says which access to shared memory it wants to make next and stops; the scheduler picks
//! one of those that can go on, and under C11 which write a load takes. A thread's possible steps
//! include what native machines and model checkers don't: load-linked and store-conditional with
//! real reservations, double compare-and-swap, operations at memory, and death at any step.
//!
//! A [`Subject`] is what is explored. [`search`] tries schedules at random, by random priorities
//! (PCT) or exhaustively ([`Method`]), and reports the first fault with the shortest schedule that
//! shows it; [`replay`] runs that schedule again. [`linearize`] judges histories.
#![deny(unsafe_code)]

mod arena;
mod calls;
mod capabilities;
mod coroutine;
mod delayed;
mod dfs;
mod end;
mod fault;
mod fences;
mod footprint;
pub mod harness;
mod history;
mod linearizability;
mod machine;
mod merging;
mod pending;
mod plan;
mod processor;
mod retrace;
mod run;
mod schedule;
mod search;
pub mod sharing;
mod shrink;
mod specifications;
mod strategy;
mod strong;
mod subject;
mod thread;
mod trace;
mod words;

pub use end::End;
pub use fault::{Fault, LocatedFault};
pub use history::{Call, History, HistoryLength, MAX_CALLS, OrderedCalls};
pub use linearizability::{NoOrder, Specification, linearize};
pub use machine::{Bytes, DatumId, ExploredMemory, MAX_THREADS, Word};
pub use merging::OpenCalls;
pub use plan::{Liberties, Plan};
pub use processor::{Explorer, KernelLock};
pub use run::RunOutcome;
pub use schedule::{BadSchedule, Schedule, StepChoice, Turn};
pub use search::{
    Error, FoundFault, Method, SearchReport, SearchSettings, first_fault, replay, replay_seed, search,
};
pub use specifications::{
    FirstInFirstOut, Increment, IncrementCounter, KeyedObject, KeyedResult, Lifo, Lookup, Map, Pair,
    PairCall, Priorities, Set, Transfer, Transferred, full_without_reason, leaves_too_early, overlap,
};
pub use subject::{Subject, SubjectExtras, SubjectRun};
pub use words::MemoryModel;
