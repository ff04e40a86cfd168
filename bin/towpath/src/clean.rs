//! `towpath clean`: removes what belongs to dead worlds, and nothing that is alive.

use std::process::ExitCode;

use clap::Args;
use towpath_shm::{Error, named_files, shown};

use crate::output::{remark, say};
use crate::{Failure, Outcome};

#[derive(Debug, Args)]
#[command(
    after_help = "What has the name of a world and is none (another user's file, a link, a file that does not begin like a world) is named on standard error, and stays.
So are MPICH's own files in /dev/shm (TOWPATH_MPICH_DIR: in another directory) that no process is seen to use, with the command that removes them.

Exit code: 0 if no dead world is left behind (any more), 1 if something could not be removed."
)]
pub struct Arguments {
    /// Only say what would be removed.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(arguments: &Arguments) -> Outcome {
    let mut failed = false;
    let mut removed = 0;
    // The first failure to say something: what is dead is removed all the same.
    let mut said = Ok(());
    let found = named_files().map_err(Failure::new)?;
    for other in &found.others {
        remark!("towpath: {} stays: {}", shown(&other.path), other.why);
    }
    for world in found.worlds.into_iter().filter(|w| !w.alive) {
        let size = crate::doctor::size(world.bytes);
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

/// Names the files of MPICH's own that no process is seen to map. Returns whether there
/// are any.
fn mpichs() -> bool {
    let files = crate::mpich::files().unwrap_or_else(|failure| {
        remark!("towpath: {}", failure.message);
        Vec::new()
    });
    let mut any = false;
    for file in files {
        let Some(remedy) = file.remedy() else { continue };
        let (path, size, users) = (shown(&file.path), crate::doctor::size(file.bytes), file.users());
        remark!(
            "towpath: {path} stays: it is MPICH's own ({size}, {users}); if no MPI program runs: {remedy}"
        );
        any = true;
    }
    any
}
