//! Plots as inline SVG, drawn by hand: horizontal bars with whiskers, and lines over a
//! logarithmic x axis.
//!
//! Colours are classes, which the page's style sheet resolves for light and dark; shape and dashes
//! say the same as colour does.

use std::fmt::Write as _;

use crate::stats::Summary;

/// The width of every plot, in its own units; the page scales it.
const WIDTH: f64 = 860.0;
/// Room for labels at the right end of lines.
const LABELS: f64 = 200.0;
/// The height of a line plot.
const HEIGHT: f64 = 380.0;
/// The height of one bar with its gap.
const BAR: f64 = 26.0;

/// The look of a line or bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Number of the page's colour.
    pub colour: usize,
    /// True if it is drawn with dashes and hollow marks.
    pub dashed: bool,
    /// True if it is drawn bolder than the rest.
    pub bold: bool,
}

/// A figure with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlotValue {
    /// The median.
    pub value: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl From<Summary> for PlotValue {
    fn from(all: Summary) -> Self {
        PlotValue { value: all.median, min: all.min, max: all.max }
    }
}

impl From<f64> for PlotValue {
    fn from(value: f64) -> Self {
        PlotValue { value, min: value, max: value }
    }
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its name.
    pub label: String,
    /// Its length.
    pub value: PlotValue,
    /// Its look.
    pub look: Look,
}

/// One line.
#[derive(Clone, Debug)]
pub struct PlotLine {
    /// Its name.
    pub label: String,
    /// Points in the order of x.
    pub points: Vec<(f64, PlotValue)>,
    /// Its look.
    pub look: Look,
}

/// Text in HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A scale from values to positions.
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Logarithmic if the values differ by more than a factor of `spread`, else linear
    /// from zero.
    fn fit(values: impl Iterator<Item = f64>, spread: f64, from: f64, to: f64) -> Scale {
        let positive = values.filter(|v| v.is_finite() && *v > 0.0);
        let (least, most) = positive.fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
        if most <= 0.0 {
            return Scale { log: false, low: 0.0, high: 1.0, from, to };
        }
        if most / least > spread {
            let decade = 10f64.powf(least.log10().floor());
            let low = [5.0, 2.0, 1.0].map(|m| m * decade).into_iter().find(|l| *l <= least * 0.97);
            Scale { log: true, low: low.unwrap_or(decade / 2.0), high: most * 1.15, from, to }
        } else {
            Scale { log: false, low: 0.0, high: most * 1.08, from, to }
        }
    }

    fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values to put ticks at.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let first = self.low.log10().floor() as i32;
            let last = self.high.log10().ceil() as i32;
            let decades: Vec<f64> = (first..=last).map(|e| 10f64.powi(e)).collect();
            let wanted: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let all = decades.iter().flat_map(|d| wanted.iter().map(move |m| d * m));
            all.filter(|t| *t >= self.low * 0.999 && *t <= self.high * 1.001).collect()
        } else {
            let rough = (self.high - self.low) / 5.0;
            let decade = 10f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * decade).into_iter().find(|s| *s >= rough);
            let step = step.unwrap_or(rough);
            (0..=12).map(|n| f64::from(n) * step).filter(|t| *t <= self.high).collect()
        }
    }
}

/// A tick's text, without needless zeros.
fn tick_text(text: &str) -> String {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    escape(format!("{number} {unit}").trim_end())
}

fn open(height: f64, title: &str) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\"><text class=\"title\" x=\"0\" y=\"16\">{title}</text>"
    )
}

fn classes(look: Look) -> String {
    let mut classes = format!("c{}", look.colour);
    if look.dashed {
        classes.push_str(" dashed");
    }
    if look.bold {
        classes.push_str(" bold");
    }
    classes
}

/// Horizontal bars from zero, or dots where the values differ too much for that; whiskers
/// from the smallest to the largest run. `mark` is a vertical line with its name: what the bars are
/// to be compared with.
pub fn bars(title: &str, bars: &[Bar], format: impl Fn(f64) -> String, mark: Option<(f64, &str)>) -> String {
    // Room for the longest label.
    let longest = bars.iter().map(|b| b.label.chars().count()).max().unwrap_or(0);
    let left = (longest as f64 * 7.0 + 16.0).clamp(170.0, 340.0);
    let top = if mark.is_some() { 46.0 } else { 30.0 };
    let height = top + BAR * bars.len() as f64 + 30.0;
    let bottom = height - 26.0;
    let values = bars.iter().flat_map(|b| [b.value.value, b.value.max]).chain(mark.map(|m| m.0));
    let scale = Scale::fit(values, 20.0, left, WIDTH - 90.0);
    let mut svg = open(height, title);
    for tick in scale.ticks() {
        let x = scale.at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            tick_text(&format(tick))
        );
    }
    for (n, bar) in bars.iter().enumerate() {
        let middle = top + BAR * (n as f64 + 0.5);
        let (x, low, high) = (scale.at(bar.value.value), scale.at(bar.value.min), scale.at(bar.value.max));
        let class = classes(bar.look);
        let label = escape(&bar.label);
        let text = escape(&format(bar.value.value));
        let range = format!("{} to {}", escape(&format(bar.value.min)), escape(&format(bar.value.max)));
        let _ = write!(
            svg,
            "<g class=\"{class}\"><title>{label}: {text} ({range})</title>\
             <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 8.0,
            middle + 4.0
        );
        if scale.log {
            let _ = write!(svg, "<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{middle:.1}\" r=\"5\"/>");
        } else {
            let _ = write!(
                svg,
                "<rect class=\"bar\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"1.5\"/>",
                middle - BAR * 0.34,
                (x - left).max(0.5),
                BAR * 0.68
            );
        }
        let _ = write!(
            svg,
            "<path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {0:.1}v8M{high:.1} {0:.1}v8\"/>\
             <text class=\"value\" x=\"{1:.1}\" y=\"{2:.1}\">{text}</text></g>",
            middle - 4.0,
            high.max(x) + 8.0,
            middle + 4.0
        );
    }
    if let Some((value, name)) = mark {
        let x = scale.at(value);
        let _ = write!(
            svg,
            "<line class=\"floor\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}: {}</text>",
            top - 6.0,
            x + 4.0,
            top - 8.0,
            escape(name),
            escape(&format(value))
        );
    }
    svg.push_str("</svg>");
    svg
}

/// The labels below an axis, by their middles, without those that would overlap.
///
/// The last one stays.
fn apart(labels: impl DoubleEndedIterator<Item = (f64, String)>) -> Vec<(f64, String)> {
    let half = |text: &str| text.chars().count() as f64 * 3.5 + 3.0;
    let mut shown: Vec<(f64, String)> = Vec::new();
    for (x, text) in labels.rev() {
        if shown.last().is_none_or(|(next, of_next)| next - x >= half(of_next) + half(&text)) {
            shown.push((x, text));
        }
    }
    shown
}

/// Lines with marks, whiskers and a label at the right end of each; the x axis is
/// logarithmic with ticks where the points are.
pub fn lines(
    title: &str,
    lines: &[PlotLine],
    format_x: impl Fn(f64) -> String,
    format_y: impl Fn(f64) -> String,
) -> String {
    let longest = lines.iter().map(|l| l.label.chars().count()).max().unwrap_or(0);
    let labels = (longest as f64 * 7.5 + 20.0).clamp(LABELS, 2.0 * LABELS);
    let (left, top, bottom, right) = (70.0, 34.0, HEIGHT - 30.0, WIDTH - labels);
    let mut xs: Vec<f64> = lines.iter().flat_map(|l| l.points.iter().map(|p| p.0)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let (first, last) = (xs.first().copied().unwrap_or(1.0).max(1e-9), xs.last().copied().unwrap_or(1.0));
    let at_x = |x: f64| {
        if last > first {
            left + 12.0 + (x / first).ln() / (last / first).ln() * (right - left - 24.0)
        } else {
            (left + right) / 2.0
        }
    };
    let values = lines.iter().flat_map(|l| l.points.iter().flat_map(|p| [p.1.value, p.1.min, p.1.max]));
    let scale = Scale::fit(values, 20.0, bottom, top);
    let mut svg = open(HEIGHT, title);
    grid(&mut svg, &scale, (left, right), &format_y);
    for (x, text) in apart(xs.iter().map(|&x| (at_x(x), format_x(x)))) {
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 20.0,
            escape(&text)
        );
    }
    let ends: Vec<f64> =
        lines.iter().map(|l| l.points.last().map_or(bottom, |p| scale.at(p.1.value))).collect();
    let places = spread(&ends, 15.0, top, bottom);
    // The bold one is drawn last, above the others.
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|&n| lines[n].look.bold);
    for n in order {
        let line = &lines[n];
        let _ = write!(svg, "<g class=\"{}\"><path class=\"line\" d=\"", classes(line.look));
        for (k, (x, value)) in line.points.iter().enumerate() {
            let _ =
                write!(svg, "{}{:.1} {:.1}", if k == 0 { 'M' } else { 'L' }, at_x(*x), scale.at(value.value));
        }
        svg.push_str("\"/>");
        // Whiskers of different lines stand beside each other.
        let aside = (n as f64 - (lines.len() - 1) as f64 / 2.0) * 2.2;
        for (x, value) in &line.points {
            let (px, py) = (at_x(*x), scale.at(value.value));
            let wx = px + aside;
            let _ = write!(
                svg,
                "<g><title>{}, {}: {} ({} to {})</title><path class=\"whisker\" d=\"M{wx:.1} {:.1}V{:.1}\"/>{}</g>",
                escape(&line.label),
                escape(&format_x(*x)),
                escape(&format_y(value.value)),
                escape(&format_y(value.min)),
                escape(&format_y(value.max)),
                scale.at(value.min),
                scale.at(value.max),
                mark(line.look.colour, px, py)
            );
        }
        if let Some((x, _)) = line.points.last() {
            let (px, py, label) = (at_x(*x), ends[n], places[n]);
            let _ = write!(
                svg,
                "<path class=\"leader\" d=\"M{:.1} {py:.1}L{:.1} {label:.1}\"/>\
                 <text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                px + 7.0,
                right + 12.0,
                right + 16.0,
                label + 4.0,
                escape(&line.label)
            );
        }
        svg.push_str("</g>");
    }
    svg.push_str("</svg>");
    svg
}

/// Horizontal lines with the ticks of the y axis.
fn grid(svg: &mut String, scale: &Scale, (left, right): (f64, f64), format: impl Fn(f64) -> String) {
    for tick in scale.ticks() {
        let y = scale.at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            y + 4.0,
            tick_text(&format(tick))
        );
    }
}

/// A mark whose shape depends on the colour's number, so that one can do without seeing
/// colours.
fn mark(shape: usize, x: f64, y: f64) -> String {
    let points = |list: &[(f64, f64)]| {
        let text: Vec<String> = list.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        format!("<polygon class=\"mark\" points=\"{}\"/>", text.join(" "))
    };
    match shape % 6 {
        0 => points(&[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)]),
        1 => points(&[(0.0, -5.5), (5.0, 4.0), (-5.0, 4.0)]),
        2 => points(&[(0.0, -5.5), (5.5, 0.0), (0.0, 5.5), (-5.5, 0.0)]),
        3 => points(&[(0.0, 5.5), (5.0, -4.0), (-5.0, -4.0)]),
        4 => points(&[(-5.0, -2.0), (5.0, -2.0), (5.0, 2.0), (-5.0, 2.0)]),
        _ => format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>"),
    }
}

/// Moves positions apart so that neighbours are at least `distance` from each other:
/// those that overlap stand evenly around their common middle, within `low..=high` while there is
/// room.
fn spread(positions: &[f64], distance: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..positions.len()).collect();
    order.sort_by(|&a, &b| positions[a].total_cmp(&positions[b]));
    // Groups in order: (first position, how many). A group that reaches into its neighbour joins
    // it.
    let mut crowds: Vec<(f64, usize)> = Vec::new();
    for &n in &order {
        let mut crowd = (positions[n], 1);
        while let Some(&(first, count)) = crowds.last() {
            if first + count as f64 * distance <= crowd.0 {
                break;
            }
            crowds.pop();
            let middle = |(first, count): (f64, usize)| first + (count - 1) as f64 * distance / 2.0;
            let all = count + crowd.1;
            let common =
                (middle((first, count)) * count as f64 + middle(crowd) * crowd.1 as f64) / all as f64;
            let half = (all - 1) as f64 * distance / 2.0;
            crowd = (common.min(high - half).max(low + half) - half, all);
        }
        crowds.push(crowd);
    }
    let placed =
        crowds.into_iter().flat_map(|(first, count)| (0..count).map(move |k| first + k as f64 * distance));
    let mut result = positions.to_vec();
    for (n, place) in order.into_iter().zip(placed) {
        result[n] = place;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look { colour: 1, dashed: false, bold: false };

    #[test]
    fn labels_below_an_axis_do_not_overlap() {
        let labels = [(70.0, "8 B"), (310.0, "1023 B"), (311.0, "1 KiB"), (600.0, "2 MiB"), (620.0, "4 MiB")];
        let shown = apart(labels.into_iter().map(|(x, text)| (x, text.to_string())));
        let texts: Vec<&str> = shown.iter().map(|label| label.1.as_str()).collect();
        assert_eq!(texts, ["4 MiB", "1 KiB", "8 B"]);
    }

    fn value(value: f64) -> PlotValue {
        PlotValue { value, min: value * 0.9, max: value * 1.1 }
    }

    /// Every element that is opened is closed, in order.
    fn is_balanced(svg: &str) -> bool {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let name: String = tag.chars().take_while(|c| c.is_alphanumeric() || *c == '/').collect();
            if let Some(closed) = name.strip_prefix('/') {
                if open.pop() != Some(closed.to_string()) {
                    return false;
                }
            } else if !tag.split('>').next().unwrap_or_default().ends_with('/') {
                open.push(name);
            }
        }
        open.is_empty()
    }

    #[test]
    fn plots_are_balanced_and_show_every_label() {
        let some = [("a & b", 10.0), ("c", 20.0)];
        let all: Vec<Bar> =
            some.iter().map(|(l, v)| Bar { label: l.to_string(), value: value(*v), look: LOOK }).collect();
        let svg = bars("title", &all, |v| format!("{v} ns"), Some((8.0, "floor")));
        assert!(is_balanced(&svg), "{svg}");
        assert!(svg.contains("a &amp; b") && svg.contains("20 ns") && svg.contains("floor: 8 ns"));
        let points = vec![(1.0, value(5.0)), (7.0, value(500.0))];
        let two = [
            PlotLine { label: "x<y".into(), points, look: LOOK },
            PlotLine {
                label: "z".into(),
                points: vec![(1.0, value(5.0))],
                look: Look { dashed: true, ..LOOK },
            },
        ];
        let svg = lines("title", &two, |x| x.to_string(), |y| y.to_string());
        assert!(is_balanced(&svg), "{svg}");
        assert!(svg.contains("x&lt;y") && svg.contains("dashed") && !svg.contains("NaN"));
    }

    #[test]
    fn plots_of_nothing_or_of_one_point_have_finite_coordinates() {
        for svg in [
            bars("t", &[], |v| v.to_string(), None),
            lines("t", &[], |x| x.to_string(), |y| y.to_string()),
            lines(
                "t",
                &[PlotLine { label: "l".into(), points: vec![(4.0, value(0.0))], look: LOOK }],
                |x| x.to_string(),
                |y| y.to_string(),
            ),
        ] {
            assert!(is_balanced(&svg) && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn a_scale_is_logarithmic_only_where_it_must_be() {
        let linear = Scale::fit([10.0, 30.0].into_iter(), 20.0, 0.0, 100.0);
        assert!(!linear.log && linear.at(0.0) == 0.0 && linear.at(30.0) < 100.0);
        let log = Scale::fit([10.0, 3000.0].into_iter(), 20.0, 0.0, 100.0);
        assert!(log.log && log.at(10.0) < log.at(100.0) && log.at(100.0) < log.at(3000.0));
        let step = |a, b| log.at(b) - log.at(a);
        assert!((step(10.0, 100.0) - step(100.0, 1000.0)).abs() < 1e-9);
        for scale in [linear, log] {
            let ticks = scale.ticks();
            assert!((2..=13).contains(&ticks.len()), "{ticks:?}");
        }
    }

    #[test]
    fn ticks_have_no_needless_zeros() {
        assert_eq!(tick_text("20.0 ns"), "20 ns");
        assert_eq!(tick_text("2.50 GB/s"), "2.5 GB/s");
        assert_eq!(tick_text("100 k/s"), "100 k/s");
        assert_eq!(tick_text("7"), "7");
    }

    #[test]
    fn labels_do_not_overlap() {
        let placed = spread(&[50.0, 50.0, 52.0, 90.0], 15.0, 0.0, 100.0);
        let mut sorted = placed.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|w| w[1] - w[0] >= 14.99), "{placed:?}");
        assert!(sorted[0] >= 0.0 && sorted[3] <= 100.0);
    }
}
