//! The pictures that the clips of a batch need of videos that are lists of pictures, each of which can be read alone. As in all loose
//! files, what is read has no checksum.

use std::ops::Range;

use bytes::Bytes;
use spdl_shard::format::{FieldValue, ShardIndex};

use super::{
    field_parts::{FieldParts, ReadFields},
    sample::{BatchSample, CutContent, CutField, WantedField},
};
use crate::{decode::FieldLookup, feed::open::Feed, fetch::Pieces};

/// A list of pictures, and those of it to read.
pub(super) struct PictureParts<'f> {
    field: &'f WantedField,
    /// How many pictures it has.
    count: usize,
    /// The numbers of those that are read, and their places in the shard.
    numbers: Vec<usize>,
    ranges: Vec<Range<u64>>,
}

impl FieldParts for PictureParts<'_> {
    /// Each is an object of its own.
    const GAP_BYTES: u64 = 0;

    fn field(&self) -> &WantedField {
        self.field
    }

    fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Returns the list without the pictures that nothing needs.
    fn cut(&self, read: &Pieces) -> Option<CutField> {
        let mut pictures: Vec<Option<Bytes>> = vec![None; self.count];
        for (number, range) in self.numbers.iter().zip(&self.ranges) {
            pictures[*number] = Some(read.slice(range.clone())?);
        }
        let content = CutContent::Value(FieldValue::List(pictures));
        Some(CutField { record: self.field.record, nth: self.field.nth, content })
    }
}

/// Plans which pictures of a list to read; `None` if the field is no list whose pictures can be read alone, or all are needed.
pub(super) fn plan<'f>(
    feed: &Feed,
    index: &dyn ShardIndex,
    samples: &[BatchSample],
    field: &'f WantedField,
) -> Option<PictureParts<'f>> {
    let record = index.record(field.record);
    let name = index.field(&record, field.nth).name;
    if !feed.decoder.reads_video(name) {
        return None;
    }
    let places = index.files(&record, field.nth)?;
    let nothing = Pieces::default();
    let others = ReadFields { index, record: field.record, read: &nothing };
    let of_record = samples.iter().filter(|sample| sample.record == field.record);
    let of_record = of_record.map(|sample| (sample.key(), &others as &dyn FieldLookup));
    let numbers = feed.decoder.video_pictures(of_record, (name, places.len()))?;
    if numbers.len() == places.len() {
        return None;
    }
    let ranges = numbers.iter().map(|number| places[*number].clone()).collect();
    Some(PictureParts { field, count: places.len(), numbers, ranges })
}
