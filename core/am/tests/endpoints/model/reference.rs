//! The model: endpoints with two FIFO queues each and nothing else: no tickets, no
//! blocks' addresses, no algorithms. It knows when a queue is full, and what a sender polls while
//! it waits, so tags, handlers and tables may change while messages are on the way: what counts is
//! what they are when a message is delivered.

use std::collections::VecDeque;

use towpath_am::{Name, Operation, Returned, Status, Tag};

/// Number of packets in a queue, as in [`tiny`].
pub const PACKETS: usize = 8;
pub const BLOCKS: usize = 3;
pub const BLOCK: usize = 256;
/// The length of a segment: a shared one is made of lines.
pub const SEGMENT: usize = 1024;
/// Handlers 0 to 4 exist at first: 2, 3 and 4 reply to requests, short, medium and long.
/// The others never do.
pub const HANDLERS: u8 = 5;

/// Message as its handler saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub handler: u8,
    pub source: Name,
    pub tag: Tag,
    pub args: Vec<u32>,
    pub bytes: Vec<u8>,
    pub request: bool,
    pub returned: Option<Returned>,
}

/// Returns the reply to a request: handler, payload and offset come with the request.
pub fn answer(args: &[u32]) -> (u8, Vec<u8>, u64) {
    let arg = |i: usize| args.get(i).copied().unwrap_or(1);
    (arg(0) as u8, pattern(arg(0), arg(1) as usize), arg(2).into())
}

pub fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seed as usize * 31 + i) as u8).collect()
}

#[derive(Clone, Copy, Debug)]
pub enum Form {
    Short,
    Medium,
    Long,
}

#[derive(Clone, Debug)]
pub struct Outgoing {
    pub form: Form,
    pub handler: u8,
    pub args: Vec<u32>,
    pub bytes: Vec<u8>,
    pub offset: u64,
}

#[derive(Clone, Debug)]
pub enum Body {
    Short,
    Medium(Vec<u8>),
    /// A piece of a long message, where it belongs, and of which transfer it is the last,
    /// if it is the last.
    Piece {
        bytes: Vec<u8>,
        at: u64,
        whole: (u64, u64),
        last: bool,
    },
    /// A long message that is in its destination's shared segment already.
    Stored(u64, u64),
    Returned(Returned),
}

#[derive(Clone, Debug)]
pub struct Message {
    pub from: Name,
    pub handler: u8,
    pub tag: Tag,
    pub args: Vec<u32>,
    pub body: Body,
}

impl Message {
    pub fn has_block(&self) -> bool {
        matches!(self.body, Body::Medium(_) | Body::Piece { .. })
    }

    pub fn operation(&self, reply: bool) -> Operation {
        match (&self.body, reply) {
            (Body::Short | Body::Returned(_), false) => Operation::RequestShort,
            (Body::Medium(_), false) => Operation::RequestMedium,
            (Body::Piece { .. } | Body::Stored(..), false) => Operation::RequestLong,
            (Body::Short | Body::Returned(_), true) => Operation::ReplyShort,
            (Body::Medium(_), true) => Operation::ReplyMedium,
            (Body::Piece { .. } | Body::Stored(..), true) => Operation::ReplyLong,
        }
    }

    /// Returns the message as it comes back; pieces but the last don't.
    pub fn returned(&self, status: Status, destination: Name, reply: bool) -> Option<Message> {
        if matches!(self.body, Body::Piece { last: false, .. }) {
            return None;
        }
        let (operation, handler) = (self.operation(reply), self.handler);
        let body = Body::Returned(Returned { status, operation, handler, destination });
        Some(Message { from: destination, body, ..self.clone() })
    }
}

/// Reply that goes back to its sender.
#[derive(Clone, Debug)]
pub struct OwedReply {
    pub to: Name,
    pub message: Message,
}

/// One endpoint.
#[derive(Debug)]
pub struct End {
    pub name: Name,
    pub tag: Tag,
    pub handlers: [bool; HANDLERS as usize],
    pub table: [Option<(Name, Tag)>; 3],
    pub shared: bool,
    pub segment: Vec<u8>,
    /// Messages on the way to it: `[requests, replies]`.
    pub queues: [VecDeque<Message>; 2],
    /// Its own messages that never left.
    pub returns: VecDeque<Message>,
    /// Replies that it refused, and whose senders had no space: the last goes back first.
    pub owed: Vec<OwedReply>,
    /// True while a reply of its own waits for space.
    pub replying: bool,
    pub seen: Vec<Seen>,
}

pub const REQUESTS: usize = 0;
pub const REPLIES: usize = 1;

impl End {
    pub fn new(name: Name, shared: bool, segment: Vec<u8>) -> End {
        let (queues, returns) = Default::default();
        let (tag, handlers, table) = (Tag::ALL, [true; HANDLERS as usize], [None; 3]);
        let (owed, replying, seen) = (Vec::new(), false, Vec::new());
        End { name, tag, handlers, table, shared, segment, queues, returns, owed, replying, seen }
    }

    pub fn blocks(&self, queue: usize) -> usize {
        self.queues[queue].iter().filter(|m| m.has_block()).count()
    }

    pub fn range(&self, offset: u64, len: u64) -> Result<(), Status> {
        match self.segment.len() as u64 {
            size if offset > size || offset == size && len > 0 => Err(Status::BadSegmentOffset),
            size if len > size - offset => Err(Status::BadLength),
            _ => Ok(()),
        }
    }

    pub fn store(&mut self, at: u64, bytes: &[u8]) {
        self.segment[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

#[derive(Debug)]
pub struct Model {
    pub ends: Vec<End>,
    /// Order in which the bundle polls them.
    pub order: Vec<usize>,
    /// Endpoint that was closed and not replaced yet, and the messages that it did not
    /// handle.
    pub closed: (Name, VecDeque<Message>),
}

pub const NO_NAME: Name = Name::from_bits(u64::MAX);

impl Default for Model {
    fn default() -> Model {
        Model { ends: Vec::new(), order: Vec::new(), closed: (NO_NAME, VecDeque::new()) }
    }
}

impl Model {
    pub fn find(&self, name: Name) -> Option<usize> {
        self.ends.iter().position(|end| end.name == name)
    }

    pub fn poll_bundle(&mut self) -> usize {
        self.order.clone().into_iter().map(|i| self.poll(i)).sum()
    }

    /// Polls: replies first; messages that come or go back only when there are no others.
    pub fn poll(&mut self, i: usize) -> usize {
        let delivered = self.poll_queue(i, REPLIES) + self.poll_queue(i, REQUESTS);
        if delivered > 0 {
            return delivered;
        }
        let returns = std::mem::take(&mut self.ends[i].returns);
        returns.iter().for_each(|m| self.run(i, REPLIES, m, vec![]));
        self.return_owed(i);
        returns.len()
    }

    /// Sends rejected replies back, as far as there is space.
    pub fn return_owed(&mut self, i: usize) {
        while let Some(back) = self.ends[i].owed.pop() {
            if let Some(to) = self.find(back.to)
                && self.put(to, REPLIES, back.message.clone(), false).is_err()
            {
                self.ends[i].owed.push(back);
                return;
            }
        }
    }

    pub fn poll_queue(&mut self, i: usize, queue: usize) -> usize {
        let mut delivered = 0;
        while let Some(message) = self.ends[i].queues[queue].front().cloned() {
            if let Err(status) = self.deliver(i, queue, &message) {
                let (reply, name) = (queue == REPLIES, self.ends[i].name);
                let status = if reply { Status::ReplyRejected } else { status };
                let back = message.returned(status, name, reply);
                if let (Some(back), Some(to)) = (back, self.find(message.from)) {
                    let owed = OwedReply { to: message.from, message: back.clone() };
                    // A rejected reply does not wait for space: it comes back when there is some.
                    if self.ends[i].replying || self.put(to, REPLIES, back, !reply).is_err() {
                        self.ends[i].owed.push(owed);
                    }
                }
            }
            self.ends[i].queues[queue].pop_front();
            delivered += 1;
        }
        delivered
    }

    pub fn deliver(&mut self, i: usize, queue: usize, message: &Message) -> Result<(), Status> {
        let end = &mut self.ends[i];
        if !matches!(message.body, Body::Returned(_)) {
            if queue == REQUESTS && !end.tag.accepts(message.tag) {
                return Err(Status::BadTag);
            }
            if !end.handlers.get(usize::from(message.handler)).is_some_and(|exists| *exists) {
                return Err(Status::BadHandler);
            }
        }
        let bytes = match &message.body {
            Body::Short | Body::Returned(_) => vec![],
            Body::Medium(bytes) => bytes.clone(),
            Body::Piece { bytes, at, whole: (offset, len), last } => {
                end.range(*offset, *len)?;
                end.store(*at, bytes);
                if !last {
                    return Ok(());
                }
                end.segment[*offset as usize..][..*len as usize].to_vec()
            }
            Body::Stored(offset, len) => {
                end.range(*offset, *len)?;
                end.segment[*offset as usize..][..*len as usize].to_vec()
            }
        };
        self.run(i, queue, message, bytes);
        Ok(())
    }

    pub fn run(&mut self, i: usize, queue: usize, message: &Message, bytes: Vec<u8>) {
        let Message { from: source, handler, tag, args, body } = message.clone();
        let (returned, handler) = match body {
            Body::Returned(returned) => (Some(returned), 0),
            _ => (None, handler),
        };
        if !self.ends[i].handlers[usize::from(handler)] {
            return; // Without a handler 0 what comes back is lost.
        }
        let request = queue == REQUESTS;
        self.ends[i].seen.push(Seen { handler, source, tag, args: args.clone(), bytes, request, returned });
        if request && handler >= 2 {
            let (to, bytes, offset) = answer(&args);
            let form = [Form::Short, Form::Medium, Form::Long][usize::from(handler) - 2];
            let reply = Outgoing { form, handler: to, args, bytes, offset };
            self.send(i, source, tag, REPLIES, &reply, true).expect("a reply can wait");
        }
    }

    /// Puts a message on its way out. `Err`: it would have had to wait.
    pub fn send(
        &mut self,
        i: usize,
        to: Name,
        tag: Tag,
        queue: usize,
        out: &Outgoing,
        wait: bool,
    ) -> Result<(), ()> {
        let from = self.ends[i].name;
        let message =
            |body, args: &[u32]| Message { from, handler: out.handler, tag, args: args.to_vec(), body };
        let (len, offset) = (out.bytes.len() as u64, out.offset);
        let whole = (offset, len);
        let Some(j) = self.find(to) else {
            if self.closed.0 == to {
                self.notice(i);
            }
            let body = match out.form {
                Form::Short => Body::Short,
                Form::Medium => Body::Medium(vec![]),
                Form::Long => Body::Stored(offset, len),
            };
            let back = message(body, &out.args).returned(Status::BadEndpoint, to, queue == REPLIES);
            self.ends[i].returns.extend(back);
            return Ok(());
        };
        match out.form {
            Form::Short => self.put(j, queue, message(Body::Short, &out.args), wait),
            Form::Medium => self.put(j, queue, message(Body::Medium(out.bytes.clone()), &out.args), wait),
            Form::Long if self.ends[j].shared => {
                if self.ends[j].range(offset, len).is_ok() {
                    self.ends[j].store(offset, &out.bytes);
                }
                self.put(j, queue, message(Body::Stored(offset, len), &out.args), wait)
            }
            Form::Long => {
                let pieces = out.bytes.len().div_ceil(BLOCK).max(1);
                for n in 0..pieces {
                    let (start, last) = (n * BLOCK, n + 1 == pieces);
                    let bytes = out.bytes[start..].iter().take(BLOCK).copied().collect();
                    let body = Body::Piece { bytes, at: offset + start as u64, whole, last };
                    self.put(j, queue, message(body, if last { &out.args } else { &[] }), wait || n > 0)?;
                }
                Ok(())
            }
        }
    }

    /// A request that has to wait polls the bundle meanwhile, a reply only its replies.
    pub fn put(&mut self, j: usize, queue: usize, message: Message, wait: bool) -> Result<(), ()> {
        let full = |model: &Model| model.ends[j].queues[queue].len() == PACKETS;
        let no_block = |model: &Model| message.has_block() && model.ends[j].blocks(queue) == BLOCKS;
        while no_block(self) || full(self) {
            if !wait {
                return Err(());
            }
            match queue {
                REQUESTS => _ = self.poll_bundle(),
                _ => {
                    // Set in the same way while a request that was refused goes back.
                    let sender = self.find(message.from);
                    let before = sender.map(|i| std::mem::replace(&mut self.ends[i].replying, true));
                    self.order.clone().into_iter().for_each(|i| _ = self.poll_queue(i, REPLIES));
                    if let (Some(i), Some(before)) = (sender, before) {
                        self.ends[i].replying = before;
                    }
                }
            }
        }
        self.ends[j].queues[queue].push_back(message);
        Ok(())
    }

    /// Lets an endpoint notice that another one was closed: the messages that the other
    /// one did not handle come back.
    pub fn notice(&mut self, i: usize) {
        let (gone, requests) = std::mem::replace(&mut self.closed, (NO_NAME, VecDeque::new()));
        let (mine, others) = requests.into_iter().partition(|m| m.from == self.ends[i].name);
        let back = |m: Message| m.returned(Status::BadEndpoint, gone, false);
        self.ends[i].returns.extend(VecDeque::into_iter(mine).filter_map(back));
        self.closed = (gone, others);
    }

    /// Lets the successor send back the messages that no endpoint noticed, in their
    /// order, in the name of their receiver.
    pub fn succeed(&mut self) {
        let (gone, requests) = std::mem::replace(&mut self.closed, (NO_NAME, VecDeque::new()));
        for message in requests {
            if let Some(back) = message.returned(Status::Unreachable, gone, false)
                && let Some(to) = self.find(message.from)
            {
                self.put(to, REPLIES, back, false).expect("the caller has emptied the queue");
            }
        }
    }
}
