//! Arguments of a message in cells: two in each.

use towpath_machine::Processor;

use crate::packet::{LINE_ARGS, MAX_ARGS, Slot};
use crate::queue::{Arrival, Queue};

/// The arguments on a packet's line. All of them: they are on the header's line, and a
/// loop of fixed length is none.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
/// # fn main() {
/// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
/// # let (q, mut sender, mut receiver) =
/// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
/// let ticket = Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent).expect("it is empty");
/// cpu.write(&q.slot(ticket).args[0], 2 << 32 | 1); // two in a cell
/// let mut args = [0; MAX_ARGS];
/// towpath_channel::path::line_args(&cpu, q.slot(ticket), &mut args);
/// assert_eq!(args[..2], [1, 2]);
/// # }
/// ```
#[inline(always)]
pub fn line_args<P: Processor>(cpu: &P, slot: &Slot<P>, args: &mut [u32; MAX_ARGS]) {
    read_args(cpu, &slot.args, &mut args[..LINE_ARGS]);
}

/// The arguments that did not fit there, if the message has so many.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
/// # fn main() {
/// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
/// # let (q, mut sender, mut receiver) =
/// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
/// let ticket = Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent).expect("it is empty");
/// cpu.write(&q.extra(ticket).args[0], 2 << 32 | 1);
/// let header = Header::new(Form::Short, 7, LINE_ARGS + 2, 0);
/// let mut args = [0; MAX_ARGS];
/// let arrival = Arrival { ticket, header, late: false };
/// towpath_channel::path::extra_args(&cpu, &q, arrival, &mut args);
/// assert_eq!(args[LINE_ARGS..][..2], [1, 2]);
/// # }
/// ```
pub fn extra_args<P: Processor>(cpu: &P, q: &Queue<'_, P>, arrival: Arrival, args: &mut [u32; MAX_ARGS]) {
    if arrival.header.args() > LINE_ARGS {
        read_args(cpu, &q.extra(arrival.ticket).args, &mut args[LINE_ARGS..]);
    }
}

/// Returns two arguments as they lie in a cell: the one of this number, and the next, if
/// there is one.
#[inline(always)]
pub(crate) fn two_args(args: &[u32], n: usize) -> u64 {
    let high = if n + 1 < args.len() { args[n + 1] } else { 0 };
    u64::from(args[n]) | u64::from(high) << 32
}

/// Writes arguments into cells, two in each, the even one in the low half, as far as they
/// go.
///
/// By index: the adapters of iterators are calls where a program is built without LTO.
#[inline(always)]
pub(super) fn write_args<P: Processor>(cpu: &P, cells: &[P::Cell], args: &[u32]) {
    let mut n = 0;
    while n < args.len().min(cells.len() * 2) {
        cpu.write(&cells[n / 2], two_args(args, n));
        n += 2;
    }
}

/// Reads as many arguments as `args` has places, an even number, out of cells
/// ([`write_args`]).
#[inline(always)]
pub(crate) fn read_args<P: Processor>(cpu: &P, cells: &[P::Cell], args: &mut [u32]) {
    let mut n = 0;
    while n + 1 < args.len() {
        let both = cpu.read(&cells[n / 2]);
        args[n] = both as u32;
        args[n + 1] = (both >> 32) as u32;
        n += 2;
    }
}
