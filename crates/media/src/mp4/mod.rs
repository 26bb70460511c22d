//! MP4 and QuickTime's MOV, as ISO/IEC 14496-12 has them: boxes, tables, edits and fragments.

pub(crate) mod boxes;
mod descriptors;
mod edits;
mod fragments;
mod movie;
mod samples;
mod track;

pub(crate) use descriptors::decoder_config;
pub(crate) use edits::{Edit, edits};
pub(crate) use fragments::fragment_packets;
pub(crate) use movie::{MovieReader, movie};
pub(crate) use samples::{PlacedPacket, SamplePlaces};
pub(crate) use track::{coded_color, track_id};
