//! The key of a record: its name in messages, and its identity in the dataset.

use std::{borrow::Cow, fmt};

/// The name by which columns and views read a record's key, as in WebDataset. A field of this name takes precedence.
pub const KEY_NAME: &str = "__key__";
/// The name by which columns read the path of a record's shard, relative to the folder of the shards. A field of this
/// name takes precedence.
pub const SHARD_NAME: &str = "__shard__";

/// The key of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RecordKey<'a> {
    /// A text in the shard's index.
    Text(&'a str),
    /// For formats that give records no names: the prefix of all keys of the shard, and the record's number in it, or in the
    /// file that has the shard as a part. The number is written with at least six digits.
    Numbered(&'a str, u64),
}

impl<'a> RecordKey<'a> {
    /// Returns the key as text.
    #[must_use]
    pub fn text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Numbered(prefix, number) => Cow::Owned(format!("{prefix}{number:06}")),
        }
    }
}

impl<'a> From<&'a str> for RecordKey<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl fmt::Display for RecordKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for RecordKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text(), f)
    }
}

impl PartialEq<&str> for RecordKey<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.text() == *other
    }
}
