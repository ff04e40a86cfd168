//! Implementations of MPI, and the settings that make each load the provider.

use super::Provider;

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpiKind {
    /// MPICH.
    Mpich,
    /// Open MPI.
    OpenMpi,
    /// Intel MPI.
    Intel,
}

impl MpiKind {
    /// All implementations.
    pub const ALL: [MpiKind; 3] = [MpiKind::Mpich, MpiKind::OpenMpi, MpiKind::Intel];

    /// Name by which users choose the implementation.
    pub const fn name(self) -> &'static str {
        match self {
            MpiKind::Mpich => "mpich",
            MpiKind::OpenMpi => "open-mpi",
            MpiKind::Intel => "intel",
        }
    }

    /// Name that the implementation uses of itself.
    pub const fn title(self) -> &'static str {
        match self {
            MpiKind::Mpich => "MPICH",
            MpiKind::OpenMpi => "Open MPI",
            MpiKind::Intel => "Intel MPI",
        }
    }

    /// Environment variable with the folder in which the implementation is installed.
    pub(crate) const fn variable(self) -> &'static str {
        match self {
            MpiKind::Mpich => "TOWPATH_MPICH",
            MpiKind::OpenMpi => "TOWPATH_OPENMPI",
            MpiKind::Intel => "TOWPATH_INTELMPI",
        }
    }

    /// Remedy for a missing implementation, as a clause that follows "not measured:".
    pub fn not_installed(self) -> String {
        format!(
            "no mpiexec of it ({}) in PATH, in ${} or where scripts/install-peers.sh puts it: run that script",
            self.title(),
            self.variable()
        )
    }

    /// Returns the implementation with this name.
    pub fn from_name(name: &str) -> Option<MpiKind> {
        MpiKind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// Returns the implementation that a launcher or a library names in its text.
    pub fn named_in(text: &str) -> Option<MpiKind> {
        if text.contains("Intel(R) MPI") || text.contains("Intel MPI") {
            Some(MpiKind::Intel)
        } else if text.contains("Open MPI") || text.contains("OpenRTE") {
            Some(MpiKind::OpenMpi)
        } else if text.contains("HYDRA") || text.contains("MPICH") {
            Some(MpiKind::Mpich)
        } else {
            None
        }
    }

    /// Environment that makes the implementation send its messages through the provider.
    pub fn settings(self, provider: &Provider) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("FI_PROVIDER", "towpath".to_string()),
            ("FI_PROVIDER_PATH", provider.folder().display().to_string()),
        ];
        let more: &[(&'static str, &str)] = match self {
            // Its own shared memory would otherwise carry what stays on this machine.
            MpiKind::Mpich => &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")],
            MpiKind::OpenMpi => &[
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                // More processes than cores need no flag.
                ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
                ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            ],
            MpiKind::Intel => &[
                ("I_MPI_FABRICS", "ofi"),
                ("I_MPI_OFI_PROVIDER", "towpath"),
                ("I_MPI_OFI_LIBRARY_INTERNAL", "1"),
                // With one-sided operations of the provider's it takes dynamic windows for -1 byte
                // long (over libfabric's shm and tcp, too); with messages it doesn't.
                ("MPIR_CVAR_CH4_OFI_ENABLE_RMA", "0"),
            ],
        };
        all.extend(more.iter().map(|(name, value)| (*name, value.to_string())));
        if let (MpiKind::Mpich, Some(first)) = (self, provider.preload()) {
            // Before whatever else is to be loaded first.
            let others = std::env::var("LD_PRELOAD").ok().filter(|others| !others.is_empty());
            let first = first.display().to_string();
            all.push(("LD_PRELOAD", others.map_or(first.clone(), |others| format!("{first}:{others}"))));
        }
        all
    }
}

/// Ranks per core from which Open MPI's barriers go through the first rank.
///
/// Open MPI's tree of messages takes each rank several turns of its core; a barrier in which all
/// ranks send to the first one takes a single turn (2 cores: faster from 8 ranks on; half of the
/// time with 16 ranks, a third with 64).
const RANKS_PER_CORE: usize = 3;
/// Maximum number of cores for barriers through the first rank.
///
/// With more cores the first rank is the bottleneck.
const MOST_CORES: usize = 16;

impl MpiKind {
    /// Additional settings for an oversubscribed machine.
    ///
    /// They make the MPI's own algorithms faster there, over any transport.
    pub fn oversubscribed_settings(
        self,
        ranks: usize,
        cores: usize,
    ) -> &'static [(&'static str, &'static str)] {
        if self == MpiKind::OpenMpi && cores <= MOST_CORES && ranks >= RANKS_PER_CORE * cores {
            &[("OMPI_MCA_coll_tuned_use_dynamic_rules", "1"), ("OMPI_MCA_coll_tuned_barrier_algorithm", "1")]
        } else {
            &[]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_told_apart_by_what_they_say() {
        for (text, kind) in [
            ("HYDRA build details:\n    Version: 5.0.2", Some(MpiKind::Mpich)),
            ("mpiexec (Open MPI) 5.0.11\n", Some(MpiKind::OpenMpi)),
            ("mpiexec (OpenRTE) 4.1.4", Some(MpiKind::OpenMpi)),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.18", Some(MpiKind::Intel)),
            ("prterun (PRRTE) 3", None),
        ] {
            assert_eq!(MpiKind::named_in(text), kind, "{text}");
        }
        assert!(MpiKind::ALL.iter().all(|k| MpiKind::from_name(k.name()) == Some(*k)));
    }

    #[test]
    fn barriers_go_through_the_first_rank_where_many_share_a_core() {
        let names = |kind: MpiKind, ranks, cores| {
            kind.oversubscribed_settings(ranks, cores).iter().any(|(n, _)| n.contains("barrier"))
        };
        for (ranks, cores, is_set) in
            [(2, 2, false), (5, 2, false), (6, 2, true), (64, 2, true), (192, 64, false)]
        {
            assert_eq!(names(MpiKind::OpenMpi, ranks, cores), is_set, "{ranks} ranks on {cores} cores");
            assert!(!names(MpiKind::Mpich, ranks, cores) && !names(MpiKind::Intel, ranks, cores));
        }
    }

    #[test]
    fn every_mpi_is_told_of_the_provider_and_its_folder() {
        let provider = Provider::in_folder("/somewhere".into());
        for kind in MpiKind::ALL {
            let settings = kind.settings(&provider);
            assert!(settings.contains(&("FI_PROVIDER", "towpath".into())), "{kind:?}");
            assert!(settings.contains(&("FI_PROVIDER_PATH", "/somewhere".into())), "{kind:?}");
        }
    }
}
