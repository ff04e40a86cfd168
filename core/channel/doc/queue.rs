// Queue between two endpoints of one process: for the examples of claims and receivers.
use std::sync::Arc;

use towpath_channel::claim::*;
use towpath_channel::packet::*;
use towpath_channel::queue::*;
use towpath_machine::{Arena, Heap, Native, NativeBytes, Ordering, Processor};
use towpath_sync::Spinning;

/// Memory of a queue with four packets and two blocks.
struct Memory {
    control: QueueControl<Native>,
    slots: Vec<Slot<Native>>,
    extras: Vec<Extra<Native>>,
    blocks: Vec<BlockHead<Native>>,
    bytes: Arc<NativeBytes>,
}

impl Memory {
    fn new() -> Memory {
        Memory {
            control: QueueControl::new(&Heap),
            slots: (0..4).map(|_| Slot::new(&Heap)).collect(),
            extras: (0..4).map(|_| Extra::new(&Heap)).collect(),
            blocks: (0..2).map(|_| BlockHead::new(&Heap)).collect(),
            bytes: Arc::new(Heap.bytes(2 * 64)),
        }
    }

    fn queue(&self) -> Queue<'_, Native> {
        let Memory { control, slots, extras, blocks, bytes } = self;
        Queue { id: 0, control, slots, extras, blocks, bytes: Arc::clone(bytes), block_size: 64 }
    }
}

/// Claims a packet and publishes a short message for handler 1. Returns its ticket.
fn send(
    q: &Queue<'_, Native>,
    sender: &mut Sender,
    intent: &<Native as Processor>::Word,
) -> Result<u64, ClaimError> {
    let cpu = Native::current();
    let ticket = Towpath.claim(q, sender, &cpu, &Spinning, intent)?;
    let header = Header::new(Form::Short, 1, 0, source_code(sender.endpoint, 1)).with_state(READY);
    Towpath.publish(q, sender, &cpu, true, intent, ticket, header);
    Ok(ticket)
}

/// Census of endpoint 0, the only sender.
struct One<'a> {
    intent: &'a <Native as Processor>::Word,
    lives: bool,
}

impl Census for One<'_> {
    fn endpoints(&self) -> usize {
        1
    }
    fn load_intent(&self, _endpoint: u16, word: usize) -> u64 {
        if word == 0 { read_intent(&Native::current(), self.intent) } else { 0 }
    }
    fn generation(&self, _endpoint: u16) -> Option<u16> {
        Some(1)
    }
    fn owner_lives(&self, _endpoint: u16) -> bool {
        self.lives
    }
}
