//! The fields of a record whose bytes have come.

use std::{cell::Cell, ops::Range};

use spdl_job::SoundDataset;
use spdl_shard::format::{FieldValue, Record};
use spdl_types::DType;

use super::{records::FetchedGroup, sample::Reason, series_frames::RecordFrames, shared_videos::SharedVideos};
use crate::{
    decode::{
        DatasetSound, Decoder, FieldLookup, ReadElements, ReadVideo, SeriesFrames, SharedVideo, VideoIdentity,
        WantedSeries,
    },
    feed::at_work::SamplesAtWork,
};

/// The fields of a record of a group, as a decoder asks for them.
pub(super) struct GroupFields<'g> {
    group: &'g FetchedGroup,
    record: Record<'g>,
    /// The videos of which other samples take frames, too.
    videos: Option<&'g SharedVideos<'g>>,
    /// Where calls of functions are noted, and the thread that makes them.
    at_work: Option<(&'g SamplesAtWork, usize)>,
    /// The reason why a field cannot be opened; of several such fields, that of the last.
    wrong: Cell<Option<Reason>>,
    read_bytes: Cell<u64>,
}

impl<'g> GroupFields<'g> {
    pub(super) const fn new(group: &'g FetchedGroup, record: Record<'g>) -> Self {
        Self { group, record, videos: None, at_work: None, wrong: Cell::new(None), read_bytes: Cell::new(0) }
    }

    /// Returns the same fields, whose videos may be decoded for several samples.
    pub(super) fn sharing(self, videos: &'g SharedVideos<'g>) -> Self {
        Self { videos: Some(videos), ..self }
    }

    /// Returns the same fields, whose decoder notes there which functions it calls on which thread.
    pub(super) fn noting_calls(self, at_work: &'g SamplesAtWork, thread: usize) -> Self {
        Self { at_work: Some((at_work, thread)), ..self }
    }

    /// Returns the bytes of all values that were asked for, without those that were not read.
    pub(super) const fn read_bytes(&self) -> u64 {
        self.read_bytes.get()
    }

    /// Returns why a field could not be opened, of those that were asked for. What was made of the others means nothing then.
    pub(super) fn wrong(self, decoder: &Decoder) -> Option<Reason> {
        Some(match self.wrong.into_inner()? {
            Reason::Malformed { field, problem } => Reason::Bad(decoder.malformed(&field, &problem)),
            wrong => wrong,
        })
    }

    fn value_of(&self, record: &Record<'_>, name: &str) -> Option<FieldValue> {
        let value = self.group.field(record, name).unwrap_or_else(|reason| {
            self.wrong.set(Some(reason));
            None
        })?;
        self.count(value.size());
        Some(value)
    }

    fn count(&self, bytes: usize) {
        self.read_bytes.set(self.read_bytes.get() + bytes as u64);
    }
}

impl FieldLookup for GroupFields<'_> {
    fn value(&self, name: &str) -> Option<FieldValue> {
        self.value_of(&self.record, name)
    }

    fn dataset_sound(&self, dataset: &SoundDataset, sample: u64) -> Option<&DatasetSound> {
        self.group.dataset_sound(dataset, sample)
    }

    fn note_unread(&self, bytes: u64) {
        self.read_bytes.set(self.read_bytes.get().saturating_sub(bytes));
    }

    fn note_call(&self, function: Option<&str>) {
        if let Some((at_work, thread)) = self.at_work {
            at_work.call(thread, function);
        }
    }

    fn place(&self, delta: i32) -> i32 {
        self.group.place(&self.record, delta)
    }

    fn value_at(&self, place: i32, name: &str) -> Option<FieldValue> {
        self.value_of(&self.group.record_at(&self.record, place), name)
    }

    fn elements(&self, name: &str, wanted: Range<u64>) -> Option<ReadElements> {
        let Some(part) = self.group.elements(&self.record, name, wanted) else {
            return Some(ReadElements::whole(self.value(name)?));
        };
        match part {
            Ok(read) => {
                self.count(read.value.size());
                Some(read)
            }
            Err(reason) => {
                self.wrong.set(Some(reason));
                None
            }
        }
    }

    fn read_video(&self, name: &str) -> Option<&ReadVideo> {
        let video = self.group.video(&self.record, name)?;
        self.read_bytes.set(self.read_bytes.get() + video.bytes());
        Some(video)
    }

    fn frames(&self, wanted: &WantedSeries) -> Option<(&str, &Result<SeriesFrames, String>)> {
        let RecordFrames { field, frames, .. } = self.group.frames(&self.record, wanted)?;
        let bytes = frames.as_ref().map_or(0, |frames| frames.video.bytes());
        self.read_bytes.set(self.read_bytes.get() + bytes);
        Some((field.as_str(), frames))
    }

    fn shared_video(&self, video: VideoIdentity) -> Option<&SharedVideo<'_>> {
        self.videos?.get(video)
    }

    fn shared_file(&self, name: &str) -> Option<&SharedVideo<'_>> {
        self.videos?.get(self.group.identity(&self.record, name)?)
    }

    fn names(&self) -> Vec<String> {
        self.record.fields().map(|field| field.name.to_owned()).collect()
    }

    fn number(&self, column: usize) -> Option<(DType, &[u8])> {
        let number = self.group.number(&self.record, column)?;
        self.count(number.1.len());
        Some(number)
    }
}
