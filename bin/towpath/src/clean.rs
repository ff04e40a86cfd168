//! `towpath clean`: removes the files of dead worlds and of unused locks.

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

pub fn run(arguments: &Arguments) -> Outcome {
    let mut failed = false;
    let mut removed = 0;
    // The first failure to write a line. Dead worlds are removed all the same.
    let mut said = Ok(());
    let found = named_files().map_err(CommandFailure::new)?;
    for other in &found.others {
        remark!("towpath: {} stays: {}", shown(&other.path), other.why);
    }
    for world in found.worlds.into_iter().filter(|w| !w.alive) {
        let size = shown_size(world.bytes);
        let path = shown(&world.path);
        if arguments.dry_run {
            said = said.and_then(|()| say!("would remove {path} ({size})"));
            removed += 1;
            continue;
        }
        match world.remove() {
            Ok(true) => {
                said = said.and_then(|()| say!("removed {path} ({size})"));
                removed += 1;
            }
            // Gone, or alive again, since it was listed.
            Ok(false) | Err(Error::NameTaken { .. }) => {}
            Err(e) => {
                remark!("towpath: {path} could not be removed: {e}");
                failed = true;
            }
        }
    }
    let (locks, strange) = towpath_lockfile::survey(None).map_err(CommandFailure::new)?;
    for file in &strange {
        remark!("towpath: {} stays: {}", shown(&file.path), file.error);
    }
    for lock in locks.into_iter().filter(LockInfo::is_unused) {
        let size = shown_size(lock.bytes);
        let path = shown(&lock.path);
        if arguments.dry_run {
            said = said.and_then(|()| say!("would remove {path} ({size})"));
            removed += 1;
            continue;
        }
        match lock.remove() {
            Ok(true) => {
                said = said.and_then(|()| say!("removed {path} ({size})"));
                removed += 1;
            }
            Ok(false) => {}
            Err(e) => {
                remark!("towpath: {path} could not be removed: {e}");
                failed = true;
            }
        }
    }
    for path in towpath_agent::dead_agents().map_err(CommandFailure::new)? {
        let shown = shown(&path);
        if arguments.dry_run {
            said = said.and_then(|()| say!("would remove {shown} (0 B)"));
            removed += 1;
            continue;
        }
        match towpath_agent::remove_dead_agent(&path) {
            Ok(true) => {
                said = said.and_then(|()| say!("removed {shown} (0 B)"));
                removed += 1;
            }
            Ok(false) => {}
            Err(e) => {
                remark!("towpath: {shown} could not be removed: {e}");
                failed = true;
            }
        }
    }
    #[cfg(feature = "lab")]
    for folder in towpath_lab::left_folders().map_err(CommandFailure::new)? {
        let path = shown(folder.path());
        if arguments.dry_run {
            said = said.and_then(|()| say!("would remove {path}"));
            removed += 1;
            continue;
        }
        match folder.remove() {
            Ok(()) => {
                said = said.and_then(|()| say!("removed {path}"));
                removed += 1;
            }
            Err(e) => {
                remark!("towpath: {path} could not be removed: {e}");
                failed = true;
            }
        }
    }
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
