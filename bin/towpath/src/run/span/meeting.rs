//! Meeting of launchers: waits for other hosts in threads, and for signals meanwhile.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::CommandFailure;
use crate::run::children;
use crate::run::signals::{Signals, is_ending};
use crate::run::supervisor::{Heard, Parent};

use super::failed;

/// End of the waiting, other than by news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// The launcher was told to end.
    Signal(Signal),
    /// The command was killed.
    CommandDied,
}

impl From<Interruption> for CommandFailure {
    fn from(interruption: Interruption) -> CommandFailure {
        // Nothing has been started that there would be to tell about.
        let code = match interruption {
            Interruption::Signal(signal) => 128 + signal.as_raw() as u8,
            Interruption::CommandDied => 1,
        };
        CommandFailure { message: String::new(), code }
    }
}

/// Place where threads leave news of type `T`.
pub struct HostMeeting<'a, T> {
    signals: &'a Signals,
    parent: &'a Parent,
    event: Arc<OwnedFd>,
    news: Receiver<T>,
    sender: Sender<T>,
}

/// End of a thread that leaves news.
pub struct Messenger<T> {
    event: Arc<OwnedFd>,
    sender: Sender<T>,
}

impl<T> Clone for Messenger<T> {
    fn clone(&self) -> Self {
        Messenger { event: self.event.clone(), sender: self.sender.clone() }
    }
}

impl<T> Messenger<T> {
    pub fn send(&self, news: T) {
        // A meeting that is over needs no news.
        if self.sender.send(news).is_ok() {
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

/// News of a meeting, or an end of a child.
pub enum MeetingNews<T> {
    Left(T),
    ChildEnded(u32),
}

impl<'a, T: Send + 'static> HostMeeting<'a, T> {
    pub fn new(parent: &'a Parent, signals: &'a Signals) -> Result<Self, CommandFailure> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| failed(io::Error::from(error)))?;
        let (sender, news) = channel();
        Ok(HostMeeting { signals, parent, event: Arc::new(event), news, sender })
    }

    pub fn messenger(&self) -> Messenger<T> {
        Messenger { event: self.event.clone(), sender: self.sender.clone() }
    }

    /// Starts a thread that may leave news.
    pub fn start(&self, work: impl FnOnce(Messenger<T>) + Send + 'static) -> Result<(), CommandFailure> {
        let messenger = self.messenger();
        let thread = std::thread::Builder::new().name("towpath-meeting".into());
        thread
            .spawn(move || work(messenger))
            .map(|_| ())
            .map_err(|error| failed(format!("starting a thread: {error} (raise `ulimit -u`)")))
    }

    /// Waits for news, or for the end of a child, which is not waited for here.
    pub fn wait(&self) -> Result<MeetingNews<T>, Interruption> {
        loop {
            if let Ok(news) = self.news.try_recv() {
                return Ok(MeetingNews::Left(news));
            }
            if let Some(pid) = children::ended_child() {
                return Ok(MeetingNews::ChildEnded(pid));
            }
            let mut sources = [
                PollFd::new(self.signals, PollFlags::IN),
                PollFd::new(self.parent, PollFlags::IN),
                PollFd::new(&*self.event, PollFlags::IN),
            ];
            // A child that ends is a signal, too. Now and then without one: to be sure.
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            match poll(&mut sources, Some(&second)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return Err(Interruption::CommandDied),
            }
            let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
            while let Some(received) = self.signals.next() {
                if is_ending(received.signal) {
                    return Err(Interruption::Signal(received.signal));
                }
            }
            while let Some(heard) = self.parent.next() {
                match heard {
                    Heard::Signal(signal) if is_ending(signal) => return Err(Interruption::Signal(signal)),
                    Heard::Signal(_) => {}
                    Heard::Death => return Err(Interruption::CommandDied),
                }
            }
        }
    }
}
