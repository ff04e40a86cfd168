// Group of three nodes that use a lock, and its home: for the examples of the state machines.
use std::cell::Cell;
use std::collections::VecDeque;

use towpath::mplock::*;

/// Messages on their way: sender, receiver (`None`: the home), content.
#[derive(Default)]
struct Wire {
    from: Node,
    sent: VecDeque<(Node, Option<Node>, Message)>,
}

impl Outbox for Wire {
    fn to_home(&mut self, message: Message) {
        self.sent.push_back((self.from, None, message));
    }
    fn to_node(&mut self, node: Node, message: Message) {
        self.sent.push_back((self.from, Some(node), message));
    }
}

struct Group {
    home: HomeLock,
    nodes: [NodeLock; 3],
    wire: Wire,
    requests: Ticket,
}

impl Group {
    fn new(protocol: Protocol) -> Group {
        let home = HomeLock::new(protocol, 1, FencingToken::NONE);
        Group { home, nodes: Default::default(), wire: Wire::default(), requests: 0 }
    }

    /// Delivers all messages.
    fn deliver(&mut self) {
        while let Some((from, to, message)) = self.wire.sent.pop_front() {
            match to {
                None => self.home.on_message(from, &message, &mut self.wire),
                Some(node) => {
                    self.wire.from = node;
                    self.nodes[usize::from(node)].on_message(&message, &mut self.wire);
                }
            }
        }
    }

    /// Has a node ask for the lock, and delivers all messages.
    fn acquire(&mut self, node: Node) {
        self.requests += 1;
        self.wire.from = node;
        let request = LockRequest::waiting(self.requests, Mode::Exclusive);
        self.nodes[usize::from(node)].acquire(request, &mut self.wire);
        self.deliver();
    }

    /// Has a node release the lock, and delivers all messages.
    ///
    /// It keeps the lock for `hold` acquisitions if another node waits.
    fn release(&mut self, node: Node, hold: u32) {
        self.wire.from = node;
        self.nodes[usize::from(node)].release(true, hold, &mut self.wire);
        self.deliver();
    }

    /// Group in which node 0 keeps the lock, and has lent it to node 1, at this seat.
    fn with_loan() -> (Group, Cell<u64>) {
        let mut group = Group::new(Protocol::Distributed);
        group.acquire(0);
        group.acquire(1);
        group.release(0, 10);
        let loan = group.nodes[0].loan_at(0, 7, 1, 10);
        group.nodes[0].lend(loan, &mut group.wire);
        group.deliver();
        (group, Cell::new(loan.first_word()))
    }
}
