//! The contenders of a run: our claim algorithms, and the peers if they were asked for.

use towpath::Algorithm;

use crate::ours::Ours;
use crate::settings::BenchSettings;
use crate::transport::Contender;

/// The contenders that these settings ask for: our claim algorithms under each waiting
/// policy, then the peers. Names that no contender has are left out: the reader of a user's
/// settings checks them.
pub fn contenders(settings: &BenchSettings) -> Vec<Box<dyn Contender>> {
    let mut list: Vec<Box<dyn Contender>> = Vec::new();
    for policy in settings.policies() {
        for algorithm in Algorithm::ALL {
            if settings.asks_for(algorithm.name()) {
                list.push(Box::new(Ours::new(algorithm, policy)));
            }
        }
    }
    if settings.peers {
        list.extend(crate::peers::peers());
    }
    list
}
