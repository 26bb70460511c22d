//! Matroska and WebM (RFC 9559).

mod ebml;
mod head;
mod segment;
mod sound;
mod track;

pub(crate) use head::MatroskaHead;
pub(crate) use segment::SegmentReader;
pub(crate) use sound::SoundBlocks;
