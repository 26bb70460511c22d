//! Names of shards as users write them: with braces, as WebDataset has them (`train-{000000..000999}.tar`), and with `*`, `?` and
//! `[...]`, as shells have them.

use std::{collections::HashSet, path::Path};

use glob::{MatchOptions, Pattern};
use spdl_shard::{index::is_index, store::DatasetStore};
use spdl_store::ListedObject;

use super::{DatasetError, ShardList, hidden::is_hidden_shard, listing::Listing, replace::is_metadata};

/// The characters of patterns and braces.
const MARKS: [char; 4] = ['*', '?', '[', '{'];
/// Upper limit of the names that braces give.
const MAX_NAMES: usize = 1_000_000;
/// The rules by which a shell matches paths.
const AS_SHELLS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// Returns the names that one text has, between commas outside of braces.
#[must_use]
pub(super) fn split_at_commas(text: &str) -> Vec<String> {
    let (mut names, mut depth) = (vec![String::new()], 0_usize);
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                names.push(String::new());
                continue;
            }
            _ => {}
        }
        names.last_mut().expect("there is one").push(c);
    }
    names
}

/// Returns the folder that paths have in common, and the paths in it; `None` for a single path that is no pattern, or that of a folder
/// on disk.
#[must_use]
pub(super) fn in_common_folder(paths: &[String]) -> Option<(String, Vec<String>)> {
    if let [one] = paths
        && (!one.contains(MARKS) || Path::new(one).is_dir())
    {
        return None;
    }
    let folder_of = |path: &str| path[..path.find(MARKS).unwrap_or(path.len())].rfind('/').map_or(0, |slash| slash + 1);
    let first = paths.first()?;
    let mut common = &first[..folder_of(first)];
    for path in paths {
        while !path[..folder_of(path)].starts_with(common) {
            common = &common[..common.trim_end_matches('/').rfind('/').map_or(0, |slash| slash + 1)];
        }
    }
    let names = paths.iter().map(|path| path[common.len()..].to_owned()).collect();
    let folder = match common.trim_end_matches('/') {
        "" if common.is_empty() => ".",
        "" => "/",
        folder => folder,
    };
    Some((folder.to_owned(), names))
}

/// Returns the objects in a folder that `names` match, in the order of `names`; those of one pattern are in the order
/// of their names.
pub(super) async fn chosen(from: &DatasetStore, names: &[String]) -> Result<Listing, DatasetError> {
    let mut expanded = Vec::new();
    for name in names {
        expand(name, &mut expanded)?;
    }
    if let Some(name) = expanded.iter().find(|name| !spdl_shard::manifest::is_relative_path(name)) {
        return Err(problem(format!("names `{name}`, which is not a path inside the dataset's folder")));
    }
    let Some(pattern) = expanded.iter().find(|name| is_pattern(name)) else {
        check_once(&expanded)?;
        return Listing::of_names(from, &expanded).await;
    };
    if !from.can_list() {
        return Err(problem(format!(
            "has `{pattern}`, and a web server cannot list what matches it; give names, or a range in braces"
        )));
    }
    let listed = Listing::of(from, |name| !is_metadata(name) && !is_index(name)).await?;
    let (mut taken, mut seen) = (Listing::default(), HashSet::new());
    for name in &expanded {
        let mut take = |object: ListedObject<'_>| {
            if seen.insert(object.name.to_owned()) {
                taken.push(object.name, object.bytes, object.etag);
            }
        };
        if let Some(number) = listed.find_by(|other| other.cmp(name)) {
            take(listed.get(number));
            continue;
        }
        let pattern = Pattern::new(name).map_err(|error| problem(format!("has `{name}`: {}", error.msg)))?;
        let matching = listed.iter().filter(|object| pattern.matches_with(object.name, AS_SHELLS));
        let matching: Vec<_> =
            matching.filter(|object| is_hidden_shard(name) || !is_hidden_shard(object.name)).collect();
        if matching.is_empty() {
            let what = if is_pattern(name) { "matches" } else { "is" };
            return Err(problem(format!(
                "has `{name}`, which {what} none of the {} objects in `{}`",
                listed.len(),
                from.url()
            )));
        }
        matching.into_iter().for_each(&mut take);
    }
    Ok(taken)
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// Refuses a name that is there twice: the dataset would have its samples twice.
fn check_once(names: &[String]) -> Result<(), DatasetError> {
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        Some(name) => Err(problem(format!("has `{name}` twice"))),
        None => Ok(()),
    }
}

/// Appends the names that a name with braces stands for: `{a,b}` for each of its parts, `{08..11}` for each of the
/// numbers, padded with zeros to the width of the longer one, `{a..c}` for letters. Other braces stand for themselves.
fn expand(name: &str, names: &mut Vec<String>) -> Result<(), DatasetError> {
    let Some((before, parts, after)) = first_braces(name) else {
        if names.len() == MAX_NAMES {
            return Err(problem(format!("has more than {MAX_NAMES} names")));
        }
        names.push(name.to_owned());
        return Ok(());
    };
    parts.iter().try_for_each(|part| expand(&format!("{before}{part}{after}"), names))
}

/// Returns the first braces of a name that stand for something, with what is before and after them.
fn first_braces(name: &str) -> Option<(&str, Vec<String>, &str)> {
    name.match_indices('{').find_map(|(start, _)| {
        let end = start + closing(&name[start..])?;
        let inside = &name[start + 1..end];
        let parts = range(inside).or_else(|| Some(split_at_commas(inside)).filter(|parts| parts.len() > 1))?;
        Some((&name[..start], parts, &name[end + 1..]))
    })
}

/// Returns where the brace that a text begins with is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.bytes().position(|byte| {
        depth += i32::from(byte == b'{') - i32::from(byte == b'}');
        depth == 0
    })
}

/// Returns the numbers or letters of `first..last` or `first..last..step`.
fn range(text: &str) -> Option<Vec<String>> {
    let parts: Vec<&str> = text.split("..").collect();
    let (first, last, step) = match parts[..] {
        [first, last] => (first, last, 1),
        [first, last, step] => (first, last, step.parse::<i64>().ok()?.unsigned_abs().max(1)),
        _ => return None,
    };
    let letter =
        |text: &str| text.parse::<char>().ok().filter(char::is_ascii_alphabetic).map(|c| i64::from(u32::from(c)));
    if let (Some(from), Some(to)) = (letter(first), letter(last)) {
        let of = |number: i64| u8::try_from(number).map(|byte| char::from(byte).to_string()).unwrap_or_default();
        return Some(steps(from, to, step).map(of).collect());
    }
    let (from, to) = (first.parse::<i64>().ok()?, last.parse::<i64>().ok()?);
    if from.abs_diff(to) / step >= MAX_NAMES as u64 {
        return None;
    }
    let is_padded =
        |text: &str| text.trim_start_matches('-').starts_with('0') && text.trim_start_matches('-').len() > 1;
    let width = if is_padded(first) || is_padded(last) { first.len().max(last.len()) } else { 0 };
    Some(steps(from, to, step).map(|number| format!("{number:0width$}")).collect())
}

/// Iterates from one number to another, up or down.
fn steps(from: i64, to: i64, step: u64) -> impl Iterator<Item = i64> {
    let count = from.abs_diff(to) / step;
    let step = if from <= to { step as i64 } else { -(step as i64) };
    (0..=count as i64).map(move |number| from + number * step)
}

fn problem(problem: String) -> DatasetError {
    DatasetError::Option { option: "shards", problem }
}

/// A file of a folder, or an object below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOfFolder {
    /// Its path in the folder, with `/` between parts.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Lists the files of a folder and its subfolders: all that are not hidden, by name, or those that were chosen.
///
/// # Errors
/// If the store cannot be listed, or a chosen file is not there.
pub async fn files_of(from: &DatasetStore, wanted: &ShardList) -> Result<Vec<FileOfFolder>, DatasetError> {
    let listing = match wanted {
        ShardList::All => Listing::of(from, |name| !is_hidden_shard(name) && !is_metadata(name)).await?,
        ShardList::Named(names) => chosen(from, names).await?,
    };
    Ok(listing.iter().map(|file| FileOfFolder { name: file.name.to_owned(), bytes: file.bytes }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_divided_at_the_folder_that_they_have_in_common() {
        let divided = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            in_common_folder(&paths).map(|(folder, names)| format!("{folder}: {}", names.join(" ")))
        };
        for (paths, expected) in [
            (&["shards"][..], None),
            (&["/"], None),
            (&["src*"], Some(".: src*")),
            (&["shards/a.tar", "shards/b.tar"], Some("shards: a.tar b.tar")),
            (&["shards/x/a.tar", "shards/y/*.tar"], Some("shards: x/a.tar y/*.tar")),
            (&["shards/a/1.tar", "shards/ab/1.tar"], Some("shards: a/1.tar ab/1.tar")),
            (&["a.tar", "x/b.tar"], Some(".: a.tar x/b.tar")),
            (&["/a.tar", "/x/b.tar"], Some("/: a.tar x/b.tar")),
            (&["s3://bucket/x/{0..9}.tar"], Some("s3://bucket/x: {0..9}.tar")),
            (&["s3://bucket/x*/0.tar"], Some("s3://bucket: x*/0.tar")),
        ] {
            assert_eq!(divided(paths).as_deref(), expected, "{paths:?}");
        }
    }

    fn names(text: &str) -> Vec<String> {
        let mut names = Vec::new();
        split_at_commas(text).iter().for_each(|name| expand(name, &mut names).unwrap());
        names
    }

    /// The names are those of bash.
    #[test]
    fn braces_stand_for_what_they_do_in_a_shell() {
        for text in [
            "a.tar",
            "train-{000000..000003}.tar",
            "{9..11}.tar",
            "{09..11}.tar",
            "{11..8}.tar",
            "{0..10..3}.tar",
            "{a..e..2}{0,1}",
            "{-2..1}",
            "x{a,b{0..1},{c,d}}y{z}",
            "{train,test}/{0..1}.tar",
            "{a}{..}{1..x}{,b}",
            "open{a,b",
            "shut}a",
        ] {
            let bash =
                std::process::Command::new("bash").args(["-c", &format!("printf '%s\\n' {text}")]).output().unwrap();
            let expected: Vec<&str> = std::str::from_utf8(&bash.stdout).unwrap().lines().collect();
            assert_eq!(names(text), expected, "{text}");
        }
        assert_eq!(names("a.tar,{b,c}.tar,"), ["a.tar", "b.tar", "c.tar", ""]);
    }

    #[test]
    fn a_range_that_is_too_long_stands_for_itself_and_a_product_is_an_error() {
        assert_eq!(names("{0..99999999999}"), ["{0..99999999999}"]);
        let error = expand("{0..9999}{0..9999}", &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "`shards` has more than 1000000 names");
    }
}
