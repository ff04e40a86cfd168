//! One screen of an answer: sentences, and the rows of tables that fit between them.

use rustix::termios::tcgetwinsize;
use towpath_report::{Kind, Table};

/// Smallest and largest number of lines of a screen.
const LINES: [usize; 2] = [24, 50];
/// Smallest and largest number of columns of a screen.
const COLUMNS: [usize; 2] = [80, 100];
/// Lines that the command and the next prompt take.
const AROUND: usize = 2;
/// Width that a table's first column has at least, if its names need it, in characters.
const NAMES: usize = 44;

/// The room for an answer, in lines and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    lines: usize,
    columns: usize,
}

impl Screen {
    /// The screen of the terminal on standard output, or 40 lines of 100 columns.
    #[allow(clippy::disallowed_methods)]
    pub fn of_output() -> Screen {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
                Screen::new(size.ws_row.into(), size.ws_col.into())
            }
            _ => Screen { lines: 40, columns: COLUMNS[1] },
        }
    }

    /// The screen of a terminal of this size, within the bounds of a readable answer.
    fn new(lines: usize, columns: usize) -> Screen {
        Screen {
            lines: lines.clamp(LINES[0], LINES[1]) - AROUND,
            columns: columns.clamp(COLUMNS[0], COLUMNS[1]),
        }
    }

    /// Lays an answer out: paragraphs, tables, closing paragraphs.
    ///
    /// All paragraphs are shown. Tables share the lines that are left; rows with the best figures,
    /// or with bad news, go before others, and the last tables are left out where there are too
    /// many.
    pub fn lay_out(&self, opening: &[String], tables: &[&Table], closing: &[String]) -> String {
        let wrapped = |texts: &[String]| -> Vec<String> {
            texts.iter().flat_map(|text| text.lines()).flat_map(|line| self.wrapped(line)).collect()
        };
        let (mut lines, closing) = (wrapped(opening), wrapped(closing));
        let shown: Vec<&Table> = tables.iter().copied().filter(|t| !t.rows.is_empty()).collect();
        // A blank line goes before each table and before the closing paragraphs.
        let room = self.lines.saturating_sub(lines.len() + closing.len() + 1);
        let mut left = room;
        let mut count = 0;
        while let Some(less) = shown.get(count).and_then(|table| left.checked_sub(1 + self.least(table))) {
            left = less;
            count += 1;
        }
        let mut rows = vec![1; count];
        // Each table in turn gets one more row, as long as it has one and there is a line for it.
        while let Some(first) = (0..count).filter(|&n| rows[n] < shown[n].rows.len()).min_by_key(|&n| rows[n])
            && left > 0
        {
            rows[first] += 1;
            left -= 1;
        }
        for (table, rows) in shown.iter().zip(rows) {
            lines.push(String::new());
            lines.extend(self.table(table, rows));
        }
        if !closing.is_empty() {
            lines.push(String::new());
        }
        lines.extend(closing);
        lines.join("\n") + "\n"
    }

    /// Number of lines of a table with one row: title, header, row.
    fn least(&self, table: &Table) -> usize {
        // As long as a remark on what is left out becomes.
        let [rows, columns] = [table.rows.len(), table.header.len()];
        self.wrapped(&with_remarks(&table.title, [rows.saturating_sub(1), rows], [columns - 1, columns]))
            .len()
            + 2
    }

    /// A table's title, header and at most this many rows.
    fn table(&self, table: &Table, most: usize) -> Vec<String> {
        let counts = |row: usize| table.rows[row].iter().any(|c| matches!(c.kind, Kind::Best | Kind::Bad));
        let mut chosen: Vec<usize> = (0..table.rows.len()).collect();
        chosen.sort_by_key(|&row| !counts(row));
        chosen.truncate(most);
        chosen.sort_unstable();
        let mut grid = vec![table.header.clone()];
        grid.extend(chosen.iter().map(|&row| {
            let marked = |cell: &towpath_report::Cell| match cell.kind {
                Kind::Best => format!("*{}", cell.text),
                _ => cell.text.clone(),
            };
            table.rows[row].iter().map(marked).collect()
        }));
        let width = |column: usize| {
            let cells = grid.iter().filter_map(|row| row.get(column));
            cells.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        // Names are cut only where figures need the room.
        let figures: usize = (1..table.header.len()).map(|column| 2 + width(column)).sum();
        let mut widths = vec![width(0).min(self.columns.saturating_sub(figures).max(NAMES))];
        for column in 1..table.header.len() {
            let next = width(column);
            if widths.iter().sum::<usize>() + 2 * widths.len() + next > self.columns {
                break;
            }
            widths.push(next);
        }
        let title =
            with_remarks(&table.title, [chosen.len(), table.rows.len()], [widths.len(), table.header.len()]);
        let mut lines = self.wrapped(&title);
        for row in &grid {
            let cell = |(column, &width): (usize, &usize)| {
                let text = clipped(row.get(column).map_or("", String::as_str), width);
                if column == 0 { format!("{text:width$}") } else { format!("{text:>width$}") }
            };
            let cells: Vec<String> = widths.iter().enumerate().map(cell).collect();
            lines.push(cells.join("  ").trim_end().to_owned());
        }
        // A table without heads has no line for them.
        lines.retain(|line| !line.is_empty());
        lines
    }

    /// A paragraph in lines that fit, broken between words.
    fn wrapped(&self, text: &str) -> Vec<String> {
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let line = lines.len() - 1;
            let (length, more) = (lines[line].chars().count(), word.chars().count());
            if length > 0 && length + 1 + more > self.columns {
                lines.push(word.to_owned());
            } else {
                if length > 0 {
                    lines[line].push(' ');
                }
                lines[line].push_str(word);
            }
        }
        lines
    }
}

/// A table's title, with the numbers of rows and columns that are shown, of all.
fn with_remarks(title: &str, rows: [usize; 2], columns: [usize; 2]) -> String {
    let part = |[shown, all]: [usize; 2], what| (shown < all).then(|| format!("{shown} of {all} {what}"));
    let remarks: Vec<String> = part(rows, "rows").into_iter().chain(part(columns, "columns")).collect();
    if remarks.is_empty() { title.into() } else { format!("{title} ({})", remarks.join(", ")) }
}

/// Text of at most this many characters, with a mark where some were left out.
fn clipped(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_report::Cell;

    fn table(rows: usize, columns: usize) -> Table {
        let row = |n: usize| {
            let cells = (1..columns).map(|c| {
                let kind = if n + 1 == rows && c == 1 { Kind::Best } else { Kind::Figure };
                Cell::new(format!("{n}.{c}"), kind)
            });
            std::iter::once(Cell::text(format!("algorithm {n}"))).chain(cells).collect()
        };
        Table {
            experiment: "logp",
            title: format!("{rows} rows of {columns}"),
            note: String::new(),
            header: (0..columns).map(|c| format!("column {c}")).collect(),
            rows: (0..rows).map(row).collect(),
        }
    }

    #[test]
    fn answer_fits_every_terminal_from_24_by_80() {
        let advice = "On this machine use this and that, since it is fast. ".repeat(8);
        for (lines, columns) in [(10, 40), (24, 80), (30, 90), (50, 100), (200, 300)] {
            for (rows, wide) in [(1, 2), (14, 8), (60, 40)] {
                let screen = Screen::new(lines, columns);
                let all = [table(rows, wide), table(2, 3), table(rows, wide), table(30, 3)];
                let tables: Vec<&Table> = all.iter().collect();
                let text = screen.lay_out(std::slice::from_ref(&advice), &tables, &["report: here".into()]);
                assert!(text.lines().count() <= lines.clamp(24, 50) - AROUND, "{text}");
                let widest = text.lines().map(|l| l.chars().count()).max().unwrap();
                assert!(widest <= columns.clamp(80, 100), "{widest}: {text}");
                assert!(text.contains("use this and that") && text.ends_with("report: here\n"), "{text}");
                assert!(text.contains("2 rows of 3\ncolumn 0"), "{text}");
            }
        }
    }

    #[test]
    fn rows_with_the_best_figures_are_kept() {
        let tall = table(60, 3);
        let text = Screen::new(24, 80).lay_out(&[], &[&tall], &[]);
        assert!(text.contains("of 60 rows)") && text.contains("algorithm 0 "), "{text}");
        assert!(text.lines().last().unwrap().starts_with("algorithm 59") && text.contains("*59.1"), "{text}");
        assert_eq!(text.lines().count(), 22 - 1, "{text}");
    }

    #[test]
    fn long_title_is_whole_and_missing_columns_are_told() {
        let words = "of a machine under a scheduler, ".repeat(5) + "time of the solution";
        let long = Table { title: words.clone(), ..table(20, 40) };
        let text = Screen::new(24, 80).lay_out(&[], &[&long, &long], &[]);
        let joined = text.lines().collect::<Vec<_>>().join(" ");
        assert_eq!(joined.matches(&words).count(), 2, "{text}");
        assert_eq!(joined.matches(" of 40 columns)").count(), 2, "{text}");
        assert!(text.lines().count() <= 22 && text.lines().all(|l| l.chars().count() <= 80), "{text}");
    }

    #[test]
    fn table_without_rows_is_left_out() {
        let empty = Table { rows: Vec::new(), ..table(1, 2) };
        let text = Screen::new(24, 80).lay_out(&["one".into()], &[&empty], &["two".into()]);
        assert_eq!(text, "one\n\ntwo\n");
    }

    #[test]
    fn long_names_are_cut_only_where_figures_need_the_room() {
        let named = |columns: usize| {
            let mut table = table(1, columns);
            table.rows[0][0] = Cell::text("n".repeat(60));
            Screen::new(24, 80).lay_out(&[], &[&table], &[])
        };
        assert!(named(2).contains(&format!("{}  ", "n".repeat(60))), "{}", named(2));
        assert!(named(6).contains(&format!("{}…  ", "n".repeat(NAMES - 1))), "{}", named(6));
        assert!(named(6).contains("column 3") && !named(6).contains("column 4"), "{}", named(6));
    }
}
