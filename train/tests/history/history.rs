//! What happens to a run, drawn at random.

use std::fmt::{self, Debug, Formatter};
use std::path::Path;

use proptest::prelude::*;

use super::witness::{Full, Operation};

/// The folder of a run, below the place that it lives in.
pub const RUN: &str = "run";

/// All that happens to a run until it is left alone and comes to its end.
#[derive(Clone)]
pub struct History {
    /// How the run is set.
    pub settings: Settings,
    /// What happens, one session after another.
    pub sessions: Vec<Session>,
}

/// In lines that are short, and that Rust reads: they can be pasted into a test.
impl Debug for History {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{:?}", self.settings)?;
        self.sessions.iter().try_for_each(|session| write!(f, "\n{session:?}"))
    }
}

/// How a run is set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Steps between two evaluations, saves, rows and samples; a sample interval of 0 is never.
    pub eval_interval: u64,
    pub checkpoint_interval: u64,
    pub log_interval: u64,
    pub sample_interval: u64,
    pub keep_checkpoints: u64,
    /// Evaluations without a new best; 0 for any number.
    pub patience: u64,
    /// Whether an average of the weights is kept.
    pub average: bool,
    pub tensorboard: bool,
    /// Whether the text is prepared in the run's folder, and not before.
    pub prepares: bool,
    /// Milliseconds in which the run is promised to end, by its own clock.
    pub promised: Option<u64>,
}

impl Settings {
    /// Looked at in every way at each step.
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

    /// What is set for such a run, but for its text and its length. Its rate grows far beyond what
    /// is good: the best step is seldom the last. It is not calibrated: the twin, which is evaluated
    /// at each step, would have other temperatures.
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

/// Lengths of runs, in steps: multiples of every interval, so that a run that was made longer is
/// looked at as if it had always been.
pub const LENGTHS: [u64; 2] = [6, 12];

/// A program at work on the run, from its start to its end.
#[derive(Clone, Debug)]
pub struct Session {
    /// The length that is asked for, in steps; one that is made longer is never made shorter.
    pub max_steps: u64,
    /// When the disk is full.
    pub full: Option<Full>,
    /// How it ends, unless it comes to its own end first.
    pub end: End,
}

/// How a session ends, each after so many operations on the disk.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// By itself.
    Done,
    /// Somebody asks it to stop.
    Stop(usize),
    /// It is killed.
    Kill(usize),
    /// The power goes; by a number the disk loses what was not synced ([`super::life::lose_power`]).
    PowerCut(usize, u64),
}

impl End {
    /// Operations after which nothing more is done.
    pub fn cut(self) -> Option<usize> {
        match self {
            Self::Kill(after) | Self::PowerCut(after, _) => Some(after),
            Self::Done | Self::Stop(_) => None,
        }
    }
}

/// What a session was.
pub struct Ran {
    /// What it did to the disk.
    pub operations: Vec<Operation>,
    /// How it ended by itself: its error, if it was one. `None` where it was cut short.
    pub ended: Option<Result<(), Failure>>,
}

/// Why a program ended with an error.
#[derive(Debug)]
pub struct Failure {
    pub line: String,
    /// Whether it was for want of room.
    pub is_full_disk: bool,
}

/// Something that trains runs: the library, or the program.
pub trait Trains {
    /// Goes on with the run in `place`, or begins it where there is none.
    fn session(&self, place: &Path, settings: &Settings, session: &Session) -> Ran;
}

/// A history of at most a few sessions.
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
