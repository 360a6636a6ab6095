//! The program as what trains: a process for each session, with the witness loaded before it.

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
    /// Processes that train together, by `mpirun`.
    processes: u32,
    witness: PathBuf,
}

impl Program {
    /// The program, which learns from the library's text: the one that is named in `EMBER_TRAIN`,
    /// as so many as `PROCESSES` says, else what is built here. The witness is an example of this
    /// package.
    pub fn new(library: Library) -> Self {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_ember-train"));
        let witness = program.with_file_name("examples/libwitness.so");
        let build = ["build", "--release", "-q", "-p", "ember-train", "--example", "witness"];
        assert!(start(Command::new(env!("CARGO")).args(build)).wait().unwrap().success(), "cannot build the witness");
        let program = std::env::var_os("EMBER_TRAIN").map_or(program, PathBuf::from);
        let processes = std::env::var("PROCESSES").map_or(1, |processes| processes.parse().unwrap());
        Self { library, program, processes, witness }
    }

    /// The program, with the witness that follows these orders; of several processes each has one.
    fn watched(&self, orders: &Path) -> Command {
        let surroundings = [("LD_PRELOAD", &*self.witness), (ORDERS, orders)];
        if self.processes == 1 {
            let mut command = Command::new(&self.program);
            command.envs(surroundings);
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
        for (name, value) in surroundings {
            command.args(["-x", &format!("{name}={}", value.display())]);
        }
        command.arg(&self.program);
        command
    }
}

impl Trains for Program {
    fn session(&self, place: &Path, settings: &Settings, session: &Session) -> Ran {
        let beside = scratch();
        let (orders, journal) = (beside.path().join("orders"), beside.path().join("journal"));
        let signal = match session.end {
            End::Done => None,
            End::Stop(after) => Some((after, if after % 2 == 0 { libc::SIGINT } else { libc::SIGTERM })),
            End::Kill(after) | End::PowerCut(after, _) => Some((after, libc::SIGKILL)),
        };
        let told = Orders { folder: place.to_owned(), journal: journal.clone(), full: session.full.clone(), signal };
        std::fs::write(&orders, serde_json::to_vec(&told).unwrap()).unwrap();
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
        let said = String::from_utf8_lossy(&output.stderr);
        let ended = match output.status.code() {
            Some(0 | INTERRUPTED) => Some(Ok(())),
            Some(OF_MPIRUN_BY_SIGNAL..) | None => None,
            // Or `mpirun` hears first of a process that missed the killed one.
            Some(1) if matches!(signal, Some((_, libc::SIGKILL))) && said.contains(MISSED) => None,
            code => Some(Err(failure(&said, code))),
        };
        let journal = std::fs::read_to_string(journal).expect("the witness was not loaded");
        let operations = journal.lines().map(|line| serde_json::from_str::<Operation>(line).unwrap()).collect();
        Ran { operations, ended }
    }
}

/// The exit code of a program that was asked to stop.
const INTERRUPTED: i32 = 130;
/// From here on, what a signal that ended one of its processes makes of the exit code of `mpirun`.
const OF_MPIRUN_BY_SIGNAL: i32 = 129;
/// What the process of another rank says of the killed one, before it ends with an error.
const MISSED: &str = "error: run: the process of rank 0 ";

/// What a program said that ended with this code: its line of an error, or that of the first of
/// several processes, behind which the others and `mpirun` have words of their own.
fn failure(said: &str, code: Option<i32>) -> Failure {
    let error = said.lines().find(|line| line.starts_with("error: "));
    let line = error.or(said.lines().last()).unwrap_or_default();
    let is_full_disk = line.contains("disk is full") || line.contains("No space left on device");
    let is_said = code == Some(1) && line.starts_with("error: ");
    Failure { line: format!("exit code {code:?}: {line}"), is_full_disk: is_said && is_full_disk }
}

/// Starts a program while no session of this process is at work: until the program begins it holds all
/// that this process has open, the locks of runs too.
fn start(command: &mut Command) -> Child {
    let _alone = SESSIONS.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap()
}
