//! Launchers of MPIs (`mpiexec`): found in folders and asked for their MPI.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::MpiKind;
use crate::command_output::output_within;
use crate::provider::data_folder;
use crate::regular_file::{mentions, open_regular};

/// Time that a launcher has to print its version.
const VERSION_TIME_OUT: Duration = Duration::from_secs(20);

/// The launcher of an MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpiLauncher {
    /// The MPI to which the launcher belongs.
    pub kind: MpiKind,
    /// File of the command.
    pub command: PathBuf,
}

impl MpiLauncher {
    /// Asks a command for its MPI. `None` if the command is no launcher of a known MPI.
    pub fn identify(command: &Path) -> Option<MpiLauncher> {
        if !command.is_file() {
            return None;
        }
        let mut ask = Command::new(command);
        ask.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = output_within(ask, VERSION_TIME_OUT).ok()?;
        let says = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
        MpiKind::named_in(&says).map(|kind| MpiLauncher { kind, command: command.to_owned() })
    }

    /// Returns the first launcher in these folders, of the wanted MPI if one is given.
    pub fn find_in(folders: impl IntoIterator<Item = PathBuf>, kind: Option<MpiKind>) -> Option<MpiLauncher> {
        folders
            .into_iter()
            .flat_map(|folder| {
                ["mpiexec", "mpirun", "mpiexec.mpich", "mpiexec.openmpi"].map(|name| folder.join(name))
            })
            .filter_map(|command| MpiLauncher::identify(&command))
            .find(|launcher| kind.is_none_or(|kind| kind == launcher.kind))
    }

    /// Finds the launcher of an MPI that is installed for measuring.
    ///
    /// Looks in the folder that the MPI's variable names, then where `scripts/install-peers.sh`
    /// installs, then in PATH.
    pub fn installed(kind: MpiKind) -> Option<MpiLauncher> {
        let named = std::env::var_os(kind.variable()).map(|p| PathBuf::from(p).join("bin"));
        let installed = data_folder().map(|d| d.join("towpath/peers").join(kind.name()).join("bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> =
            named.into_iter().chain(installed).chain(std::env::split_paths(&path)).collect();
        MpiLauncher::find_in(folders, Some(kind))
    }

    /// Finds the MPI library beside the launcher, in the usual folders.
    pub fn library(&self) -> Option<PathBuf> {
        let command = self.command.canonicalize().unwrap_or_else(|_| self.command.clone());
        let prefixes =
            [&command, &self.command].map(|c| c.parent().and_then(Path::parent).map(Path::to_owned));
        let names: &[&str] = match self.kind {
            MpiKind::Mpich => &["libmpi.so.12", "libmpich.so.12", "libmpi.so"],
            MpiKind::OpenMpi => &["libmpi.so.40", "libmpi.so"],
            MpiKind::Intel => &["libmpi.so.12", "libmpi.so"],
        };
        let folders = ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib/release"];
        prefixes
            .into_iter()
            .flatten()
            .flat_map(|p| folders.map(|f| p.join(f)))
            .find_map(|folder| names.iter().map(|name| folder.join(name)).find(|path| path.is_file()))
    }

    /// Checks that the MPI was built with libfabric, as far as its library's text tells.
    ///
    /// # Errors
    ///
    /// A sentence with the remedy, if the library does not mention libfabric.
    pub fn check(&self) -> Result<(), String> {
        // Open MPI's component is a file of its own; the check after the start says whether it was
        // there.
        if self.kind == MpiKind::OpenMpi {
            return Ok(());
        }
        let Some(library) = self.library() else { return Ok(()) };
        let wanted: [&[u8]; 2] = [b"fi_getinfo", b"FI_PROVIDER"];
        if open_regular(&library).is_err() || mentions(&library, wanted).contains(&true) {
            return Ok(());
        }
        Err(format!(
            "this {} ({}) was built without libfabric (Debian's is built for UCX alone), so it can't load Towpath: take one that was built with it, for instance `pip install mpich==5.0.2` in \
             a virtual environment, whose mpiexec is then the one to use (--mpiexec)",
            self.kind.title(),
            library.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mpi_without_libfabric_is_refused_with_the_remedy() {
        let root = std::env::temp_dir().join(format!("towpath-launcher-{}", std::process::id()));
        let (bin, lib) = (root.join("bin"), root.join("lib"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(bin.join("mpiexec"), "").unwrap();
        let launcher = MpiLauncher { kind: MpiKind::Mpich, command: bin.join("mpiexec") };
        assert_eq!(launcher.check(), Ok(()), "nothing is known of it");
        std::fs::write(lib.join("libmpi.so.12"), b"\0ucp_ep_create\0").unwrap();
        let why = launcher.check().unwrap_err();
        assert!(why.contains("UCX alone") && why.contains("pip install mpich"), "{why}");
        std::fs::write(lib.join("libmpi.so.12"), b"\0ucp_ep_create\0fi_getinfo\0").unwrap();
        assert_eq!(launcher.check(), Ok(()));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
