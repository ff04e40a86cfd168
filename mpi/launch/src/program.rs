//! The program among a launcher's arguments, and the MPI for which it was built.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{MpiKind, MpiLauncher};
use crate::command_output::output_within;
use crate::regular_file::{mentions, open_regular};

/// Time that `ldd` or a program's interpreter has to answer.
const QUERY_TIME_OUT: Duration = Duration::from_secs(60);

/// Finds the program among a launcher's arguments: its index and its file.
///
/// It is the first argument that is no option and can be executed.
pub fn find_program(arguments: &[OsString]) -> Option<(usize, PathBuf)> {
    arguments
        .iter()
        .enumerate()
        .filter(|(_, word)| !word.to_string_lossy().starts_with('-'))
        .find_map(|(n, word)| Some((n, executable(word)?)))
}

/// Number of ranks that a launcher's arguments ask for on this machine.
///
/// `None` if they give no number, name other hosts, or start several programs.
pub fn ranks_asked_for(arguments: &[OsString]) -> Option<usize> {
    let end = find_program(arguments).map_or(arguments.len(), |(n, _)| n);
    let own: Vec<_> = arguments[..end].iter().map(|word| word.to_string_lossy()).collect();
    let elsewhere = |word: &str| word == "-H" || word.contains("host") || word.contains("machinefile");
    if own.iter().any(|word| elsewhere(word)) || arguments[end..].iter().any(|word| word == ":") {
        return None;
    }
    let at = own.iter().position(|word| ["-n", "-np", "--n", "--np", "-c"].contains(&word.as_ref()))?;
    own.get(at + 1)?.parse().ok()
}

/// Finds the executable file of a command: a path, or a name in PATH.
fn executable(name: &OsStr) -> Option<PathBuf> {
    let is_one =
        |path: &PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if Path::new(name).components().count() > 1 {
        return Some(PathBuf::from(name)).filter(is_one);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(is_one)
}

/// The MPI for which a program was built, as far as its file tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramMpi {
    /// The MPI, if the program's file names one.
    pub kind: Option<MpiKind>,
    /// Folders in which that MPI's launcher is looked for first.
    pub folders: Vec<PathBuf>,
}

impl ProgramMpi {
    /// Examines a program's file, or asks its interpreter.
    pub fn of(program: &Path) -> ProgramMpi {
        let mut folders: Vec<PathBuf> = program.parent().map(Path::to_owned).into_iter().collect();
        let name = program.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("python") {
            return ProgramMpi { kind: python(program), folders };
        }
        if !is_elf(program) {
            return ProgramMpi { kind: None, folders };
        }
        let [open_mpi, mpich, older_mpich] =
            mentions(program, [b"libmpi.so.40\0", b"libmpi.so.12\0", b"libmpich.so.12\0"]);
        let library = libraries(program)
            .into_iter()
            .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libmpi")));
        if let Some(prefix) = library.as_deref().and_then(Path::parent).and_then(Path::parent) {
            folders.insert(0, prefix.join("bin"));
        }
        let kind = if open_mpi {
            Some(MpiKind::OpenMpi)
        } else if mpich || older_mpich {
            // MPICH and Intel MPI have one interface: the library's text tells them apart.
            let intel = library.is_some_and(|l| mentions(&l, [b"Intel(R) MPI"]) == [true]);
            Some(if intel { MpiKind::Intel } else { MpiKind::Mpich })
        } else {
            None
        };
        ProgramMpi { kind, folders }
    }
}

fn is_elf(program: &Path) -> bool {
    let mut start = [0; 4];
    open_regular(program).is_ok_and(|mut file| file.read_exact(&mut start).is_ok()) && start == *b"\x7fELF"
}

/// Shared libraries that the dynamic linker would load for a program.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let mut ask = Command::new("ldd");
    ask.arg(program).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(output) = output_within(ask, QUERY_TIME_OUT) else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split("=> ").nth(1)?.split(" (").next().map(PathBuf::from))
        .collect()
}

/// Asks a Python interpreter for the MPI that mpi4py loads.
fn python(interpreter: &Path) -> Option<MpiKind> {
    let mut ask = Command::new(interpreter);
    let program =
        "import mpi4py; mpi4py.rc.initialize = False\nfrom mpi4py import MPI\nprint(MPI.get_vendor()[0])";
    ask.args(["-c", program]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = output_within(ask, QUERY_TIME_OUT).ok()?;
    MpiKind::named_in(&String::from_utf8_lossy(&output.stdout))
}

/// Finds the launcher to start a program with.
///
/// It is a launcher of the MPI for which the program was built (or of the wanted MPI), from beside
/// the program, from beside its MPI library, or from PATH.
///
/// # Errors
///
/// A sentence with the remedy, if there is no such launcher.
pub fn launcher_for(program: Option<&Path>, wanted: Option<MpiKind>) -> Result<MpiLauncher, String> {
    let known = program.map_or(ProgramMpi { kind: None, folders: Vec::new() }, ProgramMpi::of);
    let kind = wanted.or(known.kind);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = known.folders.into_iter().chain(std::env::split_paths(&path));
    MpiLauncher::find_in(folders, kind).ok_or_else(|| {
        let what = kind.map_or("no mpiexec".to_string(), |kind| format!("no mpiexec of {}", kind.title()));
        let why = match (wanted, kind) {
            (None, Some(kind)) => format!(" (the program was built for {})", kind.title()),
            _ => String::new(),
        };
        format!(
            "{what} beside the program or in PATH{why}: install that MPI, or name its launcher with --mpiexec"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn program_is_the_first_executable_argument() {
        for (line, place) in [
            ("-n 4 sh script", 2),
            ("-np 2 --mca pml cm sh", 5),
            ("-genv A B -n 2 /bin/sh -c true", 5),
            ("sh", 0),
        ] {
            let (n, file) = find_program(&words(line)).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(n, place, "{line}");
            assert!(file.is_file());
        }
        assert_eq!(find_program(&words("-n 4 ./no-such-program-anywhere")), None);
    }

    #[test]
    fn ranks_are_counted_if_all_run_on_this_machine() {
        for (line, ranks) in [
            ("-n 4 sh script -n 5", Some(4)),
            ("--mca pml cm -np 16 sh", Some(16)),
            ("sh -n 4", None),
            ("-n x sh", None),
            ("--hostfile names -n 4 sh", None),
            ("-H a,b -n 4 sh", None),
            ("-n 4 sh : -n 4 sh", None),
        ] {
            assert_eq!(ranks_asked_for(&words(line)), ranks, "{line}");
        }
    }

    #[test]
    fn program_without_mpi_library_names_no_mpi() {
        let shell = executable(OsStr::new("sh")).unwrap();
        let known = ProgramMpi::of(&shell);
        assert_eq!(known.kind, None);
        assert_eq!(known.folders.last().map(PathBuf::as_path), shell.parent());
    }

    #[test]
    fn folder_without_launcher_yields_none() {
        let folder = std::env::temp_dir().join(format!("towpath-program-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let found = MpiLauncher::find_in([folder.clone()], None);
        assert_eq!(found, None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
