//! Reading of packs: the files of Spark98's meshes (`sf10.1.pack`, `sf5.1.pack`).
//!
//! A pack is text, numbers between white space: nodes and dimensions; elements and corners of each;
//! subdomains, twice; for each subdomain its nodes (and how many are its own, and private ones);
//! the nodes, each with its global number and coordinates; the number of elements; the elements,
//! each with its global number and corners; the number of stored entries, and of entries of a
//! factor, which is not used; the entries, row and column, by rows from the diagonal on; and what
//! subdomains exchange. The kernels over shared memory take packs of one subdomain.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::SplitAsciiWhitespace;
use std::sync::{Mutex, PoisonError};

use super::mesh::Mesh;

/// Maximum length of a pack's file, in bytes: that of `sf2` has 55 million.
const LONGEST: u64 = 256 << 20;

/// Mesh from a pack's file.
#[derive(Debug, PartialEq, Eq)]
pub struct Pack {
    /// Name of the file, without its folder.
    pub name: String,
    /// The mesh.
    pub mesh: Mesh,
}

impl Pack {
    /// Reads a pack's file, unless it was read before. It stays until the process ends.
    ///
    /// # Errors
    ///
    /// A sentence with the file's name, if it can't be read or is no pack of one subdomain.
    pub fn open(file: &Path) -> Result<&'static Pack, String> {
        static KNOWN: Mutex<Vec<(PathBuf, &Pack)>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pack)) = known.iter().find(|(name, _)| name == file) {
            return Ok(pack);
        }
        let told = |why: &str| format!("{}: {why}", file.display());
        let mut text = String::new();
        File::open(file)
            .and_then(|opened| opened.take(LONGEST).read_to_string(&mut text))
            .map_err(|error| told(&error.to_string()))?;
        let mesh = read_pack(&text).map_err(|why| told(&why))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pack: &'static Pack = Box::leak(Box::new(Pack { name, mesh }));
        known.push((file.into(), pack));
        Ok(pack)
    }
}

/// Reader of a pack's numbers.
struct PackNumbers<'a> {
    words: SplitAsciiWhitespace<'a>,
    /// Number of words in the text: no count in it can be larger.
    total: usize,
}

impl PackNumbers<'_> {
    fn next(&mut self, what: &str) -> Result<usize, String> {
        let word = self.words.next().ok_or_else(|| format!("the pack ends before {what}"))?;
        word.parse().map_err(|_| format!("{what} of the pack is `{word}`, which is no count"))
    }

    /// A count of things of which each takes so many words.
    fn count(&mut self, what: &str, words: usize) -> Result<usize, String> {
        let count = self.next(what)?;
        match count.checked_mul(words).is_some_and(|n| n <= self.total) {
            true => Ok(count),
            false => Err(format!("the pack says {count} for {what}, and is too short for that")),
        }
    }

    fn skip(&mut self, words: usize, what: &str) -> Result<(), String> {
        match words == 0 || self.words.nth(words - 1).is_some() {
            true => Ok(()),
            false => Err(format!("the pack ends within {what}")),
        }
    }
}

/// Reads the structure of the matrix from a pack of one subdomain.
///
/// # Errors
///
/// The first thing in the text that is not as it should be.
pub fn read_pack(text: &str) -> Result<Mesh, String> {
    let total = text.split_ascii_whitespace().count();
    let mut numbers = PackNumbers { words: text.split_ascii_whitespace(), total };
    let (_, dimensions) = (numbers.next("the number of nodes")?, numbers.next("the number of dimensions")?);
    let (_, corners) = (numbers.next("the number of elements")?, numbers.next("the number of corners")?);
    if !matches!((dimensions, corners), (2 | 3, 3 | 4)) {
        return Err(format!("{dimensions} dimensions and {corners} corners: this is no pack"));
    }
    let parts = [numbers.next("the number of subdomains")?, numbers.next("the number of processors")?];
    if parts != [1, 1] {
        return Err(format!("the pack has {} subdomains: take the one with one, NAME.1.pack", parts[0]));
    }
    let nodes = numbers.count("the number of the subdomain's nodes", 1 + dimensions)?;
    numbers.skip(2 + nodes * (1 + dimensions), "the nodes")?;
    let elements = numbers.count("the number of the subdomain's elements", 1 + corners)?;
    numbers.skip(elements * (1 + corners), "the elements")?;
    let stored = numbers.count("the number of entries", 2)?;
    numbers.skip(1, "the entries")?;
    let mut edges = Vec::new();
    let mut last: Option<(usize, usize)> = None;
    for _ in 0..stored {
        let (row, column) = (numbers.next("a row")?, numbers.next("a column")?);
        if column >= nodes || row > column || last.is_some_and(|l| l >= (row, column)) {
            return Err(format!("the entry {row} {column} of {nodes} rows is out of place"));
        }
        if row == column {
            if row != last.map_or(0, |l| l.0 + 1) {
                return Err(format!("the diagonal of row {row} is out of place"));
            }
        } else if last.is_none_or(|l| l.0 != row) {
            return Err(format!("row {row} does not begin with its diagonal"));
        } else {
            edges.push((row as u32, column as u32));
        }
        last = Some((row, column));
    }
    if last.map_or(0, |l| l.0 + 1) != nodes {
        return Err(format!("the pack has entries of {} of {nodes} rows", last.map_or(0, |l| l.0 + 1)));
    }
    Ok(Mesh::of_edges(nodes, edges))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tetrahedra with a face in common: five nodes, nine edges.
    const TWO: &str = include_str!("../../tests/two.1.pack");

    #[test]
    fn pack_gives_its_matrix() {
        let mesh = read_pack(TWO).unwrap();
        assert_eq!((mesh.nodes(), mesh.column.len(), mesh.stored()), (5, 9, 14));
        assert_eq!(&mesh.column[mesh.row(1)], [2, 3, 4]);
        assert!(mesh.row(4).is_empty());
    }

    #[test]
    fn files_are_read_once_and_named_in_errors() {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/two.1.pack"));
        let pack = Pack::open(file).unwrap();
        assert_eq!((&*pack.name, pack.mesh.nodes()), ("two.1.pack", 5));
        assert!(std::ptr::eq(pack, Pack::open(file).unwrap()));
        for (other, says) in [("README.md", "README.md: "), ("none", "No such file"), ("src", "directory")] {
            let error = Pack::open(&file.parent().unwrap().with_file_name(other)).unwrap_err();
            assert!(error.contains(says) && error.contains(other), "{error}");
        }
    }

    #[test]
    fn pack_that_is_damaged_names_the_place() {
        for (from, to, says) in [
            ("\n1\n1\n5", "\n2\n2\n5", "NAME.1.pack"),
            ("14 15", "15 15", "out of place"),
            ("14 15", "99999999999 15", "too short"),
            ("2 2\n2 3", "2 3\n2 2", "diagonal"),
            ("4 4\n0", "4 9\n0", "out of place"),
            ("3 3\n", "", "does not begin"),
            ("5 3\n", "x 3\n", "`x`"),
            ("5 3\n", "5 7\n", "no pack"),
            ("4 4\n0\n0\n0\n", "", "ends"),
        ] {
            let error = read_pack(&TWO.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(says), "{from:?} -> {to:?}: {error}");
        }
        // Every prefix is refused or, if only what is exchanged is missing, read.
        for end in 0..TWO.len() - 6 {
            let _ = read_pack(&TWO[..end]);
        }
    }
}
