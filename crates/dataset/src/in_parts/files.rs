//! What a part leaves besides shards, as JSON: an entry for each shard while it packs, and one manifest of the part at the
//! end. `docs/spec/formats/pack.md` has the layout.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use spdl_shard::{
    manifest::{BlockFacts, MetadataPlace, ShardFacts},
    store::DatasetStore,
};
use spdl_types::Fingerprint;

use super::{
    super::{
        Annotations, ClassOrder, DatasetError, Jpegs, LeftOut, PackOptions, PackOrder,
        folder::{dataset_name, shard_name},
        report::{DatasetTally, JpegTally},
        scan::ScannedShard,
        source::SourceRecords,
    },
    names::{FOLDER, PackPart},
    plan::PackPlan,
};

/// The version of these files.
const VERSION: u32 = 1;
/// Size of the longest of these files that is read, in bytes: some 100,000 shards.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The program and the options that all parts of a pack have to agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Agreement {
    /// Version of the program.
    program: String,
    /// The options that decide the bytes of the dataset, in words.
    options: BTreeMap<String, String>,
    pub(super) source: SourceFacts,
}

/// The facts about a source that a part found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceFacts {
    /// XXH3-128 of its classes, of the headers of all members, and of the labels.
    fingerprint: Fingerprint,
    /// Number of records that it lists.
    records: u64,
    /// Number of shards that they fill.
    pub(super) shards: u64,
}

/// The manifest of a part that is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartManifest {
    version: u32,
    pub(super) part: u32,
    pub(super) parts: u32,
    pub(super) pack: Agreement,
    /// The dataset's name.
    pub(super) name: String,
    /// The classes of the labels, in the order of their numbers.
    pub(super) classes: Vec<String>,
    /// The files of the source that are in no record.
    pub(super) left_out: Vec<LeftOut>,
    pub(super) pictures_without_annotation: u64,
    /// Oddities of the source.
    pub(super) notes: Vec<String>,
    /// The shards of this part, in their order.
    pub(super) shards: Vec<PackedShard>,
}

/// A shard that is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PackedShard {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// XXH3-128 of its bytes.
    pub(super) hash: Fingerprint,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
    pub(super) records: u32,
    pub(super) index_bytes: u64,
    pub(super) index_hash: Fingerprint,
    /// Offset, bytes, first record, records and samples of each block.
    blocks: Vec<(u64, u32, u32, u32, u32)>,
    /// Number of records that have each field.
    fields: BTreeMap<String, u64>,
    /// The classes of the objects in its annotations.
    classes: Vec<String>,
    empty_fields: u64,
    records_without_samples: u64,
    bad_annotations: u64,
    jpegs: JpegTally,
    notes: Vec<String>,
}

/// The file with the entry of a shard that is complete, in a part that is not.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShardEntry {
    version: u32,
    pub(super) pack: Agreement,
    pub(super) shard: PackedShard,
}

impl Agreement {
    pub(super) fn of(to: &DatasetStore, options: &PackOptions, plan: &PackPlan) -> Self {
        let PackPlan { fingerprint, listed, .. } = *plan;
        let source = SourceFacts { fingerprint, records: listed, shards: plan.shards.len() as u64 };
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { program, options: words_of(options, &dataset_name(to, options.name.as_deref())), source }
    }

    /// Returns in words what is different in `other`, with `of_self` and `of_other` as names of the two.
    pub(super) fn difference(&self, of_self: &str, other: &Self, of_other: &str) -> Option<String> {
        let differ = |what: &str, mine: &str, theirs: &str| {
            Some(format!("{of_self} was packed with {what} {mine}, and {of_other} with {what} {theirs}"))
        };
        if self.program != other.program {
            return differ("version", &self.program, &other.program);
        }
        let names = self.options.keys().chain(other.options.keys());
        let value = |of: &Self, name: &String| of.options.get(name).map_or("none".to_owned(), String::clone);
        if let Some(name) = names.into_iter().find(|name| self.options.get(*name) != other.options.get(*name)) {
            return differ(&format!("`{name}`"), &value(self, name), &value(other, name));
        }
        if self.source != other.source {
            let words = |source: &SourceFacts| {
                let SourceFacts { fingerprint, records, shards } = source;
                format!("of {records} records in {shards} shards, fingerprint {fingerprint}")
            };
            return differ("a source", &words(&self.source), &words(&other.source));
        }
        None
    }
}

/// Returns the options that decide the bytes of a dataset, by name.
fn words_of(options: &PackOptions, name: &str) -> BTreeMap<String, String> {
    let PackOptions {
        fields, annotations, classes, order, shard_bytes, shard_records, block_bytes, jpegs, gop, ..
    } = options;
    let annotations = match annotations {
        None => "none",
        Some(Annotations::Beside) => "beside",
        Some(Annotations::Under(_) | Annotations::UnderStored(_)) => "in a folder",
    };
    let jpegs = match jpegs {
        Jpegs::AsTheyAre => "as they are",
        Jpegs::CropReady => "crop-ready",
        Jpegs::Scalable => "scalable",
    };
    let classes = match classes {
        ClassOrder::ByName => "as found".to_owned(),
        ClassOrder::Numeric => "as found, by number".to_owned(),
        ClassOrder::Given(classes) => classes.join(","),
    };
    let order = match order {
        PackOrder::Shuffled { seed } => format!("shuffled, seed {seed}"),
        PackOrder::AsListed => "as listed".to_owned(),
    };
    let words = [
        ("name", name.to_owned()),
        ("fields", fields.as_ref().map_or("all".to_owned(), ToString::to_string)),
        ("annotations", annotations.to_owned()),
        ("classes", classes),
        ("order", order),
        ("shard-size", format!("{shard_bytes} bytes of files as they are")),
        ("records-per-shard", shard_records.map_or("any".to_owned(), |records| records.to_string())),
        ("block-size", format!("{block_bytes} bytes")),
        ("jpegs", jpegs.to_owned()),
        ("gop", gop.map_or("as it is".to_owned(), |gop| gop.to_string())),
    ];
    words.into_iter().map(|(name, words)| (name.to_owned(), words)).collect()
}

impl PackedShard {
    pub(super) fn of(shard: ScannedShard, hash: Fingerprint, jpegs: JpegTally, notes: Vec<String>) -> Self {
        let ScannedShard { facts, blocks, odd, .. } = shard;
        let ShardFacts { url: name, bytes, etag, records, index_bytes, index_hash } = facts;
        let block = |block: BlockFacts| {
            let BlockFacts { offset, bytes, first_record, records, samples } = block;
            (offset, bytes, first_record, records, samples)
        };
        Self {
            name,
            bytes,
            hash,
            etag,
            records,
            index_bytes,
            index_hash,
            blocks: blocks.into_iter().map(block).collect(),
            fields: odd.fields.into_iter().map(|(field, (records, _))| (field, records)).collect(),
            classes: odd.classes.into_iter().collect(),
            empty_fields: odd.empty_fields,
            records_without_samples: odd.records_without_samples,
            bad_annotations: odd.bad_annotations,
            jpegs,
            notes: notes.into_iter().chain(odd.notes).collect(),
        }
    }

    /// Returns the manifest's entry for it.
    pub(super) fn facts(&self) -> ShardFacts {
        ShardFacts {
            url: self.name.clone(),
            bytes: self.bytes,
            etag: self.etag.clone(),
            records: self.records,
            index_bytes: self.index_bytes,
            index_hash: self.index_hash,
        }
    }

    /// Returns the manifest's entries for its blocks.
    pub(super) fn blocks(&self) -> Vec<BlockFacts> {
        let block = |&(offset, bytes, first_record, records, samples): &_| BlockFacts {
            offset,
            bytes,
            first_record,
            records,
            samples,
        };
        self.blocks.iter().map(block).collect()
    }

    pub(super) fn samples(&self) -> u64 {
        self.blocks.iter().map(|&(.., samples)| u64::from(samples)).sum()
    }

    /// Counts it in the report about the dataset. Shards that `pack` writes have no odd members.
    pub(super) fn count_in(&self, tally: &mut DatasetTally) {
        tally.bytes += self.bytes;
        tally.jpegs.add(&self.jpegs);
        tally.odd.empty_fields += self.empty_fields;
        tally.odd.records_without_samples += self.records_without_samples;
        tally.odd.bad_annotations += self.bad_annotations;
        tally.odd.classes.extend(self.classes.iter().cloned());
        for (field, records) in &self.fields {
            tally.odd.fields.entry(field.clone()).or_default().0 += records;
        }
        self.notes.iter().for_each(|note| tally.odd.note(|| note.clone()));
    }
}

impl PartManifest {
    pub(super) fn of(
        part: PackPart,
        pack: Agreement,
        name: String,
        source: SourceRecords,
        plan: PackPlan,
        shards: Vec<PackedShard>,
    ) -> Self {
        Self {
            version: VERSION,
            part: part.number,
            parts: part.count,
            pack,
            name,
            classes: source.classes,
            left_out: source.left_out.list(),
            pictures_without_annotation: plan.without_annotation,
            notes: source.notes.into_iter().chain(plan.notes).collect(),
            shards,
        }
    }

    pub(super) async fn read(from: &DatasetStore, part: PackPart) -> Result<Self, DatasetError> {
        let name = part.file_name();
        let read: Self = read(from, &name).await?;
        let own = part.shards(read.pack.source.shards);
        let is_whole = read.shards.len() as u64 == own.end - own.start;
        if (read.part, read.parts) == (part.number, part.count)
            && is_whole
            && own.zip(&read.shards).all(|(number, shard)| shard.name == shard_name(number))
        {
            return Ok(read);
        }
        Err(unreadable(from, &name, "it has other shards than this part"))
    }

    pub(super) async fn write(&self, to: &DatasetStore) -> Result<(), DatasetError> {
        let name = PackPart { number: self.part, count: self.parts }.file_name();
        write(to, &name, self).await
    }
}

impl ShardEntry {
    pub(super) fn of(pack: Agreement, shard: PackedShard) -> Self {
        Self { version: VERSION, pack, shard }
    }

    /// Returns the name of the file.
    pub(super) fn name_of(shard: &str) -> String {
        MetadataPlace::Hidden.path(&format!("{FOLDER}/{shard}.json"))
    }

    pub(super) async fn read(from: &DatasetStore, shard: &str) -> Result<Self, DatasetError> {
        let name = Self::name_of(shard);
        let read: Self = read(from, &name).await?;
        if read.shard.name == shard { Ok(read) } else { Err(unreadable(from, &name, "it is of another shard")) }
    }

    pub(super) async fn write(&self, to: &DatasetStore) -> Result<(), DatasetError> {
        write(to, &Self::name_of(&self.shard.name), self).await
    }
}

async fn write(to: &DatasetStore, name: &str, file: &impl Serialize) -> Result<(), DatasetError> {
    let json = serde_json::to_vec(file).expect("plain data serialises");
    Ok(to.put(name, json.into()).await?)
}

async fn read<T: DeserializeOwned>(from: &DatasetStore, name: &str) -> Result<T, DatasetError> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    let bytes = from.read(name, MAX_FILE_BYTES).await?;
    let wrong = |error: serde_json::Error| unreadable(from, name, &error.to_string());
    let Head { version } = serde_json::from_slice(&bytes).map_err(wrong)?;
    if version != VERSION {
        return Err(unreadable(from, name, &format!("it has version {version}, and this program knows {VERSION}")));
    }
    serde_json::from_slice(&bytes).map_err(wrong)
}

fn unreadable(from: &DatasetStore, name: &str, problem: &str) -> DatasetError {
    let problem = format!("cannot be used: {problem}; remove it, and run its part again");
    DatasetError::Parts { url: from.url_of(name), problem }
}
