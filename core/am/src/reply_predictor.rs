//! Predictor of the packet that answers a peer's next message: the one after the last
//! that the endpoint sent there.
//!
//! **Source.** Ours. A receiver that polls has a copy of the line on which the next message to it
//! will come, and taking that copy away is most of the cost of a message. An endpoint that usually
//! answers fetches the line as soon as the question is there, and handles the question meanwhile.
//!
//! A prediction is a hint and never more: the ticket is claimed as ever, and may turn out to be
//! another sender's. A wrong one costs a polling peer a cache miss. So the endpoint stops after two
//! messages that it did not answer, and where other senders send to the peer too it predicts
//! nothing: the next packet is likely to be theirs.
//!
//! **Memory.** One word for each peer, made when there is time and read when there is none.

use crate::message::Direction;

/// Number of messages that may stay unanswered before the endpoint stops expecting to
/// answer.
const CREDIT: u64 = 2;

/// Bit of a predictor: the next message from the peer is the first since the endpoint
/// sent to it. Only then is it worth while to note the packet that is sent. An endpoint that only
/// sends pays one test for it.
const HEARD: u64 = 1 << 3;

/// Prediction for one peer.
///
/// Bits 0 to 1: number of messages that may still arrive before the endpoint stops expecting to
/// answer; bit 2: 1 if it answers by a reply; bit 3: [`HEARD`]; bits 4 to 63: the ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyPredictor(u64);

/// Packet that is likely to answer a message: its queue and ticket.
pub(crate) type Answer = (Direction, u64);

impl ReplyPredictor {
    /// Predictor that knows nothing.
    pub const NONE: ReplyPredictor = ReplyPredictor(0);

    /// Returns the state to note after a send, if it changes. `sender` returns whether no
    /// other sender has sent to the peer, and the next ticket.
    #[inline(always)]
    pub fn on_send(
        self,
        direction: Direction,
        sender: impl FnOnce() -> (bool, u64),
    ) -> Option<ReplyPredictor> {
        (self.0 & HEARD != 0).then(|| match sender() {
            (true, next) => ReplyPredictor(next << 4 | u64::from(direction.is_reply()) << 2 | CREDIT),
            (false, _) => ReplyPredictor::NONE,
        })
    }

    /// Returns the likely answer to a message that arrives, if any is likely, and the
    /// state to note then, if it changes.
    #[inline(always)]
    pub fn on_arrival(self) -> (Option<Answer>, Option<ReplyPredictor>) {
        if self.0 & 3 != 0 {
            (Some((Direction::of(self.0 & 4 != 0), self.0 >> 4)), Some(ReplyPredictor((self.0 | HEARD) - 1)))
        } else {
            (None, (self.0 & HEARD == 0).then_some(ReplyPredictor(HEARD)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Reply, Request};

    /// Lets a message of the peer arrive.
    fn hear(predictor: &mut ReplyPredictor) -> Option<Answer> {
        let (answer, note) = predictor.on_arrival();
        *predictor = note.unwrap_or(*predictor);
        answer
    }

    /// Sends to the peer, alone or not.
    fn send(predictor: &mut ReplyPredictor, direction: Direction, alone: bool, next: u64) {
        *predictor = predictor.on_send(direction, || (alone, next)).unwrap_or(*predictor);
    }

    #[test]
    fn answering_endpoint_is_predicted_for_two_more_messages() {
        for (direction, other, next) in
            [(Request, Reply, 0), (Reply, Request, 7), (Reply, Request, (1 << 52) - 1)]
        {
            let mut predictor = ReplyPredictor::NONE;
            assert_eq!(hear(&mut predictor), None);
            for _ in 0..3 {
                send(&mut predictor, direction, true, next);
                assert_eq!(hear(&mut predictor), Some((direction, next)));
            }
            assert_eq!(hear(&mut predictor), Some((direction, next)));
            assert_eq!(hear(&mut predictor), None);
            assert_eq!(hear(&mut predictor), None);
            send(&mut predictor, other, true, next);
            assert_eq!(hear(&mut predictor), Some((other, next)));
        }
    }

    #[test]
    fn one_way_or_contended_traffic_is_not_predicted() {
        let mut predictor = ReplyPredictor::NONE;
        for next in 0..5 {
            assert!(predictor.on_send(Request, || unreachable!("nothing was heard")).is_none());
            send(&mut predictor, Request, true, next);
        }
        assert_eq!(hear(&mut predictor), None);
        assert_eq!(hear(&mut predictor), None);
        send(&mut predictor, Reply, false, 9);
        assert_eq!(hear(&mut predictor), None);
    }
}
