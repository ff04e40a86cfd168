//! `towpath clean`: removes the files of dead worlds and of unused locks.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use towpath_lockfile::LockInfo;
use towpath_shm::{Error, named_files, shown, shown_size};

use crate::output::{remark, say};
use crate::{CommandFailure, Outcome};

#[derive(Debug, Args)]
#[command(
    about = "Remove leftovers of dead worlds and locks",
    long_about = "Removes the shared-memory files of dead worlds: named worlds (`towpath run --world NAME`) none of whose processes is alive. A world in which a process lives stays untouched. Locks of `towpath lock` that no living process uses go, too: the next holder is then not told that the last one died. So do sockets of dead agents (`towpath lock --serve`), and folders of killed runs of `towpath bench mplocks`.",
    after_help = "Examples:
  towpath clean --dry-run    which files would go
  towpath clean              remove them

A file that has a world's name and is none (another user's file, a link, a file that does not begin like a world) stays and is named on standard error. MPICH's own files in /dev/shm (in $TOWPATH_MPICH_DIR, if that is set) that no process is seen to use stay too; the command that removes them is printed.

Exit codes: 0 no dead world is left behind (any more); 1 a file could not be removed."
)]
pub struct Arguments {
    /// Name the files that would be removed, and remove none
    #[arg(long)]
    dry_run: bool,
}

/// Removal of leftovers, and its outcome so far.
struct Cleaning {
    dry_run: bool,
    removed: usize,
    failed: bool,
    /// The first failure to write a line. Leftovers are removed all the same.
    said: Result<(), CommandFailure>,
}

impl Cleaning {
    /// Removes a leftover, or only names it. `remove` returns whether it removed one.
    fn take<E: Display>(&mut self, path: &Path, size: &str, remove: impl FnOnce() -> Result<bool, E>) {
        let path = shown(path);
        let done = match self.dry_run {
            true => "would remove",
            false => match remove() {
                Ok(true) => "removed",
                // Gone, or used again, since it was listed.
                Ok(false) => return,
                Err(e) => {
                    remark!("towpath: {path} could not be removed: {e}");
                    self.failed = true;
                    return;
                }
            },
        };
        self.removed += 1;
        if self.said.is_ok() {
            self.said = say!("{done} {path}{size}");
        }
    }
}

fn in_brackets(bytes: u64) -> String {
    format!(" ({})", shown_size(bytes))
}

pub fn run(arguments: &Arguments) -> Outcome {
    let mut cleaning = Cleaning { dry_run: arguments.dry_run, removed: 0, failed: false, said: Ok(()) };
    let found = named_files().map_err(CommandFailure::new)?;
    for other in &found.others {
        remark!("towpath: {} stays: {}", shown(&other.path), other.why);
    }
    for world in found.worlds.into_iter().filter(|w| !w.alive) {
        cleaning.take(&world.path, &in_brackets(world.bytes), || match world.remove() {
            Err(Error::NameTaken { .. }) => Ok(false),
            other => other,
        });
    }
    let (locks, strange) = towpath_lockfile::survey(None).map_err(CommandFailure::new)?;
    for file in &strange {
        remark!("towpath: {} stays: {}", shown(&file.path), file.error);
    }
    for lock in locks.into_iter().filter(LockInfo::is_unused) {
        cleaning.take(&lock.path, &in_brackets(lock.bytes), || lock.remove());
    }
    for path in towpath_agent::dead_agents().map_err(CommandFailure::new)? {
        cleaning.take(&path, &in_brackets(0), || towpath_agent::remove_dead_agent(&path));
    }
    #[cfg(feature = "lab")]
    for folder in towpath_lab::left_folders().map_err(CommandFailure::new)? {
        let path = folder.path().to_owned();
        cleaning.take(&path, "", || folder.remove().map(|()| true));
    }
    let Cleaning { removed, failed, mut said, .. } = cleaning;
    let mpichs = mpichs();
    if removed == 0 && !failed {
        said = if mpichs {
            say!("no dead world has left anything behind")
        } else {
            say!("nothing is left behind")
        };
    }
    said?;
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Names the files of MPICH's own that no process is seen to map.
///
/// Returns whether there are any.
fn mpichs() -> bool {
    let files = crate::mpich::files().unwrap_or_else(|failure| {
        remark!("towpath: {}", failure.message);
        Vec::new()
    });
    let mut any = false;
    for file in files {
        let Some(remedy) = file.remedy() else { continue };
        let (path, size, users) = (shown(&file.path), shown_size(file.bytes), file.users());
        remark!(
            "towpath: {path} stays: it is MPICH's own ({size}, {users}); if no MPI program runs: {remedy}"
        );
        any = true;
    }
    any
}
