//! The manifest: the dataset's format, which shards it has, how they are cut into blocks, and what its classes are
//! called.
//!
//! A manifest is opened from its bytes and read in place: opening checks every number once and allocates nothing per
//! shard. `docs/spec/formats/manifest.md` has the layout.

mod base;
mod build;
mod names;
mod open;
mod place;
mod tokenizer;

pub(crate) use base::{BaseKind, base_between, folder_at};
pub use build::{BlockFacts, ManifestBuilder, ShardFacts, check_names};
pub use names::{is_class_name, is_relative_path};
pub use place::{MANIFEST_NAME, METADATA_FOLDER, MetadataPlace, in_metadata_folder};
pub use tokenizer::TokenizerFacts;

pub use crate::envelope::FormatError as ManifestError;

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use spdl_order::{DatasetFacts, view::SampleSet};
use spdl_types::{Fingerprint, SampleId};

use crate::{
    envelope::{FileKind, last_before, text, u32_at, u64_at, u128_at},
    format::Format,
};

/// Default size at which blocks are cut, in bytes: 8 MiB.
pub const DEFAULT_BLOCK_BYTES: u64 = 8 << 20;

pub(crate) const KIND: FileKind =
    FileKind { name: "manifest", magic: *b"SPDLMAN\n", version: 4, header_bytes: HEADER_BYTES };
const HEADER_BYTES: usize = 112;
const SHARD_BYTES: usize = 56;
const BLOCK_BYTES: usize = 32;
const MAX_URL_BYTES: usize = 4096;
const MAX_CLASS_BYTES: usize = 4096;

/// Returns the lowest version of a manifest that has room for a base and a format's name of these lengths, and for a tokenizer.
const fn version_of(base_bytes: u32, format_bytes: u32, has_tokenizer: bool) -> u32 {
    match (has_tokenizer, base_bytes, format_bytes) {
        (true, ..) => KIND.version,
        (false, 0, 0) => 1,
        (false, 0, _) => 2,
        (false, ..) => 3,
    }
}

/// A dataset's manifest, which was checked when it was opened. It is cheap to clone.
#[derive(Clone)]
pub struct Manifest {
    bytes: Bytes,
    sections: Sections,
    format: &'static dyn Format,
    place: MetadataPlace,
    /// Numbers of the classes, sorted by the names of the classes.
    classes_by_name: Arc<[u32]>,
}

/// The offsets of the file's sections, and the number of entries in each table.
#[derive(Clone, Copy)]
struct Sections {
    shards: u32,
    blocks: u32,
    classes: u32,
    shard_table: usize,
    block_table: usize,
    class_ends: usize,
    strings: usize,
    format: usize,
    etag_ends: usize,
    name: usize,
    etags: usize,
    base: usize,
    tokenizer: usize,
}

/// One shard, as the manifest describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard<'a> {
    /// The dataset's format.
    pub format: &'static dyn Format,
    /// Path of the shard, relative to the folder of the shards, with `/` between parts. A shard that consists of
    /// several files has one name for all of them, and one that is a part of a file has a name below the file's.
    pub url: &'a str,
    /// Size in bytes of the stored object, of all of its files, or of its part of a file.
    pub bytes: u64,
    /// Etag that the store gave the object when the manifest was made, if it gave one.
    pub etag: Option<&'a str>,
    /// Global number of the shard's first sample.
    pub first_sample: u64,
    /// Number of samples in the shard.
    pub samples: u32,
    /// Number of records in the shard.
    pub records: u32,
    /// Size of the record index in bytes.
    pub index_bytes: u64,
    /// XXH3-128 of the record index.
    pub index_hash: Fingerprint,
    /// Where its record index lies.
    pub place: MetadataPlace,
}

/// One block: a run of whole records inside a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of the shard that the block lies in.
    pub shard: u32,
    /// Global number of the block's first sample.
    pub first_sample: u64,
    /// Number of samples in the block; at least 1.
    pub samples: u32,
    /// First record of the block, counted in the shard.
    pub first_record: u32,
    /// Number of records in the block; at least 1.
    pub records: u32,
    /// Offset of the block in the shard, in bytes.
    pub offset: u64,
    /// Size of the block in bytes.
    pub bytes: u64,
}

impl Manifest {
    /// Returns the dataset's format.
    #[must_use]
    pub const fn format(&self) -> &'static dyn Format {
        self.format
    }

    /// Returns this manifest, which was found at `place`.
    pub(crate) fn found_at(self, place: MetadataPlace) -> Self {
        Self { place, ..self }
    }

    /// Returns where the files about the dataset lie.
    #[must_use]
    pub const fn place(&self) -> MetadataPlace {
        self.place
    }

    /// Returns the facts about the dataset that creating a job needs.
    #[must_use]
    pub fn facts(&self) -> DatasetFacts {
        let (bytes, blocks) = (self.shards().map(|shard| shard.bytes).sum::<u64>(), u64::from(self.sections.blocks));
        DatasetFacts {
            fingerprint: self.fingerprint(),
            samples: self.samples(),
            documents: self.samples(),
            tokens: 0,
            blocks,
            block_bytes: bytes.div_ceil(blocks.max(1)),
            has_classes: self.sections.classes > 0,
        }
    }

    /// Returns the identifier of the dataset's content: shards, blocks, classes and, through the hashes of the record
    /// indexes, the checksum of every field. A copy of the dataset in another place has the same fingerprint: etags,
    /// the dataset's name and its base are not part of it.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(u128_at(&self.bytes, 40))
    }

    /// Returns the dataset's name.
    #[must_use]
    pub fn name(&self) -> &str {
        text(&self.bytes[self.sections.name..self.sections.etags])
    }

    /// Returns where the shards lie, if not in the manifest's folder: an absolute path, a URL, or a path relative to
    /// the manifest's folder.
    #[must_use]
    pub fn base(&self) -> Option<&str> {
        Some(text(&self.bytes[self.sections.base..self.sections.tokenizer])).filter(|base| !base.is_empty())
    }

    /// Returns the tokenizer that the dataset's tokens are of, if it is known.
    #[must_use]
    pub fn tokenizer(&self) -> Option<TokenizerFacts> {
        let bytes = &self.bytes[self.sections.tokenizer..];
        (!bytes.is_empty()).then(|| TokenizerFacts::read(bytes))
    }

    /// Returns the number of samples in the dataset.
    #[must_use]
    pub fn samples(&self) -> u64 {
        u64_at(&self.bytes, 96)
    }

    /// Returns the number of records in the dataset.
    #[must_use]
    pub fn records(&self) -> u64 {
        u64_at(&self.bytes, 104)
    }

    /// Iterates over the names of the classes, in the order of their numbers.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        (0..self.sections.classes).map(|class| self.class(class))
    }

    /// Returns the name of class number `class`.
    ///
    /// # Panics
    /// If there is no such class.
    #[must_use]
    pub fn class(&self, class: u32) -> &str {
        assert!(class < self.sections.classes, "class {class} of {}", self.sections.classes);
        let end = |class: u32| u32_at(&self.bytes, self.sections.class_ends + 4 * class as usize) as usize;
        let start = if class == 0 { self.urls_end() } else { end(class - 1) };
        text(&self.bytes[self.sections.strings + start..self.sections.strings + end(class)])
    }

    /// Returns the number of the class called `name`, if there is one.
    #[must_use]
    pub fn class_number(&self, name: &str) -> Option<u32> {
        let found = self.classes_by_name.binary_search_by(|&class| self.class(class).cmp(name));
        found.ok().map(|place| self.classes_by_name[place])
    }

    /// Returns the number of shards in the dataset.
    #[must_use]
    pub fn shard_count(&self) -> u32 {
        self.sections.shards
    }

    /// Returns shard number `shard`.
    ///
    /// # Panics
    /// If there is no such shard.
    #[must_use]
    pub fn shard(&self, shard: u32) -> Shard<'_> {
        assert!(shard < self.sections.shards, "shard {shard} of {}", self.sections.shards);
        let entry = self.shard_entry(shard);
        let start = if shard == 0 { 0 } else { u32_at(self.shard_entry(shard - 1), 32) as usize };
        let url = &self.bytes[self.sections.strings + start..self.sections.strings + u32_at(entry, 32) as usize];
        let etag_end = |shard: u32| u32_at(&self.bytes, self.sections.etag_ends + 4 * shard as usize) as usize;
        let etag_start = if shard == 0 { 0 } else { etag_end(shard - 1) };
        let etag = text(&self.bytes[self.sections.etags + etag_start..self.sections.etags + etag_end(shard)]);
        Shard {
            format: self.format,
            url: text(url),
            bytes: u64_at(entry, 0),
            etag: (!etag.is_empty()).then_some(etag),
            first_sample: u64_at(entry, 8),
            samples: u32_at(entry, 40),
            records: u32_at(entry, 36),
            index_bytes: u64_at(entry, 48),
            index_hash: Fingerprint(u128_at(entry, 16)),
            place: self.place,
        }
    }

    /// Iterates over all shards, in order.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = Shard<'_>> + '_ {
        (0..self.sections.shards).map(|shard| self.shard(shard))
    }

    /// Returns the numbers of the blocks that lie in shard number `shard`; the range is empty if the shard has no
    /// samples.
    ///
    /// # Panics
    /// If there is no such shard.
    #[must_use]
    pub fn shard_blocks(&self, shard: u32) -> Range<u32> {
        assert!(shard < self.sections.shards, "shard {shard} of {}", self.sections.shards);
        let first = |shard: u32| u32_at(self.shard_entry(shard), 44);
        let end = if shard + 1 < self.sections.shards { first(shard + 1) } else { self.sections.blocks };
        first(shard)..end
    }

    /// Returns the number of blocks in the dataset.
    #[must_use]
    pub fn block_count(&self) -> u32 {
        self.sections.blocks
    }

    /// Returns block number `block`. Blocks are numbered in the order of their samples.
    ///
    /// # Panics
    /// If there is no such block.
    #[must_use]
    pub fn block(&self, block: u32) -> Block {
        assert!(block < self.sections.blocks, "block {block} of {}", self.sections.blocks);
        let entry = self.block_entry(block);
        let first_sample = u64_at(entry, 8);
        Block {
            shard: u32_at(entry, 28),
            first_sample,
            samples: u32::try_from(self.samples_before(block + 1) - first_sample)
                .expect("checked when the manifest is opened"),
            first_record: u32_at(entry, 20),
            records: u32_at(entry, 24),
            offset: u64_at(entry, 0),
            bytes: u64::from(u32_at(entry, 16)),
        }
    }

    /// Returns the numbers of a block's samples among those of the dataset, or among those that a view keeps.
    ///
    /// # Panics
    /// If there is no such block.
    #[must_use]
    pub fn kept_samples(&self, block: u32, view: Option<&SampleSet>) -> Range<u64> {
        let block = self.block(block);
        let before = |sample| view.map_or(sample, |view| view.below(SampleId(sample)));
        before(block.first_sample)..before(block.first_sample + u64::from(block.samples))
    }

    /// Returns the number of samples of each block, in order, from which the plan is made.
    #[must_use]
    pub fn block_samples(&self) -> Vec<u32> {
        (0..self.sections.blocks).map(|block| self.block(block).samples).collect()
    }

    /// Returns the number of the block that holds the sample with the global number `sample`; `None` past the last
    /// sample.
    #[must_use]
    pub fn block_of(&self, sample: u64) -> Option<u32> {
        let of = || last_before(self.sections.blocks, |block| self.samples_before(block) <= sample);
        (sample < self.samples()).then(of)
    }

    /// Returns the manifest's bytes, as they are stored.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn samples_before(&self, block: u32) -> u64 {
        if block == self.sections.blocks { self.samples() } else { u64_at(self.block_entry(block), 8) }
    }

    fn urls_end(&self) -> usize {
        self.sections.shards.checked_sub(1).map_or(0, |last| u32_at(self.shard_entry(last), 32) as usize)
    }

    fn shard_entry(&self, shard: u32) -> &[u8] {
        &self.bytes[self.sections.shard_table + SHARD_BYTES * shard as usize..][..SHARD_BYTES]
    }

    fn block_entry(&self, block: u32) -> &[u8] {
        &self.bytes[self.sections.block_table + BLOCK_BYTES * block as usize..][..BLOCK_BYTES]
    }
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("name", &self.name())
            .field("fingerprint", &self.fingerprint())
            .field("shards", &self.shard_count())
            .field("blocks", &self.block_count())
            .field("samples", &self.samples())
            .finish_non_exhaustive()
    }
}
