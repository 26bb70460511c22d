//! Measures the samples of a dataset: the pixels of pictures, the seconds of sounds, or the numbers of a field, with bounded memory.
//!
//! The result is kept with the manifest as `sizes-FINGERPRINT.spdl`, where workers read it as they read views.

mod head;
mod number;

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::TryStreamExt;
use spdl_order::view::SampleSet;
use spdl_shard::{
    format::{Content, FieldValue, Record, ShardIndex},
    manifest::Manifest,
    sizes::{MAX_MEASURED_SAMPLES, SizeTable},
    store::DatasetStore,
};
use spdl_store::{ContentError, StoreError, blocking};

use self::{
    head::{milliseconds_of_table, milliseconds_of_track},
    number::{SpanNumbers, whole},
};
use crate::{
    DatasetError, DatasetProgress, MemoryBound, Undecided,
    open_block::{BlockFields, OpenBlock, ReadBlock, names_of, open_blocks},
    slice,
    view::{ResolvedName, ValueReader, add_limit},
};

/// Number of blocks that are read and measured at once, if the bound on memory allows it.
const BLOCKS_AT_ONCE: usize = 8;
/// Bytes of memory for each byte that is read: what it becomes when it is decoded.
const MEMORY_FACTOR: u64 = 4;
/// Bytes of a file that are read at first: the heads that most programs write, with a small preview.
const HEAD_BYTES: u64 = 16 << 10;

/// Returns the pixels of a picture whose file begins with these bytes, or what is wrong with it, to follow the name of its field.
pub type CountPixels = Arc<dyn Fn(&[u8]) -> Result<u64, String> + Send + Sync>;

/// What is measured of a sample.
#[derive(Clone)]
pub enum SampleMeasure {
    /// The number of a field or of a member of a JSON document, as views name these, times a scale.
    Number {
        /// Its name.
        field: String,
        /// By what it is multiplied before it is rounded.
        scale: u32,
    },
    /// The pixels of a picture.
    Pixels {
        /// Fields that can have the picture; of each record, the first that it has.
        from: Vec<String>,
        /// Reads the heads of pictures.
        count: CountPixels,
    },
    /// The milliseconds of a sound.
    Milliseconds {
        /// Fields that can have the sound; of each record, the first that it has.
        from: Vec<String>,
        /// The fields with the seconds at which the sound begins in its file, and that it takes.
        span: [Option<String>; 2],
    },
}

/// What is measured, of which samples.
#[derive(Clone)]
pub struct SizeRequest {
    /// What is measured.
    pub measure: SampleMeasure,
    /// The samples that are measured; `None` for all. The others get 0.
    pub view: Option<Arc<SampleSet>>,
    /// Number of samples that may be left without a size because they cannot be read. They get 0.
    pub unread_allowed: u64,
}

/// The sizes of the samples of a dataset.
#[derive(Clone, Debug)]
pub struct EvaluatedSizes {
    /// The sizes.
    pub sizes: Arc<SizeTable>,
    /// Bytes of shards that were read.
    pub bytes: u64,
    /// Samples that have the size 0 because they cannot be read.
    pub unread: Undecided,
}

/// The sizes of a block's samples.
#[derive(Default)]
struct BlockSizes {
    /// For each sample of the block its size.
    sizes: Vec<u32>,
    unread: u64,
    first_unread: Option<DatasetError>,
    bytes: u64,
    records: u32,
}

/// Measures all samples. `at` is the folder of the manifest. Of pictures and sounds, the beginnings of files are read, and the whole file only
/// where that does not tell; the fields of a columnar format are read whole.
///
/// # Errors
/// If the dataset cannot be read, has too many samples, or more than allowed cannot be measured.
pub async fn evaluate_sizes(
    at: &DatasetStore,
    manifest: &Manifest,
    request: SizeRequest,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<EvaluatedSizes, DatasetError> {
    let samples = manifest.samples();
    if samples > MAX_MEASURED_SAMPLES {
        let problem = format!(
            "is of a dataset of {samples} samples; at most {MAX_MEASURED_SAMPLES} can be measured, as each worker has the sizes of all in \
             memory: leave it out"
        );
        return Err(DatasetError::Option { option: "cost", problem });
    }
    let (text, request, shards) = (request.text(), Arc::new(request), at.shards(manifest)?);
    let (shared, memory) = (Arc::new(manifest.clone()), MemoryBound::new());
    let (shards, memory) = (&shards, &memory);
    let measured = open_blocks(at, &shared).map_ok(|block| {
        let request = request.clone();
        async move { request.measure_block(block, shards, memory).await }
    });
    let mut measured = std::pin::pin!(measured.try_buffered(BLOCKS_AT_ONCE));
    let (mut sizes, mut unread, mut bytes, mut records) = (Vec::new(), Undecided::default(), 0, 0);
    while let Some(block) = measured.try_next().await? {
        unread.records += block.unread;
        if let Some(mut error) = block.first_unread {
            if unread.records > request.unread_allowed {
                if let DatasetError::Undecided { problem, .. } = &mut error {
                    add_limit(problem, "the measurement", request.unread_allowed);
                }
                return Err(error);
            }
            unread.first.get_or_insert_with(|| error.to_string());
        }
        sizes.extend(block.sizes);
        bytes += block.bytes;
        records += u64::from(block.records);
        progress(DatasetProgress {
            records,
            bytes,
            total_records: Some(manifest.records()),
            ..DatasetProgress::default()
        });
    }
    let sizes = SizeTable::new(manifest, &text, &sizes)
        .map_err(|source| StoreError::Format { url: at.manifest_url(manifest), source: ContentError::from(source) })?;
    Ok(EvaluatedSizes { sizes: Arc::new(sizes), bytes, unread })
}

/// The numbers of a block's records that are to be measured by their whole files.
type WholeFiles = BTreeSet<u32>;

/// What was found of a record.
enum FoundSize {
    Size(u32),
    /// The beginning of its file does not tell.
    NeedsAll,
}

impl SizeRequest {
    /// Returns the text that says what is measured: of two requests with one text, the sizes are the same.
    #[must_use]
    pub fn text(&self) -> String {
        let measured = match &self.measure {
            SampleMeasure::Number { field, scale } => format!("{scale} * {field:?}"),
            SampleMeasure::Pixels { from, .. } => format!("pixels of {from:?}"),
            SampleMeasure::Milliseconds { from, span: [start, seconds] } => {
                let span = [("from", start), ("for", seconds)].into_iter();
                let span = span.filter_map(|(word, field)| Some(format!(" {word} {:?}", field.as_ref()?)));
                format!("milliseconds of {from:?}{}", span.collect::<String>())
            }
        };
        let view = self.view.as_ref().map_or_else(String::new, |view| format!(", of view {}", view.fingerprint()));
        format!("{measured}{view}")
    }

    async fn measure_block(
        self: Arc<Self>,
        block: OpenBlock,
        shards: &DatasetStore,
        memory: &MemoryBound,
    ) -> Result<BlockSizes, DatasetError> {
        let begins = block.begins_of(|index, record| self.fields_to_read(&block, (index, record), HEAD_BYTES));
        let length = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let held = memory.take(length(&begins) * MEMORY_FACTOR).await;
        let read = block.read(shards, begins).await?;
        let (request, of_heads) = (self.clone(), block.clone());
        let (mut found, left) = blocking(move || request.measure(&of_heads, read, None)).await?;
        drop(held);
        if left.is_empty() {
            return Ok(found);
        }
        let ranges = block.begins_of(|index, record| {
            let is_left = left.contains(&record.number());
            is_left.then(|| self.fields_to_read(&block, (index, record), u64::MAX)).into_iter().flatten()
        });
        let _held = memory.take(length(&ranges) * MEMORY_FACTOR).await;
        let read = block.read(shards, ranges).await?;
        let (of_files, _) = blocking(move || self.measure(&block, read, Some(&left))).await?;
        found.sizes.iter_mut().zip(of_files.sizes).for_each(|(size, of_file)| *size = (*size).max(of_file));
        found.unread += of_files.unread;
        found.first_unread = found.first_unread.or(of_files.first_unread);
        found.bytes += of_files.bytes;
        Ok(found)
    }

    /// Measures the records of a block, or those of `only`, of which the whole files are there. Returns those whose whole files are needed.
    fn measure(
        &self,
        block: &OpenBlock,
        read: ReadBlock,
        only: Option<&WholeFiles>,
    ) -> Result<(BlockSizes, WholeFiles), DatasetError> {
        let read = block.decompressed(read)?;
        let slice = |range: Range<u64>| slice(&read.pieces, range);
        let decoded = block.decode(&read, &slice);
        let fields = BlockFields { index: &*block.index, slice: &slice, decoded: decoded.as_deref() };
        let values = ValueReader::new(fields);
        let (records, samples) = (block.block.records, block.block.samples);
        let mut found = BlockSizes { bytes: read.bytes, records, ..BlockSizes::default() };
        found.sizes.reserve(samples as usize);
        let mut left = WholeFiles::new();
        for number in block.records() {
            let record = block.index.record(number);
            let kept = block.kept(&record, self.view.as_deref());
            let is_wanted = kept > 0 && only.is_none_or(|only| only.contains(&number));
            let source =
                RecordSource { block, fields: &fields, values: &values, record: &record, is_whole: only.is_some() };
            let size = match is_wanted.then(|| self.size(source)) {
                None => 0,
                Some(Ok(FoundSize::Size(size))) => size,
                Some(Ok(FoundSize::NeedsAll)) => {
                    left.insert(number);
                    0
                }
                Some(Err(problem)) => {
                    found.unread += kept;
                    found.first_unread.get_or_insert_with(|| DatasetError::Undecided {
                        shard: block.manifest.shard(block.block.shard).url.to_owned(),
                        record: record.key.text().into_owned(),
                        problem,
                    });
                    0
                }
            };
            found.sizes.extend(std::iter::repeat_n(size, record.samples as usize));
        }
        Ok((found, left))
    }

    /// Returns the numbers of a record's fields that are read to measure it, each with the most bytes that are; of a file it is `most`.
    fn fields_to_read(
        &self,
        block: &OpenBlock,
        (index, record): (&dyn ShardIndex, &Record<'_>),
        most: u64,
    ) -> impl Iterator<Item = (u32, u64)> + use<> {
        let is_columnar = block.manifest.format().is_columnar();
        let is_wanted = is_columnar || block.kept(record, self.view.as_deref()) > 0;
        let named = |name: &String| ResolvedName::of(name, index, record).field().map(|field| (field, u64::MAX));
        let first_of = |from: &[String]| from.iter().find_map(|name| index.field_number(record, name));
        let fields: Vec<(u32, u64)> = match &self.measure {
            SampleMeasure::Number { field, .. } => named(field).into_iter().collect(),
            SampleMeasure::Pixels { from, .. } => first_of(from).map(|field| (field, most)).into_iter().collect(),
            SampleMeasure::Milliseconds { from, span } => {
                let has_table = |nth: &u32| index.packet_table(record, *nth).is_some();
                // Where each record says how long its sound is, no sound is read.
                let is_read = |nth: &u32| most == u64::MAX || (span[1].is_none() && !has_table(nth));
                let sound = first_of(from).filter(is_read).map(|field| (field, most));
                span.iter().flatten().filter_map(named).chain(sound).collect()
            }
        };
        fields.into_iter().filter(move |_| is_wanted)
    }

    /// Returns the size of a record's samples, or what is wrong with the record.
    fn size(&self, source: RecordSource<'_>) -> Result<FoundSize, String> {
        let RecordSource { fields, values, record, .. } = source;
        match &self.measure {
            SampleMeasure::Number { field, scale } => {
                let place = ResolvedName::of(field, fields.index, record);
                let number = values.number(record, field, &place)?.ok_or_else(|| match place {
                    ResolvedName::Nothing => format!("it has no field `{field}`; it has {}", names_of(record)),
                    _ => format!("field `{field}` has no value"),
                })?;
                whole(number, *scale).map(FoundSize::Size).map_err(|problem| format!("field `{field}` {problem}"))
            }
            SampleMeasure::Pixels { from, count } => {
                source.measure(source.field_of(from)?, &|bytes, _| count(bytes).map(Some))
            }
            SampleMeasure::Milliseconds { from, span } => {
                let span = SpanNumbers::read(span, values, record)?;
                if let Some(milliseconds) = span.milliseconds() {
                    return milliseconds.map(FoundSize::Size);
                }
                let nth = source.field_of(from)?;
                let found = match fields.index.packet_table(record, nth) {
                    Some(table) => FoundSize::Size(milliseconds_of_table(table).and_then(fitting)?),
                    None => source.measure(nth, &milliseconds_of_track)?,
                };
                match found {
                    FoundSize::Size(all) => span.rest_of(all).map(FoundSize::Size),
                    FoundSize::NeedsAll => Ok(FoundSize::NeedsAll),
                }
            }
        }
    }
}

/// Returns the size of a file of so many bytes that begins with these; `None` if these do not tell.
type MeasureFile<'f> = &'f dyn Fn(&[u8], u64) -> Result<Option<u64>, String>;

/// A record that is measured, and what was read of it.
#[derive(Clone, Copy)]
struct RecordSource<'b> {
    block: &'b OpenBlock,
    fields: &'b BlockFields<'b>,
    values: &'b ValueReader<'b>,
    record: &'b Record<'b>,
    /// Whether its whole file was read.
    is_whole: bool,
}

impl RecordSource<'_> {
    /// Returns the number of the first field of `from` that the record has.
    fn field_of(&self, from: &[String]) -> Result<u32, String> {
        let found = from.iter().find_map(|name| self.fields.index.field_number(self.record, name));
        found.ok_or_else(|| format!("it has no field `{}`; it has {}", from.join("` or `"), names_of(self.record)))
    }

    /// Measures the file in a field: by its beginning, if that tells.
    fn measure(&self, nth: u32, measure: MeasureFile<'_>) -> Result<FoundSize, String> {
        let Self { block, fields, record, is_whole, .. } = self;
        let field = fields.index.field(record, nth);
        let of_field = |problem: String| format!("field `{}` {problem}", field.name);
        if let Some(range) = block.begin_of(&field, HEAD_BYTES).filter(|_| !is_whole) {
            let Some(begin) = (fields.slice)(range) else { return Ok(FoundSize::NeedsAll) };
            if (begin.len() as u64) < u64::from(field.bytes) {
                return match measure(&begin, field.bytes.into()) {
                    Ok(Some(size)) => fitting(size).map(FoundSize::Size).map_err(of_field),
                    // What is wrong with it the whole file says.
                    Ok(None) | Err(_) => Ok(FoundSize::NeedsAll),
                };
            }
        }
        let value = fields.open(record, nth).map_err(of_field)?;
        let size = match value.ok_or_else(|| of_field("has no value".to_owned()))? {
            FieldValue::One(Content::File(bytes)) => of_bytes(&bytes, measure),
            FieldValue::One(Content::Array(_)) => Err("is an array, and not a file".to_owned()),
            FieldValue::List(files) => files.iter().flatten().map(|bytes| of_bytes(bytes, measure)).sum(),
        };
        size.and_then(fitting).map(FoundSize::Size).map_err(of_field)
    }
}

/// Measures a whole file.
fn of_bytes(bytes: &Bytes, measure: MeasureFile<'_>) -> Result<u64, String> {
    if bytes.is_empty() {
        return Err("is empty".to_owned());
    }
    measure(bytes, bytes.len() as u64)?.ok_or_else(|| "is cut off".to_owned())
}

/// Returns a size as it is stored.
fn fitting(size: u64) -> Result<u32, String> {
    u32::try_from(size).map_err(|_| format!("has the size {size}; one is below 2^32"))
}
