//! Who is compared.

use crate::experiment::Settings;
use crate::transport::Contender;

/// The contenders that these settings ask for: our claim algorithms under each waiting policy, then the peers.
pub fn contenders(settings: &Settings) -> Vec<Box<dyn Contender>> {
    let _ = settings;
    Vec::new()
}
