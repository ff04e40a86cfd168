//! Operations of queues between threads for values of any type.

use towpath_derive::OpaqueDebug;
use towpath_sync::Attempt;
use towpath_sync::queues::{OwnedReceiver, OwnedSender, QueueKind, TransferError, Unsent};

use crate::operation::{AsyncOperation, AsyncReceiver, AsyncSender};
use crate::repeating::{Repeating, until};

/// Reception of a value of any type.
#[derive(OpaqueDebug)]
pub struct OwnedReception<'a, T, K: QueueKind>(pub &'a OwnedReceiver<T, K>);

impl<T: Send, K: QueueKind> AsyncOperation for OwnedReception<'_, T, K> {
    type Output = Result<T, TransferError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.0.attempt_receive()
    }
}

/// Sending of a value of any type.
#[derive(OpaqueDebug)]
pub struct OwnedSending<'a, T, K: QueueKind> {
    sender: &'a OwnedSender<T, K>,
    value: Option<T>,
}

impl<'a, T: Send, K: QueueKind> OwnedSending<'a, T, K> {
    /// Sending of that value.
    ///
    /// ```
    /// use towpath_readiness::{AsyncOperation, OwnedSending};
    /// use towpath_sync::Attempt;
    /// use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    ///
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(16); // towpath::mpmc::owned
    /// let mut sending = OwnedSending::new(&sender, "seven".to_owned());
    /// assert!(matches!(sending.attempt(), Attempt::Done(Ok(()))));
    /// assert_eq!(receiver.receive()?, "seven");
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn new(sender: &'a OwnedSender<T, K>, value: T) -> Self {
        OwnedSending { sender, value: Some(value) }
    }

    /// The value, unless it was sent.
    ///
    /// ```
    /// # use towpath_readiness::{AsyncOperation, OwnedSending};
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(1); // towpath::mpmc::owned
    /// sender.send("seven".to_owned())?;
    /// let mut sending = OwnedSending::new(&sender, "eight".to_owned());
    /// sending.attempt(); // it is full
    /// assert_eq!(sending.into_value().as_deref(), Some("eight"));
    /// # drop(receiver);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn into_value(self) -> Option<T> {
        self.value
    }
}

impl<T: Send, K: QueueKind> AsyncOperation for OwnedSending<'_, T, K> {
    type Output = Result<(), Unsent<T>>;

    /// # Panics
    ///
    /// If it was done before.
    fn attempt(&mut self) -> Attempt<Self::Output> {
        let tried = self.sender.attempt_send(&mut self.value);
        tried.map(|sent| {
            sent.map_err(|error| {
                let value = self.value.take().expect("a value that was refused comes back");
                Unsent { sent: 0, value, error }
            })
        })
    }
}

/// ```
/// use towpath_readiness::AsyncReceiver;
/// # use towpath_sync::queues::{TransferError, Mpmc, OwnedReceiver};
///
/// // towpath::mpmc::OwnedReceiver<String>
/// async fn next(lines: &OwnedReceiver<String, Mpmc>) -> Result<String, TransferError> {
///     lines.receive_async().await
/// }
/// ```
impl<T: Send, K: QueueKind> AsyncReceiver for OwnedReceiver<T, K> {
    type Reception<'a>
        = OwnedReception<'a, T, K>
    where
        Self: 'a;
    fn receive_async(&self) -> Repeating<OwnedReception<'_, T, K>> {
        until(OwnedReception(self))
    }
}

/// ```
/// use towpath_readiness::AsyncSender;
/// # use towpath_sync::queues::{Mpmc, OwnedSender, Unsent};
///
/// // towpath::mpmc::OwnedSender<String>
/// async fn enqueue(lines: &OwnedSender<String, Mpmc>) -> Result<(), Unsent<String>> {
///     lines.send_async("seven".to_owned()).await
/// }
/// ```
impl<T: Send + Unpin, K: QueueKind> AsyncSender for OwnedSender<T, K> {
    type Value = T;
    type Sending<'a>
        = OwnedSending<'a, T, K>
    where
        Self: 'a;
    fn send_async(&self, value: T) -> Repeating<OwnedSending<'_, T, K>> {
        until(OwnedSending::new(self, value))
    }
}
