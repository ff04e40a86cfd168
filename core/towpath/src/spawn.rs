//! Worlds whose processes the program starts itself.

use std::io;
use std::ops::Deref;
use std::process::{Child, Command};

use towpath_am::{Error, WorldConfig};
use towpath_shm::{Error as WorldError, Handover, World, variables};

/// World of a program that needs no launcher ([`join_or_spawn`]): dereferences to it.
///
/// In the process that started the others (rank 0) it owns them: dropped, it leaves the world and
/// waits for their ends.
#[derive(Debug)]
pub struct SpawnedWorld {
    /// `None` once it is being dropped.
    world: Option<World>,
    children: Vec<(u32, Child)>,
    /// Hands the world to the children.
    handover: Option<Handover>,
}

/// Joins the world for which `towpath run` started this process, or starts one.
///
/// A process that was not started so makes a world, enters it as rank 0, and starts this program,
/// with the same arguments, as each other rank.
///
/// Call it first in `main`: the other processes begin there, too.
///
/// # Errors
///
/// As [`create`](crate::create) and [`World::join`]; the system's.
///
/// ```no_run
/// use towpath::WorldConfig;
///
/// let world = towpath::join_or_spawn(&WorldConfig::new(4))?;
/// println!("rank {} of {}", world.rank(), world.size());
/// # Ok::<(), towpath::Error>(())
/// ```
pub fn join_or_spawn(config: &WorldConfig) -> Result<SpawnedWorld, Error> {
    if std::env::var_os(variables::RANK).is_some() {
        let world = World::join()?;
        return Ok(SpawnedWorld { world: Some(world), children: Vec::new(), handover: None });
    }
    let world = crate::create(None, config)?;
    world.enter(Some(0))?;
    let handover = Handover::new(&world)?;
    let failed = |source| WorldError::System { what: "starting this program as another rank", source };
    let program = std::env::current_exe().map_err(failed)?;
    let mut spawned = SpawnedWorld { world: Some(world), children: Vec::new(), handover: None };
    for rank in 1..config.processes {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
        handover.prepare(&mut command, rank);
        match command.spawn() {
            Ok(child) => spawned.children.push((rank, child)),
            Err(error) => {
                // Those that were started would wait for the rest.
                for (_, child) in &mut spawned.children {
                    let _ = child.kill();
                }
                return Err(failed(error).into());
            }
        }
    }
    spawned.handover = Some(handover);
    Ok(spawned)
}

impl SpawnedWorld {
    /// Leaves the world and waits for the ends of the processes that this one started.
    ///
    /// # Errors
    ///
    /// The first of them that failed, with its exit status.
    ///
    /// ```no_run
    /// let world = towpath::join_or_spawn(&towpath::WorldConfig::new(4))?;
    /// world.wait()?; // in rank 0; does nothing in the others
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(mut self) -> io::Result<()> {
        self.wait_for_children()
    }

    fn wait_for_children(&mut self) -> io::Result<()> {
        // First, so that none waits for this rank any more.
        self.world = None;
        let mut result = Ok(());
        for (rank, mut child) in self.children.drain(..) {
            let ended = child.wait().and_then(|status| match status.success() {
                true => Ok(()),
                false => Err(io::Error::other(format!("rank {rank} failed: {status}"))),
            });
            result = result.and(ended);
        }
        self.handover = None;
        result
    }
}

impl Deref for SpawnedWorld {
    type Target = World;
    fn deref(&self) -> &World {
        self.world.as_ref().expect("there until it is dropped")
    }
}

impl Drop for SpawnedWorld {
    fn drop(&mut self) {
        // Their own messages say why they failed.
        let _ = self.wait_for_children();
    }
}
