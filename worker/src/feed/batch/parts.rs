//! Reads only the parts of large scalable pictures that the crops of a batch need, of long videos and sounds the packets that its clips
//! and segments need, and of lists of pictures those of its clips. The head of each picture is read first, and the crop is planned from it
//! as for decoding. Then the rows of tiles that the crop touches are read, in the bands that its scale needs. What is read of videos is in
//! [`video_parts`], of sounds in [`sound_parts`], of lists in [`picture_parts`].
//!
//! The parts of pictures are checked against the checksums in the picture. If one does not match, or a head cannot be read, the
//! picture is read whole.

use std::ops::Range;

use bytes::Bytes;
use spdl_pixels::{PARTS_FROM_BYTES, Parts, ScalableHead};
use spdl_shard::format::ShardIndex;

use super::{
    field_parts::{FieldParts, ReadFields, bytes_of, excerpts},
    picture_parts,
    sample::{BatchSample, CutContent, CutField, WantedField},
    sound_parts, video_parts,
};
use crate::{
    decode::FieldLookup,
    feed::{FeedError, open::Feed},
    fetch::{BlockBytes, Pieces},
};

/// Fields of at least this many bytes may be pictures that are read in parts. Smaller ones are read whole.
const LARGE_BYTES: u64 = PARTS_FROM_BYTES as u64;
/// The head of a picture is looked for in its first bytes: one part in `HEAD_SHARE` of the whole, within these bounds.
/// The DC coefficients, which every crop needs, follow the head.
const HEAD_BYTES: Range<u64> = 16 << 10..128 << 10;
const HEAD_SHARE: u64 = 32;
/// Ranges with a gap of at most this many bytes are read by one request. When raised, fewer requests read more bytes.
const GAP_BYTES: u64 = 16 << 10;

/// A large field, and the parts of it to read.
struct LargeField<'f> {
    field: &'f WantedField,
    /// Its first bytes, which were read.
    first: Bytes,
    /// The parts to read, and their ranges in the field that have not been read yet; `None` if the field is read whole.
    parts: Option<(Parts, Vec<Range<u64>>)>,
}

impl LargeField<'_> {
    fn head(&self, feed: &Feed) -> Option<ScalableHead<'_>> {
        ScalableHead::read(&self.first, usize::try_from(self.field.bytes()).ok()?, feed.decoder.limits()).ok()?
    }

    /// Returns the ranges of the shard that are to be read.
    fn wanted(&self) -> impl Iterator<Item = Range<u64>> {
        let (whole, start) = (self.parts.is_none(), self.field.range.start);
        let of_parts = self.parts.iter().flat_map(|(_, ranges)| ranges);
        let of_parts = of_parts.map(move |range| start + range.start..start + range.end);
        of_parts.chain(whole.then(|| self.field.range.clone()))
    }

    /// Returns a picture that consists of the parts alone; `None` if the bytes are not those that were packed.
    fn cut(&self, feed: &Feed, parts: &Parts, rest: &Pieces) -> Option<CutField> {
        let of_rest = |Range { start, end }: Range<usize>| {
            let at = |place: usize| self.field.range.start + place as u64;
            rest.slice(at(start)..at(end))
        };
        let bytes_of = |range: Range<usize>| {
            let first = self.first.len();
            if range.end <= first {
                Some(self.first.slice(range))
            } else if range.start >= first {
                of_rest(range)
            } else {
                Some([&self.first[range.start..], &of_rest(first..range.end)?].concat().into())
            }
        };
        let content = CutContent::Value(Bytes::from(self.head(feed)?.cut(parts, bytes_of).ok()?).into());
        Some(CutField { record: self.field.record, nth: self.field.nth, content })
    }
}

/// Fetches the fields of a group's records; of large pictures and videos, only the parts that are needed. Returns `None` if the
/// group has to be fetched in the usual way: no field is large, bytes were wrong before, the fields do not lie in the
/// shard as they are or overlap, or the feed does not read in parts.
pub(super) async fn fetch(
    feed: &Feed,
    index: &dyn ShardIndex,
    samples: &[BatchSample],
    fields: &[WantedField],
) -> Result<Option<(BlockBytes, Vec<CutField>)>, FeedError> {
    let is_wrong = samples.iter().any(|sample| sample.wrong.fetches > 0);
    let is_large = |field: &&WantedField| feed.parts.of_pictures() && field.bytes() >= LARGE_BYTES;
    if !feed.parts.is_on() || is_wrong {
        return Ok(None);
    }
    let place = feed.datasets.place(samples[0].block);
    let note = |field_bytes, read_bytes| {
        feed.parts.note(samples.len(), (field_bytes, read_bytes), &feed.session.job.name);
    };
    let mut fields: Vec<&WantedField> = fields.iter().filter(|field| !field.range.is_empty()).collect();
    // Samples of one record have the same fields.
    fields.sort_unstable_by_key(|field| (field.range.start, field.nth));
    fields.dedup();
    let is_plain = index.has_plain_fields() && !place.shard.is_read_whole();
    let field_bytes = distinct_bytes(&fields);
    let mut sounds = Vec::new();
    if is_plain {
        fields.retain(|&field| match sound_parts::plan(feed, index, samples, field) {
            Some(sound) => {
                sounds.push(sound);
                false
            }
            None => true,
        });
    }
    // Others overlap where records share a file, or in an odd index.
    let overlap = fields.windows(2).any(|pair| pair[0].range.end > pair[1].range.start);
    let (mut lists, mut videos) = (Vec::new(), Vec::new());
    if is_plain && !overlap {
        for field in &fields {
            match picture_parts::plan(feed, index, samples, field) {
                Some(list) => lists.push(list),
                None if index.files(&index.record(field.record), field.nth).is_some() => {}
                None => videos.extend(video_parts::plan(feed, index, samples, field).await?),
            }
        }
    }
    let is_in_parts = |field: &WantedField| {
        videos.iter().any(|video| video.field() == field) || lists.iter().any(|list| list.field() == field)
    };
    fields.retain(|field| !is_in_parts(field));
    let has_parts = !(videos.is_empty() && lists.is_empty() && sounds.is_empty());
    if !has_parts && !fields.iter().any(is_large) || !is_plain || overlap {
        note(1, 1);
        return Ok(None);
    }
    let fetcher = &feed.fetcher;
    let other_bytes = fields.iter().map(|field| field.bytes()).sum::<u64>();
    // An excerpt of a sound is a copy, beside what was read.
    let part_bytes = bytes_of(&videos) + bytes_of(&lists) + 2 * bytes_of(&sounds);
    // Reserves memory for all of it now, as the reads below may not wait for more.
    let mut transit = fetcher.transit(other_bytes + part_bytes).await;
    let first_bytes = |field: &WantedField| (field.bytes() / HEAD_SHARE).clamp(HEAD_BYTES.start, HEAD_BYTES.end);
    let of_first = |field: &&WantedField| match is_large(field) {
        true => field.range.start..field.range.start + first_bytes(field),
        false => field.range.clone(),
    };
    let first = fetcher.read_ranges(&place, fields.iter().map(of_first).collect(), GAP_BYTES).await?;
    let (large, small): (Vec<&WantedField>, Vec<_>) = fields.into_iter().partition(is_large);
    let mut large: Vec<LargeField<'_>> =
        large.into_iter().map(|field| plan(feed, index, samples, (field, of_first(&field)), &first)).collect();
    let wanted = large.iter().flat_map(LargeField::wanted).collect();
    let rest = fetcher.read_ranges(&place, wanted, GAP_BYTES).await?;
    let Some((mut cut, video_bytes)) = excerpts(fetcher, &place, &videos).await? else { return Ok(None) };
    let Some((of_lists, list_bytes)) = excerpts(fetcher, &place, &lists).await? else { return Ok(None) };
    let Some((of_sounds, sound_bytes)) = excerpts(fetcher, &place, &sounds).await? else { return Ok(None) };
    cut.extend(of_lists.into_iter().chain(of_sounds));
    for field in &mut large {
        let Some((parts, _)) = &field.parts else { continue };
        match field.cut(feed, parts, &rest) {
            Some(parts) => cut.push(parts),
            None => {
                fetcher.requests.note_wrong_bytes();
                field.parts = None;
            }
        }
    }
    // A picture that could not be cut is read whole. Decoding compares its checksum with the index.
    let whole: Vec<&LargeField<'_>> = large.iter().filter(|field| field.parts.is_none()).collect();
    let missing = whole.iter().map(|field| &field.field.range).filter(|range| rest.slice((*range).clone()).is_none());
    let again = fetcher.read_ranges(&place, missing.cloned().collect(), GAP_BYTES).await?;
    let read_bytes = first.bytes() + rest.bytes() + again.bytes() + video_bytes + list_bytes + sound_bytes;
    note(field_bytes, read_bytes);
    let of_small = small.iter().map(|field| (&field.range, first.slice(field.range.clone())));
    let of_whole = whole.iter().map(|field| {
        let range = &field.field.range;
        (range, rest.slice(range.clone()).or_else(|| again.slice(range.clone())))
    });
    let mut kept: Vec<(u64, Bytes)> = of_small
        .chain(of_whole)
        .map(|(range, bytes)| (range.start, bytes.expect("what was asked for has been read")))
        .collect();
    kept.sort_unstable_by_key(|(start, _)| *start);
    // The packets of a video are slices of what was read.
    let of_value = |field: &CutField| match &field.content {
        CutContent::Value(value) => value.size() as u64,
        CutContent::Video(_) => 0,
    };
    let cut_bytes = cut.iter().map(of_value).sum::<u64>() + video_bytes;
    transit.shrink_to(cut_bytes + kept.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
    Ok(Some((BlockBytes::of_transit(Pieces::new(kept), transit), cut)))
}

/// Plans which parts of a large field to read, from its first bytes.
fn plan<'f>(
    feed: &Feed,
    index: &dyn ShardIndex,
    samples: &[BatchSample],
    (field, of_first): (&'f WantedField, Range<u64>),
    read: &Pieces,
) -> LargeField<'f> {
    let first = read.slice(of_first).expect("what was asked for has been read");
    let mut planned = LargeField { field, first, parts: None };
    let record = index.record(field.record);
    let name = index.field(&record, field.nth).name;
    let others = ReadFields { index, record: field.record, read };
    let of_record = samples.iter().filter(|sample| sample.record == field.record);
    let of_record = of_record.map(|sample| (sample.key(), &others as &dyn FieldLookup));
    // A picture whose head cannot be read is read whole, and decoding reports what is wrong.
    let Some(head) = planned.head(feed) else { return planned };
    let Some(parts) = feed.decoder.picture_parts(of_record, (name, &head)) else { return planned };
    let Ok(ranges) = head.ranges(&parts) else { return planned };
    let read = planned.first.len() as u64;
    let left = ranges.into_iter().map(|range| (range.start as u64).max(read)..range.end as u64);
    let left: Vec<_> = left.filter(|range| !range.is_empty()).collect();
    let bytes = left.iter().map(|range| range.end - range.start).sum::<u64>();
    // If most of the field is needed, one request is better than several.
    if bytes <= field.bytes() / 4 * 3 {
        planned.parts = Some((parts, left));
    }
    planned
}

/// Returns the bytes of fields, which are sorted by their places; once of those that records share.
fn distinct_bytes(fields: &[&WantedField]) -> u64 {
    let mut read = 0;
    let bytes = fields.iter().map(|WantedField { range, .. }| {
        let new = range.start.max(read)..range.end.max(read);
        read = new.end;
        new.end - new.start
    });
    bytes.sum()
}
