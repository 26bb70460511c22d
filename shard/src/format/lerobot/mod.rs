//! LeRobot v3: a dataset of robots' episodes as LeRobot writes it. Nothing is converted.
//!
//! A shard is a [Parquet](super::parquet) file of frames, a record a row. The rows of an episode are a series: they are of
//! one block, so that columns can have the values of the moments around a sample. The index of a file has that of the Parquet file,
//! where episodes begin, the texts of their tasks, which the field `task` has, and where their frames lie in videos. Of each feature
//! with videos, the field has the path of the video with the record's frame.

mod index;
mod videos;

use std::sync::Arc;

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::{Format, ShardIndex};
use crate::FormatError;

pub use index::{EpisodeFacts, TASK};
pub use videos::{EpisodeVideos, FrameSpan, VideoObject};

/// LeRobot v3.
#[derive(Debug)]
pub struct LeRobot;

impl Format for LeRobot {
    fn name(&self) -> &'static str {
        "lerobot"
    }

    fn is_columnar(&self) -> bool {
        true
    }

    fn has_series(&self) -> bool {
        true
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        Ok(Arc::new(index::open(bytes, expected)?))
    }
}
