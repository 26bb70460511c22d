//! The errors of this crate: parameters that it cannot work with. Samples of any value are accepted.

/// The reason why sound cannot be processed as asked. Asking again gives the same error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SoundError {
    /// A sampling rate of 0.
    #[error("a sampling rate of 0 Hz: a rate is at least 1 Hz")]
    NoRate,
    /// Two rates whose ratio needs too many weights.
    #[error(
        "resampling from {from} Hz to {to} Hz needs {weights} weights, more than the limit of {limit}: choose a rate that has a \
         larger common divisor with {from}"
    )]
    UnevenRates {
        /// The rate of the input in Hz.
        from: u32,
        /// The rate that was asked for in Hz.
        to: u32,
        /// The weights of all phases.
        weights: u64,
        /// The most weights that a resampler may have.
        limit: u64,
    },
}
