//! Sessions: frames to another agent in order and once, over links that come and go.
//!
//! A session is one of two incarnations. Frames are numbered; each end says how many it has
//! received, in its greeting on a new link and in its beats, and the other keeps those that it has
//! not yet heard of.

use std::collections::VecDeque;

/// One end of a session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Number of the last frame that was sent.
    sent: u64,
    /// Frames from the one after the last that the other end is known to have.
    kept: VecDeque<Vec<u8>>,
    /// Number of frames that were received.
    received: u64,
}

impl Session {
    /// Numbers a frame that is to be sent, and keeps it.
    pub fn send(&mut self, frame: Vec<u8>) -> (u64, &[u8]) {
        self.sent += 1;
        self.kept.push_back(frame);
        (self.sent, self.kept.back().map_or(&[], Vec::as_slice))
    }

    /// Forgets the frames that the other end has received.
    pub fn on_received(&mut self, received: u64) {
        let first = self.sent - self.kept.len() as u64;
        let known = received.min(self.sent).saturating_sub(first);
        self.kept.drain(..known as usize);
    }

    /// Returns the frames that the other end may lack, with their numbers.
    pub fn unknown(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.sent - self.kept.len() as u64;
        (first + 1..).zip(self.kept.iter().map(Vec::as_slice))
    }

    /// Notes a frame that has come. `false`: it had come before.
    pub fn accept(&mut self, number: u64) -> bool {
        let next = number == self.received + 1;
        self.received += u64::from(next);
        next
    }

    /// Number of frames that were received.
    pub fn received(&self) -> u64 {
        self.received
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A link that breaks at any frame, and acknowledgements that are lost.
        #[test]
        fn frames_arrive_in_order_and_once(events in proptest::collection::vec((0..4u8, any::<u8>()), 0..200)) {
            let (mut a, mut b) = (Session::default(), Session::default());
            let (mut sent, mut arrived) = (Vec::new(), Vec::new());
            let mut link: Option<VecDeque<(u64, Vec<u8>)>> = None;
            for (event, byte) in events {
                match event {
                    0 | 1 => {
                        sent.push(byte);
                        let (number, frame) = a.send(vec![byte]);
                        if let Some(link) = &mut link {
                            link.push_back((number, frame.to_vec()));
                        }
                    }
                    2 => {
                        if let Some((number, frame)) = link.as_mut().and_then(VecDeque::pop_front)
                            && b.accept(number)
                        {
                            arrived.push(frame[0]);
                        }
                        if byte % 2 == 0 {
                            a.on_received(b.received());
                        }
                    }
                    _ => {
                        a.on_received(b.received());
                        link = Some(a.unknown().map(|(number, frame)| (number, frame.to_vec())).collect());
                    }
                }
                prop_assert!(sent.starts_with(&arrived));
            }
            a.on_received(b.received());
            for (number, frame) in a.unknown() {
                prop_assert!(b.accept(number));
                arrived.push(frame[0]);
            }
            prop_assert_eq!(sent, arrived);
        }
    }
}
