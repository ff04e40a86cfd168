//! Endpoints as programs see them: through libfabric's public calls, on the provider that
//! cargo has built.
//!
//! libfabric is the one named in `TOWPATH_LIBFABRIC`, or the one that comes with the MPIs of
//! scripts/install-peers.sh, or the system's.
#![allow(unsafe_code, dead_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::{Duration, Instant};

#[allow(warnings, unsafe_op_in_unsafe_fn, clippy::all)]
pub mod sys {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
use sys::*;

#[path = "library.rs"]
pub mod library;
pub use library::library;
#[path = "home.rs"]
mod home;
pub use home::*;

/// An entry of an object's table.
macro_rules! call {
    ($object:expr, $table:ident, $name:ident $(, $arg:expr)*) => {{
        let object = $object;
        ((*(*object).$table).$name.expect("no table has holes"))(object $(, $arg)*)
    }};
}
pub(crate) use call;

/// Closes an object, as `fi_close`.
pub fn close<T>(object: *mut T) -> c_int {
    let fid: *mut fid = object.cast();
    // SAFETY: all objects begin with a `fid`; the tests close only what is open.
    unsafe { ((*(*fid).ops).close.expect("no table has holes"))(fid) }
}

/// Binds one object to another, as `fi_ep_bind`.
pub fn bind<T, U>(object: *mut T, other: *mut U, flags: u64) -> c_int {
    let fid: *mut fid = object.cast();
    // SAFETY: all objects begin with a `fid`; the tests bind only what is open.
    unsafe { ((*(*fid).ops).bind.expect("no table has holes"))(fid, other.cast(), flags) }
}

/// `fi_control`.
///
/// # Safety
///
/// The argument is what the command asks for.
pub unsafe fn control<T>(object: *mut T, command: u32, arg: *mut c_void) -> c_int {
    let fid: *mut fid = object.cast();
    // SAFETY: all objects begin with a `fid`; the argument is what the command asks for, as the
    // caller promises.
    unsafe { ((*(*fid).ops).control.expect("no table has holes"))(fid, command as c_int, arg) }
}

/// A report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub context: usize,
    pub flags: u64,
    pub len: usize,
    pub buffer: usize,
    pub data: u64,
    pub tag: u64,
    /// Number in the address vector; of errors not known.
    pub source: u64,
    /// 0, or an error.
    pub error: i32,
    /// Bytes that found no space.
    pub excess: usize,
}

/// An endpoint with a completion queue for each direction, its address vector and its
/// counters.
pub struct Node {
    pub ep: *mut fid_ep,
    pub tx: *mut fid_cq,
    pub rx: *mut fid_cq,
    pub av: *mut fid_av,
    /// Counters of sends, receives, reads, writes, remote reads, remote writes.
    pub counters: [*mut fid_cntr; 6],
    /// Address here of each number of a node.
    pub peers: Vec<fi_addr_t>,
    pub format: fi_cq_format,
    pub home: Rc<Home>,
}

/// Bytes of an address.
pub const NAME: usize = 64;
/// Any sender.
pub const ANY: fi_addr_t = u64::MAX;
/// Result codes of the calls that start operations.
pub const AGAIN: isize = -(FI_EAGAIN as isize);
pub const INVALID: isize = -(FI_EINVAL as isize);

/// Operations that the counters are bound for.
pub const COUNTED: [u32; 6] = [FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE];

pub fn open_cq(home: &Home, format: fi_cq_format, wait: fi_wait_obj) -> Result<*mut fid_cq, c_int> {
    let mut cq = null_mut();
    // SAFETY: attributes may be zero; an open domain, and a place for the answer.
    let result = unsafe {
        let mut attr: fi_cq_attr = core::mem::zeroed();
        (attr.format, attr.wait_obj) = (format, wait);
        call!(home.domain, ops, cq_open, &raw mut attr, &raw mut cq, null_mut())
    };
    if result == 0 { Ok(cq) } else { Err(result) }
}

pub fn open_counter(home: &Home, wait: fi_wait_obj) -> *mut fid_cntr {
    let mut counter = null_mut();
    // SAFETY: attributes may be zero; an open domain, and a place for the answer.
    unsafe {
        let mut attr: fi_cntr_attr = core::mem::zeroed();
        attr.wait_obj = wait;
        assert_eq!(call!(home.domain, ops, cntr_open, &raw mut attr, &raw mut counter, null_mut()), 0);
    }
    counter
}

pub fn open_av(home: &Home, kind: fi_av_type) -> *mut fid_av {
    let mut av = null_mut();
    // SAFETY: attributes may be zero; an open domain, and a place for the answer.
    unsafe {
        let mut attr: fi_av_attr = core::mem::zeroed();
        attr.type_ = kind;
        assert_eq!(call!(home.domain, ops, av_open, &raw mut attr, &raw mut av, null_mut()), 0);
    }
    av
}

impl Node {
    /// An endpoint that is ready, and knows no peer.
    pub fn new(home: &Rc<Home>, options: &Options) -> Node {
        let node = Node::bound(home, options);
        assert_eq!(node.enable(), 0);
        node
    }

    /// An endpoint that is not enabled yet.
    pub fn bound(home: &Rc<Home>, options: &Options) -> Node {
        let mut ep = null_mut();
        // SAFETY: an open domain, its info, and a place for the answer.
        unsafe { assert_eq!(call!(home.domain, ops, endpoint, home.info.0, &raw mut ep, null_mut()), 0) };
        let [tx, rx] = [(); 2].map(|()| open_cq(home, options.format, options.wait).expect("a queue"));
        let av = open_av(home, options.av);
        let counters = COUNTED.map(|_| open_counter(home, options.wait));
        let selective = if options.selective { FI_SELECTIVE_COMPLETION } else { 0 };
        assert_eq!(bind(ep, av, 0), 0);
        assert_eq!(bind(ep, tx, u64::from(FI_SEND) | selective), 0);
        assert_eq!(bind(ep, rx, u64::from(FI_RECV) | selective), 0);
        for (counter, what) in counters.into_iter().zip(COUNTED) {
            assert_eq!(bind(ep, counter, what.into()), 0);
        }
        let (peers, home) = (Vec::new(), Rc::clone(home));
        Node { ep, tx, rx, av, counters, peers, format: options.format, home }
    }

    /// `fi_enable`.
    pub fn enable(&self) -> c_int {
        // SAFETY: an open endpoint; no argument.
        unsafe { control(self.ep, FI_ENABLE, null_mut()) }
    }

    /// Its address.
    pub fn name(&self) -> [u8; NAME] {
        let (mut name, mut len) = ([0; NAME], NAME);
        // SAFETY: as many bytes of space as is said.
        let result = unsafe {
            let getname = (*(*self.ep).cm).getname.expect("no table has holes");
            getname(self.ep.cast(), name.as_mut_ptr().cast(), &raw mut len)
        };
        assert_eq!((result, len), (0, NAME));
        name
    }

    /// Puts an address into its vector; `None` if it is refused.
    pub fn insert(&self, name: &[u8; NAME]) -> Option<fi_addr_t> {
        let mut number = 0;
        // SAFETY: one address, and a place for its number.
        let n =
            unsafe { call!(self.av, ops, insert, name.as_ptr().cast(), 1, &raw mut number, 0, null_mut()) };
        (n == 1).then_some(number)
    }

    /// Learns of a peer: the next number.
    pub fn meet(&mut self, name: &[u8; NAME]) {
        let number = self.insert(name).expect("an address");
        self.peers.push(number);
    }

    /// The next report of a queue.
    pub fn take(&self, cq: *mut fid_cq) -> Option<Report> {
        // SAFETY: space for an entry of the longest format, and for its source; plain C structures
        // may be zero.
        unsafe {
            let mut entry: fi_cq_tagged_entry = core::mem::zeroed();
            let mut source = ANY;
            match call!(cq, ops, readfrom, (&raw mut entry).cast(), 1, &raw mut source) {
                1 => {
                    let context = entry.op_context as usize;
                    let mut report = Report { context, source, ..Report::default() };
                    if self.format >= FI_CQ_FORMAT_MSG {
                        (report.flags, report.len) = (entry.flags, entry.len);
                    }
                    if self.format >= FI_CQ_FORMAT_DATA {
                        (report.buffer, report.data) = (entry.buf as usize, entry.data);
                    }
                    if self.format >= FI_CQ_FORMAT_TAGGED {
                        report.tag = entry.tag;
                    }
                    Some(report)
                }
                n if n == -(FI_EAVAIL as isize) => {
                    let mut e: fi_cq_err_entry = core::mem::zeroed();
                    assert_eq!(call!(cq, ops, readerr, &raw mut e, 0), 1);
                    let (context, buffer) = (e.op_context as usize, e.buf as usize);
                    let fi_cq_err_entry { flags, len, data, tag, olen: excess, err: error, .. } = e;
                    assert_ne!(error, 0);
                    Some(Report { context, flags, len, buffer, data, tag, source: ANY, error, excess })
                }
                n => {
                    assert_eq!(n, AGAIN);
                    None
                }
            }
        }
    }

    /// Returns whether there is a report. Makes progress, and never waits, as reading an
    /// empty queue may.
    pub fn has_report(&self, cq: *mut fid_cq) -> bool {
        let mut fids: [*mut fid; 1] = [cq.cast()];
        // SAFETY: an open fabric and an open queue.
        unsafe { call!(self.home.fabric, ops, trywait, fids.as_mut_ptr(), 1) != 0 }
    }

    /// A counter's successes. Makes progress.
    pub fn count(&self, of: u32) -> u64 {
        let which = COUNTED.iter().position(|&what| what == of).expect("counted");
        // SAFETY: an open counter.
        unsafe { call!(self.counters[which], ops, read) }
    }

    /// A counter's errors.
    pub fn errors(&self, of: u32) -> u64 {
        let which = COUNTED.iter().position(|&what| what == of).expect("counted");
        // SAFETY: an open counter.
        unsafe { call!(self.counters[which], ops, readerr) }
    }

    /// Sends: tagged if there is a tag.
    pub fn send(&self, to: fi_addr_t, tag: Option<u64>, bytes: &[u8], context: usize) -> isize {
        let (at, len, context) = (bytes.as_ptr().cast(), bytes.len(), context as *mut c_void);
        // SAFETY: the tests keep what they send until it is reported, here and below.
        unsafe {
            match tag {
                Some(tag) => call!(self.ep, tagged, send, at, len, null_mut(), to, tag, context),
                None => call!(self.ep, msg, send, at, len, null_mut(), to, context),
            }
        }
    }

    /// Sends with flags, and with data if they say so.
    pub fn send_message(
        &self,
        to: fi_addr_t,
        tag: Option<u64>,
        pieces: &[&[u8]],
        data: u64,
        context: usize,
        flags: u64,
    ) -> isize {
        let iov: Vec<iovec> =
            pieces.iter().map(|p| iovec { iov_base: p.as_ptr() as *mut _, iov_len: p.len() }).collect();
        self.send_iov(to, tag, &iov, data, context, flags)
    }

    pub fn send_iov(
        &self,
        to: fi_addr_t,
        tag: Option<u64>,
        iov: &[iovec],
        data: u64,
        context: usize,
        flags: u64,
    ) -> isize {
        // SAFETY: messages may be zero but for what is set; the pieces stay until the completion.
        unsafe {
            if let Some(tag) = tag {
                let mut m: fi_msg_tagged = core::mem::zeroed();
                (m.msg_iov, m.iov_count, m.addr) = (iov.as_ptr(), iov.len(), to);
                (m.tag, m.data, m.context) = (tag, data, context as *mut c_void);
                call!(self.ep, tagged, sendmsg, &raw const m, flags)
            } else {
                let mut m: fi_msg = core::mem::zeroed();
                (m.msg_iov, m.iov_count, m.addr) = (iov.as_ptr(), iov.len(), to);
                (m.data, m.context) = (data, context as *mut c_void);
                call!(self.ep, msg, sendmsg, &raw const m, flags)
            }
        }
    }

    /// Posts a receive: tagged if there is a tag (and bits to be ignored).
    pub fn receive(
        &self,
        from: fi_addr_t,
        tag: Option<(u64, u64)>,
        into: &mut [u8],
        context: usize,
    ) -> isize {
        let (at, len, context) = (into.as_mut_ptr().cast(), into.len(), context as *mut c_void);
        // SAFETY: the tests keep what they receive into until it is reported, here and below.
        unsafe {
            match tag {
                Some((tag, ignore)) => {
                    call!(self.ep, tagged, recv, at, len, null_mut(), from, tag, ignore, context)
                }
                None => call!(self.ep, msg, recv, at, len, null_mut(), from, context),
            }
        }
    }

    /// Posts a receive with flags.
    pub fn receive_message(
        &self,
        from: fi_addr_t,
        tag: Option<(u64, u64)>,
        pieces: &mut [&mut [u8]],
        context: usize,
        flags: u64,
    ) -> isize {
        let iov: Vec<iovec> =
            pieces.iter_mut().map(|p| iovec { iov_base: p.as_mut_ptr().cast(), iov_len: p.len() }).collect();
        // SAFETY: as in `send_message`.
        unsafe {
            if let Some((tag, ignore)) = tag {
                let mut m: fi_msg_tagged = core::mem::zeroed();
                (m.msg_iov, m.iov_count, m.addr) = (iov.as_ptr(), iov.len(), from);
                (m.tag, m.ignore, m.context) = (tag, ignore, context as *mut c_void);
                call!(self.ep, tagged, recvmsg, &raw const m, flags)
            } else {
                let mut m: fi_msg = core::mem::zeroed();
                (m.msg_iov, m.iov_count, m.addr) = (iov.as_ptr(), iov.len(), from);
                m.context = context as *mut c_void;
                call!(self.ep, msg, recvmsg, &raw const m, flags)
            }
        }
    }

    /// Takes a receive back.
    pub fn cancel(&self, context: usize) -> isize {
        // SAFETY: an open endpoint.
        unsafe {
            ((*(*self.ep).ops).cancel.expect("no table has holes"))(self.ep.cast(), context as *mut c_void)
        }
    }

    /// Lets others use memory, by this key. The caller keeps the memory until the
    /// registration is closed.
    pub fn register(&self, bytes: &[u8], access: u32, key: u64) -> Result<*mut fid_mr, c_int> {
        let mut mr = null_mut();
        // SAFETY: an open domain; the caller's promise.
        let result = unsafe {
            let reg = (*(*self.home.domain).mr).reg.expect("no table has holes");
            let (at, len) = (bytes.as_ptr().cast(), bytes.len());
            reg(self.home.domain.cast(), at, len, access.into(), 0, key, 0, &raw mut mr, null_mut())
        };
        if result == 0 { Ok(mr) } else { Err(result) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert_eq!(close(self.ep), 0);
        for cq in [self.tx, self.rx] {
            assert_eq!(close(cq), 0);
        }
        assert_eq!(close(self.av), 0);
        for counter in self.counters {
            assert_eq!(close(counter), 0);
        }
    }
}

/// Endpoints that know each other: number `i` is `peers[i]` of each.
pub fn nodes(n: usize, options: &Options) -> Vec<Node> {
    let first = Home::new(options);
    let home = |i: usize| if i == 0 || options.together { Rc::clone(&first) } else { Home::new(options) };
    let mut nodes: Vec<Node> = (0..n).map(|i| Node::new(&home(i), options)).collect();
    let names: Vec<_> = nodes.iter().map(Node::name).collect();
    for node in &mut nodes {
        names.iter().for_each(|name| node.meet(name));
    }
    nodes
}

/// Time-out of a wait for a report. Nothing is slow here: it is the end of a test that
/// hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Makes progress everywhere until there is something to return.
#[track_caller]
pub fn until<T>(nodes: &[Node], mut what: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "nothing comes");
        progress(nodes);
    }
}

/// Makes some progress everywhere; takes no report.
pub fn progress(nodes: &[Node]) {
    for node in nodes {
        // SAFETY: no space for entries, and none is asked for.
        unsafe { assert!(call!(node.rx, ops, read, null_mut(), 0) <= 0) };
    }
}

/// Lets all make progress until surely nothing happens any more.
pub fn settle(nodes: &[Node]) {
    for _ in 0..6 {
        for node in nodes {
            node.has_report(node.rx);
        }
    }
}

/// The next report of a node's sends, reads or writes.
#[track_caller]
pub fn sent(nodes: &[Node], i: usize) -> Report {
    until(nodes, || nodes[i].take(nodes[i].tx))
}

/// The next report of a node's receives.
#[track_caller]
pub fn received(nodes: &[Node], i: usize) -> Report {
    until(nodes, || nodes[i].take(nodes[i].rx))
}

/// Asserts that nothing is reported anywhere.
#[track_caller]
pub fn nothing_more(nodes: &[Node]) {
    settle(nodes);
    for (i, node) in nodes.iter().enumerate() {
        assert_eq!(node.take(node.tx), None, "node {i}");
        assert_eq!(node.take(node.rx), None, "node {i}");
    }
}

/// Starts an operation, again and again until there is space.
#[track_caller]
pub fn start(nodes: &[Node], mut what: impl FnMut() -> isize) {
    until(nodes, || match what() {
        AGAIN => None,
        0 => Some(()),
        n => panic!("refused: {n}"),
    });
}

/// Bytes that differ by place and by seed.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
}

/// A value that another thread may use: libfabric's objects are made for that.
pub struct Shared<T>(pub T);
// SAFETY: the tests share only what the threading model that they asked for permits.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: the tests share only what the threading model that they asked for permits.
unsafe impl<T> Sync for Shared<T> {}
