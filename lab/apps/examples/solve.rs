//! Solves one problem natively and prints the result: `cargo run --release -p
//! towpath-apps --example solve -- APPLICATION SIZE PROCESSORS [LOCK [SEED]]`.

use towpath_apps::native::{PartNames, TeamSurroundings, parts, problem, run, waiting};
use towpath_apps::{Application, ProblemChoice, Size};
use towpath_sync::Policy;

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |n: usize, default: &str| words.get(n).cloned().unwrap_or_else(|| default.into());
    let application = Application::from_name(&word(0, "lu")).ok_or("no such application")?;
    let size = Size::from_name(&word(1, "medium")).ok_or("no such size")?;
    let procs: usize = word(2, "2").parse().map_err(|_| "no such number of processors")?;
    let seed = word(4, "1").parse().map_err(|_| "no such seed")?;
    let problem = problem(ProblemChoice { application, size, seed, procs, pack: None });
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let around = TeamSurroundings::new(procs, cores);
    let names = PartNames { lock: &word(3, "mcs"), ..PartNames::default() };
    let parts = parts(names, problem.needs(), procs, waiting(Policy::Adaptive, &around))?;
    let ran = run(&*problem, procs, &parts, &|_| ())?;
    #[allow(clippy::print_stdout)]
    {
        println!("{}: {:?} on {procs}: {}", application.name(), ran.time, ran.verified.text);
    }
    if let Some(picture) = ran.verified.picture {
        let file = format!("{}.ppm", application.name());
        std::fs::write(&file, picture.to_ppm()).map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(())
}
