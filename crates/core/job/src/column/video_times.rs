//! The kind `video_times`: when the frames of a `video` column's value are shown.

use super::{
    kind::follower,
    video::{followed_video, numbers_of_frames},
};

follower! {
    /// When each frame of a `video` column's value is shown, in seconds.
    "video_times": VideoTimesKeys => VideoTimesColumn follows "video", " that they are of", followed_video => frames or less is_all;
    reads_field = true;
    dtypes = [F64, F32];
    shape = |column| numbers_of_frames(column.frames, column.is_all);
}
