//! Messages on their way back: requests that their receiver did not finish.
//!
//! A survivor finds them in the receiver's queue after its end, and takes each by an exchange of
//! its header: the sender, which notices that the receiver is gone, or the receiver's successor,
//! before it resets the queue.

use towpath_machine::{Ordering, Processor};
use towpath_sync::PARKED;

use crate::claim::Claim;
use crate::error::Status;
use crate::message::{Direction, Operation, Returned};
use crate::name::{Name, Tag};
use crate::packet::{Form, Header, MAX_ARGS, SKIPPED};
use crate::queue::Queue;

/// Message that comes back to its sender.
pub struct Outstanding {
    /// Reason, call, handler and destination.
    pub returned: Returned,
    /// Code of the sending endpoint's incarnation, as in the header.
    pub source: u32,
    /// Tag that it was sent with.
    pub tag: Tag,
    /// Arguments.
    pub args: [u32; MAX_ARGS],
    /// Number of arguments.
    pub count: usize,
}

impl Outstanding {
    /// Takes all requests out of a queue that `mine` accepts by source and ticket, and
    /// frees their blocks.
    pub fn take_all<P: Processor>(
        cpu: &P,
        q: &Queue<'_, P>,
        claim: &impl Claim<P>,
        destination: Name,
        mine: impl Fn(u32, u64) -> bool,
    ) -> Vec<Outstanding> {
        // (O1) Acquire: pairs with the Release (Q3) in `Receiver::done`.
        let consumed = cpu.load(&q.control.consumed, Ordering::Acquire) & !PARKED;
        let mut all = Vec::new();
        for ticket in consumed..consumed.saturating_add(q.len()) {
            let word = &q.slot(ticket).header;
            // (O2) Acquire: pairs with the Release (Q2) of the publication.
            let header = Header(cpu.load(word, Ordering::Acquire));
            if !claim.is_undelivered(q, cpu, header, ticket) || !mine(header.source(), ticket) {
                continue;
            }
            // So that no other survivor returns it, too. Relaxed: nothing else hangs on it.
            let (taken, relaxed) = (header.with_state(SKIPPED).0, Ordering::Relaxed);
            if cpu.compare_exchange(word, header.0, taken, relaxed, relaxed).is_err() {
                continue;
            }
            let count = header.args().min(MAX_ARGS);
            let mut args = [0u32; MAX_ARGS];
            let cells = q.slot(ticket).args.iter().chain(&q.extra(ticket).args);
            for (pair, cell) in args.chunks_exact_mut(2).zip(cells).take(count.div_ceil(2)) {
                let both = cpu.read(cell);
                pair[0] = both as u32;
                pair[1] = (both >> 32) as u32;
            }
            if header.has_block() {
                // A successor waits until no sender writes there any more.
                q.free_block(cpu, header.block());
            }
            // Of a long transfer only the last piece is answered. An offer's sender waits for it,
            // and brings the message back itself.
            let is_answered = |form: &Form| !matches!(form, Form::LongPart | Form::LongOffered);
            let Some(form) = header.form().filter(is_answered) else { continue };
            let operation = Operation::of(form, Direction::Request);
            let (status, handler) = (Status::Unreachable, header.handler());
            all.push(Outstanding {
                returned: Returned { status, operation, handler, destination },
                source: header.source(),
                tag: Tag(cpu.read(&q.slot(ticket).tag)),
                args,
                count,
            });
        }
        all
    }
}
