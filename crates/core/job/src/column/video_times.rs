//! The kind `video_times`: when the frames of a `video` column's value are shown.

use super::{kind::follower, video::followed_video};
use spdl_types::SampleShape;

follower! {
    /// When each frame of a `video` column's value is shown, in seconds.
    "video_times": VideoTimesKeys => VideoTimesColumn follows "video", " that they are of", followed_video => frames;
    reads_field = true;
    dtypes = [F64, F32];
    shape = |column| SampleShape::Fixed(vec![column.frames]);
}
