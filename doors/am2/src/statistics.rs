//! Statistics of an endpoint: numbers of messages and bytes.
#![allow(unsafe_code)]

use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_char, c_int, c_void};
use core::fmt::Write;
use std::ffi::CString;

use towpath_am::MAX_ARGS;

use crate::call::{answered, null, put};
use crate::endpoint::{AmEndpoint, answered_in_turn};

/// Form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    Short = 0,
    Medium = 1,
    Long = 2,
}

/// Number of forms.
const CATEGORIES: usize = 3;
/// Number of bytes that a message takes beside its payload: a packet.
const OVERHEAD: u64 = 64;

/// Statistics: `ammpi_stats_t`. Latencies are not measured.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the header describes them")]
pub struct AmStatistics {
    pub requests_sent: [u64; CATEGORIES],
    pub replies_sent: [u64; CATEGORIES],
    pub requests_received: [u64; CATEGORIES],
    pub replies_received: [u64; CATEGORIES],
    pub returned_messages: u64,
    pub request_min_latency: u64,
    pub request_max_latency: u64,
    pub request_sum_latency: u64,
    pub request_data_bytes_sent: [u64; CATEGORIES],
    pub reply_data_bytes_sent: [u64; CATEGORIES],
    pub request_total_bytes_sent: [u64; CATEGORIES],
    pub reply_total_bytes_sent: [u64; CATEGORIES],
    pub total_bytes_sent: u64,
}

const NOTHING: AmStatistics = AmStatistics {
    requests_sent: [0; CATEGORIES],
    replies_sent: [0; CATEGORIES],
    requests_received: [0; CATEGORIES],
    replies_received: [0; CATEGORIES],
    returned_messages: 0,
    request_min_latency: u64::MAX,
    request_max_latency: 0,
    request_sum_latency: 0,
    request_data_bytes_sent: [0; CATEGORIES],
    reply_data_bytes_sent: [0; CATEGORIES],
    request_total_bytes_sent: [0; CATEGORIES],
    reply_total_bytes_sent: [0; CATEGORIES],
    total_bytes_sent: 0,
};

/// Statistics of an endpoint without messages.
#[unsafe(no_mangle)]
pub static AMMPI_initial_stats: AmStatistics = NOTHING;

/// Numbers for one direction and form.
#[derive(Default)]
struct Count {
    sent: Cell<u64>,
    received: Cell<u64>,
    bytes: Cell<u64>,
}

/// An endpoint's counters. They change within turns of its bundle.
#[derive(Default)]
pub(crate) struct EndpointCounters {
    replies: [Count; CATEGORIES],
    requests: [Count; CATEGORIES],
    /// Numbers of short replies and requests since the last look, by their arguments.
    ///
    /// One count for a message, where there are two in [`Count`].
    short_sent: [[Cell<u64>; MAX_ARGS + 1]; 2],
    returned: Cell<u64>,
}

impl EndpointCounters {
    #[inline]
    fn of(&self, is_request: bool, category: Category) -> &Count {
        let all = if is_request { &self.requests } else { &self.replies };
        &all[category as usize]
    }

    #[inline]
    pub fn sent_short(&self, is_request: bool, args: usize) {
        if let Some(count) = self.short_sent[usize::from(is_request)].get(args) {
            count.set(count.get() + 1);
        }
    }

    #[inline]
    pub fn sent(&self, is_request: bool, category: Category, args: usize, payload: usize) {
        self.add(is_request, category, 1, 4 * args + payload);
    }

    #[inline]
    fn add(&self, is_request: bool, category: Category, messages: u64, bytes: usize) {
        let count = self.of(is_request, category);
        count.sent.set(count.sent.get() + messages);
        count.bytes.set(count.bytes.get() + bytes as u64);
    }

    /// Adds up the short messages.
    fn settle(&self) {
        for (is_request, counts) in [false, true].into_iter().zip(&self.short_sent) {
            for (args, count) in counts.iter().enumerate() {
                let messages = count.take();
                self.add(is_request, Category::Short, messages, 4 * args * messages as usize);
            }
        }
    }

    #[inline]
    pub fn received(&self, is_request: bool, category: Category) {
        let count = self.of(is_request, category);
        count.received.set(count.received.get() + 1);
    }

    pub fn returned(&self) {
        self.returned.set(self.returned.get() + 1);
    }

    fn statistics(&self) -> AmStatistics {
        self.settle();
        let each = |all: &[Count; CATEGORIES], value: fn(&Count) -> u64| {
            core::array::from_fn::<u64, CATEGORIES, _>(|at| value(&all[at]))
        };
        let total = |count: &Count| count.bytes.get() + OVERHEAD * count.sent.get();
        let (requests, replies) = (each(&self.requests, total), each(&self.replies, total));
        AmStatistics {
            requests_sent: each(&self.requests, |count| count.sent.get()),
            replies_sent: each(&self.replies, |count| count.sent.get()),
            requests_received: each(&self.requests, |count| count.received.get()),
            replies_received: each(&self.replies, |count| count.received.get()),
            returned_messages: self.returned.get(),
            request_data_bytes_sent: each(&self.requests, |count| count.bytes.get()),
            reply_data_bytes_sent: each(&self.replies, |count| count.bytes.get()),
            request_total_bytes_sent: requests,
            reply_total_bytes_sent: replies,
            total_bytes_sent: requests.iter().chain(&replies).sum(),
            ..NOTHING
        }
    }

    fn reset(&self) {
        self.settle();
        for count in self.requests.iter().chain(&self.replies) {
            count.sent.set(0);
            count.received.set(0);
            count.bytes.set(0);
        }
        self.returned.set(0);
    }
}

/// The endpoint's statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_GetEndpointStatistics(
    endpoint: Option<&AmEndpoint>,
    statistics: *mut AmStatistics,
) -> c_int {
    answered_in_turn("AMMPI_GetEndpointStatistics", endpoint, |endpoint| {
        // SAFETY: null, or a place for statistics, says the header.
        unsafe { put(statistics, endpoint.counters.statistics()) }
    })
}

/// Begins the endpoint's statistics anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_ResetEndpointStatistics(endpoint: Option<&AmEndpoint>) -> c_int {
    answered_in_turn("AMMPI_ResetEndpointStatistics", endpoint, |endpoint| {
        endpoint.counters.reset();
        Ok(())
    })
}

/// Adds statistics to a sum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_AggregateStatistics(
    sum: Option<&mut AmStatistics>,
    more: Option<&AmStatistics>,
) -> c_int {
    answered("AMMPI_AggregateStatistics", || {
        let (sum, more) = (sum.ok_or_else(null)?, more.ok_or_else(null)?);
        let add = |sum: &mut [u64], more: &[u64]| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        };
        add(&mut sum.requests_sent, &more.requests_sent);
        add(&mut sum.replies_sent, &more.replies_sent);
        add(&mut sum.requests_received, &more.requests_received);
        add(&mut sum.replies_received, &more.replies_received);
        sum.returned_messages += more.returned_messages;
        sum.request_min_latency = sum.request_min_latency.min(more.request_min_latency);
        sum.request_max_latency = sum.request_max_latency.max(more.request_max_latency);
        sum.request_sum_latency += more.request_sum_latency;
        add(&mut sum.request_data_bytes_sent, &more.request_data_bytes_sent);
        add(&mut sum.reply_data_bytes_sent, &more.reply_data_bytes_sent);
        add(&mut sum.request_total_bytes_sent, &more.request_total_bytes_sent);
        add(&mut sum.reply_total_bytes_sent, &more.reply_total_bytes_sent);
        sum.total_bytes_sent += more.total_bytes_sent;
        Ok(())
    })
}

/// The statistics as a table.
fn table(statistics: &AmStatistics, is_global: bool) -> String {
    let mut text = String::new();
    let whose = if is_global { "all endpoints" } else { "this endpoint" };
    // Writing into a string does not fail.
    let _ = writeln!(text, "Active Messages of {whose}:  short  medium  long");
    let rows = [
        ("requests sent", statistics.requests_sent),
        ("replies sent", statistics.replies_sent),
        ("requests received", statistics.requests_received),
        ("replies received", statistics.replies_received),
        ("bytes of requests", statistics.request_data_bytes_sent),
        ("bytes of replies", statistics.reply_data_bytes_sent),
    ];
    for (name, [short, medium, long]) in rows {
        let _ = writeln!(text, "  {name}: {short}  {medium}  {long}");
    }
    let _ = writeln!(text, "  messages that came back: {}", statistics.returned_messages);
    let _ = writeln!(text, "  bytes sent in all: {}", statistics.total_bytes_sent);
    text
}

/// The last table that was written, until the next one.
struct LastTable(UnsafeCell<Option<CString>>);

// SAFETY: the header says that one thread at a time calls the only function that uses it.
unsafe impl Sync for LastTable {}

static LAST: LastTable = LastTable(UnsafeCell::new(None));

/// Writes statistics to a stream of C's, if there is one, and returns the text, which
/// stays until the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_DumpStatistics(
    stream: *mut c_void,
    statistics: Option<&AmStatistics>,
    is_global: c_int,
) -> *const c_char {
    let Some(statistics) = statistics else { return c"".as_ptr() };
    let text = CString::new(table(statistics, is_global != 0)).unwrap_or_default();
    // SAFETY: see `LastTable`.
    let last = unsafe { &mut *LAST.0.get() };
    let text = last.insert(text);
    if !stream.is_null() {
        // SAFETY: a stream of C's, says the header; a text.
        unsafe { libc::fputs(text.as_ptr(), stream.cast()) };
    }
    text.as_ptr()
}
