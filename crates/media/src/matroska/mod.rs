//! Matroska and WebM (RFC 9559).

mod ebml;
mod segment;
mod track;

pub(crate) use segment::SegmentReader;
