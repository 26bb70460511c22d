//! Opens manifests: every number is checked before the code relies on it, and no allocation exceeds what the file's own
//! size accounts for.

use std::collections::HashSet;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    BLOCK_BYTES, HEADER_BYTES, KIND, Manifest, ManifestError, MetadataPlace, SHARD_BYTES, Sections,
    base::{self, BaseKind},
    names::{is_class_name, is_relative_path},
    tokenizer::TOKENIZER_BYTES,
    version_of,
};
use crate::{
    envelope::{check, section_offsets, u32_at, u64_at, u128_at, wrong},
    format::{DEFAULT_FORMAT, Format, format_called},
};

impl Manifest {
    /// Checks that `first` can be the first bytes of a manifest of `bytes` bytes.
    pub(crate) fn check_head(first: &[u8], bytes: u64) -> Result<(), ManifestError> {
        crate::envelope::check_head(&KIND, first, bytes)
    }

    /// Opens a manifest.
    ///
    /// # Errors
    /// If the bytes are not a complete, undamaged and consistent manifest of a known version.
    pub fn open(bytes: impl Into<Bytes>) -> Result<Self, ManifestError> {
        let bytes = bytes.into();
        check(&KIND, &bytes)?;
        let sections = Sections::read(&bytes)?;
        let format = sections.format(&bytes)?;
        let place = MetadataPlace::default();
        let mut manifest = Self { bytes, sections, format, place, classes_by_name: [].into() };
        manifest.check_strings()?;
        manifest.tokenizer().map_or(Ok(()), |facts| facts.check(&manifest.bytes[sections.tokenizer..]))?;
        manifest.check_shards()?;
        manifest.check_no_shard_twice()?;
        let fingerprint = xxh3_128(&manifest.bytes[72..manifest.sections.etag_ends]);
        ensure(fingerprint == u128_at(&manifest.bytes, 40), || "its fingerprint is another content's".to_owned())?;
        manifest.sort_classes()?;
        Ok(manifest)
    }

    /// Checks that all text is UTF-8 and cut at character boundaries, and that the ends of its pieces ascend.
    fn check_strings(&self) -> Result<(), ManifestError> {
        let at = &self.sections;
        let strings = utf8(&self.bytes[at.strings..at.format], "file names and classes")?;
        utf8(&self.bytes[at.name..at.etags], "the name")?;
        let etags = utf8(&self.bytes[at.etags..at.base], "etags")?;
        let base = utf8(&self.bytes[at.base..at.tokenizer], "the base")?;
        if !base.is_empty() {
            BaseKind::of(base).map_err(|problem| wrong(&base::unusable(base, &problem)))?;
        }
        let url_ends = (0..at.shards).map(|shard| u32_at(self.shard_entry(shard), 32));
        let class_ends = (0..at.classes).map(|class| u32_at(&self.bytes, at.class_ends + 4 * class as usize));
        for (number, piece) in pieces(strings, url_ends.chain(class_ends)).enumerate() {
            let piece = piece.ok_or_else(|| wrong("its table of file names and classes is out of order"))?;
            if number < at.shards as usize {
                ensure(is_relative_path(piece), || {
                    format!("`{piece}` cannot be a shard's place in the dataset's folder")
                })?;
            } else {
                ensure(is_class_name(piece), || format!("`{piece}` cannot be a class's name"))?;
            }
        }
        let etag_ends = (0..at.shards).map(|shard| u32_at(&self.bytes, at.etag_ends + 4 * shard as usize));
        for piece in pieces(etags, etag_ends) {
            piece.ok_or_else(|| wrong("its table of etags is out of order"))?;
        }
        let last = |count: u32, end: u32| if count == 0 { 0 } else { end as usize };
        let strings_used = if at.classes == 0 {
            self.urls_end()
        } else {
            u32_at(&self.bytes, at.class_ends + 4 * (at.classes as usize - 1)) as usize
        };
        let etags_used = last(at.shards, if at.shards == 0 { 0 } else { u32_at(&self.bytes, at.name - 4) });
        ensure(strings_used == strings.len() && etags_used == etags.len(), || {
            "its tables of text have unused bytes".to_owned()
        })
    }

    /// Checks that no shard is in the manifest twice. The check takes no memory if the shards' names ascend, as they do
    /// unless the user chose the shards.
    fn check_no_shard_twice(&self) -> Result<(), ManifestError> {
        let urls = || self.shards().map(|shard| shard.url);
        if urls().zip(urls().skip(1)).all(|(one, next)| one < next) {
            return Ok(());
        }
        let mut seen = HashSet::new();
        match urls().find(|url| !seen.insert(*url)) {
            Some(url) => Err(wrong(&format!("it has the shard `{url}` twice"))),
            None => Ok(()),
        }
    }

    fn check_shards(&self) -> Result<(), ManifestError> {
        let (mut samples, mut records, mut block, mut bytes) = (0_u64, 0_u64, 0_u32, 0_u64);
        for number in 0..self.sections.shards {
            let entry = self.shard_entry(number);
            let blocks_end = if number + 1 < self.sections.shards {
                u32_at(self.shard_entry(number + 1), 44)
            } else {
                self.sections.blocks
            };
            ensure(
                u64_at(entry, 8) == samples
                    && u32_at(entry, 44) == block
                    && (block..=self.sections.blocks).contains(&blocks_end),
                || format!("shard {number} does not follow shard {}", i64::from(number) - 1),
            )?;
            let mut end = (0_u64, 0_u64);
            while block < blocks_end {
                end = self.check_block(block, number, entry, end, samples)?;
                samples = self.samples_before(block + 1);
                block += 1;
            }
            ensure(samples - u64_at(entry, 8) == u64::from(u32_at(entry, 40)), || {
                format!(
                    "shard {number} has {} samples, its blocks have {}",
                    u32_at(entry, 40),
                    samples - u64_at(entry, 8)
                )
            })?;
            records += u64::from(u32_at(entry, 36));
            let sum = bytes.checked_add(u64_at(entry, 0));
            bytes = sum.ok_or_else(|| wrong("its shards have more bytes than 64 bits can count"))?;
        }
        ensure(block == self.sections.blocks && samples == self.samples() && records == self.records(), || {
            "its totals are not the sums of its shards".to_owned()
        })
    }

    /// Checks one block of a shard. `end` is where the block before it ended, in bytes and in records.
    fn check_block(
        &self,
        block: u32,
        shard: u32,
        shard_entry: &[u8],
        end: (u64, u64),
        samples: u64,
    ) -> Result<(u64, u64), ManifestError> {
        let entry = self.block_entry(block);
        let (offset, bytes) = (u64_at(entry, 0), u64::from(u32_at(entry, 16)));
        let (first_record, records) = (u64::from(u32_at(entry, 20)), u64::from(u32_at(entry, 24)));
        let next_sample = self.samples_before(block + 1);
        let bytes_end = offset.checked_add(bytes).filter(|end| *end <= u64_at(shard_entry, 0));
        let samples_fit =
            u64_at(entry, 8) == samples && next_sample > samples && next_sample - samples <= u64::from(u32::MAX);
        match bytes_end {
            Some(bytes_end)
                if u32_at(entry, 28) == shard
                    && samples_fit
                    && offset >= end.0
                    && (bytes > 0 || self.may_have_empty_blocks())
                    && first_record >= end.1
                    && records > 0
                    && first_record + records <= u64::from(u32_at(shard_entry, 36)) =>
            {
                Ok((bytes_end, first_record + records))
            }
            _ => Err(wrong(&format!("block {block} does not fit into shard {shard} after the block before it"))),
        }
    }

    /// Returns whether a block may have no bytes, as a block of empty files has. A block of a tar has at least headers.
    fn may_have_empty_blocks(&self) -> bool {
        self.format != DEFAULT_FORMAT
    }

    fn sort_classes(&mut self) -> Result<(), ManifestError> {
        let mut order: Vec<u32> = (0..self.sections.classes).collect();
        order.sort_unstable_by_key(|&class| self.class(class));
        for pair in order.windows(2) {
            let (a, b) = (self.class(pair[0]), self.class(pair[1]));
            ensure(a != b, || format!("two classes are called `{a}`"))?;
        }
        self.classes_by_name = order.into();
        Ok(())
    }
}

impl Sections {
    fn read(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (base_bytes, format_bytes) = (u32_at(bytes, 60), u32_at(bytes, 84));
        let (shards, blocks, classes) = (u32_at(bytes, 72), u32_at(bytes, 76), u32_at(bytes, 80));
        let lengths = [
            SHARD_BYTES as u64 * u64::from(shards),
            BLOCK_BYTES as u64 * u64::from(blocks),
            4 * u64::from(classes),
            u64_at(bytes, 88),
            u64::from(format_bytes),
            4 * u64::from(shards),
            u64::from(u32_at(bytes, 56)),
            u64_at(bytes, 64),
            u64::from(base_bytes),
        ];
        match section_offsets(HEADER_BYTES as u64, lengths) {
            Some(([shard_table, block_table, class_ends, strings, format, etag_ends, name, etags, base], end))
                if end == bytes.len() as u64 || end + TOKENIZER_BYTES as u64 == bytes.len() as u64 =>
            {
                let has_tokenizer = end != bytes.len() as u64;
                ensure(u32_at(bytes, 8) == version_of(base_bytes, format_bytes, has_tokenizer), || {
                    "its version is not that of its content".to_owned()
                })?;
                Ok(Self {
                    shards,
                    blocks,
                    classes,
                    shard_table,
                    block_table,
                    class_ends,
                    strings,
                    format,
                    etag_ends,
                    name,
                    etags,
                    base,
                    tokenizer: end as usize,
                })
            }
            _ => Err(wrong("its sections do not add up to its size")),
        }
    }

    /// Returns the format that the manifest in `bytes` names.
    fn format(&self, bytes: &[u8]) -> Result<&'static dyn Format, ManifestError> {
        let name = utf8(&bytes[self.format..self.etag_ends], "the format")?;
        if name.is_empty() {
            return Ok(DEFAULT_FORMAT);
        }
        ensure(name != DEFAULT_FORMAT.name(), || "it names the format that needs no name".to_owned())?;
        format_called(name).ok_or_else(|| ManifestError::UnknownFormat { format: name.escape_debug().to_string() })
    }
}

/// Cuts `text` into pieces at `ends`. A piece is `None` if it ends before it starts, past the text or inside a
/// character.
fn pieces<'a>(text: &'a str, ends: impl Iterator<Item = u32> + 'a) -> impl Iterator<Item = Option<&'a str>> + 'a {
    let mut start = 0;
    ends.map(move |end| {
        let piece = text.get(start..end as usize);
        start = end as usize;
        piece
    })
}

fn utf8<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str, ManifestError> {
    std::str::from_utf8(bytes).map_err(|_| wrong(&format!("{what} are not UTF-8")))
}

pub(super) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), ManifestError> {
    if holds { Ok(()) } else { Err(ManifestError::Malformed(what())) }
}
