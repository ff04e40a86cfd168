//! Files of Towpath's libfabric provider and of MPICH's preload library.

use std::path::{Path, PathBuf};

use crate::regular_file::mentions;

/// Environment variable with the path of the announcement file.
///
/// Each process that has opened an endpoint of the provider appends a line with its process id.
pub const ANNOUNCE: &str = "TOWPATH_ANNOUNCE";

/// File name that libfabric looks for.
const FILE: &str = "libtowpath-fi.so";
/// File name that Cargo gives.
const BUILT: &str = "libtowpath_fi.so";

/// File names of MPICH's preload library (`mpi/preload`), of the script and of Cargo.
const PRELOAD: [&str; 2] = ["libtowpath-preload.so", "libtowpath_preload.so"];

/// Returns the folder of user data (XDG_DATA_HOME, or ~/.local/share).
///
/// Below it, in `towpath/peers`, lies what the scripts of the repository install. `None`: neither
/// XDG_DATA_HOME nor HOME is set.
///
/// ```
/// if let Some(folder) = towpath_launch::data_folder() {
///     println!("{}", folder.join("towpath/peers").display());
/// }
/// ```
#[must_use]
pub fn data_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")))
}

/// Returns whether a file is the provider.
///
/// Without the feature `fabric` the crate makes a library that lacks the provider's entry point.
fn is_provider(file: &Path) -> bool {
    mentions(file, [b"fi_prov_ini\0"]) == [true]
}

/// The folder that has the provider's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    folder: PathBuf,
}

impl Provider {
    /// The provider in a folder that the caller has checked.
    #[cfg(test)]
    pub(crate) fn in_folder(folder: PathBuf) -> Provider {
        Provider { folder }
    }

    /// Finds the provider.
    ///
    /// Looks in the given folder; without one, beside this program and then where
    /// `scripts/build-fabric.sh` installs.
    ///
    /// # Errors
    ///
    /// A sentence that names the folders and the remedy, if the provider is in none of them.
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

    /// Folder of the provider.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The preload library beside the provider, if it is there.
    ///
    /// It keeps MPICH from yielding its core right after a message has come.
    pub fn preload(&self) -> Option<PathBuf> {
        PRELOAD.iter().map(|name| self.folder.join(name)).find(|file| file.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_built_by_cargo_gets_libfabrics_file_name() {
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
