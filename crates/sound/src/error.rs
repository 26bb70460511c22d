//! The errors of this crate: parameters that it cannot work with. Samples of any value are accepted.

/// The reason why sound cannot be processed as asked. Asking again gives the same error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum SoundError {
    /// A sampling rate of 0.
    #[error("a sampling rate of 0 Hz: a rate is at least 1 Hz")]
    NoRate,
    /// Two rates whose ratio needs too many weights.
    #[error(
        "resampling from {from} Hz to {to} Hz needs {weights} weights, more than the limit of {limit}: choose a rate that has a \
         larger common divisor with {from}"
    )]
    UnevenRates { from: u32, to: u32, weights: u64, limit: u64 },
    /// Features that are defined for one rate alone.
    #[error("the features `{preset}` are of sound at {needed} Hz, not at {rate} Hz: resample it first")]
    OtherRate { preset: &'static str, needed: u32, rate: u32 },
    /// An impulse response that cannot be applied.
    #[error("an impulse response is {what}: leave its file out")]
    ImpulseResponse { what: &'static str },
    /// A transform of a size for which there is no fast one.
    #[error("`n_fft` is {size}, and must be even and have no prime factor above 5, such as 400, 480 or 512")]
    TransformSize { size: usize },
    /// A parameter outside of its range.
    #[error("`{parameter}` is {value}, and must be from {least} to {most}")]
    Parameter { parameter: &'static str, value: f64, least: f64, most: f64 },
}
