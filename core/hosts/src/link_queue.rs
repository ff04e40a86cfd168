//! Queue of frames on their way into one link.
//!
//! The thread that has a frame sends it itself, as long as the link takes it without waiting. What
//! it does not take is left to the link's writer thread, so that neither the pump nor a reader ever
//! waits for a slow host. Frames go out in the order in which they were added.
//!
//! **Memory.** As many bytes as there are messages in the queues of the other host's proxies, at
//! most: a message stays there until it has been handled.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towpath_net::{FrameSender, LinkMonitor};

/// Frames for one link.
#[derive(Debug)]
pub struct LinkQueue {
    state: Mutex<LinkQueueState>,
    /// Held while frames are sent.
    sender: Mutex<FrameSender>,
    changed: Condvar,
    monitor: LinkMonitor,
}

#[derive(Debug, Default)]
struct LinkQueueState {
    frames: VecDeque<Vec<u8>>,
    /// True while the link takes nothing without waiting: the writer sends.
    is_blocked: bool,
    is_closed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is complete before anything can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LinkQueue {
    pub fn new(sender: FrameSender, monitor: LinkMonitor) -> LinkQueue {
        LinkQueue { state: Mutex::default(), sender: Mutex::new(sender), changed: Condvar::new(), monitor }
    }

    /// The link's monitor.
    pub fn monitor(&self) -> &LinkMonitor {
        &self.monitor
    }

    /// Adds a frame. [`LinkQueue::send`] sends it.
    pub fn add(&self, frame: Vec<u8>) {
        let mut state = lock(&self.state);
        if !state.is_closed {
            state.frames.push_back(frame);
        }
    }

    /// Sends frames as long as the link takes them, unless another thread does.
    pub fn send(&self) {
        // After each turn once more: another thread's frame may have come behind the last look.
        while self.has_frames()
            && let Ok(mut sender) = self.sender.try_lock()
        {
            while let Some(frame) = self.next_frame() {
                match sender.send_now(&frame) {
                    Ok(true) => {}
                    Ok(false) => self.set_blocked(true),
                    Err(_) => self.close(),
                }
            }
        }
    }

    fn has_frames(&self) -> bool {
        let state = lock(&self.state);
        !state.is_blocked && !state.frames.is_empty()
    }

    fn next_frame(&self) -> Option<Vec<u8>> {
        let mut state = lock(&self.state);
        if state.is_blocked { None } else { state.frames.pop_front() }
    }

    fn set_blocked(&self, is_blocked: bool) {
        lock(&self.state).is_blocked = is_blocked;
        self.changed.notify_all();
    }

    /// Sends for a slow host, until the queue is closed: as the writer thread.
    pub fn write_behind(&self) {
        loop {
            let mut state = lock(&self.state);
            while !state.is_blocked && !state.is_closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_closed {
                return;
            }
            drop(state);
            if lock(&self.sender).flush().is_err() {
                self.close();
            }
            self.set_blocked(false);
            self.send();
        }
    }

    /// Waits until all frames are sent, for at most so long, and ends the sending.
    pub fn drain(&self, within: Duration) {
        self.send();
        let until = Instant::now() + within;
        let mut state = lock(&self.state);
        while !state.is_closed && (state.is_blocked || !state.frames.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let wait = self.changed.wait_timeout(state, left.min(Duration::from_millis(10)));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_closed = state.is_closed;
        drop(state);
        if !is_closed && let Ok(mut sender) = self.sender.try_lock() {
            // A peer that is gone needs nothing.
            let _ = sender.finish(until.saturating_duration_since(Instant::now()));
        }
    }

    /// Closes the link, and drops the frames.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        *state = LinkQueueState { is_closed: true, ..LinkQueueState::default() };
        drop(state);
        self.monitor.close();
        self.changed.notify_all();
    }
}
