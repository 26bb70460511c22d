//! The files of a source that are packed into no record: counted by suffix and reason, so that the user sees why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Upper limit of the suffixes that are counted separately; all others are counted together.
const MAX_SUFFIXES: usize = 200;

/// Files of one suffix that were left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Their extension in lower case, with its dot; empty for files without one.
    pub suffix: String,
    /// Why they were left out.
    pub why: LeftOutReason,
    /// Number of files.
    pub files: u64,
    /// The first of them by name.
    pub example: String,
}

/// Why a file is in no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LeftOutReason {
    /// No picture has its stem.
    NoPicture,
    /// No sound has its stem, in a folder of sounds.
    NoSound,
    /// No video has its stem, in a folder of videos.
    NoVideo,
    /// It is a picture of a format that is not read, such as JPEG XL.
    UnreadPicture,
    /// It lies outside of the folders of classes.
    NoClass,
    /// Its field is not among the chosen ones.
    NotChosen,
    /// Another file of its record has the same field.
    FieldTwice,
    /// The record's label, its annotation from elsewhere, or its row in a table uses its field.
    FieldTaken,
    /// It is a pipe, a device or a socket.
    NotRegular,
    /// It is not a shard.
    NoShard,
    /// It is a symbolic link to nothing.
    DeadLink,
    /// Its name gives no field: it has no extension.
    NoField,
    /// Its name, or that of a folder that it lies in, begins with a dot, or the folder is one that systems and programs
    /// make beside data.
    Hidden,
    /// Its name has a control character, or more than 4096 bytes.
    BadName,
    /// It has 4 GiB or more.
    TooLarge,
    /// The table has no row for it, or for a file with its stem.
    NoRow,
    /// It is no frame of a video, in a folder of frames.
    NoFrame,
    /// Another frame of the video has its number.
    FrameTwice,
    /// The pictures of its folder have too many different names.
    ManyNames,
    /// The video has more frames than a list can have.
    TooManyFrames,
    /// It is a link to a shard that is in the folder under another name.
    SameFile,
}

impl LeftOutReason {
    /// Returns the reason as words that follow the files.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoPicture => "no picture has their stem",
            Self::NoSound => "no sound has their stem",
            Self::NoVideo => "no video has their stem",
            Self::UnreadPicture => "JPEG XL and JPEG 2000 are not read: convert them, without loss to PNG or WebP",
            Self::NoClass => "outside of the folders of classes",
            Self::NotChosen => "not among --fields",
            Self::FieldTwice => "another file of the record has their field",
            Self::FieldTaken => "the record's label, annotation or row has their field",
            Self::NotRegular => "no regular files",
            Self::NoShard => "no shards",
            Self::DeadLink => "links to nothing",
            Self::Hidden => "hidden, or in a hidden folder",
            Self::NoField => "their names give no field, as `KEY.jpg` does",
            Self::BadName => "names with control characters, or longer than 4096 bytes",
            Self::TooLarge => "4 GiB or more",
            Self::NoRow => "no row in the table",
            Self::NoFrame => "no frames, which are pictures in a folder, with a number in their names",
            Self::FrameTwice => "another frame of the folder has their number",
            Self::ManyNames => "names that differ in more than a number: each video needs a folder of its own",
            Self::TooManyFrames => "in folders of more than 65536 frames: divide these",
            Self::SameFile => "the same file as another shard, by a link",
        }
    }
}

/// Counts files that are left out.
#[derive(Debug, Default)]
pub(crate) struct LeftOutTally(BTreeMap<(String, LeftOutReason), (u64, String)>);

impl LeftOutTally {
    pub(crate) fn add(&mut self, path: &str, why: LeftOutReason) {
        let mut suffix = match why {
            // Hidden files are counted together, whatever their suffix is.
            LeftOutReason::Hidden => String::new(),
            _ => super::extension(path).map(|extension| format!(".{extension}")).unwrap_or_default(),
        };
        if self.0.len() >= MAX_SUFFIXES && !self.0.contains_key(&(suffix.clone(), why)) {
            suffix = ".*".to_owned();
        }
        let entry = self.0.entry((suffix, why)).or_insert_with(|| (0, path.to_owned()));
        entry.0 += 1;
        if path < entry.1.as_str() {
            path.clone_into(&mut entry.1);
        }
    }

    /// Adds the counts of other files.
    pub(crate) fn join(&mut self, other: Self) {
        for (kind, (files, example)) in other.0 {
            let entry = self.0.entry(kind).or_insert_with(|| (0, example.clone()));
            entry.0 += files;
            if example < entry.1 {
                entry.1 = example;
            }
        }
    }

    /// Returns all files that were left out, the most frequent first.
    pub(crate) fn list(&self) -> Vec<LeftOut> {
        let entry = |((suffix, why), (files, example)): (&(String, LeftOutReason), &(u64, String))| LeftOut {
            suffix: suffix.clone(),
            why: *why,
            files: *files,
            example: example.clone(),
        };
        let mut all: Vec<LeftOut> = self.0.iter().map(entry).collect();
        all.sort_by_key(|entry| std::cmp::Reverse(entry.files));
        all
    }

    /// Describes the files for an error, such as `3 .parquet files, 1 .json file`; `None` if there are none.
    pub(crate) fn in_words(&self) -> Option<String> {
        let list = self.list();
        let words = |entry: &LeftOut| {
            let what = if entry.suffix.is_empty() { String::new() } else { format!("`{}` ", entry.suffix) };
            format!("{} {what}{}", entry.files, if entry.files == 1 { "file" } else { "files" })
        };
        (!list.is_empty()).then(|| list.iter().take(6).map(words).collect::<Vec<_>>().join(", "))
    }
}
