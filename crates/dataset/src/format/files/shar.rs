//! A folder of lhotse's Shar as a table about the members of its tars: the cuts, each with what its supervisions say.

use std::{
    fs::{self, File},
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};
use spdl_shard::{
    format::{Compression, Decompressor},
    json,
};

use crate::{DatasetError, at_line, text_of, wrong};

/// How the names of the tars with recordings begin.
pub(super) const RECORDINGS: &str = "recording.";
/// How the names of the files with cuts begin.
const CUTS: &str = "cuts.";
/// Ends of the names of files with cuts.
const SUFFIXES: [&str; 2] = [".jsonl", ".jsonl.gz"];
/// Size of the longest file of cuts, in bytes.
const MAX_CUTS_BYTES: u64 = 1 << 30;
/// What a supervision says that is said of all of its cut.
const OF_SUPERVISIONS: [&str; 3] = ["speaker", "gender", "language"];

/// Returns whether there is a folder of lhotse's at this path.
pub(super) fn is_one(path: &Path) -> bool {
    !path.join("wav.scp").exists() && cuts(path).is_ok_and(|cuts| !cuts.is_empty())
}

/// Returns the paths of the files with cuts, by name.
fn cuts(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(CUTS) && SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns a folder as JSON lines, one for each cut, whose `file` is the key of its sound.
pub(super) fn to_lines(folder: &Path) -> Result<(PathBuf, String), DatasetError> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| wrong(path, &format!("cannot be read: {error}"));
    let mut lines = String::new();
    for path in cuts(folder).map_err(|error| unreadable(folder, &error))? {
        let file = BufReader::new(File::open(&path).map_err(|error| unreadable(&path, &error))?);
        let mut text = Vec::new();
        let read = match path.extension().is_some_and(|suffix| suffix == "gz") {
            true => Decompressor::new(Compression::Gzip, file)
                .and_then(|content| content.take(MAX_CUTS_BYTES + 1).read_to_end(&mut text)),
            false => file.take(MAX_CUTS_BYTES + 1).read_to_end(&mut text),
        };
        read.map_err(|error| unreadable(&path, &error))?;
        if text.len() as u64 > MAX_CUTS_BYTES {
            return Err(wrong(&path, &format!("has more than {MAX_CUTS_BYTES} bytes; write shards of fewer cuts")));
        }
        let text = text_of(&path, text, 1)?;
        for (number, line) in (1..).zip(text.lines()) {
            if !line.trim().is_empty() {
                let fields = cut(line).map_err(|problem| at_line(&path, number, &problem))?;
                lines.push_str(&Value::Object(fields).to_string());
            }
            lines.push('\n');
        }
    }
    Ok((folder.to_owned(), lines))
}

/// Returns the fields of a cut, or what is wrong with it.
fn cut(line: &str) -> Result<Map<String, Value>, String> {
    let cut: Map<String, Value> =
        json::read(line.as_bytes()).map_err(|error| format!("is no cut, a JSON object: {error}"))?;
    let text = |name: &str| cut.get(name).and_then(Value::as_str);
    let Some(id) = text("id") else { return Err("has no `id`, as a cut of lhotse has".to_owned()) };
    let id_shown = id.escape_debug();
    if text("type") == Some("MixedCut") || cut.contains_key("tracks") {
        return Err(format!(
            "has the mixed cut `{id_shown}`, which lhotse makes of several sounds when it reads them; these are not mixed here: write \
             each as one sound (`cut.save_audio`) before `to_shar`"
        ));
    }
    if text("type") == Some("PaddingCut") {
        return Err(format!("has the padding cut `{id_shown}`, which has no sound"));
    }
    if cut.get("start").and_then(Value::as_f64).is_some_and(|start| start != 0.0) {
        return Err(format!(
            "has the cut `{id_shown}`, which begins within its recording, as no cut in a Shar does: write the cuts with `to_shar`"
        ));
    }
    let empty = Vec::new();
    let supervisions = cut.get("supervisions").and_then(Value::as_array).unwrap_or(&empty);
    let all = |name: &str| -> Vec<&str> { supervisions.iter().filter_map(|one| one.get(name)?.as_str()).collect() };
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    put("file", id.into());
    if let Some(duration) = cut.get("duration") {
        put("duration", duration.clone());
    }
    let texts = all("text");
    if !texts.is_empty() {
        put("text", texts.join(" ").into());
    }
    for name in OF_SUPERVISIONS {
        let values = all(name);
        if values.len() == supervisions.len()
            && let Some(value) = values.first().filter(|value| values.iter().all(|other| other == *value))
        {
            put(name, (*value).into());
        }
    }
    put("cut", line.trim().into());
    Ok(fields)
}
