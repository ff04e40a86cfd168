//! Address vectors: an address's number is its place, whichever type was asked for.

use core::ffi::{c_char, c_int, c_void};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::device::connect::address::{ADDRESS_BYTES, Address};
use crate::device::connect::locator::Locator;

use super::domain::OfiDomain;
use super::eq::{Eq, EqFailure};
use super::no::{NOTHING, no};
use super::object::{Hold, OfiObject, Users, close, hand_out, header};
use super::sys::*;
use super::{failed, names};

#[repr(C)]
pub struct Av {
    fid: fid_av,
    pub domain: *const OfiDomain,
    pub entries: RefCell<Vec<Option<Address>>>,
    /// Places in between that are free again.
    free: RefCell<BTreeSet<usize>>,
    /// Insertions report to an event queue (`FI_EVENT`), which is bound to it.
    reports: bool,
    queue: RefCell<Option<(*const Eq, Hold)>>,
    /// This process, as an address; unknown without /proc.
    here: Option<Address>,
    /// An address was refused, and why was said.
    complained: AtomicBool,
    /// The endpoints that it is bound to.
    pub users: Users,
    _domain: Hold,
}

impl OfiObject for Av {
    fn users(&self) -> &Users {
        &self.users
    }
}

static FID: fi_ops = fi_ops { close: Some(close::<Av>), bind: Some(bind), ..NOTHING };

static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert: Some(insert),
    insertsvc: Some(insertsvc),
    insertsym: no(),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    av_set: no(),
};

pub unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `fi_av(3)`: the caller passes an open domain; the rest is null or valid.
    unsafe {
        if av.is_null() {
            return failed(FI_EINVAL);
        }
        let mut reports = false;
        if let Some(attr) = attr.as_mut() {
            if !attr.name.is_null() {
                // Vectors shared between processes by name.
                return failed(FI_ENOSYS);
            }
            if attr.type_ > FI_AV_TABLE {
                return failed(FI_EINVAL);
            }
            if attr.flags & !(u64::from(FI_EVENT) | FI_SYMMETRIC) != 0 {
                return failed(FI_EBADFLAGS);
            }
            if attr.type_ == FI_AV_UNSPEC {
                attr.type_ = FI_AV_TABLE;
            }
            reports = attr.flags & u64::from(FI_EVENT) != 0;
        }
        let domain: *const OfiDomain = domain.cast();
        let object = Av {
            fid: fid_av { fid: header(FI_CLASS_AV, context, &FID), ops: (&raw const OPS).cast_mut() },
            domain,
            entries: RefCell::default(),
            free: RefCell::default(),
            reports,
            queue: RefCell::default(),
            here: Address::here(0, 0).ok(),
            complained: AtomicBool::new(false),
            users: Users::default(),
            _domain: (*domain).users.hold(),
        };
        hand_out(object, av);
    }
    0
}

/// Binds the event queue of a vector whose insertions report to one. Without `FI_EVENT`
/// they are over when they return.
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: `fi_av(3)`: the caller passes open objects, or null.
    unsafe {
        let av = &*fid.cast::<Av>();
        let Some(eq) = Eq::of(other) else { return failed(FI_EINVAL) };
        if flags != 0 {
            return failed(FI_EBADFLAGS);
        }
        let _guard = (*av.domain).enter();
        av.queue.replace(Some((core::ptr::from_ref(eq), eq.users.hold())));
    }
    0
}

/// Parameters of an insertion beside the addresses.
struct InsertCall {
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
}

impl Av {
    /// Returns whether its domain's addresses are text.
    fn is_text(&self) -> bool {
        // SAFETY: the domain outlives its vectors.
        unsafe { (*self.domain).text }
    }

    /// The endpoint behind an address, if there can be a way there from here.
    fn judge(&self, locator: Option<Locator>) -> Result<Address, u32> {
        let complain = |why: &dyn core::fmt::Display| {
            // Once is enough: the others mostly have the same. Relaxed: orders nothing; the domain
            // is not always locked here.
            if !self.complained.swap(true, Ordering::Relaxed) {
                crate::remark!("towpath: an address can't be used: {why}");
            }
        };
        let locator =
            locator.ok_or(crate::device::connect::address::Unfit::Foreign).inspect_err(|why| complain(why));
        let address = names::resolve(locator.map_err(|_| FI_EINVAL)?).ok_or(FI_ENODATA)?;
        let fit = self.here.map_or(Ok(()), |here| here.can_reach(&address));
        fit.inspect_err(|why| complain(why)).map_err(|_| FI_EINVAL)?;
        Ok(address)
    }

    /// The number of a new address: the lowest that is free. The domain is locked.
    fn place(&self, address: Address) -> u64 {
        let (mut entries, free) = (self.entries.borrow_mut(), self.free.borrow_mut().pop_first());
        let place = free.unwrap_or(entries.len());
        if place == entries.len() {
            entries.push(None);
        }
        entries[place] = Some(address);
        drop(entries);
        // SAFETY: the domain outlives its vectors; its endpoints leave its list before they go.
        unsafe {
            for &ep in (*self.domain).endpoints.borrow().iter() {
                (*ep).learn(self, place as u64, address);
            }
        }
        place as u64
    }

    /// Inserts addresses. Returns the call's result.
    ///
    /// # Safety
    ///
    /// `fi_av(3)`: the caller passes places for as many numbers (or none), and with `FI_SYNC_ERR`
    /// for as many errors.
    unsafe fn insert_all(
        &self,
        found: impl Iterator<Item = Result<Address, u32>>,
        call: InsertCall,
    ) -> c_int {
        let InsertCall { numbers, flags, context } = call;
        if flags & !(u64::from(FI_MORE) | FI_SYNC_ERR) != 0 {
            return failed(FI_EBADFLAGS);
        }
        // SAFETY: the domain outlives its vectors.
        let _guard = unsafe { (*self.domain).enter() };
        // SAFETY: bound, so it can't be closed.
        let queue = self.queue.borrow().as_ref().map(|&(queue, _)| unsafe { &*queue });
        let queue = if self.reports { queue } else { None };
        if self.reports && queue.is_none() {
            return failed(FI_ENOEQ);
        }
        let own: *mut fid = core::ptr::from_ref(&self.fid.fid).cast_mut();
        let mut inserted = 0;
        for (i, found) in found.enumerate() {
            let (number, error) = match found {
                Ok(address) => {
                    inserted += 1;
                    (self.place(address), 0)
                }
                Err(error) => (FI_ADDR_NOTAVAIL_, error),
            };
            // SAFETY: the caller's promise.
            unsafe {
                if !numbers.is_null() {
                    *numbers.add(i) = number;
                }
                match queue {
                    Some(queue) if error != 0 => {
                        queue.report_failure(EqFailure { fid: own, context, data: i as u64, error });
                    }
                    None if flags & FI_SYNC_ERR != 0 && !context.is_null() => {
                        *context.cast::<c_int>().add(i) = error as c_int;
                    }
                    _ => {}
                }
            }
        }
        if let Some(queue) = queue {
            queue.report(FI_AV_COMPLETE, own, context, inserted);
            return 0;
        }
        inserted as c_int
    }
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    addresses: *const c_void,
    count: usize,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `fi_av(3)`: the caller passes `count` addresses, or as many pointers to texts.
    unsafe {
        let av = &*av.cast::<Av>();
        if addresses.is_null() && count > 0 || count > c_int::MAX as usize {
            return failed(FI_EINVAL);
        }
        let address = |i: usize| {
            if av.is_text() {
                names::read((*addresses.cast::<*const c_char>().add(i)).cast(), true)
            } else {
                names::read(addresses.byte_add(i * ADDRESS_BYTES), false)
            }
        };
        av.insert_all((0..count).map(|i| av.judge(address(i))), InsertCall { numbers, flags, context })
    }
}

unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    number: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `fi_av(3)`: names are null or strings; a place for a number, or none.
    unsafe {
        let av = &*av.cast::<Av>();
        let named = || names::named(names::string(node)?, names::string(service)?, false)?.ok_or(FI_EINVAL);
        let found = match named() {
            Ok(locator) => av.judge(Some(locator)),
            Err(FI_EINVAL) => return failed(FI_EINVAL),
            Err(error) => Err(error),
        };
        av.insert_all(core::iter::once(found), InsertCall { numbers: number, flags, context })
    }
}

const FI_ADDR_NOTAVAIL_: u64 = u64::MAX;

unsafe extern "C" fn remove(av: *mut fid_av, numbers: *mut fi_addr_t, count: usize, flags: u64) -> c_int {
    // SAFETY: `fi_av(3)`: the caller passes as many numbers.
    unsafe {
        let av = &*av.cast::<Av>();
        if numbers.is_null() && count > 0 {
            return failed(FI_EINVAL);
        }
        if flags != 0 {
            return failed(FI_EBADFLAGS);
        }
        let _guard = (*av.domain).enter();
        for i in 0..count {
            let number = *numbers.add(i);
            let removed = av.entries.borrow_mut().get_mut(number as usize).and_then(Option::take);
            let Some(address) = removed else { return failed(FI_EINVAL) };
            av.free.borrow_mut().insert(number as usize);
            for &ep in (*av.domain).endpoints.borrow().iter() {
                (*ep).forget(av, number, address);
            }
        }
    }
    0
}

unsafe extern "C" fn lookup(
    av: *mut fid_av,
    number: fi_addr_t,
    address: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: `fi_av(3)`: the caller passes `*len` bytes of space.
    unsafe {
        let av = &*av.cast::<Av>();
        if len.is_null() || address.is_null() && *len > 0 {
            return failed(FI_EINVAL);
        }
        let _guard = (*av.domain).enter();
        let Some(found) = av.entries.borrow().get(number as usize).copied().flatten() else {
            return failed(FI_EINVAL);
        };
        write(Locator::Endpoint(found), av.is_text(), address, len);
    }
    0
}

/// Writes an address, cut to its place. Returns whether it fitted.
///
/// # Safety
///
/// `*len` bytes of space; afterwards `*len` is as many as it takes.
pub unsafe fn write(locator: Locator, text: bool, place: *mut c_void, len: *mut usize) -> bool {
    let bytes =
        if text { format!("{}\0", locator.to_text()).into_bytes() } else { locator.to_bytes().to_vec() };
    // SAFETY: the caller's promise.
    unsafe {
        let space = core::mem::replace(&mut *len, bytes.len());
        let n = if place.is_null() { 0 } else { space.min(bytes.len()) };
        if n > 0 {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), n);
            if text {
                *place.cast::<u8>().add(n - 1) = 0;
            }
        }
        space >= bytes.len()
    }
}

unsafe extern "C" fn straddr(
    av: *mut fid_av,
    address: *const c_void,
    text: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: `fi_av(3)`: the caller passes an address of ours, or null; `*len` bytes of space.
    unsafe {
        if address.is_null() || len.is_null() || text.is_null() && *len > 0 {
            return core::ptr::null();
        }
        let av = &*av.cast::<Av>();
        match names::read(address, av.is_text()) {
            Some(locator) => {
                write(locator, true, text.cast(), len);
            }
            None => {
                let unknown = c"towpath://?";
                let n = (*len).min(unknown.count_bytes() + 1);
                core::ptr::copy_nonoverlapping(unknown.as_ptr(), text, n);
                if n > 0 {
                    *text.add(n - 1) = 0;
                }
                *len = unknown.count_bytes() + 1;
            }
        }
    }
    text
}
