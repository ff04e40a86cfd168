//! The laboratory's settings for the arguments of `towpath bench`.

use std::time::Duration;

use towpath_apps::AnyApplication;
use towpath_host::Pin;
use towpath_lab::BenchSettings;
use towpath_lab::apps::AppSettings;
use towpath_lab::primitives::PrimitiveSettings;
use towpath_lab::primitives::copies::CopyScheduler;
use towpath_lab::settings::StructureSettings;
use towpath_lab::structures::{Sharing, Structure};

use super::{APPS, BenchArgs, KILLS, MPLOCKS, PRIMITIVES, RUNS_OF_MANY, STRUCTURES, deduplicated};

impl BenchArgs {
    /// The laboratory's settings for these arguments.
    pub(super) fn settings(&self) -> BenchSettings {
        let defaults = BenchSettings::default();
        let or = |given: &Vec<String>, default: Vec<String>| {
            if given.is_empty() { default } else { deduplicated(given) }
        };
        let of_structures = self.experiment.as_deref() == Some(STRUCTURES);
        let of_apps = self.experiment.as_deref() == Some(APPS);
        let of_mplocks = self.experiment.as_deref() == Some(MPLOCKS);
        let of_primitives = self.experiment.as_deref().is_some_and(|name| PRIMITIVES.contains(&name));
        let of_kills = self.experiment.as_deref() == Some(KILLS);
        let has_many = of_structures || of_mplocks || of_apps || of_primitives || of_kills;
        // Those that have many divide the kills among their rounds.
        let explicit = self.messages.is_some() || self.kills.is_some() && !has_many;
        BenchSettings {
            algorithms: or(&self.algorithms, defaults.algorithms),
            waiting: or(&self.waiting, defaults.waiting),
            writers: if self.writers.is_empty() { defaults.writers } else { deduplicated(&self.writers) },
            messages: self.messages.unwrap_or(defaults.messages),
            sizes: if self.sizes.is_empty() { defaults.sizes } else { deduplicated(&self.sizes) },
            runs: self.runs.unwrap_or(if has_many { RUNS_OF_MANY } else { defaults.runs }),
            pin: match (self.pin, self.no_pin) {
                (true, _) => Pin::Yes,
                (_, true) => Pin::No,
                _ => Pin::Auto,
            },
            peers: self.peers,
            mpis: or(&self.mpis, defaults.mpis),
            procs: if self.procs.is_empty() { defaults.procs } else { deduplicated(&self.procs) },
            kills: self.kills.unwrap_or(defaults.kills),
            structures: self.structures(),
            apps: self.apps(),
            primitives: self.primitives(),
            seed: self.seed.unwrap_or(defaults.seed),
            sample: if explicit { Duration::from_secs(3600) } else { defaults.sample },
            limit: None,
        }
    }

    fn apps(&self) -> AppSettings {
        let defaults = AppSettings::default();
        let (chosen, input) = (deduplicated(&self.app), self.input.unwrap_or(defaults.input));
        AppSettings {
            applications: match chosen.is_empty() {
                true if input.pack.is_some() => AnyApplication::all().filter(|a| a.takes_packs()).collect(),
                true => defaults.applications,
                false => chosen.iter().filter_map(|name| AnyApplication::from_name(name)).collect(),
            },
            input,
        }
    }

    fn primitives(&self) -> PrimitiveSettings {
        let defaults = PrimitiveSettings::default();
        let is_asked = |it: &Sharing| self.sharing.iter().any(|name| name == it.name());
        let is_chosen = |it: &CopyScheduler| self.scheduler.iter().any(|name| name == it.name());
        PrimitiveSettings {
            inside: self.critical_section.unwrap_or(defaults.inside),
            between: self.between.unwrap_or(defaults.between),
            sharing: match self.sharing.is_empty() {
                true => defaults.sharing,
                false => Sharing::ALL.into_iter().filter(is_asked).collect(),
            },
            sizes: deduplicated(&self.sizes),
            kills: self.kills,
            copies: deduplicated(&self.copies),
            schedulers: match self.scheduler.is_empty() {
                true => defaults.schedulers,
                false => CopyScheduler::ALL.into_iter().filter(is_chosen).collect(),
            },
            replay: None,
        }
    }

    fn structures(&self) -> StructureSettings {
        let defaults = StructureSettings::default();
        let chosen = deduplicated(&self.structure);
        StructureSettings {
            structures: match chosen.is_empty() {
                true => defaults.structures,
                false => chosen.iter().filter_map(|name| Structure::from_name(name)).collect(),
            },
            reads: if self.reads.is_empty() { defaults.reads } else { deduplicated(&self.reads) },
            stop: self.stop.unwrap_or(defaults.stop),
            kill_rate: self.kill.unwrap_or(defaults.kill_rate),
            kills: self.kills,
            pool: self.pool.unwrap_or(defaults.pool),
        }
    }
}
