//! The kind `image_size`: the size of an `image` column's picture before its operations.

use super::kind::{followed_image, follower};
use spdl_types::SampleShape;

follower! {
    /// The height and width of the upright picture of an `image` column, before its operations.
    "image_size": ImageSizeKeys => ImageSizeColumn follows "image", " that it is of", followed_image;
    reads_field = true;
    dtypes = [I64, I32];
    shape = |_| SampleShape::Fixed(vec![2]);
}
