//! Layout of a world's message area. All of it follows from a [`WorldConfig`], which
//! travels in the world's parameters and is checked by every process that joins.

use towpath_machine::{LINE, Native};
use towpath_shm::{OBJECT_BYTES, WorldSpec};
use towpath_sync::Policy;

use towpath_channel::answer_line::AnswerLine;
use towpath_channel::stream::{MAX_STREAMS, Stream};

use crate::claim::{Algorithm, Locks, MAX_CONTENDERS};
use crate::entry::Entry;
use crate::error::Error;
use crate::packet::{BlockHead, ENDPOINT_BITS, Extra, Slot};
use crate::queue::QueueControl;

/// Version of this layout: processes with different ones cannot share a world.
pub const LAYOUT: u64 = 8;

/// Number of blocks in each queue of a world of 64 processes.
const BLOCKS: u32 = 12;

/// Number of endpoints on each side, in a circle of all, with which an endpoint has an
/// answer line.
const NEIGHBOURS: u32 = 32;

/// Maximum number of endpoints in a world, and of its processes.
pub const MAX_ENDPOINTS: u32 = 1 << ENDPOINT_BITS;

/// Configuration of a world's message area: its layout and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldConfig {
    /// Number of processes that the world is for, 1 to 4,096.
    pub processes: u32,
    /// Number of endpoints that can exist at one time, 1 to 4,096.
    pub endpoints: u32,
    /// Packets in each queue: a power of two, 2 to 65,536.
    pub packets: u32,
    /// Blocks in each bulk queue, 1 to 255.
    pub blocks: u32,
    /// Bytes in a block: a multiple of 64, 64 to 1 MiB. The most that a medium message
    /// carries.
    pub block_size: u32,
    /// Bytes of each endpoint's segment in shared memory (0: none). Long transfers into
    /// it need only one copy.
    pub segment_bytes: u64,
    /// Bytes for all named shared objects together (`World::shared`,
    /// `towpath::structures::nonblocking`), at least 64 KiB.
    pub object_bytes: u64,
    /// Algorithm by which senders claim packets.
    pub algorithm: Algorithm,
    /// Policy by which all participants wait.
    pub waiting: Policy,
    /// Use of answer lines: endpoints that answer each other send short messages in a
    /// line of their own. An endpoint has one with each of 32 neighbours on each side. Only under
    /// [`Algorithm::Towpath`]; the other algorithms are those of the papers: queues alone.
    pub answer_lines: bool,
    /// Number of streams beside each endpoint's request queue, 0 to 32: a sender of many
    /// short requests takes one. Each is 8 KiB. Only under [`Algorithm::Towpath`].
    pub streams: u32,
}

impl WorldConfig {
    /// Makes the default for this many processes, one endpoint each.
    ///
    /// Up to 64 processes have 512 packets in each queue. Up to 8 have 64 blocks there, about 4 MiB
    /// a process: a line of a block has left the receiver's cache by the time that it is written
    /// again. More processes have smaller queues, at least 64 packets and 2 blocks: 64 processes
    /// take 64 MiB, 256 take 71 MiB, 1,024 take 168 MiB. Blocks are 32 KiB in every world, so that
    /// the same payloads fit.
    ///
    /// ```
    /// let config = towpath::WorldConfig { packets: 256, ..towpath::WorldConfig::new(4) };
    /// assert_eq!(config.endpoints, 4);
    /// ```
    pub fn new(processes: u32) -> Self {
        let share = |of_64: u32| of_64 * 64 / processes.max(64);
        WorldConfig {
            processes,
            endpoints: processes,
            packets: 1 << share(512).max(64).ilog2(),
            blocks: share(BLOCKS).max(2).max((512 / processes.max(1)).min(64)),
            block_size: 32_768,
            segment_bytes: 0,
            object_bytes: OBJECT_BYTES,
            algorithm: Algorithm::default(),
            waiting: Policy::default(),
            answer_lines: true,
            streams: 2 * share(8),
        }
    }

    /// Makes the default for this many processes in an area of at least this size: the
    /// rest beside the queues becomes the endpoints' segments.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if the queues alone are larger, with as few blocks as worlds of 64
    /// processes have.
    ///
    /// ```
    /// let config = towpath::WorldConfig::with_area(4, 64 << 20)?;
    /// assert!(config.segment_bytes > 0, "the queues leave room for segments");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn with_area(processes: u32, bytes: u64) -> Result<Self, Error> {
        WorldConfig::new(processes).with_blocks_for(bytes).in_area(bytes)
    }

    /// Reduces the blocks of each queue, to 12 at least, until so many bytes suffice.
    ///
    /// ```
    /// let config = towpath::WorldConfig::new(2);
    /// assert!(config.with_blocks_for(4 << 20).blocks < config.blocks);
    /// ```
    #[must_use]
    pub fn with_blocks_for(mut self, bytes: u64) -> Self {
        while self.blocks > BLOCKS && self.area_bytes() > bytes {
            self.blocks -= 1;
        }
        self
    }

    /// Fits this configuration into an area of at least so many bytes: the endpoints'
    /// segments get the bytes that the queues leave.
    ///
    /// # Errors
    ///
    /// As [`WorldConfig::with_area`] and [`WorldConfig::check`].
    ///
    /// ```
    /// let config = towpath::WorldConfig { packets: 256, ..towpath::WorldConfig::new(4) };
    /// assert!(config.in_area(64 << 20)?.segment_bytes > 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn in_area(self, bytes: u64) -> Result<Self, Error> {
        let mut config = WorldConfig { segment_bytes: 0, ..self };
        config.check()?;
        let queues = config.area_bytes();
        if bytes < queues {
            let processes = config.processes;
            return Err(Error::BadArgument(format!(
                "{bytes} bytes are too few for the queues of {processes} processes: at least {queues}"
            )));
        }
        config.segment_bytes = (bytes - queues) / u64::from(config.endpoints) / LINE as u64 * LINE as u64;
        Ok(config)
    }

    /// Checks every field.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`], naming the field and its limits.
    ///
    /// ```
    /// let config = towpath::WorldConfig { packets: 1000, ..towpath::WorldConfig::new(4) };
    /// let error = config.check().unwrap_err();
    /// assert!(error.to_string().contains("must be a power of two"));
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        let bad = |what: String| Err(Error::BadArgument(what));
        if !(1..=MAX_ENDPOINTS).contains(&self.processes) {
            return bad(format!("processes is {}: must be 1 to {MAX_ENDPOINTS}", self.processes));
        }
        if !(1..=MAX_ENDPOINTS).contains(&self.endpoints) {
            return bad(format!("endpoints is {}: must be 1 to {MAX_ENDPOINTS}", self.endpoints));
        }
        if self.algorithm == Algorithm::Mcs && self.endpoints > MAX_CONTENDERS as u32 {
            return bad(format!(
                "algorithm is mcs, which serves {MAX_CONTENDERS} endpoints, and there are {}: choose another algorithm (towpath run --algorithm)",
                self.endpoints
            ));
        }
        if !self.packets.is_power_of_two() || !(2..=65_536).contains(&self.packets) {
            return bad(format!("packets is {}: must be a power of two, 2 to 65536", self.packets));
        }
        if !(1..=255).contains(&self.blocks) {
            return bad(format!("blocks is {}: must be 1 to 255", self.blocks));
        }
        if self.streams > MAX_STREAMS {
            return bad(format!("streams is {}: must be 0 to {MAX_STREAMS}", self.streams));
        }
        if !self.block_size.is_multiple_of(LINE as u32) || !(64..=1 << 20).contains(&self.block_size) {
            return bad(format!(
                "block_size is {}: must be a multiple of 64, 64 to 1048576",
                self.block_size
            ));
        }
        if !self.segment_bytes.is_multiple_of(LINE as u64) || self.segment_bytes > 1 << 32 {
            return bad(format!(
                "segment_bytes is {}: must be a multiple of 64, at most 4 GiB",
                self.segment_bytes
            ));
        }
        Ok(())
    }

    /// Returns whether endpoints have answer lines: only under [`Algorithm::Towpath`].
    ///
    /// ```
    /// assert!(towpath::WorldConfig::new(2).has_answer_lines());
    /// ```
    pub fn has_answer_lines(&self) -> bool {
        self.answer_lines && self.algorithm == Algorithm::Towpath
    }

    /// Returns the number of bytes of a queue's blocks.
    pub(crate) fn bytes_of_blocks(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_size)
    }

    /// Returns the number of streams that each endpoint has.
    ///
    /// ```
    /// let config = towpath::WorldConfig::new(2);
    /// assert_eq!(config.streams_each(), config.streams);
    /// let of_a_paper = towpath::WorldConfig { algorithm: towpath::Algorithm::Ticket, ..config };
    /// assert_eq!(of_a_paper.streams_each(), 0);
    /// ```
    pub fn streams_each(&self) -> u32 {
        if self.algorithm == Algorithm::Towpath { self.streams } else { 0 }
    }

    /// Returns the size of the area, in bytes.
    ///
    /// ```
    /// println!("{} bytes", towpath::WorldConfig::new(4).area_bytes());
    /// ```
    pub fn area_bytes(&self) -> u64 {
        Layout::of(self).total
    }

    /// Returns the specification of such a world, for
    /// [`World::create`](towpath_shm::World::create).
    ///
    /// ```
    /// use towpath::{World, WorldConfig};
    ///
    /// let world = World::create(&WorldConfig::new(4).spec(None))?; // as towpath::create does
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn spec(&self, name: Option<&str>) -> WorldSpec {
        WorldSpec {
            name: name.map(str::to_owned),
            processes: self.processes,
            area_bytes: self.area_bytes(),
            object_bytes: self.object_bytes,
            params: self.params(),
        }
    }

    /// Returns the parameters that travel with the world.
    ///
    /// ```
    /// let config = towpath::WorldConfig::new(4);
    /// assert_eq!(towpath::WorldConfig::from_params(&config.params())?, config);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn params(&self) -> [u64; 16] {
        let mut p = [0; 16];
        p[0] = LAYOUT;
        p[1] = self.processes.into();
        p[2] = self.endpoints.into();
        p[3] = self.packets.into();
        p[4] = self.blocks.into();
        p[5] = self.block_size.into();
        p[6] = self.segment_bytes;
        p[7] = self.algorithm as u64;
        p[8] = Policy::ALL.iter().position(|(policy, _)| *policy == self.waiting).unwrap_or(0) as u64;
        p[9] = self.object_bytes;
        p[10] = self.answer_lines.into();
        p[11] = self.streams.into();
        p
    }

    /// Reads and checks a world's parameters ([`WorldConfig::params`]).
    ///
    /// # Errors
    ///
    /// [`Error::BadWorld`] if the world was made without a message area, if another layout version
    /// made them, or if they make no sense.
    ///
    /// ```
    /// let world = towpath::create(None, &towpath::WorldConfig::new(4))?;
    /// let config = towpath::WorldConfig::from_params(&world.params())?;
    /// assert_eq!(config.processes, 4);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn from_params(p: &[u64; 16]) -> Result<Self, Error> {
        if *p == [0; 16] {
            return Err(Error::BadWorld(
                "it has no message area: it was made by World::create; make it with towpath::create(name, &WorldConfig::new(processes)), or start its processes with `towpath run`".into(),
            ));
        }
        if p[0] != LAYOUT {
            return Err(Error::BadWorld(format!(
                "its message area has layout {}, this program knows {LAYOUT}; build both with the same version of Towpath",
                p[0]
            )));
        }
        let small = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
        let config = WorldConfig {
            processes: small(p[1]),
            endpoints: small(p[2]),
            packets: small(p[3]),
            blocks: small(p[4]),
            block_size: small(p[5]),
            segment_bytes: p[6],
            object_bytes: p[9],
            algorithm: Algorithm::from_bits(p[7])
                .ok_or_else(|| Error::BadWorld(format!("unknown claim algorithm {}", p[7])))?,
            waiting: Policy::ALL
                .get(small(p[8]) as usize)
                .map(|(policy, _)| *policy)
                .ok_or_else(|| Error::BadWorld(format!("unknown waiting policy {}", p[8])))?,
            answer_lines: p[10] != 0,
            streams: small(p[11]),
        };
        config.check().map_err(|e| Error::BadWorld(e.to_string()))?;
        Ok(config)
    }
}

/// Byte offsets in the area.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The directory of endpoints.
    pub directory: u64,
    /// The first endpoint's receive block.
    pub blocks_start: u64,
    /// Distance from one receive block to the next.
    pub stride: u64,
    /// Offset of a receive block's reply queue (the request queue is at 0).
    pub reply: u64,
    /// Offset of a receive block's streams.
    pub streams: u64,
    /// Offset of a receive block's segment.
    pub segment: u64,
    /// Offsets within a queue.
    pub queue: QueueLayout,
    /// The answer lines.
    pub lines: u64,
    /// The area's size.
    pub total: u64,
}

/// Byte offsets in a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueLayout {
    /// Its words ([`QueueControl`]).
    pub control: u64,
    /// Its locks ([`Locks`]).
    pub locks: u64,
    /// Its packets.
    pub slots: u64,
    /// Its extras: arguments and ranges that did not fit there.
    pub extras: u64,
    /// Its block heads.
    pub heads: u64,
    /// Its blocks' bytes.
    pub bytes: u64,
    /// Its size.
    pub total: u64,
}

impl Layout {
    /// Returns the layout of a checked configuration.
    pub fn of(config: &WorldConfig) -> Layout {
        let mut at = 0u64;
        let mut take = |bytes: usize, count: u64| {
            let start = at;
            at = (at + bytes as u64 * count).next_multiple_of(128);
            start
        };
        let queue = QueueLayout {
            control: take(size_of::<QueueControl<Native>>(), 1),
            locks: take(size_of::<Locks<Native>>(), 1),
            slots: take(size_of::<Slot<Native>>(), config.packets.into()),
            extras: take(size_of::<Extra<Native>>(), config.packets.into()),
            heads: take(size_of::<BlockHead<Native>>(), config.blocks.into()),
            bytes: take(config.block_size as usize, config.blocks.into()),
            total: 0,
        };
        let queue = QueueLayout { total: at.next_multiple_of(4096), ..queue };
        let directory_bytes =
            (size_of::<Entry<Native>>() as u64 * u64::from(config.endpoints)).next_multiple_of(4096);
        let streams_bytes = u64::from(config.streams_each()) * size_of::<Stream<Native>>() as u64;
        let segment = (2 * queue.total + streams_bytes).next_multiple_of(4096);
        let stride = (segment + config.segment_bytes).next_multiple_of(4096);
        Layout {
            directory: 0,
            blocks_start: directory_bytes,
            stride,
            reply: queue.total,
            streams: 2 * queue.total,
            segment,
            queue,
            lines: directory_bytes + stride * u64::from(config.endpoints),
            total: directory_bytes
                + stride * u64::from(config.endpoints)
                + (u64::from(neighbours(config) * config.endpoints) * size_of::<AnswerLine<Native>>() as u64)
                    .next_multiple_of(4096),
        }
    }

    /// Returns the offset of the line of two endpoints, if they have one.
    pub(crate) fn answer_line(&self, config: &WorldConfig, one: u16, other: u16) -> Option<u64> {
        let (low, high) = (u32::from(one.min(other)), u32::from(one.max(other)));
        let (n, most) = (config.endpoints, neighbours(config));
        if low == high || high >= n {
            return None;
        }
        let (up, down) = (high - low, n - (high - low));
        let index = match () {
            () if up <= most => low * most + up - 1,
            () if down <= most => high * most + down - 1,
            () => return None,
        };
        Some(self.lines + u64::from(index) * size_of::<AnswerLine<Native>>() as u64)
    }
}

/// Returns the number of endpoints above each one with which it has an answer line.
fn neighbours(config: &WorldConfig) -> u32 {
    if !config.has_answer_lines() {
        return 0;
    }
    (config.endpoints / 2).min(NEIGHBOURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeper_queues_of_few_take_less_than_those_of_64() {
        let bytes = |processes| WorldConfig::new(processes).area_bytes();
        for processes in 1..64 {
            assert!(bytes(processes) < bytes(64), "{processes}: {}", bytes(processes));
        }
    }

    #[test]
    fn queues_are_smaller_where_there_are_many() {
        let of = |n| (WorldConfig::new(n).packets, WorldConfig::new(n).blocks);
        let sizes = [
            (1, (512, 64)),
            (8, (512, 64)),
            (16, (512, 32)),
            (64, (512, 12)),
            (65, (256, 11)),
            (256, (128, 3)),
            (1024, (64, 2)),
        ];
        for (processes, queue) in sizes {
            assert_eq!(of(processes), queue, "{processes}");
        }
        for processes in 1..=MAX_ENDPOINTS {
            let config = WorldConfig::new(processes);
            config.check().unwrap();
            assert_eq!(config.block_size, 32_768);
            let most = if processes <= 512 { 100 << 20 } else { u64::from(processes) * 180_000 };
            assert!(config.area_bytes() <= most, "{processes}: {}", config.area_bytes());
        }
    }

    #[test]
    fn queues_of_a_small_area_have_fewer_blocks() {
        let in_area = |bytes| WorldConfig::with_area(2, bytes).ok().map(|config| config.blocks);
        let default = WorldConfig::new(2);
        assert_eq!(in_area(default.area_bytes()), Some(64));
        assert_eq!(in_area(default.area_bytes() - 1), Some(63));
        let least = WorldConfig { blocks: 12, ..default }.area_bytes();
        assert_eq!(in_area(least), Some(12));
        assert!(in_area(least - 1).is_none() && default.in_area(least).is_err());
    }

    #[test]
    fn mcs_is_refused_beyond_its_nodes() {
        let config = |endpoints| WorldConfig { algorithm: Algorithm::Mcs, ..WorldConfig::new(endpoints) };
        config(64).check().unwrap();
        assert!(config(65).check().unwrap_err().to_string().contains("--algorithm"));
    }

    #[test]
    fn parameters_survive_the_journey_and_nonsense_does_not() {
        for algorithm in Algorithm::ALL {
            for (waiting, _) in Policy::ALL {
                for (answer_lines, streams) in [(false, 0), (true, 7)] {
                    let config =
                        WorldConfig { algorithm, waiting, answer_lines, streams, ..WorldConfig::new(5) };
                    assert_eq!(WorldConfig::from_params(&config.params()).unwrap(), config);
                }
            }
        }
        for i in 0..9 {
            let mut p = WorldConfig::new(2).params();
            p[i] = u64::MAX;
            assert!(WorldConfig::from_params(&p).is_err(), "parameter {i}");
        }
    }
}
