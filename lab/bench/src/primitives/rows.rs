//! Tables with one row for each subject, and a column for each metric.

use towpath_report::Section;
use towpath_report::format::size;
use towpath_report::record::{Metric, Record, plainly};
use towpath_report::results::Results;
use towpath_report::table::{Cell, Kind, Table};

/// Column of figures.
pub struct FigureColumn {
    /// Its heading, with the unit.
    pub head: &'static str,
    /// The metric.
    pub metric: Metric,
    /// Unit of a figure in that of the metric.
    pub scale: f64,
    /// True if it counts, so that it is shown without decimals.
    pub is_count: bool,
    /// True if anything but 0 is a defect.
    pub is_damage: bool,
}

impl FigureColumn {
    /// Column of figures of which none is a defect.
    pub const fn new(head: &'static str, metric: Metric, scale: f64) -> FigureColumn {
        FigureColumn { head, metric, scale, is_count: false, is_damage: false }
    }

    /// Column of counts of which none is a defect.
    pub const fn count(head: &'static str, metric: Metric) -> FigureColumn {
        FigureColumn { head, metric, scale: 1.0, is_count: true, is_damage: false }
    }

    /// Column of counts of defects.
    pub const fn damage(head: &'static str, metric: Metric) -> FigureColumn {
        FigureColumn { head, metric, scale: 1.0, is_count: true, is_damage: true }
    }

    fn cell(&self, record: Option<&Record>) -> Cell {
        let cell = Cell::scaled(record, self.scale);
        let Some(record) = record.filter(|_| self.is_count) else { return cell };
        let kind = match (self.is_damage, record.value > 0.0) {
            (false, _) => cell.kind,
            (true, true) => Kind::Bad,
            (true, false) => Kind::Good,
        };
        Cell { text: format!("{:.0}", record.value), kind, ..cell }
    }
}

/// Table of a whole experiment.
pub struct SubjectTable<'a> {
    /// The experiment.
    pub experiment: &'static str,
    /// The title.
    pub title: &'a str,
    /// The note below it.
    pub note: &'a str,
    /// Further fields of the subjects, each with its heading.
    pub fields: &'a [(&'static str, &'static str)],
    /// The metrics.
    pub columns: &'a [FigureColumn],
}

type SubjectKey = (String, String, u32, Vec<String>);

impl SubjectTable<'_> {
    fn key(&self, record: &Record) -> SubjectKey {
        let field = |(key, _): &(&str, &str)| match (*key, record.extra.get(*key)) {
            (_, None) => String::new(),
            ("bytes", Some(value)) => value.as_u64().map_or_else(String::new, size),
            (_, Some(value)) => plainly(value),
        };
        let fields = self.fields.iter().map(field).collect();
        (record.algorithm.clone(), record.waiting.clone(), record.procs, fields)
    }

    /// Section with this table; empty if none of the metrics was measured.
    pub fn section(&self, results: &Results) -> Section {
        let of = |column: &FigureColumn| results.of(self.experiment, column.metric.name);
        let mut keys: Vec<SubjectKey> = Vec::new();
        for key in self.columns.iter().flat_map(of).map(|record| self.key(record)) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let row = |key: &SubjectKey| {
            let figure = |column| self.columns_cell(results, column, key);
            let name = match key.1.as_str() {
                "own" | "none" => key.0.clone(),
                waiting => format!("{}, {waiting}", key.0),
            };
            let fields = key.3.iter().map(Cell::text);
            [Cell::text(name), Cell::text(key.2.to_string())]
                .into_iter()
                .chain(fields)
                .chain(self.columns.iter().map(figure))
                .collect()
        };
        let heads = ["", "participants"].into_iter().chain(self.fields.iter().map(|(_, head)| *head));
        Section::new(Table {
            experiment: self.experiment,
            title: self.title.into(),
            note: self.note.into(),
            header: heads.chain(self.columns.iter().map(|c| c.head)).map(str::to_owned).collect(),
            rows: keys.iter().map(row).collect(),
        })
    }

    fn columns_cell(&self, results: &Results, column: &FigureColumn, key: &SubjectKey) -> Cell {
        let mut all = results.of(self.experiment, column.metric.name);
        column.cell(all.find(|record| self.key(record) == *key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_report::record::RecordSubject;
    use towpath_report::record::metrics::{LOST, MESSAGES_PER_S};

    #[test]
    fn each_subject_has_a_row_and_defects_are_marked() {
        let subject =
            |bytes: u64| RecordSubject::new("broadcast", "broadcast", "own", 4).with("bytes", bytes);
        let figures = [
            (subject(64), MESSAGES_PER_S, vec![2e6]),
            (subject(64), LOST, vec![3.0]),
            (subject(1024), MESSAGES_PER_S, vec![1e6]),
        ];
        let columns =
            [FigureColumn::new("million/s", MESSAGES_PER_S, 1e6), FigureColumn::damage("lost", LOST)];
        let table = SubjectTable {
            experiment: "broadcast",
            title: "",
            note: "",
            fields: &[("bytes", "bytes")],
            columns: &columns,
        };
        let table = table.section(&Results::from_figures(&figures, 2)).table;
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
        let texts: Vec<&str> = table.rows[0].iter().map(|cell| cell.text.as_str()).collect();
        assert_eq!(texts, ["broadcast", "4", "64 B", "2.00", "3"]);
        assert_eq!((table.rows[0][4].kind, table.rows[1][4].kind), (Kind::Bad, Kind::Missing));
    }
}
