//! Shared memory: the values of words, their lines, and the copies of lines in caches.
//!
//! One array of values is exact: the model performs a write only when all other copies are gone,
//! and no clock runs ahead of an event that could change its cache by then (`ahead.rs`).

use towpath_machine::Place;

use crate::parameters::{FIRST_SHARE, FIRST_TOUCH, Parameters};

/// States of a copy of a line in a cache, ordered by the accesses that they allow.
pub(crate) mod copy {
    /// No copy.
    pub const INVALID: u8 = 0;
    /// There, in a cache that is not coherent: only ordinary accesses may use it.
    pub const PRIVATE: u8 = 1;
    /// A copy among several, clean or owned by another cache.
    pub const SHARED: u8 = 2;
    /// A copy among several, which this cache supplies (bus).
    pub const OWNED: u8 = 3;
    /// The only copy.
    pub const MODIFIED: u8 = 4;
}

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Number of lines whose copies in one cache lie side by side.
const BLOCK: usize = 16;

/// The bit of a word's number that says that it lies at memory, and is never cached.
pub(crate) const AT_MEMORY: u32 = 1 << 31;

/// Returns a word's place in the memory's values.
#[inline(always)]
pub(crate) fn place_of(word: u32) -> usize {
    (word & !AT_MEMORY) as usize
}

/// State of a line at its directory (or on the bus, in its order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineState {
    /// No cache has it.
    Unowned,
    /// The sharers have it, memory is right.
    Shared,
    /// One processor has it, and may have changed it. On a bus there may be sharers
    /// beside it.
    Exclusive,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub state: LineState,
    /// An intervention is under way (directory).
    pub busy: bool,
    /// True if it is never cached.
    pub at_memory: bool,
    pub owner: u16,
    pub home: u16,
    /// Time until which the last exclusive transaction lasts (bus).
    pub settled: u64,
}

/// Marks of a line on machines with write-once caches or advisory locks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// Its holder has changed it, and memory does not know.
    pub dirty: bool,
    /// The bus has carried its holder's write to memory, and the holder has yet to
    /// perform it.
    pub through: bool,
    /// Number of the processor that has its advisory lock, and 1; 0 if none
    /// has.
    pub locked: u16,
}

#[derive(Debug)]
pub(crate) struct Memory {
    pub values: Vec<u64>,
    pub lines: Vec<Line>,
    /// Marks of each line, if the machine has such.
    pub marks: Vec<Mark>,
    has_marks: bool,
    /// Copies, by [`BLOCK`] lines, then processor, then line.
    ///
    /// Lines that a processor uses in turn are neighbours in the host's memory.
    copies: Vec<u8>,
    /// Bits of each line: one for each processor that has or will have a copy.
    sharers: Vec<u64>,
    pub processors: usize,
    set_words: usize,
    /// log2 of the words of a line.
    pub shift: u32,
    /// Words of the last line that are taken.
    used: u64,
    nodes: usize,
    /// True if lines without a home of their own lie at the first node.
    ///
    /// Some of them are dealt out before the run where `unplaced` is there.
    first_touch: bool,
    /// Lines without a home of their own, which [`Memory::deal`] has yet to deal out.
    unplaced: Option<Vec<usize>>,
    /// Node whose thread makes the lines.
    first: usize,
    next_home: usize,
}

impl Memory {
    pub fn new(p: &Parameters, processors: usize, nodes: usize, has_marks: bool) -> Self {
        let shift = (p.line / 8).trailing_zeros();
        Memory {
            values: Vec::new(),
            lines: Vec::new(),
            marks: Vec::new(),
            has_marks,
            copies: Vec::new(),
            sharers: Vec::new(),
            processors,
            set_words: processors.div_ceil(64),
            shift,
            used: 1 << shift,
            nodes,
            first_touch: p.placement == FIRST_TOUCH || p.placement == FIRST_SHARE,
            unplaced: (p.placement == FIRST_SHARE).then(Vec::new),
            first: 0,
            next_home: 0,
        }
    }

    /// Lets the lines that follow be made by a thread of that node.
    pub fn made_at(&mut self, node: usize) {
        self.first = node;
        // Nothing else on the last line.
        self.used = 1 << self.shift;
    }

    fn new_line(&mut self, home: usize, at_memory: bool) {
        let home = (home % self.nodes) as u16;
        self.lines.push(Line {
            state: LineState::Unowned,
            busy: false,
            at_memory,
            owner: 0,
            home,
            settled: 0,
        });
        if self.has_marks {
            self.marks.push(Mark::default());
        }
        self.values.resize(self.lines.len() << self.shift, 0);
        self.copies.resize(self.lines.len().next_multiple_of(BLOCK) * self.processors, copy::INVALID);
        self.sharers.resize(self.lines.len() * self.set_words, 0);
        self.used = 0;
    }

    /// Deals pages out: the first ones stay, an equal share, at the node that made them.
    ///
    /// The others go to the other nodes in turn (`memory.placement=first-share`).
    pub fn deal(&mut self) {
        let Some(lines) = &mut self.unplaced else { return };
        let lines = std::mem::take(lines);
        let a_page = ((PAGE / 8) >> self.shift).max(1) as usize;
        let share = lines.len().div_ceil(a_page).div_ceil(self.nodes);
        for (page, lines) in lines.chunks(a_page).enumerate().skip(share) {
            let others = self.nodes.max(2) - 1;
            for &line in lines {
                let home = usize::from(self.lines[line].home) + 1 + (page - share) % others;
                self.lines[line].home = (home % self.nodes) as u16;
            }
        }
    }

    /// Makes a word. Lines without a home of their own lie where `memory.placement` says.
    pub fn word(&mut self, place: Place, value: u64) -> u32 {
        match place {
            Place::SameLine if self.used < 1 << self.shift && !self.lines.is_empty() => {}
            Place::SameLine | Place::NewLine => {
                let home = if self.first_touch { self.first } else { self.next_home };
                self.next_home += 1;
                if let Some(unplaced) = &mut self.unplaced {
                    unplaced.push(self.lines.len());
                }
                self.new_line(home, false);
            }
            Place::Home(node) => self.new_line(node as usize, false),
            Place::AtMemory(node) => self.new_line(node as usize, true),
        }
        let word = (self.lines.len() as u64 - 1) << self.shift | self.used;
        assert!(word < u64::from(AT_MEMORY), "the simulated memory is full");
        self.used += 1;
        self.values[word as usize] = value;
        let mark = if self.lines[self.lines.len() - 1].at_memory { AT_MEMORY } else { 0 };
        word as u32 | mark
    }

    /// The first of so many words that follow each other from a new line on.
    pub fn run(&mut self, words: usize) -> u32 {
        let first = self.word(Place::NewLine, 0);
        for _ in 1..words.max(1) {
            self.word(Place::SameLine, 0);
        }
        // Nothing else on its last line.
        self.used = 1 << self.shift;
        first
    }

    #[inline(always)]
    pub fn line_of(&self, word: u32) -> usize {
        place_of(word) >> self.shift
    }

    #[inline(always)]
    fn place_of_copy(&self, line: usize, processor: usize) -> usize {
        (line / BLOCK * self.processors + processor) * BLOCK + line % BLOCK
    }

    #[inline(always)]
    pub fn copy(&self, line: usize, processor: usize) -> u8 {
        self.copies[self.place_of_copy(line, processor)]
    }

    #[inline(always)]
    pub fn set_copy(&mut self, line: usize, processor: usize, state: u8) {
        let place = self.place_of_copy(line, processor);
        self.copies[place] = state;
    }

    pub fn is_sharer(&self, line: usize, processor: usize) -> bool {
        self.sharers[line * self.set_words + processor / 64] >> (processor % 64) & 1 == 1
    }

    pub fn add_sharer(&mut self, line: usize, processor: usize) {
        self.sharers[line * self.set_words + processor / 64] |= 1 << (processor % 64);
    }

    pub fn remove_sharer(&mut self, line: usize, processor: usize) {
        self.sharers[line * self.set_words + processor / 64] &= !(1 << (processor % 64));
    }

    pub fn clear_sharers(&mut self, line: usize) {
        self.sharers[line * self.set_words..][..self.set_words].fill(0);
    }

    /// The sharers, in order, into a buffer.
    pub fn sharers(&self, line: usize, into: &mut Vec<u16>) {
        into.clear();
        for (i, &bits) in self.sharers[line * self.set_words..][..self.set_words].iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                into.push((i * 64) as u16 + bits.trailing_zeros() as u16);
                bits &= bits - 1;
            }
        }
    }

    /// Checks the rule that always holds of a line: one writer, or many readers.
    pub fn check(&self, line: usize) -> Result<(), String> {
        // Without an allocation: debug builds come here with every access.
        let (mut readers, mut owners, mut writers) = (0, 0, 0);
        for processor in 0..self.processors {
            let copy = self.copy(line, processor);
            readers += u32::from(copy >= copy::SHARED);
            owners += u32::from(copy >= copy::OWNED);
            writers += u32::from(copy >= copy::MODIFIED);
        }
        if owners > 1 || writers == 1 && readers > 1 {
            let copies: Vec<u8> = (0..self.processors).map(|processor| self.copy(line, processor)).collect();
            return Err(format!(
                "line {line}: {writers} may write, {owners} own and {readers} may read: {copies:?}"
            ));
        }
        Ok(())
    }

    /// Checks the rules of a line with nothing under way: it is not busy, and all its
    /// copies are known.
    pub fn check_at_rest(&self, line: usize) -> Result<(), String> {
        self.check(line)?;
        let it = self.lines[line];
        if it.busy {
            return Err(format!("line {line} is busy: {it:?}"));
        }
        for processor in 0..self.processors {
            let owns = it.state == LineState::Exclusive && usize::from(it.owner) == processor;
            let copy = self.copy(line, processor);
            if copy != copy::INVALID && !owns && !self.is_sharer(line, processor) {
                return Err(format!("line {line}: the copy of processor {processor} is not known: {it:?}"));
            }
            if copy == copy::MODIFIED && !owns {
                return Err(format!(
                    "line {line}: processor {processor} may write and isn't the owner: {it:?}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(processors: usize, nodes: usize, line: u64) -> Memory {
        let mut p = crate::machines::by_name("avalanche").unwrap();
        p.line = line;
        Memory::new(&p, processors, nodes, false)
    }

    #[test]
    fn first_touch_leaves_lines_at_the_first_node() {
        let mut p = crate::machines::by_name("avalanche").unwrap();
        p.set_from_text("memory.placement=first-touch").unwrap();
        let mut m = Memory::new(&p, 4, 4, false);
        let lines = [Place::NewLine, Place::NewLine, Place::Home(3)].map(|place| m.word(place, 0));
        assert_eq!(lines.map(|word| m.lines[m.line_of(word)].home), [0, 0, 3]);
        m.made_at(2);
        let lines = [Place::SameLine, Place::NewLine].map(|place| m.word(place, 0));
        assert_eq!(lines.map(|word| m.lines[m.line_of(word)].home), [2, 2]);
    }

    #[test]
    fn first_share_deals_out_pages_beyond_an_equal_share() {
        let mut p = crate::machines::by_name("avalanche").unwrap();
        p.line = 128;
        p.set_from_text("memory.placement=first-share").unwrap();
        let mut m = Memory::new(&p, 4, 4, false);
        let home = m.word(Place::Home(3), 0);
        // Seven pages and a line: two of eight pages are a share.
        let words: Vec<u32> = (0..7 * 32 + 1).map(|_| m.word(Place::NewLine, 0)).collect();
        m.deal();
        let homes: Vec<u16> = words.iter().step_by(32).map(|&word| m.lines[m.line_of(word)].home).collect();
        assert_eq!(homes, [0, 0, 1, 2, 3, 1, 2, 3]);
        assert_eq!(m.lines[m.line_of(words[2 * 32 - 1])].home, 0);
        assert_eq!(m.lines[m.line_of(home)].home, 3);
    }

    #[test]
    fn places_decide_lines_and_homes() {
        let mut m = memory(4, 2, 128);
        let a = m.word(Place::NewLine, 7);
        let b = m.word(Place::SameLine, 8);
        let c = m.word(Place::NewLine, 0);
        let d = m.word(Place::Home(1), 0);
        let e = m.word(Place::AtMemory(0), 0);
        assert_eq!(m.line_of(a), m.line_of(b));
        assert_ne!(m.line_of(b), m.line_of(c));
        assert_eq!([a, c].map(|w| m.lines[m.line_of(w)].home), [0, 1]);
        assert_eq!(m.lines[m.line_of(d)].home, 1);
        assert!(m.lines[m.line_of(e)].at_memory && !m.lines[m.line_of(d)].at_memory);
        assert_eq!((m.values[a as usize], m.values[b as usize]), (7, 8));
        let run = m.run(17);
        assert_eq!(m.line_of(run + 16), m.line_of(run) + 1);
        let after = m.word(Place::SameLine, 0);
        assert_ne!(m.line_of(after), m.line_of(run + 16));
    }

    #[test]
    fn sharers_are_a_set() {
        let mut m = memory(130, 65, 64);
        let line = m.word(Place::NewLine, 0) as usize >> 3;
        for p in [0, 63, 64, 129] {
            m.add_sharer(line, p);
        }
        m.remove_sharer(line, 63);
        let mut all = Vec::new();
        m.sharers(line, &mut all);
        assert_eq!(all, [0, 64, 129]);
        m.clear_sharers(line);
        m.sharers(line, &mut all);
        assert!(all.is_empty());
    }
}
