//! Arrays in simulated shared memory, laid out as in C: elements without padding, over
//! lines and pages.

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sim::parameters::FIRST_TOUCH;
use towpath_sim::{Parameters, Sim, SimArena, SimWord};

/// Bytes of a page, and of a word.
const PAGE: usize = 4096;
const WORD: usize = 8;

/// Allocator of pages, which lie at the nodes in turn, or all at the first one
/// (`memory.placement`).
#[derive(Debug)]
pub(super) struct Pages {
    nodes: usize,
    first_touch: bool,
    line: usize,
    next: usize,
}

impl Pages {
    /// Makes an allocator for so many nodes.
    pub fn new(machine: &Parameters, nodes: usize) -> Pages {
        let first_touch = machine.placement == FIRST_TOUCH;
        Pages { nodes, first_touch, line: machine.line as usize, next: 0 }
    }

    /// Makes an array of so many elements of so many bytes each, from a new page on.
    pub fn array(&mut self, arena: &SimArena, len: usize, bytes: usize) -> SharedArray {
        let lines = (len * bytes).div_ceil(self.line);
        let mut words = Vec::with_capacity(lines * self.line / WORD);
        for line in 0..lines {
            let page = self.next + line * self.line / PAGE;
            let home = if self.first_touch { 0 } else { page % self.nodes };
            for word in 0..self.line / WORD {
                let place = if word == 0 { Place::Home(home as u32) } else { Place::SameLine };
                words.push(arena.word(place, 0));
            }
        }
        self.next += (len * bytes).div_ceil(PAGE);
        SharedArray { words, bytes }
    }
}

/// Array in shared memory.
#[derive(Debug)]
pub(super) struct SharedArray {
    words: Vec<SimWord>,
    bytes: usize,
}

impl SharedArray {
    /// Adds one to the words of an element that lie within a range of its bytes.
    pub fn touch(&self, cpu: &Sim, element: usize, bytes: std::ops::Range<usize>) {
        for at in bytes.step_by(WORD) {
            let word = &self.words[(element * self.bytes + at) / WORD];
            // Relaxed, both: under a lock, or private to a thread.
            let value = cpu.load(word, Ordering::Relaxed);
            cpu.store(word, value.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Clears an element.
    pub fn clear(&self, cpu: &Sim, element: usize) {
        for at in (0..self.bytes).step_by(WORD) {
            // Relaxed: private to a thread.
            cpu.store(&self.words[(element * self.bytes + at) / WORD], 0, Ordering::Relaxed);
        }
    }
}
