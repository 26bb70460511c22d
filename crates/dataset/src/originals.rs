//! The originals that a dataset is compared with: files, or the records of another dataset.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use spdl_jpeg::Limits;
use spdl_shard::{
    format::{Content, Field, FieldValue, Record, RecordKey, ShardIndex},
    manifest::Manifest,
    store::DatasetStore,
};
use spdl_store::TemporaryFolder;
use tokio::runtime::Handle;

use super::{
    ClassOrder, DatasetError, FieldChoice, PackSource,
    fields::{read_field, read_range},
    parts::{MAX_WHOLE_BYTES, WantedContent},
    scalable::{is_scalable, original},
    source::{
        ANNOTATION_FIELD, LABEL_FIELD, ListOptions, SourceFiles, SourceRecord, SourceRecords, is_picture,
        may_be_picture,
    },
};

/// Number of bytes of markers and metadata by which a JPEG may differ from its original, however short it is.
const MAX_MARKER_BYTES: u64 = 256 << 10;

/// The originals that a dataset is compared with.
#[derive(Clone, Debug)]
pub enum Against {
    /// The files that it was packed from. Labels are compared too; annotations from elsewhere are not.
    Files(PackSource),
    /// Another dataset with the same keys: every field is compared.
    Dataset(DatasetStore),
}

/// Originals by the keys of their records.
pub(super) struct Originals {
    kind: OriginalsKind,
    numbers: HashMap<Box<str>, usize>,
    /// Whether a record of the dataset was compared with each original.
    seen: Vec<AtomicBool>,
    /// The names of the dataset's classes, in the order of their numbers.
    classes: Vec<String>,
}

enum OriginalsKind {
    Files(OriginalFiles),
    Dataset {
        store: DatasetStore,
        manifest: Box<Manifest>,
        /// The indexes of its shards.
        shards: Vec<Arc<dyn ShardIndex>>,
        /// Shard and record of each original.
        places: Vec<(usize, u32)>,
    },
}

/// The records of a source, with the names of its classes.
struct OriginalFiles {
    files: SourceFiles,
    records: Vec<SourceRecord>,
    classes: Vec<String>,
}

/// The original of a field.
pub(super) enum Original {
    /// Its bytes have the same length and checksum as the field's.
    SameBytes,
    /// Its bytes, and the name of the file or shard that they are from.
    Content { bytes: Bytes, name: String, is_picture: bool },
    /// The label that the field must have, and the name of its class.
    Label { label: Option<String>, class: Option<String> },
    /// There is nothing to compare with, for this reason.
    Lacking(String),
}

/// The result of comparing a field with its original.
pub(super) enum Compared {
    /// A picture with the same coefficients, or the same bytes.
    SamePicture,
    /// Another field with the same value.
    Same,
    /// A field that differs, and how.
    Different(String),
}

impl Originals {
    /// Lists the originals of the dataset that `manifest` describes.
    pub(super) async fn list(
        against: &Against,
        choice: Option<&FieldChoice>,
        manifest: &Manifest,
    ) -> Result<Self, DatasetError> {
        let classes: Vec<String> = manifest.classes().map(str::to_owned).collect();
        match against {
            Against::Files(source) => {
                let (source, choice) = (source.clone(), choice.cloned());
                let listing = move || OriginalFiles::list(&source, choice.as_ref());
                let source = tokio::task::spawn_blocking(listing).await.expect("listing does not panic")?;
                let keys = source.records.iter().map(|record| record.key());
                let numbers: HashMap<Box<str>, usize> = keys.map(Into::into).zip(0..).collect();
                Ok(Self::new(OriginalsKind::Files(source), numbers, classes))
            }
            Against::Dataset(store) => {
                let manifest = store.manifest().await?;
                let store = store.shards(&manifest)?;
                let (mut shards, mut places, mut numbers) = (Vec::new(), Vec::new(), HashMap::new());
                for shard in manifest.shards() {
                    let index = store.index(&shard).await?;
                    for (number, record) in (0..).zip(index.records()) {
                        if numbers.insert(record.key.text().into(), places.len()).is_some() {
                            let problem =
                                format!("has two records `{}`, so a key does not identify a record", record.key);
                            return Err(DatasetError::Source { path: store.url().to_owned(), problem });
                        }
                        places.push((shards.len(), number));
                    }
                    shards.push(index);
                }
                Ok(Self::new(
                    OriginalsKind::Dataset { store, manifest: Box::new(manifest), shards, places },
                    numbers,
                    classes,
                ))
            }
        }
    }

    fn new(kind: OriginalsKind, numbers: HashMap<Box<str>, usize>, classes: Vec<String>) -> Self {
        let seen = (0..numbers.len()).map(|_| AtomicBool::new(false)).collect();
        Self { kind, numbers, seen, classes }
    }

    /// Marks the original of `record` as compared. Returns what is wrong with the record as a whole.
    pub(super) fn claim(&self, record: &Record<'_>) -> Option<String> {
        let Some(&number) = self.numbers.get(&*record.key.text()) else { return Some("has no original".to_owned()) };
        if self.seen[number].swap(true, Relaxed) {
            return Some("appears twice".to_owned());
        }
        let wanted: Vec<String> = match &self.kind {
            OriginalsKind::Files(OriginalFiles { files, records, .. }) => {
                files.fields(&records[number]).map(|(field, _)| field).collect()
            }
            OriginalsKind::Dataset { .. } => self.record(number).fields().map(|field| field.name.to_owned()).collect(),
        };
        let lacking = wanted.into_iter().find(|field| record.field(field).is_none())?;
        Some(format!("does not have the field `{lacking}` of its original"))
    }

    /// Returns the keys of the originals that no record was compared with.
    pub(super) fn unclaimed(&self) -> impl Iterator<Item = &str> {
        let unclaimed = self.numbers.iter().filter(|(_, number)| !self.seen[**number].load(Relaxed));
        unclaimed.map(|(key, _)| &**key)
    }

    /// Returns which content of a field has to be compared.
    pub(super) fn wanted(&self, key: RecordKey<'_>, field: &Field<'_>) -> WantedContent {
        let Some(&number) = self.numbers.get(&*key.text()) else { return WantedContent::Nothing };
        let may_be_rewritten = match &self.kind {
            OriginalsKind::Files(source) => match source.file_of(number, field.name) {
                Some(path) => is_picture(path) || may_be_picture(field),
                None if field.name == LABEL_FIELD => false,
                None => return WantedContent::Nothing,
            },
            OriginalsKind::Dataset { .. } => {
                may_be_picture(field) || self.record(number).segments(field.name).is_some()
            }
        };
        // A JPEG is compared by its coefficients, which takes the whole file.
        if may_be_rewritten { WantedContent::Whole } else { WantedContent::Pieces }
    }

    /// Reads the original of a wanted field of a record that has one, or the `piece` of it that belongs to a piece of the
    /// field. Blocks the thread; `runtime` does the requests to the store.
    pub(super) fn original(
        &self,
        (key, field): (RecordKey<'_>, &Field<'_>),
        piece: Option<Range<u32>>,
        runtime: &Handle,
    ) -> Result<Original, DatasetError> {
        let number = self.numbers[&*key.text()];
        match &self.kind {
            OriginalsKind::Files(source) => {
                let Some(path) = source.file_of(number, field.name) else {
                    return Ok(self.label(source, number));
                };
                let (place, is_picture) = (source.files.place(path), is_picture(path));
                let name = place.to_string();
                let bytes = match (place.bytes()?, &piece) {
                    (Some(bytes), piece) if !may_be_same(bytes, field, piece.is_none()) => {
                        return Ok(Original::Lacking(other_bytes(&name)));
                    }
                    (Some(_), Some(piece)) => place.read_range(piece.start.into()..piece.end.into())?,
                    (Some(_), None) => place.read()?,
                    (None, _) => None,
                };
                Ok(match bytes {
                    Some(bytes) => Original::Content { bytes: bytes.into(), name, is_picture },
                    None => Original::Lacking(format!("has an original, `{name}`, that was removed")),
                })
            }
            OriginalsKind::Dataset { store, manifest, shards, places } => {
                let Some(original) = self.record(number).field(field.name) else {
                    return Ok(Original::Lacking("is not a field of its original".to_owned()));
                };
                let has_same_checksum = original.crc32c.is_some() && original.crc32c == field.crc32c;
                if has_same_checksum && original.bytes == field.bytes {
                    return Ok(Original::SameBytes);
                }
                let (number, _) = places[number];
                let (shard, index) = (manifest.shard(number as u32), &*shards[number]);
                let name = shard.url.to_owned();
                if !may_be_same(original.bytes.into(), field, piece.is_none()) {
                    return Ok(Original::Lacking(other_bytes(&name)));
                }
                let bytes = match piece.zip(original.range()) {
                    Some((piece, range)) => {
                        let range = range.start + u64::from(piece.start)..range.start + u64::from(piece.end);
                        runtime.block_on(read_range(store, &shard, index, &original, range))
                    }
                    None => runtime.block_on(read_field(store, &shard, index, &original)).map(|read| {
                        let one = |value: FieldValue| value.into_one().map_err(|problem| problem.to_string());
                        read.and_then(one).map(Content::into_file)
                    }),
                };
                Ok(match bytes? {
                    Ok(bytes) => {
                        let is_picture = is_jpeg(&bytes) || is_scalable(&bytes);
                        Original::Content { bytes, name, is_picture }
                    }
                    Err(_) => Original::Lacking(format!("has an original in `{name}` that is damaged")),
                })
            }
        }
    }

    /// Returns whether pictures may have been left out because they have no annotation: only if other records have one.
    pub(super) fn may_be_left_out(&self, index: &dyn ShardIndex) -> bool {
        matches!(self.kind, OriginalsKind::Files(_))
            && index.records().any(|record| record.field(ANNOTATION_FIELD).is_some())
    }

    fn record(&self, number: usize) -> Record<'_> {
        let OriginalsKind::Dataset { shards, places, .. } = &self.kind else {
            unreachable!("only datasets have records")
        };
        let (shard, record) = places[number];
        shards[shard].record(record)
    }

    /// Returns the label that a record must have. Classes are compared by their names, because packing may have given
    /// them other numbers.
    fn label(&self, source: &OriginalFiles, number: usize) -> Original {
        let original = source.records[number].label;
        let class = original.and_then(|label| source.classes.get(usize::try_from(label).ok()?));
        let label = match class {
            Some(class) => self.classes.iter().position(|name| name == class).map(|number| number.to_string()),
            None => original.map(|label| label.to_string()),
        };
        Original::Label { label, class: class.cloned() }
    }
}

impl OriginalFiles {
    fn list(source: &PackSource, choice: Option<&FieldChoice>) -> Result<Self, DatasetError> {
        let how = ListOptions { fields: choice, all_splits: true, classes: &ClassOrder::ByName, annotations: None };
        let SourceRecords { files, records, classes, .. } = source.list(&how, &TemporaryFolder::of_system())?;
        Ok(Self { files, records: records.iter()?.collect::<Result<_, _>>()?, classes })
    }

    /// Returns the file that the field `name` of record number `number` comes from, as the source gives it.
    fn file_of(&self, number: usize, name: &str) -> Option<&str> {
        self.files.file_of(&self.records[number], name)
    }
}

impl Original {
    /// Compares the content of a field, or a piece of it, with its original.
    pub(super) fn compare(&self, content: &Bytes, is_whole: bool) -> Compared {
        match self {
            Self::SameBytes if is_jpeg(content) || is_scalable(content) => Compared::SamePicture,
            Self::SameBytes => Compared::Same,
            Self::Content { bytes, is_picture: false, .. } if bytes == content => Compared::Same,
            Self::Content { bytes, .. } if bytes == content => Compared::SamePicture,
            Self::Content { bytes, name, .. } if is_whole => compare_pictures(bytes, content, name),
            Self::Content { name, .. } => Compared::Different(other_bytes(name)),
            Self::Lacking(how) => Compared::Different(how.clone()),
            Self::Label { label: Some(label), .. } if label.as_bytes() == content => Compared::Same,
            Self::Label { label, class } => {
                let of = class.as_ref().map(|class| format!(", the class `{class}`")).unwrap_or_default();
                let wanted = label.as_deref().unwrap_or("none");
                Compared::Different(format!("is `{}`, its original's is {wanted}{of}", content.escape_ascii()))
            }
        }
    }
}

/// Returns whether a field can be the same as an original of this size; if not, the original is not read. A JPEG may
/// have other markers than its original, but not many times its size.
fn may_be_same(original_bytes: u64, field: &Field<'_>, is_whole: bool) -> bool {
    let bytes = u64::from(field.bytes);
    original_bytes == bytes || is_whole && original_bytes <= (2 * bytes + MAX_MARKER_BYTES).min(MAX_WHOLE_BYTES)
}

fn other_bytes(name: &str) -> String {
    format!("has other bytes than its original, `{name}`")
}

/// Compares a field with its original, which has other bytes and is called `name`.
fn compare_pictures(first: &[u8], packed: &[u8], name: &str) -> Compared {
    let not_compared = |error: spdl_jpeg::Error| {
        let problem = format!("has other bytes than its original, `{name}`, and cannot be compared: {error}");
        Compared::Different(problem)
    };
    let (first, packed) = match (original(first), original(packed)) {
        (Ok(first), Ok(packed)) => (first, packed),
        (Err(error), _) | (_, Err(error)) => return not_compared(error),
    };
    if first == packed {
        return Compared::SamePicture;
    }
    if !is_jpeg(&first) || !is_jpeg(&packed) {
        return Compared::Different(other_bytes(name));
    }
    match spdl_jpeg::has_same_coefficients(&first, &packed, Limits::default()) {
        Ok(true) => Compared::SamePicture,
        Ok(false) => Compared::Different(format!("has other coefficients than its original, `{name}`")),
        Err(error) => not_compared(error),
    }
}

/// Returns whether a file with these first bytes is a JPEG.
pub(super) fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xd8])
}
