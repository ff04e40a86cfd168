//! Handlers of an endpoint: the table, and the changes that wait for a handler that runs.
//!
//! The table is borrowed while a handler runs, for nothing is counted then. A handler that sets or
//! removes one leaves the change in `changes`; it is made when that handler has returned.
//!
//! **Fields.** All of it belongs to the thread that uses the endpoint; a signal in this thread
//! looks at the table only where no call is under way (`calls.rs`).

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::state::Domain;

/// Number of handlers of an endpoint.
pub(crate) const HANDLERS: usize = 256;

/// Threads and signals in which a handler may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerScope {
    /// The thread that has set it.
    OneThread,
    /// Each thread in its turn.
    AllThreads,
    /// A signal, too.
    Signals,
}

/// Handler that is set.
pub(crate) struct SetHandler<D: Domain> {
    pub call: Rc<D::Handler>,
    pub scope: HandlerScope,
}

/// Handlers of an endpoint.
pub(crate) struct Handlers<D: Domain> {
    pub table: RefCell<Vec<Option<SetHandler<D>>>>,
    changes: RefCell<Vec<(u8, Option<SetHandler<D>>)>>,
    /// True while changes wait.
    pub has_changes: Cell<bool>,
}

impl<D: Domain> Default for Handlers<D> {
    fn default() -> Self {
        Handlers {
            table: RefCell::new((0..HANDLERS).map(|_| None).collect()),
            changes: RefCell::default(),
            has_changes: Cell::new(false),
        }
    }
}

impl<D: Domain> Handlers<D> {
    /// Sets or removes a handler, now or when the one that runs has returned.
    pub fn set(&self, index: u8, handler: Option<SetHandler<D>>) {
        self.changes.borrow_mut().push((index, handler));
        self.has_changes.set(true);
        self.make_changes();
    }

    /// Makes the changes that wait, unless a handler runs.
    #[cold]
    #[inline(never)]
    pub fn make_changes(&self) {
        loop {
            let Ok(mut table) = self.table.try_borrow_mut() else { return };
            let changes = self.changes.take();
            self.has_changes.set(false);
            if changes.is_empty() {
                return;
            }
            let mut former = Vec::new();
            for (index, handler) in changes {
                former.push(core::mem::replace(&mut table[usize::from(index)], handler));
            }
            drop(table);
            // A drop of their captures may set handlers.
            drop(former);
        }
    }

    /// Returns a handler, if it is set.
    pub fn get(&self, index: u8) -> Option<Rc<D::Handler>> {
        if self.has_changes.get() {
            // Left by a handler that panicked.
            self.make_changes();
        }
        self.table.borrow()[usize::from(index)].as_ref().map(|handler| handler.call.clone())
    }

    /// Returns whether a handler may run in a signal. False also while a handler runs.
    pub fn is_for_signals(&self, index: u8) -> bool {
        let is_marked = |handler: &SetHandler<D>| handler.scope == HandlerScope::Signals;
        self.table.try_borrow().is_ok_and(|all| all[usize::from(index)].as_ref().is_some_and(is_marked))
    }

    /// Returns a handler that stays in its thread, if one is set.
    pub fn of_one_thread(&self) -> Option<usize> {
        let stays = |handler: &Option<SetHandler<D>>| {
            handler.as_ref().is_some_and(|it| it.scope == HandlerScope::OneThread)
        };
        let waiting =
            self.changes.borrow().iter().find(|(_, handler)| stays(handler)).map(|(index, _)| *index);
        waiting.map(usize::from).or_else(|| self.table.borrow().iter().position(stays))
    }
}
