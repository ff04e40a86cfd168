//! libfabric, loaded when a link first needs it.
//!
//! It is the one that `TOWPATH_LIBFABRIC` names, else the system's, else one of those that
//! `scripts/install-peers.sh` has installed. It is never unloaded.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use super::abi::{FabricAttributes, FabricInfo, FidFabric};

/// Functions that libfabric exports.
#[derive(Clone, Copy, Debug)]
pub struct FabricLibrary {
    pub getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const FabricInfo,
        *mut *mut FabricInfo,
    ) -> c_int,
    pub freeinfo: unsafe extern "C" fn(*mut FabricInfo),
    pub dupinfo: unsafe extern "C" fn(*const FabricInfo) -> *mut FabricInfo,
    pub fabric: unsafe extern "C" fn(*mut FabricAttributes, *mut *mut FidFabric, *mut c_void) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// Loads libfabric, or returns why it can't be loaded.
pub fn load() -> Result<&'static FabricLibrary, String> {
    static LIBRARY: OnceLock<Option<FabricLibrary>> = OnceLock::new();
    LIBRARY.get_or_init(|| places().iter().find_map(open)).as_ref().ok_or_else(|| {
        match std::env::var_os("TOWPATH_LIBFABRIC") {
            Some(named) => format!("TOWPATH_LIBFABRIC={} is no libfabric", named.display()),
            None => "libfabric.so.1 is not installed here: install your distribution's libfabric1 \
                     (libfabric), or name one in TOWPATH_LIBFABRIC"
                .into(),
        }
    })
}

/// Places where libfabric may be.
fn places() -> Vec<OsString> {
    if let Some(named) = std::env::var_os("TOWPATH_LIBFABRIC") {
        return vec![named];
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    let of_mpi = ["mpich/lib/mpich/libfabric.so.1", "open-mpi/lib/openmpi/libfabric.so.1"];
    let peers = data.into_iter().flat_map(|data| of_mpi.map(|file| data.join("towpath/peers").join(file)));
    [OsString::from("libfabric.so.1")].into_iter().chain(peers.map(Into::into)).collect()
}

fn open(place: &OsString) -> Option<FabricLibrary> {
    let place = CString::new(place.as_encoded_bytes()).ok()?;
    // SAFETY: the path ends with a zero byte; the library's initialisers are libfabric's.
    let library = unsafe { libc::dlopen(place.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return None;
    }
    // SAFETY: functions of these names have these types since version 1.0 of libfabric.
    unsafe {
        Some(FabricLibrary {
            getinfo: function(library, c"fi_getinfo")?,
            freeinfo: function(library, c"fi_freeinfo")?,
            dupinfo: function(library, c"fi_dupinfo")?,
            fabric: function(library, c"fi_fabric")?,
            strerror: function(library, c"fi_strerror")?,
        })
    }
}

/// Finds a function of a library.
///
/// # Safety
///
/// * The library is loaded.
/// * The function, if there is one of this name, is of type `F`, a pointer to a function.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is loaded, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the function is of type `F`, whose size was checked.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

impl FabricLibrary {
    /// Text of an error's number.
    pub fn text_of(&self, error: c_int) -> String {
        // SAFETY: libfabric returns a text that ends with a zero byte, for any number.
        let text = unsafe { CStr::from_ptr((self.strerror)(error)) };
        text.to_string_lossy().into_owned()
    }
}
