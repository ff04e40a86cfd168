//! Kept numbers of threads beside those that are asked for.

use towpath_c::thread_number::processor;
use towpath_machine::{Native, Processor};

#[test]
fn kept_numbers_are_those_of_the_threads() {
    let numbers = || {
        let all: Vec<_> = (0..3).map(|p| (processor(p).id(), Native::of_participant(p).id())).collect();
        assert!(all.iter().all(|(kept, asked)| kept == asked), "{all:?}");
        all[0].0
    };
    let mine = numbers();
    assert_eq!(numbers(), mine);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || assert_ne!((numbers(), numbers()), (mine, mine)));
        other.join().unwrap();
    });
}

/// A destructor that runs after the number was given back gets one of its own.
#[test]
fn number_that_was_given_back_is_not_kept() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            assert_eq!(processor(1).id(), Native::of_participant(1).id());
        }
    }
    thread_local!(static LATE: Late = const { Late });
    // Made before the number is taken: dropped after it was given back.
    std::thread::spawn(|| {
        LATE.with(|_| ());
        assert_eq!(processor(1).id(), Native::of_participant(1).id());
    })
    .join()
    .unwrap();
}
