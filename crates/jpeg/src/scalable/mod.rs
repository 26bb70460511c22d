//! Scalable packed pictures: the quantised coefficients of a baseline JPEG, coded anew so that the cost of a crop grows
//! with its area and its scale.
//!
//! The coefficients are split into four bands by frequency, and the picture into tiles of some MCUs. Each band of each
//! tile is a stream of bits of its own, found by a table of lengths. Decoding reads only the tiles of the crop, and
//! only the bands that the scale needs, several streams at a time. The codes are fixed, so that no tables have to be
//! built for a picture. A large picture has checksums of rows of tiles, so that [`PictureHead`] can read parts of it.
//! The rest of the file is kept, so that [`restore`] returns it bit for bit. `docs/spec/formats/scalable.md` describes
//! the format.

mod bands;
mod book;
mod decode;
mod pack;
mod packed_layout;
mod parts;
mod picture;
mod restore;
mod streams;
mod tiles;

pub(crate) use decode::ScalableMemory;
pub use pack::{pack, pack_bytes};
pub use packed_layout::PARTS_FROM_BYTES;
pub(crate) use packed_layout::PackedLayout;
pub use parts::{Parts, PictureHead};
pub use picture::ScalablePicture;
pub use restore::restore;
