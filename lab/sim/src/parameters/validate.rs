//! Validation: the values of parameters that fit together.

use super::{
    BLOCKING, BUS, DIRECTORY, LLP_SCP, MOESI, NACK, NO_ADVISORY, NO_COHERENCE, NO_COUNTS, NO_DCAS,
    NO_MESSAGES, NO_ROLL_BACK, ParameterError, Parameters, SWITCHES, Unit, WRITE_ONCE, write_time,
};
use crate::event_queue::Time;

const MICROSECOND: Time = 1_000_000;
const SECOND: Time = 1_000_000_000_000;
const DAY: Time = 86_400 * SECOND;
/// Maximum number of cache lines that sets are kept of, of all processors: 256 MiB.
const LINES: u64 = 1 << 26;

impl Parameters {
    /// Checks that the values fit together.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Inconsistent`], naming what doesn't.
    pub fn check(&self) -> Result<(), ParameterError> {
        let bad = |text: String| Err(ParameterError::Inconsistent(text));
        if !(1..=1024).contains(&self.processors) {
            return bad(format!("`processor.count` is 1 to 1024, not {}", self.processors));
        }
        if !(1..=64).contains(&self.per_node) {
            return bad(format!("`processor.per_node` is 1 to 64, not {}", self.per_node));
        }
        if !self.line.is_power_of_two() || !(16..=1024).contains(&self.line) {
            return bad(format!("`cache.line` is a power of two from 16 to 1024, not {}", self.line));
        }
        // Every access takes time, so that a program that only waits cannot stop the clock.
        for (name, value) in [
            ("processor.load", self.load),
            ("processor.store", self.store),
            ("processor.rmw", self.rmw),
            ("processor.load_linked", self.linked),
            ("processor.store_conditional", self.conditional),
            ("processor.spin", self.spin),
        ] {
            if value == 0 {
                return bad(format!("`{name}` takes time: it can't be 0"));
            }
        }
        for parameter in self.describe().iter().filter(|p| p.unit == Unit::Time) {
            let most = if parameter.name.starts_with("os.") { DAY } else { SECOND };
            if parameter.number > most {
                let (name, most) = (parameter.name, write_time(most));
                return bad(format!("`{name}` is at most {most}, not {}", parameter.value));
            }
        }
        self.check_cache()?;
        self.check_store_buffer()?;
        if self.fabric == BUS && self.protocol == MOESI {
            if !(1..=1024).contains(&self.banks) {
                return bad(format!("`memory.banks` is 1 to 1024, not {}", self.banks));
            }
            for (name, value, least, needed) in [
                ("bus.upgrade", self.bus_upgrade, "bus.snoop", self.bus_snoop),
                ("bus.memory", self.bus_memory, "bus.snoop", self.bus_snoop),
                ("bus.cache_to_cache", self.bus_transfer, "bus.snoop", self.bus_snoop),
                ("bus.memory", self.bus_memory, "bus.data", self.bus_data),
                ("bus.cache_to_cache", self.bus_transfer, "bus.data", self.bus_data),
            ] {
                if value < needed {
                    return bad(format!("`{name}` can't be shorter than `{least}`, which is a part of it"));
                }
            }
        } else if self.fabric == BUS {
            // A bus that is held: transactions may take as long as they like.
        } else if self.fabric == NO_COHERENCE {
            if self.memory_latency == 0 {
                return bad("`memory.latency` takes time: it can't be 0".into());
            }
            if self.window > 100 * MICROSECOND {
                return bad(format!("`memory.window` is at most 100us, not {}", write_time(self.window)));
            }
        } else {
            if self.retry < 1000 && self.busy == NACK && self.directory_protocol != BLOCKING {
                return bad("`directory.retry` is at least 1ns: a refused request would come back in the same instant for ever".into());
            }
            if self.fetch_entries > 1024 {
                return bad(format!("`fetch_op.entries` is at most 1024, not {}", self.fetch_entries));
            }
        }
        self.check_capabilities()?;
        self.check_blocking()?;
        self.check_system()
    }

    /// Checks that the machine can have its special capabilities.
    fn check_capabilities(&self) -> Result<(), ParameterError> {
        let bad = |text: &str| Err(ParameterError::Inconsistent(text.into()));
        let is_held = self.fabric == BUS && self.protocol == WRITE_ONCE;
        if self.dcas != NO_DCAS && !is_held {
            return bad(
                "`processor.dcas` needs a bus that a processor can hold for two lines: set `fabric` to \"bus\" and `bus.protocol` to \"write-once\", or leave it \"none\"",
            );
        }
        if self.dcas == LLP_SCP && self.cache_size != 0 && self.ways < 2 {
            return bad(
                "`processor.dcas` by LLP and SCP keeps two lines in the cache, which may be of one set: `cache.ways` is at least 2",
            );
        }
        if self.advisory != NO_ADVISORY && self.fabric == NO_COHERENCE {
            return bad(
                "`processor.advisory` is a bit of the lines of coherent caches: set `fabric` to \"bus\" or \"directory\", or leave it \"none\"",
            );
        }
        let by_system = [
            ("os.active_counts", self.active_counts != NO_COUNTS),
            ("os.roll_back", self.roll_back != NO_ROLL_BACK),
        ];
        if let Some((key, _)) = by_system.iter().find(|(_, asked)| *asked && !is_held) {
            return bad(&format!(
                "`{key}` needs a bus that the system can hold for an update: set `fabric` to \"bus\" and `bus.protocol` to \"write-once\", or leave it \"no\""
            ));
        }
        Ok(())
    }

    /// Checks the parts that only machines with blocking homes have.
    fn check_blocking(&self) -> Result<(), ParameterError> {
        let bad = |text: &str| Err(ParameterError::Inconsistent(text.into()));
        let is_blocking = self.fabric == DIRECTORY && self.directory_protocol == BLOCKING;
        if self.messages != NO_MESSAGES && !is_blocking {
            return bad(
                "`message.handler` needs a network that carries messages: set `fabric` to \"directory\" and `directory.protocol` to \"blocking\", or leave it \"none\"",
            );
        }
        let has_switches = self.fabric == DIRECTORY && self.topology == SWITCHES;
        if is_blocking != has_switches {
            return bad(
                "`directory.protocol` \"blocking\" and `network.topology` \"switches\" go together: set both or none",
            );
        }
        if !is_blocking {
            return Ok(());
        }
        if self.per_node != 1 {
            return bad("`processor.per_node` is 1 where `directory.protocol` is \"blocking\"");
        }
        if self.one_switch == 0 || self.nodes_per_switch == 0 {
            return bad("`network.one_switch` and `network.nodes_per_switch` are at least 1");
        }
        if self.messages != NO_MESSAGES && self.message_poll == 0 {
            return bad("`message.poll` takes time: it can't be 0");
        }
        Ok(())
    }

    fn check_cache(&self) -> Result<(), ParameterError> {
        if self.cache_size == 0 {
            return Ok(());
        }
        let bad = |text: String| Err(ParameterError::Inconsistent(text));
        if !(1..=64).contains(&self.ways) {
            return bad(format!("`cache.ways` is 1 to 64, not {}", self.ways));
        }
        let lines = self.cache_size / self.line;
        if lines * self.processors > LINES {
            let text = "`cache.size` is too much to keep account of, for so many processors: use a smaller one or \"infinite\"";
            return bad(text.into());
        }
        let sets = lines / self.ways;
        if !sets.is_power_of_two() || sets * self.ways * self.line != self.cache_size {
            return bad(
                "`cache.size` must be `cache.ways` times a power of two of lines (`cache.line`)".into()
            );
        }
        Ok(())
    }

    fn check_store_buffer(&self) -> Result<(), ParameterError> {
        let bad = |text: String| Err(ParameterError::Inconsistent(text));
        if self.has("forwarding") && !(1..=16).contains(&self.misses) {
            return bad(format!("`processor.misses` is 1 to 16, not {}", self.misses));
        }
        if self.store_buffer > 0 && !self.has("forwarding") && !self.has("moesi") {
            return bad("`processor.store_buffer` is for a split bus and for homes that forward".into());
        }
        Ok(())
    }

    fn check_system(&self) -> Result<(), ParameterError> {
        let bad = |text: &str| Err(ParameterError::Inconsistent(text.into()));
        if self.quantum < MICROSECOND || self.quantum <= self.switch {
            return bad("`os.quantum` is at least 1us, and longer than `os.switch`");
        }
        if self.interrupt_every != 0 && self.interrupt_every < MICROSECOND {
            return bad("`os.interrupt_every` is 0 (none) or at least 1us");
        }
        if self.interrupt_cost > self.interrupt_every / 10 * 9 {
            return bad("`os.interrupt_cost` can't be more than nine tenths of `os.interrupt_every`");
        }
        Ok(())
    }
}
