//! Which parts of pictures, videos and sounds samples need, before these are read.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use spdl_job::{DrawnSound, SoundDataset, VideoClip};
use spdl_media::{SoundTable, VideoBlocks, VideoTrack};
use spdl_pixels::{Parts, ScalableHead};

use super::{
    Decoder, SampleKey,
    column::{ColumnDecoder, sample_clip},
    read_video::{FrameChoice, WantedSeries},
    record::{FieldLookup, SampleRecord},
    sample_clip::SampleClip,
    shared_frames::{FrameUser, SharedVideo},
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
        self.is_read_by(field, |decoder| decoder.reads_video())
    }

    /// Returns whether a field is read by columns of sounds alone, which may need parts of it.
    pub(crate) fn reads_sound_parts(&self, field: &str) -> bool {
        self.is_read_by(field, |decoder| decoder.reads_sound_parts())
    }

    /// Returns whether a field is read, and by columns of one kind alone.
    fn is_read_by(&self, field: &str, is_of_kind: impl Fn(&dyn ColumnDecoder) -> bool) -> bool {
        let mut reading =
            self.inner.prepared().filter(|(_, prepared)| prepared.fields().any(|name| name == field)).peekable();
        reading.peek().is_some() && reading.all(|(_, prepared)| is_of_kind(&*prepared.decoder))
    }

    /// Returns the frames of the sound in `field` of a record that these samples of it need, from the first to the last one; `None` if
    /// that cannot be known from fields at hand.
    pub(crate) fn sound_frames<'r>(
        &self,
        samples: impl IntoIterator<Item = (SampleKey, &'r dyn FieldLookup)>,
        (field, table): (&str, &SoundTable<'_>),
    ) -> Option<Range<u64>> {
        let mut needed: Option<Range<u64>> = None;
        for (key, fields) in samples {
            let record = SampleRecord::new(fields, key.sample_in_record);
            for (_, prepared) in self.inner.prepared() {
                if !prepared.fields().any(|name| name == field) {
                    continue;
                }
                let frames = prepared.decoder.sound_frames((field, table), (self.inner.seed, key), &record)?;
                if !frames.is_empty() {
                    let before = needed.get_or_insert_with(|| frames.clone());
                    *before = before.start.min(frames.start)..before.end.max(frames.end);
                }
            }
        }
        Some(needed.unwrap_or_default())
    }

    /// Iterates over the recordings of other datasets that operations take for a sample.
    pub(crate) fn drawn_sounds(&self, key: SampleKey) -> impl Iterator<Item = DrawnSound<'_>> {
        self.inner.prepared().flat_map(move |(_, prepared)| prepared.decoder.drawn_sounds((self.inner.seed, key)))
    }

    /// Returns the frames of a recording of another dataset that operations may take for these samples, from the first to the last one;
    /// `None` if one may take any.
    pub(crate) fn drawn_frames(
        &self,
        samples: impl IntoIterator<Item = SampleKey>,
        (dataset, sample): (&SoundDataset, u64),
        table: &SoundTable<'_>,
    ) -> Option<Range<u64>> {
        let mut needed: Option<Range<u64>> = None;
        for key in samples {
            for (_, prepared) in self.inner.prepared() {
                let drawn = prepared.decoder.drawn_sounds((self.inner.seed, key));
                for drawn in drawn.iter().filter(|drawn| drawn.sample == sample && drawn.dataset == dataset) {
                    let frames = prepared.decoder.drawn_frames(drawn, table)?;
                    let before = needed.get_or_insert_with(|| frames.clone());
                    *before = before.start.min(frames.start)..before.end.max(frames.end);
                }
            }
        }
        needed
    }

    /// Returns which frames columns decode whose fields are frames of videos.
    pub(crate) fn wanted_series(&self) -> impl Iterator<Item = &Arc<WantedSeries>> {
        self.frame_choices().filter_map(|(_, choice)| choice.series())
    }

    /// Returns which frames of videos columns decode, with the fields that these can come from.
    pub(crate) fn frame_choices(&self) -> impl Iterator<Item = (&[String], &FrameChoice)> {
        let of_columns = self.inner.prepared();
        of_columns.filter_map(|(_, prepared)| Some((&prepared.column.from[..], prepared.decoder.frame_choice()?)))
    }

    /// Returns the clip of a sample; `None` if what its record says of it is wrong.
    pub(crate) fn sample_clip<'c>(
        clip: &'c VideoClip,
        (key, fields): (SampleKey, &dyn FieldLookup),
    ) -> Option<SampleClip<'c>> {
        sample_clip(clip, &SampleRecord::new(fields, key.sample_in_record)).ok()
    }

    /// Returns a video whose frames these samples take together.
    pub(crate) fn shared_video<'v>(&self, users: Vec<FrameUser<'v>>) -> SharedVideo<'v> {
        SharedVideo::new(self.inner.seed, Arc::clone(&self.resources.memory), users)
    }

    /// Returns the packets of the video in `field` of a record that these samples of it need, in their order; `None` if any needs all
    /// of the field.
    pub(crate) fn video_packets<'r>(
        &self,
        samples: impl IntoIterator<Item = (SampleKey, &'r dyn FieldLookup)>,
        field: &str,
        video: (&Arc<VideoTrack>, &Arc<VideoBlocks>),
    ) -> Option<Vec<usize>> {
        self.union(samples, field, |decoder, of, record| decoder.video_packets(video, of, record))
    }

    /// Returns the numbers of the pictures that these samples of a record need of the list of `count` in its `field`, in order; `None` if
    /// any needs all of the field.
    pub(crate) fn video_pictures<'r>(
        &self,
        samples: impl IntoIterator<Item = (SampleKey, &'r dyn FieldLookup)>,
        (field, count): (&str, usize),
    ) -> Option<Vec<usize>> {
        self.union(samples, field, |decoder, of, record| decoder.video_pictures(count, of, record))
    }

    /// Returns what the decoders of `field` need for these samples, in order.
    fn union<'r>(
        &self,
        samples: impl IntoIterator<Item = (SampleKey, &'r dyn FieldLookup)>,
        field: &str,
        needed: impl Fn(&dyn ColumnDecoder, (u64, SampleKey), &SampleRecord<'_>) -> Option<Vec<usize>>,
    ) -> Option<Vec<usize>> {
        let mut all = BTreeSet::new();
        for (key, fields) in samples {
            let record = SampleRecord::new(fields, key.sample_in_record);
            for (_, prepared) in self.inner.prepared() {
                if prepared.fields().any(|name| name == field) {
                    all.extend(needed(&*prepared.decoder, (self.inner.seed, key), &record)?);
                }
            }
        }
        Some(all.into_iter().collect())
    }
}
