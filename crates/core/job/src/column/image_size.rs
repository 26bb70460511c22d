//! The kind `image_size`: the size of an `image` column's picture, before its operations or after them.

use super::kind::{followed_image, follower};
use spdl_types::SampleShape;

follower! {
    /// The height and width of the upright picture of an `image` column, or of what its operations make of that.
    "image_size": ImageSizeKeys => ImageSizeColumn follows "image", " that it is of", followed_image;
    reads_field = true;
    dtypes = [I64, I32];
    shape = |_| SampleShape::Fixed(vec![2]);
    /// For image_size: whether it is the size after the operations, which pictures of a ragged column need. Default: `false`.
    after_ops: bool =>
    /// Whether it is the size after the operations.
    #[serde(default, skip_serializing_if = "super::kind::is_left_out")]
    bool = |after_ops: Option<bool>| after_ops.unwrap_or(false);
}
