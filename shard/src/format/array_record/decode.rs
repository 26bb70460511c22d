//! Decodes the chunks of a segment to the values of their records.

use std::{mem, ops::Range, sync::Arc};

use bytes::Bytes;
use spdl_types::DType;

use super::{
    END_BYTES, RecordFields,
    chunk::{ArrayRecordChunk, ChunkDecompressor, MAX_SIZE_BYTES, Values},
    index::ArrayRecordIndex,
};
use crate::format::{
    DecodedBlock, Decoding, FetchedBytes, FieldValue, NumberRun, OpenError,
    tfrecord::{feature_named, value},
};

/// Room for decoded records is reserved up to this many times their stored size, and grows beyond that as needed.
const MAX_RESERVED_RATIO: u64 = 16;

/// The decoded records of a block, or of some of its chunks.
#[derive(Debug)]
pub(super) struct DecodedChunks {
    fields: RecordFields,
    /// In the order of their records.
    runs: Vec<DecodedRun>,
}

/// Records of neighbouring chunks that were read, or those of a damaged one.
#[derive(Debug)]
struct DecodedRun {
    records: Range<u32>,
    values: Result<RunValues, DamagedChunk>,
}

#[derive(Debug)]
struct RunValues {
    bytes: Bytes,
    /// Where each record ends.
    ends: Vec<u32>,
}

#[derive(Clone, Debug)]
struct DamagedChunk {
    problem: Arc<str>,
    checksum: u32,
}

impl DecodedBlock for DecodedChunks {
    fn bytes(&self) -> u64 {
        let values = self.runs.iter().filter_map(|run| run.values.as_ref().ok());
        values.map(|values| values.bytes.len() as u64 + END_BYTES * values.ends.len() as u64).sum()
    }

    fn only(&self, records: &[u32]) -> Arc<dyn DecodedBlock> {
        let runs = records.iter().filter_map(|record| Some(self.run(*record)?.only(*record))).collect();
        Arc::new(Self { fields: self.fields.clone(), runs })
    }

    fn open(&self, record: u32, nth: u32) -> Result<Option<FieldValue>, OpenError> {
        let run = self.run(record).ok_or(OpenError::Missing)?;
        let example = run.value(record)?;
        let RecordFields::Features(names) = &self.fields else { return Ok(Some(example.into())) };
        let name = names.get(nth as usize).ok_or(OpenError::Missing)?;
        let feature = feature_named(&example, name)
            .map_err(|problem| OpenError::Malformed(format!("is not there: the record {problem}")))?;
        feature.map(|feature| value(name, &example.slice(feature)).map_err(OpenError::Malformed)).transpose()
    }

    fn number(&self, _record: u32, _nth: u32) -> Option<(DType, &[u8])> {
        None
    }

    fn numbers(&self, _record: u32, _nth: u32) -> Option<NumberRun<'_>> {
        None
    }
}

impl DecodedChunks {
    fn run(&self, record: u32) -> Option<&DecodedRun> {
        let at = self.runs.partition_point(|run| run.records.end <= record);
        self.runs.get(at).filter(|run| run.records.contains(&record))
    }
}

impl DecodedRun {
    /// Creates the run of these records, whose values are taken, if there are any.
    fn whole(records: Range<u32>, values: &mut Values) -> Option<Self> {
        let Values { mut bytes, mut ends } = mem::take(values);
        bytes.shrink_to_fit();
        ends.shrink_to_fit();
        (!records.is_empty()).then(|| Self { records, values: Ok(RunValues { bytes: bytes.into(), ends }) })
    }

    /// Returns one record alone.
    fn only(&self, record: u32) -> Self {
        let copied = |values: &RunValues| {
            let bytes = Bytes::copy_from_slice(&values.bytes[self.range(record, values)]);
            RunValues { ends: vec![bytes.len() as u32], bytes }
        };
        Self { records: record..record + 1, values: self.values.as_ref().map(copied).map_err(Clone::clone) }
    }

    fn value(&self, record: u32) -> Result<Bytes, OpenError> {
        match &self.values {
            Ok(values) => Ok(values.bytes.slice(self.range(record, values))),
            Err(DamagedChunk { problem, checksum }) => {
                Err(OpenError::Damaged { problem: problem.clone(), checksum: *checksum })
            }
        }
    }

    fn range(&self, record: u32, values: &RunValues) -> Range<usize> {
        let number = (record - self.records.start) as usize;
        let start = number.checked_sub(1).map_or(0, |before| values.ends[before]);
        start as usize..values.ends[number] as usize
    }
}

/// Iterates over the neighbouring chunks in `ranges` of the shard, which are sorted and do not overlap, with the number
/// of their segment.
fn chunks_there(index: &ArrayRecordIndex, ranges: &[Range<u64>]) -> impl Iterator<Item = (usize, Range<u32>)> {
    let of_range =
        move |range| index.segments_in(range).map(move |segment| (segment, chunks_in(index, segment, range)));
    ranges.iter().flat_map(of_range).filter(|(_, chunks)| !chunks.is_empty())
}

/// Returns the memory that decoding the chunks in `ranges` of the shard takes.
pub(super) fn decoding(index: &ArrayRecordIndex, ranges: &[Range<u64>]) -> Decoding {
    let (mut bytes, mut all) = (0, None::<Range<u32>>);
    for (_, chunks) in chunks_there(index, ranges) {
        for number in chunks.clone() {
            let records = index.records_of(number);
            let records = u64::from(records.end - records.start);
            bytes += u64::from(index.chunk(number).decoded_bytes) + (END_BYTES + MAX_SIZE_BYTES) * records;
        }
        all = Some(all.map_or(chunks.start, |all| all.start)..chunks.end);
    }
    let all = all.unwrap_or_default();
    let place = match all.end.saturating_sub(all.start) {
        0 | 1 => format!("chunk {}", all.start),
        _ => format!("chunks {} to {}", all.start, all.end - 1),
    };
    Decoding { bytes, place }
}

/// Decodes the chunks that lie in `ranges` of the shard, which are sorted and do not overlap.
pub(super) fn decode(index: &ArrayRecordIndex, ranges: &[Range<u64>], fetched: &FetchedBytes<'_>) -> DecodedChunks {
    let mut decompressor = ChunkDecompressor::new();
    let decode = |(segment, chunks)| decode_runs(index, segment, chunks, fetched, &mut decompressor);
    let runs = chunks_there(index, ranges).flat_map(decode).collect();
    DecodedChunks { fields: index.fields.clone(), runs }
}

/// Returns the chunks of a segment that lie in `range` of the shard.
fn chunks_in(index: &ArrayRecordIndex, segment: usize, range: &Range<u64>) -> Range<u32> {
    let chunks = index.chunks_of(segment);
    let first = chunks.clone().find(|chunk| index.place(segment, *chunk).start >= range.start).unwrap_or(chunks.end);
    let end = (first..chunks.end).find(|chunk| index.place(segment, *chunk).end > range.end);
    first..end.unwrap_or(chunks.end)
}

/// Decodes neighbouring chunks of a segment.
fn decode_runs(
    index: &ArrayRecordIndex,
    segment: usize,
    chunks: Range<u32>,
    fetched: &FetchedBytes<'_>,
    decompressor: &mut Result<ChunkDecompressor, String>,
) -> Vec<DecodedRun> {
    let last = chunks.end - 1;
    let at = index.place(segment, chunks.start).start;
    let stored = fetched(at..index.place(segment, last).end).unwrap_or_default();
    let decoded: u64 = chunks.clone().map(|chunk| u64::from(index.chunk(chunk).decoded_bytes)).sum();
    let reserved = decoded.min(MAX_RESERVED_RATIO * stored.len() as u64);
    let mut first_record = index.records_of(chunks.start).start;
    let mut values = Values { bytes: Vec::with_capacity(reserved as usize), ends: Vec::new() };
    let mut runs = Vec::new();
    for number in chunks {
        let place = index.place(segment, number);
        let part = stored.get((place.start - at) as usize..(place.end - at) as usize);
        let stored = part.map(|part| stored.slice_ref(part)).unwrap_or_default();
        let result = match decompressor {
            Ok(decompressor) => decode_chunk(index, number, stored.clone(), decompressor, &mut values),
            Err(problem) => Err(problem.clone()),
        };
        if let Err(problem) = result {
            let problem = format!("(chunk {number}, byte {}): its chunk {problem}", index.chunk(number).at);
            let (records, checksum) = (index.records_of(number), crc32c::crc32c(&stored));
            runs.extend(DecodedRun::whole(first_record..records.start, &mut values));
            first_record = records.end;
            runs.push(DecodedRun { records, values: Err(DamagedChunk { problem: problem.into(), checksum }) });
        }
    }
    runs.extend(DecodedRun::whole(first_record..index.records_of(last).end, &mut values));
    runs
}

/// Decodes chunk number `number`, which has these stored bytes.
fn decode_chunk(
    index: &ArrayRecordIndex,
    number: u32,
    stored: Bytes,
    decompressor: &mut ChunkDecompressor,
    values: &mut Values,
) -> Result<(), String> {
    let (indexed, records) = (index.chunk(number), index.records_of(number));
    let chunk = ArrayRecordChunk::read(stored, indexed.at)?;
    let found = (chunk.records, chunk.decoded_bytes);
    if found != (u64::from(records.end - records.start), indexed.decoded_bytes.into()) {
        return Err(format!("is another one than was indexed: it has {} records of {} bytes", found.0, found.1));
    }
    decompressor.records(&chunk, indexed.decoded_bytes.into(), values)
}
