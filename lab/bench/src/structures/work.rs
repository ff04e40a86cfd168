//! A participant's work: operations as fast as it can, some of them timed; or, where
//! participants are killed, operations whose effect is written down.

use std::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::{Processor, Random};
use towpath_structures::nonblocking::StableError;

use super::board::{Board, BoardMember, MOST, TOKENS};
use super::subject::{StructureOp, Subject};
use super::{Structure, halt};

/// One operation in so many is timed: reading the clock takes as long as a short
/// operation.
const TIMED: u64 = 16;
/// Number of keys of a participant's own, where whereabouts are written down.
const KEYS: u64 = 64;
/// Number of values of a key.
const VERSIONS: u64 = 1000;

/// The kind of work.
#[derive(Clone, Copy, Debug)]
pub struct WorkKind {
    /// Structure that is worked on.
    pub structure: Structure,
    /// Number of operations in a hundred that read.
    pub reads: u32,
    /// Seed of pseudo-random choices.
    pub seed: u64,
    /// True if the whereabouts of everything are written down.
    pub recorded: bool,
}

/// Number of keys, about half of which are in: short chains for structures that are
/// searched from their beginning.
const fn keys(structure: Structure) -> u64 {
    match structure {
        Structure::List => 128,
        _ => 4096,
    }
}

/// Fills a structure to its state while it is measured.
pub fn fill(
    subject: &dyn Subject,
    member: &BoardMember<'_>,
    structure: Structure,
) -> Result<(), StableError> {
    let mut random = Random::stream(7, 0);
    let ops: Vec<StructureOp> = match structure {
        Structure::Stack | Structure::Fifo => (1..=1024).map(|value| StructureOp::Put(0, value)).collect(),
        // From the last on, so that each is put in at the beginning.
        Structure::List | Structure::HashMap => (0..keys(structure))
            .rev()
            .filter(|key| key % 2 == 0)
            .map(|key| StructureOp::Put(key, key))
            .collect(),
        Structure::PriorityQueue => {
            (1..=64).map(|value| StructureOp::Put(random.below(1000), value)).collect()
        }
    };
    ops.into_iter().try_for_each(|op| subject.act(member, op).map(|_| ()))
}

/// A participant's reason for giving up as a number that is not 0, and back.
fn code(error: StableError) -> u64 {
    error as u64 + 1
}

/// The error of that number.
pub fn error(code: u64) -> Option<StableError> {
    use StableError::{Abandoned, Corrupt, Exhausted, TooDeep, TooLarge, UnknownParticipant, Unsuited};
    let all = [Exhausted, UnknownParticipant, TooDeep, TooLarge, Corrupt, Abandoned, Unsuited];
    all.into_iter().find(|e| self::code(*e) == code)
}

// Words of the board: the last writes of a dead participant are known in order.
fn read(word: &AtomicU64) -> u64 {
    // (P1) Acquire: pairs with the Release (P2) in `write` and in the crew.
    word.load(Ordering::Acquire)
}
fn write(word: &AtomicU64, value: u64) {
    // (P2) Release: pairs with the Acquire (P1) in `read` and (H1) in the crew.
    word.store(value, Ordering::Release);
}

/// A participant's life, until all shall end or it cannot go on.
pub fn work(subject: &dyn Subject, member: &BoardMember<'_>, board: &Board<'_>, task: &WorkKind) {
    let outcome = match (task.recorded, task.structure.has_keys()) {
        (false, _) => subject.work(member, board, task),
        (true, true) => with_keys(subject, member, board, task),
        (true, false) => with_tokens(subject, member, board, task),
    };
    if let Err(error) = outcome {
        write(board.failed(member.me), code(error));
    }
}

/// A participant that counts its operations and notes the times of some.
pub fn loaded<T: Subject + ?Sized>(
    subject: &T,
    member: &BoardMember<'_>,
    board: &Board<'_>,
    task: &WorkKind,
) -> Result<(), StableError> {
    let me = member.me;
    let mut random = Random::stream(task.seed, me as u64);
    let (has_keys, keys) = (task.structure.has_keys(), keys(task.structure));
    let done = board.done(me);
    // Goes on counting where a predecessor has ended. Relaxed, here and below: a count, and a flag
    // that orders nothing.
    let mut operations = done.load(Ordering::Relaxed);
    let mut turn = 0u64;
    let halt = board.halt(me);
    while board.end().load(Ordering::Relaxed) == 0 {
        let number = random.word();
        let op = if has_keys {
            let key = number / 256 % keys;
            match number % 256 {
                n if n * 100 < u64::from(task.reads) * 256 => StructureOp::Get(key),
                n if n % 2 == 0 => StructureOp::Put(key, turn),
                _ => StructureOp::Take(key),
            }
        } else if turn.is_multiple_of(2) {
            StructureOp::Put(number % 1000, turn * MOST as u64 + me as u64)
        } else {
            StructureOp::Take(0)
        };
        // The first of some, then the second of the next: both kinds where they alternate.
        let timed = turn % TIMED == turn / TIMED % 2;
        turn += 1;
        let start = if timed { member.cpu.now() } else { 0 };
        match subject.act(member, op) {
            Ok(_) => operations += 1,
            // For want of room nothing was done.
            Err(StableError::Exhausted) => {}
            Err(error) => return Err(error),
        }
        if timed {
            board.note(me, member.cpu.now() - start);
        }
        done.store(operations, Ordering::Relaxed);
        halt::rest(halt);
    }
    Ok(())
}

/// A participant that changes only keys of its own, and so knows the contents, but for
/// the key that its predecessor was about to change.
fn with_keys(
    subject: &dyn Subject,
    member: &BoardMember<'_>,
    board: &Board<'_>,
    task: &WorkKind,
) -> Result<(), StableError> {
    let me = member.me;
    let key = |n: u64| n * MOST as u64 + me as u64 + 1;
    let is_right = |n: u64, value: u64| value / VERSIONS == key(n);
    subject.recover(member, &|p| p == me)?;
    check_keys(subject, member, board, me)?;
    let mut random = Random::stream(task.seed, 0);
    while read(board.end()) == 0 {
        let (n, turn) = (random.below(KEYS), random.below(VERSIONS));
        let there = read(board.present(me)) >> n & 1 == 1;
        write(board.intent(me), n + 1);
        let (op, after) = match turn % 3 {
            0 => (StructureOp::Put(key(n), key(n) * VERSIONS + turn), true),
            1 => (StructureOp::Take(key(n)), false),
            _ => (StructureOp::Get(key(n)), there),
        };
        match subject.act(member, op) {
            Ok(found) => {
                if found.is_some() != there || found.is_some_and(|value| !is_right(n, value)) {
                    board.inconsistent().fetch_add(1, Ordering::Relaxed);
                }
                let present = read(board.present(me)) & !(1 << n) | u64::from(after) << n;
                write(board.present(me), present);
            }
            Err(StableError::Exhausted) => {}
            Err(error) => return Err(error),
        }
        write(board.intent(me), 0);
        write(board.done(me), read(board.done(me)) + 1);
    }
    Ok(())
}

/// Compares a participant's keys with the contents that they must have; the caller has
/// them to itself.
pub fn check_keys(
    subject: &dyn Subject,
    member: &BoardMember<'_>,
    board: &Board<'_>,
    whose: usize,
) -> Result<(), StableError> {
    let (intent, mut present) = (read(board.intent(whose)), read(board.present(whose)));
    for n in 0..KEYS {
        let key = n * MOST as u64 + whose as u64 + 1;
        let found = subject.act(member, StructureOp::Get(key))?;
        let there = present >> n & 1 == 1;
        if intent != n + 1 && there && found.is_none() {
            board.lost().fetch_add(1, Ordering::Relaxed);
        } else if intent != n + 1 && !there && found.is_some()
            || found.is_some_and(|value| value / VERSIONS != key)
        {
            board.inconsistent().fetch_add(1, Ordering::Relaxed);
        }
        present = present & !(1 << n) | u64::from(found.is_some()) << n;
    }
    write(board.present(whose), present);
    write(board.intent(whose), 0);
    Ok(())
}

/// States of a token: in no structure, about to be put in, in. The owner's number stands
/// above.
const OUT: u64 = 0;
const GOING_IN: u64 = 1;
const IN: u64 = 2;
const STATE: u64 = 3;
/// Intents of a participant.
pub const TAKING: u64 = 1;
const PUTTING: u64 = 2;

const fn mark(state: u64, whose: usize) -> u64 {
    (whose as u64) << 8 | state
}

/// Puts half of the tokens in; the others belong to the participants.
pub fn deal(
    subject: &dyn Subject,
    member: &BoardMember<'_>,
    board: &Board<'_>,
    procs: usize,
) -> Result<(), StableError> {
    for token in 0..TOKENS {
        if token % 2 == 0 {
            subject.act(member, StructureOp::Put(token as u64 % 64, token as u64 + 1))?;
        }
        write(board.token(token), mark(if token % 2 == 0 { IN } else { OUT }, token / 2 % procs));
    }
    Ok(())
}

/// Notes that a token has come out. Returns it, if it is one.
fn came_out(board: &Board<'_>, value: u64, whose: usize) -> Option<usize> {
    let token = (value as usize).checked_sub(1).filter(|token| *token < TOKENS);
    // (P3) AcqRel: a token's owners one after the other; pairs with (P4) and with itself.
    let before = token.map(|token| board.token(token).swap(mark(OUT, whose), Ordering::AcqRel));
    if before.is_none_or(|mark| mark & STATE == OUT) {
        // A value that no participant has put in, or one that has come out before.
        board.inconsistent().fetch_add(1, Ordering::Relaxed);
    }
    token
}

/// A participant that puts in tokens, each of which exists once, and takes out whatever
/// comes.
fn with_tokens(
    subject: &dyn Subject,
    member: &BoardMember<'_>,
    board: &Board<'_>,
    task: &WorkKind,
) -> Result<(), StableError> {
    let me = member.me;
    subject.recover(member, &|p| p == me)?;
    write(board.intent(me), 0);
    let mut mine = Vec::with_capacity(TOKENS);
    mine.extend((0..TOKENS).filter(|token| read(board.token(*token)) == mark(OUT, me)));
    let mut random = Random::stream(task.seed, 0);
    while read(board.end()) == 0 {
        let number = random.word();
        let puts = number.is_multiple_of(2) || mine.len() > TOKENS / 4;
        match if puts { mine.pop() } else { None } {
            Some(token) => {
                write(board.token(token), mark(GOING_IN, me));
                write(board.intent(me), PUTTING);
                match subject.act(member, StructureOp::Put(number % 64, token as u64 + 1)) {
                    Ok(_) => {
                        let (old, new) = (mark(GOING_IN, me), mark(IN, me));
                        // (P4) AcqRel: pairs with (P3) in `came_out`. Fails if a participant has
                        // taken it already.
                        let _ = board.token(token).compare_exchange(
                            old,
                            new,
                            Ordering::AcqRel,
                            Ordering::Acquire,
                        );
                    }
                    Err(StableError::Exhausted) => {
                        write(board.token(token), mark(OUT, me));
                        mine.push(token);
                    }
                    Err(error) => return Err(error),
                }
            }
            None => {
                write(board.intent(me), TAKING);
                if let Some(value) = subject.act(member, StructureOp::Take(0))? {
                    mine.extend(came_out(board, value, me));
                }
            }
        }
        write(board.intent(me), 0);
        write(board.done(me), read(board.done(me)) + 1);
    }
    Ok(())
}

/// Takes everything out and counts the tokens that should have come and did not, less
/// those that a participant may have taken along that died while it took something out. The caller
/// has the structure to itself.
pub fn count_tokens(
    subject: &dyn Subject,
    member: &BoardMember<'_>,
    board: &Board<'_>,
    died_taking: u64,
) -> Result<(), StableError> {
    while let Some(value) = subject.act(member, StructureOp::Take(0))? {
        came_out(board, value, member.me);
    }
    let missing = (0..TOKENS).filter(|token| read(board.token(*token)) & STATE == IN).count() as u64;
    board.lost().fetch_add(missing.saturating_sub(died_taking), Ordering::Relaxed);
    Ok(())
}
