//! Splits: shards whose names state whether they are for training, validation or tests, by the rules of the Hugging
//! Face Hub and of TensorFlow Datasets.

use std::{borrow::Cow, collections::BTreeMap};

use super::{DatasetError, listing::Listing};

/// The splits that have other names, too, with all of their names.
const KEYWORDS: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("validation", &["validation", "valid", "dev", "val"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
];
/// Upper limit of the splits that a message names.
const MAX_NAMED: usize = 8;

/// Which splits become a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Splits {
    /// The only one. Several are an error.
    #[default]
    One,
    /// The split with this name.
    Named(String),
    /// All, as one dataset.
    All,
}

impl Splits {
    /// Returns the splits that two options choose: the name of one split, and whether all are meant.
    #[must_use]
    pub fn of(split: Option<String>, all: bool) -> Self {
        match split {
            Some(split) => Self::Named(split),
            None if all => Self::All,
            None => Self::One,
        }
    }

    /// Removes all shards from a listing that are not of these splits. Those for which `is_counted` holds are counted for messages.
    pub(super) fn choose(
        &self,
        url: &str,
        shards: &mut Listing,
        is_counted: impl Fn(&str) -> bool,
    ) -> Result<(), DatasetError> {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        let mut others = 0;
        for shard in shards.iter().filter(|shard| is_counted(shard.name)) {
            match split_of(shard.name) {
                Some(split) => *found.entry(split.into_owned()).or_default() += 1,
                None => others += 1,
            }
        }
        match self {
            Self::All => {}
            Self::One if found.len() < 2 => {}
            Self::One => return Err(DatasetError::Splits { url: url.to_owned(), found: in_words(&found, others) }),
            Self::Named(name) => {
                let wanted = canonical(name);
                if !found.contains_key(wanted) {
                    let there = if found.is_empty() { "there is none".to_owned() } else { in_words(&found, others) };
                    let problem = format!("is `{name}`, and no shard is of that split: {there}");
                    return Err(DatasetError::Option { option: "split", problem });
                }
                shards.retain(|shard| split_of(shard.name).is_some_and(|split| split == wanted));
            }
        }
        Ok(())
    }
}

/// Refuses folders as classes if they have the names of two or more splits.
pub(crate) fn refuse_as_classes<'f>(url: &str, folders: impl Iterator<Item = &'f str>) -> Result<(), DatasetError> {
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    for folder in folders {
        if let Some(split) = keyword(folder, true) {
            found.entry(split).or_insert(folder);
        }
    }
    if found.len() < 2 {
        return Ok(());
    }
    let folders = found.into_values().map(|folder| format!("`{folder}`")).collect::<Vec<_>>().join(", ");
    Err(DatasetError::SplitFolders { url: url.to_owned(), folders })
}

/// Returns the split that a shard is of, by its path.
#[must_use]
pub fn split_of(path: &str) -> Option<Cow<'_, str>> {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let numbered = of_numbered(folders, name).map(|split| Cow::Borrowed(canonical(split)));
    let of_folder = || folders.split('/').find_map(|folder| keyword(folder, true));
    numbered.or_else(|| of_folder().or_else(|| keyword(name, false)).map(Cow::Borrowed))
}

/// Returns the split of a shard whose name has its number and the number of shards: `data/SPLIT-00000-of-00008.parquet`
/// on the Hub, `NAME-SPLIT.tfrecord-00000-of-00008` of TensorFlow Datasets.
fn of_numbered<'n>(folders: &str, name: &'n str) -> Option<&'n str> {
    let (count, of) = (name.find("-of-")?, "-of-".len());
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (before, number) = name[..count].rsplit_once('-')?;
    let digits = name[count + of..].bytes().take_while(u8::is_ascii_digit).count();
    if !is_number(number) || digits < 5 {
        return None;
    }
    if folders.rsplit('/').next() == Some("data") {
        return Some(before);
    }
    let (stem, _format) = before.split_once('.')?;
    let (_, split) = stem.rsplit_once('-')?;
    split.starts_with(|c: char| c.is_alphabetic()).then_some(split)
}

/// Returns the split whose keyword occurs in a name as a word. Words are divided by digits, spaces, `-`, `.` and `_`.
/// The keyword can be the last word only if `may_end`; in the name of a file, something has to follow it.
fn keyword(name: &str, may_end: bool) -> Option<&'static str> {
    let is_apart = |byte: u8| byte.is_ascii_digit() || b"-._ ".contains(&byte);
    let mut words = name.split(|c: char| u8::try_from(c).is_ok_and(is_apart)).peekable();
    std::iter::from_fn(|| words.next().map(|word| (word, words.peek().is_some())))
        .filter(|(_, is_followed)| may_end || *is_followed)
        .find_map(|(word, _)| KEYWORDS.iter().find(|(_, names)| names.contains(&word)))
        .map(|(split, _)| *split)
}

fn canonical(name: &str) -> &str {
    KEYWORDS.iter().find(|(_, names)| names.contains(&name)).map_or(name, |(split, _)| split)
}

fn in_words(found: &BTreeMap<String, u64>, others: u64) -> String {
    let words = |(split, shards): (&String, &u64)| {
        format!("{split} ({shards} {})", if *shards == 1 { "shard" } else { "shards" })
    };
    let mut words: Vec<String> = found.iter().take(MAX_NAMED).map(words).collect();
    if found.len() > MAX_NAMED {
        words.push(format!("and {} more", found.len() - MAX_NAMED));
    }
    if others > 0 {
        words.push(format!("of none ({others} {})", if others == 1 { "shard" } else { "shards" }));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_hub_and_of_tfds_have_a_split() {
        for (path, split) in [
            ("data/train-00000-of-00002-0a1b.parquet", "train"),
            ("data/train_sft-00000-of-00002.parquet", "train_sft"),
            ("data/unsupervised-00000-of-00001.parquet", "unsupervised"),
            ("plain_text/validation-00000-of-00001.parquet", "validation"),
            ("imagenet2012/5.1.0/imagenet2012-train.tfrecord-00000-of-01024", "train"),
            ("imdb_reviews-unsupervised.array_record-00000-of-00001", "unsupervised"),
            ("train-000000.tar", "train"),
            ("cc3m-val-0001.tar", "validation"),
            ("val2017.tar", "validation"),
            ("dev/0.tar", "validation"),
            ("train-clean-100/0.tar", "train"),
            ("a/test_other/train-0.tar", "test"),
            ("my test.parquet", "test"),
        ] {
            assert_eq!(split_of(path).as_deref(), Some(split), "{path}");
        }
        for path in [
            "part-00000-of-00008.tfrecord",
            "shard-7.tfrecord-00000-of-00001",
            "web-00000-of-00001.parquet",
            "trainer-0.tar",
            "contest/0.tar",
            "testate.tar",
            "0.test",
        ] {
            assert_eq!(split_of(path), None, "{path}");
        }
    }
}
