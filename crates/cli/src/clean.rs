//! `towpath clean`: removes what belongs to dead worlds, and nothing that is alive.

use std::process::ExitCode;

use clap::Args;
use towpath_shm::{Error, named_files, shown};

use crate::output::{remark, say};
use crate::{Failure, Outcome};

#[derive(Debug, Args)]
#[command(
    after_help = "What has the name of a world and is none (another user's file, a link, a file that does not begin like a world) is named on standard error, and stays.

Exit code: 0 if nothing is left behind (any more), 1 if something could not be removed."
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
    if removed == 0 && !failed {
        said = say!("nothing is left behind");
    }
    said?;
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
