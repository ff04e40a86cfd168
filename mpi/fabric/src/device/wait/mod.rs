//! Waiting for messages: the idle strategy and the estimators that feed it.
pub mod activity;
pub mod estimator;
pub mod idle;
pub mod multi_domain_sleep;
pub mod oversubscription;
pub mod poll_gap;
pub mod repeat_poll;
pub mod test_predictor;
pub mod yield_cost;
