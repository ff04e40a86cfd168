//! `towpath reproduce`: the papers' claims on their machines, simulated.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use towpath_papers::claims::costs::timings;
use towpath_papers::claims::{Context, Judged, choose, judge, lost, show, to_record};
use towpath_report::console::ConsoleBar;
use towpath_report::{Cell, ClaimLine, Table};

use super::screen::Screen;
use super::sim::ProgressBar;
use towpath_shm::shown;

use crate::{CommandFailure, Outcome, output};

/// Arguments of `towpath reproduce`.
#[derive(clap::Args, Clone, Debug)]
#[command(
    about = "Judge the papers' claims by experiments on their machines, simulated",
    long_about = "Runs the experiments of the papers' numbered claims on the machines that the papers measured, simulated, and judges each claim: it is reproduced if it holds within the tolerance that was set beforehand, for the medians over the seeds and for every seed alone; one that the first seed contradicts is tried with no other. A claim by which a parameter of the machine was chosen is an input and never counts. A reproduced claim is tried again without its effect (sabotage): one that doesn't notice can't tell, and is named.\n\n\
                  Prints one screen: the number of claims of each verdict, then a line for each claim (where they are too many for one screen: those that are not reproduced, and some others). The report (index.html, which needs no other file, and results.jsonl) has the paper's figures, ours, tolerances and plots. results.jsonl gets each claim as soon as it is judged, so that a run that is cut off keeps what it has found.",
    after_long_help = "Examples:\n  towpath reproduce               all claims\n  towpath reproduce N             those of one paper\n  towpath reproduce N1 N6 --json  some of them, one JSON object each\n\nExit codes: 0 every claim that is recorded as reproduced still is; 1 one is not any more, or the report can't be written; 2 arguments that make no sense; 141 the reader of the answer has gone."
)]
pub struct ReproduceArgs {
    /// Claims to judge: a paper's letter (G, K, L, M, N) or a number (N6) [default: all]
    #[arg(value_name = "CLAIM", value_delimiter = ',')]
    claims: Vec<String>,

    /// Number of seeds: runs of each experiment
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,

    /// Simulations at one time, for each of two claims [default: one for each core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,

    /// Write the verdicts into a file, in the form of the recorded verdicts
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Write the processor time of each claim and of each run into a file, as JSON lines
    #[arg(long, value_name = "FILE")]
    timings: Option<PathBuf>,

    /// Print the whole table, with tolerances and reasons, instead of one screen
    #[arg(long)]
    all: bool,

    /// Print one JSON object for each claim to stdout, and everything else to stderr
    #[arg(long)]
    json: bool,

    /// Folder of the report
    #[arg(long, value_name = "DIR", default_value = "towpath-report/reproduce")]
    report: PathBuf,
}

/// One line for each claim: number, verdict, the paper's statement.
fn verdicts(judged: &[Judged]) -> Table {
    let line = |c: &ClaimLine| vec![Cell::new(format!("{:<4} {:<15} {}", c.id, c.verdict, c.what), c.kind)];
    Table {
        experiment: "claims",
        title: "The papers' claims on their machines, simulated".into(),
        note: String::new(),
        header: vec![String::new()],
        rows: show::lines(judged).iter().map(line).collect(),
    }
}

/// Failure to write a file.
fn unwritten(file: &Path, error: &std::io::Error) -> CommandFailure {
    CommandFailure::new(format!("{} can't be written: {error}", shown(file)))
}

/// Runs `towpath reproduce`.
pub fn run(args: &ReproduceArgs) -> Outcome {
    let claims = choose(&args.claims).map_err(|e| CommandFailure::new(e).with_code(2))?;
    // Hours of judging are lost if a file can't be written at their end.
    for file in [&args.record, &args.timings].into_iter().flatten() {
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        opened.map_err(|e| unwritten(file, &e))?;
    }
    let report = show::GrowingReport::begin(&args.report).map_err(CommandFailure::new)?;
    let bar = ProgressBar(ConsoleBar::new(true));
    let judged = judge(&claims, &Context::new(args.seeds, args.threads, &bar), &|one| report.add(one));
    bar.0.finish();
    show::write(&args.report, &judged).map_err(CommandFailure::new)?;
    let write = |file: &Option<PathBuf>, text: &dyn Fn(&[Judged]) -> String| {
        let Some(file) = file else { return Ok(()) };
        std::fs::write(file, text(&judged)).map_err(|e| unwritten(file, &e))
    };
    write(&args.record, &to_record)?;
    write(&args.timings, &timings)?;
    let place = format!("report: {}", shown(args.report.join("index.html")));
    let text = if args.all {
        format!("{}{place}\n", show::render(&judged))
    } else {
        let place = format!("{place} (everything; --all prints it)");
        Screen::of_output().lay_out(&[show::summary(&judged)], &[&verdicts(&judged)], &[place])
    };
    if args.json {
        output::remark_text(&text);
        output::answer(&show::to_json_lines(&judged))?;
    } else {
        output::answer(&text)?;
    }
    Ok(if lost(&judged).next().is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
