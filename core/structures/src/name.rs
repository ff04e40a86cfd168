//! Names of algorithms over a primitive or a lock, put together when the program is
//! compiled.

/// A name of at most 64 bytes.
pub(crate) struct Name {
    bytes: [u8; 64],
    len: usize,
}

impl Name {
    /// Joins `family` and `/variant`; the latter goes without saying if it is
    /// [`towpath_sync::Atomics`].
    pub(crate) const fn join(family: &str, variant: &str) -> Name {
        let name = Name { bytes: [0; 64], len: 0 }.with(family);
        if same(variant, "atomics") { name } else { name.with("/").with(variant) }
    }

    const fn with(mut self, text: &str) -> Name {
        let mut i = 0;
        while i < text.len() {
            self.bytes[self.len] = text.as_bytes()[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    pub(crate) const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(name) => name,
            Err(_) => panic!("made of whole strings"),
        }
    }
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn the_usual_primitive_goes_without_saying() {
        assert_eq!(Name::join("valois", "atomics").as_str(), "valois");
        assert_eq!(Name::join("valois", "ll-sc").as_str(), "valois/ll-sc");
        assert_eq!(Name::join("two-ended", "ticket").as_str(), "two-ended/ticket");
    }
}
