//! Decodes the fields of a record into one sample of a batch, and writes each column straight into its place in the
//! slot.
//!
//! Decoding a sample takes a few milliseconds of CPU time, so it belongs on a thread pool. The result depends only on
//! the job, the record and the [`SampleKey`], never on the thread, the machine's vector instructions or earlier
//! samples.

mod cause;
mod crop;
mod draw;
mod geometry;
mod memory;
mod picture;
mod pixels;
mod record;
mod scalar;

#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use spdl_core::{
    SampleId,
    job::{Column, ColumnKind, DType, Decoded, ImageColumn, ImageOp, Job},
};

pub use cause::{BadSampleCause, BadSampleProblem};
pub(crate) use memory::DecodeLimits;
pub use memory::DecodeMemory;
pub use picture::{PictureCounts, PictureLimits};

use draw::Draw;
use memory::{MemoryPermit, NeverFits};
use pixels::{Frame, PixelWriter};
use record::SampleRecord;

use crate::transform::{CallKey, Function, Lease};

thread_local! {
    static SCRATCH: RefCell<DecodeScratch> = RefCell::default();
}

/// Buffers that a thread keeps between samples, to avoid allocations.
#[derive(Default)]
struct DecodeScratch {
    picture: picture::PictureScratch,
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

/// The destination of one column of a sample.
#[derive(Debug)]
pub enum FieldTarget<'a> {
    /// The sample's place in a fixed column, of exactly the size of one sample.
    Fixed(&'a mut [u8]),
    /// Receives the value of a ragged column, without a copy.
    Ragged(&'a mut Bytes),
}

/// The error of a job that cannot be decoded with its dataset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DecoderError {
    #[error("column `{column}` of job `{job}` wants the class of a box; the dataset lists no classes")]
    NoClasses { job: String, column: String },
    #[error("class `{class}` is in the dataset's list twice")]
    ClassTwice { class: String },
}

/// Decodes the samples of one job. Cheap to clone; threads can share it.
#[derive(Clone)]
pub struct Decoder {
    inner: Arc<DecoderInner>,
    limits: PictureLimits,
    counts: Arc<PictureCounts>,
    memory: Arc<DecodeMemory>,
    /// The permission to call Python functions, if the job has any.
    transforms: Option<Arc<Lease>>,
}

struct DecoderInner {
    seed: u64,
    columns: Vec<Prepared>,
    classes: HashMap<String, i64>,
}

struct Prepared {
    column: Column,
    decoded: Decoded,
    /// Type of the decoded elements, before any function.
    dtype: DType,
    /// Set for pictures.
    writer: Option<PixelWriter>,
    /// The Python function that is called with the decoded value.
    function: Option<Function>,
}

impl Decoder {
    /// Creates a decoder for `job` on a dataset with these classes, in the order of their numbers.
    ///
    /// # Errors
    /// [`DecoderError`] if the job needs something that the dataset does not have.
    pub fn new<'c>(job: &Job, classes: impl IntoIterator<Item = &'c str>) -> Result<Self, DecoderError> {
        let mut numbers = HashMap::new();
        for (number, class) in (0..).zip(classes) {
            if numbers.insert(class.to_owned(), number).is_some() {
                return Err(DecoderError::ClassTwice { class: class.to_owned() });
            }
        }
        let boxed = job.columns.iter().find(|column| matches!(column.kind.decoded(), ColumnKind::BoxClass));
        if let (Some(column), true) = (boxed, numbers.is_empty()) {
            return Err(DecoderError::NoClasses { job: job.name.clone(), column: column.name.clone() });
        }
        let columns = job.columns.iter().map(Prepared::new).collect();
        let inner = Arc::new(DecoderInner { seed: job.seed, columns, classes: numbers });
        let (limits, counts, memory) = (PictureLimits::default(), Arc::default(), Arc::default());
        Ok(Self { inner, limits, counts, memory, transforms: None })
    }

    /// Returns the same decoder with other limits on pictures.
    #[must_use]
    pub fn with_limits(self, limits: PictureLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the same decoder, which counts pictures in `counts`.
    #[must_use]
    pub fn with_counts(self, counts: Arc<PictureCounts>) -> Self {
        Self { counts, ..self }
    }

    /// Returns the same decoder, which takes its memory from `memory`.
    #[must_use]
    pub(crate) fn with_memory(self, memory: Arc<DecodeMemory>) -> Self {
        Self { memory, ..self }
    }

    /// Waits for all memory and returns the same decoder with that memory. While the permit lives, no other picture is
    /// decoded.
    pub(crate) fn alone(&self) -> (MemoryPermit<'_>, Self) {
        let permit = self.memory.take_all();
        (permit, self.clone().with_memory(Arc::new(self.memory.of_its_own())))
    }

    /// Returns the same decoder, which calls the job's functions through `transforms`.
    #[must_use]
    pub(crate) fn with_transforms(self, transforms: Option<Arc<Lease>>) -> Self {
        Self { transforms, ..self }
    }

    /// Returns every field that a column may read, which are the fields that a partial fetch of a record needs.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        let mut names = BTreeSet::new();
        for Prepared { column, decoded, .. } in &self.inner.columns {
            names.extend(column.from.iter().map(String::as_str));
            if let Decoded::Image(image) = decoded {
                names.extend(image.ops.iter().filter_map(|op| match op {
                    ImageOp::CropBox { field, .. } => Some(field.as_str()),
                    _ => None,
                }));
            }
        }
        names.into_iter()
    }

    /// Decodes one sample. `field` returns the bytes of a field of its record, or `None` if the record has no such
    /// field. `targets` has one entry per column of the job, in order. Columns with the same steps draw the same random
    /// numbers, so that a picture and its mask are cut alike.
    ///
    /// # Errors
    /// [`BadSampleCause`] for the first column that cannot be decoded; the targets may then hold anything.
    ///
    /// # Panics
    /// If the targets do not match the job's columns, or if the job has functions and a feed did not create the
    /// decoder.
    pub fn decode_sample(
        &self,
        key: SampleKey,
        field: &dyn Fn(&str) -> Option<Bytes>,
        targets: &mut [FieldTarget<'_>],
    ) -> Result<(), BadSampleCause> {
        assert_eq!(targets.len(), self.inner.columns.len(), "targets, one for each column");
        let mut record = SampleRecord::new(field, key.sample_in_record);
        SCRATCH.with_borrow_mut(|scratch| {
            for (prepared, target) in self.inner.columns.iter().zip(targets) {
                self.decode_column(prepared, key, &mut record, scratch, target)
                    .map_err(|problem| BadSampleCause { column: prepared.column.name.clone(), problem })?;
            }
            Ok(())
        })
    }
}

impl Prepared {
    fn new(column: &Column) -> Self {
        let decoded = column.kind.decoded();
        let dtype = column.transform().map_or(column.dtype, |transform| transform.takes);
        let writer = match &decoded {
            Decoded::Image(image) => Some(PixelWriter::new(image, dtype)),
            _ => None,
        };
        Self { column: column.clone(), decoded, dtype, writer, function: Function::of(column) }
    }
}

impl Decoder {
    fn decode_column(
        &self,
        prepared: &Prepared,
        key: SampleKey,
        record: &mut SampleRecord<'_>,
        scratch: &mut DecodeScratch,
        target: &mut FieldTarget<'_>,
    ) -> Result<(), BadSampleProblem> {
        let Some(function) = &prepared.function else {
            return self.decode_value(prepared, key, record, scratch, target);
        };
        let input = |place: &mut [u8]| {
            if !matches!(prepared.decoded, Decoded::Bytes { .. }) {
                self.decode_value(prepared, key, record, scratch, &mut FieldTarget::Fixed(place))?;
                return Ok(place.len());
            }
            let mut value = Bytes::new();
            self.decode_value(prepared, key, record, scratch, &mut FieldTarget::Ragged(&mut value))?;
            place[..value.len()].copy_from_slice(&value);
            Ok(value.len())
        };
        let output = |returned: &[u8]| match target {
            FieldTarget::Fixed(out) => out.copy_from_slice(returned),
            FieldTarget::Ragged(value) => **value = Bytes::copy_from_slice(returned),
        };
        let bad =
            |problem| BadSampleProblem::Function { function: function.name.clone(), problem: cause::reason(problem) };
        let key = CallKey { seed: self.inner.seed, epoch: key.epoch, id: key.id.0 };
        let transforms = self.transforms.as_ref().expect("a feed's decoder can call functions");
        transforms.call(function, key, input, output, bad)
    }

    fn decode_value(
        &self,
        Prepared { column, decoded, dtype, writer, .. }: &Prepared,
        key: SampleKey,
        record: &mut SampleRecord<'_>,
        scratch: &mut DecodeScratch,
        target: &mut FieldTarget<'_>,
    ) -> Result<(), BadSampleProblem> {
        let (field, bytes) = record.first_of(&column.from)?;
        match (decoded, target) {
            (Decoded::Image(image), FieldTarget::Fixed(out)) => {
                let writer = writer.as_ref().expect("a picture's column has its writer");
                self.decode_picture(field, &bytes, (image, writer), key, record, scratch, out)
            }
            (Decoded::Int, FieldTarget::Fixed(out)) => scalar::int(&bytes, *dtype, field, out),
            (Decoded::Json { path }, FieldTarget::Fixed(out)) => scalar::json(&bytes, path, *dtype, field, out),
            (Decoded::BoxClass, FieldTarget::Fixed(out)) => self.write_class(field, *dtype, record, out),
            (Decoded::Bytes { max_bytes }, FieldTarget::Ragged(value)) => {
                if bytes.len() > *max_bytes as usize {
                    let (field, bytes, max_bytes) = (field.to_owned(), bytes.len(), *max_bytes);
                    return Err(BadSampleProblem::TooLong { field, bytes, max_bytes });
                }
                **value = bytes;
                Ok(())
            }
            (_, target) => panic!("column `{}` has another target: {target:?}", column.name),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn decode_picture(
        &self,
        field: &str,
        bytes: &[u8],
        (image, writer): (&ImageColumn, &PixelWriter),
        key: SampleKey,
        record: &mut SampleRecord<'_>,
        scratch: &mut DecodeScratch,
        out: &mut [u8],
    ) -> Result<(), BadSampleProblem> {
        assert_eq!(out.len(), writer.bytes(), "bytes of a picture's place");
        if bytes.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let picture = picture::open(bytes, field, self.limits)?;
        let mut draw = Draw::new(self.inner.seed, key.epoch, key.id.0);
        let plan = geometry::plan(picture.seen(), &image.ops, &mut draw, |field| record.pixel_box(field))?;
        let (Some(x), Some(y)) = (plan.x, plan.y) else {
            writer.blacken(out);
            return Ok(());
        };
        let stored = picture.orientation.stored([x, y], picture.stored);
        let orientation = if plan.mirrored { picture.orientation.mirrored() } else { picture.orientation };
        let left = if plan.mirrored { x.size - x.place - x.pixels } else { x.place };
        let frame = Frame { place: [left, y.place], pixels: [x.pixels, y.pixels], orientation };
        let needed_bytes = picture.memory_bytes(stored, (writer, &frame));
        let _permit = self.memory.take(needed_bytes).map_err(|NeverFits { most_bytes }| {
            let [width, height] = picture.stored;
            BadSampleProblem::TooMuchMemory { field: field.to_owned(), width, height, needed_bytes, most_bytes }
        })?;
        self.counts.count(&picture);
        picture
            .render(stored, (writer, &frame), (&mut scratch.picture, self.memory.kept_bytes()), out)
            .map_err(|failure| failure.of(bytes, field, self.limits))
    }

    fn write_class(
        &self,
        field: &str,
        dtype: DType,
        record: &mut SampleRecord<'_>,
        out: &mut [u8],
    ) -> Result<(), BadSampleProblem> {
        let class = &record.object(field)?.class;
        match self.inner.classes.get(class.trim()) {
            Some(number) => scalar::write_integer(*number, dtype, field, || number.to_string(), out),
            None => {
                let class = cause::quoted(class.as_bytes());
                Err(BadSampleProblem::ClassUnknown { field: field.to_owned(), class })
            }
        }
    }
}
