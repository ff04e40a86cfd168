//! Tables and plots of the experiment `apps`.

use std::collections::BTreeSet;

use towpath_apps::AnyApplication;
use towpath_report::format::digits;
use towpath_report::record::Record;
use towpath_report::record::metrics::SOLUTION_MS;
use towpath_report::svg::{Look, PlotLine, PlotValue, lines};
use towpath_report::table::{Cell, Kind, Table, mark_best};
use towpath_report::{ADAPTIVE, OURS, Results, Section};

use super::{CHECKED, SEQUENTIAL, grows};

/// Figures of an application.
struct Figures<'a> {
    application: AnyApplication,
    size: String,
    records: Vec<&'a Record>,
}

impl<'a> Figures<'a> {
    fn of(results: &'a Results, application: AnyApplication) -> Option<Self> {
        let records: Vec<&Record> = results
            .of("apps", SOLUTION_MS.name)
            .filter(|r| r.text("application") == Some(application.name()))
            .collect();
        let size = records.first()?.text("size").unwrap_or_default().to_string();
        Some(Figures { application, size, records })
    }

    fn procs(&self) -> Vec<u32> {
        let procs: BTreeSet<u32> =
            self.records.iter().filter(|r| r.algorithm != SEQUENTIAL).map(|r| r.procs).collect();
        procs.into_iter().collect()
    }

    /// Ways and policies, in the order of their records.
    fn ways(&self) -> Vec<(&'a str, &'a str)> {
        let mut ways = Vec::new();
        for r in self.records.iter().filter(|r| r.algorithm != SEQUENTIAL) {
            let way = (r.algorithm.as_str(), r.waiting.as_str());
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        ways
    }

    fn find(&self, (way, waiting): (&str, &str), procs: u32) -> Option<&'a Record> {
        self.records.iter().copied().find(|r| r.algorithm == way && r.waiting == waiting && r.procs == procs)
    }

    /// Time to compare all with: the sequential program's, or ours on one processor.
    fn common_base(&self) -> Option<&'a Record> {
        let sequential = self.records.iter().copied().find(|r| r.algorithm == SEQUENTIAL);
        sequential.or_else(|| self.find((OURS, ADAPTIVE), 1))
    }

    /// Time to compare with: the one for all, or the way's on one processor.
    fn base(&self, way: (&str, &str)) -> Option<&'a Record> {
        self.common_base().or_else(|| self.find(way, 1))
    }

    /// Speed as a multiple of the base's.
    fn speed_up(&self, way: (&str, &str), procs: u32) -> Option<f64> {
        let ratio = self.base(way)?.divided_by(self.find(way, procs)?)?;
        Some(if grows(self.application) { ratio * f64::from(procs) } else { ratio })
    }

    fn label((way, waiting): (&str, &str)) -> String {
        match waiting {
            ADAPTIVE | "own" => way.into(),
            other => format!("{way}, {other}"),
        }
    }

    fn table(&self) -> Table {
        let (ways, procs) = (self.ways(), self.procs());
        let cell = |way, n| match (self.speed_up(way, n), self.find(way, n)) {
            (Some(speed_up), Some(r)) => Cell {
                text: digits(speed_up),
                detail: format!("{} ms, {} to {}", digits(r.value), digits(r.min), digits(r.max)),
                kind: Kind::Figure,
            },
            (None, Some(r)) => Cell::figure(Some(r)),
            _ => Cell::new("–", Kind::Missing),
        };
        let mut rows: Vec<Vec<Cell>> = ways
            .iter()
            .map(|&way| {
                let cells = procs.iter().map(|&n| cell(way, n));
                std::iter::once(Cell::text(Self::label(way))).chain(cells).collect()
            })
            .collect();
        for (column, &n) in procs.iter().enumerate() {
            let values: Vec<Option<f64>> = ways.iter().map(|&way| self.speed_up(way, n)).collect();
            mark_best(&mut rows, column + 1, &values, false);
        }
        let base = self.common_base().map_or("the same on one processor".into(), |r| {
            let what = if r.algorithm == SEQUENTIAL {
                "one processor without locks and barriers"
            } else {
                "`towpath` on one processor"
            };
            format!("{what}, {} ms", digits(r.value))
        });
        let growing = if grows(self.application) {
            " The problem grows with the number of processors: the ratio is of work done in the same time."
        } else {
            ""
        };
        let checked = self.checked();
        let (figures, whose) = checked.map_or_else(Default::default, |(way, text)| {
            (format!("; checked: {text}"), format!("; the title has the figures of {way}"))
        });
        Table {
            experiment: "apps",
            // A screen shows no note.
            title: format!("{} ({}): {}{figures}", self.application.name(), self.size, self.quantity()),
            note: format!(
                "Speed-up, by the ratio to {base}, within the rounds.{growing} Each result was checked{whose}."
            ),
            header: std::iter::once("processors".to_string())
                .chain(procs.iter().map(u32::to_string))
                .collect(),
            rows,
        }
    }

    /// Figures by which the last result was checked.
    ///
    /// With the way that has computed it.
    fn checked(&self) -> Option<(String, &str)> {
        let last = self.records.iter().rev().find_map(|r| Some((*r, r.text(CHECKED)?)));
        last.map(|(r, text)| {
            let processors = if r.procs == 1 { "processor" } else { "processors" };
            (format!("{} on {} {processors}", r.algorithm, r.procs), text)
        })
    }

    /// Quantity of the table: the time, where there is nothing to compare it with.
    fn quantity(&self) -> &'static str {
        let is_compared = self.ways().iter().any(|&way| self.base(way).is_some());
        if is_compared { "speed-up" } else { "time of the solution" }
    }

    fn plot(&self) -> Option<String> {
        let procs = self.procs();
        let curve = |(n, &way): (usize, &(&str, &str))| {
            let points = procs.iter().filter_map(|&n| {
                let value = self.speed_up(way, n)?;
                let r = self.find(way, n)?;
                let scale = value * r.value;
                Some((f64::from(n), PlotValue { value, min: scale / r.max, max: scale / r.min }))
            });
            let look = Look { colour: n, dashed: way.1 == "own", bold: false };
            PlotLine { label: Self::label(way), points: points.collect(), look }
        };
        let curves: Vec<PlotLine> =
            self.ways().iter().enumerate().map(curve).filter(|c| c.points.len() > 1).collect();
        let title = format!("{}: speed-up, by number of processors", self.application.name());
        (!curves.is_empty()).then(|| lines(&title, &curves, |x| format!("{x:.0}"), digits))
    }
}

/// A table and a plot for each application.
pub fn sections(results: &Results) -> Vec<Section> {
    let all = AnyApplication::all().filter_map(|application| Figures::of(results, application));
    all.map(|figures| Section::new(figures.table()).with(figures.plot())).collect()
}
