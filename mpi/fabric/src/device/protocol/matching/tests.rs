//! Matching against a model: two plain lists, searched from the front.

use towpath_machine::Random;

use super::*;

fn random_pattern(random: &mut Random, ignores: &[u64]) -> MatchPattern {
    let source = if random.below(3) == 0 { ANY } else { random.below(3) as u32 };
    MatchPattern {
        source,
        tag: random.below(8),
        ignore: ignores[random.below(ignores.len() as u64) as usize],
    }
}

fn compare(seed: u64, ignores: &[u64], steps: u32) {
    let mut random = Random::new(seed);
    let mut matcher = Matcher::<u64, u64>::default();
    let (mut posted, mut waiting) = (Vec::<(MatchPattern, u64)>::new(), Vec::<(u32, u64, u64)>::new());
    for id in 0..u64::from(steps) {
        match random.below(5) {
            0 | 1 => {
                let pattern = random_pattern(&mut random, ignores);
                let expected =
                    waiting.iter().position(|w| pattern.accepts(w.0, w.1)).map(|i| waiting.remove(i).2);
                let found = matcher.find_waiting(&pattern);
                assert_eq!(found.and_then(|place| matcher.take_waiting(place)), expected);
                if expected.is_none() {
                    matcher.post(pattern, id);
                    posted.push((pattern, id));
                }
            }
            2 | 3 => {
                let (source, tag) = (random.below(3) as u32, random.below(8));
                let expected =
                    posted.iter().position(|p| p.0.accepts(source, tag)).map(|i| posted.remove(i).1);
                let found = matcher.find_posted(source, tag);
                assert_eq!(found.and_then(|place| matcher.take_posted(place)), expected);
                if expected.is_none() {
                    matcher.keep(source, tag, id);
                    waiting.push((source, tag, id));
                }
            }
            _ => {
                // A receive is cancelled.
                if !posted.is_empty() {
                    let (_, id) = posted.remove(random.below(posted.len() as u64) as usize);
                    let place = matcher.search_posted(|_, v| *v == id).unwrap();
                    assert_eq!(matcher.take_posted(place), Some(id));
                }
            }
        }
        assert_eq!(matcher.waiting(), waiting.len());
    }
}

#[test]
fn finds_what_plain_lists_find() {
    for seed in 0..60 {
        compare(seed, &[0], 400);
        compare(seed, &[0, 6, 7, u64::MAX], 400);
    }
}

#[test]
fn finds_it_with_more_classes_than_it_keeps() {
    let ignores: Vec<u64> = (0..20).collect();
    for seed in 100..140 {
        compare(seed, &ignores, 600);
    }
}

#[test]
fn many_messages_wait_in_order() {
    let mut matcher = Matcher::<(), u64>::default();
    for i in 0..100_000 {
        matcher.keep(1, i % 1000, i);
    }
    let pattern = MatchPattern { source: 1, tag: 7, ignore: 0 };
    for i in 0..100 {
        let place = matcher.find_waiting(&pattern).unwrap();
        assert_eq!(matcher.take_waiting(place), Some(7 + i * 1000));
    }
    assert_eq!(matcher.find_waiting(&pattern), None);
    assert_eq!(matcher.waiting(), 99_900);
}
