//! Variables of the environment by which a launcher speaks to the processes of a world.

/// The rank of this process.
pub const RANK: &str = "TOWPATH_RANK";
/// The number of ranks.
pub const SIZE: &str = "TOWPATH_SIZE";
/// The name of the world, if it has one.
pub const WORLD: &str = "TOWPATH_WORLD";
/// The inherited descriptor of an anonymous world.
pub const WORLD_FD: &str = "TOWPATH_WORLD_FD";
/// The device and inode of the world's file, as `DEVICE:INODE`: a descriptor or a
/// name that leads to another file is refused.
pub const WORLD_INODE: &str = "TOWPATH_WORLD_INODE";
/// The abstract Unix socket where the launcher hands out the descriptor.
pub const WORLD_SOCKET: &str = "TOWPATH_WORLD_SOCKET";
/// Another directory for named worlds than /dev/shm. A relative path is understood
/// from the directory in which the process is when it first uses a named world; launchers hand
/// an absolute one to their children.
pub const DIRECTORY: &str = "TOWPATH_SHM_DIR";
