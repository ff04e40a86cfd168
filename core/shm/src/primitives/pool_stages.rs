//! Stages, through which buffers of a pool are sent.

use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;
use towpath_sync::Deadline;
use towpath_sync::queues::{Leasing, Mpmc, TransferError, Unsent, ValueReceiver, ValueSender, Venue};

use super::pool::{BufferLease, BufferNumber, PoolBuffer, WorldPool};
use super::queues::{WorldQueue, WorldVenue};
use crate::Error;

impl WorldPool {
    /// Opens the stage of that name, through which buffers of this pool are sent.
    ///
    /// Makes it with room for at least so many if there is none.
    ///
    /// # Errors
    ///
    /// As [`World::mpmc`](crate::World::mpmc).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let sender = frames.stage("decoded", 4)?.sender()?;
    /// sender.send(frames.take()?)?;
    /// let receiver = frames.stage("decoded", 4)?.receiver()?;
    /// assert_eq!(receiver.receive()?.len(), 1 << 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stage(&self, name: &str, capacity: usize) -> Result<PoolStage, Error> {
        let queue = self.world().queue::<BufferNumber, Mpmc>(name, capacity, |_| ())?;
        Ok(PoolStage { pool: self.clone(), queue })
    }
}

/// Stage of a pipeline: buffers of a pool that were sent and wait for a receiver.
#[derive(OpaqueDebug)]
pub struct PoolStage {
    pool: WorldPool,
    queue: WorldQueue<BufferNumber, Mpmc>,
}

impl PoolStage {
    /// Makes a sender. When the last one is dropped, or dies, receivers learn of it.
    ///
    /// # Errors
    ///
    /// As [`WorldQueue::sender`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let decoded = frames.stage("decoded", 4)?;
    /// let (sender, receiver) = (decoded.sender()?, decoded.receiver()?);
    /// drop(sender);
    /// assert!(receiver.receive().is_err(), "the last sender has gone");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sender(&self) -> Result<PoolSender, TransferError> {
        Ok(PoolSender { pool: self.pool.clone(), venue: self.queue.venue(), joined: self.queue.sender()? })
    }

    /// Makes a receiver. When the last one is dropped, or dies, senders learn of it.
    ///
    /// # Errors
    ///
    /// As [`WorldQueue::sender`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// assert!(frames.stage("decoded", 4)?.receiver()?.try_receive().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receiver(&self) -> Result<PoolReceiver, TransferError> {
        Ok(PoolReceiver {
            pool: self.pool.clone(),
            venue: self.queue.venue(),
            joined: self.queue.receiver()?,
        })
    }
}

/// Sender of buffers into a stage.
#[derive(OpaqueDebug, Clone)]
pub struct PoolSender {
    pool: WorldPool,
    venue: WorldVenue<BufferNumber, Mpmc>,
    joined: ValueSender<BufferNumber, WorldVenue<BufferNumber, Mpmc>>,
}

impl PoolSender {
    /// Sends a buffer, when there is room.
    ///
    /// # Errors
    ///
    /// [`Unsent`], with the buffer: as [`ValueSender::send`]; [`TransferError::Apart`] for a buffer
    /// of another pool.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let decoded = frames.stage("decoded", 4)?;
    /// decoded.sender()?.send(frames.take()?)?;
    /// assert_eq!(decoded.receiver()?.receive()?.len(), 1 << 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send(&self, buffer: PoolBuffer) -> Result<(), Unsent<PoolBuffer>> {
        self.send_before(buffer, Deadline::NEVER)
    }

    /// Sends a buffer if there is room; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`PoolSender::send`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 5, 1 << 12)?;
    /// let sender = frames.stage("decoded", 4)?.sender()?;
    /// while sender.try_send(frames.take()?).is_ok() {}
    /// assert_eq!(frames.free(), 1); // the one that comes back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_send(&self, buffer: PoolBuffer) -> Result<(), Unsent<PoolBuffer>> {
        self.send_before(buffer, Deadline::PAST)
    }

    /// Sends a buffer; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`PoolSender::send`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let frames = world.pool("frames", 5, 1 << 12)?;
    /// let decoded = frames.stage("decoded", 4)?;
    /// let (sender, _receiver) = (decoded.sender()?, decoded.receiver()?);
    /// for _ in 0..4 {
    ///     sender.send(frames.take()?)?;
    /// }
    /// let late = sender.send_timeout(frames.take()?, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(late.value.len(), 1 << 12); // the buffer comes back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_timeout(&self, buffer: PoolBuffer, time: Duration) -> Result<(), Unsent<PoolBuffer>> {
        self.send_before(buffer, Deadline::within(time))
    }

    /// Sends a buffer; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`PoolSender::send_timeout`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let decoded = frames.stage("decoded", 4)?;
    /// decoded.sender()?.send_until(frames.take()?, Instant::now() + Duration::from_secs(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_until(&self, buffer: PoolBuffer, instant: Instant) -> Result<(), Unsent<PoolBuffer>> {
        self.send_before(buffer, Deadline::at(instant))
    }

    fn send_before(&self, mut buffer: PoolBuffer, deadline: Deadline) -> Result<(), Unsent<PoolBuffer>> {
        let sent = self.venue.call(|queue, cpu, wait| {
            if buffer.pool.object.as_ptr() != self.pool.object.as_ptr() {
                return Err(TransferError::Apart);
            }
            let value = BufferNumber { pool: self.pool.tag(), number: buffer.number as u32 };
            buffer.move_into(cpu, wait, &Mpmc::leasing(queue), &value, deadline)
        });
        sent.map_err(|error| Unsent { sent: 0, value: buffer, error })
    }

    /// Closes the stage: senders are refused, receivers get the buffers sent before.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let sender = frames.stage("decoded", 4)?.sender()?;
    /// sender.close();
    /// assert!(sender.send(frames.take()?).is_err()); // the error has the buffer
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.joined.close();
    }
}

/// Receiver of buffers from a stage.
#[derive(OpaqueDebug, Clone)]
pub struct PoolReceiver {
    pool: WorldPool,
    venue: WorldVenue<BufferNumber, Mpmc>,
    joined: ValueReceiver<BufferNumber, WorldVenue<BufferNumber, Mpmc>>,
}

impl PoolReceiver {
    /// Receives the oldest buffer, when there is one.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive`]; [`TransferError::Damaged`] for a number that no owner of a
    /// buffer sent, which is gone then.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let decoded = frames.stage("decoded", 4)?;
    /// decoded.sender()?.send(frames.take()?)?;
    /// let frame = decoded.receiver()?.receive()?;
    /// assert_eq!(frame.len(), 1 << 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receive(&self) -> Result<PoolBuffer, TransferError> {
        self.receive_before(Deadline::NEVER)
    }

    /// Receives the oldest buffer if there is one; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`PoolReceiver::receive`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// assert!(frames.stage("decoded", 4)?.receiver()?.try_receive().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_receive(&self) -> Result<PoolBuffer, TransferError> {
        self.receive_before(Deadline::PAST)
    }

    /// Receives the oldest buffer; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`PoolReceiver::try_receive`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let receiver = frames.stage("decoded", 4)?.receiver()?;
    /// assert!(receiver.receive_timeout(Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receive_timeout(&self, time: Duration) -> Result<PoolBuffer, TransferError> {
        self.receive_before(Deadline::within(time))
    }

    /// Receives the oldest buffer; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`PoolReceiver::try_receive`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let frames = world.pool("frames", 4, 1 << 12)?;
    /// let receiver = frames.stage("decoded", 4)?.receiver()?;
    /// assert!(receiver.receive_until(Instant::now() + Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receive_until(&self, instant: Instant) -> Result<PoolBuffer, TransferError> {
        self.receive_before(Deadline::at(instant))
    }

    fn receive_before(&self, deadline: Deadline) -> Result<PoolBuffer, TransferError> {
        let (number, leased) = self.venue.call(|queue, cpu, wait| {
            let queue = Mpmc::leasing(queue);
            let (value, leased) = queue.receive_leased::<BufferNumber, _>(cpu, wait, deadline)?;
            let is_ours = value.pool == self.pool.tag();
            let Some(number) = is_ours.then_some(value.number).and_then(|n| self.pool.claim(wait, n)) else {
                queue.complete(cpu, wait, leased);
                return Err(TransferError::Damaged);
            };
            Ok((number, leased))
        })?;
        let lease = BufferLease::Received(leased, self.venue.clone());
        Ok(PoolBuffer { pool: self.pool.clone(), number, lease: Some(lease) })
    }

    /// Closes the stage: senders are refused, receivers get the buffers sent before.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let receiver = world.pool("frames", 4, 1 << 12)?.stage("decoded", 4)?.receiver()?;
    /// receiver.close();
    /// assert!(receiver.receive().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.joined.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::world_of_two;

    const BYTES: usize = 100;

    /// All buffers can be taken, each once.
    fn is_whole(pool: &WorldPool) {
        let mut all: Vec<PoolBuffer> = std::iter::from_fn(|| pool.try_take().ok()).collect();
        assert_eq!(all.len(), pool.count());
        all.iter_mut().enumerate().for_each(|(i, buffer)| buffer.fill(i as u8));
        for (i, buffer) in all.iter().enumerate() {
            assert!(buffer.len() == pool.buffer_bytes() && buffer.iter().all(|&byte| byte == i as u8));
        }
        drop(all);
        assert_eq!(pool.free(), pool.count());
    }

    #[test]
    fn buffers_move_where_they_lie_and_come_back() {
        let world = world_of_two();
        let pool = world.pool("p", 3, BYTES).unwrap();
        is_whole(&pool);
        let [first, second] = ["s", "t"].map(|name| pool.stage(name, 2).unwrap());
        let (to_first, to_second) = (first.sender().unwrap(), second.sender().unwrap());
        let (first, second) = (first.receiver().unwrap(), second.receiver().unwrap());
        for n in 0..100u8 {
            let mut buffer = pool.take().unwrap();
            let at = buffer.as_ptr();
            buffer.fill(n);
            to_first.send(buffer).unwrap();
            let mut buffer = first.receive().unwrap();
            buffer.values_mut::<u16>()[7] += 1;
            to_second.send(buffer).unwrap();
            let buffer = second.receive().unwrap();
            assert_eq!((buffer.as_ptr(), buffer.values::<u16>().len()), (at, BYTES / 2), "copied");
            assert_eq!(buffer.values::<u16>()[7], u16::from_ne_bytes([n, n]) + 1);
        }
        is_whole(&pool);
    }

    #[test]
    fn a_buffer_that_is_not_sent_stays() {
        let world = world_of_two();
        let pool = world.pool("p", 40, BYTES).unwrap();
        let stage = pool.stage("s", 1).unwrap();
        let (sender, receiver) = (stage.sender().unwrap(), stage.receiver().unwrap());
        let mut number = 0;
        let unsent = loop {
            let mut buffer = pool.take().unwrap();
            buffer.fill(number);
            match sender.send_timeout(buffer, Duration::from_millis(1)) {
                Ok(()) => number += 1,
                Err(unsent) => break unsent,
            }
        };
        assert_eq!(unsent.error, TransferError::TimedOut);
        assert_eq!(unsent.value[BYTES - 1], number);
        for expected in 0..number {
            assert_eq!(receiver.receive().unwrap()[0], expected);
        }
        sender.send(unsent.value).unwrap();
        assert_eq!(receiver.receive().unwrap()[0], number);
        let other = world.pool("other", 1, BYTES).unwrap();
        assert_eq!(sender.send(other.take().unwrap()).unwrap_err().error, TransferError::Apart);
        sender.close();
        assert_eq!(sender.send(pool.take().unwrap()).unwrap_err().error, TransferError::Closed);
        is_whole(&pool);
        is_whole(&other);
        assert!(matches!(world.mpmc::<[u32; 2]>("s", 1), Err(Error::OtherType { .. })));
        assert_eq!(world.pool("p", 5, 7).unwrap().count(), 40, "one that is there keeps its size");
    }

    #[test]
    fn forged_and_stale_numbers_are_refused() {
        let world = world_of_two();
        let pool = world.pool("p", 2, BYTES).unwrap();
        let stage = pool.stage("s", 8).unwrap();
        let (forger, receiver) = (stage.queue.sender().unwrap(), stage.receiver().unwrap());
        let held = pool.take().unwrap();
        let tag = pool.tag();
        for (pool, number) in [(tag, 2), (tag, u32::MAX), (tag + 1, 0), (tag, held.number as u32)] {
            forger.send(BufferNumber { pool, number }).unwrap();
            let refused = receiver.try_receive().err();
            assert_eq!(refused, Some(TransferError::Damaged), "{pool} {number}");
        }
        drop(held);
        is_whole(&pool);
        // One that is free has no owner that could object, and gets none twice.
        forger.send(BufferNumber { pool: tag, number: 0 }).unwrap();
        let forged = receiver.receive().unwrap();
        let others: Vec<_> = (0..2).map(|_| pool.try_take()).collect();
        assert_eq!(others.iter().filter(|taken| taken.is_ok()).count(), 1);
        drop((forged, others));
        is_whole(&pool);
    }
}
