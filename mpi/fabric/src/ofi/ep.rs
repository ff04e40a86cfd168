//! Endpoints: opening, binding, options, names.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::rc::Rc;

use crate::device::connect::address::{ADDRESS_BYTES, Address};
use crate::device::connect::locator::Locator;
use crate::device::connect::service::{Service, Taken};
use crate::device::endpoint::Endpoint;
use crate::device::operation::Refusal;
use crate::device::peer::NOT_LISTED;
use crate::device::resource::completion::{Class, CompletionTicket};
use crate::device::rma::onesided::RmaTarget;

use super::av::Av;
use super::cntr::Cntr;
use super::cq::Cq;
use super::domain::{DomainGuard, OfiDomain};
use super::eq::Eq;
use super::no::{NOTHING, no};
use super::object::{Hold, header};
use super::sys::*;
use super::{atomic, av, message, names, rma};
use super::{attributes, code, failed};

#[repr(C)]
pub struct Ep {
    fid: fid_ep,
    pub domain: *const OfiDomain,
    pub endpoint: Endpoint,
    av: *const Av,
    /// Peer of each number in the vector.
    peers: Vec<u32>,
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
    /// True if only operations with FI_COMPLETION are reported.
    pub tx_selective: bool,
    pub rx_selective: bool,
    directed: bool,
    /// The service under which it is to be found once it is enabled, and then that it is.
    service: Option<Service>,
    taken: Option<Taken>,
    /// Holds on the domain and on the objects that are bound to the endpoint.
    holds: Vec<Hold>,
}

/// No peer.
const NO_PEER: u32 = u32::MAX;

static FID: fi_ops = fi_ops { close: Some(close), bind: Some(bind), control: Some(control), ..NOTHING };

static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: no(),
    rx_ctx: no(),
    rx_size_left: no(),
    tx_size_left: no(),
};

static CM: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: no(),
    getname: Some(getname),
    getpeer: no(),
    connect: no(),
    listen: no(),
    accept: no(),
    reject: no(),
    shutdown: no(),
    join: no(),
};

pub unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `fi_endpoint(3)`: the caller passes an open domain; the rest is null or valid.
    unsafe {
        if info.is_null() || ep.is_null() {
            return failed(FI_EINVAL);
        }
        let info = &*info;
        if info.ep_attr.as_ref().is_some_and(|attr| ![FI_EP_UNSPEC, FI_EP_RDM].contains(&attr.type_)) {
            return failed(FI_EINVAL);
        }
        let domain: *const OfiDomain = domain.cast();
        let service = match source(info, &*domain) {
            Ok(service) => service,
            Err(errno) => return failed(errno),
        };
        let endpoint = match Endpoint::open((*domain).settings) {
            Ok(endpoint) => endpoint,
            Err(why) => {
                crate::remark!("towpath: no endpoint: {why}");
                return failed(FI_ENOMEM);
            }
        };
        let mut object = Box::new(Ep {
            fid: fid_ep {
                fid: header(FI_CLASS_EP, context, &FID),
                ops: (&raw const OPS).cast_mut(),
                cm: (&raw const CM).cast_mut(),
                msg: (&raw const message::MSG_LATER).cast_mut(),
                rma: (&raw const rma::LATER).cast_mut(),
                tagged: (&raw const message::TAGGED_LATER).cast_mut(),
                atomic: (&raw const atomic::LATER).cast_mut(),
                collective: core::ptr::null_mut(),
            },
            domain,
            endpoint,
            av: core::ptr::null(),
            peers: Vec::new(),
            tx_flags: info.tx_attr.as_ref().map_or(0, |a| a.op_flags).into(),
            rx_flags: info.rx_attr.as_ref().map_or(0, |a| a.op_flags).into(),
            tx_selective: false,
            rx_selective: false,
            directed: info.caps & FI_DIRECTED_RECV != 0,
            service,
            taken: None,
            holds: vec![(*domain).users.hold()],
        });
        let _guard = (*domain).enter();
        // Under the lock: the regions' counts of owners are not atomic.
        object.endpoint.core.regions = (*domain).regions.clone();
        let object = Box::into_raw(object);
        (*domain).endpoints.borrow_mut().push(object);
        *ep = object.cast();
    }
    0
}

/// The service of an endpoint that is opened with these: none unless there is a source
/// address that names one.
unsafe fn source(info: &fi_info, domain: &OfiDomain) -> Result<Option<Service>, u32> {
    if info.src_addr.is_null() {
        return Ok(None);
    }
    if !domain.text && info.src_addrlen < ADDRESS_BYTES {
        return Err(FI_EINVAL);
    }
    // SAFETY: `fi_endpoint(3)`: the caller passes an address of the domain's format, as long as it
    // says.
    match unsafe { names::read(info.src_addr, domain.text) } {
        Some(Locator::Service(service)) => Ok((service != Service::ANY).then_some(service)),
        _ => Err(FI_EADDRNOTAVAIL),
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: `fi_endpoint(3)`: the caller closes an endpoint that `open` has made, once, and does
    // not use it afterwards.
    unsafe {
        let ep: *mut Ep = fid.cast();
        let guard = (*(*ep).domain).enter();
        (*ep).endpoint.close();
        (*(*ep).domain).endpoints.borrow_mut().retain(|&other| other != ep);
        drop(Box::from_raw(ep));
        drop(guard);
    }
    0
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: `fi_endpoint(3)`: `other` is null, or an open object of the class that it names.
    unsafe {
        if other.is_null() {
            return failed(FI_EINVAL);
        }
        let (_guard, ep) = Ep::enter(fid.cast());
        let bound = match (*other).fclass as u32 {
            FI_CLASS_AV => ep.bind_vector(&*other.cast::<Av>()),
            FI_CLASS_CQ => ep.bind_queue(&*other.cast::<Cq>(), flags),
            FI_CLASS_CNTR => ep.bind_counter(&*other.cast::<Cntr>(), flags),
            FI_CLASS_EQ => {
                ep.holds.push((*other.cast::<Eq>()).users.hold());
                Ok(())
            }
            _ => Err(FI_EINVAL),
        };
        bound.map_or_else(failed, |()| 0)
    }
}

const FI_TRANSMIT_: u64 = FI_SEND as u64;
const RECEIVE: u64 = FI_RECV as u64;

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: `fi_endpoint(3)`: the caller passes an open endpoint; the argument is what the
    // command says.
    unsafe {
        let (_guard, ep) = Ep::enter(fid.cast());
        // Relaxed: numbers by themselves, here and where they are read.
        match command as u32 {
            FI_ENABLE => ep.enable(),
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                let Some(flags) = arg.cast::<u64>().as_mut() else { return failed(FI_EINVAL) };
                let direction = *flags & (FI_TRANSMIT_ | u64::from(FI_RECV));
                let (of, offered) = match direction {
                    FI_TRANSMIT_ => (&ep.tx_flags, attributes::TX_FLAGS),
                    RECEIVE => (&ep.rx_flags, attributes::RX_FLAGS),
                    _ => return failed(FI_EINVAL),
                };
                if command as u32 == FI_GETOPSFLAG {
                    *flags = of.load(Ordering::Relaxed);
                } else if *flags & !(direction | offered) != 0 {
                    return failed(FI_EBADFLAGS);
                } else {
                    of.store(*flags & !direction, Ordering::Relaxed);
                }
                0
            }
            _ => failed(FI_ENOSYS),
        }
    }
}

unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> isize {
    // SAFETY: `fi_endpoint(3)` (objects): the caller passes an open endpoint.
    let (_guard, ep) = unsafe { Ep::enter(fid.cast()) };
    if ep.endpoint.cancel(context as usize) { 0 } else { -(FI_ENOENT as isize) }
}

unsafe extern "C" fn getopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    if level != FI_OPT_ENDPOINT as c_int || name != FI_OPT_MIN_MULTI_RECV as c_int {
        return failed(FI_ENOPROTOOPT_);
    }
    if value.is_null() || len.is_null() {
        return failed(FI_EINVAL);
    }
    // SAFETY: `fi_endpoint(3)`: the caller passes `*len` bytes of space.
    unsafe {
        if *len < size_of::<usize>() {
            return -(FI_ETOOSMALL as c_int);
        }
        let (_guard, ep) = Ep::enter(fid.cast());
        value.cast::<usize>().write_unaligned(ep.endpoint.core.min_multi);
        *len = size_of::<usize>();
    }
    0
}

const FI_ENOPROTOOPT_: u32 = libc::ENOPROTOOPT as u32;

unsafe extern "C" fn setopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    if level != FI_OPT_ENDPOINT as c_int || name != FI_OPT_MIN_MULTI_RECV as c_int {
        return failed(FI_ENOPROTOOPT_);
    }
    if value.is_null() || len < size_of::<usize>() {
        return failed(FI_EINVAL);
    }
    // SAFETY: `fi_endpoint(3)`: the caller passes a value of that length.
    unsafe {
        let (_guard, ep) = Ep::enter(fid.cast());
        ep.endpoint.core.min_multi = value.cast::<usize>().read_unaligned();
    }
    0
}

unsafe extern "C" fn getname(fid: *mut fid, address: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: `fi_cm(3)`: the caller passes `*len` bytes of space.
    unsafe {
        if len.is_null() {
            return failed(FI_EINVAL);
        }
        let ep = &*fid.cast::<Ep>();
        let (own, text) = (Locator::Endpoint(ep.endpoint.port.address), (*ep.domain).text);
        if av::write(own, text, address, len) && !address.is_null() { 0 } else { -(FI_ETOOSMALL as c_int) }
    }
}

impl Ep {
    /// The endpoint behind a pointer, and its domain locked.
    ///
    /// # Safety
    ///
    /// It is one, and stays open meanwhile.
    #[inline(always)]
    pub unsafe fn enter<'a>(ep: *mut fid_ep) -> (DomainGuard<'a>, &'a mut Ep) {
        let ep: *mut Ep = ep.cast();
        // SAFETY: the caller's promise; the domain outlives its endpoints. No other thread has a
        // reference while the domain is locked.
        unsafe {
            let domain: &'a OfiDomain = &*(*ep).domain;
            (domain.enter(), &mut *ep)
        }
    }

    fn bind_vector(&mut self, av: &Av) -> Result<(), u32> {
        if !self.av.is_null() {
            return Err(FI_EINVAL);
        }
        if av.domain != self.domain {
            return Err(FI_EDOMAIN);
        }
        self.av = av;
        // SAFETY: a vector is closed by `close` alone.
        self.holds.push(unsafe { av.users.hold() });
        for (number, address) in av.entries.borrow().iter().enumerate() {
            if let Some(address) = address {
                self.learn(av, number as u64, *address);
            }
        }
        Ok(())
    }

    fn bind_queue(&mut self, cq: &Cq, flags: u64) -> Result<(), u32> {
        let (sends, receives) = (flags & FI_TRANSMIT_ != 0, flags & RECEIVE != 0);
        let reports = &mut self.endpoint.core.reports;
        let is_bound = sends && reports.transmit.is_some() || receives && reports.receive.is_some();
        if !sends && !receives || is_bound {
            return Err(FI_EINVAL);
        }
        if cq.domain != self.domain {
            return Err(FI_EDOMAIN);
        }
        let is_selective = flags & FI_SELECTIVE_COMPLETION != 0;
        if sends {
            reports.transmit = Some(Rc::clone(&cq.queue));
            self.tx_selective = is_selective;
        }
        if receives {
            reports.receive = Some(Rc::clone(&cq.queue));
            self.rx_selective = is_selective;
        }
        // SAFETY: a queue is closed by `close` alone.
        self.holds.push(unsafe { cq.users.hold() });
        Ok(())
    }

    fn bind_counter(&mut self, cntr: &Cntr, flags: u64) -> Result<(), u32> {
        let classes = [
            (FI_SEND, Class::Send),
            (FI_RECV, Class::Receive),
            (FI_READ, Class::Read),
            (FI_WRITE, Class::Write),
            (FI_REMOTE_READ, Class::RemoteRead),
            (FI_REMOTE_WRITE, Class::RemoteWrite),
        ];
        let counters = &mut self.endpoint.core.reports.counters;
        let meant =
            || classes.iter().filter(|(flag, _)| flags & u64::from(*flag) != 0).map(|(_, c)| *c as usize);
        if meant().next().is_none() || meant().any(|class| counters[class].is_some()) {
            return Err(FI_EINVAL);
        }
        if cntr.domain != self.domain {
            return Err(FI_EDOMAIN);
        }
        for class in meant() {
            counters[class] = Some(Rc::clone(&cntr.counter));
        }
        // SAFETY: a counter is closed by `close` alone.
        self.holds.push(unsafe { cntr.users.hold() });
        Ok(())
    }

    /// Enables it: it takes operations, and is found under its service.
    fn enable(&mut self) -> c_int {
        if self.av.is_null() {
            return -(FI_ENOAV as c_int);
        }
        let reports = &self.endpoint.core.reports;
        if reports.transmit.is_none() && reports.receive.is_none() {
            return -(FI_ENOCQ as c_int);
        }
        if let Some(service) = self.service.filter(|_| self.taken.is_none()) {
            match service.take(&self.endpoint.port.address) {
                Ok(taken) => self.taken = Some(taken),
                Err(why) => return -why.raw_os_error().unwrap_or(libc::EADDRNOTAVAIL),
            }
        }
        self.fid.msg = (&raw const message::MSG).cast_mut();
        self.fid.rma = (&raw const rma::OPS).cast_mut();
        self.fid.tagged = (&raw const message::TAGGED).cast_mut();
        self.fid.atomic = (&raw const atomic::OPS).cast_mut();
        0
    }

    /// The flags of calls that send and have none of their own.
    ///
    /// # Safety
    ///
    /// It is an endpoint, and stays open meanwhile.
    #[inline(always)]
    pub unsafe fn tx_flags(ep: *mut fid_ep) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { (*ep.cast::<Ep>()).tx_flags.load(Ordering::Relaxed) }
    }

    /// The default flags of receives.
    ///
    /// # Safety
    ///
    /// It is an endpoint, and stays open meanwhile.
    #[inline(always)]
    pub unsafe fn rx_flags(ep: *mut fid_ep) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { (*ep.cast::<Ep>()).rx_flags.load(Ordering::Relaxed) }
    }

    /// A vector got a new address.
    pub fn learn(&mut self, av: &Av, number: u64, address: Address) {
        if !core::ptr::eq(self.av, av) {
            return;
        }
        let peer = self.endpoint.core.peer(address);
        if self.peers.len() <= number as usize {
            self.peers.resize(number as usize + 1, NO_PEER);
        }
        self.peers[number as usize] = peer;
        let listed = &mut self.endpoint.core.peers[peer as usize].listed;
        if *listed == NOT_LISTED {
            *listed = number;
        }
    }

    /// A vector lost one.
    pub fn forget(&mut self, av: &Av, number: u64, address: Address) {
        if !core::ptr::eq(self.av, av) {
            return;
        }
        if let Some(entry) = self.peers.get_mut(number as usize) {
            *entry = NO_PEER;
        }
        let peer = self.endpoint.core.peer(address);
        let listed = &mut self.endpoint.core.peers[peer as usize].listed;
        if *listed == number {
            *listed = NOT_LISTED;
        }
    }

    /// Number of the peer with a number in the vector, to send to. An unknown number
    /// gives one that no peer has.
    #[inline(always)]
    pub fn to(&self, number: fi_addr_t) -> u32 {
        self.peers.get(number as usize).copied().unwrap_or(NO_PEER)
    }

    /// Source of a receive: `Some(None)` is any; `None`: no peer has this number.
    #[inline(always)]
    pub fn from(&self, number: fi_addr_t) -> Option<Option<u32>> {
        if !self.directed || number == u64::MAX {
            return Some(None);
        }
        self.peers.get(number as usize).copied().filter(|&peer| peer != NO_PEER).map(Some)
    }

    /// Target of a one-sided operation.
    pub fn target(&self, of: fi_addr_t, address: u64, key: u64) -> RmaTarget {
        RmaTarget { peer: self.to(of), address, key }
    }

    /// Ticket of an operation with these flags; without any it is injected, and only its
    /// errors are reported.
    #[inline(always)]
    pub fn ticket(
        &self,
        context: *mut c_void,
        what: u64,
        flags: Option<u64>,
        class: Class,
    ) -> CompletionTicket {
        let Some(flags) = flags else {
            return CompletionTicket { context: 0, flags: what, notify: false, class };
        };
        let notify = !self.tx_selective || flags & FI_COMPLETION as u64 != 0;
        CompletionTicket { context: context as usize, flags: what, notify, class }
    }

    /// Return value of a call that starts an operation.
    /// One that did not start makes progress, so that it may the next time.
    #[inline(always)]
    pub fn started(&mut self, result: Result<(), Refusal>) -> isize {
        if result.is_err() {
            self.endpoint.progress();
        }
        code(result)
    }
}
