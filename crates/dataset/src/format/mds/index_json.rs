//! Reads `index.json`, the list of the shards of an MDS dataset.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde_json::Value;
use spdl_shard::{
    format::{Checksum, Compression, mds::MdsEncoding},
    manifest::is_relative_path,
};

/// Name of the list, in the dataset's folder.
pub(super) const INDEX_JSON: &str = "index.json";

/// Why a list of LitData's is not read.
const LIT_DATA: &str =
    "is LitData's, whose chunks are not read: write its samples with `spdl_cluster.Writer`, or as MDS or Parquet";

/// Returns whether this is the path of a list of shards.
pub(super) fn is_index(path: &str) -> bool {
    path == INDEX_JSON || path.ends_with("/index.json")
}

/// The shards of a dataset.
#[derive(Debug, Deserialize)]
pub(super) struct IndexJson {
    version: u32,
    pub(super) shards: Vec<ShardJson>,
}

/// A shard, as `index.json` lists it.
#[derive(Debug, Deserialize)]
pub(super) struct ShardJson {
    version: u32,
    format: String,
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u32>>,
    compression: Option<String>,
    pub(super) raw_data: FileJson,
    pub(super) zip_data: Option<FileJson>,
    pub(super) samples: u32,
}

/// A file of a shard.
#[derive(Debug, Deserialize)]
pub(super) struct FileJson {
    pub(super) basename: String,
    pub(super) bytes: u64,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

impl FileJson {
    /// Returns the file's checksum, if one is given that this program computes.
    pub(super) fn checksum(&self) -> Option<Checksum> {
        Checksum::quickest(self.hashes.iter().map(|(kind, digits)| (kind.as_str(), digits.as_str())))
    }
}

impl IndexJson {
    /// Reads the list and checks what does not depend on other files.
    ///
    /// # Errors
    /// What is wrong with it, as words that follow its name.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let index: Self = serde_json::from_slice(bytes).map_err(|error| other_than_mds(bytes, &error))?;
        if index.version != 2 {
            return Err(format!("has version {} of MDS; version 2 is read", index.version));
        }
        index.shards.iter().enumerate().try_for_each(|(number, shard)| shard.check(number))?;
        let mut seen = HashSet::new();
        match index.shards.iter().find(|shard| !seen.insert(&shard.raw_data.basename)) {
            Some(twice) => Err(format!("lists the shard `{}` twice", twice.raw_data.basename.escape_debug())),
            None => Ok(index),
        }
    }
}

/// Describes an `index.json` that is not an MDS index.
fn other_than_mds(bytes: &[u8], error: &serde_json::Error) -> String {
    if bytes.trim_ascii().is_empty() {
        return "is empty: it was not written to its end; copy it again".to_owned();
    }
    let has = |document: &Value, key: &str| document.get(key).is_some();
    let is_lit_data =
        serde_json::from_slice(bytes).is_ok_and(|document: Value| has(&document, "chunks") && has(&document, "config"));
    match is_lit_data {
        true => LIT_DATA.to_owned(),
        false => format!("is no index of MDS: {error}"),
    }
}

impl ShardJson {
    fn check(&self, number: usize) -> Result<(), String> {
        let Self { version, format, raw_data, zip_data, .. } = self;
        let named = |problem: &str| Err(format!("shard {number} (`{}`): {problem}", raw_data.basename.escape_debug()));
        if format != "mds" || *version != 2 {
            return named(&format!(
                "it has the format `{}`, version {version}; `mds`, version 2, is read",
                format.escape_debug()
            ));
        }
        for file in std::iter::once(raw_data).chain(zip_data) {
            if !is_relative_path(&file.basename) || file.basename.is_empty() {
                return named("its file is not a path inside the dataset's folder");
            }
        }
        let columns = self.column_names.len();
        if columns == 0 || self.column_encodings.len() != columns || self.column_sizes.len() != columns {
            return named("its columns have other numbers of names, encodings and sizes");
        }
        for (name, encoding) in self.column_names.iter().zip(&self.column_encodings) {
            if MdsEncoding::named(encoding).is_none() {
                return named(&format!(
                    "column `{}` has the encoding `{}`, which is unknown",
                    name.escape_debug(),
                    encoding.escape_debug()
                ));
            }
        }
        if zip_data.is_some() && self.compression().is_none() {
            let compression = self.compression.as_deref().unwrap_or_default();
            return named(&format!("its compression `{}` is unknown", compression.escape_debug()));
        }
        Ok(())
    }

    /// Returns how the shard's second file is compressed.
    pub(super) fn compression(&self) -> Option<Compression> {
        let name = self.compression.as_deref()?;
        Some(match name.split(':').next()? {
            "br" => Compression::Brotli,
            "bz2" => Compression::Bzip2,
            "gz" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "zstd" => Compression::Zstd,
            _ => return None,
        })
    }

    /// Returns the shard's plain file, or its compressed one if that is wanted and there is one.
    pub(super) fn file(&self, is_compressed: bool) -> &FileJson {
        self.zip_data.as_ref().filter(|_| is_compressed).unwrap_or(&self.raw_data)
    }

    /// Returns name, encoding and size of each column.
    pub(super) fn columns(&self) -> Vec<(String, String, Option<u32>)> {
        let columns = self.column_names.iter().zip(&self.column_encodings).zip(&self.column_sizes);
        columns.map(|((name, encoding), bytes)| (name.clone(), encoding.clone(), *bytes)).collect()
    }

    /// Returns the columns that are never read, because reading them would run code.
    pub(super) fn pickles(&self) -> impl Iterator<Item = &str> {
        let columns = self.column_names.iter().zip(&self.column_encodings);
        let pickles = columns.filter(|(_, encoding)| MdsEncoding::named(encoding) == Some(MdsEncoding::Pickle));
        pickles.map(|(name, _)| name.as_str())
    }
}
