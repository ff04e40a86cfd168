//! Proxies: messages between two worlds that are the two hosts of one, carried by hand.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::support::{Numbers, taken, tiny};
use towpath_am::packet::Form;
use towpath_am::path::Failure;
use towpath_am::{
    Algorithm, Direction, Endpoint, EndpointWatch, Error, ForwardedMessage, ForwardedPiece, MAX_ARGS, Name,
    Operation, Payload, Proxy, Status, Tag, Token, WorldConfig,
};
use towpath_shm::World;

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Towpath, Algorithm::LockFree, Algorithm::Ticket, Algorithm::Posix];

/// A message between the hosts.
struct Carried {
    direction: Direction,
    form: Form,
    handler: u8,
    tag: Tag,
    args: Vec<u32>,
    aux: u64,
    source: u32,
    piece: Option<(Vec<u8>, u64, (u64, u64))>,
}

impl Carried {
    fn new(message: &ForwardedMessage<'_>) -> Carried {
        let ForwardedMessage { direction, form, handler, tag, args, aux, source, piece } = *message;
        let piece = piece.map(|piece| (piece.bytes.to_vec(), piece.offset, piece.whole));
        Carried { direction, form, handler, tag, args: args.to_vec(), aux, source, piece }
    }

    fn message(&self) -> ForwardedMessage<'_> {
        let Carried { direction, form, handler, tag, ref args, aux, source, ref piece } = *self;
        let piece = piece.as_ref().map(|(bytes, offset, whole)| ForwardedPiece {
            bytes,
            offset: *offset,
            whole: *whole,
        });
        ForwardedMessage { direction, form, handler, tag, args, aux, source, piece }
    }
}

/// One of the two hosts, and its gateway.
struct Host {
    endpoint: Endpoint,
    represented: World,
    /// The other host's endpoint.
    proxy: Option<Proxy>,
    /// Messages for the endpoint that were not put into its queue.
    waiting: VecDeque<Carried>,
    /// Tickets of those that were and are not known to be handled.
    placed: VecDeque<(Direction, u64)>,
}

/// Two hosts with a rank each.
struct Hosts([Host; 2]);

impl Hosts {
    fn new(config: &WorldConfig) -> Hosts {
        let enter = |rank: u32| {
            let own = World::create_part(&config.spec(None), rank..rank + 1).unwrap();
            let represented = own.reopen().unwrap();
            own.enter(Some(rank)).unwrap();
            represented.enter(Some(1 - rank)).unwrap();
            let endpoint = if rank == 0 {
                Endpoint::with_private_segment(&own, 4096).unwrap()
            } else {
                Endpoint::with_shared_segment(&own).unwrap()
            };
            Host { endpoint, represented, proxy: None, waiting: VecDeque::new(), placed: VecDeque::new() }
        };
        let mut hosts = Hosts([enter(0), enter(1)]);
        for host in 0..2 {
            let name = hosts.0[1 - host].endpoint.name();
            assert_eq!(hosts.0[host].endpoint.name_of_rank(1 - host as u32), None);
            hosts.0[host].proxy = Proxy::open(&hosts.0[host].represented, name).unwrap();
            assert_eq!(hosts.0[host].endpoint.name_of_rank(1 - host as u32), Some(name));
            hosts.0[host].endpoint.map_world().unwrap();
        }
        hosts
    }

    fn endpoint(&self, host: usize) -> &Endpoint {
        &self.0[host].endpoint
    }

    /// Carries messages from one host to the other, as far as there is space.
    fn carry(&mut self, from: usize) {
        let mut carried = Vec::new();
        if let Some(proxy) = &mut self.0[from].proxy {
            for direction in Direction::REPLIES_FIRST {
                proxy.take(direction, |message| {
                    carried.push(Carried::new(message));
                    true
                });
            }
        }
        let to = &mut self.0[1 - from];
        to.waiting.extend(carried);
        while let Some(message) = to.waiting.front() {
            let proxy = to.proxy.as_ref().unwrap();
            match proxy.put(to.endpoint.name(), &message.message()) {
                Ok(ticket) => to.placed.push_back((message.direction, ticket)),
                Err(Failure::NotSent) => return,
                Err(Failure::Gone) => {}
            }
            to.waiting.pop_front();
        }
    }

    /// Tells the sender's host how many messages were handled.
    fn acknowledge(&mut self, from: usize) {
        for wanted in Direction::REPLIES_FIRST {
            let to = &mut self.0[1 - from];
            let watch = EndpointWatch::new(to.endpoint.world()).unwrap();
            let queue = watch.queue(to.endpoint.name(), wanted).unwrap();
            let before = to.placed.len();
            to.placed.retain(|&(direction, ticket)| direction != wanted || !queue.has_handled(ticket));
            let count = (before - to.placed.len()) as u64;
            self.0[from].proxy.as_mut().unwrap().handled(wanted, count);
        }
    }

    /// Carries, polls and acknowledges until nothing moves.
    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            let mut moved = 0;
            for host in 0..2 {
                self.carry(host);
                moved += self.0[1 - host].endpoint.poll();
                self.acknowledge(host);
            }
            quiet = if moved == 0 { quiet + 1 } else { 0 };
        }
    }

    fn assert_clean(&self) {
        for host in &self.0 {
            assert!(host.endpoint.audit().is_clean(), "{:?}", host.endpoint.audit());
            assert_eq!(host.proxy.as_ref().map_or(0, Proxy::unhandled), 0);
            assert!(host.waiting.is_empty() && host.placed.is_empty());
        }
    }
}

/// Notes the first arguments of messages.
fn noting(numbers: &Numbers) -> impl Fn(&Token<'_>) + Send + Sync + 'static {
    let numbers = numbers.clone();
    move |message| numbers.lock().unwrap().push(message.args()[0])
}

#[test]
fn all_forms_cross_and_are_answered_in_order() {
    for algorithm in ALGORITHMS {
        let config = tiny(2, algorithm);
        let mut hosts = Hosts::new(&config);
        let (seen, answers) = (Numbers::default(), Numbers::default());
        hosts.endpoint(0).set_handler(2, noting(&answers));
        let (note, sender) = (seen.clone(), hosts.endpoint(0).name());
        hosts.endpoint(1).set_handler(1, move |request| {
            let args = request.args();
            note.lock().unwrap().push(args[0]);
            assert_eq!(request.source(), sender);
            match request.payload() {
                Payload::None => {
                    assert_eq!(args.len(), MAX_ARGS);
                    assert_eq!(args[15], !args[0]);
                    request.reply(2, &[args[0]]).unwrap();
                }
                Payload::Medium(bytes) => {
                    assert_eq!(bytes, [args[0] as u8; 200]);
                    request.reply_medium(2, &[args[0]], bytes).unwrap();
                }
                Payload::Long { offset, len } => {
                    assert_eq!((offset, len), (u64::from(args[0]), 700));
                    let mut bytes = [0; 700];
                    request.segment().read(offset, &mut bytes);
                    assert_eq!(bytes, [args[0] as u8; 700]);
                    request.reply_long(2, &[args[0]], &bytes, 5).unwrap();
                }
            }
        });
        let watch = EndpointWatch::new(hosts.endpoint(1).world()).unwrap();
        assert_eq!(watch.opened(0).unwrap().0, hosts.endpoint(0).name());
        assert!(!watch.is_local(0) && watch.is_local(1));
        for n in 0..30u32 {
            let mut args = [n; MAX_ARGS];
            args[15] = !n;
            let endpoint = hosts.endpoint(0);
            match n % 3 {
                0 => endpoint.request(1, 1, &args).unwrap(),
                1 => endpoint.request_medium(1, 1, &[n], &[n as u8; 200]).unwrap(),
                _ => endpoint.request_long(1, 1, &[n], &[n as u8; 700], n.into()).unwrap(),
            }
            hosts.settle();
        }
        assert_eq!(taken(&seen), (0..30).collect::<Vec<_>>(), "{algorithm:?}");
        assert_eq!(taken(&answers), (0..30).collect::<Vec<_>>(), "{algorithm:?}");
        let mut last = [0; 700];
        hosts.endpoint(0).segment().read(5, &mut last);
        assert_eq!(last, [29; 700]);
        hosts.assert_clean();
    }
}

#[test]
fn undeliverable_messages_come_back_across_hosts() {
    for algorithm in ALGORITHMS {
        let mut hosts = Hosts::new(&tiny(2, algorithm));
        let back = Arc::new(Mutex::new(Vec::new()));
        let note = back.clone();
        hosts.endpoint(0).set_handler(0, move |message| {
            let why = message.returned().unwrap();
            note.lock().unwrap().push((
                why.status,
                why.operation,
                why.handler,
                why.destination,
                message.args()[0],
            ));
        });
        let receiver = hosts.endpoint(1).name();
        hosts.endpoint(1).set_handler(1, |_| ());
        hosts.endpoint(1).set_tag(Tag(7));
        hosts.endpoint(0).map(5, receiver, Tag(8)).unwrap();
        hosts.endpoint(0).map(6, receiver, Tag(7)).unwrap();
        let sender = hosts.endpoint(0);
        sender.request(5, 1, &[1]).unwrap();
        sender.request(6, 3, &[2]).unwrap();
        sender.request_long(6, 1, &[3], &[0; 600], 1 << 20).unwrap();
        sender.request(6, 1, &[4]).unwrap();
        hosts.settle();
        let expected = [
            (Status::BadTag, Operation::RequestShort, 1, receiver, 1),
            (Status::BadHandler, Operation::RequestShort, 3, receiver, 2),
            (Status::BadSegmentOffset, Operation::RequestLong, 1, receiver, 3),
        ];
        assert_eq!(*back.lock().unwrap(), expected, "{algorithm:?}");
        hosts.assert_clean();
    }
}

#[test]
fn sender_waits_until_the_receiver_has_handled() {
    for algorithm in ALGORITHMS {
        let config = tiny(2, algorithm);
        let mut hosts = Hosts::new(&config);
        let seen = Numbers::default();
        hosts.endpoint(1).set_handler(1, noting(&seen));
        let mut sent = 0;
        let mut fill = |hosts: &mut Hosts| {
            let before = sent;
            while hosts.endpoint(0).try_request(1, 1, &[sent]).is_ok() {
                sent += 1;
            }
            hosts.carry(0);
            hosts.acknowledge(0);
            sent - before
        };
        assert_eq!(fill(&mut hosts), config.packets, "{algorithm:?}");
        assert_eq!(fill(&mut hosts), 0, "nothing was handled");
        assert!(matches!(hosts.endpoint(0).try_request(1, 1, &[0]), Err(Error::NotSent)));
        hosts.endpoint(1).poll();
        assert_eq!(fill(&mut hosts), 0, "it is not yet told");
        assert!(fill(&mut hosts) > 0);
        hosts.settle();
        assert_eq!(taken(&seen), (0..sent).collect::<Vec<_>>(), "{algorithm:?}");
        hosts.assert_clean();
    }
}

#[test]
fn requests_not_handled_come_back_when_a_proxy_ends() {
    for (algorithm, failed) in ALGORITHMS.into_iter().flat_map(|a| [(a, false), (a, true)]) {
        let mut hosts = Hosts::new(&tiny(2, algorithm));
        let (seen, back) = (Numbers::default(), Arc::new(Mutex::new(Vec::new())));
        hosts.endpoint(1).set_handler(1, noting(&seen));
        let note = back.clone();
        hosts.endpoint(0).set_handler(0, move |message| {
            note.lock().unwrap().push((message.returned().unwrap().status, message.args()[0]));
        });
        for n in 0..5 {
            hosts.endpoint(0).request_medium(1, 1, &[n], b"bytes").unwrap();
            if n == 1 {
                hosts.settle();
            }
            if n == 3 {
                hosts.carry(0);
            }
        }
        assert_eq!(taken(&seen), [0, 1]);
        if failed {
            hosts.0[0].represented.fail();
        }
        hosts.0[0].proxy = None;
        hosts.endpoint(0).recover();
        hosts.endpoint(0).poll();
        let status = if failed { Status::Unreachable } else { Status::BadEndpoint };
        assert_eq!(*back.lock().unwrap(), [(status, 2), (status, 3), (status, 4)], "{algorithm:?}");
        hosts.endpoint(0).request(1, 1, &[5]).unwrap();
        hosts.endpoint(0).poll();
        assert_eq!(back.lock().unwrap().pop(), Some((status, 5)));
        // The next incarnation, which has another name.
        if failed {
            hosts.0[0].represented.leave().unwrap();
            hosts.0[0].represented.enter(Some(1)).unwrap();
        }
        let next = Name::from_bits(hosts.endpoint(1).name().to_bits() + (2 << 16));
        let proxy = Proxy::open(&hosts.0[0].represented, next).unwrap().unwrap();
        assert_eq!((proxy.name(), hosts.endpoint(0).name_of_rank(1)), (next, Some(next)));
        hosts.0[0].proxy = Some(proxy);
        hosts.endpoint(0).map(1, next, Tag::ALL).unwrap();
        hosts.endpoint(0).request(1, 1, &[6]).unwrap();
        let mut taken = 0;
        hosts.0[0].proxy.as_mut().unwrap().take(Direction::Request, |message| {
            taken = message.args[0];
            true
        });
        assert_eq!(taken, 6);
    }
}

#[test]
fn nonsense_is_neither_taken_nor_put() {
    let mut hosts = Hosts::new(&tiny(2, Algorithm::Towpath));
    let short = ForwardedMessage {
        direction: Direction::Request,
        form: Form::Short,
        handler: 1,
        tag: Tag::ALL,
        args: &[1],
        aux: 0,
        source: 0,
        piece: None,
    };
    let piece = Some(ForwardedPiece { bytes: &[0; 257], offset: 0, whole: (0, 0) });
    let name = hosts.endpoint(1).name();
    let bad = [
        ForwardedMessage { args: &[0; MAX_ARGS + 1], ..short },
        ForwardedMessage { form: Form::Medium, ..short },
        ForwardedMessage { piece, ..short },
        ForwardedMessage { form: Form::Medium, piece, ..short },
        ForwardedMessage { form: Form::LongStored, ..short },
        ForwardedMessage { form: Form::LongOffered, ..short },
        ForwardedMessage { form: Form::Returned, ..short },
    ];
    let proxy = hosts.0[1].proxy.as_ref().unwrap();
    for message in &bad {
        assert!(!message.is_valid(256));
        assert_eq!(proxy.put(name, message), Err(Failure::Gone), "{message:?}");
    }
    let elsewhere = Name::from_bits(name.to_bits() + (1 << 16));
    assert_eq!(proxy.put(elsewhere, &short), Err(Failure::Gone));
    assert!(matches!(Proxy::open(&hosts.0[1].represented, name), Err(Error::BadArgument(_))));
    // Into a shared segment: locally its sender would store the bytes there.
    hosts.endpoint(0).request_long(1, 1, &[], &[0; 700], 0).unwrap();
    let mut forms = Vec::new();
    hosts.0[0].proxy.as_mut().unwrap().take(Direction::Request, |message| {
        forms.push(message.form);
        true
    });
    assert_eq!(forms, [Form::LongPart, Form::LongPart, Form::Long], "the bytes travel");
}
