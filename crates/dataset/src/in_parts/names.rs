//! The parts of a pack, and the names of what they leave besides shards.

use std::{ops::Range, str::FromStr};

use futures::{StreamExt, TryStreamExt};
use spdl_shard::{
    manifest::{METADATA_FOLDER, MetadataPlace, in_metadata_folder},
    store::DatasetStore,
};
use spdl_store::StoreError;

use super::super::{DatasetError, folder::is_shard_name, listing::Listing};

/// Upper limit of the number of parts.
const MAX_PARTS: u32 = 100_000;

/// The folder that the files of parts lie in, with the manifest.
pub(super) const FOLDER: &str = "parts";

/// One of the parts that a pack is divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackPart {
    pub(in super::super) number: u32,
    pub(in super::super) count: u32,
}

impl PackPart {
    /// Returns part `number` of `count`; parts count from 0.
    ///
    /// # Errors
    /// In words, if there is no such part.
    pub fn new(number: u32, count: u32) -> Result<Self, String> {
        match count {
            0 => Err("there are no parts; give at least 1".to_owned()),
            count if count > MAX_PARTS => Err(format!("{count} parts are more than {MAX_PARTS}")),
            count if number >= count => {
                Err(format!("there is no part {number} of {count}: they are 0 to {}", count - 1))
            }
            count => Ok(Self { number, count }),
        }
    }

    /// Returns the name of its manifest.
    pub(super) fn file_name(self) -> String {
        MetadataPlace::Hidden.path(&format!("{FOLDER}/part-{}-of-{}.json", self.number, self.count))
    }

    /// Returns the part whose manifest has this name.
    pub(super) fn of_file(name: &str) -> Option<Self> {
        let (number, count) = stem_of(name)?.strip_prefix("part-")?.split_once("-of-")?;
        let part = Self::new(number.parse().ok()?, count.parse().ok()?).ok()?;
        (part.file_name() == name).then_some(part)
    }

    /// Returns the numbers of its shards, of `shards` in all: a run, and about as many as in each other part.
    pub(super) fn shards(self, shards: u64) -> Range<u64> {
        let start = |number: u32| (u128::from(shards) * u128::from(number) / u128::from(self.count)) as u64;
        start(self.number)..start(self.number + 1)
    }
}

impl FromStr for PackPart {
    type Err = String;

    /// Reads `I/N`: part I of N.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('/').and_then(|(number, count)| Some((number.parse().ok()?, count.parse().ok()?)));
        let (number, count) = numbers.ok_or("give I/N, such as 0/8 for the first of eight parts")?;
        Self::new(number, count)
    }
}

impl std::fmt::Display for PackPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

/// Returns the file's name without its folder and its suffix, if it is one of these files by its folder and suffix.
fn stem_of(name: &str) -> Option<&str> {
    in_metadata_folder(name)?.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".json")
}

/// Returns whether a part of a pack writes an object of this name, besides its shards.
pub(super) fn is_part_name(name: &str) -> bool {
    PackPart::of_file(name).is_some() || stem_of(name).is_some_and(is_shard_name)
}

/// Removes what parts of a pack wrote besides their shards.
pub(in super::super) async fn remove_part_names(to: &DatasetStore) -> Result<(), DatasetError> {
    remove_work(to, FOLDER, is_part_name).await
}

/// Removes the objects of these names, which lie in a folder beside the manifest, and the folder.
pub(in super::super) async fn remove_work(
    to: &DatasetStore,
    folder: &str,
    is_ours: fn(&str) -> bool,
) -> Result<(), DatasetError> {
    let found = Listing::of_metadata(to, is_ours).await?;
    let folder = format!("{METADATA_FOLDER}/{folder}");
    let (store, paths) = (to.object(), found.iter().map(|object| Ok(to.path_of(object.name))).collect::<Vec<_>>());
    let removed = store.delete_stream(futures::stream::iter(paths).boxed());
    let ours = |removed: Result<_, object_store::Error>| async move {
        match removed {
            Err(source) if !matches!(source, object_store::Error::NotFound { .. }) => Err(source),
            _ => Ok(()),
        }
    };
    let removed = removed.then(ours).try_collect::<()>().await;
    removed.map_err(|source| StoreError::of(&to.url_of(&folder), source))?;
    to.remove_temporaries(&folder, |name| is_ours(&format!("{folder}/{name}")))?;
    if let Some(local) = to.local_folder() {
        // Only an empty folder is removed, so other programs' files stay.
        let _ = std::fs::remove_dir(local.join(folder));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_is_in_one_part_and_parts_differ_by_at_most_one() {
        for (shards, count) in [(0, 3), (1, 3), (7, 8), (10, 3), (10_000, 8), (u64::from(u32::MAX), 7)] {
            let ranges: Vec<_> =
                (0..count).map(|number| PackPart::new(number, count).unwrap().shards(shards)).collect();
            assert_eq!((ranges[0].start, ranges.last().unwrap().end), (0, shards));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
            let sizes = || ranges.iter().map(|range| range.end - range.start);
            assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1, "{ranges:?}");
        }
    }

    #[test]
    fn parts_are_written_as_number_and_count() {
        assert_eq!("3/8".parse(), PackPart::new(3, 8));
        assert_eq!(PackPart::new(3, 8).unwrap().to_string(), "3/8");
        for (text, problem) in [
            ("8/8", "there is no part 8 of 8: they are 0 to 7"),
            ("0/0", "there are no parts; give at least 1"),
            ("0/100001", "100001 parts are more than 100000"),
            ("3", "give I/N, such as 0/8 for the first of eight parts"),
            ("-1/8", "give I/N, such as 0/8 for the first of eight parts"),
        ] {
            assert_eq!(text.parse::<PackPart>().unwrap_err(), problem, "{text}");
        }
    }

    #[test]
    fn names_of_parts_are_known_again() {
        for name in [".spdl/parts/part-3-of-8.json", ".spdl/parts/shard-000012.tar.json"] {
            assert!(is_part_name(name), "{name}");
        }
        for name in [
            ".spdl/parts/part-8-of-8.json",
            ".spdl/parts/part-03-of-8.json",
            "parts/part-3-of-8.json",
            ".spdl/parts/x.json",
            ".spdl/parts/",
        ] {
            assert!(!is_part_name(name), "{name}");
        }
    }
}
