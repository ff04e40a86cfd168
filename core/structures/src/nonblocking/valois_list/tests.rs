//! A list is a map in order that gives every node back, alone and among threads.

use std::collections::BTreeMap;

use towpath_machine::{Heap, Native, Random};

use super::*;
use towpath_sync::Spinning;

type Tested = ValoisList<Native>;

/// Takes everything out; then nothing is in use but the node between the first cell
/// and the last.
fn is_given_back(list: &Tested, keys: impl Iterator<Item = u64>) {
    let cpu = Native::with_id(0);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me: 0 };
    for key in keys {
        list.remove(&actor, key).unwrap();
    }
    // Comes past every extra node.
    assert_eq!(list.get(&actor, u64::MAX), Ok(None));
    let referred = |n: &u32| list.node(*n).unwrap().references.load(Ordering::Relaxed) != 0;
    let left: Vec<u32> = (1..list.nodes.nodes() as u32).filter(referred).collect();
    let root = list.root.references.load(Ordering::Relaxed);
    assert!(left.len() <= 1, "{left:?}");
    assert_eq!(root.wrapping_add(IN_USE + ONE), if left.is_empty() { IN_USE + ONE } else { 0 });
}

#[test]
fn it_is_a_map_in_order_and_gives_every_node_back() {
    let list = Tested::new(&Heap, 8, 1);
    let cpu = Native::with_id(0);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me: 0 };
    let mut model = BTreeMap::new();
    let mut random = Random::new(5);
    for turn in 0..20_000 {
        let (number, value) = (random.word(), turn);
        let key = if number % 7 == 0 { u64::MAX - number % 3 } else { number % 11 };
        match number / 16 % 3 {
            0 if model.len() < 8 || model.contains_key(&key) => {
                let there = model.get(&key).copied();
                assert_eq!(list.insert(&actor, key, value), Ok(there));
                model.entry(key).or_insert(value);
            }
            1 => assert_eq!(list.remove(&actor, key), Ok(model.remove(&key))),
            _ => assert_eq!(list.get(&actor, key), Ok(model.get(&key).copied())),
        }
    }
    is_given_back(&list, model.into_keys());
}

#[test]
fn threads_find_what_they_have_put_in() {
    const EACH: u64 = 6;
    let list = Tested::new(&Heap, 64, 3);
    std::thread::scope(|scope| {
        for me in 0..3 {
            let list = &list;
            scope.spawn(move || {
                let cpu = Native::with_id(me as u32);
                let actor = Actor { cpu: &cpu, wait: &Spinning, me };
                let mut random = Random::new(me as u64);
                let mut mine = BTreeMap::new();
                for turn in 0..30_000u64 {
                    let number = random.word();
                    // Keys of all lie between each other's.
                    let key = number % EACH * 3 + me as u64;
                    if (number / 64).is_multiple_of(2) {
                        let there = mine.get(&key).copied();
                        // A participant that has no processor for a while can keep all nodes out of
                        // use.
                        let put = list.insert(&actor, key, turn);
                        if put != Err(StableError::Exhausted) {
                            assert_eq!(put, Ok(there), "{me} {turn}");
                            mine.entry(key).or_insert(turn);
                        }
                    } else {
                        assert_eq!(list.remove(&actor, key), Ok(mine.remove(&key)), "{me} {turn}");
                    }
                }
                for key in (0..EACH).map(|n| n * 3 + me as u64) {
                    assert_eq!(list.get(&actor, key), Ok(mine.get(&key).copied()));
                }
            });
        }
    });
    is_given_back(&list, 0..EACH * 3);
}

#[test]
fn a_key_that_all_want_is_had_by_one_at_a_time() {
    let list = Tested::new(&Heap, 8, 3);
    let balance = std::sync::atomic::AtomicI64::new(0);
    std::thread::scope(|scope| {
        for me in 0..3 {
            let (list, balance) = (&list, &balance);
            scope.spawn(move || {
                let cpu = Native::with_id(me as u32);
                let actor = Actor { cpu: &cpu, wait: &Spinning, me };
                for turn in 0..20_000 {
                    let key = turn % 2;
                    if list.insert(&actor, key, turn) == Ok(None) {
                        balance.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    if list.remove(&actor, key).unwrap().is_some() {
                        balance.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let cpu = Native::with_id(0);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me: 0 };
    let left = (0..2).filter(|key| list.get(&actor, *key).unwrap().is_some()).count();
    assert_eq!(balance.into_inner(), left as i64);
    is_given_back(&list, 0..2);
}
