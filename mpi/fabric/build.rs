//! Build script for the feature `fabric`: Rust declarations of libfabric's headers.
//! It also sees to it that the shared object exports nothing but `fi_prov_ini`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "fabric")]
    fabric::bind();
}

#[cfg(feature = "fabric")]
mod fabric {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Finds libfabric's headers: `LIBFABRIC_INCLUDE`, pkg-config's folder, the folder of
    /// scripts/install-fabric.sh, or /usr/include.
    fn include() -> Option<PathBuf> {
        println!("cargo::rerun-if-env-changed=LIBFABRIC_INCLUDE");
        let named = std::env::var_os("LIBFABRIC_INCLUDE").map(PathBuf::from);
        let known = || {
            let output =
                Command::new("pkg-config").args(["--variable=includedir", "libfabric"]).output().ok()?;
            let path = String::from_utf8(output.stdout).ok()?;
            (!path.trim().is_empty()).then(|| PathBuf::from(path.trim()))
        };
        let installed = || Some(home()?.join("usr/include"));
        let is_it = |path: &Path| path.join("rdma/fabric.h").is_file();
        named
            .or_else(|| known().filter(|p| is_it(p)))
            .or_else(|| installed().filter(|p| is_it(p)))
            .or_else(|| Some("/usr/include".into()))
            .filter(|p| is_it(p))
    }

    /// Folder that scripts/install-fabric.sh makes.
    fn home() -> Option<PathBuf> {
        let data = std::env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")))?;
        Some(data.join("towpath/fabric"))
    }

    /// Lets bindgen find the clang library that the script installed, unless the user
    /// names one.
    fn find_clang() {
        println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
        if std::env::var_os("LIBCLANG_PATH").is_some() {
            return;
        }
        if let Some(folder) = home().map(|home| home.join("clang")).filter(|p| p.join("libclang.so").exists())
        {
            // SAFETY: a build script with one thread.
            unsafe { std::env::set_var("LIBCLANG_PATH", folder) };
        }
    }

    pub fn bind() {
        let Some(include) = include() else {
            panic!(
                "libfabric's headers (rdma/fabric.h) are not to be found: run scripts/install-fabric.sh, or set LIBFABRIC_INCLUDE"
            );
        };
        // For the tests: programs in C.
        println!("cargo::rustc-env=TOWPATH_FABRIC_INCLUDE={}", include.display());
        find_clang();
        let header = "#include <rdma/fabric.h>\n#include <rdma/fi_cm.h>\n#include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n\
             #include <rdma/fi_eq.h>\n#include <rdma/fi_tagged.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_atomic.h>\n\
             #include <rdma/fi_errno.h>\n#include <rdma/providers/fi_prov.h>\n";
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        // pip's libclang brings no headers of its own: those that come with a C compiler serve as
        // well.
        let builtin = Command::new("cc")
            .arg("-print-file-name=include")
            .output()
            .ok()
            .and_then(|o| String::from_utf8(o.stdout).ok())
            .map(|path| path.trim().to_owned())
            .filter(|path| Path::new(path).is_dir());
        let mut builder = bindgen::Builder::default()
            .header_contents("fabric.h", header)
            .clang_arg(format!("-I{}", include.display()));
        if let Some(builtin) = builtin {
            builder = builder.clang_arg("-idirafter").clang_arg(builtin);
        }
        builder
            .allowlist_type("fi_.*|fid|fid_.*")
            .allowlist_var("FI_.*")
            // Functions of the library: a provider that is loaded must not need them (undefined
            // symbols).
            .ignore_functions()
            .prepend_enum_name(false)
            .derive_default(false)
            .derive_debug(false)
            .layout_tests(true)
            .rust_edition(bindgen::RustEdition::Edition2024)
            .generate_comments(false)
            .generate()
            .expect("making declarations of libfabric's headers (is LIBCLANG_PATH right?)")
            .write_to_file(out.join("bindings.rs"))
            .expect("writing the declarations");
        let map = out.join("exports.map");
        std::fs::write(&map, "{ global: fi_prov_ini; local: *; };\n").expect("writing the version script");
        println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", map.display());
    }
}
