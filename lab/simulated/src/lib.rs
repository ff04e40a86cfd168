//! Nothing but tests: algorithms and protocols on the simulated machines.
//!
//! A package of its own, since the machines are compiled with optimisation, and what runs on them
//! without: that takes a fraction of the time, and few of a simulation's instructions are the
//! algorithm's.
