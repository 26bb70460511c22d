//! The kind `video_mask`: which frames of a `video` column's value the video has.

use super::{
    kind::follower,
    video::{followed_video, numbers_of_frames},
};

follower! {
    /// Whether each frame of a `video` column's value is one of the video, and not its last one again behind its end.
    "video_mask": VideoMaskKeys => VideoMaskColumn follows "video", " that it is of", followed_video => frames or less is_all;
    reads_field = true;
    dtypes = [Bool, U8, F32];
    shape = |column| numbers_of_frames(column.frames, column.is_all);
}
