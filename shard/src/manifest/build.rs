//! Builds manifests.

use std::collections::HashSet;

use spdl_types::Fingerprint;

use super::{
    BLOCK_BYTES, HEADER_BYTES, KIND, Manifest, ManifestError, SHARD_BYTES,
    base::{self, BaseKind},
    names,
    tokenizer::TokenizerFacts,
    version_of,
};
use crate::{
    envelope::{HEAD_BYTES, seal},
    format::{DEFAULT_FORMAT, Format},
};

/// The manifest's entry for one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardFacts {
    /// Path of the shard, relative to the folder of the shards, with `/` between parts.
    pub url: String,
    /// Size of the stored object in bytes.
    pub bytes: u64,
    /// Etag that the store gives the object, if it gives one.
    pub etag: Option<String>,
    /// Number of records in the shard.
    pub records: u32,
    /// Size of the record index in bytes.
    pub index_bytes: u64,
    /// XXH3-128 of the record index.
    pub index_hash: Fingerprint,
}

/// The manifest's entry for one block of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// Offset of the block in the shard, in bytes.
    pub offset: u64,
    /// Size of the block in bytes; at least 1.
    pub bytes: u32,
    /// First record of the block, counted in the shard.
    pub first_record: u32,
    /// Number of records in the block; at least 1.
    pub records: u32,
    /// Number of samples in the block; at least 1.
    pub samples: u32,
}

impl BlockFacts {
    /// Copies the entry of block `number` from `manifest`.
    ///
    /// # Panics
    /// If there is no such block.
    #[must_use]
    pub fn of(manifest: &Manifest, number: u32) -> Self {
        let block = manifest.block(number);
        let bytes = u32::try_from(block.bytes).expect("a block's size is 32 bits in the manifest");
        let (first_record, records, samples) = (block.first_record, block.records, block.samples);
        Self { offset: block.offset, bytes, first_record, records, samples }
    }
}

/// Collects a dataset's shards in order and writes its manifest.
#[derive(Debug)]
pub struct ManifestBuilder {
    name: String,
    format: &'static dyn Format,
    base: Option<String>,
    tokenizer: Option<TokenizerFacts>,
    shards: Vec<u8>,
    blocks: Vec<u8>,
    classes: Vec<String>,
    urls: String,
    etags: String,
    etag_ends: Vec<u8>,
    shard_count: u32,
    block_count: u32,
    samples: u64,
    records: u64,
}

impl Default for ManifestBuilder {
    fn default() -> Self {
        Self::new("")
    }
}

impl ManifestBuilder {
    /// Creates a manifest without shards for the dataset called `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            format: DEFAULT_FORMAT,
            base: None,
            tokenizer: None,
            shards: Vec::new(),
            blocks: Vec::new(),
            classes: Vec::new(),
            urls: String::new(),
            etags: String::new(),
            etag_ends: Vec::new(),
            shard_count: 0,
            block_count: 0,
            samples: 0,
            records: 0,
        }
    }

    /// Sets the dataset's format. Default: WebDataset tars.
    #[must_use]
    pub fn format(self, format: &'static dyn Format) -> Self {
        Self { format, ..self }
    }

    /// Sets where the shards lie: an absolute path, a URL, or a path relative to the manifest's folder. Default: in that
    /// folder.
    #[must_use]
    pub fn base(self, base: Option<&str>) -> Self {
        Self { base: base.map(str::to_owned), ..self }
    }

    /// Sets the tokenizer that the dataset's tokens are of. Default: it is not known.
    #[must_use]
    pub fn tokenizer(self, tokenizer: Option<TokenizerFacts>) -> Self {
        Self { tokenizer, ..self }
    }

    /// Sets the names of the classes, in the order of their numbers.
    #[must_use]
    pub fn classes<S: Into<String>>(mut self, classes: impl IntoIterator<Item = S>) -> Self {
        self.classes = classes.into_iter().map(Into::into).collect();
        self
    }

    /// Appends a shard. `blocks` hold all of its samples.
    ///
    /// # Errors
    /// If the shard's path is not relative or a number does not fit the format.
    pub fn shard(&mut self, shard: &ShardFacts, blocks: &[BlockFacts]) -> Result<(), ManifestError> {
        if !names::is_relative_path(&shard.url) {
            return Err(unwritable(format!("`{}` cannot be a shard's place in the dataset's folder", shard.url)));
        }
        let too_much = || unwritable(format!("shard `{}` does not fit: too many shards, blocks or samples", shard.url));
        let samples: u64 = blocks.iter().map(|block| u64::from(block.samples)).sum();
        let shard_samples = u32::try_from(samples).map_err(|_| too_much())?;
        let url_end = u32::try_from(self.urls.len() + shard.url.len()).map_err(|_| too_much())?;
        let etag = shard.etag.as_deref().unwrap_or("");
        let etag_end = u32::try_from(self.etags.len() + etag.len()).map_err(|_| too_much())?;
        let shard_count = self.shard_count.checked_add(1).ok_or_else(too_much)?;
        let new_blocks = u32::try_from(blocks.len()).map_err(|_| too_much())?;
        let block_count = self.block_count.checked_add(new_blocks).ok_or_else(too_much)?;

        self.shards.extend(shard.bytes.to_le_bytes());
        self.shards.extend(self.samples.to_le_bytes());
        self.shards.extend(shard.index_hash.0.to_le_bytes());
        for number in [url_end, shard.records, shard_samples, self.block_count] {
            self.shards.extend(number.to_le_bytes());
        }
        self.shards.extend(shard.index_bytes.to_le_bytes());
        let mut first_sample = self.samples;
        for block in blocks {
            self.blocks.extend(block.offset.to_le_bytes());
            self.blocks.extend(first_sample.to_le_bytes());
            for number in [block.bytes, block.first_record, block.records, self.shard_count] {
                self.blocks.extend(number.to_le_bytes());
            }
            first_sample += u64::from(block.samples);
        }
        self.urls.push_str(&shard.url);
        self.etags.push_str(etag);
        self.etag_ends.extend(etag_end.to_le_bytes());
        (self.shard_count, self.block_count) = (shard_count, block_count);
        self.samples += samples;
        self.records += u64::from(shard.records);
        Ok(())
    }

    /// Writes the manifest, and opens it again to verify that it is valid.
    ///
    /// # Errors
    /// If a block does not lie in its shard, blocks overlap, two classes have the same name, a table is too long, or
    /// the base is invalid or contains a secret.
    pub fn finish(self) -> Result<Manifest, ManifestError> {
        let too_long = |_| unwritable("its tables of text are longer than 4 GiB".to_owned());
        let mut class_ends = Vec::with_capacity(4 * self.classes.len());
        let mut strings = self.urls;
        check_names(&self.classes)?;
        if let Some(base) = &self.base {
            let wrong = |problem: String| unwritable(base::unusable(base, &problem));
            BaseKind::of(base).map_err(wrong)?;
        }
        let base = self.base.as_deref().unwrap_or_default();
        for class in &self.classes {
            strings.push_str(class);
            class_ends.extend(u32::try_from(strings.len()).map_err(too_long)?.to_le_bytes());
        }
        let name_bytes = u32::try_from(self.name.len()).map_err(too_long)?;
        let classes = u32::try_from(self.classes.len()).map_err(too_long)?;

        debug_assert_eq!(self.shards.len(), SHARD_BYTES * self.shard_count as usize);
        debug_assert_eq!(self.blocks.len(), BLOCK_BYTES * self.block_count as usize);
        let mut file = vec![0; HEAD_BYTES + 16];
        file.extend(name_bytes.to_le_bytes());
        file.extend((base.len() as u32).to_le_bytes());
        file.extend((self.etags.len() as u64).to_le_bytes());
        let format = if self.format == DEFAULT_FORMAT { "" } else { self.format.name() };
        for number in [self.shard_count, self.block_count, classes, format.len() as u32] {
            file.extend(number.to_le_bytes());
        }
        for number in [strings.len() as u64, self.samples, self.records] {
            file.extend(number.to_le_bytes());
        }
        debug_assert_eq!(file.len(), HEADER_BYTES);
        for section in [&self.shards, &self.blocks, &class_ends, strings.as_bytes(), format.as_bytes()] {
            file.extend(section);
        }
        let fingerprint = Fingerprint::of(&file[72..]);
        file[HEAD_BYTES..HEAD_BYTES + 16].copy_from_slice(&fingerprint.0.to_le_bytes());
        for section in [&self.etag_ends, self.name.as_bytes(), self.etags.as_bytes(), base.as_bytes()] {
            file.extend(section);
        }
        file.extend(self.tokenizer.iter().flat_map(|tokenizer| tokenizer.to_bytes()));
        seal(&KIND, version_of(base.len() as u32, format.len() as u32, self.tokenizer.is_some()), &mut file);
        Manifest::open(file).map_err(|error| unwritable(error.to_string()))
    }
}

/// Checks that these can be the names of a dataset's classes, so that a bad name is found before the shards are
/// written.
///
/// # Errors
/// If a name cannot be that of a class, or is there twice.
pub fn check_names(classes: &[String]) -> Result<(), ManifestError> {
    let mut names = HashSet::with_capacity(classes.len());
    for class in classes {
        if !names::is_class_name(class) {
            let class = class.escape_debug();
            return Err(unwritable(format!(
                "`{class}` cannot be a class's name: 1 to 4096 bytes without tabs, line ends and other control characters"
            )));
        }
        if !names.insert(class) {
            return Err(unwritable(format!("two classes are called `{class}`")));
        }
    }
    Ok(())
}

fn unwritable(what: String) -> ManifestError {
    ManifestError::Unwritable(what)
}
