//! Nothing but tests: the structures under the model checker.
//!
//! A package of its own, since models are compiled with optimisation, and the other tests of the
//! structures without: that takes a third of the time.
