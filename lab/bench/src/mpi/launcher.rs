//! Launchers: whose an `mpiexec` is, and the settings that make its MPI load our
//! provider.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Provider;
use crate::input::{mentions, open_regular};
use crate::process::output_within;

/// How long a launcher may take to say its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// An MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MPICH.
    Mpich,
    /// Open MPI.
    OpenMpi,
    /// Intel MPI.
    Intel,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Mpich, Kind::OpenMpi, Kind::Intel];

    /// The name by which users choose it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Mpich => "mpich",
            Kind::OpenMpi => "open-mpi",
            Kind::Intel => "intel",
        }
    }

    /// What it calls itself.
    pub const fn title(self) -> &'static str {
        match self {
            Kind::Mpich => "MPICH",
            Kind::OpenMpi => "Open MPI",
            Kind::Intel => "Intel MPI",
        }
    }

    /// The variable that names the folder in which it is installed.
    const fn variable(self) -> &'static str {
        match self {
            Kind::Mpich => "TOWPATH_MPICH",
            Kind::OpenMpi => "TOWPATH_OPENMPI",
            Kind::Intel => "TOWPATH_INTELMPI",
        }
    }

    /// What to tell whoever does not have it, as a clause that follows "not measured:".
    pub fn not_installed(self) -> String {
        format!(
            "no mpiexec of it ({}) in PATH, in ${} or where scripts/install-peers.sh puts it: run that script",
            self.title(),
            self.variable()
        )
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// Whose a text is that a launcher or a library prints of itself.
    pub fn that_says(text: &str) -> Option<Kind> {
        if text.contains("Intel(R) MPI") || text.contains("Intel MPI") {
            Some(Kind::Intel)
        } else if text.contains("Open MPI") || text.contains("OpenRTE") {
            Some(Kind::OpenMpi)
        } else if text.contains("HYDRA") || text.contains("MPICH") {
            Some(Kind::Mpich)
        } else {
            None
        }
    }

    /// The environment that sends its traffic through the provider.
    pub fn settings(self, provider: &Provider) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("FI_PROVIDER", "towpath".to_string()),
            ("FI_PROVIDER_PATH", provider.folder().display().to_string()),
        ];
        let more: &[(&'static str, &str)] = match self {
            // Its own shared memory would otherwise carry what stays on this machine.
            Kind::Mpich => &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")],
            Kind::OpenMpi => &[
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                // More processes than cores need no flag.
                ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
                ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            ],
            Kind::Intel => &[
                ("I_MPI_FABRICS", "ofi"),
                ("I_MPI_OFI_PROVIDER", "towpath"),
                ("I_MPI_OFI_LIBRARY_INTERNAL", "1"),
                // With one-sided operations of the provider's it takes dynamic windows for -1 byte
                // long (over libfabric's shm and tcp, too); with messages it doesn't.
                ("MPIR_CVAR_CH4_OFI_ENABLE_RMA", "0"),
            ],
        };
        all.extend(more.iter().map(|(name, value)| (*name, value.to_string())));
        if let (Kind::Mpich, Some(first)) = (self, provider.preload()) {
            // Before whatever else is to be loaded first.
            let others = std::env::var("LD_PRELOAD").ok().filter(|others| !others.is_empty());
            let first = first.display().to_string();
            all.push(("LD_PRELOAD", others.map_or(first.clone(), |others| format!("{first}:{others}"))));
        }
        all
    }
}

/// An Open MPI's tree of messages for barriers takes each rank several turns of its core,
/// one that all send to the first rank takes one: with so many ranks on each core that is faster
/// (two cores: from 8 ranks on; 16 ranks half of the time, 64 a third).
const RANKS_PER_CORE: usize = 3;
/// With more cores than this the first rank would be the bottleneck: the others wait for
/// it instead of for a turn.
const MOST_CORES: usize = 16;

impl Kind {
    /// More settings, where so many ranks share so many cores: what makes the MPI itself
    /// behave better then, over any transport.
    pub fn crowded_settings(self, ranks: usize, cores: usize) -> &'static [(&'static str, &'static str)] {
        if self == Kind::OpenMpi && cores <= MOST_CORES && ranks >= RANKS_PER_CORE * cores {
            &[("OMPI_MCA_coll_tuned_use_dynamic_rules", "1"), ("OMPI_MCA_coll_tuned_barrier_algorithm", "1")]
        } else {
            &[]
        }
    }
}

/// Where users keep data (XDG).
pub(super) fn data_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")))
}

/// An MPI's launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Whose.
    pub kind: Kind,
    /// The command.
    pub command: PathBuf,
}

impl Launcher {
    /// Asks a command whose it is. `None` if it is no launcher that we know.
    pub fn identify(command: &Path) -> Option<Launcher> {
        if !command.is_file() {
            return None;
        }
        let mut ask = Command::new(command);
        ask.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = output_within(ask, PATIENCE).ok()?;
        let says = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
        Kind::that_says(&says).map(|kind| Launcher { kind, command: command.to_owned() })
    }

    /// The first one in these folders, of that kind if one is wanted.
    pub fn find_in(folders: impl IntoIterator<Item = PathBuf>, kind: Option<Kind>) -> Option<Launcher> {
        folders
            .into_iter()
            .flat_map(|folder| {
                ["mpiexec", "mpirun", "mpiexec.mpich", "mpiexec.openmpi"].map(|name| folder.join(name))
            })
            .filter_map(|command| Launcher::identify(&command))
            .find(|launcher| kind.is_none_or(|kind| kind == launcher.kind))
    }

    /// That of an MPI, for measuring: where a variable says, where
    /// `scripts/install-peers.sh` puts it, or in PATH.
    pub fn installed(kind: Kind) -> Option<Launcher> {
        let named = std::env::var_os(kind.variable()).map(|p| PathBuf::from(p).join("bin"));
        let installed = data_folder().map(|d| d.join("towpath/peers").join(kind.name()).join("bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> =
            named.into_iter().chain(installed).chain(std::env::split_paths(&path)).collect();
        Launcher::find_in(folders, Some(kind))
    }

    /// The MPI library that comes with it, if it lies where it usually does.
    pub fn library(&self) -> Option<PathBuf> {
        let command = self.command.canonicalize().unwrap_or_else(|_| self.command.clone());
        let prefixes =
            [&command, &self.command].map(|c| c.parent().and_then(Path::parent).map(Path::to_owned));
        let names: &[&str] = match self.kind {
            Kind::Mpich => &["libmpi.so.12", "libmpich.so.12", "libmpi.so"],
            Kind::OpenMpi => &["libmpi.so.40", "libmpi.so"],
            Kind::Intel => &["libmpi.so.12", "libmpi.so"],
        };
        let folders = ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib/release"];
        prefixes
            .into_iter()
            .flatten()
            .flat_map(|p| folders.map(|f| p.join(f)))
            .find_map(|folder| names.iter().map(|name| folder.join(name)).find(|path| path.is_file()))
    }

    /// Whether its MPI can load a libfabric provider, as far as its library tells.
    ///
    /// # Errors
    ///
    /// Why not, and what to do about it.
    pub fn check(&self) -> Result<(), String> {
        // Open MPI's component is a file of its own; the check after the start says whether it was
        // there.
        if self.kind == Kind::OpenMpi {
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
    fn launchers_are_told_apart_by_what_they_say() {
        for (text, kind) in [
            ("HYDRA build details:\n    Version: 5.0.2", Some(Kind::Mpich)),
            ("mpiexec (Open MPI) 5.0.11\n", Some(Kind::OpenMpi)),
            ("mpiexec (OpenRTE) 4.1.4", Some(Kind::OpenMpi)),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.18", Some(Kind::Intel)),
            ("prterun (PRRTE) 3", None),
        ] {
            assert_eq!(Kind::that_says(text), kind, "{text}");
        }
        assert!(Kind::ALL.iter().all(|k| Kind::from_name(k.name()) == Some(*k)));
    }

    #[test]
    fn an_mpi_without_libfabric_is_refused_with_the_remedy() {
        let root = std::env::temp_dir().join(format!("towpath-launcher-{}", std::process::id()));
        let (bin, lib) = (root.join("bin"), root.join("lib"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(bin.join("mpiexec"), "").unwrap();
        let launcher = Launcher { kind: Kind::Mpich, command: bin.join("mpiexec") };
        assert_eq!(launcher.check(), Ok(()), "nothing is known of it");
        std::fs::write(lib.join("libmpi.so.12"), b"\0ucp_ep_create\0").unwrap();
        let why = launcher.check().unwrap_err();
        assert!(why.contains("UCX alone") && why.contains("pip install mpich"), "{why}");
        std::fs::write(lib.join("libmpi.so.12"), b"\0ucp_ep_create\0fi_getinfo\0").unwrap();
        assert_eq!(launcher.check(), Ok(()));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn barriers_go_through_the_first_rank_where_many_share_a_core() {
        let names = |kind: Kind, ranks, cores| {
            kind.crowded_settings(ranks, cores).iter().any(|(n, _)| n.contains("barrier"))
        };
        for (ranks, cores, is_set) in
            [(2, 2, false), (5, 2, false), (6, 2, true), (64, 2, true), (192, 64, false)]
        {
            assert_eq!(names(Kind::OpenMpi, ranks, cores), is_set, "{ranks} ranks on {cores} cores");
            assert!(!names(Kind::Mpich, ranks, cores) && !names(Kind::Intel, ranks, cores));
        }
    }

    #[test]
    fn every_mpi_is_told_of_the_provider_and_its_folder() {
        let provider = Provider::in_folder("/somewhere".into());
        for kind in Kind::ALL {
            let settings = kind.settings(&provider);
            assert!(settings.contains(&("FI_PROVIDER", "towpath".into())), "{kind:?}");
            assert!(settings.contains(&("FI_PROVIDER_PATH", "/somewhere".into())), "{kind:?}");
        }
    }
}
