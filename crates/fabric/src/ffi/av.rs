//! Address vectors: an address's number is its place, whichever type was asked for.

use core::ffi::{c_char, c_int, c_void};
use std::cell::{Cell, RefCell};

use crate::engine::address::{ADDRESS_BYTES, Address, Unfit, version_text};

use super::domain::Domain;
use super::failed;
use super::no::{NOTHING, no};
use super::object::{Hold, Object, Users, close, hand_out, header};
use super::sys::*;

#[repr(C)]
pub struct Av {
    fid: fid_av,
    domain: *const Domain,
    pub entries: RefCell<Vec<Option<Address>>>,
    /// This process, as an address; unknown without /proc.
    here: Option<Address>,
    /// An address was refused, and why was said.
    complained: Cell<bool>,
    /// The endpoints that it is bound to.
    pub users: Users,
    _domain: Hold,
}

impl Object for Av {
    fn users(&self) -> &Users {
        &self.users
    }
}

static FID: fi_ops = fi_ops { close: Some(close::<Av>), bind: Some(bind), ..NOTHING };

static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert: Some(insert),
    insertsvc: no(),
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
    // SAFETY: libfabric's contract.
    unsafe {
        if attr.as_ref().is_some_and(|a| !a.name.is_null()) {
            // Vectors shared between processes by name.
            return failed(FI_ENOSYS);
        }
        let domain: *const Domain = domain.cast();
        let object = Av {
            fid: fid_av { fid: header(FI_CLASS_AV, context, &FID), ops: (&raw const OPS).cast_mut() },
            domain,
            entries: RefCell::default(),
            here: Address::here(0, 0).ok(),
            complained: Cell::new(false),
            users: Users::default(),
            _domain: (*domain).users.hold(),
        };
        hand_out(object, av);
    }
    0
}

impl Av {
    /// Whether there can be a way from here to an address.
    fn judge(&self, bytes: &[u8; ADDRESS_BYTES]) -> Result<Address, Unfit> {
        let address = Address::from_bytes(bytes).ok_or(Unfit::Foreign)?;
        self.here.map_or(Ok(()), |here| here.can_reach(&address))?;
        Ok(address)
    }
}

/// To an event queue: insertions are over when they return.
unsafe extern "C" fn bind(_fid: *mut fid, _other: *mut fid, _flags: u64) -> c_int {
    0
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    addresses: *const c_void,
    count: usize,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: `count` addresses, and places for as many numbers (or none), and with FI_SYNC_ERR for as many errors.
    unsafe {
        let av = &*av.cast::<Av>();
        let _guard = (*av.domain).enter();
        let mut inserted = 0;
        for i in 0..count {
            let mut bytes = [0u8; ADDRESS_BYTES];
            bytes.copy_from_slice(core::slice::from_raw_parts(
                addresses.cast::<u8>().add(i * ADDRESS_BYTES),
                ADDRESS_BYTES,
            ));
            let number = match av.judge(&bytes) {
                Ok(address) => {
                    av.entries.borrow_mut().push(Some(address));
                    inserted += 1;
                    let number = av.entries.borrow().len() as u64 - 1;
                    for &ep in (*av.domain).endpoints.borrow().iter() {
                        (*ep).learn(av, number, address);
                    }
                    number
                }
                Err(why) => {
                    // Once is enough: the others mostly have the same.
                    if !av.complained.replace(true) {
                        eprintln!("towpath: an address can't be used: {why}");
                    }
                    FI_ADDR_NOTAVAIL_
                }
            };
            if !numbers.is_null() {
                *numbers.add(i) = number;
            }
            if flags & FI_SYNC_ERR != 0 && !context.is_null() {
                *context.cast::<c_int>().add(i) =
                    if number == FI_ADDR_NOTAVAIL_ { FI_EINVAL as c_int } else { 0 };
            }
        }
        inserted
    }
}

const FI_ADDR_NOTAVAIL_: u64 = u64::MAX;

unsafe extern "C" fn remove(av: *mut fid_av, numbers: *mut fi_addr_t, count: usize, _flags: u64) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe {
        let av = &*av.cast::<Av>();
        let _guard = (*av.domain).enter();
        for i in 0..count {
            let number = *numbers.add(i);
            let removed = av.entries.borrow_mut().get_mut(number as usize).and_then(Option::take);
            let Some(address) = removed else { return failed(FI_EINVAL) };
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
    // SAFETY: libfabric's contract: `*len` bytes of space.
    unsafe {
        let av = &*av.cast::<Av>();
        let _guard = (*av.domain).enter();
        let Some(found) = av.entries.borrow().get(number as usize).copied().flatten() else {
            return failed(FI_EINVAL);
        };
        let n = (*len).min(ADDRESS_BYTES);
        core::ptr::copy_nonoverlapping(found.to_bytes().as_ptr(), address.cast(), n);
        *len = ADDRESS_BYTES;
    }
    0
}

unsafe extern "C" fn straddr(
    _av: *mut fid_av,
    address: *const c_void,
    text: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: libfabric's contract: an address of ours, and `*len` bytes of space.
    unsafe {
        let mut bytes = [0u8; ADDRESS_BYTES];
        bytes.copy_from_slice(core::slice::from_raw_parts(address.cast(), ADDRESS_BYTES));
        let words = match Address::from_bytes(&bytes) {
            Some(a) => {
                format!(
                    "towpath://{}/{}?version={}&nonce={:x}\0",
                    a.pid,
                    a.fd,
                    version_text(a.version),
                    a.nonce
                )
            }
            None => "towpath://?\0".to_owned(),
        };
        let n = words.len().min(*len);
        core::ptr::copy_nonoverlapping(words.as_ptr(), text.cast(), n);
        if n > 0 {
            *text.add(n - 1) = 0;
        }
        *len = words.len();
    }
    text
}
