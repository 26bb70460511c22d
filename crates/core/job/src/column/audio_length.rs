//! The kind `audio_length`: how many frames of an `audio` column's value are sound.

use super::{audio::followed_audio, kind::follower};
use spdl_types::SampleShape;

follower! {
    /// The frames of an `audio` column's value that are sound, and not the silence after a short one.
    "audio_length": AudioLengthKeys => AudioLengthColumn follows "audio", " that it is of", followed_audio;
    reads_field = true;
    dtypes = [I64, I32];
    shape = |_| SampleShape::Fixed(Vec::new());
}
