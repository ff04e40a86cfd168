//! Fences of a thread, as they are written or weakened.

use towpath_machine::Ordering;

use crate::footprint::TouchedObject;
use crate::pending::Pending;
use crate::processor::Explorer;
use crate::words::MemoryModel;

impl Explorer {
    /// A fence of this order, of which weakening has kept that much.
    pub(crate) fn make_fence(&self, order: Ordering, kept: Option<Ordering>) {
        let is_weaker = kept != Some(order);
        if is_weaker && self.runs() && !self.retraces() {
            self.memory.0.inner.borrow_mut().written_fence(self.index, order);
        }
        let Some(order) = kept else { return };
        let is_step = order == Ordering::SeqCst && self.memory.0.inner.borrow().model == MemoryModel::C11;
        if is_step {
            return self.turn(Pending::open("fence", TouchedObject::Fence), |inner| {
                if inner.current.is_some() {
                    inner.fence(self.index, order, !is_weaker);
                }
                inner.line(self.index, "fence", Default::default);
            });
        }
        self.learn();
        self.act(|inner| {
            if inner.current == Some(self.index) {
                inner.fence(self.index, order, !is_weaker);
            }
        });
    }

    /// A compiler's fence, or the rest of a heavy one.
    pub(crate) fn make_light_fence(&self, order: Ordering, kept: Option<Ordering>) {
        if self.memory.0.inner.borrow().fences_wholly {
            return self.make_fence(order, kept);
        }
        let is_due = self.act(|inner| {
            if kept.is_some() {
                inner.settle_stores(self.index);
            }
            inner.fence_lightly(self.index, kept.is_some())
        });
        if is_due {
            self.turn(Pending::open("light fence", TouchedObject::Fence), |inner| {
                // (M3) SeqCst: the rest of a heavy fence; pairs with (M4).
                inner.fence(self.index, Ordering::SeqCst, true);
                inner.line(self.index, "light fence", Default::default);
            });
        }
    }

    /// A step: a fence of each thread, of some at their next light one.
    pub(crate) fn fence_all(&self, name: &'static str, is_kept: bool) {
        self.turn(Pending::open(name, TouchedObject::Fence), |inner| {
            if inner.current.is_some() {
                inner.fence_all(self.index, is_kept);
            }
            inner.line(self.index, name, Default::default);
        });
    }
}
