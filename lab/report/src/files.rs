//! The files into which a report is written.

use std::fs;
use std::path::Path;

use towpath_host::Error;

use crate::page::page;
use crate::report::Report;
use crate::results::Results;

/// Writes the report of these results into `folder`, which is made if need be.
///
/// # Errors
///
/// The system's, with the folder's name.
pub fn write(results: &Results, report: &Report, folder: &Path) -> Result<(), Error> {
    write_files(folder, &results.to_json_lines(), &page(results, report))
}

/// Writes records and a page, as `results.jsonl` and `index.html`.
///
/// # Errors
///
/// As [`write()`].
pub fn write_files(folder: &Path, records: &str, page: &str) -> Result<(), Error> {
    let failed = |path: &Path| {
        let what = format!(
            "writing the report to {} (choose another folder with --report)",
            towpath_shm::shown(path)
        );
        move |source| Error::system(what, source)
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    for (name, text) in [("results.jsonl", records), ("index.html", page)] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(failed(&path))?;
    }
    Ok(())
}
