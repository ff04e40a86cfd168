//! The report's page: one file that needs nothing else.

use std::fmt::Write as _;

use crate::report::{ClaimLine, Exhibition, Report, Section};
use crate::results::Results;
use crate::svg::escape;
use crate::table::{Kind, Table};

/// The page of a run on this machine: the advice, pictures, claims, then the experiments.
pub fn page(results: &Results, report: &Report) -> String {
    let host = &results.host;
    let mut html = String::with_capacity(1 << 17);
    let title = format!("Towpath on {}", host.cpu);
    open(&mut html, &title, &format!("{title}, {}", host.cores_text()));
    let _ = writeln!(
        html,
        "<p class=\"where\">{date} · {kernel} · commit <code>{commit}</code> · {seconds:.0} s</p>",
        date = escape(&host.date),
        kernel = escape(&host.kernel),
        commit = escape(&host.commit),
        seconds = results.seconds,
    );
    advice(&mut html, report.advice.lines());
    contents(&mut html, report);
    pictures(&mut html, &report.pictures);
    claims(&mut html, &report.claims);
    if let Some(table) = &report.targets {
        heading(&mut html, "targets", &table.title, &table.note);
        write_table(&mut html, table);
    }
    for chapter in &report.chapters {
        for (n, section) in chapter.sections.iter().enumerate() {
            let Table { title, note, .. } = &section.table;
            if n == 0 {
                heading(&mut html, chapter.name, title, note);
            } else {
                let _ = writeln!(html, "<h3>{}</h3>\n<p class=\"note\">{}</p>", escape(title), escape(note));
            }
            write_section(&mut html, section);
        }
    }
    missing(&mut html, results, report);
    method(&mut html, results, report);
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

/// The recommendations, a paragraph each.
fn advice<'a>(html: &mut String, sentences: impl Iterator<Item = &'a str>) {
    for (n, sentence) in sentences.enumerate() {
        let id = if n == 0 { " id=\"advice\"" } else { "" };
        let _ = writeln!(html, "<p class=\"advice\"{id}>{}</p>", escape(sentence));
    }
}

/// A page of claims and sections that is not about the machine at hand: a title, an
/// introduction, recommendations, claims, sections, and missing figures.
pub fn plain_page(
    title: &str,
    introduction: &str,
    sentences: &[String],
    claim_lines: &[ClaimLine],
    sections: &[Section],
    missing: &[String],
) -> String {
    let mut html = String::with_capacity(1 << 16);
    open(&mut html, title, title);
    let _ = writeln!(html, "<p class=\"where\">{}</p>", escape(introduction));
    advice(&mut html, sentences.iter().map(String::as_str));
    claims(&mut html, claim_lines);
    for (n, part) in sections.iter().enumerate() {
        heading(&mut html, &format!("part-{n}"), &part.table.title, &part.table.note);
        write_section(&mut html, part);
    }
    if !missing.is_empty() {
        html.push_str("<h2 id=\"missing\">Not measured</h2>\n<ul>\n");
        for line in missing {
            let _ = writeln!(html, "<li>{}</li>", escape(line));
        }
        html.push_str("</ul>\n");
    }
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

/// A page of the papers' figures, redrawn, each with the claims that are read from it.
pub fn exhibition_page(title: &str, introduction: &str, papers: &[Exhibition]) -> String {
    let mut html = String::with_capacity(1 << 17);
    open(&mut html, title, title);
    let _ = writeln!(html, "<p class=\"where\">{}</p>\n<nav>", escape(introduction));
    for paper in papers {
        let _ = write!(html, "<a href=\"#{0}\">paper {0}</a>", paper.key);
    }
    html.push_str("</nav>\n");
    for paper in papers {
        heading(&mut html, &paper.key.to_string(), &format!("Paper {}", paper.key), &paper.title);
        for (n, exhibit) in paper.exhibits.iter().enumerate() {
            let _ = writeln!(
                html,
                "<h3 id=\"{}{n}\">{}</h3>\n<p class=\"note\">{}</p>",
                paper.key,
                escape(&exhibit.title),
                escape(&exhibit.note)
            );
            for plot in &exhibit.plots {
                let _ = writeln!(html, "<figure>{plot}</figure>");
            }
            claim_lines(&mut html, &exhibit.claims);
        }
    }
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

fn open(html: &mut String, title: &str, head: &str) {
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{head}</h1>\n",
        title = escape(title),
        style = include_str!("style.css"),
        head = escape(head),
    );
}

fn heading(html: &mut String, id: &str, title: &str, note: &str) {
    let _ = writeln!(html, "<h2 id=\"{id}\">{}</h2>\n<p class=\"note\">{}</p>", escape(title), escape(note));
}

fn contents(html: &mut String, report: &Report) {
    html.push_str("<nav>");
    let parts = [
        ("pictures", !report.pictures.is_empty()),
        ("claims", !report.claims.is_empty()),
        ("targets", report.targets.is_some()),
    ];
    let names = parts.into_iter().filter(|(_, there)| *there).map(|(name, _)| name);
    for name in names.chain(report.chapters.iter().map(|c| c.name)) {
        let _ = write!(html, "<a href=\"#{name}\">{name}</a>");
    }
    html.push_str("<a href=\"#missing\">not measured</a><a href=\"#method\">machine and method</a></nav>\n");
}

/// Plots, each with a short table of its numbers that opens.
fn pictures(html: &mut String, pictures: &[Section]) {
    if pictures.is_empty() {
        return;
    }
    html.push_str("<div id=\"pictures\">\n");
    for picture in pictures {
        for plot in &picture.plots {
            let _ = writeln!(html, "<figure>{plot}</figure>");
        }
        let title = escape(&picture.table.title);
        let _ = writeln!(html, "<details><summary>{title}: the numbers</summary>");
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(&picture.table.note));
        write_table(html, &picture.table);
        html.push_str("</details>\n");
    }
    html.push_str("</div>\n");
}

/// Claims of papers, one line each, which opens to the rest.
fn claims(html: &mut String, claims: &[ClaimLine]) {
    if claims.is_empty() {
        return;
    }
    heading(
        html,
        "claims",
        "The papers' claims",
        "One line each: the claim, the paper's value, the value here, and whether it holds here. A line opens to the tolerance, \
         which was fixed beforehand, and to the reasons.",
    );
    claim_lines(html, claims);
}

/// Claims, one line each, without a heading.
fn claim_lines(html: &mut String, claims: &[ClaimLine]) {
    html.push_str("<div class=\"claims\">\n");
    for claim in claims {
        let here = if claim.here.is_empty() { "–" } else { &claim.here };
        let _ = write!(
            html,
            "<details><summary><span class=\"id\">{}</span><span class=\"what\">{}</span>\
             <span class=\"value\">{}</span><span class=\"value\">{}</span><span class=\"{}\">{}</span></summary>\n<dl>\n",
            claim.id,
            escape(claim.what),
            escape(claim.paper),
            escape(here),
            class(claim.kind),
            claim.verdict,
        );
        let own = [("the paper says", claim.what), ("the paper's value", claim.paper), ("here", here)];
        let own = own.into_iter().map(|(name, text)| (name, text.to_string()));
        for (name, text) in own.chain(claim.details.iter().cloned()) {
            let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&text));
        }
        html.push_str("</dl></details>\n");
    }
    html.push_str("</div>\n");
}

fn write_section(html: &mut String, section: &Section) {
    for plot in &section.plots {
        let _ = writeln!(html, "<figure>{plot}</figure>");
    }
    // A section of plots alone has a heading and no table.
    if !section.table.rows.is_empty() {
        write_table(html, &section.table);
    }
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Figure => "figure",
        Kind::Best => "best",
        Kind::Paper => "paper",
        Kind::Missing => "missing",
        Kind::Good => "good",
        Kind::Bad => "bad",
    }
}

fn write_table(html: &mut String, table: &Table) {
    let _ = write!(html, "<div class=\"wide\"><table class=\"{}\">\n<thead><tr>", table.experiment);
    for (n, name) in table.header.iter().enumerate() {
        let class = match table.rows.first().and_then(|r| r.get(n)).map(|c| c.kind) {
            Some(Kind::Paper) => " class=\"paper\"",
            Some(Kind::Text) => " class=\"text\"",
            _ => "",
        };
        let _ = write!(html, "<th{class} scope=\"col\">{}</th>", escape(name));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for cell in row {
            let title = if cell.detail.is_empty() {
                String::new()
            } else {
                format!(" title=\"{}\"", escape(&cell.detail))
            };
            let _ = write!(html, "<td class=\"{}\"{title}>{}</td>", class(cell.kind), escape(&cell.text));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
}

fn missing(html: &mut String, results: &Results, report: &Report) {
    html.push_str("<h2 id=\"missing\">Not measured</h2>\n");
    let lines = results.missing_summary();
    if lines.is_empty() {
        html.push_str("<p>Everything that this run was asked for has been measured.</p>\n");
    } else {
        html.push_str(
            "<div class=\"wide\"><table>\n<thead><tr><th class=\"text\" scope=\"col\">contender</th><th class=\"text\" scope=\"col\">in</th>\
             <th class=\"text\" scope=\"col\">why not</th></tr></thead>\n<tbody>\n",
        );
        for (experiments, subject, reason) in lines {
            let _ = writeln!(
                html,
                "<tr><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text\">not measured: {}</td></tr>",
                escape(&subject),
                escape(&experiments),
                escape(&reason)
            );
        }
        html.push_str("</tbody></table></div>\n");
    }
    for hint in &report.hints {
        let _ = writeln!(html, "<p>{}</p>", escape(hint));
    }
}

fn method(html: &mut String, results: &Results, report: &Report) {
    let host = &results.host;
    let asked = &results.asked;
    let lacking = if host.not_available.is_empty() {
        "nothing that was looked for".into()
    } else {
        host.not_available.join("; ")
    };
    html.push_str("<h2 id=\"method\">Machine and method</h2>\n<dl>\n");
    for (name, value) in [
        ("processor", format!("{}, {} usable", host.cpu, host.cores_text())),
        ("virtualisation", host.virtualisation.clone()),
        ("kernel", host.kernel.clone()),
        ("frequency governor", host.governor.clone()),
        ("pinning", host.pinning.clone()),
        ("not available here", lacking),
        ("shared cores", results.shared_cores.map_or("none were seen".into(), |seen| seen.to_string())),
        ("commit", host.commit.clone()),
        ("date", host.date.clone()),
        ("waiting policies", asked.waiting.join(", ")),
        ("rounds", format!("at most {}; seed {}", asked.runs, asked.seed)),
    ] {
        let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    html.push_str(
        "</dl>\n<p>Within an experiment all contenders are measured in every round, in an order that changes from round to round, so that \
         what disturbs the machine disturbs all of them. Figures are medians over the rounds; whiskers and tooltips give the smallest and the \
         largest. A bold figure is the best of its column. The same figures are in <code>results.jsonl</code> beside this \
         file, one JSON object per line.</p>\n",
    );
    for source in &report.sources {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(source));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Exhibit, made_up};

    /// The page's own elements that must be closed are.
    fn balanced(html: &str, name: &str) -> bool {
        let opened = html.matches(&format!("<{name}>")).count() + html.matches(&format!("<{name} ")).count();
        opened == html.matches(&format!("</{name}>")).count()
    }

    #[test]
    fn page_begins_with_advice_then_pictures_then_claims() {
        let (results, report) = made_up();
        let html = page(&results, &report);
        let places: Vec<usize> =
            ["Use towpath.", "id=\"pictures\"", "id=\"claims\"", "id=\"logp\"", "id=\"missing\""]
                .map(|part| html.find(part).unwrap_or_else(|| panic!("{part}")))
                .to_vec();
        assert!(places.is_sorted(), "{places:?}");
        assert!(html.contains("not measured: mpich is not installed") && html.contains("Ask for --peers."));
    }

    #[test]
    fn claim_is_one_line_that_opens_to_its_details() {
        let (results, report) = made_up();
        let html = page(&results, &report);
        let (line, rest) = html.split_once("class=\"id\">L3").unwrap().1.split_once("</summary>").unwrap();
        assert!(
            line.contains("× 1.19") && line.contains("× 1.3") && line.contains("not reproduced"),
            "{line}"
        );
        assert!(!line.contains("1.25") && rest.split_once("</details>").unwrap().0.contains("at most 1.25"));
    }

    #[test]
    fn claims_stand_below_the_figure_that_they_are_read_from() {
        let (_, report) = made_up();
        let exhibit = |title: &str, plot: &str, claims: &[ClaimLine]| Exhibit {
            title: title.into(),
            note: "Its points are known.".into(),
            plots: vec![format!("<svg>{plot}</svg>")],
            claims: claims.to_vec(),
        };
        let exhibits = vec![exhibit("Table 1", "first", &report.claims), exhibit("Table 2", "second", &[])];
        let paper = Exhibition { key: 'L', title: "A paper".into(), exhibits };
        let html = exhibition_page("Papers", "Most of it.", &[paper]);
        let parts =
            ["href=\"#L\"", "id=\"L\"", "Table 1", "<svg>first", "class=\"id\">L3", "Table 2", "<svg>second"];
        let places = parts.map(|part| html.find(part).unwrap_or_else(|| panic!("{part}")));
        assert!(places.is_sorted(), "{places:?}");
        for name in ["details", "figure", "div", "h3", "nav", "dl"] {
            assert!(balanced(&html, name), "<{name}>");
        }
    }

    #[test]
    fn targets_are_shown_only_if_asked_for() {
        let (results, mut report) = made_up();
        assert!(!page(&results, &report).contains("id=\"targets\""));
        report.targets =
            Some(Table { experiment: "targets", ..report.chapters[0].sections[0].table.clone() });
        assert!(page(&results, &report).contains("id=\"targets\""));
    }

    #[test]
    fn page_is_well_formed_and_needs_no_network() {
        let (results, report) = made_up();
        let html = page(&results, &report);
        for name in [
            "html", "head", "body", "main", "table", "thead", "tbody", "tr", "td", "th", "figure", "svg",
            "p", "dl", "div", "details", "summary", "span", "nav",
        ] {
            assert!(balanced(&html, name), "<{name}> is not closed everywhere");
        }
        for forbidden in ["http:", "https:", "//cdn", "src=", "@import", "url(", "<script", "<link", "NaN"] {
            assert!(!html.contains(forbidden), "{forbidden} is in the page");
        }
        assert!(html.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn text_from_outside_is_escaped() {
        let (mut results, report) = made_up();
        results.host.cpu = "<b>&\"CPU\"".into();
        let html = page(&results, &report);
        assert!(!html.contains("<b>") && html.contains("&lt;b&gt;&amp;&quot;CPU&quot;"));
    }

    #[test]
    fn run_without_results_has_a_page() {
        let (mut results, _) = made_up();
        results.records.clear();
        results.missing.clear();
        let report = Report { advice: "Nothing to recommend.".into(), ..Report::default() };
        let html = page(&results, &report);
        assert!(html.contains("Nothing to recommend.") && html.contains("has been measured"));
    }
}
