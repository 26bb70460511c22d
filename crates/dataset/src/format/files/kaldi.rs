//! A data folder of Kaldi as a table of files: `wav.scp`, and `segments`, `text` and `utt2spk` as far as they are there.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::{DatasetError, at_line, read_text, wrong};

/// A file of the folder, whose lines begin with a name.
struct NamedLines {
    path: PathBuf,
    text: String,
}

impl NamedLines {
    /// Reads the file `name` of a folder, if it is there.
    fn read(folder: &Path, name: &str) -> Result<Option<Self>, DatasetError> {
        let path = folder.join(name);
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(Self { text: read_text(&path)?, path }))
    }

    /// Iterates over the lines: the number of each, its name, and the rest. Empty lines have neither.
    fn lines(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        self.text.lines().enumerate().map(|(number, line)| {
            let line = line.trim();
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            (number + 1, name, rest.trim_start())
        })
    }

    /// Returns the rest of each line by its name.
    fn by_name(&self) -> Result<HashMap<&str, &str>, DatasetError> {
        let mut found: HashMap<&str, &str> = HashMap::new();
        for (number, name, rest) in self.lines().filter(|(_, name, _)| !name.is_empty()) {
            if found.insert(name, rest).is_some() {
                return Err(self.error(number, &format!("has `{name}` for the second time")));
            }
        }
        Ok(found)
    }

    fn error(&self, line: usize, problem: &str) -> DatasetError {
        at_line(&self.path, line, problem)
    }
}

/// Returns a data folder as JSON lines, one for each utterance, and the file whose lines they stand for: `segments`, or `wav.scp`
/// without it.
pub(super) fn to_lines(folder: &Path) -> Result<(PathBuf, String), DatasetError> {
    let file = |name| NamedLines::read(folder, name);
    let Some(recordings) = file("wav.scp")? else {
        return Err(wrong(folder, "is a folder without `wav.scp`; a table is a file, or a data folder of Kaldi"));
    };
    let (segments, texts, speakers) = (file("segments")?, file("text")?, file("utt2spk")?);
    let by_name = |file: &'_ Option<NamedLines>| -> Result<HashMap<String, String>, DatasetError> {
        let lines = file.as_ref().map(NamedLines::by_name).transpose()?.unwrap_or_default();
        Ok(lines.into_iter().map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect())
    };
    let (texts, speakers) = (by_name(&texts)?, by_name(&speakers)?);
    for (number, name, path) in recordings.lines().filter(|(_, name, _)| !name.is_empty()) {
        if path.ends_with('|') {
            let problem = format!(
                "has a command for `{name}`, `{path}`, which is not run; write the sounds that it makes into files, and their paths here"
            );
            return Err(recordings.error(number, &problem));
        }
        if path.is_empty() {
            return Err(recordings.error(number, &format!("has no path behind `{name}`")));
        }
    }
    let paths = recordings.by_name()?;
    let mut lines = String::new();
    let listed = segments.as_ref().unwrap_or(&recordings);
    for (number, utterance, rest) in listed.lines() {
        if !utterance.is_empty() {
            let mut line = Map::new();
            let mut put = |name: &str, value: Value| drop(line.insert(name.to_owned(), value));
            if segments.is_some() {
                let segment = KaldiSegment::read(rest).map_err(|problem| listed.error(number, &problem))?;
                let path = paths.get(segment.recording).ok_or_else(|| {
                    listed.error(number, &format!("names `{}`, which `wav.scp` does not have", segment.recording))
                })?;
                put("file", (*path).into());
                put("offset", segment.start.into());
                // An empty text says that it goes on to the end.
                put("duration", segment.duration.map_or_else(|| "".into(), Value::from));
            } else {
                put("file", rest.into());
            }
            put("utterance", utterance.into());
            for (name, values) in [("text", &texts), ("speaker", &speakers)] {
                if let Some(value) = values.get(utterance) {
                    put(name, value.as_str().into());
                }
            }
            lines.push_str(&Value::Object(line).to_string());
        }
        lines.push('\n');
    }
    Ok((listed.path.clone(), lines))
}

/// A line of `segments` behind the name of the utterance.
struct KaldiSegment<'l> {
    recording: &'l str,
    start: f64,
    /// `None` if it goes on to the end of the recording.
    duration: Option<f64>,
}

impl<'l> KaldiSegment<'l> {
    fn read(rest: &'l str) -> Result<Self, String> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [recording, start, end] = words[..] else {
            return Err("is not `UTTERANCE RECORDING START END`".to_owned());
        };
        let seconds = |text: &str| text.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
        match seconds(start).zip(seconds(end)) {
            Some((start, end)) if start >= 0.0 && (end > start || end == -1.0) => {
                // A difference of decimal numbers, to a microsecond.
                let duration = (end > start).then(|| ((end - start) * 1e6).round() / 1e6);
                Ok(Self { recording, start, duration })
            }
            _ => {
                Err(format!("has a segment from `{start}` to `{end}`; seconds are expected, the end behind the start"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(files: &[(&str, &str)]) -> Result<(String, Vec<Value>), String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let (origin, lines) = to_lines(folder.path()).map_err(|error| error.to_string())?;
        let name = origin.file_name().unwrap().to_str().unwrap().to_owned();
        Ok((name, lines.lines().map(|line| serde_json::from_str(line).unwrap_or_default()).collect()))
    }

    const RECORDINGS: (&str, &str) = ("wav.scp", "one /data/one.wav\ntwo\twav/two words.flac \n");

    #[test]
    fn recordings_without_segments_are_utterances() {
        let (origin, lines) =
            lines_of(&[RECORDINGS, ("text", "one HELLO  WORLD\n"), ("utt2spk", "two ann\n")]).unwrap();
        assert_eq!(origin, "wav.scp");
        let one = serde_json::json!({"file": "/data/one.wav", "utterance": "one", "text": "HELLO  WORLD"});
        assert_eq!(
            lines,
            [one, serde_json::json!({"file": "wav/two words.flac", "utterance": "two", "speaker": "ann"})]
        );
    }

    #[test]
    fn segments_have_the_path_of_their_recording_and_their_own_line() {
        let segments = ("segments", "one-a one 0.1 2.34\n\none-b one 10.1 -1\n");
        let (origin, lines) = lines_of(&[RECORDINGS, segments, ("text", "one-b YES\n")]).unwrap();
        assert_eq!(origin, "segments");
        let first = serde_json::json!({"file": "/data/one.wav", "utterance": "one-a", "offset": 0.1, "duration": 2.24});
        let last = serde_json::json!({"file": "/data/one.wav", "utterance": "one-b", "offset": 10.1, "duration": "", "text": "YES"});
        assert_eq!(lines, [first, Value::Null, last]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file_and_line() {
        for (files, expected) in [
            (&[("text", "a b\n")][..], "is a folder without `wav.scp`"),
            (
                &[("wav.scp", "a x.wav\nb sph2pipe -f wav b.sph |\n")],
                "wav.scp:2` has a command for `b`, `sph2pipe -f wav b.sph |`",
            ),
            (&[("wav.scp", "a x.wav\na y.wav\n")], "wav.scp:2` has `a` for the second time"),
            (&[("wav.scp", "a\n")], "wav.scp:1` has no path behind `a`"),
            (
                &[RECORDINGS, ("segments", "x one 1 2\ny three 1 2\n")],
                "segments:2` names `three`, which `wav.scp` does not have",
            ),
            (&[RECORDINGS, ("segments", "x one 1\n")], "segments:1` is not `UTTERANCE RECORDING START END`"),
            (&[RECORDINGS, ("segments", "x one 2 1\n")], "segments:1` has a segment from `2` to `1`"),
            (&[RECORDINGS, ("segments", "x one nan 1\n")], "segments:1` has a segment from `nan` to `1`"),
            (&[RECORDINGS, ("text", "one A\none B\n")], "text:2` has `one` for the second time"),
        ] {
            let error = lines_of(files).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
