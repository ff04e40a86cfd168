//! The primitives whose users are killed.

/// Primitive whose users are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KilledKind {
    /// `World::mutex`.
    Mutex,
    /// `World::rw_lock`.
    RwLock,
    /// `World::semaphore`.
    Semaphore,
    /// `World::condvar`.
    Condvar,
    /// `World::event`.
    Event,
    /// `World::once`.
    Once,
    /// `World::barrier_of`.
    Barrier,
    /// `World::spsc`.
    Spsc,
    /// `World::mpsc`.
    Mpsc,
    /// `World::mpmc`.
    Mpmc,
    /// `World::per_sender`.
    PerSender,
    /// `World::broadcast`.
    Broadcast,
    /// `World::pool`.
    Pool,
}

impl KilledKind {
    /// All of them, in the order in which tables show them.
    pub const ALL: [KilledKind; 13] = [
        KilledKind::Mutex,
        KilledKind::RwLock,
        KilledKind::Semaphore,
        KilledKind::Condvar,
        KilledKind::Event,
        KilledKind::Once,
        KilledKind::Barrier,
        KilledKind::Spsc,
        KilledKind::Mpsc,
        KilledKind::Mpmc,
        KilledKind::PerSender,
        KilledKind::Broadcast,
        KilledKind::Pool,
    ];

    /// Name in the records.
    pub const fn name(self) -> &'static str {
        match self {
            KilledKind::Mutex => "mutex",
            KilledKind::RwLock => "rw-lock",
            KilledKind::Semaphore => "semaphore",
            KilledKind::Condvar => "condvar",
            KilledKind::Event => "event",
            KilledKind::Once => "once",
            KilledKind::Barrier => "robust-barrier",
            KilledKind::Spsc => "spsc",
            KilledKind::Mpsc => "mpsc",
            KilledKind::Mpmc => "mpmc",
            KilledKind::PerSender => "per-sender",
            KilledKind::Broadcast => "broadcast",
            KilledKind::Pool => "pool",
        }
    }

    /// The experiment that measures its speed, if one does.
    pub const fn experiment(self) -> Option<&'static str> {
        match self {
            KilledKind::Mutex => Some("locks"),
            KilledKind::RwLock => Some("rw-locks"),
            KilledKind::Semaphore | KilledKind::Condvar | KilledKind::Event | KilledKind::Once => None,
            KilledKind::Barrier => Some("barriers"),
            KilledKind::Spsc | KilledKind::Mpsc | KilledKind::Mpmc | KilledKind::PerSender => Some("queues"),
            KilledKind::Broadcast => Some("broadcast"),
            KilledKind::Pool => Some("pool"),
        }
    }

    /// Returns whether so many participants can use it.
    pub const fn is_for(self, procs: u32) -> bool {
        match self {
            KilledKind::Spsc => procs == 2,
            KilledKind::Pool => procs > 2,
            _ => procs > 1,
        }
    }
}
