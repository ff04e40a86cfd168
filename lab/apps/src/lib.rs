//! Applications of the papers, each written once: a kernel is a function of a processor
//! and its memory, and runs on real processors as on simulated ones.
//!
//! | module | application | paper | checked by |
//! | --- | --- | --- | --- |
//! | [`spark98`] | product of a sparse matrix and a vector | K | the sequential product |
//! | [`lu`] | LU factors of a dense matrix in blocks | N | the residual |
//! | [`raytrace`] | picture of spheres, in tiles | K | a sequential render, bit for bit |
//! | [`mp3d`] | molecules in cells of space | K | numbers, momentum, energy |
//! | [`cholesky`] | factor of a sparse matrix, by tasks | N | the residual |
//! | [`radiosity`] | light of a room | N, K | one processor, form factors, balance of light |
//! | [`barnes`] | bodies that attract each other | K | direct summation, energy |
//! | [`messages::sample`] | sample sort | L | the sorted input |
//! | [`messages::components`] | connected components | L | union and find |
//! | [`messages::fft`] | Fourier transform in three dimensions | L | its inverse, and the definition |
//!
//! [`problem`] has the list, the sizes, and the traits; [`team`] what a kernel may use beside its
//! own memory: locks, a barrier, queues of tasks. [`native`] and [`simulated`] run them.
//! `README.md` walks through one.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod barnes;
pub mod cholesky;
pub mod lu;
pub mod memory;
pub mod messages;
pub mod mp3d;
pub mod native;
pub mod parts;
pub mod problem;
pub mod program;
pub mod radiosity;
pub mod raytrace;
pub mod simulated;
pub mod spark98;
pub mod team;

pub use problem::{
    Application, ParallelLoops, PartKind, Picture, Problem, ProblemChoice, ProblemInput, Size, Verified,
};
pub use program::AnyApplication;
pub use team::{LockSet, MeetingPoint, Needs, TaskQueues, Team};

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
