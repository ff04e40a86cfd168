//! Sample sort over an MPI's `MPI_Alltoallv`, by the measuring program in C.

use towpath_apps::messages::MessageInput;
use towpath_apps::messages::sample::{bytes, check_sorted, keys_of_all, words};
use towpath_host::Error;

use crate::measuring::Measuring;
use crate::transport::Circumstances;

/// Sorts the keys of `sample-bulk` with so many ranks. Returns how long it took, in
/// milliseconds, and how many keys are in order.
///
/// # Errors
///
/// The program fails, or the keys are not in order afterwards.
pub fn sort(
    program: &Measuring,
    input: MessageInput,
    procs: u32,
    run: &Circumstances<'_>,
) -> Result<(f64, String), Error> {
    let keys: Vec<u32> = keys_of_all(input, procs as usize).collect();
    let [unsorted, sorted] = ["keys", "sorted"].map(|name| program.folder().join(name));
    let failed = |e| Error::system("exchanging keys with the measuring program", e);
    std::fs::write(&unsorted, bytes(&keys)).map_err(failed)?;
    let [from, to] = [&unsorted, &sorted].map(|file| file.display().to_string());
    let text = program.run(run, procs, &["sample".into(), from, to], None)?;
    let got: Vec<u32> = words(&std::fs::read(&sorted).map_err(failed)?).collect();
    // No later run can take this one's keys for its own.
    std::fs::remove_file(&sorted).map_err(failed)?;
    let checked = format!("{} keys in order", keys.len());
    check_sorted(&got, keys).map_err(|e| Error::NotAvailable(format!("its program has {e}")))?;
    let figure = text.lines().find_map(|line| line.strip_prefix("solution_ms ")?.parse().ok());
    figure.map(|ms| (ms, checked)).ok_or_else(|| Error::NotAvailable("its program printed no figure".into()))
}
