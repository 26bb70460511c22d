//! Matroska and WebM (RFC 9559).

mod ebml;
mod segment;
mod sound;
mod track;

pub(crate) use segment::SegmentReader;
pub(crate) use sound::{SoundBlocks, SoundEntry};
