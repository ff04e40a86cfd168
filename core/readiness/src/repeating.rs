//! Futures of operations.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use towpath_sync::Attempt;

use crate::operation::AsyncOperation;
use crate::sleepers::SleepRegistration;
use crate::turn::RetryTurn;
use crate::watching::TaskWatch;

/// Future of an operation, for any executor. Dropped, it has done nothing, unless it was
/// ready.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Repeating<O> {
    operation: O,
    turn: RetryTurn,
    watch: TaskWatch,
    sleep: Option<SleepRegistration>,
}

/// Repeats an operation until it is done.
///
/// ```
/// # use towpath_readiness::{AsyncOperation, until};
/// # use towpath_sync::Attempt;
/// # use core::task::{Context, Waker};
/// # use core::pin::pin;
/// struct Third(u32);
/// impl AsyncOperation for Third {
///     type Output = &'static str;
///     fn attempt(&mut self) -> Attempt<&'static str> {
///         self.0 += 1;
///         if self.0 == 3 { Attempt::Done("done") } else { Attempt::Again }
///     }
/// }
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(pin!(until(Third(0))).poll(&mut context).is_ready());
/// ```
pub fn until<O: AsyncOperation + Unpin>(operation: O) -> Repeating<O> {
    Repeating { operation, turn: RetryTurn::default(), watch: TaskWatch::default(), sleep: None }
}

impl<O> Repeating<O> {
    /// Sets the time after which an operation is tried again without a change.
    ///
    /// Then it looks for deaths. By default 4 ms, and then twice as long each time, up to 32 ms.
    ///
    /// ```
    /// # use std::{pin::pin, task::{Context, Waker}, time::Duration};
    /// # use towpath_readiness::{ValueReception, until};
    /// # use towpath_sync::queues::{Mpmc, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(16); // towpath::mpmc::queue
    /// sender.send(7).expect("there is room");
    /// // Learns of a death within 10 ms:
    /// let reception = until(ValueReception(&receiver)).with_turn(Duration::from_millis(10));
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(pin!(reception).poll(&mut context).is_ready());
    /// ```
    pub fn with_turn(self, turn: Duration) -> Self {
        Repeating { turn: RetryTurn::always(turn), ..self }
    }
}

impl<O: AsyncOperation + Unpin> Future for Repeating<O> {
    type Output = O::Output;

    /// # Panics
    ///
    /// If the system refuses the thread that wakes tasks, or has none left.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<O::Output> {
        self.sleep = None;
        loop {
            match self.operation.attempt() {
                Attempt::Done(output) => {
                    self.watch.end();
                    return Poll::Ready(output);
                }
                Attempt::Asleep(_) if self.watch.goes_on() => {
                    // The sender may wait for this core.
                    std::thread::yield_now();
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Attempt::Asleep(asleep) => {
                    let turn = self.turn.next();
                    let sleep = SleepRegistration::new(asleep, turn, context.waker().clone());
                    self.sleep = Some(sleep.expect("a thread to wake tasks"));
                    return Poll::Pending;
                }
                Attempt::Again => {}
            }
        }
    }
}
