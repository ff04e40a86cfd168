//! Applications over shared memory, their sizes, and the results of their runs.

use std::path::Path;

use towpath_machine::Processor;

use crate::barnes::Barnes;
use crate::cholesky::Cholesky;
use crate::lu::Lu;
use crate::memory::Memory;
use crate::mp3d::Mp3d;
use crate::radiosity::Radiosity;
use crate::raytrace::Raytrace;
use crate::spark98::pack::Pack;
use crate::spark98::{Spark98, Summation};
use crate::team::{Needs, Team};

/// Application over shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// Product of a sparse matrix and a vector, a lock for each element of the result.
    Spark98,
    /// Product of a sparse matrix and a vector, by a reduction over the processors.
    Spark98Reduced,
    /// LU factors of a dense matrix, by blocks.
    Lu,
    /// Picture of spheres, in tiles.
    Raytrace,
    /// Flow of molecules through cells.
    Mp3d,
    /// Bodies that attract each other, by a tree.
    Barnes,
    /// Factor of a sparse matrix, by tasks.
    Cholesky,
    /// Light of a room, by tasks.
    Radiosity,
}

impl Application {
    /// All of them.
    pub const ALL: [Application; 8] = [
        Application::Spark98,
        Application::Spark98Reduced,
        Application::Lu,
        Application::Raytrace,
        Application::Mp3d,
        Application::Barnes,
        Application::Cholesky,
        Application::Radiosity,
    ];

    /// Its name, as users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Application::Spark98 => "spark98",
            Application::Spark98Reduced => "spark98-reduced",
            Application::Lu => "lu",
            Application::Raytrace => "raytrace",
            Application::Mp3d => "mp3d",
            Application::Barnes => "barnes",
            Application::Cholesky => "cholesky",
            Application::Radiosity => "radiosity",
        }
    }

    /// Returns its description, with the key of its paper, for lists.
    pub const fn about(self) -> &'static str {
        match self {
            Application::Spark98 => "product of a sparse matrix and a vector, a lock for each element (K)",
            Application::Spark98Reduced => "the same product by a reduction, with barriers only (K)",
            Application::Lu => "factors of a dense matrix in blocks, with barriers (N)",
            Application::Raytrace => "picture in tiles from queues, one lock for all rays (K)",
            Application::Mp3d => "molecules that collide, two locks for each cell of space (K)",
            Application::Barnes => "bodies that attract each other, a tree with locks for its cells (K)",
            Application::Cholesky => "factor of a sparse matrix, tasks in queues and locks (N)",
            Application::Radiosity => "light of a room, tasks in queues and many locks (N, K)",
        }
    }

    /// Returns the kind of part that decides most about its time.
    pub const fn decided_by(self) -> PartKind {
        match self {
            Application::Spark98Reduced | Application::Lu => PartKind::Barrier,
            Application::Cholesky => PartKind::Queue,
            _ => PartKind::Lock,
        }
    }

    /// Returns whether it is also written as loops ([`Problem::work_in_loops`]).
    pub const fn has_loops(self) -> bool {
        matches!(self, Application::Spark98Reduced | Application::Lu | Application::Raytrace)
    }

    /// The application of that name.
    pub fn from_name(name: &str) -> Option<Application> {
        Application::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// Kind of a team's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Its locks.
    Lock,
    /// Its barrier.
    Barrier,
    /// Its queues of tasks.
    Queue,
}

/// Size of a problem. The head of an application's file gives its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Size for tests: some milliseconds on one core.
    Tiny,
    /// Size for simulated machines: some hundred thousand accesses to shared memory.
    #[default]
    Small,
    /// Size for real machines: a fraction of a second on one core.
    Medium,
    /// The paper's, where it can be had.
    Large,
}

impl Size {
    /// All of them.
    pub const ALL: [Size; 4] = [Size::Tiny, Size::Small, Size::Medium, Size::Large];

    /// Its name, as users call it.
    pub const fn name(self) -> &'static str {
        self.pick(["tiny", "small", "medium", "large"])
    }

    /// The size of that name.
    pub fn from_name(name: &str) -> Option<Size> {
        Size::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Picks the thing of this size out of four, which go from the smallest size on.
    pub const fn pick<T: Copy>(self, of: [T; 4]) -> T {
        of[self as usize]
    }
}

/// Choice of a problem: application, size, seed of its input, number of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemChoice {
    /// The application.
    pub application: Application,
    /// The size of its input.
    pub size: Size,
    /// The seed of its input.
    pub seed: u64,
    /// Number of processors.
    pub procs: usize,
    /// Pack with the mesh of spark98, in the place of a generated one.
    pub pack: Option<&'static Pack>,
}

/// Size of a problem, or a pack that is its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProblemInput {
    /// Size. With a pack: decides the number of products only.
    pub size: Size,
    /// Pack of spark98's.
    pub pack: Option<&'static Pack>,
}

impl ProblemInput {
    /// Reads the name of a size, or of a pack's file, which is of this size otherwise.
    ///
    /// # Errors
    ///
    /// A sentence, if it is no size, and no file that has a pack.
    pub fn read(text: &str, size: Size) -> Result<ProblemInput, String> {
        if let Some(size) = Size::from_name(text) {
            return Ok(ProblemInput { size, pack: None });
        }
        let pack = Pack::open(Path::new(text)).map_err(|why| {
            let sizes = Size::ALL.map(Size::name).join(", ");
            format!("`{text}` is no size ({sizes}), and no pack of Spark98's can be read there: {why}")
        })?;
        Ok(ProblemInput { size, pack: Some(pack) })
    }

    /// Name of the size, or of the pack's file.
    pub fn name(&self) -> &'static str {
        self.pack.map_or(self.size.name(), |pack| &pack.name)
    }
}

impl From<Size> for ProblemInput {
    fn from(size: Size) -> ProblemInput {
        ProblemInput { size, pack: None }
    }
}

/// Picture that an application has made: rows of pixels, from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels in a row.
    pub width: usize,
    /// Red, green and blue of each pixel.
    pub pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// The picture as a file in the format PPM.
    pub fn to_ppm(&self) -> Vec<u8> {
        let height = self.pixels.len() / self.width.max(1);
        let mut file = format!("P6\n{} {height}\n255\n", self.width).into_bytes();
        file.extend(self.pixels.iter().flatten());
        file
    }
}

/// Result of a run that agrees with the reference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Figures that a person can look at, in a line.
    pub text: String,
    /// Picture, if the application makes one.
    pub picture: Option<Picture>,
}

impl Verified {
    /// A result without a picture.
    pub fn new(text: String) -> Verified {
        Verified { text, picture: None }
    }
}

/// Parallel loops: iterations that need no locks, and an end that all of them reach.
pub trait ParallelLoops<P: Processor> {
    /// Executes `body` for each number below `count`, in any order or at the same time.
    /// Returns the sum of its results.
    fn sum(&self, count: usize, body: &(dyn Fn(&P, usize) -> u64 + Sync)) -> u64;

    /// Executes `body` for each number below `count`, in any order or at the same time.
    fn each(&self, count: usize, body: &(dyn Fn(&P, usize) + Sync)) {
        self.sum(count, &|cpu, n| {
            body(cpu, n);
            0
        });
    }
}

/// Problem in the memory of a machine, to be solved once.
pub trait Problem<P: Processor>: Send + Sync {
    /// Returns the numbers of locks, queues and tasks that it needs.
    fn needs(&self) -> Needs;

    /// Solves the part of processor `me` of the team: the kernel.
    fn work(&self, cpu: &P, me: usize, team: &Team<'_, P>);

    /// Solves all of it by parallel loops, in place of a team.
    ///
    /// They are the steps of the kernel, where [`Application::has_loops`]. Otherwise this does
    /// nothing, and the check fails.
    fn work_in_loops(&self, cpu: &P, loops: &dyn ParallelLoops<P>) {
        let _ = (cpu, loops);
    }

    /// Compares the result with the reference. `value` reads a datum; all processors have
    /// ended.
    ///
    /// # Errors
    ///
    /// The difference.
    fn check(&self, value: &dyn Fn(&P::Cell) -> u64) -> Result<Verified, String>;
}

/// Makes a problem in the memory of a machine.
pub fn make<P: Processor>(choice: ProblemChoice, memory: &Memory<'_, P>) -> Box<dyn Problem<P>> {
    match choice.application {
        Application::Spark98 => Box::new(Spark98::new(choice, memory, Summation::Locks)),
        Application::Spark98Reduced => Box::new(Spark98::new(choice, memory, Summation::Reduction)),
        Application::Lu => Box::new(Lu::new(choice, memory)),
        Application::Raytrace => Box::new(Raytrace::new(choice, memory)),
        Application::Mp3d => Box::new(Mp3d::new(choice, memory)),
        Application::Barnes => Box::new(Barnes::new(choice, memory)),
        Application::Cholesky => Box::new(Cholesky::new(choice, memory)),
        Application::Radiosity => Box::new(Radiosity::new(choice, memory)),
    }
}
