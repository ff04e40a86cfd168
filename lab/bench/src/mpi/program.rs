//! Programs: where the program stands among a launcher's arguments, and which MPI it was
//! built for.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Kind, Launcher};
use crate::input::{mentions, open_regular};
use crate::process::output_within;

/// How long a program's interpreter may take to say which MPI it loads.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program among a launcher's arguments: the first that is no option and can be
/// executed. Its place, and its file.
pub fn find_program(arguments: &[OsString]) -> Option<(usize, PathBuf)> {
    arguments
        .iter()
        .enumerate()
        .filter(|(_, word)| !word.to_string_lossy().starts_with('-'))
        .find_map(|(n, word)| Some((n, executable(word)?)))
}

/// How many ranks a launcher's arguments ask for, on this machine alone. `None` if they
/// don't say, name other hosts, or start several programs.
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

/// The file that a command's name stands for.
fn executable(name: &OsStr) -> Option<PathBuf> {
    let is_one =
        |path: &PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if Path::new(name).components().count() > 1 {
        return Some(PathBuf::from(name)).filter(is_one);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(is_one)
}

/// What is known of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flavour {
    /// Which MPI it was built for, if it says so.
    pub kind: Option<Kind>,
    /// Where to look for that MPI's launcher first.
    pub folders: Vec<PathBuf>,
}

impl Flavour {
    /// Looks at a program.
    pub fn of(program: &Path) -> Flavour {
        let mut folders: Vec<PathBuf> = program.parent().map(Path::to_owned).into_iter().collect();
        let name = program.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("python") {
            return Flavour { kind: python(program), folders };
        }
        if !is_elf(program) {
            return Flavour { kind: None, folders };
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
            Some(Kind::OpenMpi)
        } else if mpich || older_mpich {
            // The same interface: whose it is says the library's text.
            let intel = library.is_some_and(|l| mentions(&l, [b"Intel(R) MPI"]) == [true]);
            Some(if intel { Kind::Intel } else { Kind::Mpich })
        } else {
            None
        };
        Flavour { kind, folders }
    }
}

fn is_elf(program: &Path) -> bool {
    let mut start = [0; 4];
    open_regular(program).is_ok_and(|mut file| file.read_exact(&mut start).is_ok()) && start == *b"\x7fELF"
}

/// The shared libraries that the dynamic linker would load for it.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let mut ask = Command::new("ldd");
    ask.arg(program).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(output) = output_within(ask, PATIENCE) else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split("=> ").nth(1)?.split(" (").next().map(PathBuf::from))
        .collect()
}

/// The MPI that mpi4py would load in that interpreter.
fn python(interpreter: &Path) -> Option<Kind> {
    let mut ask = Command::new(interpreter);
    let program =
        "import mpi4py; mpi4py.rc.initialize = False\nfrom mpi4py import MPI\nprint(MPI.get_vendor()[0])";
    ask.args(["-c", program]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = output_within(ask, PATIENCE).ok()?;
    Kind::that_says(&String::from_utf8_lossy(&output.stdout))
}

/// The launcher to start a program with: that of the MPI for which it was built, from
/// beside the program or its library, or else from PATH.
///
/// # Errors
///
/// There is none, and what to do about it.
pub fn launcher_for(program: Option<&Path>, wanted: Option<Kind>) -> Result<Launcher, String> {
    let flavour = program.map_or(Flavour { kind: None, folders: Vec::new() }, Flavour::of);
    let kind = wanted.or(flavour.kind);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = flavour.folders.into_iter().chain(std::env::split_paths(&path));
    Launcher::find_in(folders, kind).ok_or_else(|| {
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
    fn the_program_is_the_first_word_that_can_be_executed() {
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
    fn ranks_are_counted_where_all_are_here() {
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
    fn a_script_says_nothing_of_its_mpi_and_an_executable_without_one_neither() {
        let shell = executable(OsStr::new("sh")).unwrap();
        let flavour = Flavour::of(&shell);
        assert_eq!(flavour.kind, None);
        assert_eq!(flavour.folders.last().map(PathBuf::as_path), shell.parent());
    }

    #[test]
    fn whoever_has_no_launcher_is_told_what_to_do() {
        let folder = std::env::temp_dir().join(format!("towpath-program-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let found = Launcher::find_in([folder.clone()], None);
        assert_eq!(found, None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
