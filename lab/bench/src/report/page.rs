//! The report's page: one file that needs nothing else.

use std::fmt::Write as _;

use super::plots::plots;
use super::svg::escape;
use crate::experiments::EXPERIMENTS;
use crate::paper;
use crate::recommend::recommendation;
use crate::results::Results;
use crate::tables::{Kind, Table, tables};

/// The page.
pub fn page(results: &Results) -> String {
    let host = &results.host;
    let tables = tables(results);
    let advice = escape(&recommendation(results));
    let mut html = String::with_capacity(1 << 17);
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Towpath on {cpu}</title>\n\
         <style>\n{style}</style>\n</head>\n<body>\n<main>\n\
         <h1>Towpath on {cpu}, {cores}</h1>\n\
         <p class=\"where\">{date} · {kernel} · commit <code>{commit}</code> · {seconds:.0} s</p>\n\
         <p class=\"advice\">{advice}</p>\n",
        cpu = escape(&host.cpu),
        cores = host.cores_text(),
        style = include_str!("style.css"),
        date = escape(&host.date),
        kernel = escape(&host.kernel),
        commit = escape(&host.commit),
        seconds = results.seconds,
    );
    contents(&mut html, results, &tables);
    for table in tables.iter().filter(|t| matches!(t.experiment, "targets" | "claims")) {
        section(&mut html, table.experiment, &table.title, &table.note);
        write_table(&mut html, table);
    }
    for experiment in EXPERIMENTS.iter().filter(|e| results.has(e.name())) {
        let mut first = true;
        for table in tables.iter().filter(|t| t.experiment == experiment.name()) {
            if first {
                section(&mut html, experiment.name(), &table.title, &table.note);
                for plot in plots(results, experiment.name()) {
                    let _ = writeln!(html, "<figure>{plot}</figure>");
                }
                first = false;
            } else {
                let _ = writeln!(
                    html,
                    "<h3>{}</h3>\n<p class=\"note\">{}</p>",
                    escape(&table.title),
                    escape(&table.note)
                );
            }
            write_table(&mut html, table);
        }
    }
    missing(&mut html, results);
    method(&mut html, results);
    let _ = write!(
        html,
        "<h2 id=\"advice\">What to use here</h2>\n<p class=\"advice\">{advice}</p>\n</main>\n</body>\n</html>\n"
    );
    html
}

/// A part of a page: a table, and the plots that go before it.
#[derive(Clone, Debug)]
pub struct Section {
    /// The table.
    pub table: Table,
    /// SVG, each a whole.
    pub plots: Vec<String>,
}

/// A page that is not about the machine at hand: a title, an introduction, sections, and
/// what could not be shown.
pub fn plain_page(title: &str, introduction: &str, sections: &[Section], missing: &[String]) -> String {
    let mut html = String::with_capacity(1 << 16);
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n<p class=\"where\">{introduction}</p>\n",
        title = escape(title),
        style = include_str!("style.css"),
        introduction = escape(introduction),
    );
    for (n, part) in sections.iter().enumerate() {
        section(&mut html, &format!("part-{n}"), &part.table.title, &part.table.note);
        for plot in &part.plots {
            let _ = writeln!(html, "<figure>{plot}</figure>");
        }
        write_table(&mut html, &part.table);
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

fn section(html: &mut String, id: &str, title: &str, note: &str) {
    let _ = writeln!(html, "<h2 id=\"{id}\">{}</h2>\n<p class=\"note\">{}</p>", escape(title), escape(note));
}

fn contents(html: &mut String, results: &Results, tables: &[Table]) {
    html.push_str("<nav>");
    for table in tables.iter().filter(|t| matches!(t.experiment, "targets" | "claims")) {
        let _ = write!(html, "<a href=\"#{0}\">{0}</a>", table.experiment);
    }
    for experiment in EXPERIMENTS.iter().filter(|e| results.has(e.name())) {
        let _ = write!(html, "<a href=\"#{0}\">{0}</a>", experiment.name());
    }
    html.push_str("<a href=\"#missing\">not measured</a><a href=\"#method\">machine and method</a></nav>\n");
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

fn missing(html: &mut String, results: &Results) {
    html.push_str("<h2 id=\"missing\">Not measured</h2>\n");
    let lines = results.missing_summary();
    if lines.is_empty() {
        html.push_str("<p>Everything that this run was asked for has been measured.</p>\n");
    } else {
        html.push_str(
            "<div class=\"wide\"><table>\n<thead><tr><th class=\"text\" scope=\"col\">who</th><th class=\"text\" scope=\"col\">in</th>\
             <th class=\"text\" scope=\"col\">why not</th></tr></thead>\n<tbody>\n",
        );
        for (experiments, who, reason) in lines {
            let _ = writeln!(
                html,
                "<tr><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text\">not measured: {}</td></tr>",
                escape(&who),
                escape(&experiments),
                escape(&reason)
            );
        }
        html.push_str("</tbody></table></div>\n");
    }
    if !results.settings.peers {
        html.push_str(
            "<p>The peers were not asked for: <code>towpath bench --peers</code> adds pipe, Unix socket, crossbeam's ArrayQueue, \
             iceoryx2 (if built in), Open MPI and MPICH, in the same interleaved rounds.</p>\n",
        );
    }
}

fn method(html: &mut String, results: &Results) {
    let host = &results.host;
    let settings = &results.settings;
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
        ("commit", host.commit.clone()),
        ("date", host.date.clone()),
        ("waiting policies", settings.waiting.join(", ")),
        ("rounds", format!("at most {}; seed {}", settings.runs, settings.seed)),
    ] {
        let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    let _ = write!(
        html,
        "</dl>\n<p>Within an experiment all contenders are measured in every round, in an order that changes from round to round, so that \
         what disturbs the machine disturbs all of them. Figures are medians over the rounds; whiskers and tooltips give the smallest and the \
         largest. A bold figure is the best of its column, whoever has it. The same figures are in <code>results.jsonl</code> beside this \
         file, one JSON object per line.</p>\n<p class=\"note\">Paper {}: {}, {} and {}, measured on a {}.</p>\n",
        paper::LOGP.key,
        escape(paper::LOGP.paper),
        paper::LOGP.place,
        paper::STRESS.place,
        escape(paper::LOGP.machine)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::example_results;

    /// The page's own elements that must be closed are.
    fn balanced(html: &str, name: &str) -> bool {
        let opened = html.matches(&format!("<{name}>")).count() + html.matches(&format!("<{name} ")).count();
        opened == html.matches(&format!("</{name}>")).count()
    }

    #[test]
    fn the_page_shows_every_experiment_and_every_contender() {
        let results = example_results();
        let html = page(&results);
        for record in &results.records {
            assert!(html.contains(&format!("id=\"{}\"", record.experiment)), "{}", record.experiment);
            // What measures the machine or the simulator itself goes by other names in the tables.
            let is_nobody = ["hardware", "kernel", "engine"].contains(&record.algorithm.as_str());
            assert!(is_nobody || html.contains(&record.algorithm), "{}", record.algorithm);
        }
        assert!(html.contains("not measured: mpich is not installed"));
        assert_eq!(html.matches(&*escape(&recommendation(&results))).count(), 2);
    }

    #[test]
    fn the_page_is_well_formed_and_needs_no_network() {
        let html = page(&example_results());
        for name in [
            "html", "head", "body", "main", "table", "thead", "tbody", "tr", "td", "th", "figure", "svg",
            "g", "p", "dl", "div",
        ] {
            assert!(balanced(&html, name), "<{name}> is not closed everywhere");
        }
        for forbidden in ["http:", "https:", "//cdn", "src=", "@import", "url(", "<script", "<link", "NaN"] {
            assert!(!html.contains(forbidden), "{forbidden} is in the page");
        }
        assert!(html.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        let mut results = example_results();
        results.host.cpu = "<b>&\"CPU\"".into();
        let html = page(&results);
        assert!(!html.contains("<b>") && html.contains("&lt;b&gt;&amp;&quot;CPU&quot;"));
    }

    #[test]
    fn a_run_without_results_still_makes_a_page() {
        let mut results = example_results();
        results.records.clear();
        results.missing.clear();
        let html = page(&results);
        assert!(html.contains("none can be recommended") && html.contains("has been measured"));
    }
}
