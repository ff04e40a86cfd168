//! Joins the world for which it was started, and says which rank it is: where there is
//! none, the runtime prints the error that `main` returns.

use towpath_shm::{Error, World};

fn main() -> Result<(), Error> {
    let world = World::join()?;
    println!("rank {} of {}", world.rank(), world.size());
    Ok(())
}
