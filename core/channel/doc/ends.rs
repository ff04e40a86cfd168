// Ends of an answer line and of a stream in one process: for the examples.
use towpath_channel::answer_line::*;
use towpath_channel::packet::{Form, MAX_ARGS};
use towpath_channel::path::PacketContent;
use towpath_channel::stream::*;
use towpath_machine::{Heap, Native, Ordering, Processor};
use towpath_sync::Spinning;

/// Short message for handler 7, of tag 5.
fn short(args: &[u32]) -> PacketContent<'_> {
    PacketContent { form: Form::Short, handler: 7, tag: 5, args, aux: 0, source: 0 }
}

/// Both ends of an answer line, of endpoints 0 and 1. The first one is to begin.
fn answer_ends(line: &AnswerLine<Native>) -> [AnswerEnd<&AnswerLine<Native>>; 2] {
    let [one, other] = [(0, 1), (1, 1)];
    let ends = [(one, other), (other, one)].map(|(me, other)| AnswerEnd::new(Some(line), me, other));
    for end in [&ends[0], &ends[1], &ends[0]] {
        end.attach(&Native::current());
    }
    ends
}

type SmallStream = Stream<Native, 64>;

/// Sender, and receiver, of a stream in which the message `short(&[1, 2])` was sent.
fn stream_ends(stream: &SmallStream) -> (StreamSender<&SmallStream>, StreamReceiver<&SmallStream>) {
    let (cpu, news, sender) = (Native::current(), Native::word(0), StreamSender::default());
    let ends = Ends { endpoint: 0, generation: 1, receiver_generation: 1 };
    sender.open(&cpu, stream, (&news, 3), ends, &short(&[1, 2]), 0).expect("the stream is free");
    (sender, StreamReceiver::new(&cpu, stream, stream.owner(&cpu)))
}
