//! Damage by kills.

use crate::experiment::Samples;
use towpath_report::record::metrics::{
    DUPLICATED, HUNG, INCONSISTENT, KILLS, LEAKED_SLOTS, LOST, RECOVERY_MS,
};

/// Damage by kills of users of one primitive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrimitiveDamage {
    /// Number of kills.
    pub kills: u64,
    /// Number of kills after which a participant did not get on.
    pub hung: u64,
    /// Number of values, messages or changes that are not there, and of untold deaths.
    pub lost: u64,
    /// Number of values that came twice without a receiver's death.
    pub duplicated: u64,
    /// Number of permits or buffers that did not come back.
    pub leaked: u64,
    /// Number of untold half changes, wrong contents, and errors without a death.
    pub inconsistent: u64,
    /// Time from each kill until every participant that does not depend on the dead one
    /// had ended some operations more, in milliseconds.
    pub recovery_ms: Vec<f64>,
}

impl PrimitiveDamage {
    /// Adds the damage by other kills.
    pub fn add(&mut self, other: PrimitiveDamage) {
        self.kills += other.kills;
        self.hung += other.hung;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.leaked += other.leaked;
        self.inconsistent += other.inconsistent;
        self.recovery_ms.extend(other.recovery_ms);
    }

    /// The figures.
    pub fn samples(&self) -> Samples {
        let mut samples = Samples::one(KILLS, self.kills as f64);
        let counts = [
            (HUNG, self.hung),
            (LOST, self.lost),
            (DUPLICATED, self.duplicated),
            (LEAKED_SLOTS, self.leaked),
            (INCONSISTENT, self.inconsistent),
        ];
        samples.values.extend(counts.map(|(metric, count)| (metric, count as f64)));
        samples.values.extend(self.recovery_ms.iter().map(|&ms| (RECOVERY_MS, ms)));
        samples
    }

    pub(super) fn has_damage(&self) -> bool {
        self.hung + self.lost + self.duplicated + self.leaked + self.inconsistent > 0
    }
}
