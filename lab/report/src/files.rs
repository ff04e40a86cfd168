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

/// Makes the folder of a report if need be, and tries whether its files can be written.
///
/// For the beginning of a run, whose figures are lost if they can't be written. Files that are
/// there stay as they are.
///
/// # Errors
///
/// As [`write()`].
pub fn prepare(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(failed(folder))?;
    for name in ["results.jsonl", "index.html"] {
        let path = folder.join(name);
        let is_new = !path.exists();
        fs::OpenOptions::new().append(true).create(true).open(&path).map_err(failed(&path))?;
        if is_new {
            // A file that stays is written over at the end.
            let _ = fs::remove_file(&path);
        }
    }
    Ok(())
}

/// Returns a function by which an error of the system names the path.
fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let place = towpath_shm::shown(path);
    let what = format!("writing the report to {place} (choose another folder with --report)");
    move |source| Error::system(what, source)
}

/// Writes records and a page, as `results.jsonl` and `index.html`.
///
/// # Errors
///
/// As [`write()`].
pub fn write_files(folder: &Path, records: &str, page: &str) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(failed(folder))?;
    for (name, text) in [("results.jsonl", records), ("index.html", page)] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(failed(&path))?;
    }
    Ok(())
}
