//! The stage of one measurement: the folder of iceoryx2's files, its services, and the
//! common start and end of the processes.

use std::error::Error as AnyError;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use iceoryx2::prelude::*;
use iceoryx2::service::builder::publish_subscribe::{PublishSubscribeCreateError, PublishSubscribeOpenError};
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::{SharedPages, team};

/// Time to start and end when cores are few.
const GRACE: Duration = Duration::from_secs(30);
/// The folder of shared memory.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// The result of a process's step.
pub type Attempt<T = ()> = Result<T, Box<dyn AnyError>>;
/// A process's part in iceoryx2.
pub type Node = iceoryx2::node::Node<ipc::Service>;
type Builder<T> = iceoryx2::service::builder::publish_subscribe::Builder<T, (), ipc::Service>;
/// A topic.
pub type Service<T> = PortFactory<ipc::Service, T, ()>;

/// Wraps an error of iceoryx2: names the failed operation.
pub fn failed<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> Box<dyn AnyError> {
    move |error| format!("{what}: {error}").into()
}

/// The folder of one measurement's files. Dropping it removes them.
pub struct RunFolder {
    root: PathBuf,
    prefix: String,
}

impl RunFolder {
    /// A new folder.
    pub fn new() -> Result<RunFolder, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only has to give each caller another number.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // In the name because /dev/shm may be shared with another namespace, in which another
        // process has our number.
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let prefix = format!("{}{number}-{time:x}-", RunFolder::common_prefix());
        let root = std::env::temp_dir().join(&prefix);
        std::fs::create_dir(&root)
            .map_err(|e| Error::system(format!("making the folder {}", root.display()), e))?;
        Ok(RunFolder { root, prefix })
    }

    /// Common beginning of the names of all places of this process.
    pub fn common_prefix() -> String {
        format!("towpath-iceoryx2-{}-", std::process::id())
    }

    /// A node of the calling process, which finds only this place's services.
    pub fn node(&self) -> Attempt<Node> {
        let mut config = Config::default();
        let root = iceoryx2::prelude::Path::new(self.root.as_os_str().as_encoded_bytes()).map_err(|e| {
            format!("iceoryx2 takes no such folder as {}: {e:?}; set TMPDIR", self.root.display())
        })?;
        config.global.set_root_path(&root);
        config.global.prefix = FileName::new(self.prefix.as_bytes())
            .map_err(|e| format!("iceoryx2 takes no such prefix as {}: {e:?}", self.prefix))?;
        // Its second is too short when there are more processes than cores.
        config.global.creation_timeout = GRACE;
        // There are no other program's files here.
        config.global.node.cleanup_dead_nodes_on_creation = false;
        config.global.node.cleanup_dead_nodes_on_destruction = false;
        config.global.service.cleanup_dead_nodes_on_open = false;
        NodeBuilder::new()
            .config(&config)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()
            .map_err(failed("creating a node"))
    }

    /// The file in which a process says why it failed.
    fn complaint(&self) -> PathBuf {
        self.root.join("complaint")
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // Its processes have ended and left little or nothing; what they left because they were
        // killed has our prefix. Files that can't be removed are in the folders for such things.
        let _ = std::fs::remove_dir_all(&self.root);
        for entry in std::fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(self.prefix.as_bytes()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Words by which the processes of one measurement keep step.
pub struct Stage {
    pages: SharedPages,
    procs: usize,
}

/// Process 0 has created the services.
pub const CREATED: usize = 0;
/// Number of processes that have their ports.
const READY: usize = 1;
/// The measurement may begin.
pub const GO: usize = 2;
/// Process 0 has received everything; ports may go.
pub const DONE: usize = 3;
/// A process has failed.
const FAILED: usize = 4;
/// First word of the results.
pub const RESULT: usize = 5;

impl Stage {
    /// Stage for so many processes, and so many words of results from [`RESULT`] on.
    pub fn new(procs: usize, results: usize) -> Result<Stage, Error> {
        Ok(Stage { pages: SharedPages::new(RESULT + results)?, procs })
    }

    /// Writes a word.
    pub fn set(&self, word: usize, value: u64) {
        // (I1) Release: publishes the earlier writes; pairs with the Acquire (I2) in `get`.
        self.pages.word(word).store(value, Ordering::Release);
    }

    /// Reads a word.
    pub fn get(&self, word: usize) -> u64 {
        // (I2) Acquire: pairs with the Release (I1) in `set` and (I3) in `enter`.
        self.pages.word(word).load(Ordering::Acquire)
    }

    /// An error if another process has failed: then waiting for it can't end.
    pub fn check(&self) -> Attempt {
        if self.get(FAILED) == 0 { Ok(()) } else { Err("another process failed".into()) }
    }

    /// Returns when a word has reached a value.
    pub fn wait_for(&self, word: usize, value: u64, pause: impl Fn()) -> Attempt {
        while self.get(word) < value {
            self.check()?;
            pause();
        }
        Ok(())
    }

    /// The ports of this process are there. Returns when all may begin; process 0 calls
    /// `prepare` before it lets them.
    pub fn enter(&self, rank: usize, prepare: impl FnOnce() -> Attempt) -> Attempt {
        // (I3) Release: the ports come first; pairs with the Acquire (I2) in `get`.
        self.pages.word(READY).fetch_add(1, Ordering::Release);
        if rank > 0 {
            return self.wait_for(GO, 1, std::thread::yield_now);
        }
        self.wait_for(READY, self.procs as u64, std::thread::yield_now)?;
        prepare()?;
        self.set(GO, 1);
        Ok(())
    }

    /// Returns when process 0 has received everything: until then ports must stay.
    /// Sleeps, as others may need the core.
    pub fn leave(&self) -> Attempt {
        self.wait_for(DONE, 1, || std::thread::sleep(Duration::from_millis(1)))
    }

    /// Opens a service; process 0 creates it. (How, the caller says: iceoryx2 has it for
    /// types and slices, but not for both at once.)
    pub fn service<T: IceoryxSend + Debug + ?Sized>(
        &self,
        (node, rank): (&Node, usize),
        name: &str,
        places: usize,
        create: impl FnOnce(Builder<T>) -> Result<Service<T>, PublishSubscribeCreateError>,
        open: impl FnOnce(Builder<T>) -> Result<Service<T>, PublishSubscribeOpenError>,
    ) -> Attempt<Service<T>> {
        let name = ServiceName::new(name).map_err(failed("naming a service"))?;
        let builder = node
            .service_builder(&name)
            .publish_subscribe::<T>()
            .enable_safe_overflow(false)
            .history_size(0)
            .subscriber_max_buffer_size(places)
            .subscriber_max_borrowed_samples(1)
            .max_subscribers(1)
            .max_publishers(self.procs)
            .max_nodes(self.procs);
        if rank == 0 {
            return create(builder).map_err(failed("creating a service (is there room in /dev/shm?)"));
        }
        self.wait_for(CREATED, 1, std::thread::yield_now)?;
        open(builder).map_err(failed("opening a service"))
    }

    /// A service for short messages.
    pub fn short(&self, node: (&Node, usize), name: &str, places: usize) -> Attempt<Service<u64>> {
        self.service::<u64>(node, name, places, |b| b.create(), |b| b.open())
    }

    /// Runs `play(node, rank)` in each of the processes.
    pub fn perform(
        &self,
        run: &Circumstances<'_>,
        play: impl Fn(&Node, usize) -> Attempt,
    ) -> Result<(), Error> {
        set_log_level(LogLevel::Fatal);
        let place = RunFolder::new()?;
        let cores: Vec<_> = (0..self.procs).map(|n| run.placement.core_for(n, self.procs)).collect();
        let ended = team(&cores, run.limit * 4 + GRACE, |rank| {
            let Err(error) = place.node().and_then(|node| play(&node, rank)) else { return 0 };
            // The first one is the cause; if it can't be written, the exit code remains.
            if self.get(FAILED) == 0 {
                let _ = std::fs::write(place.complaint(), format!("{error} (process {rank})"));
            }
            self.set(FAILED, 1);
            3
        });
        match (ended, std::fs::read_to_string(place.complaint())) {
            (Ok(_), _) => Ok(()),
            (Err(_), Ok(complaint)) => Err(Error::NotAvailable(complaint)),
            (Err(error), Err(_)) => Err(error),
        }
    }
}
