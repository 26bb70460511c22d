//! The fields of the record that holds a sample, and the sample's bounding box. Values that several columns need are
//! made once for each sample.

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    rc::Rc,
};

use bytes::Bytes;
use serde_json::Value;
use smallvec::SmallVec;
use spdl_canvas::PixelBox;
use spdl_job::{PicturePlan, SoundDataset};
use spdl_shard::{
    format::{Content, FieldValue},
    json,
    voc::{Annotation, VocObject},
};
use spdl_types::DType;

use super::{
    cause::{BadSampleProblem, reason},
    coco::{self, CocoAnnotation},
    dataset_sound::DatasetSound,
    gzip::{CompressedField, is_compressed},
    read_video::{ReadVideo, SeriesFrames, WantedSeries},
    shared_frames::{SharedVideo, VideoIdentity},
};

/// Elements of an array of one dimension that were read.
#[derive(Debug)]
pub(crate) struct ReadElements {
    /// The array that has these alone.
    pub(crate) value: FieldValue,
    /// Number of the first of them.
    pub(crate) first: u64,
    /// Number of elements of the whole array; `None` if all were read.
    pub(crate) all: Option<u64>,
}

impl ReadElements {
    /// All elements of an array.
    pub(crate) const fn whole(value: FieldValue) -> Self {
        Self { value, first: 0, all: None }
    }
}

/// The fields of a record.
pub(crate) trait FieldLookup {
    /// Returns the value of the field `name`, if the record has it.
    fn value(&self, name: &str) -> Option<FieldValue>;

    /// Returns elements `wanted` of the array of one dimension in the field `name`, as far as the array has them, or more of them.
    fn elements(&self, name: &str, _wanted: Range<u64>) -> Option<ReadElements> {
        Some(ReadElements::whole(self.value(name)?))
    }

    /// Returns which place of the record's series is `delta` records away, counted from this one: at most the first or last place. 0
    /// if the record is of no series.
    fn place(&self, _delta: i32) -> i32 {
        0
    }

    /// Returns the value of the field `name` of the record at a place of the series, as [`place`](Self::place) returns it.
    fn value_at(&self, _place: i32, name: &str) -> Option<FieldValue> {
        self.value(name)
    }

    /// Returns the video in the field `name` of which parts were read, if it was read so.
    fn read_video(&self, _name: &str) -> Option<&ReadVideo> {
        None
    }

    /// Returns the frames of the record's series that a column wants, or what is wrong with them, with the field that names them; `None`
    /// if the record has no such field, or it names no frame.
    fn frames(&self, _wanted: &WantedSeries) -> Option<(&str, &Result<SeriesFrames, String>)> {
        None
    }

    /// Returns the video, if other samples of the batch take frames of it, too.
    fn shared_video(&self, _video: VideoIdentity) -> Option<&SharedVideo<'_>> {
        None
    }

    /// Returns the video in the field `name`, if it is read whole and other samples of the batch take frames of it, too.
    fn shared_file(&self, _name: &str) -> Option<&SharedVideo<'_>> {
        None
    }

    /// Returns the recording that is a sample of another dataset, if it was read because an operation takes it.
    fn dataset_sound(&self, _dataset: &SoundDataset, _sample: u64) -> Option<&DatasetSound> {
        None
    }

    /// Notes that so many bytes of values that were asked for are not read, as a part of a file is decoded.
    fn note_unread(&self, _bytes: u64) {}

    /// Notes that a function of the user's is called with values of the record, or, with `None`, that it has returned.
    fn note_call(&self, _function: Option<&str>) {}

    /// Returns the names of the record's fields, if they are known.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the value for column number `column` of the job, if the field that it is decoded from is a number, and at
    /// hand: its type, and its bytes.
    fn number(&self, _column: usize) -> Option<(DType, &[u8])> {
        None
    }
}

impl<F: Fn(&str) -> Option<FieldValue>> FieldLookup for F {
    fn value(&self, name: &str) -> Option<FieldValue> {
        self(name)
    }
}

/// The fields of the record at a place of a record's series.
pub(super) struct FieldsAt<'r> {
    fields: &'r dyn FieldLookup,
    place: i32,
}

impl FieldLookup for FieldsAt<'_> {
    fn value(&self, name: &str) -> Option<FieldValue> {
        self.fields.value_at(self.place, name)
    }

    fn note_unread(&self, bytes: u64) {
        self.fields.note_unread(bytes);
    }

    fn names(&self) -> Vec<String> {
        self.fields.names()
    }
}

/// The size of a sample's picture, and the plan of how it is decoded and changed.
#[derive(Clone, Debug)]
pub(super) struct FollowedPlan {
    /// Width and height of the upright picture.
    pub(super) size: [u32; 2],
    pub(super) plan: PicturePlan,
}

/// The boxes of a sample that are kept.
pub(super) struct KeptBoxes {
    /// Number of boxes that the record has.
    pub(super) count: usize,
    /// The kept boxes, in order: the number of each box in the record, and its value in the column.
    pub(super) kept: Vec<(usize, [f32; 4])>,
}

/// One record, from the view of one of its samples.
pub(crate) struct SampleRecord<'r> {
    fields: &'r dyn FieldLookup,
    sample: u32,
    annotations: SmallVec<[(String, Annotation); 1]>,
    /// JSON documents, by field.
    json: SmallVec<[(String, Rc<Value>); 1]>,
    /// COCO's annotations, by field.
    coco: SmallVec<[(String, Rc<[CocoAnnotation]>); 1]>,
    /// The plans for the pictures of `image` columns, by the column's number among those that are decoded.
    plans: SmallVec<[(usize, Rc<FollowedPlan>); 1]>,
    /// The boxes of columns, by the column's number among those that are decoded.
    boxes: SmallVec<[(usize, Rc<KeptBoxes>); 1]>,
    /// Compressed fields that were asked for.
    compressed: RefCell<SmallVec<[(String, CompressedField); 1]>>,
    /// Decompressed bytes of the large fields among them.
    large_bytes: Cell<u64>,
    /// Bytes of memory that are reserved for these.
    memory_bytes: u64,
}

impl<'r> SampleRecord<'r> {
    pub(crate) fn new(fields: &'r dyn FieldLookup, sample: u32) -> Self {
        Self {
            fields,
            sample,
            annotations: SmallVec::new(),
            json: SmallVec::new(),
            coco: SmallVec::new(),
            plans: SmallVec::new(),
            boxes: SmallVec::new(),
            compressed: RefCell::default(),
            large_bytes: Cell::new(0),
            memory_bytes: 0,
        }
    }

    /// Notes that a function of the user's is called with values of the record, or, with `None`, that it has returned.
    pub(super) fn note_call(&self, function: Option<&str>) {
        self.fields.note_call(function);
    }

    /// Returns the fields of the record that is `delta` records away in the series, or of the first or last of it.
    pub(super) fn fields_at(&self, delta: i32) -> FieldsAt<'r> {
        FieldsAt { fields: self.fields, place: self.fields.place(delta) }
    }

    /// Returns whether no record of the series is `delta` records away.
    pub(super) fn is_pad(&self, delta: i32) -> bool {
        self.fields.place(delta) != delta
    }

    /// Returns the number of the sample in the record.
    pub(super) const fn sample(&self) -> u32 {
        self.sample
    }

    /// Returns the video in the first of these fields that the record has, with its name, if parts of it were read.
    pub(super) fn read_video<'n>(&self, names: &'n [String]) -> Option<(&'n str, &'r ReadVideo)> {
        let first = names.iter().position(|name| self.fields.read_video(name).is_some())?;
        let is_missing = |name: &String| self.fields.value(name).is_none();
        let video = self.fields.read_video(&names[first]).filter(|_| names[..first].iter().all(is_missing));
        Some((&names[first], video?))
    }

    /// Returns the frames of the record's series that a column wants, or what is wrong with them, with the field that names them.
    pub(super) fn frames(&self, wanted: &WantedSeries) -> Option<(&'r str, &'r Result<SeriesFrames, String>)> {
        self.fields.frames(wanted)
    }

    /// Returns the video, if other samples of the batch take frames of it, too.
    pub(super) fn shared_video(&self, video: VideoIdentity) -> Option<&'r SharedVideo<'r>> {
        self.fields.shared_video(video)
    }

    /// Returns the video in a field that was read whole, if other samples of the batch take frames of it, too.
    pub(super) fn shared_file(&self, name: &str) -> Option<&'r SharedVideo<'r>> {
        self.fields.shared_file(name)
    }

    /// Returns the recording that is a sample of another dataset, if it was read because an operation takes it.
    pub(super) fn dataset_sound(&self, dataset: &SoundDataset, sample: u64) -> Option<&'r DatasetSound> {
        self.fields.dataset_sound(dataset, sample)
    }

    /// Notes that so many bytes of a value are not read.
    pub(super) fn note_unread(&self, bytes: u64) {
        self.fields.note_unread(bytes);
    }

    /// Returns the content of the first of these fields that the record has, with its name.
    pub(crate) fn first_of<'n>(&self, names: &'n [String]) -> Result<(&'n str, Content), BadSampleProblem> {
        let (field, value) = self.first_value_of(names, u32::MAX)?;
        Ok((field, one_value(field, value)?))
    }

    /// Returns the value of the first of these fields that the record has, with its name. A compressed value is
    /// decompressed, if it then has at most `max_bytes`.
    pub(crate) fn first_value_of<'n>(
        &self,
        names: &'n [String],
        max_bytes: u32,
    ) -> Result<(&'n str, FieldValue), BadSampleProblem> {
        let found = names.iter().find_map(|name| Some((name.as_str(), self.fields.value(name)?)));
        let (name, value) = found.ok_or_else(|| {
            let fields = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
            BadSampleProblem::Missing { fields, there: self.fields.names() }
        })?;
        match value {
            FieldValue::One(Content::File(file)) if is_compressed(name, &file) => {
                Ok((name, self.decompressed(name, &file, max_bytes)?.into()))
            }
            value => Ok((name, value)),
        }
    }

    /// Returns the decompressed bytes of a field.
    fn decompressed(&self, name: &str, file: &[u8], max_bytes: u32) -> Result<Bytes, BadSampleProblem> {
        let mut compressed = self.compressed.borrow_mut();
        let known = compressed.iter().position(|(known, _)| known == name);
        let known = known.unwrap_or_else(|| {
            compressed.push((name.to_owned(), CompressedField::open(name, file)));
            compressed.len() - 1
        });
        let (_, field) = &mut compressed[known];
        if let CompressedField::Large { bytes, is_counted } = field {
            if *bytes > u64::from(max_bytes) {
                let (field, bytes) = (name.to_owned(), usize::try_from(*bytes).expect("at most 256 MiB"));
                return Err(BadSampleProblem::TooLong { field, bytes, max_bytes });
            }
            if !*is_counted {
                *is_counted = true;
                self.large_bytes.set(self.large_bytes.get() + *bytes);
            }
            if self.large_bytes.get() > self.memory_bytes {
                let problem = format!(
                    "becomes {bytes} bytes, more than there is memory for beside the rest (a part of the memory budget)"
                );
                return Err(BadSampleProblem::Malformed { field: name.to_owned(), problem });
            }
        }
        field.content(name, file)
    }

    /// Returns how many bytes of memory compressed fields need, if more than are reserved. The caller then reserves
    /// them.
    pub(crate) fn take_wanted_bytes(&mut self) -> Option<u64> {
        let bytes = self.large_bytes.get();
        (bytes > self.memory_bytes).then(|| {
            self.memory_bytes = bytes;
            bytes
        })
    }

    /// Returns the value for column number `column` of the job, if it is a number that is at hand.
    pub(crate) fn number(&self, column: usize) -> Option<(DType, &'r [u8])> {
        self.fields.number(column)
    }

    /// Returns the plan for the picture of column number `column`, if it is kept.
    pub(crate) fn plan_of(&self, column: usize) -> Option<Rc<FollowedPlan>> {
        self.plans.iter().find(|(known, _)| *known == column).map(|(_, plan)| plan.clone())
    }

    /// Keeps the plan for the picture of column number `column`.
    pub(crate) fn keep_plan(&mut self, column: usize, plan: Rc<FollowedPlan>) {
        self.plans.push((column, plan));
    }

    /// Returns the boxes of column number `column`, if they are kept.
    pub(crate) fn boxes_of(&self, column: usize) -> Option<Rc<KeptBoxes>> {
        self.boxes.iter().find(|(known, _)| *known == column).map(|(_, boxes)| boxes.clone())
    }

    /// Keeps the boxes of column number `column`.
    pub(crate) fn keep_boxes(&mut self, column: usize, boxes: Rc<KeptBoxes>) {
        self.boxes.push((column, boxes));
    }

    /// Returns the sample's object in the annotation in field `name`.
    pub(crate) fn object(&mut self, name: &str) -> Result<&VocObject, BadSampleProblem> {
        let sample = self.sample;
        let objects = &self.annotation(name)?.objects;
        objects.get(sample as usize).ok_or_else(|| BadSampleProblem::BoxMissing {
            field: name.to_owned(),
            index: sample,
            boxes: objects.len(),
        })
    }

    /// Returns the JSON document in field `name`, whose content is `content`.
    pub(crate) fn json(&mut self, name: &str, content: Content) -> Result<Rc<Value>, BadSampleProblem> {
        if let Some((_, known)) = self.json.iter().find(|(field, _)| field == name) {
            return Ok(known.clone());
        }
        let document = json::read(&content.into_file())
            .map_err(|error| BadSampleProblem::NotJson { field: name.to_owned(), reason: reason(error) })?;
        let document = Rc::new(document);
        self.json.push((name.to_owned(), Rc::clone(&document)));
        Ok(document)
    }

    /// Returns COCO's annotations in field `name`.
    pub(crate) fn coco(&mut self, name: &str) -> Result<Rc<[CocoAnnotation]>, BadSampleProblem> {
        if let Some((_, known)) = self.coco.iter().find(|(field, _)| field == name) {
            return Ok(known.clone());
        }
        let file = self.first_of(&[name.to_owned()])?.1.into_file();
        let annotations = Rc::from(coco::read(&file, name)?);
        self.coco.push((name.to_owned(), Rc::clone(&annotations)));
        Ok(annotations)
    }

    /// Returns the annotation in field `name`.
    pub(crate) fn annotation(&mut self, name: &str) -> Result<&Annotation, BadSampleProblem> {
        let known = self.annotations.iter().position(|(field, _)| field == name);
        let at = match known {
            Some(at) => at,
            None => {
                let bytes = self.first_of(&[name.to_owned()])?.1.into_file();
                let annotation = Annotation::parse(&bytes)
                    .map_err(|error| BadSampleProblem::Annotation { field: name.to_owned(), reason: reason(error) })?;
                self.annotations.push((name.to_owned(), annotation));
                self.annotations.len() - 1
            }
        };
        Ok(&self.annotations[at].1)
    }

    /// Returns the sample's bounding box in the annotation in field `name`.
    pub(crate) fn pixel_box(&mut self, name: &str) -> Result<PixelBox, BadSampleProblem> {
        let object = self.object(name)?;
        Ok([object.xmin, object.ymin, object.xmax, object.ymax])
    }
}

/// Returns the content of a field that has one value.
pub(crate) fn one_value(field: &str, value: FieldValue) -> Result<Content, BadSampleProblem> {
    value.into_one().map_err(|problem| BadSampleProblem::NotOneValue { field: field.to_owned(), problem })
}
