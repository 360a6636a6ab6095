//! Why processes cannot train together.

use super::cause::Cause;

/// Why processes cannot train together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A launcher started so many processes of a program that cannot speak to them.
    #[error("{0} processes of a program that was built without MPI were started, and they would write into one folder")]
    NoMpi(usize),
    /// The launcher's MPI is another than the program's.
    #[error(
        "the launcher started {launched} processes, but MPI sees {seen}; start them with the mpirun of the MPI that this program \
         was built with"
    )]
    OtherMpi {
        /// Processes of the launcher.
        launched: usize,
        /// Processes of MPI.
        seen: usize,
    },
    /// Something else of MPI failed.
    #[error("MPI was begun twice in one process")]
    BegunTwice,
    /// The windows of a step do not divide.
    #[error(
        "the {windows} windows of a step (batch_size times grad_accum_steps) do not divide among {processes} processes; start a \
         number of processes that divides {windows}, or choose another batch_size"
    )]
    UnequalShares {
        /// Windows of a step.
        windows: usize,
        /// Processes that share them.
        processes: usize,
    },
    /// A process reads another text: what of it is not the same.
    #[error("it reads another {0} than that of rank 0; let all see the same folder")]
    OtherText(&'static str),
    /// The process of this rank has come to other weights.
    #[error(
        "the process of rank {0} has come to other weights than that of rank 0, as happens between devices or processors of \
         different kinds; they are not saved: resume with processes of one kind, or with EMBER_SIMD=avx2 for all of them where \
         only the processors differ"
    )]
    OtherWeights(usize),
    /// The error of a process that does not lead, said by itself.
    #[error("the process of rank {rank}")]
    OfRank {
        /// Its rank.
        rank: usize,
        /// What failed there.
        source: Cause,
    },
    /// Another process failed, and says why; the code is what the caller made of its error.
    #[error("another process says why (exit code {0})")]
    SaidElsewhere(u8),
}
