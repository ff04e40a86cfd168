//! Our libfabric provider: where its file is, and whether processes have loaded it.

use std::path::{Path, PathBuf};

use super::launcher::data_folder;
use crate::input::mentions;

/// The variable that names a file to which each process that has opened an endpoint of
/// the provider adds a line: its number.
pub const ANNOUNCE: &str = "TOWPATH_ANNOUNCE";

/// As libfabric looks for it.
const FILE: &str = "libtowpath-fi.so";
/// As Cargo calls it.
const BUILT: &str = "libtowpath_fi.so";

/// What MPICH loads first (`mpi/preload`): as the script calls it, and as Cargo does.
const PRELOAD: [&str; 2] = ["libtowpath-preload.so", "libtowpath_preload.so"];

/// Whether a file is our provider, built with it: without the feature `fabric` the same
/// crate makes a library that has no such entry.
fn is_provider(file: &Path) -> bool {
    mentions(file, [b"fi_prov_ini\0"]) == [true]
}

/// The provider's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    folder: PathBuf,
}

impl Provider {
    /// In a folder that has been checked.
    pub fn in_folder(folder: PathBuf) -> Provider {
        Provider { folder }
    }

    /// Finds it: in the folder that is given, else beside this program, else where the
    /// script that builds it puts it.
    ///
    /// # Errors
    ///
    /// It is nowhere, and how to get it.
    pub fn find(given: Option<&Path>) -> Result<Provider, String> {
        let beside = std::env::current_exe().ok().and_then(|p| p.parent().map(Path::to_owned));
        let folders: Vec<PathBuf> = match given {
            Some(folder) => vec![folder.to_owned()],
            None => beside.into_iter().chain(data_folder().map(|d| d.join("towpath/fabric/lib"))).collect(),
        };
        for folder in &folders {
            // The script that builds it links it from a folder of its own.
            for folder in [folder, &folder.join("fabric")] {
                if is_provider(&folder.join(FILE)) {
                    let folder = folder.canonicalize().unwrap_or_else(|_| folder.clone());
                    return Ok(Provider { folder });
                }
            }
            if is_provider(&folder.join(BUILT)) {
                // Libfabric loads only files whose names end like this.
                std::os::unix::fs::symlink(BUILT, folder.join(FILE)).map_err(|e| {
                    format!(
                        "{} needs a link {FILE} beside it, which can't be made: {e}",
                        folder.join(BUILT).display()
                    )
                })?;
                return Provider::find(Some(folder));
            }
        }
        let places: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
        Err(format!(
            "there is no {FILE} in {}: build it with scripts/install-fabric.sh and scripts/build-fabric.sh (or cargo build --release --features fabric), or name its folder with --provider",
            places.join(" or ")
        ))
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The library beside it that keeps MPICH from yielding when it has found something,
    /// if it is there.
    pub fn preload(&self) -> Option<PathBuf> {
        PRELOAD.iter().map(|name| self.folder.join(name)).find(|file| file.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_has_built_gets_the_name_that_libfabric_looks_for() {
        let folder = std::env::temp_dir().join(format!("towpath-provider-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let missing = Provider::find(Some(&folder)).unwrap_err();
        assert!(
            missing.contains("build-fabric.sh") && missing.contains(&folder.display().to_string()),
            "{missing}"
        );
        std::fs::write(folder.join(BUILT), "\x7fELF without it").unwrap();
        assert_eq!(Provider::find(Some(&folder)).unwrap_err(), missing, "built without the provider");
        std::fs::write(folder.join(BUILT), "\x7fELF fi_prov_ini\0").unwrap();
        let found = Provider::find(Some(&folder)).unwrap();
        assert!(found.folder().join(FILE).is_file());
        assert_eq!(Provider::find(Some(&folder)).unwrap(), found);
        assert_eq!(found.preload(), None);
        std::fs::write(folder.join(PRELOAD[1]), "").unwrap();
        assert_eq!(found.preload(), Some(found.folder().join(PRELOAD[1])));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
