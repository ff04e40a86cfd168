//! Tables: experiments hand them to the report, and console and page show them alike.

use crate::format::{digits, in_unit};
use crate::record::Record;

/// Meaning of a cell, beyond its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or explanation.
    Text,
    /// A figure of this run.
    Figure,
    /// The best figure of its column.
    Best,
    /// A figure of the paper.
    Paper,
    /// Nothing, since nothing was measured.
    Missing,
    /// A target that is met.
    Good,
    /// A target that is missed, or damage.
    Bad,
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The text.
    pub text: String,
    /// Further details: the range of a figure.
    pub detail: String,
    /// The meaning.
    pub kind: Kind,
}

impl Cell {
    /// A cell without detail.
    pub fn new(text: impl Into<String>, kind: Kind) -> Cell {
        Cell { text: text.into(), detail: String::new(), kind }
    }

    /// A name or explanation.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::new(text, Kind::Text)
    }

    /// A figure of the paper, with as many decimals as the paper gives.
    pub fn paper(value: Option<f64>, decimals: usize) -> Cell {
        let text = value.map_or(String::new(), |v| format!("{v:.decimals$}").replace('-', "−"));
        Cell::new(text, Kind::Paper)
    }

    /// Three digits in units of `unit`, which the header names.
    pub fn scaled(record: Option<&Record>, unit: f64) -> Cell {
        let text = record.map(|r| digits(r.value / unit));
        Cell { text: text.unwrap_or_else(|| "–".into()), ..Cell::figure(record) }
    }

    /// A record's median in its unit, with the range as detail.
    pub fn figure(record: Option<&Record>) -> Cell {
        let Some(r) = record else { return Cell::new("–", Kind::Missing) };
        let range = format!("{} to {}, {} runs", in_unit(r.min, &r.unit), in_unit(r.max, &r.unit), r.runs);
        Cell { text: in_unit(r.value, &r.unit), detail: range, kind: Kind::Figure }
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The experiment, or `targets`, or `claims`.
    pub experiment: &'static str,
    /// Its heading.
    pub title: String,
    /// Explanations that a reader needs.
    pub note: String,
    /// The columns' heads.
    pub header: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// Heads of columns.
pub fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

/// Marks the best figure of a column: the one with the largest or smallest value. A value
/// of the model below zero (an overhead that a disturbance has pushed there) is not best.
pub fn mark_best(rows: &mut [Vec<Cell>], column: usize, values: &[Option<f64>], smallest: bool) {
    let better = |a: f64, b: f64| if smallest { a < b } else { a > b };
    let mut best: Option<(usize, f64)> = None;
    for (row, value) in values.iter().enumerate() {
        if let Some(value) = value.filter(|v| *v > 0.0)
            && best.is_none_or(|(_, b)| better(value, b))
        {
            best = Some((row, value));
        }
    }
    if let Some((row, _)) = best.filter(|_| values.iter().flatten().count() > 1) {
        rows[row][column].kind = Kind::Best;
    }
}

/// One figure by another, as a cell.
pub fn ratio(above: Option<&Record>, below: Option<&Record>) -> Cell {
    let ratio = above.zip(below).and_then(|(above, below)| above.divided_by(below));
    ratio.map_or(Cell::new("–", Kind::Missing), |ratio| Cell::new(digits(ratio), Kind::Figure))
}
