//! Which parts of pictures and videos samples need, before these are read.

use std::{collections::BTreeSet, sync::Arc};

use spdl_media::{VideoBlocks, VideoTrack};
use spdl_pixels::{Parts, ScalableHead};

use super::{
    Decoder, SampleKey,
    read_video::WantedSeries,
    record::{FieldLookup, SampleRecord},
};

impl Decoder {
    /// Returns the parts of the scalable picture in `field` of a record that these samples of it need; `None` if any needs all of the picture.
    pub(crate) fn picture_parts<'r>(
        &self,
        samples: impl IntoIterator<Item = (SampleKey, &'r dyn FieldLookup)>,
        (field, head): (&str, &ScalableHead<'_>),
    ) -> Option<Parts> {
        let mut parts = Parts::default();
        for (key, fields) in samples {
            let mut record = SampleRecord::new(fields, key.sample_in_record);
            for (_, prepared) in self.inner.prepared() {
                if prepared.fields().any(|name| name == field) {
                    parts.add(&prepared.decoder.picture_parts(head, (self.inner.seed, key), &mut record)?);
                }
            }
        }
        Some(parts)
    }

    /// Returns whether a field is read by columns of videos alone, which may need parts of it.
    pub(crate) fn reads_video(&self, field: &str) -> bool {
        let mut reading =
            self.inner.prepared().filter(|(_, prepared)| prepared.fields().any(|name| name == field)).peekable();
        reading.peek().is_some() && reading.all(|(_, prepared)| prepared.decoder.reads_video())
    }

    /// Returns which frames columns decode whose fields are frames of videos.
    pub(crate) fn wanted_series(&self) -> impl Iterator<Item = &Arc<WantedSeries>> {
        self.inner.prepared().filter_map(|(_, prepared)| prepared.decoder.wanted_series())
    }

    /// Returns the packets of the video in `field` of a record that these samples of it need, in their order; `None` if any needs all
    /// of the field.
    pub(crate) fn video_packets(
        &self,
        samples: impl IntoIterator<Item = SampleKey>,
        field: &str,
        video: (&Arc<VideoTrack>, &Arc<VideoBlocks>),
    ) -> Option<Vec<usize>> {
        let mut packets = BTreeSet::new();
        for key in samples {
            for (_, prepared) in self.inner.prepared() {
                if prepared.fields().any(|name| name == field) {
                    packets.extend(prepared.decoder.video_packets(video, (self.inner.seed, key))?);
                }
            }
        }
        Some(packets.into_iter().collect())
    }
}
