//! Reports about a dataset while and after it is made.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use spdl_shard::{
    index::Segments,
    manifest::{Manifest, check_names},
    store::DatasetStore,
};

use super::{
    ClassOrder, DatasetError, JpegAsItIs, LeftOut,
    scan::{DatasetOddities, MAX_NOTES, Outline, ScannedShard},
};
use crate::tar::{OddMembers, TarAnomaly};
use spdl_types::Fingerprint;

/// Names of the field that has the class of a record, where shards state the classes of several fields.
const LABELS: [&str; 2] = ["label", "labels"];

/// The report about a dataset that was made, with the oddities of its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatasetReport {
    /// URL of its folder.
    pub url: String,
    /// Fingerprint of its manifest.
    pub fingerprint: Fingerprint,
    /// Number of shards.
    pub shards: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of records.
    pub records: u64,
    /// Number of samples.
    pub samples: u64,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Number of classes.
    pub classes: usize,
    /// Names of the classes, in the order of their numbers; the first hundred.
    pub class_names: Vec<String>,
    /// The fields, and the number of records that have each.
    pub fields: BTreeMap<String, u64>,
    /// The fields whose records were not counted, because only reading them would tell: for these, `fields` has the
    /// number of records that can have them.
    pub uncounted_fields: BTreeSet<String>,
    /// Members and records of its shards that are not read as one would expect, by what is odd about them.
    pub odd_members: Vec<OddMembers>,
    /// Number of fields without a byte: they decode as bad samples.
    pub empty_fields: u64,
    /// Number of records without samples, because their annotation has no objects, or is missing or invalid.
    pub records_without_samples: u64,
    /// Number of annotations that could not be parsed; `records_without_samples` includes them.
    pub bad_annotations: u64,
    /// Number of pictures that were left out because they have no annotation.
    pub pictures_without_annotation: u64,
    /// Number of files that were left out, for any reason.
    pub skipped_files: u64,
    /// The files that were left out, by suffix and reason.
    pub left_out: Vec<LeftOut>,
    /// The shards that were left out because they are bad.
    pub bad_shards: Vec<LeftOutShard>,
    /// Number of pictures that were made crop-ready; pictures that could not be are unchanged.
    pub crop_ready_pictures: u64,
    /// Bytes of these pictures before.
    pub crop_ready_source_bytes: u64,
    /// Bytes of these pictures after, with their tables of segments in the record indexes.
    pub crop_ready_bytes: u64,
    /// Number of JPEGs that were packed as scalable pictures.
    pub scalable_pictures: u64,
    /// Bytes of these pictures before.
    pub scalable_source_bytes: u64,
    /// Bytes of these pictures after.
    pub scalable_bytes: u64,
    /// Number of videos that were coded anew.
    pub coded_videos: u64,
    /// Bytes of these videos before.
    pub coded_video_source_bytes: u64,
    /// Bytes of these videos after.
    pub coded_video_bytes: u64,
    /// Number of JPEGs that should have become scalable and stay as they are, by the reason.
    pub jpegs_as_they_are: BTreeMap<JpegAsItIs, u64>,
    /// The first hundred oddities, each with the name of what is odd.
    pub notes: Vec<String>,
}

impl DatasetReport {
    /// Returns the report about a dataset that was made before, with what its manifest knows: nothing about fields and oddities. `None` if
    /// there is no dataset that can be read.
    pub async fn of_existing(dataset: &str) -> Option<Self> {
        let store = DatasetStore::open(dataset).ok()?;
        let manifest = store.manifest().await.ok()?;
        let bytes = manifest.shards().map(|shard| shard.bytes).sum();
        Some(DatasetTally { bytes, ..DatasetTally::default() }.report(store.url(), &manifest))
    }
}

/// A shard that was left out of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOutShard {
    /// Its name.
    pub shard: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Adds up the catalogues of shards.
#[derive(Debug, Default)]
pub(super) struct DatasetTally {
    pub(super) odd: DatasetOddities,
    pub(super) pictures_without_annotation: u64,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) bad_shards: Vec<LeftOutShard>,
    pub(super) jpegs: JpegTally,
    pub(super) bytes: u64,
}

impl DatasetTally {
    pub(super) fn add(&mut self, shard: &mut ScannedShard) {
        self.bytes += shard.facts.bytes;
        let odd = std::mem::take(&mut shard.odd);
        self.odd.empty_fields += odd.empty_fields;
        self.odd.records_without_samples += odd.records_without_samples;
        self.odd.bad_annotations += odd.bad_annotations;
        self.odd.classes.extend(odd.classes);
        self.add_class_lists(&shard.facts.url, odd.class_lists);
        for (field, (records, _)) in odd.fields {
            self.odd.fields.entry(field).or_default().0 += records;
        }
        self.odd.uncounted.extend(odd.uncounted);
        self.odd.dotted = self.odd.dotted.take().or(odd.dotted);
        self.odd.members.join(odd.members);
        self.odd.left_out.join(odd.left_out);
        self.ends(&shard.facts.url, odd.ends);
        let room = MAX_NOTES - self.odd.notes.len();
        self.odd.notes.extend(odd.notes.into_iter().take(room));
    }

    /// Counts a record that continues in the next shard.
    fn ends(&mut self, shard: &str, ends: Option<[Outline; 2]>) {
        let Some([first, last]) = ends else { return };
        if let Some([_, before]) = &self.odd.ends
            && before.key == first.key
            && first.fields.iter().all(|field| !before.fields.contains(field))
        {
            self.odd.members.add(TarAnomaly::Torn, shard, &first.key);
        }
        self.odd.ends = Some([first, last]);
    }

    /// Adds the classes that a shard states. Those of a field for which another shard states others are no longer known.
    fn add_class_lists(&mut self, shard: &str, lists: BTreeMap<String, Vec<String>>) {
        for (field, list) in lists {
            let known = self.odd.class_lists.entry(field.clone()).or_insert_with(|| list.clone());
            if *known != list && !known.is_empty() {
                known.clear();
                self.odd.note(|| {
                    format!(
                        "the shards state different classes of field `{field}`, such as `{shard}`: they are not taken"
                    )
                });
            }
        }
    }

    /// Returns the classes that the shards state, in the order of their numbers. If they state those of several fields, `label` has
    /// the dataset's.
    fn stated_classes(&mut self) -> Vec<String> {
        let lists: Vec<_> = self.odd.class_lists.iter().filter(|(_, list)| !list.is_empty()).collect();
        let of_label = lists.iter().find(|(field, _)| LABELS.contains(&field.as_str()));
        let Some((field, classes)) = of_label.or(lists.first()).copied() else { return Vec::new() };
        if of_label.is_none() && lists.iter().any(|(_, list)| *list != classes) {
            let fields = lists.iter().map(|(field, _)| format!("`{field}`")).collect::<Vec<_>>().join(", ");
            self.odd.note(|| {
                format!("the shards state classes of the fields {fields}, and a dataset has one list, which `--classes` gives")
            });
            return Vec::new();
        }
        let (field, classes) = (field.clone(), classes.clone());
        match check_names(&classes) {
            Ok(()) => classes,
            Err(problem) => {
                self.odd
                    .note(|| format!("the classes that the shards state for field `{field}` are not taken: {problem}"));
                Vec::new()
            }
        }
    }

    /// Returns the dataset's classes: the `fixed` ones, or else those that the shards state, then the others that were found, in this order.
    pub(super) fn classes(&mut self, fixed: Vec<String>, order: &ClassOrder) -> Result<Vec<String>, DatasetError> {
        let stated = self.stated_classes();
        if !fixed.is_empty() && !stated.is_empty() && !fixed.starts_with(&stated) {
            self.odd.note(|| {
                format!(
                    "the shards number their classes otherwise than the list that was given: class 0 is `{}`, and not `{}`",
                    stated[0], fixed[0]
                )
            });
        }
        let fixed = if fixed.is_empty() { stated } else { fixed };
        let known: BTreeSet<&str> = fixed.iter().map(String::as_str).collect();
        let mut others: Vec<String> =
            self.odd.classes.iter().filter(|class| !known.contains(class.as_str())).cloned().collect();
        order.sort(&mut others)?;
        if fixed.is_empty() {
            self.odd.notes.extend(order.note(&others));
        } else if let Some(first) = others.first() {
            let (others, known) = (others.len(), fixed.len());
            self.odd.note(|| {
                format!(
                    "{others} classes, such as `{first}`, are not among the {known} known ones, and follow them: a model of those has no \
                     output for these"
                )
            });
        }
        Ok([fixed, others].concat())
    }

    pub(super) fn report(mut self, url: &str, manifest: &Manifest) -> DatasetReport {
        self.left_out.extend(self.odd.left_out.list());
        DatasetReport {
            url: url.to_owned(),
            fingerprint: manifest.fingerprint(),
            shards: manifest.shard_count(),
            blocks: manifest.block_count(),
            records: manifest.records(),
            samples: manifest.samples(),
            bytes: self.bytes,
            classes: manifest.classes().len(),
            class_names: manifest.classes().take(MAX_NOTES).map(str::to_owned).collect(),
            fields: self.odd.fields.into_iter().map(|(field, (records, _))| (field, records)).collect(),
            uncounted_fields: self.odd.uncounted,
            odd_members: self.odd.members.list(),
            empty_fields: self.odd.empty_fields,
            records_without_samples: self.odd.records_without_samples,
            bad_annotations: self.odd.bad_annotations,
            pictures_without_annotation: self.pictures_without_annotation,
            skipped_files: self.left_out.iter().map(|entry| entry.files).sum(),
            left_out: self.left_out,
            bad_shards: self.bad_shards,
            crop_ready_pictures: self.jpegs.crop_ready.pictures,
            crop_ready_source_bytes: self.jpegs.crop_ready.source_bytes,
            crop_ready_bytes: self.jpegs.crop_ready.bytes,
            scalable_pictures: self.jpegs.scalable.pictures,
            scalable_source_bytes: self.jpegs.scalable.source_bytes,
            scalable_bytes: self.jpegs.scalable.bytes,
            coded_videos: self.jpegs.coded_videos.pictures,
            coded_video_source_bytes: self.jpegs.coded_videos.source_bytes,
            coded_video_bytes: self.jpegs.coded_videos.bytes,
            jpegs_as_they_are: self.jpegs.as_they_are,
            notes: self.odd.notes,
        }
    }
}

/// Counts of the JPEGs that are rewritten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JpegTally {
    pub(super) crop_ready: Growth,
    pub(super) scalable: Growth,
    /// The videos that were coded anew.
    #[serde(default)]
    pub(super) coded_videos: Growth,
    /// The JPEGs that should have become scalable and stay as they are, by the reason.
    pub(super) as_they_are: BTreeMap<JpegAsItIs, u64>,
}

impl JpegTally {
    pub(super) fn add(&mut self, other: &Self) {
        self.crop_ready.add(other.crop_ready);
        self.scalable.add(other.scalable);
        self.coded_videos.add(other.coded_videos);
        other.as_they_are.iter().for_each(|(why, pictures)| self.stays(*why, *pictures));
    }

    /// Counts pictures that stay as they are.
    pub(super) fn stays(&mut self, why: JpegAsItIs, pictures: u64) {
        if pictures > 0 {
            *self.as_they_are.entry(why).or_default() += pictures;
        }
    }
}

/// The number of rewritten pictures, and their bytes before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Growth {
    pictures: u64,
    source_bytes: u64,
    bytes: u64,
}

impl Growth {
    /// Returns the growth of one picture with this many entries in its table of segments.
    pub(super) fn of(source_bytes: usize, bytes: usize, table_entries: Option<usize>) -> Self {
        let table_bytes = table_entries.map_or(0, Segments::index_bytes);
        Self { pictures: 1, source_bytes: source_bytes as u64, bytes: (bytes + table_bytes) as u64 }
    }

    /// Returns the growth of a video that was coded anew.
    pub(super) const fn of_video(source_bytes: u64, bytes: u64) -> Self {
        Self { pictures: 1, source_bytes, bytes }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.pictures += other.pictures;
        self.source_bytes += other.source_bytes;
        self.bytes += other.bytes;
    }
}
