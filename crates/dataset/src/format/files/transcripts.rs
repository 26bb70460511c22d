//! The texts of LibriSpeech and its like: a file `*.trans.txt` beside the sounds has a line for each, with the sound's name and its
//! text.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use futures::{StreamExt, TryStreamExt, stream};
use spdl_shard::store::DatasetStore;

use super::records::is_sound_file;
use crate::{DatasetError, Listing, at_line, text_of, wrong};

/// The field of the texts.
pub(super) const TEXT_FIELD: &str = "txt";
/// The end of the names of the files.
const SUFFIX: &str = ".trans.txt";
/// Size of the largest file that is read, in bytes. LibriSpeech has one for each chapter, of some kilobytes.
const MAX_BYTES: u64 = 16 << 20;
/// Size of all files that are read, in bytes, as their texts are in memory: 20 times that of LibriSpeech.
const MAX_ALL_BYTES: usize = 1 << 30;
/// Number of files that are read at once.
const READS_AT_ONCE: usize = 16;

/// The texts of sounds.
#[derive(Debug, Default)]
pub(super) struct Transcripts {
    files: HashSet<String>,
    /// By the keys of records.
    texts: HashMap<String, String>,
}

impl Transcripts {
    /// Reads the files of texts in a listing. A file that is itself beside a sound of its name is none.
    pub(super) async fn read(from: &DatasetStore, files: &Listing) -> Result<Self, DatasetError> {
        let mut stems: HashSet<&str> = files.iter().filter_map(|file| file.name.strip_suffix(SUFFIX)).collect();
        if stems.is_empty() {
            return Ok(Self::default());
        }
        for sound in files.iter().filter(|file| is_sound_file(file.name)) {
            stems.remove(sound.name.rsplit_once('.').map_or(sound.name, |(stem, _)| stem));
        }
        let mut names: Vec<String> = stems.into_iter().map(|stem| format!("{stem}{SUFFIX}")).collect();
        names.sort_unstable();
        let mut found = Self::default();
        let read = |name: String| async move {
            let bytes = from.read(&name, MAX_BYTES).await?;
            Ok::<_, DatasetError>((name, bytes))
        };
        let mut read = std::pin::pin!(stream::iter(names).map(read).buffered(READS_AT_ONCE));
        let mut all_bytes = 0;
        while let Some((name, bytes)) = read.try_next().await? {
            all_bytes += bytes.len();
            if all_bytes > MAX_ALL_BYTES {
                let problem = "has more than 1 GiB of texts in `*.trans.txt`; index its folders one by one";
                return Err(wrong(Path::new(from.url()), problem));
            }
            let text = text_of(Path::new(&from.url_of(&name)), bytes.to_vec(), 1)?;
            found
                .add(&name, &text)
                .map_err(|(line, problem)| at_line(Path::new(&from.url_of(&name)), line, &problem))?;
            found.files.insert(name);
        }
        Ok(found)
    }

    /// Adds the lines of a file. Fails with the number of the line that is wrong, and what is wrong with it.
    fn add(&mut self, name: &str, text: &str) -> Result<(), (usize, String)> {
        let folder = name.rfind('/').map_or("", |slash| &name[..=slash]);
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let Some((sound, text)) = line.trim().split_once(char::is_whitespace) else {
                return Err((number + 1, "has no text behind the name of a sound".to_owned()));
            };
            if self.texts.insert(format!("{folder}{sound}"), text.trim_start().to_owned()).is_some() {
                return Err((number + 1, format!("has a text of `{sound}`, which has one already")));
            }
        }
        Ok(())
    }

    /// Returns whether the file at `path` was read.
    pub(super) fn has_read(&self, path: &str) -> bool {
        self.files.contains(path)
    }

    /// Returns whether there are no texts.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Returns the text of the record with this key.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_the_name_of_a_sound_beside_the_file_and_its_text() {
        let mut found = Transcripts::default();
        found.add("84/1/84-1.trans.txt", "84-1-0000 GO DO YOU HEAR\r\n\n84-1-0001  YES\n").unwrap();
        assert_eq!(found.text("84/1/84-1-0000"), Some("GO DO YOU HEAR"));
        assert_eq!((found.text("84/1/84-1-0001"), found.text("84-1-0001")), (Some("YES"), None));
        let twice = found.add("84/1/other.trans.txt", "x y\n84-1-0001 NO\n").unwrap_err();
        assert_eq!(twice, (2, "has a text of `84-1-0001`, which has one already".to_owned()));
        assert_eq!(found.add("a.trans.txt", "\n84-1-0002\n").unwrap_err().0, 2);
    }
}
