//! Decodes the fields of a record into one sample of a batch, and writes each column straight into its place in the
//! slot.
//!
//! Decoding a sample takes a few milliseconds of CPU time, so it belongs on a thread pool. The result depends only on
//! the job, the record and the [`SampleKey`], never on the thread, the machine's vector instructions or earlier
//! samples.

mod call;
mod cause;
mod coco;
mod column;
mod dataset_sound;
mod document;
mod followed;
mod gzip;
mod kept_frames;
mod loss_mask;
mod memory;
mod number;
mod parts;
mod picture_ops;
mod read_video;
mod record;
mod sample_clip;
mod sequence;
mod series;
mod shared_frames;
mod still;
mod taken_video;
mod target;

#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::Value;
use spdl_frames::FrameDecoders;
use spdl_job::{Column, ColumnKind, DefaultValue, Job, decoded_columns};
use spdl_shard::{format::FieldValue, json};
use spdl_types::{DType, SampleId, SampleShape};

use call::PreparedCall;
use cause::ValueResult;
pub use cause::{BadSampleCause, BadSampleProblem};
pub use column::read_numpy;
pub use loss_mask::count_learned;
pub use memory::DecodeMemory;
pub(crate) use memory::{DecodeLimits, NeverFits};
pub use picture_ops::PictureOps;
pub(crate) use sequence::{PieceTarget, SequenceWriter, WrittenRow};
pub use sequence::{count_tokens, read_tokens};
pub(crate) use shared_frames::{FrameUser, SharedVideo, UserFrames, VideoIdentity};
pub use spdl_pixels::{PictureCounts, PictureLimits};
pub use still::count_pixels;
pub use target::FieldTarget;

use column::{ColumnDecoder, ColumnSample, ColumnSetup, DecodeResources, DecodeScratch};
pub(crate) use dataset_sound::DatasetSound;
pub(crate) use gzip::is_compressed;
use memory::MemoryPermit;
pub(crate) use read_video::{FrameChoice, ReadVideo, SeriesFrames, WantedSeries};
pub(crate) use record::{FieldLookup, ReadElements};
use record::{SampleRecord, one_value};

use crate::{
    rust_functions::RustFunctions,
    transform::{Lease, TransformError},
};

thread_local! {
    static SCRATCH: RefCell<DecodeScratch> = RefCell::default();
}

/// The sample and the epoch; together with the job's seed, the key of all randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleKey {
    /// The epoch.
    pub epoch: u64,
    /// The sample.
    pub id: SampleId,
    /// Number of the sample within its record, from 0: which bounding box it is.
    pub sample_in_record: u32,
}

/// The error of a job that cannot be decoded with its dataset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DecoderError {
    #[error("column `{column}` of job `{job}` uses the class of a box; the dataset lists no classes")]
    NoClasses { job: String, column: String },
    #[error("column `{column}` of job `{job}` has no `names`, and the dataset lists no classes")]
    NoNames { job: String, column: String },
    #[error("`classes` of column `{column}` of job `{job}` has `{class}`, which is none of the dataset's classes")]
    NoSuchClass { job: String, column: String, class: String },
    #[error("`default` of column `{column}` of job `{job}` is {default}, which does not fit: {problem}")]
    Default { job: String, column: String, default: String, problem: String },
    #[error("class `{class}` is twice in the dataset's list of classes")]
    ClassTwice { class: String },
}

/// Decodes the samples of one job. Cheap to clone; threads can share it.
#[derive(Clone)]
pub struct Decoder {
    inner: Arc<DecoderInner>,
    resources: DecodeResources,
    /// The permission to call Python functions, if the job has any.
    transforms: Option<Arc<Lease>>,
    functions: Arc<RustFunctions>,
}

struct DecoderInner {
    seed: u64,
    /// The columns of the job; `None` for those that calls return.
    columns: Vec<Option<Prepared>>,
    /// Numbers of the columns, in the order in which they are decoded.
    order: Vec<usize>,
    calls: Vec<PreparedCall>,
    /// How sequences are written, if samples are sequences. No column is decoded then.
    sequence: Option<SequenceWriter>,
    /// Whether decoding a value can take memory for a picture, a sound or a video.
    takes_memory: bool,
}

/// A value that is decoded.
pub(super) struct Prepared {
    column: Column,
    decoder: Box<dyn ColumnDecoder>,
    /// The value of samples without one, if the column has a default.
    default: Option<Bytes>,
    is_ragged: bool,
}

impl Decoder {
    /// Creates a decoder for `job` on a dataset with these classes, in the order of their numbers.
    ///
    /// # Errors
    /// [`DecoderError`] if the job needs something that the dataset does not have.
    pub fn new<'c>(job: &Job, classes: impl IntoIterator<Item = &'c str>) -> Result<Self, DecoderError> {
        if let Some(writer) = SequenceWriter::new(job) {
            let columns = job.columns.iter().map(|_| None).collect();
            let (order, calls) = Default::default();
            let inner =
                DecoderInner { seed: job.seed, columns, order, calls, sequence: Some(writer), takes_memory: false };
            return Ok(Self::of(inner));
        }
        let mut numbers = HashMap::new();
        for (number, class) in (0..).zip(classes) {
            if numbers.insert(class.to_owned(), number).is_some() {
                return Err(DecoderError::ClassTwice { class: class.to_owned() });
            }
        }
        let classes = Arc::new(numbers);
        let mut decoded = Vec::<Column>::new();
        for column in decoded_columns(&job.columns) {
            if !decoded.iter().any(|known| known.name == column.name) {
                decoded.push(column.clone());
            }
        }
        let prepare = |column: &Column| -> Result<Prepared, DecoderError> {
            // A field that a function takes is none of them, and no column follows it.
            let number = decoded.iter().position(|known| known == column).unwrap_or(decoded.len());
            let setup = ColumnSetup { job: &job.name, number, column, columns: &decoded, classes: &classes };
            Prepared::new(&setup)
        };
        let of_column = |column: &Column| (!column.is_by_function()).then(|| prepare(column)).transpose();
        let columns = job.columns.iter().map(of_column).collect::<Result<_, _>>()?;
        let calls = PreparedCall::all(job, prepare)?;
        let order = followed::decoding_order(&job.columns, &decoded);
        use ColumnKind::{Audio, Image, Mask, Video};
        let takes_memory = decoded.iter().any(|column| matches!(column.kind, Image(_) | Mask(_) | Audio(_) | Video(_)));
        Ok(Self::of(DecoderInner { seed: job.seed, columns, order, calls, sequence: None, takes_memory }))
    }

    fn of(inner: DecoderInner) -> Self {
        let inner = Arc::new(inner);
        Self { inner, resources: DecodeResources::default(), transforms: None, functions: Arc::default() }
    }

    /// Returns how sequences are written, if the job's samples are sequences.
    pub(crate) fn sequence(&self) -> Option<&SequenceWriter> {
        self.inner.sequence.as_ref()
    }

    /// Returns the same decoder with other limits on pictures.
    #[must_use]
    pub fn with_limits(self, limits: PictureLimits) -> Self {
        Self { resources: DecodeResources { limits, ..self.resources }, ..self }
    }

    /// Returns the same decoder, which counts pictures in `counts`.
    #[must_use]
    pub fn with_counts(self, counts: Arc<PictureCounts>) -> Self {
        Self { resources: DecodeResources { counts, ..self.resources }, ..self }
    }

    /// Returns the same decoder with a limit on the memory of all pictures that it decodes at once. A picture that does not
    /// fit beside the others waits; one that never fits is a [`BadSampleProblem::TooMuchMemory`].
    #[must_use]
    pub fn with_memory_bytes(self, max_bytes: u64) -> Self {
        let kept_bytes = usize::try_from(max_bytes / 16).unwrap_or(usize::MAX);
        let limits = DecodeLimits { max_bytes, own_bytes: max_bytes, kept_bytes };
        self.with_memory(Arc::new(DecodeMemory::new(limits, Box::new(|_| ()))))
    }

    /// Returns the same decoder, which takes its memory from `memory`.
    #[must_use]
    pub(crate) fn with_memory(self, memory: Arc<DecodeMemory>) -> Self {
        Self { resources: DecodeResources { memory, ..self.resources }, ..self }
    }

    /// Returns the same decoder, which has the frames of videos decoded by `frames`. Without them, a video is a bad sample.
    #[must_use]
    pub fn with_frames(self, frames: Option<Arc<FrameDecoders>>) -> Self {
        Self { resources: DecodeResources { frames, ..self.resources }, ..self }
    }

    /// Waits for all memory and returns the same decoder with that memory. While the permit lives, no other picture is
    /// decoded.
    pub(crate) fn alone(&self) -> (MemoryPermit<'_>, Self) {
        let memory = &self.resources.memory;
        (memory.take_all(), self.clone().with_memory(Arc::new(memory.of_its_own())))
    }

    /// Returns the same decoder, which calls the job's functions in Python through `transforms`, and those in Rust.
    #[must_use]
    pub(crate) fn with_functions(self, transforms: Option<Arc<Lease>>, functions: RustFunctions) -> Self {
        Self { transforms, functions: Arc::new(functions), ..self }
    }

    /// Returns the error if a process has imported another version of one of the job's functions, so that none of them
    /// can be called any longer.
    pub(crate) fn failure(&self) -> Option<&TransformError> {
        self.transforms.as_ref()?.failure()
    }

    /// Returns every field that a column may read, which are the fields that a partial fetch of a record needs.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        let mut names = BTreeSet::new();
        names.extend(self.sequence().into_iter().flat_map(SequenceWriter::fields).map(String::as_str));
        for (_, prepared) in self.inner.prepared() {
            names.extend(prepared.fields());
        }
        names.into_iter()
    }

    /// Returns for each column of the job the field that it is decoded from, if its values can be numbers.
    pub(crate) fn number_fields(&self) -> impl Iterator<Item = Option<&str>> {
        self.inner.columns.iter().map(|prepared| {
            let Prepared { column, decoder, .. } = prepared.as_ref()?;
            match &column.from[..] {
                [name] if decoder.takes_numbers() && column.path().is_empty() && column.value.deltas.is_empty() => {
                    Some(name.as_str())
                }
                _ => None,
            }
        })
    }

    /// Returns whether the values of all columns can be numbers.
    pub(crate) fn takes_only_numbers(&self) -> bool {
        self.number_fields().all(|field| field.is_some())
    }

    /// Returns whether a number of this type fits column number `column` of the job whatever its value, and its bytes are the
    /// column's.
    pub(crate) fn copies_numbers(&self, column: usize, dtype: DType) -> bool {
        self.inner.columns[column].as_ref().is_some_and(|prepared| prepared.decoder.copies_numbers(dtype))
    }

    /// Writes a number into its place in column number `column` of the job, and returns whether it fits. If it does not,
    /// [`decode_record`](Self::decode_record) knows why.
    pub(crate) fn write_number(&self, column: usize, dtype: DType, element: &[u8], place: &mut [u8]) -> bool {
        let prepared = self.inner.columns[column].as_ref();
        prepared.is_some_and(|prepared| prepared.decoder.number(dtype, element, &mut FieldTarget::Fixed(place)))
    }

    /// Returns the limits on pictures.
    pub(crate) const fn limits(&self) -> PictureLimits {
        self.resources.limits
    }

    /// Returns the cause of a bad sample whose field `field` has bytes that the dataset's format forbids there.
    pub(crate) fn malformed(&self, field: &str, problem: &str) -> BadSampleCause {
        let mut prepared = self.inner.prepared();
        let reads = prepared.find(|(_, prepared)| prepared.fields().any(|name| name == field));
        let column = reads.map(|(column, _)| column).or_else(|| self.sequence().map(SequenceWriter::name));
        let column = column.map(str::to_owned);
        let problem = BadSampleProblem::Malformed { field: field.to_owned(), problem: cause::reason(problem) };
        BadSampleCause { column: column.unwrap_or_default(), problem }
    }

    /// Decodes one sample, and then calls its functions. `field` returns the value of a field of its record, or `None` if the record has no such
    /// field. `targets` has one entry per column of the job, in order. Columns with the same steps draw the same random
    /// numbers, so that a picture and its mask are cut alike.
    ///
    /// # Errors
    /// [`BadSampleCause`] for the first column that cannot be decoded, or else the first function that fails; the targets may then hold anything.
    ///
    /// # Panics
    /// If the targets do not match the job's columns, or if the job has functions and a feed did not create the
    /// decoder.
    pub fn decode_sample(
        &self,
        key: SampleKey,
        field: &dyn Fn(&str) -> Option<FieldValue>,
        targets: &mut [FieldTarget<'_>],
    ) -> Result<(), BadSampleCause> {
        self.decode_record(key, &field, targets)
    }

    /// Decodes one sample, as [`decode_sample`](Self::decode_sample) does, from a record that may have numbers at hand.
    pub(crate) fn decode_record(
        &self,
        key: SampleKey,
        fields: &dyn FieldLookup,
        targets: &mut [FieldTarget<'_>],
    ) -> Result<(), BadSampleCause> {
        self.decode_columns(key, fields, targets, |_| true)
    }

    /// Decodes the columns of one sample for whose numbers `is_wanted` returns true, and leaves the others as they are.
    /// For a job with functions, it must return true for all.
    pub(crate) fn decode_columns(
        &self,
        key: SampleKey,
        fields: &dyn FieldLookup,
        targets: &mut [FieldTarget<'_>],
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<(), BadSampleCause> {
        assert_eq!(targets.len(), self.inner.columns.len(), "targets, one for each column");
        let mut record = SampleRecord::new(fields, key.sample_in_record);
        let mut decoded = self.decode_opened(key, &mut record, targets, &is_wanted);
        // With the memory for one large field, decoding may get as far as another one.
        while let Some(bytes) = record.take_wanted_bytes() {
            let Ok((_permit, decoder)) = self.beside(bytes) else { return decoded };
            decoded = decoder.decode_opened(key, &mut record, targets, &is_wanted);
        }
        decoded
    }

    /// Reserves `bytes` of memory for decompressed fields of a sample, and returns a decoder with the rest of the
    /// memory.
    fn beside(&self, bytes: u64) -> Result<(MemoryPermit<'_>, Self), NeverFits> {
        let memory = &self.resources.memory;
        // A thread that holds a permit must not ask for another, so a decoder that may need one later takes all memory now.
        let (permit, left) = if self.inner.takes_memory {
            let left = memory.beside(bytes)?;
            (memory.take_all(), left)
        } else {
            (memory.take(bytes)?, DecodeMemory::none())
        };
        Ok((permit, self.clone().with_memory(Arc::new(left))))
    }

    /// Decodes columns of a record. Of its large compressed fields, only those for which memory is reserved can be used.
    fn decode_opened(
        &self,
        key: SampleKey,
        record: &mut SampleRecord<'_>,
        targets: &mut [FieldTarget<'_>],
        is_wanted: &impl Fn(usize) -> bool,
    ) -> Result<(), BadSampleCause> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut decode = || {
                for nth in self.inner.order.iter().filter(|nth| is_wanted(**nth)) {
                    let (Some(prepared), target) = (&self.inner.columns[*nth], &mut targets[*nth]) else { continue };
                    let number = record.number(*nth);
                    if number.is_some_and(|(dtype, element)| prepared.decoder.number(dtype, element, target)) {
                        continue;
                    }
                    self.decode_value(prepared, key, record, scratch, target)
                        .map_err(|problem| BadSampleCause { column: prepared.column.name.clone(), problem })?;
                }
                for call in &self.inner.calls {
                    self.call(call, key, record, scratch, targets)
                        .map_err(|problem| BadSampleCause { column: call.column.clone(), problem })?;
                }
                Ok(())
            };
            let decoded = decode();
            // The file would keep its block in memory.
            scratch.heard = None;
            decoded
        })
    }
}

impl DecoderInner {
    /// Returns every value that is decoded, with the column that it is for.
    fn prepared(&self) -> impl Iterator<Item = (&str, &Prepared)> {
        let of_columns = self.columns.iter().flatten().map(|prepared| (prepared.column.name.as_str(), prepared));
        of_columns.chain(self.calls.iter().flat_map(PreparedCall::prepared))
    }
}

impl Prepared {
    fn new(setup: &ColumnSetup<'_>) -> Result<Self, DecoderError> {
        let (column, decoder) = (setup.column.clone(), column::decoder(setup)?);
        let is_ragged = !matches!(column.decoded_shape(), SampleShape::Fixed(_));
        let mut prepared = Self { column, decoder, default: None, is_ragged };
        if let Some(default) = &prepared.column.value.default {
            let value = prepared.default_value(default).map_err(|problem| {
                let (job, column) = (setup.job.to_owned(), setup.column.name.clone());
                DecoderError::Default { job, column, default: default.to_string(), problem: problem.to_string() }
            });
            prepared.default = Some(value?);
        }
        Ok(prepared)
    }

    /// Returns the bytes of the default.
    fn default_value(&self, default: &DefaultValue) -> Result<Bytes, BadSampleProblem> {
        let mut value = Bytes::new();
        if self.is_ragged {
            self.decoder.write_default(default, &mut FieldTarget::Ragged(&mut value))?;
            return Ok(value);
        }
        let bytes = self.column.kind.shape().max_bytes(self.column.decoded_dtype());
        let mut place = vec![0; usize::try_from(bytes).expect("a checked job has small samples")];
        self.decoder.write_default(default, &mut FieldTarget::Fixed(&mut place))?;
        Ok(place.into())
    }

    /// Returns the fields that it may read.
    fn fields(&self) -> impl Iterator<Item = &str> {
        self.column.from.iter().map(String::as_str).chain(self.decoder.fields())
    }
}

impl Decoder {
    fn decode_one(
        &self,
        Prepared { column, decoder, default, .. }: &Prepared,
        key: SampleKey,
        record: &mut SampleRecord<'_>,
        scratch: &mut DecodeScratch,
        target: &mut FieldTarget<'_>,
    ) -> ValueResult {
        let (path, seed, resources) = (column.path(), self.inner.seed, &self.resources);
        if decoder.reads_video()
            && let Some((field, content)) = record.read_video(&column.from)
        {
            return decoder.decode_read(ColumnSample { field, content, seed, key, record, resources, scratch }, target);
        }
        let max_bytes = if path.is_empty() { decoder.max_bytes() } else { u32::MAX };
        let (field, content) = match (record.first_value_of(&column.from, max_bytes), default) {
            (Err(BadSampleProblem::Missing { .. }), Some(default)) => {
                target.write(default);
                return Ok(());
            }
            (found, _) => found?,
        };
        if path.is_empty() {
            return decoder
                .decode_value(ColumnSample { field, content, seed, key, record, resources, scratch }, target);
        }
        let document = record.json(field, one_value(field, content)?)?;
        let content = json::at(&document, path);
        if let (Some(default), None | Some(Value::Null)) = (default, content) {
            target.write(default);
            return Ok(());
        }
        decoder.decode_json(ColumnSample { field, content, seed, key, record, resources, scratch }, path, target)
    }
}
