//! Memory of an application: rows of data, laid out line by line, and at home with the
//! processors that own them where the machine has homes.

use towpath_machine::{Arena, Place, Processor};

/// Maker of an application's data.
pub struct Memory<'a, P: Processor> {
    /// Maker of words and data.
    pub arena: &'a dyn Arena<P>,
    /// Number of words of a line.
    pub line: usize,
    /// Number of processors at each node.
    pub per_node: usize,
}

impl<P: Processor> core::fmt::Debug for Memory<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Memory").field("line", &self.line).finish_non_exhaustive()
    }
}

impl<P: Processor> Memory<'_, P> {
    /// Makes a row of data from the beginning of a line on, dealt out as the machine does
    /// it. `value` gives each one's value.
    pub fn row(&self, len: usize, value: impl Fn(usize) -> u64) -> Vec<P::Cell> {
        (0..len).map(|n| self.arena.cell(Place::in_row(n), value(n))).collect()
    }

    /// Makes a row of data as [`Memory::row`] does, at home where processor `owner` is.
    pub fn row_of(&self, owner: usize, len: usize, value: impl Fn(usize) -> u64) -> Vec<P::Cell> {
        (0..len).map(|n| self.cell_of(owner, n, value(n))).collect()
    }

    /// Makes a row of so many data as [`Memory::row`] does.
    pub fn short_row<const N: usize>(&self, value: impl Fn(usize) -> u64) -> [P::Cell; N] {
        core::array::from_fn(|n| self.arena.cell(Place::in_row(n), value(n)))
    }

    /// Makes a row of so many data as [`Memory::row_of`] does.
    ///
    /// A simulated machine's data are handles: those of short rows lie beside each other so.
    pub fn short_row_of<const N: usize>(&self, owner: usize, value: impl Fn(usize) -> u64) -> [P::Cell; N] {
        core::array::from_fn(|n| self.cell_of(owner, n, value(n)))
    }

    /// Makes a row's datum.
    fn cell_of(&self, owner: usize, n: usize, value: u64) -> P::Cell {
        let home = Place::Home((owner / self.per_node) as u32);
        self.arena.cell(if n.is_multiple_of(self.line) { home } else { Place::SameLine }, value)
    }
}

/// Returns a datum that is a floating-point number.
#[inline(always)]
pub fn get<P: Processor>(cpu: &P, cell: &P::Cell) -> f64 {
    f64::from_bits(cpu.read(cell))
}

/// Writes a datum that is a floating-point number.
#[inline(always)]
pub fn put<P: Processor>(cpu: &P, cell: &P::Cell, value: f64) {
    cpu.write(cell, value.to_bits());
}

/// Adds to a datum that is a floating-point number.
#[inline(always)]
pub fn add<P: Processor>(cpu: &P, cell: &P::Cell, value: f64) {
    put(cpu, cell, get(cpu, cell) + value);
}
