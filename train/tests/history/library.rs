//! The library as the trainer: sessions in this process, with a simulated clock.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use ember_data::prepare;
use ember_model::device::{self, DeviceChoice};
use ember_training::distributed::Alone;
use ember_training::error::{Error, Result};
use ember_training::note;
use ember_training::run::folder::CONFIG;
use ember_training::run::report::Silent;
use ember_training::run::time_budget::{Pace, TimeBudget};
use ember_training::run::{DefaultHooks, Ended, Start, resume, text};
use ember_training::{config, run::Run, run::Trained};
use rayon::{ThreadPool, ThreadPoolBuilder};
use tempfile::TempDir;

use super::history::{End, Failure, RUN, Ran, Session, Settings, Trains};
use super::witness::{self, Fault, Operation};

/// Nanoseconds that pass each time the clock is read.
const TICK: u64 = 1_000_000;

/// A temporary folder, in memory if the machine has such a file system.
pub fn scratch() -> TempDir {
    let place = |folder: &Path| tempfile::Builder::new().prefix("ember-history-").tempdir_in(folder);
    place(Path::new("/dev/shm")).or_else(|_| place(&std::env::temp_dir().canonicalize().unwrap())).unwrap()
}

/// A text with something to learn, and its tokens.
pub struct Library {
    texts: TempDir,
    /// The pool of one thread that trains.
    pool: ThreadPool,
}

impl Library {
    /// Prepares the text.
    pub fn new() -> Self {
        let texts = scratch();
        let words = ["one", "two", "three", "four", "five"];
        let text: String = (0..150).map(|i| format!("{} and {}.\n", words[i % 5], words[(i + 1) % 5])).collect();
        std::fs::write(texts.path().join("count.txt"), text).unwrap();
        let library = Self { texts, pool: ThreadPoolBuilder::new().num_threads(1).build().unwrap() };
        let settings = library.settings(&Settings { prepares: true, ..Settings::EVERY_STEP });
        let options = text::options(&settings.data().unwrap(), library.texts.path().join("tokens")).unwrap();
        prepare::prepare(&options, &prepare::Silent).unwrap();
        library
    }

    /// Trains on a disk with this fault from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.pool.install(|| witness::set_fault(fault));
    }

    /// The configuration of a run.
    pub fn assignments(&self, settings: &Settings) -> Vec<String> {
        let text = self.texts.path().join(if settings.prepares { "count.txt" } else { "tokens" });
        let text = format!("text=[{text:?}]");
        settings.assignments().into_iter().chain([text]).collect()
    }

    fn settings(&self, settings: &Settings) -> config::Settings {
        let mut set = config::Settings::default();
        self.assignments(settings).iter().for_each(|assignment| set.set(assignment).unwrap());
        set
    }

    fn train(&self, run: &Path, set: &Settings, max_steps: u64, stop: &dyn Fn() -> bool) -> Result<Option<Trained>> {
        let length = format!("max_steps={max_steps}");
        let run_to_train = if run.join(CONFIG).is_file() {
            // The time budget has already chosen the run's length.
            let changes = if set.promised.is_some() { Vec::new() } else { vec![length] };
            Some(resume(run, &changes, device::select(DeviceChoice::Cpu)?, None, &Alone, &mut Silent)?)
        } else {
            let mut settings = self.settings(set);
            settings.set(&length)?;
            let start = Start::new(settings, DeviceChoice::Cpu, None, &DefaultHooks, &mut Silent)?;
            // A simulated step takes almost no time: measured, it would give a run of a hundred
            // million steps.
            let pace = Pace { step_s: 0.002, look_s: 0.005 };
            let clock = |promised| TimeBudget::new(Instant::now(), promised as f64 / 1000.0, u64::MAX, pace);
            let begun = start.begin(run, &Alone, &DefaultHooks, &mut Silent)?;
            begun.map(|run| Run { time_budget: set.promised.map(clock), ..run })
        };
        run_to_train.map(|run| run.train(&Alone, &mut Silent, stop)).transpose()
    }
}

/// Held for reading while a session of this process runs.
pub static SESSIONS: RwLock<()> = RwLock::new(());

/// Panic payload that ends a session that is cut short.
struct CutShort;

impl Trains for Library {
    fn session(&self, place: &Path, settings: &Settings, session: &Session) -> Ran {
        let _at_work = SESSIONS.read().unwrap_or_else(PoisonError::into_inner);
        let recorded = Arc::new(Mutex::new(Vec::<Operation>::new()));
        let sink = Arc::clone(&recorded);
        witness::watch(place, session.full.clone(), move |operation| sink.lock().unwrap().push(operation));
        let count = || recorded.lock().unwrap().len();
        let stop = || {
            if session.end.cut_after().is_some_and(|cut| count() >= cut) {
                panic::resume_unwind(Box::new(CutShort)); // without a message
            }
            matches!(session.end, End::Stop(after) if count() >= after)
        };
        let train = || {
            witness::set_tick(TICK);
            self.train(&place.join(RUN), settings, session.max_steps, &stop)
        };
        let ended = panic::catch_unwind(AssertUnwindSafe(|| self.pool.install(train)));
        witness::unwatch(place);
        let ended = match ended {
            Ok(ended) => Some(ended.map(|trained| trained.and_then(stopped_at)).map_err(failure)),
            Err(payload) if payload.is::<CutShort>() => None,
            Err(payload) => panic::resume_unwind(payload),
        };
        let operations = std::mem::take(&mut *recorded.lock().unwrap());
        Ran { operations, ended }
    }
}

/// The step at which a run that was asked to stop is saved.
fn stopped_at(trained: Trained) -> Option<u64> {
    (trained.ended == Ended::Interrupted).then_some(trained.progress.step)
}

fn failure(error: Error) -> Failure {
    Failure { line: note::line(&error), is_full_disk: error.is_full_disk() }
}
