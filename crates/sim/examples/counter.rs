//! Throw-away: the counter of N Figure 3.
use towpath_machine::{Arena, FetchOp, Ordering, Place, Processor};
use towpath_sim::{Simulation, machines};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let work: u64 = args[1].parse().unwrap();
    let fetch = args[2] == "f";
    let total: u64 = args[3].parse().unwrap();
    let mut origin = machines::by_name("origin2000").unwrap();
    for set in &args[4..] {
        origin.set_from_text(set).unwrap();
    }
    for procs in [1usize, 2, 4, 8, 16, 32, 64, 256, 1024] {
        if procs > origin.processors as usize {
            break;
        }
        let start = std::time::Instant::now();
        let mut s = Simulation::new(&origin, procs, 1);
        let place = if fetch { Place::AtMemory(0) } else { Place::Home(0) };
        let counter = s.arena().word(place, 0);
        let each = total / procs as u64;
        s.spawn_all(move |cpu| {
            for _ in 0..each {
                if work > 0 {
                    let w = cpu.random().around(work * 1000, 0.2);
                    cpu.compute(w);
                }
                if fetch {
                    cpu.fetch_increment(&counter);
                } else {
                    cpu.fetch_add(&counter, 1, Ordering::Relaxed);
                }
            }
        });
        let o = s.run().unwrap();
        let n = (each * procs as u64) as f64;
        let c = &o.counters;
        let el = start.elapsed().as_secs_f64();
        println!(
            "{procs:5} {:8.0} ns/op  fails {:.2} inval {:.2} recv {:.2} interv {:.2} misses {:.2} refus {:.2} | {:.1} Mev/s {:.1} Macc/s",
            o.time as f64 / 1000.0 / n,
            c.failed_conditionals as f64 / n,
            c.invalidations as f64 / n,
            c.invalidations_received as f64 / n,
            c.interventions as f64 / n,
            c.all_misses() as f64 / n,
            c.refusals as f64 / n,
            o.events as f64 / el / 1e6,
            c.accesses as f64 / el / 1e6
        );
    }
}
