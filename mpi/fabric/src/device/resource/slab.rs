//! Values with numbers that are safe to send to another process and to get back: a number
//! is used only once.

/// Numbered values.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps a value; returns its number, which is never 0.
    pub fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        entry.0 = entry.0.wrapping_add(1).max(1);
        entry.1 = Some(value);
        u64::from(entry.0) << 32 | u64::from(index)
    }

    /// The value of this number, if there is one.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let entry = self.entries.get_mut(number as u32 as usize)?;
        if u64::from(entry.0) == number >> 32 { entry.1.as_mut() } else { None }
    }

    /// Takes it out.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let entry = self.entries.get_mut(number as u32 as usize)?;
        let value = if u64::from(entry.0) == number >> 32 { entry.1.take() } else { None }?;
        self.free.push(number as u32);
        Some(value)
    }

    /// The numbers of the values that a question is answered with yes for.
    pub fn numbers(&self, mut of: impl FnMut(&T) -> bool) -> Vec<u64> {
        let number = |(index, entry): (usize, &(u32, Option<T>))| {
            entry.1.as_ref().filter(|v| of(v)).map(|_| u64::from(entry.0) << 32 | index as u64)
        };
        self.entries.iter().enumerate().filter_map(number).collect()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_number_finds_nothing() {
        let mut slab = Slab::default();
        let a = slab.insert('a');
        assert_eq!(slab.get_mut(a), Some(&mut 'a'));
        assert_eq!(slab.remove(a), Some('a'));
        let b = slab.insert('b');
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.numbers(|_| true), [b]);
        assert_eq!(slab.get_mut(0), None);
        assert_eq!(slab.get_mut(u64::MAX), None);
        assert_eq!(slab.len(), 1);
    }
}
