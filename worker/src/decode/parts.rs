//! Which parts of pictures and videos samples need, before these are read.

use std::{collections::BTreeSet, sync::Arc};

use spdl_media::{VideoBlocks, VideoTrack};
use spdl_pixels::{Parts, ScalableHead};

use super::{
    Decoder, SampleKey,
    column::ColumnDecoder,
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
        self.union(samples, field, |decoder, of| decoder.video_packets(video, of))
    }

    /// Returns the numbers of the pictures that these samples of a record need of the list of `count` in its `field`, in order; `None` if
    /// any needs all of the field.
    pub(crate) fn video_pictures(
        &self,
        samples: impl IntoIterator<Item = SampleKey>,
        (field, count): (&str, usize),
    ) -> Option<Vec<usize>> {
        self.union(samples, field, |decoder, of| decoder.video_pictures(count, of))
    }

    /// Returns what the decoders of `field` need for these samples, in order.
    fn union(
        &self,
        samples: impl IntoIterator<Item = SampleKey>,
        field: &str,
        needed: impl Fn(&dyn ColumnDecoder, (u64, SampleKey)) -> Option<Vec<usize>>,
    ) -> Option<Vec<usize>> {
        let mut all = BTreeSet::new();
        for key in samples {
            for (_, prepared) in self.inner.prepared() {
                if prepared.fields().any(|name| name == field) {
                    all.extend(needed(&*prepared.decoder, (self.inner.seed, key))?);
                }
            }
        }
        Some(all.into_iter().collect())
    }
}
