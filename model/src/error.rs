//! Why there is no model.

use ember_kernels::arena::ArenaError;
use ember_kernels::gpu::limits::LimitError;

use crate::WeightType;
use crate::device::DeviceError;
use crate::folder::FolderError;

/// Why a model cannot be built, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No model has this shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Its folder cannot be read or written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// There is no such device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device cannot compute attention with heads of this width.
    #[error(transparent)]
    Heads(#[from] LimitError),
    /// The device cannot multiply with weights stored like this.
    #[error("weights in {}: {problem}", weights.name())]
    Weights {
        /// How they should be stored.
        weights: WeightType,
        /// What speaks against it.
        problem: String,
    },
    /// The system does not give the memory that the weights need.
    #[error(transparent)]
    Memory(#[from] ArenaError),
}

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why no model has a shape.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// A size is 0.
    #[error("{name} is 0; it must be at least 1")]
    Zero {
        /// Which.
        name: &'static str,
    },
    /// A size is beyond any machine.
    #[error("{name} is {value}, which no machine can hold; choose a smaller one")]
    Huge {
        /// Which.
        name: &'static str,
        /// Its value.
        value: usize,
    },
    /// The width cannot be shared among the heads.
    #[error("n_embd {n_embd} is not a multiple of n_head {n_head}; each head takes an equal share of the width")]
    Heads {
        /// The width.
        n_embd: usize,
        /// Heads of queries.
        n_head: usize,
    },
    /// The heads of queries cannot be shared among those of keys and values.
    #[error(
        "n_head {n_head} is not a multiple of n_kv_head {n_kv_head}; each head of keys and values serves as many heads of queries"
    )]
    KvHeads {
        /// Heads of queries.
        n_head: usize,
        /// Heads of keys and values.
        n_kv_head: usize,
    },
    /// A head has no pairs of values to turn.
    #[error("a head is {0} wide; rotary positions turn pairs of values, so choose n_embd / n_head even")]
    OddHead(usize),
    /// The base of the rotary angles.
    #[error("rope_theta is {0}; it must be above 1, usually 10000")]
    RopeTheta(f64),
    /// The probability of dropout.
    #[error("dropout is {0}; it must be at least 0 and below 1")]
    Dropout(f64),
    /// What is added to a variance.
    #[error("the norms' epsilon is {0}; it must be between 0 and 1, usually 1e-5")]
    NormEpsilon(f64),
    /// All parameters together are beyond any machine.
    #[error("this shape has {0:.1e} parameters, which no machine can hold; choose smaller sizes")]
    Parameters(f64),
}
