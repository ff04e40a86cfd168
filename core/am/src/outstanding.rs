//! Messages on their way back: requests that their receiver did not finish.
//!
//! They stay in the queue of an endpoint that is gone until a successor resets it. Two survivors
//! read them there: their sender, once it notices the end, while its entry says so (`upkeep.rs`);
//! and the successor, which sends each back before it shows its own generation and resets the
//! queue (`directory.rs`). A sender may get a request by both ways, and by several successors that
//! died in between, so each names its ticket, and the sender delivers the first.

use towpath_machine::{Ordering, Processor};
use towpath_sync::PARKED;

use crate::claim::Claim;
use crate::error::Status;
use crate::message::{Direction, Operation, Returned};
use crate::name::{Name, Tag};
use crate::packet::{Form, Header, MAX_ARGS};
use crate::path::PacketContent;
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
    /// Ticket of its place in the request queue of a receiver that is gone; otherwise 0.
    pub ticket: u64,
}

impl Outstanding {
    /// Copies requests out of the queue of an endpoint that is gone: all that `mine`
    /// accepts by source, in the order of their tickets.
    pub fn find_all<P: Processor>(
        cpu: &P,
        q: &Queue<'_, P>,
        claim: &impl Claim<P>,
        destination: Name,
        mine: impl Fn(u32) -> bool,
    ) -> Vec<Outstanding> {
        // Relaxed: all steps of the receiver are known, since its end is: by its entry (E1), (E2),
        // or by its death.
        let consumed = cpu.load(&q.control.consumed, Ordering::Relaxed) & !PARKED;
        let mut all = Vec::new();
        for place in consumed..consumed.saturating_add(q.len()) {
            // Relaxed: the caller's own message, or one that the successor has acquired when it
            // looked for stragglers (I4).
            let header = Header(cpu.load(&q.slot(place).header, Ordering::Relaxed));
            let undelivered = claim.undelivered(q, cpu, header, place);
            let Some(ticket) = undelivered.filter(|_| mine(header.source())) else { continue };
            // Of a long transfer only the last piece is answered. An offer's sender waits for it,
            // and brings the message back itself.
            let is_answered = |form: &Form| !matches!(form, Form::LongPart | Form::LongOffered);
            let Some(form) = header.form().filter(is_answered) else { continue };
            let count = header.args().min(MAX_ARGS);
            let mut args = [0u32; MAX_ARGS];
            let cells = q.slot(ticket).args.iter().chain(&q.extra(ticket).args);
            for (pair, cell) in args.chunks_exact_mut(2).zip(cells).take(count.div_ceil(2)) {
                let both = cpu.read(cell);
                pair[0] = both as u32;
                pair[1] = (both >> 32) as u32;
            }
            let operation = Operation::of(form, Direction::Request);
            let (status, handler) = (Status::Unreachable, header.handler());
            all.push(Outstanding {
                returned: Returned { status, operation, handler, destination },
                source: header.source(),
                tag: Tag(cpu.read(&q.slot(ticket).tag)),
                args,
                count,
                ticket,
            });
        }
        // The message of a place that was passed over is older than those of the places before.
        all.sort_by_key(|back| back.ticket);
        all
    }

    /// Contents of the packet with which an endpoint, known by its code, sends it back.
    pub fn content(&self, source: u32) -> PacketContent<'_> {
        let Returned { status, operation, handler, destination } = self.returned;
        let aux = status as u64
            | (operation as u64) << 8
            | (self.ticket & 0xffff) << 16
            | destination.generation << 32;
        let args = &self.args[..self.count];
        PacketContent { form: Form::Returned, handler, tag: self.tag.0, args, aux, source }
    }

    /// Returns the message that such a packet brings back. `None`: there is none like it.
    pub fn of_content(
        from: Name,
        header: Header,
        tag: Tag,
        args: [u32; MAX_ARGS],
        aux: u64,
    ) -> Option<Outstanding> {
        let (status, handler, count) = (Status::from_bits(aux & 0xff)?, header.handler(), header.args());
        if count > MAX_ARGS {
            return None;
        }
        let operation = Operation::from_bits(aux >> 8 & 0xff);
        let destination = Name { generation: aux >> 32, ..from };
        let returned = Returned { status, operation, handler, destination };
        Some(Outstanding { returned, source: header.source(), tag, args, count, ticket: aux >> 16 & 0xffff })
    }
}
