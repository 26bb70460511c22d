//! The kind `audio_rate`: the sample rate of an `audio` column's value.

use super::{audio::followed_audio, kind::follower};
use spdl_types::SampleShape;

follower! {
    /// The sample rate of an `audio` column's value, in Hz.
    "audio_rate": AudioRateKeys => AudioRateColumn follows "audio", " that it is of", followed_audio;
    reads_field = true;
    dtypes = [I64, I32];
    shape = |_| SampleShape::Fixed(Vec::new());
}
