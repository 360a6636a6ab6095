//! The program as the trainer: a process for each session, with the witness preloaded.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;

use ember_training::run::folder::CONFIG;

use super::history::{End, Failure, RUN, Ran, Session, Settings, Trains};
use super::library::{Library, SESSIONS, scratch};
use super::witness::{ORDERS, Operation, Orders};

/// `ember-train`, and the witness.
pub struct Program {
    library: Library,
    program: PathBuf,
    /// Processes that train together under `mpirun`.
    processes: u32,
    witness: PathBuf,
}

impl Program {
    /// The program named in `EMBER_TRAIN`, by default the one built here, on the library's text, in
    /// `PROCESSES` processes. The witness is an example target of this package.
    pub fn new(library: Library) -> Self {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_ember-train"));
        let witness = program.with_file_name("examples/libwitness.so");
        let build = ["build", "--release", "-q", "-p", "ember-train", "--example", "witness"];
        assert!(start(Command::new(env!("CARGO")).args(build)).wait().unwrap().success(), "cannot build the witness");
        let program = std::env::var_os("EMBER_TRAIN").map_or(program, PathBuf::from);
        let processes = std::env::var("PROCESSES").map_or(1, |processes| processes.parse().unwrap());
        Self { library, program, processes, witness }
    }

    /// The command with the witness and its orders; with several processes, each loads the witness.
    fn watched(&self, orders: &Path) -> Command {
        let environment = [("LD_PRELOAD", &*self.witness), (ORDERS, orders)];
        if self.processes == 1 {
            let mut command = Command::new(&self.program);
            command.envs(environment);
            return command;
        }
        let mut command = Command::new("mpirun");
        command.args([
            "--oversubscribe",
            "--allow-run-as-root",
            "--bind-to",
            "none",
            "-n",
            &self.processes.to_string(),
        ]);
        for (name, value) in environment {
            command.args(["-x", &format!("{name}={}", value.display())]);
        }
        command.arg(&self.program);
        command
    }
}

impl Trains for Program {
    fn session(&self, place: &Path, settings: &Settings, session: &Session) -> Ran {
        let files = scratch();
        let (orders, journal) = (files.path().join("orders"), files.path().join("journal"));
        let signal = match session.end {
            End::Done => None,
            End::Stop(after) => Some((after, if after % 2 == 0 { libc::SIGINT } else { libc::SIGTERM })),
            End::Kill(after) | End::PowerCut(after, _) => Some((after, libc::SIGKILL)),
        };
        let content = Orders { folder: place.to_owned(), journal: journal.clone(), full: session.full.clone(), signal };
        std::fs::write(&orders, serde_json::to_vec(&content).unwrap()).unwrap();
        let mut command = self.watched(&orders);
        if place.join(RUN).join(CONFIG).is_file() {
            command.args(["resume", RUN]);
        } else {
            command.args(["run", "--out", RUN]);
            command.args(self.library.assignments(settings).iter().flat_map(|set| ["--set", set]));
        }
        command.args(["--set", &format!("max_steps={}", session.max_steps), "--device", "cpu", "--threads", "1"]);
        command.current_dir(place).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = start(&mut command).wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let ended = match output.status.code() {
            Some(0 | INTERRUPTED) => Some(Ok(stopped_at(&stderr))),
            Some(MPIRUN_SIGNALED..) | None => None,
            // `mpirun` may first report another rank, which failed because the killed one was gone.
            Some(1) if matches!(signal, Some((_, libc::SIGKILL))) && stderr.contains(LOST_PEER) => None,
            code => Some(Err(failure(&stderr, code))),
        };
        let journal = std::fs::read_to_string(journal).expect("the witness was not loaded");
        let operations = journal.lines().map(|line| serde_json::from_str::<Operation>(line).unwrap()).collect();
        Ran { operations, ended }
    }
}

/// Exit code of a program that was asked to stop.
const INTERRUPTED: i32 = 130;
/// Lowest exit code of `mpirun` if a signal ended one of its processes.
const MPIRUN_SIGNALED: i32 = 129;
/// Start of the error of another rank that lost the killed one.
const LOST_PEER: &str = "error: run: the process of rank 0 ";

/// The step that a program that was asked to stop says is saved.
fn stopped_at(stderr: &str) -> Option<u64> {
    let (_, rest) = stderr.split_once("interrupted at step ")?;
    rest.split_once(", which is saved")?.0.parse().ok()
}

/// The failure of a program with this standard error and exit code: its error line. Of several
/// processes the first error counts; the others and `mpirun` print more after it.
fn failure(stderr: &str, code: Option<i32>) -> Failure {
    let error = stderr.lines().find(|line| line.starts_with("error: "));
    let line = error.or(stderr.lines().last()).unwrap_or_default();
    let is_full_disk = line.contains("disk is full") || line.contains("No space left on device");
    let is_reported = code == Some(1) && line.starts_with("error: ");
    Failure { line: format!("exit code {code:?}: {line}"), is_full_disk: is_reported && is_full_disk }
}

/// Starts a program while no session of this process runs: until its exec, the child holds all of
/// this process's open files, including the locks of runs.
fn start(command: &mut Command) -> Child {
    let _alone = SESSIONS.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap()
}
