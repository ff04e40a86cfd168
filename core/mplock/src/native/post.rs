//! Messages that wait for space at their receiver.
//!
//! A manager never waits for one receiver's space: the others would wait for it, and a stopped
//! process makes no space. Messages to one receiver stay in order.

use std::collections::VecDeque;

use towpath_am::{Endpoint, Error};

use super::codec::LetterWords;
use crate::numbers::Node;

/// Handler of messages between managers.
pub(crate) const HANDLER: u8 = 255;

/// Messages that wait for space, by receiver.
#[derive(Debug, Default)]
pub(crate) struct Post {
    /// Receivers that have messages here, seldom more than a few.
    waiting: Vec<(Node, VecDeque<LetterWords>)>,
}

impl Post {
    /// Returns whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a message, now or later.
    pub(crate) fn send(&mut self, endpoint: &Endpoint, to: Node, words: LetterWords) {
        if let Some((_, queue)) = self.waiting.iter_mut().find(|(node, _)| *node == to) {
            queue.push_back(words);
        } else if !goes_out(endpoint, to, &words) {
            self.waiting.push((to, VecDeque::from([words])));
        }
    }

    /// Sends the messages that wait, as far as there is space now.
    pub(crate) fn flush(&mut self, endpoint: &Endpoint) {
        self.waiting.retain_mut(|(to, queue)| {
            while let Some(words) = queue.front() {
                if !goes_out(endpoint, *to, words) {
                    return true;
                }
                queue.pop_front();
            }
            false
        });
    }

    /// Drops the messages to a rank that is gone.
    pub(crate) fn forget(&mut self, rank: Node) {
        self.waiting.retain(|(to, _)| *to != rank);
    }
}

/// Sends a message if it can go out at once; false if there is no space now. One that can
/// never go out is dropped: its receiver is gone.
fn goes_out(endpoint: &Endpoint, to: Node, words: &LetterWords) -> bool {
    let sent = match words.payload() {
        [] => endpoint.try_request(to.into(), HANDLER, words.as_slice()),
        payload => endpoint.try_request_medium(to.into(), HANDLER, words.as_slice(), payload),
    };
    !matches!(sent, Err(Error::NotSent | Error::InUse(_)))
}
