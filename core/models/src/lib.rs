//! Nothing but tests: locks, barriers, the channel's queue and the structures under the
//! model checker, and on a sequential machine.
//!
//! A package of its own, since a model's algorithm is compiled without optimisation, in a fraction
//! of the time, and the model checker with it: that is where the time of a run goes.
