//! Thresholds, all in one place. Each can be set in the environment.

use core::str::FromStr;

/// Settings of an endpoint. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `TOWPATH_EAGER`: longer messages wait for their receive (rendezvous).
    pub eager: usize,
    /// `TOWPATH_UNEXPECTED`: eager bytes of one sender that one receiver holds before it
    /// has posted receives for them. Beyond that the sender keeps its messages.
    pub unexpected: u64,
    /// `TOWPATH_RING_AFTER`: number of messages that earn a pair a ring.
    pub ring_after: u32,
    /// `TOWPATH_RINGS`: number of senders that may have a ring at one receiver.
    pub rings: usize,
    /// `TOWPATH_CMA`: from how many bytes on a message is copied directly out of the
    /// sender's memory, where that is permitted; 0: never. Not set: as is measured
    /// ([`CopyModes`](crate::device::tune::copy_mode::CopyModes)).
    pub direct: Option<usize>,
    /// `TOWPATH_CMA_OVERSUBSCRIBED`: the same where there are more processes than cores.
    pub direct_oversubscribed: Option<usize>,
    /// `TOWPATH_PAST_CACHES`: from how many bytes on a piece of a message is written past
    /// the caches (non-temporal stores), 0: never. Not set: as is measured
    /// ([`StoreModes`](towpath_channel::store_mode::StoreModes)).
    pub past_caches: Option<usize>,
    /// `TOWPATH_SPIN`: how long a read of an empty completion queue looks on, in
    /// nanoseconds, once the program polls in a loop.
    pub spin: u64,
    /// `TOWPATH_YIELDS`: where there are more processes than cores, how many turns it
    /// gives to others before it sleeps.
    pub yields: u32,
    /// `TOWPATH_NAP`: how long it sleeps at most where there are more processes than
    /// cores, in nanoseconds.
    pub nap: u64,
    /// `TOWPATH_LOOK_TWICE`: the first peek for a message from any source finds nothing
    /// of other processes, so that an MPI with other ways to receive looks there first; 0: it does.
    pub look_twice: bool,
    /// `TOWPATH_OVERSUBSCRIBED`: waits as with more processes than cores (1) or as with a
    /// core each (0). Not set: as the processes and cores are found.
    pub oversubscribed: Option<u8>,
    /// `TOWPATH_LISTEN`: maximum time of a wait on a descriptor (`FI_WAIT_FD`), in
    /// nanoseconds: deaths are noticed that late.
    pub listen: u64,
}

/// Messages up to this length are never held back by their sender (`inject_size`).
pub const INJECT: usize = 256;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            eager: 64 << 10,
            unexpected: 4 << 20,
            ring_after: 4,
            rings: 64,
            direct: None,
            direct_oversubscribed: None,
            past_caches: None,
            spin: 5_000,
            yields: 8,
            nap: 1_000_000,
            look_twice: true,
            oversubscribed: None,
            listen: 20_000_000,
        }
    }
}

impl Settings {
    /// Reads the environment: the defaults, and the variables that are set.
    pub fn from_environment() -> Settings {
        Settings::default().changed_by(|name| std::env::var(name).ok())
    }

    fn changed_by(mut self, variable: impl Fn(&str) -> Option<String>) -> Settings {
        fn number<T: FromStr>(name: &str, text: Option<String>) -> Option<T> {
            let text = text?;
            let number = text.trim().parse().ok();
            if number.is_none() {
                crate::remark!("towpath: {name}={text} is not a number; going on without it");
            }
            number
        }
        fn set<T: FromStr>(field: &mut T, name: &str, text: Option<String>) {
            if let Some(value) = number(name, text) {
                *field = value;
            }
        }
        set(&mut self.eager, "TOWPATH_EAGER", variable("TOWPATH_EAGER"));
        set(&mut self.unexpected, "TOWPATH_UNEXPECTED", variable("TOWPATH_UNEXPECTED"));
        set(&mut self.ring_after, "TOWPATH_RING_AFTER", variable("TOWPATH_RING_AFTER"));
        set(&mut self.rings, "TOWPATH_RINGS", variable("TOWPATH_RINGS"));
        self.direct = number("TOWPATH_CMA", variable("TOWPATH_CMA")).or(self.direct);
        self.direct_oversubscribed =
            number("TOWPATH_CMA_OVERSUBSCRIBED", variable("TOWPATH_CMA_OVERSUBSCRIBED"))
                .or(self.direct_oversubscribed);
        self.past_caches =
            number("TOWPATH_PAST_CACHES", variable("TOWPATH_PAST_CACHES")).or(self.past_caches);
        set(&mut self.spin, "TOWPATH_SPIN", variable("TOWPATH_SPIN"));
        set(&mut self.yields, "TOWPATH_YIELDS", variable("TOWPATH_YIELDS"));
        set(&mut self.nap, "TOWPATH_NAP", variable("TOWPATH_NAP"));
        set(&mut self.listen, "TOWPATH_LISTEN", variable("TOWPATH_LISTEN"));
        let mut twice = u8::from(self.look_twice);
        set(&mut twice, "TOWPATH_LOOK_TWICE", variable("TOWPATH_LOOK_TWICE"));
        self.look_twice = twice != 0;
        let mut oversubscribed = u8::MAX;
        set(&mut oversubscribed, "TOWPATH_OVERSUBSCRIBED", variable("TOWPATH_OVERSUBSCRIBED"));
        if oversubscribed <= 1 {
            self.oversubscribed = Some(oversubscribed);
        }
        self.nap = self.nap.min(100_000_000);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_changes_what_it_names() {
        let settings = Settings::default().changed_by(|name| match name {
            "TOWPATH_EAGER" => Some(" 1000 ".into()),
            "TOWPATH_RINGS" => Some("many".into()),
            "TOWPATH_CMA" => Some("0".into()),
            "TOWPATH_CMA_OVERSUBSCRIBED" => Some("-1".into()),
            _ => None,
        });
        assert_eq!(settings, Settings { eager: 1000, direct: Some(0), ..Settings::default() });
    }
}
