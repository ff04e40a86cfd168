//! Help of `towpath bench`: of all experiments, and of one.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command};
use towpath_lab::experiments::find;
use towpath_report::Experiment;

use super::checks::OWN_OPTIONS;

/// Calls, each with its effect beside it or below.
const EXAMPLES: &str = "\
  towpath bench                                   everything, in half a minute
  towpath bench --all                             the same, with every table on the terminal
  towpath bench --peers                           the same beside Open MPI, MPICH, iceoryx2, …
  towpath bench floor                             what the machine itself costs
  towpath bench stress --writers 1,31 --runs 9    more writers, more rounds
  towpath bench stress --algorithms ticket,mcs --waiting spin,park
  towpath bench bulk --sizes 4K,1M --json | jq .value
  towpath bench ladder                            from System V semaphores to lock-free (paper M)
  towpath bench mpi --impl mpich --procs 2,8      an MPI over Towpath and over its own shared memory
  towpath bench mplocks                           locks by message beside pthread's, flock, MPI's, etcd's, Redis' (paper K)
  towpath bench mplocks --algorithms reactive,posix --procs 2,8 --runs 9
  towpath bench mplocks --kills 1000 --algorithms reactive,hosts
                                                  the next grant after kill -9 of the holder: this host, another one
  towpath bench locks --algorithms mutex,std,parking-lot,pthread --procs 1,2,8,32
                                                  the mutex beside the usual ones, by threads and by processes
  towpath bench locks --critical-section 1000 --between 5000 --waiting adaptive,park --sharing threads
                                                  every lock, for a program that holds its locks for a microsecond
  towpath bench locks --copies 2,3 --scheduler time-sharing,gang --procs 2
                                                  beside copies of itself, as other programs would be
  towpath bench queues                            bounded queues of values
  towpath bench counter --procs 2,8               a shared counter by fetch-and-add, and under every lock
  towpath bench broadcast --peers                 one writer and its readers: throughput, wake-up, what waiting costs
  towpath bench pool                              buffers of 1 MiB through three processes
  towpath bench kills --kills 1000                1,000 kills for each lock, queue, barrier, ring and pool that survives them
  towpath bench queues --kills 1000 --algorithms mpmc
  towpath bench dcas                              a double compare-and-swap beside a compare-and-swap (paper G)
  towpath bench structures --stop 1               what the others do while one is stopped: ours, and under locks
  towpath bench structures --kills 10000 --algorithms guerraoui
  towpath bench apps --app barnes,lu --procs 1,2,4
                                                  papers' applications under every lock or barrier, and other crates'
  towpath bench crash --kills 10000               for as long as that takes";

/// End of the help.
const END: &str = "\
Reading the results:
  Absolute figures drift on a machine that others share; compare figures of one run, whose rounds are interleaved.
  A difference within the range from the smallest to the largest run (whiskers in the report) is no difference.
  `*` marks the best figure of a column.

Exit codes: 0 measured; 1 a defect was found (lost or damaged messages), nothing of an algorithm that was named could be measured, or the report can't be written; 2 arguments that make no sense; 141 the reader of the answer has gone.";

/// Text below the options of all experiments.
pub(super) fn below_options() -> String {
    format!("Examples:\n{EXAMPLES}\n\n{END}")
}

/// Examples of an experiment.
fn examples_of(experiment: &str) -> Vec<&'static str> {
    let begin = format!("  towpath bench {experiment} ");
    let mut is_ours = false;
    let of_it = |line: &&str| {
        if line.starts_with("  towpath ") {
            is_ours = format!("{line} ").starts_with(&begin);
        }
        is_ours
    };
    EXAMPLES.lines().filter(of_it).collect()
}

/// The command `towpath`, of whose `bench` only the options of the experiment that these
/// arguments name are shown and accepted.
pub fn of_named_experiment(command: Command, arguments: &[String]) -> Command {
    match named_experiment(&command, arguments).and_then(|name| find(&name)) {
        Some(experiment) => command.mut_subcommand("bench", |bench| narrowed(bench, experiment)),
        None => command,
    }
}

/// The experiment that the arguments name, also if there are wrong ones among them.
fn named_experiment(command: &Command, arguments: &[String]) -> Option<String> {
    let [_, bench, rest @ ..] = arguments else { return None };
    let bench = command.find_subcommand(bench).filter(|found| found.get_name() == "bench")?.clone();
    // Asked for help, it would look no further.
    let help = Arg::new("help").long("help").short('h').action(ArgAction::SetTrue);
    let bench = bench.disable_help_flag(true).arg(help).no_binary_name(true).ignore_errors(true);
    bench.try_get_matches_from(rest).ok()?.get_one::<String>("experiment").cloned()
}

fn narrowed(bench: Command, experiment: &'static (impl Experiment + ?Sized)) -> Command {
    let name = experiment.name();
    let algorithms = experiment.algorithms();
    let examples = examples_of(name).join("\n");
    let examples = if examples.is_empty() { examples } else { format!("Examples:\n{examples}\n\n") };
    let mut bench = bench
        .about(format!("Measure {}", experiment.about()))
        .long_about(format!(
            "Measures {}.\n\nPrints one screen, and writes a report with all tables and pictures. Figures are medians of interleaved rounds. `towpath bench --help` has the other experiments and their options.",
            experiment.about()
        ))
        .override_usage(format!("towpath bench {name} [OPTIONS]"))
        .after_long_help(format!("{examples}{END}"))
        .mut_arg("experiment", |arg| arg.hide(true));
    for option in OWN_OPTIONS.iter().filter(|option| !option.fits(Some(name))) {
        bench = bench.mut_arg(option.id(), |arg| arg.hide(true));
    }
    match algorithms.is_empty() {
        true => bench.mut_arg("algorithms", |arg| arg.hide(true)),
        false => bench.mut_arg("algorithms", |arg| arg.value_parser(PossibleValuesParser::new(algorithms))),
    }
}

#[cfg(test)]
mod tests {
    use towpath_lab::EXPERIMENTS;

    fn help(arguments: &str) -> String {
        let words = std::iter::once("towpath").chain(arguments.split_whitespace());
        crate::parsed(words.map(Into::into).collect()).map(|_| String::new()).unwrap_err().to_string()
    }

    #[test]
    fn help_of_an_experiment_has_its_options_alone() {
        for arguments in ["bench queues --help", "bench --runs 3 --help queues", "bench --help queues"] {
            let text = help(arguments);
            for words in
                ["towpath bench queues [OPTIONS]", "--participants", "--copies", "crossfire", "mpmc\n"]
            {
                assert!(text.contains(words), "{arguments}: {words} is missing from {text}");
            }
            for words in ["--writers", "--critical-section", "--waiting", "dashmap", "towpath bench ladder"] {
                assert!(!text.contains(words), "{arguments}: {words} is in {text}");
            }
        }
        let all = help("bench --help");
        for words in ["--writers", "--waiting", "dashmap", "towpath bench ladder", "Reading the results"] {
            assert!(all.contains(words), "{words} is missing from {all}");
        }
        // The value of an option is no experiment.
        assert!(help("bench --algorithms mpmc --structure stack --help").contains("--writers"));
    }

    #[test]
    fn every_experiment_has_a_help() {
        for experiment in EXPERIMENTS {
            let text = help(&format!("bench {} --help", experiment.name()));
            assert!(text.contains("--runs") && text.contains("Exit codes"), "{text}");
        }
    }

    #[test]
    fn wrong_algorithm_is_answered_with_those_of_the_experiment() {
        let error = help("bench queues --algorithms ticket");
        assert!(error.contains("crossfire") && !error.contains("dashmap"), "{error}");
    }
}
