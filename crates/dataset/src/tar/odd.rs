//! Odd members of a tar, which are read under another name or not read as a field of a record: they are counted, and
//! the first of each kind is named.

use std::collections::BTreeMap;

use serde::Serialize;

/// What is odd about a member, or about the record that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TarAnomaly {
    /// A hard link: its content is that of another member.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A device or a pipe.
    Device,
    /// A file whose name gives no field: no extension, hidden, or under a part that starts and ends with `__`.
    NoField,
    /// A file whose name is not UTF-8; a byte that is not is read as in `\xe9`.
    NotUtf8,
    /// A member behind the mark that ends the tar.
    BehindTheEnd,
    /// A record that has its key, and some of its fields, in common with another record of the shard.
    KeyTwice,
    /// A part of a record whose other members are not adjacent to it.
    Torn,
}

impl TarAnomaly {
    /// Describes the oddity, for one or several members, and what to do about it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::HardLink => {
                "hard links passed over: their content is another member's; write the tar with `--hard-dereference`"
            }
            Self::Symlink => "symbolic links passed over; write the tar with `--dereference`",
            Self::Device => "devices or pipes passed over",
            Self::NoField => "files passed over whose names give no field, as `KEY.jpg` does",
            Self::NotUtf8 => "files whose names are not UTF-8: such a byte is written as `\\xe9` in keys and fields",
            Self::BehindTheEnd => {
                "members behind the mark that ends a tar, which are not read: shards that were joined with `cat` are to be \
                 indexed apart, or joined with `tar --concatenate`"
            }
            Self::KeyTwice => "records whose key another record of the same shard has",
            Self::Torn => {
                "parts of records that are apart from the rest of their record, and count as records of their own: members \
                 with one key have to follow each other, as `tar --sort=name` writes them"
            }
        }
    }
}

/// The members or records with one oddity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OddMembers {
    /// What is odd.
    pub what: TarAnomaly,
    /// Number of members or records.
    pub count: u64,
    /// Shard of the first one.
    pub shard: String,
    /// Name of the first member, or key of the first record.
    pub first: String,
}

/// Counts oddities by kind and keeps the first of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OddTally(BTreeMap<TarAnomaly, OddMembers>);

impl OddTally {
    /// Counts one more, called `name`.
    pub(crate) fn add(&mut self, what: TarAnomaly, shard: &str, name: &str) {
        self.add_some(what, 1, shard, name);
    }

    /// Counts `count` more members or records; the first of them is called `name`.
    pub(crate) fn add_some(&mut self, what: TarAnomaly, count: u64, shard: &str, name: &str) {
        let none = || OddMembers { what, count: 0, shard: shard.to_owned(), first: name.to_owned() };
        self.0.entry(what).or_insert_with(none).count += count;
    }

    /// Returns how many members or records are odd in this way.
    pub(crate) fn count(&self, what: TarAnomaly) -> u64 {
        self.0.get(&what).map_or(0, |members| members.count)
    }

    /// Adds the counts of a later shard.
    pub(crate) fn join(&mut self, later: Self) {
        for (what, members) in later.0 {
            match self.0.get_mut(&what) {
                Some(first) => first.count += members.count,
                None => drop(self.0.insert(what, members)),
            }
        }
    }

    pub(crate) fn list(self) -> Vec<OddMembers> {
        self.0.into_values().collect()
    }
}
