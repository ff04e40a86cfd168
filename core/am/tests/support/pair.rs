//! Two endpoints that log the messages that reach them.

use std::sync::{Arc, Mutex};

use towpath_am::{Bundle, Endpoint, Name, Operation, Payload, Returned, Status, Tag, WorldConfig};

use super::members;

/// Message as its handler saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub args: Vec<u32>,
    pub bytes: Vec<u8>,
    pub source: Name,
    pub destination: Name,
    pub tag: Tag,
    pub request: bool,
    pub returned: Option<Returned>,
}

pub type Log = Arc<Mutex<Vec<Seen>>>;

pub fn logging(log: &Log) -> impl Fn(&towpath_am::Token<'_>) + Send + Sync + 'static {
    let log = log.clone();
    move |message| {
        let bytes = match message.payload() {
            Payload::None => Vec::new(),
            Payload::Medium(bytes) => bytes.to_vec(),
            Payload::Long { offset, len } => {
                let mut bytes = vec![0; len as usize];
                message.segment().read(offset, &mut bytes);
                bytes
            }
        };
        log.lock().unwrap().push(Seen {
            args: message.args().to_vec(),
            bytes,
            source: message.source(),
            destination: message.destination(),
            tag: message.tag(),
            request: message.is_request(),
            returned: message.returned(),
        });
    }
}

pub fn take(log: &Log) -> Vec<Seen> {
    std::mem::take(&mut log.lock().unwrap())
}

/// Two endpoints in one bundle that log the messages of their handlers 0 and 1; each is
/// the other's entry 0.
pub struct Pair {
    pub bundle: Bundle,
    pub a: Endpoint,
    pub b: Endpoint,
    pub at_a: Log,
    pub at_b: Log,
    _worlds: Vec<towpath_shm::World>,
}

impl Pair {
    pub fn with(config: &WorldConfig, segment: Option<usize>) -> Pair {
        let worlds = members(config);
        let make = |i: usize| match segment {
            Some(len) => Endpoint::with_private_segment(&worlds[i], len).unwrap(),
            None => Endpoint::with_shared_segment(&worlds[i]).unwrap(),
        };
        let (a, b) = (make(0), make(1));
        let (at_a, at_b) = (Log::default(), Log::default());
        for (endpoint, log) in [(&a, &at_a), (&b, &at_b)] {
            endpoint.set_handler(0, logging(log));
            endpoint.set_handler(1, logging(log));
        }
        a.map(0, b.name(), Tag::ALL).unwrap();
        b.map(0, a.name(), Tag::ALL).unwrap();
        let bundle = Bundle::new();
        bundle.add(&a);
        bundle.add(&b);
        Pair { bundle, a, b, at_a, at_b, _worlds: worlds }
    }

    pub fn new() -> Pair {
        Pair::with(&WorldConfig { segment_bytes: 8192, ..WorldConfig::new(2) }, Some(8192))
    }

    pub fn settle(&self) {
        while self.bundle.poll() > 0 {}
    }

    /// The status of the only message that came back to `a`.
    pub fn came_back(&self) -> (Status, Operation, Vec<u32>) {
        self.settle();
        assert_eq!(take(&self.at_b), [], "nothing was delivered");
        let back = take(&self.at_a);
        assert_eq!(back.len(), 1, "{back:?}");
        let returned = back[0].returned.expect("handler 0 has a reason");
        (returned.status, returned.operation, back[0].args.clone())
    }
}
