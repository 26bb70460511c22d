//! From a group of samples to their records: finds them in the index of their shard, and waits for their bytes.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::future::try_join;
use smallvec::SmallVec;
use spdl_job::SoundDataset;
use spdl_shard::{
    format::{Field, FieldValue, KEY_NAME, NumberRun, OpenError, Record, SHARD_NAME, ShardIndex},
    manifest::Block,
};
use spdl_types::{DType, SampleId};

use super::{
    dataset_sounds::{self, GroupSounds},
    parts,
    sample::{BatchSample, CutContent, CutField, Reason, SampleGroup, WantedField},
    series::{place_in, series_in},
    series_frames::{self, GroupFrames, RecordFrames},
};
use crate::{
    decode::{DatasetSound, ReadElements, ReadVideo, VideoIdentity, WantedSeries},
    feed::{FeedError, dataset::IndexHold, open::Feed},
    fetch::{BlockBytes, Wanted},
};

/// A group of samples whose records are in memory.
#[derive(Debug)]
pub(super) struct FetchedGroup {
    /// Path of their shard, if a column takes it.
    shard: Option<Bytes>,
    bytes: BlockBytes,
    index: IndexHold,
    /// The block that has their records.
    block: Block,
    samples: SampleGroup,
    /// For each column of the job the number of the field that it is decoded from, if the column can take the field's
    /// number as it is; empty if the records are not decoded.
    numbers: SmallVec<[Option<u32>; 4]>,
    /// Pictures, videos and sounds that were read in parts.
    cut: Vec<CutField>,
    /// The frames of videos that columns want.
    frames: GroupFrames,
    /// The recordings of other datasets that operations take.
    sounds: GroupSounds,
}

/// Returns the group with its bytes if both block and index are in memory, and the group alone otherwise, or if there is more to read.
#[allow(clippy::result_large_err, reason = "the caller goes on with the group, which a box would allocate for")]
pub(super) fn in_memory(feed: &Feed, group: SampleGroup) -> Result<FetchedGroup, SampleGroup> {
    let block = group[0].block;
    let found = || {
        if feed.decoder.wanted_series().next().is_some() || !feed.sounds.is_empty() {
            return None;
        }
        let index = feed.datasets.of(block).index_in_memory()?;
        let bytes = feed.fetcher.in_memory(feed.datasets.block_key(block))?;
        // An index that contradicts the manifest is reported by `fetch`.
        let samples = match bytes.decoded() {
            Some(_) => find_decoded(feed, &*index, &group),
            None => find(feed, &*index, &group, |_, _| ()),
        };
        Some(FetchedGroup::new(feed, bytes, index, samples.ok()?))
    };
    found().ok_or(group)
}

/// Says what samples need of arrays.
pub(super) trait NeededElements: Send + Sync {
    /// Returns which elements of a field a sample needs; `None` if it needs all of it.
    fn needed(&self, feed: &Feed, sample: &BatchSample, field: &str) -> Option<Range<u64>>;
}

/// Fetches the records of a group; of arrays what is `needed`, where the index knows where that is.
pub(super) async fn fetch(
    feed: Arc<Feed>,
    group: SampleGroup,
    needed: Option<Arc<dyn NeededElements>>,
) -> Result<FetchedGroup, FeedError> {
    let block = group[0].block;
    let index = feed.datasets.of(block).index().await?;
    let mut fields = Vec::new();
    let samples = find(&feed, &*index, &group, |sample, mut field| {
        if let Some(needed) = &needed {
            let record = index.record(field.record);
            let array = index.field(&record, field.nth);
            let needed = needed.needed(&feed, sample, array.name).zip(index.array_length(&record, field.nth));
            let part = needed.and_then(|(needed, all)| elements_of(&array, all, &needed)?.range());
            field.range = part.unwrap_or(field.range);
        }
        fields.push(field);
    })?;
    let sounds = dataset_sounds::find(&feed, &samples).await?;
    let (sounds, group) = try_join(sounds.read(&feed), fetch_own(&feed, block, index, samples, fields)).await?;
    Ok(group.with_sounds(sounds))
}

/// Fetches these fields of the records of samples.
async fn fetch_own(
    feed: &Feed,
    block: u32,
    index: IndexHold,
    samples: SampleGroup,
    fields: Vec<WantedField>,
) -> Result<FetchedGroup, FeedError> {
    // Their tables are read before there is memory for anything else, so that no group waits for memory while it has some.
    let frames = series_frames::plan(feed, &*index, &samples).await?;
    if frames.is_none()
        && let Some((bytes, cut)) = parts::fetch(feed, &*index, &samples, &fields).await?
    {
        return Ok(FetchedGroup::new(feed, bytes, index, samples).with_cut(cut));
    }
    let of_fields = fields.iter().map(|field| field.record);
    let mut records: Vec<u32> = samples.iter().map(|found| found.record).chain(of_fields).collect();
    records.sort_unstable();
    records.dedup();
    let ranges = fields.into_iter().map(|field| field.range).collect();
    let (wanted, place) = (Wanted { ranges, records: records.into() }, feed.datasets.place(block));
    let Some(frames) = frames else {
        let bytes = feed.fetcher.fetch(&place, wanted).await?;
        return Ok(FetchedGroup::new(feed, bytes, index, samples));
    };
    let (bytes, transit) = feed.fetcher.fetch_beside(&place, wanted, frames.bytes()).await?;
    let frames = frames.read(feed, &place, transit).await?;
    Ok(FetchedGroup::new(feed, bytes, index, samples).with_frames(frames))
}

/// Finds the records of a group in a decoded block. The size of the first sample's fields stands for all, as the fields
/// of all records are much alike.
fn find_decoded(feed: &Feed, index: &dyn ShardIndex, group: &SampleGroup) -> Result<SampleGroup, FeedError> {
    let first: SampleGroup = group.iter().take(1).copied().collect();
    let first = find(feed, index, &first, |_, _| ())?;
    let bytes = first.first().map_or(0, |first| first.bytes);
    let first = feed.datasets.of(group[0].block).first_sample_of_shard();
    group.iter().map(|sample| Ok(BatchSample { bytes, ..locate(feed, (index, first), sample)? })).collect()
}

/// Finds the record of a sample in a shard with this index and first sample.
fn locate(
    feed: &Feed,
    (index, first): (&dyn ShardIndex, SampleId),
    sample: &BatchSample,
) -> Result<BatchSample, FeedError> {
    let number = sample.id.0 - first.0;
    let Some(in_index) = u32::try_from(number).ok().filter(|sample| *sample < index.sample_count()) else {
        let shard = feed.datasets.shard_url(sample.block).to_owned();
        return Err(FeedError::Index { shard, sample: number });
    };
    let (record, sample_in_record) = index.locate(in_index);
    Ok(BatchSample { record, sample_in_record, bytes: 0, ..*sample })
}

/// Finds the records of a group, and passes their fields that lie in the shard to `wanted`.
fn find(
    feed: &Feed,
    index: &dyn ShardIndex,
    group: &SampleGroup,
    mut wanted: impl FnMut(&BatchSample, WantedField),
) -> Result<SampleGroup, FeedError> {
    let block = group[0].block;
    let (facts, first) = (feed.datasets.of(block).facts(), feed.datasets.of(block).first_sample_of_shard());
    let shard = || feed.datasets.shard_url(block).to_owned();
    let mut found = SmallVec::with_capacity(group.len());
    for sample in group {
        let mut sample = locate(feed, (index, first), sample)?;
        let fields = index.record(sample.record);
        for nth in feed.fields.iter().filter_map(|name| index.field_number(&fields, name)) {
            let field = index.field(&fields, nth);
            sample.bytes += u64::from(field.bytes / field.shared_by.max(1));
            let Some(Range { start, end }) = field.range() else { continue };
            if start < facts.offset || end > facts.offset + facts.bytes {
                return Err(FeedError::Span { shard: shard(), block, start, end });
            }
            wanted(&sample, WantedField { record: sample.record, nth, range: start..end });
        }
        for (name, deltas) in feed.decoder.series_fields() {
            let Some(series) = series_in(index, sample.record, &facts) else { continue };
            for place in deltas.iter().map(|delta| place_in(&series, sample.record, *delta)).filter(|place| *place != 0)
            {
                let record = index.record(sample.record.saturating_add_signed(place));
                let Some(nth) = index.field_number(&record, name) else { continue };
                let field = index.field(&record, nth);
                sample.bytes += u64::from(field.bytes / field.shared_by.max(1));
                let Some(Range { start, end }) = field.range() else { continue };
                if start < facts.offset || end > facts.offset + facts.bytes {
                    return Err(FeedError::Span { shard: shard(), block, start, end });
                }
                wanted(&sample, WantedField { record: record.number(), nth, range: start..end });
            }
        }
        found.push(sample);
    }
    Ok(found)
}

impl FetchedGroup {
    fn new(feed: &Feed, bytes: BlockBytes, index: IndexHold, samples: SampleGroup) -> Self {
        let record = samples.first().filter(|_| bytes.decoded().is_some()).map(|found| found.record);
        let numbers = record.map(|record| {
            let record = index.record(record);
            let number = |name: &str| index.field_number(&record, name);
            feed.decoder.number_fields().map(|name| name.and_then(number)).collect()
        });
        let numbers = numbers.unwrap_or_default();
        let takes_shard = feed.fields.iter().any(|name| name == SHARD_NAME);
        let shard = takes_shard.then(|| Bytes::copy_from_slice(feed.datasets.shard_url(samples[0].block).as_bytes()));
        let block = feed.datasets.of(samples[0].block).facts();
        let (cut, frames, sounds) = Default::default();
        Self { shard, bytes, index, block, samples, numbers, cut, frames, sounds }
    }

    /// Returns the same group with the recordings that operations take.
    fn with_sounds(self, sounds: GroupSounds) -> Self {
        Self { sounds, ..self }
    }

    /// Returns the same group with frames of videos.
    fn with_frames(mut self, frames: GroupFrames) -> Self {
        self.samples.iter_mut().for_each(|sample| sample.bytes += frames.bytes_of(sample.record));
        Self { frames, ..self }
    }

    /// Returns the same group with fields that were read in parts.
    fn with_cut(mut self, cut: Vec<CutField>) -> Self {
        for sample in &mut self.samples {
            for field in cut.iter().filter(|field| field.record == sample.record) {
                let record = self.index.record(field.record);
                let whole = self.index.field(&record, field.nth);
                let counted = u64::from(whole.bytes / whole.shared_by.max(1));
                sample.bytes = sample.bytes.saturating_sub(counted) + field.content.bytes();
            }
        }
        Self { cut, ..self }
    }

    /// Returns whether the bytes belong to a block in the cache. If not, they were fetched for one use and have to be
    /// dropped soon, as there is little memory for that.
    pub(super) const fn is_held(&self) -> bool {
        self.bytes.is_held()
    }

    pub(super) fn into_bytes(self) -> BlockBytes {
        self.bytes
    }

    /// Returns the samples, whose records are found.
    pub(super) fn samples(&self) -> &[BatchSample] {
        &self.samples
    }

    /// Returns the record of one of the group's samples.
    pub(super) fn record(&self, sample: &BatchSample) -> Record<'_> {
        self.index.record(sample.record)
    }

    /// Returns which place of its series is `delta` records away from a record, counted from that: at most the first or last place.
    pub(super) fn place(&self, record: &Record<'_>, delta: i32) -> i32 {
        let series = series_in(&*self.index, record.number(), &self.block);
        series.map_or(0, |series| place_in(&series, record.number(), delta))
    }

    /// Returns the record at a place of a record's series.
    pub(super) fn record_at(&self, record: &Record<'_>, place: i32) -> Record<'_> {
        self.index.record(record.number().saturating_add_signed(place))
    }

    /// Returns the value for column number `column` of the job, if it is a number: its type, and its bytes.
    pub(super) fn number(&self, record: &Record<'_>, column: usize) -> Option<(DType, &[u8])> {
        self.bytes.decoded()?.number(record.number(), (*self.numbers.get(column)?)?)
    }

    /// Returns whether the fields of all columns can be numbers at hand.
    pub(super) fn has_only_numbers(&self) -> bool {
        !self.numbers.is_empty() && self.numbers.iter().all(Option::is_some)
    }

    /// Returns the values for column number `column` of the job of records around record number `record` of the shard, if
    /// they are numbers side by side.
    pub(super) fn numbers(&self, record: u32, column: usize) -> Option<NumberRun<'_>> {
        self.bytes.decoded()?.numbers(record, (*self.numbers.get(column)?)?)
    }

    /// Returns the value of a field, or the reason why it cannot be opened; `None` if the record has no such field, or
    /// no value in it. If no field has the name, `KEY_NAME` stands for the record's key, and `SHARD_NAME` for the path
    /// of its shard.
    pub(super) fn field(&self, record: &Record<'_>, name: &str) -> Result<Option<FieldValue>, Reason> {
        let index = &*self.index;
        let Some(nth) = index.field_number(record, name) else {
            let of_record = match name {
                KEY_NAME => Some(Bytes::from(record.key.text().into_owned())),
                SHARD_NAME => self.shard.clone(),
                _ => None,
            };
            return Ok(of_record.map(FieldValue::from));
        };
        match self.cut_field(record, nth) {
            // Its bytes were checked when it was cut.
            Some(CutContent::Value(value)) => return Ok(Some(value.clone())),
            Some(CutContent::Video(video)) => return Ok(video.excerpt().map(FieldValue::from)),
            None => {}
        }
        let field = index.field(record, nth);
        let opened = match self.bytes.decoded() {
            Some(decoded) if field.value.is_none() => decoded.open(record.number(), nth),
            _ => index.open(&field, &|range| self.bytes.slice(range)).map(Some),
        };
        opened.map_err(|error| reason_of(name, error))
    }

    fn cut_field(&self, record: &Record<'_>, nth: u32) -> Option<&CutContent> {
        let is_cut = |field: &&CutField| (field.record, field.nth) == (record.number(), nth);
        self.cut.iter().find(is_cut).map(|field| &field.content)
    }

    /// Returns the video in a field of which parts were read, if it was read so.
    pub(super) fn video(&self, record: &Record<'_>, name: &str) -> Option<&ReadVideo> {
        match self.cut_field(record, self.index.field_number(record, name)?)? {
            CutContent::Video(video) => Some(video),
            CutContent::Value(_) => None,
        }
    }

    /// Returns which video a field has; `None` if it is none of those of which several samples may take frames.
    pub(super) fn identity(&self, record: &Record<'_>, name: &str) -> Option<VideoIdentity> {
        let nth = self.index.field_number(record, name)?;
        match self.cut_field(record, nth) {
            Some(CutContent::Video(video)) => Some(VideoIdentity::of_track(&video.track)),
            Some(CutContent::Value(_)) => None,
            None => {
                let Range { start, end } = self.index.field(record, nth).range()?;
                Some(VideoIdentity::File(self.samples.first()?.block, start, end))
            }
        }
    }

    /// Returns a recording of another dataset that an operation takes.
    pub(super) fn dataset_sound(&self, dataset: &SoundDataset, sample: u64) -> Option<&DatasetSound> {
        self.sounds.of(dataset, sample)
    }

    /// Returns the frames of videos that a column wants of a record.
    pub(super) fn frames(&self, record: &Record<'_>, wanted: &WantedSeries) -> Option<&RecordFrames> {
        self.frames.of(record.number(), wanted)
    }

    /// Returns elements `wanted` of the array of one dimension in a field, or the reason why it cannot be opened; `None` if it is to be
    /// opened whole.
    pub(super) fn elements(
        &self,
        record: &Record<'_>,
        name: &str,
        wanted: Range<u64>,
    ) -> Option<Result<ReadElements, Reason>> {
        let (index, nth) = (&*self.index, self.index.field_number(record, name)?);
        let all = index.array_length(record, nth)?;
        let field = index.field(record, nth);
        let part = elements_of(&field, all, &wanted)?;
        let value = index.open(&part, &|range| self.bytes.slice(range)).map_err(|error| reason_of(name, error));
        Some(value.map(|value| ReadElements { value, first: wanted.start.min(all), all: Some(all) }))
    }
}

/// Returns elements `wanted` of a field that is an array of `all` elements, as far as it has them, as if they were all of it; `None`
/// if its bytes are not `all` elements of one size.
fn elements_of<'i>(field: &Field<'i>, all: u64, wanted: &Range<u64>) -> Option<Field<'i>> {
    let bytes = u64::from(field.bytes).checked_div(all).filter(|bytes| bytes * all == u64::from(field.bytes))?;
    let [start, end] = [wanted.start, wanted.end].map(|element| element.min(all) * bytes);
    Some(Field { offset: field.offset + start, bytes: (end - start) as u32, ..*field })
}

fn reason_of(name: &str, error: OpenError) -> Reason {
    let field = name.to_owned();
    match error {
        OpenError::Damaged { problem, checksum } => Reason::Damaged { field, problem, checksum },
        OpenError::Checksum { expected, actual } => Reason::WrongBytes { field, expected, actual },
        OpenError::Malformed(problem) => Reason::Malformed { field, problem },
        error => panic!("field `{name}` is none of those that the decoder names: {error:?}"),
    }
}
