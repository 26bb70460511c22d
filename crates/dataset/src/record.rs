//! Makes the records of a shard from the files of a source, in steps that run beside each other for several groups of
//! records: [`measure`](RecordMaker::measure), [`admit`](RecordMaker::admit), [`read`](RecordMaker::read) and
//! [`members`](RecordMaker::members). A group of small records costs each step as much as one large record.
//! [`plan`](RecordMaker::plan) finds out what records will take, without reading them.

use std::{path::PathBuf, sync::Arc};

use super::{
    DatasetError, PackOptions,
    coded_anew::VideoCoder,
    members::{FieldContent, JpegRewriter, MAX_RECORD_BYTES, MemberWriter, Members},
    originals::is_jpeg,
    source::{ANNOTATION_FIELD, FilePlace, LABEL_FIELD, SourceFiles, SourceRecord, missing_file},
    stages::{Memory, MemoryBound},
};
use crate::tar::{append_member_header, padding_bytes};
use xxhash_rust::xxh3::Xxh3;

/// Size from which a file is copied to the shard in pieces instead of being read into memory, in bytes. A JPEG that is
/// made crop-ready is in memory as a whole.
const LARGE_FILE_BYTES: u64 = 8 << 20;
/// Number of records that are measured or planned together.
pub(super) const MEASURED_TOGETHER: usize = 32;
/// Upper limit of the bytes of a group of records, unless it is one record.
pub(super) const GROUP_BYTES: u64 = 128 << 10;

/// Makes the records of a source.
#[derive(Debug)]
pub(super) struct RecordMaker {
    source: SourceFiles,
    jpegs: JpegRewriter,
    /// What codes videos anew, if they are.
    videos: Option<VideoCoder>,
}

/// The files of a record, before they are read.
pub(super) struct MeasuredRecord {
    key: String,
    label: Option<i64>,
    /// The fields with their files, the first one first, without the annotation if there is one.
    files: Vec<(String, MeasuredFile)>,
    annotation: Option<MeasuredFile>,
    /// The JPEGs that are too long to be rewritten.
    long_jpegs: Vec<PathBuf>,
}

struct MeasuredFile {
    place: FilePlace,
    bytes: u64,
    /// Whether it is coded anew.
    is_coded: bool,
    /// Whether it is copied to the shard in pieces.
    is_large: bool,
}

/// A record whose files are known by their sizes only.
pub(super) struct PlannedRecord {
    /// Bytes of its members, if its files are copied as they are.
    pub(super) bytes: u64,
    /// XXH3-128 of the headers of its members and of its label.
    pub(super) hash: u128,
}

/// A record whose files are in memory, except for the large ones.
pub(super) struct ReadRecord {
    key: String,
    label: Option<i64>,
    fields: Vec<(String, FieldContent)>,
    annotation: Option<FieldContent>,
    long_jpegs: Vec<PathBuf>,
}

/// The result of a step of [`RecordMaker`].
pub(super) enum MadeRecord<T> {
    /// A record.
    Whole(T),
    /// A picture without an annotation, although annotations are wanted.
    NoAnnotation(String),
}

/// Some records, in their order, and the memory of their content.
pub(super) struct RecordGroup<T> {
    pub(super) records: Vec<MadeRecord<T>>,
    memory: Arc<Memory>,
}

impl<T> RecordGroup<T> {
    /// Does the next step of the records.
    fn then<U>(
        self,
        step: impl Fn(T, &Arc<Memory>) -> Result<U, DatasetError>,
    ) -> Result<RecordGroup<U>, DatasetError> {
        let Self { records, memory } = self;
        let records = records.into_iter().map(|record| match record {
            MadeRecord::Whole(record) => step(record, &memory).map(MadeRecord::Whole),
            MadeRecord::NoAnnotation(picture) => Ok(MadeRecord::NoAnnotation(picture)),
        });
        Ok(RecordGroup { records: records.collect::<Result<_, _>>()?, memory })
    }
}

impl RecordGroup<Members> {
    /// Makes a group of records that take this memory.
    pub(super) fn of(records: Vec<Members>, memory: Arc<Memory>) -> Self {
        Self { records: records.into_iter().map(MadeRecord::Whole).collect(), memory }
    }

    /// Returns the number of bytes of the members.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |record: &MadeRecord<Members>| match record {
            MadeRecord::Whole(members) => members.bytes,
            MadeRecord::NoAnnotation(_) => 0,
        };
        self.records.iter().map(bytes).sum()
    }
}

impl RecordMaker {
    pub(super) fn new(source: SourceFiles, options: &PackOptions) -> Self {
        Self { source, jpegs: JpegRewriter::new(options.jpegs), videos: options.gop.map(VideoCoder::new) }
    }

    /// Finds the files of records and their sizes, and groups the records.
    pub(super) fn measure(
        &self,
        records: Vec<Result<SourceRecord, DatasetError>>,
    ) -> Result<Vec<Vec<MadeRecord<MeasuredRecord>>>, DatasetError> {
        let (mut groups, mut bytes) = (Vec::<Vec<MadeRecord<MeasuredRecord>>>::new(), 0);
        for record in records {
            let record = self.measure_one(&record?)?;
            // Coding a video takes so long that others wait for no more than one record.
            let record_bytes = if record.is_coded() { GROUP_BYTES } else { record.bytes() };
            match groups.last_mut().filter(|_| bytes + record_bytes <= GROUP_BYTES) {
                Some(group) => group.push(record),
                None => {
                    groups.push(vec![record]);
                    bytes = 0;
                }
            }
            bytes += record_bytes;
        }
        Ok(groups)
    }

    /// Finds out what records take in a shard, from the sizes of their files alone.
    pub(super) fn plan(
        &self,
        records: Vec<Result<SourceRecord, DatasetError>>,
    ) -> Result<Vec<MadeRecord<PlannedRecord>>, DatasetError> {
        let planned = records.into_iter().map(|record| match self.find(&record?)? {
            MadeRecord::Whole(record) => Ok(MadeRecord::Whole(record.planned())),
            MadeRecord::NoAnnotation(picture) => Ok(MadeRecord::NoAnnotation(picture)),
        });
        planned.collect()
    }

    fn measure_one(&self, record: &SourceRecord) -> Result<MadeRecord<MeasuredRecord>, DatasetError> {
        let mut found = self.find(record)?;
        if let MadeRecord::Whole(record) = &mut found {
            for (_, file) in record.files.iter_mut().filter(|_| self.videos.is_some()) {
                file.is_coded = VideoCoder::takes(&file.place);
                file.is_large = file.is_coded;
            }
            self.bound(record)?;
        }
        Ok(found)
    }

    /// Finds the files of a record and their sizes.
    fn find(&self, record: &SourceRecord) -> Result<MadeRecord<MeasuredRecord>, DatasetError> {
        let annotation = match self.source.annotation_places(record) {
            Some(places) => match first_of(places)? {
                Some(annotation) => Some(annotation),
                None => {
                    let first = record.files().next().expect("a record has a file");
                    return Ok(MadeRecord::NoAnnotation(self.source.place(first).to_string()));
                }
            },
            None => None,
        };
        let fields = self.source.fields(record).zip(record.sizes());
        let fields = fields.filter(|((name, _), _)| annotation.is_none() || name != ANNOTATION_FIELD);
        let files = fields.map(|((name, path), listed)| {
            let place = self.source.place(path);
            let missing = missing_file(place.to_string().as_ref());
            Ok((name, MeasuredFile::at(place, listed)?.ok_or(missing)?))
        });
        let files = files.collect::<Result<_, DatasetError>>()?;
        let (key, label) = (record.key(), record.label);
        Ok(MadeRecord::Whole(MeasuredRecord { key, label, files, annotation, long_jpegs: Vec::new() }))
    }

    /// Decides which files of a record are copied in pieces, so that the others fit into memory.
    fn bound(&self, record: &mut MeasuredRecord) -> Result<(), DatasetError> {
        if record.bytes() < LARGE_FILE_BYTES {
            return Ok(());
        }
        let mut bytes = 0;
        for file in record.files.iter_mut().map(|(_, file)| file).chain(&mut record.annotation) {
            let is_jpeg = self.jpegs.rewrites() && begins_as_jpeg(&file.place, file.bytes)?;
            if file.bytes >= LARGE_FILE_BYTES && !is_jpeg {
                file.is_large = true;
            } else if bytes + file.bytes > MAX_RECORD_BYTES {
                file.is_large = true;
                record.long_jpegs.extend(is_jpeg.then(|| PathBuf::from(file.place.to_string())));
            } else {
                bytes += file.bytes;
            }
        }
        Ok(())
    }

    /// Waits for the memory that the records need.
    pub(super) async fn admit(
        self: Arc<Self>,
        records: Vec<MadeRecord<MeasuredRecord>>,
        bound: MemoryBound,
    ) -> Result<RecordGroup<MeasuredRecord>, DatasetError> {
        let bytes: u64 = records.iter().map(MadeRecord::bytes).sum();
        Ok(RecordGroup { records, memory: Arc::new(bound.take(bytes * self.jpegs.copies()).await) })
    }

    /// Reads the files of records.
    pub(super) fn read(&self, group: RecordGroup<MeasuredRecord>) -> Result<RecordGroup<ReadRecord>, DatasetError> {
        group.then(|MeasuredRecord { key, label, files, annotation, long_jpegs }, _| {
            let fields = files.into_iter().map(|(name, file)| Ok((name, file.read()?)));
            let fields = fields.collect::<Result<_, DatasetError>>()?;
            let annotation = annotation.map(MeasuredFile::read).transpose()?;
            Ok(ReadRecord { key, label, fields, annotation, long_jpegs })
        })
    }

    /// Writes the files of records as members: the first file, the label, the annotation, the other files.
    pub(super) fn members(&self, group: RecordGroup<ReadRecord>) -> Result<RecordGroup<Members>, DatasetError> {
        group.then(|ReadRecord { key, label, fields, annotation, long_jpegs }, memory| {
            let mut members = MemberWriter::new(key);
            let mut annotation = annotation;
            for (nth, (name, content)) in fields.into_iter().enumerate() {
                match content {
                    FieldContent::Video { place, bytes } => {
                        let coder = self.videos.as_ref().expect("a file is a video only if these are coded");
                        members.video(&name, place, bytes, coder)?;
                    }
                    FieldContent::Memory(picture) if self.jpegs.rewrites() => {
                        members.picture(&name, picture, &self.jpegs);
                    }
                    content => members.append(&name, content),
                }
                if nth == 0 {
                    if let Some(label) = label {
                        members.append(LABEL_FIELD, FieldContent::Memory(label.to_string().into_bytes()));
                    }
                    if let Some(annotation) = annotation.take() {
                        members.append(ANNOTATION_FIELD, annotation);
                    }
                }
            }
            Ok(members.finish(long_jpegs, &self.jpegs, Arc::clone(memory)))
        })
    }
}

impl MadeRecord<MeasuredRecord> {
    /// Returns the number of bytes that are read into memory.
    fn bytes(&self) -> u64 {
        match self {
            Self::Whole(record) => record.bytes(),
            Self::NoAnnotation(_) => 0,
        }
    }

    /// Returns whether a file of it is coded anew.
    fn is_coded(&self) -> bool {
        matches!(self, Self::Whole(record) if record.files.iter().any(|(_, file)| file.is_coded))
    }
}

impl MeasuredRecord {
    /// Returns the number of bytes that are read into memory.
    fn bytes(&self) -> u64 {
        let files = self.files.iter().map(|(_, file)| file).chain(&self.annotation);
        files.filter(|file| !file.is_large).map(|file| file.bytes).sum()
    }

    /// Returns what its members take in a shard if its files are copied as they are.
    fn planned(&self) -> PlannedRecord {
        let (mut bytes, mut header, mut hasher) = (0, Vec::new(), Xxh3::new());
        let mut member = |name: &str, content_bytes: u64| {
            header.clear();
            append_member_header(&mut header, &format!("{}.{name}", self.key), content_bytes);
            hasher.update(&header);
            bytes += header.len() as u64 + content_bytes + padding_bytes(content_bytes);
        };
        self.files.iter().for_each(|(name, file)| member(name, file.bytes));
        self.annotation.iter().for_each(|file| member(ANNOTATION_FIELD, file.bytes));
        if let Some(label) = self.label.map(|label| label.to_string()) {
            member(LABEL_FIELD, label.len() as u64);
            hasher.update(label.as_bytes());
        }
        PlannedRecord { bytes, hash: hasher.digest128() }
    }
}

impl MeasuredFile {
    /// Measures the file at `place`, if there is one; `listed` is its size in the source's list.
    fn at(place: FilePlace, listed: Option<u64>) -> Result<Option<Self>, DatasetError> {
        Ok(place.packable_bytes(listed)?.map(|bytes| Self { place, bytes, is_coded: false, is_large: false }))
    }

    fn read(self) -> Result<FieldContent, DatasetError> {
        if self.is_coded {
            return Ok(FieldContent::Video { place: self.place, bytes: self.bytes });
        }
        if self.is_large {
            return Ok(FieldContent::File { place: self.place, bytes: self.bytes });
        }
        Ok(FieldContent::Memory(self.place.read_measured(self.bytes)?))
    }
}

/// Writes fields that are in memory as the members of a record, in their order.
pub(super) fn members_of(
    key: String,
    fields: Vec<(String, Vec<u8>)>,
    jpegs: &JpegRewriter,
    memory: &Arc<Memory>,
) -> Members {
    let mut members = MemberWriter::new(key);
    let mut long_jpegs = Vec::new();
    for (name, content) in fields {
        let is_candidate = jpegs.rewrites() && is_jpeg(&content);
        if is_candidate && content.len() as u64 <= MAX_RECORD_BYTES {
            members.picture(&name, content, jpegs);
        } else {
            long_jpegs.extend(is_candidate.then(|| PathBuf::from(format!("{}.{name}", members.key))));
            members.append(&name, FieldContent::Memory(content));
        }
    }
    members.finish(long_jpegs, jpegs, Arc::clone(memory))
}

/// Measures the first of these files that is there; with each comes its size in the source's list.
fn first_of(places: Vec<(FilePlace, Option<u64>)>) -> Result<Option<MeasuredFile>, DatasetError> {
    places.into_iter().map(|(place, listed)| MeasuredFile::at(place, listed)).find_map(Result::transpose).transpose()
}

/// Returns whether a file begins as JPEGs do.
fn begins_as_jpeg(place: &FilePlace, bytes: u64) -> Result<bool, DatasetError> {
    let begin = place.read_range(0..bytes.min(2))?;
    Ok(begin.is_some_and(|begin| is_jpeg(&begin)))
}
