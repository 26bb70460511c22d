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
    /// Features that are defined for one rate alone.
    #[error("the features `{preset}` are of sound at {needed} Hz, not at {rate} Hz: resample it first")]
    OtherRate {
        /// The preset's name.
        preset: &'static str,
        /// The rate that they are defined for, in Hz.
        needed: u32,
        /// The rate of the samples in Hz.
        rate: u32,
    },
    /// An impulse response that cannot be applied.
    #[error("an impulse response is {what}: leave its file out")]
    ImpulseResponse {
        /// What it is.
        what: &'static str,
    },
    /// A transform of a size for which there is no fast one.
    #[error("`n_fft` is {size}, and must be even and have no prime factor above 5, such as 400, 480 or 512")]
    TransformSize {
        /// The samples of the transform.
        size: usize,
    },
    /// A parameter outside of its range.
    #[error("`{parameter}` is {value}, and must be from {least} to {most}")]
    Parameter {
        /// The parameter's name.
        parameter: &'static str,
        /// Its value.
        value: f64,
        /// The least value that it may have.
        least: f64,
        /// The greatest value that it may have.
        most: f64,
    },
}
