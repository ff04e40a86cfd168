//! Places in the program with the names that the loader knows.
#![allow(unsafe_code)]

use core::ffi::CStr;
use core::fmt;
use core::mem::MaybeUninit;

/// Address in the program, with the names that the loader knows.
#[derive(Debug)]
pub struct NamedPlace {
    address: usize,
    /// True if an object lies there; or else it is code.
    is_object: bool,
    /// Name and address of the symbol; empty where there is none.
    symbol: (&'static str, usize),
    /// Name and beginning of the loaded file; empty where there is none.
    file: (&'static str, usize),
}

impl NamedPlace {
    /// The place at an address, of an object or else of code behind a call.
    pub fn of(address: usize, is_object: bool) -> NamedPlace {
        let mut found = MaybeUninit::<libc::Dl_info>::uninit();
        let text = |text: *const libc::c_char| {
            if text.is_null() {
                return "";
            }
            // SAFETY: a name in a loaded file, which ends with zero and stays until the end.
            unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
        };
        // The address to which a call returns may be another function's beginning.
        let inside = if is_object { address } else { address - 1 };
        // SAFETY: `dladdr` takes any address, and fills in the place if it succeeds.
        unsafe {
            if libc::dladdr(core::ptr::without_provenance(inside), found.as_mut_ptr()) == 0 {
                return NamedPlace { address, is_object, symbol: ("", 0), file: ("", 0) };
            }
            let found = found.assume_init();
            let symbol = (text(found.dli_sname), found.dli_saddr.addr());
            NamedPlace { address, is_object, symbol, file: (text(found.dli_fname), found.dli_fbase.addr()) }
        }
    }
}

impl fmt::Display for NamedPlace {
    /// Address, symbol and distance from it, file and place there, as debuggers take it.
    /// In the alternate form the file is without its folder.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NamedPlace { address, symbol: (symbol, at), file: (file, begin), .. } = *self;
        let file = if f.alternate() { file.rsplit('/').next().unwrap_or(file) } else { file };
        write!(f, "{address:#x}")?;
        if file.is_empty() {
            return f.write_str(if self.is_object { " (on the heap or a stack)" } else { " (in no file)" });
        }
        f.write_str(" (")?;
        if !symbol.is_empty() {
            write!(f, "{symbol}")?;
            if address != at {
                write!(f, "+{:#x}", address - at)?;
            }
            f.write_str(" in ")?;
        }
        write!(f, "{file}+{:#x})", address - begin)
    }
}
