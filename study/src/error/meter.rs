//! Why nothing can be measured on a device.

/// Why nothing can be measured on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeterError {
    /// The program allocates through another allocator than [`Counting`](ember_training::memory::counting::Counting).
    #[error("this program does not count its memory; use ember-train")]
    NotCounted,
    /// The device does not report.
    #[error("the device does not say how much memory is in use; use the CPU")]
    Silent,
    /// The device failed.
    #[error("the device failed: {0}; try the CPU")]
    Device(String),
    /// What was computed cannot be read back.
    #[error("cannot read the {what}: {problem}")]
    Values {
        /// What it is.
        what: &'static str,
        /// Why not.
        problem: String,
    },
}
