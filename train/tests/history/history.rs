//! Randomly drawn histories: what happens to a run.

use std::fmt::{self, Debug, Formatter};
use std::path::Path;

use proptest::prelude::*;

use super::witness::{Full, Operation};

/// Name of the run folder in the working folder.
pub const RUN: &str = "run";

/// All that happens to a run before it is left alone to finish.
#[derive(Clone)]
pub struct History {
    /// The run's settings.
    pub settings: Settings,
    /// The events, one session after another.
    pub sessions: Vec<Session>,
}

/// Prints short lines of valid Rust, to be pasted into a test.
impl Debug for History {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{:?}", self.settings)?;
        self.sessions.iter().try_for_each(|session| write!(f, "\n{session:?}"))
    }
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Steps between two evaluations, saves, rows and samples; a sample interval of 0 means never.
    pub eval_interval: u64,
    pub checkpoint_interval: u64,
    pub log_interval: u64,
    pub sample_interval: u64,
    pub keep_checkpoints: u64,
    /// Evaluations without a new best before the run ends; 0 for no limit.
    pub patience: u64,
    /// Whether an average of the weights is kept.
    pub average: bool,
    pub tensorboard: bool,
    /// Whether the run prepares its text itself, in its folder, or uses a text prepared before.
    pub prepares: bool,
    /// Time budget of the run in milliseconds of its own clock.
    pub promised: Option<u64>,
}

impl Settings {
    /// Logs, saves, evaluates and samples at every step.
    pub const EVERY_STEP: Self = Self {
        eval_interval: 1,
        checkpoint_interval: 1,
        log_interval: 1,
        sample_interval: 1,
        keep_checkpoints: 1000,
        patience: 0,
        average: false,
        tensorboard: false,
        prepares: false,
        promised: None,
    };

    /// The configuration of such a run except text and length. The learning rate grows far too
    /// large, so that the best step is seldom the last. Calibration is off: the twin, which is
    /// evaluated at every step, would have other temperatures.
    pub fn assignments(&self) -> Vec<String> {
        let Self { eval_interval, checkpoint_interval, log_interval, sample_interval, keep_checkpoints, .. } = self;
        let Self { patience, average, tensorboard, .. } = self;
        let ema_decay = if *average { 0.5 } else { 0.0 };
        let set = format!(
            "n_layer=1 n_head=1 n_embd=4 context_length=8 batch_size=2 dropout=0.1 architecture=gpt2 optimizer=adamw \
             schedule=constant learning_rate=1 warmup_steps=100 val_fraction=0.4 eval_tokens=64 tokenizer=chars \
             sample_tokens=2 eval_interval={eval_interval} checkpoint_interval={checkpoint_interval} \
             log_interval={log_interval} sample_interval={sample_interval} keep_checkpoints={keep_checkpoints} \
             patience={patience} ema_decay={ema_decay} tensorboard={tensorboard} calibrate=false"
        );
        set.split_whitespace().map(str::to_owned).collect()
    }
}

/// Lengths of runs, in steps: multiples of every interval, so that a lengthened run is evaluated,
/// saved and sampled at the same steps as one that was that long from the start.
pub const LENGTHS: [u64; 2] = [6, 12];

/// One process that trains the run, from its start to its end.
#[derive(Clone, Debug)]
pub struct Session {
    /// The requested length in steps; a lengthened run is never shortened again.
    pub max_steps: u64,
    /// When the disk is full.
    pub full: Option<Full>,
    /// How the session ends, unless the run finishes first.
    pub end: End,
}

/// How a session ends; the number is the count of disk operations before the event.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// The run finishes.
    Done,
    /// The session is asked to stop.
    Stop(usize),
    /// It is killed.
    Kill(usize),
    /// A power cut; the seed decides which unsynced changes are lost ([`super::life::lose_power`]).
    PowerCut(usize, u64),
}

impl End {
    /// The number of operations that take effect, if the session is cut short.
    pub fn cut_after(self) -> Option<usize> {
        match self {
            Self::Kill(after) | Self::PowerCut(after, _) => Some(after),
            Self::Done | Self::Stop(_) => None,
        }
    }
}

/// Outcome of a session.
pub struct Ran {
    /// Its operations on the disk.
    pub operations: Vec<Operation>,
    /// How it ended by itself: success, with the step that it says is saved if it was asked to stop,
    /// or its error. `None` if it was cut short.
    pub ended: Option<Result<Option<u64>, Failure>>,
}

/// Why a program ended with an error.
#[derive(Debug)]
pub struct Failure {
    pub line: String,
    /// Whether the cause was a full disk.
    pub is_full_disk: bool,
}

/// Runs training sessions: the library, or the program.
pub trait Trains {
    /// Resumes the run in `place`, or begins it if there is none.
    fn session(&self, place: &Path, settings: &Settings, session: &Session) -> Ran;
}

/// Strategy for histories of fewer than five sessions.
pub fn history() -> impl Strategy<Value = History> {
    let session = (any::<bool>(), full(), end()).prop_map(|(is_long, full, end)| {
        let max_steps = LENGTHS[usize::from(is_long)];
        Session { max_steps, full, end }
    });
    (settings(), prop::collection::vec(session, 0..5)).prop_map(|(settings, sessions)| History { settings, sessions })
}

fn settings() -> impl Strategy<Value = Settings> {
    let intervals = (
        prop::sample::select(vec![2, 3, 6]),
        prop::sample::select(vec![1, 2, 5, 100]),
        prop::sample::select(vec![1, 3]),
        prop::sample::select(vec![0, 2, 3]),
    );
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let promised = prop::option::weighted(0.1, 100u64..200);
    (intervals, 1u64..4, 0u64..4, flags, promised).prop_map(
        |(intervals, keep_checkpoints, patience, flags, promised)| {
            let (eval_interval, checkpoint_interval, log_interval, sample_interval) = intervals;
            let (average, tensorboard, prepares) = flags;
            Settings {
                eval_interval,
                checkpoint_interval,
                log_interval,
                sample_interval,
                keep_checkpoints,
                patience,
                average,
                tensorboard,
                prepares,
                promised,
            }
        },
    )
}

fn end() -> impl Strategy<Value = End> {
    let after = || prop_oneof![0usize..60, 0usize..300];
    prop_oneof![
        1 => Just(End::Done),
        2 => after().prop_map(End::Stop),
        3 => after().prop_map(End::Kill),
        3 => (after(), any::<u64>()).prop_map(|(after, seed)| End::PowerCut(after, seed)),
    ]
}

fn full() -> impl Strategy<Value = Option<Full>> {
    let full = (0usize..200, 1usize..200, prop_oneof![0u64..3000, 0u64..60_000]);
    prop::option::weighted(0.3, full)
        .prop_map(|full| full.map(|(from, long, room)| Full { while_at: from..from + long, room }))
}
