//! The trait of every experiment, on whatever machine it runs.

use crate::report::Section;
use crate::results::Results;

/// An experiment: one file, and one line in the list of its crate.
///
/// It hands its tables and plots to the report. The code that measures its points is a trait of the
/// machine on which they run: `Measure` on this machine, `Simulate` on simulated ones.
pub trait Experiment: Sync {
    /// Its name, as users and records call it.
    fn name(&self) -> &'static str;
    /// Its subject, in one sentence.
    fn about(&self) -> &'static str;
    /// The algorithms that can be chosen for it.
    fn algorithms(&self) -> Vec<&'static str>;
    /// Tables and plots of its records. The first section stands under the experiment's
    /// heading.
    fn sections(&self, results: &Results) -> Vec<Section>;
    /// The plot that says most about it, with a short table of the plot's numbers.
    fn picture(&self, _results: &Results) -> Option<Section> {
        None
    }
}
