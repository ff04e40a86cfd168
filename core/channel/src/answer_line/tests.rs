//! First looks at an answer line.

use std::sync::Arc;

use towpath_machine::{Heap, Native};

use super::*;
use crate::packet::Form;
use crate::path::PacketContent;

#[test]
fn first_looks_pause_after_an_early_one_and_try_again() {
    let line = Arc::new(AnswerLine::<Native>::new(&Heap));
    let end = |me, other| AnswerEnd::new(Some(Arc::clone(&line)), me, other);
    let (cpu, lower, upper) = (Native::with_id(0), end((1, 5), (2, 9)), end((2, 9), (1, 5)));
    assert!(!lower.attach(&cpu) && upper.attach(&cpu) && lower.attach(&cpu));
    let args = [7];
    let out = PacketContent { form: Form::Short, handler: 3, tag: 1, args: &args, aux: 0, source: 0 };

    assert!(upper.look_or_pause(&cpu).is_none(), "too early");
    lower.send(&cpu, &out, false, 0);
    for pause in 0..PAUSES {
        assert!(upper.look_or_pause(&cpu).is_none(), "{pause}");
    }
    assert!(upper.look_or_pause(&cpu).is_some(), "it tries a look");
    assert!(upper.look_or_pause(&cpu).is_some(), "which came in time");
    assert!(upper.await_answer(&cpu, 1, true).is_some());
}
