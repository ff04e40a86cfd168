//! Our own rung of the ladder: the device that carries MPI programs over Towpath (`fabric/src/engine/`), as they use it: tagged messages, matched by source and tag, short, eager and rendezvous.
//!
//! # Safety
//!
//! The one `unsafe` operation gives the device a caller's buffer; every call here returns only when that is done with.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use towpath_fi::engine::address::{ADDRESS_BYTES, Address};
use towpath_fi::engine::buffers::Buffer;
use towpath_fi::engine::completion::{Class, Completion, CompletionQueue, Ticket};
use towpath_fi::engine::endpoint::{Core, Endpoint, Message0, Refusal};
use towpath_fi::engine::receive::Receive;
use towpath_fi::engine::settings::Settings;
use towpath_sync::Wait;

use super::native::{Anything, Link};
use crate::process::SharedPages;

/// Words of an address.
pub const ADDRESS_WORDS: usize = ADDRESS_BYTES / 8;
/// Polls in vain before it makes room for others: with a core to itself, and where cores are shared, about as long as it takes to switch to another process and back.
const POLLS: [u32; 2] = [4096, 256];

/// A process's device.
pub struct Ours<'a> {
    endpoint: RefCell<Endpoint>,
    sent: Rc<CompletionQueue>,
    received: Rc<CompletionQueue>,
    partner: u32,
    wait: Wait<'a>,
}

impl<'a> Ours<'a> {
    /// Opens it, and leaves its address for the others.
    pub fn open(rank: usize, addresses: &SharedPages, wait: Wait<'a>) -> Result<Self, Anything> {
        let mut endpoint = Endpoint::open(Settings::default())?;
        let (sent, received) = (Rc::default(), Rc::default());
        endpoint.core.reports.transmit = Some(Rc::clone(&sent));
        endpoint.core.reports.receive = Some(Rc::clone(&received));
        for (n, word) in endpoint.port.address.to_words().into_iter().enumerate() {
            // Relaxed: a barrier comes before anybody reads it.
            addresses.word(rank * ADDRESS_WORDS + n).store(word, Ordering::Relaxed);
        }
        Ok(Ours { endpoint: RefCell::new(endpoint), sent, received, partner: 0, wait })
    }

    /// Takes the partner's address, which it has left.
    pub fn meet(mut self, partner: usize, addresses: &SharedPages) -> Result<Self, Anything> {
        // Relaxed: as above.
        let word = |n| addresses.word(partner * ADDRESS_WORDS + n).load(Ordering::Relaxed);
        let address =
            Address::from_words(std::array::from_fn(word)).ok_or("the partner has left no address")?;
        let core = &mut self.endpoint.get_mut().core;
        self.partner = core.peer(address);
        core.crowded = self.wait.around.oversubscribed();
        Ok(self)
    }

    /// Makes progress until there is a report in the queue, and takes it.
    fn report(&self, queue: &CompletionQueue) -> Result<Completion, Anything> {
        let mut polls = 0;
        loop {
            if let Some(report) = queue.pop() {
                return Ok(report);
            }
            if let Some(failed) = queue.pop_error() {
                return Err(format!("the device reports error {}", failed.error).into());
            }
            let mut endpoint = self.endpoint.borrow_mut();
            if endpoint.progress() > 0 {
                polls = 0;
                continue;
            }
            polls += 1;
            // Then it yields and sleeps as the device does under an MPI.
            let Settings { yields, nap, .. } = endpoint.core.settings;
            let most = POLLS[usize::from(endpoint.core.crowded)];
            if polls > most && polls <= most + yields {
                endpoint.core.crowded = self.wait.around.oversubscribed();
                std::thread::yield_now();
            } else if polls > most && !endpoint.is_stuck() {
                endpoint.look_after();
                if let Some(rung) = endpoint.port.lie_down() {
                    endpoint.port.park(rung, nap);
                    endpoint.port.get_up();
                }
            }
        }
    }
}

fn buffer(at: *const u8, len: usize) -> Buffer {
    // SAFETY: the callers below keep the bytes borrowed (mutably, where they are written) until the completion.
    unsafe { Buffer::one(at as usize, len) }
}

impl Link for Ours<'_> {
    fn send(&self, _to: usize, tag: u64, data: &[u8]) -> Result<(), Anything> {
        let ticket = Ticket { context: 0, flags: 0, notify: true, class: Class::Send };
        let message = Message0 {
            peer: self.partner,
            tag: Some(tag),
            buffer: &buffer(data.as_ptr(), data.len()),
            data: None,
            ticket,
            inject: false,
            matched: false,
        };
        loop {
            let mut endpoint = self.endpoint.borrow_mut();
            match endpoint.core.send(&message) {
                Ok(()) => break,
                Err(Refusal::Again) => endpoint.progress(),
                Err(other) => return Err(format!("the device refuses to send: {other:?}").into()),
            };
        }
        self.report(&self.sent)?;
        Ok(())
    }

    fn receive(&self, _from: usize, into: &mut [u8]) -> Result<(u64, usize), Anything> {
        let receive = Receive {
            buffer: buffer(into.as_mut_ptr(), into.len()),
            context: 0,
            flags: 0,
            notify: true,
            multi: None,
        };
        self.endpoint.borrow_mut().receive(true, Core::pattern(Some(self.partner), 0, u64::MAX), receive);
        let report = self.report(&self.received)?;
        Ok((report.tag, report.len))
    }
}
