//! Reads a text file that lists files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    DatasetError, ListOptions, SourceRecord, SourceRecords, at_line, extension, read_text,
    stems::{FolderFiles, Rules},
};

/// A line: its number, the file's path, and the label.
struct ListLine<'l> {
    number: usize,
    path: &'l str,
    label: Option<&'l str>,
}

/// Reads the list at `list`.
pub(super) fn read(found: &mut SourceRecords, list: &Path, how: &ListOptions<'_>) -> Result<(), DatasetError> {
    let text = read_text(list)?;
    let lines = lines(list, &text)?;
    let (labels, classes) = labels(list, &lines, how.classes)?;
    let taken = how.taken(lines.first().is_some_and(|line| line.label.is_some()));
    let rules = Rules { choice: how.fields, all_make_records: how.fields.is_none(), taken: &taken };
    let place = |file: u32| (labels[file as usize], in_folder(lines[file as usize].path));
    let mut files: Vec<u32> = (0..).take(lines.len()).collect();
    files.sort_by_key(|file| place(*file));
    let folder = |file: u32| (labels[file as usize], in_folder(lines[file as usize].path).0);
    let mut records: Vec<(u32, SourceRecord)> = Vec::new();
    for files in files.chunk_by(|one, other| folder(*one) == folder(*other)) {
        let (label, folder) = folder(files[0]);
        let name = |file: u32| in_folder(lines[file as usize].path).1;
        let of = FolderFiles { folder, label, name: &name };
        rules.records(&of, files, &mut found.left_out, &mut |first, record| {
            records.push((first, record));
            Ok(())
        })?;
    }
    // In the order of the list.
    records.sort_unstable_by_key(|(first, _)| *first);
    found.records = records.into_iter().map(|(_, record)| record).collect();
    found.classes = classes;
    Ok(())
}

/// Splits a path into its folder, with the `/` at its end, and the file's name.
fn in_folder(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |slash| slash + 1))
}

fn lines<'l>(list: &Path, text: &'l str) -> Result<Vec<ListLine<'l>>, DatasetError> {
    let mut lines: Vec<ListLine<'_>> = Vec::new();
    for (number, text) in (1..).zip(text.lines()) {
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let (path, label) = text.split_once('\t').map_or((text, None), |(path, label)| (path, Some(label.trim())));
        let path = path.trim();
        if extension(path).is_none() || path.contains('\0') {
            return Err(at_line(
                list,
                number,
                &format!("names `{path}`, which has no extension that would name its type"),
            ));
        }
        let unlike_the_first = lines.first().is_some_and(|first| first.label.is_some() != label.is_some());
        if unlike_the_first || label.is_some_and(str::is_empty) {
            let problem = "has no label, or is the first with one; give one on each line or on none";
            return Err(at_line(list, number, problem));
        }
        lines.push(ListLine { number, path, label });
    }
    Ok(lines)
}

/// Returns the labels as numbers, and the names of the classes if the labels are names.
fn labels(
    list: &Path,
    lines: &[ListLine<'_>],
    fixed: Option<&[String]>,
) -> Result<(Vec<Option<i64>>, Vec<String>), DatasetError> {
    let is_fixed = |label: &str| fixed.is_some_and(|classes| classes.iter().any(|class| class == label));
    for ListLine { number, label, .. } in lines {
        if let Some(label) = label.filter(|label| !is_fixed(label))
            && let Some(problem) = no_label(label)
        {
            return Err(at_line(list, *number, &problem));
        }
    }
    let integers: Option<Vec<Option<i64>>> = lines
        .iter()
        .map(|line| match line.label {
            Some(label) => label.parse().ok().map(Some),
            None => Some(None),
        })
        .collect();
    if let Some(integers) = integers {
        for (ListLine { number, .. }, label) in lines.iter().zip(&integers) {
            let is_class = |label: i64, classes: &[String]| usize::try_from(label).is_ok_and(|at| at < classes.len());
            if let (Some(label), Some(classes)) = (*label, fixed)
                && !is_class(label, classes)
            {
                let problem = format!("has the label {label}, which is not the number of a class");
                return Err(at_line(list, *number, &problem));
            }
        }
        return Ok((integers, fixed.map(<[_]>::to_vec).unwrap_or_default()));
    }
    let by_name = || lines.iter().filter_map(|line| line.label).collect::<BTreeSet<_>>();
    let classes = fixed.map_or_else(|| by_name().into_iter().map(str::to_owned).collect(), <[_]>::to_vec);
    let numbers: BTreeMap<&str, i64> = classes.iter().map(String::as_str).zip(0..).collect();
    let number = |line: &ListLine<'_>| {
        let label = line.label?;
        let unknown = || format!("has the class `{label}`, which is not among the given ones");
        Some(numbers.get(label).copied().ok_or_else(|| at_line(list, line.number, &unknown())))
    };
    let labels = lines.iter().map(|line| number(line).transpose()).collect::<Result<_, _>>()?;
    Ok((labels, classes))
}

/// Explains why a text that looks like a number is not a valid label: it would be taken for the name of a class.
fn no_label(label: &str) -> Option<String> {
    let is_numeric =
        label.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) && label.parse::<f64>().is_ok();
    if !is_numeric || label.parse::<i64>().is_ok() {
        return None;
    }
    let digits = label.trim_start_matches(['+', '-']);
    Some(if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("has the label `{label}`, which is beyond 64 bits; number the classes, or list a file with it instead")
    } else {
        format!(
            "has the label `{label}`; labels are whole numbers or names of classes: put it in a `.json` file of the record"
        )
    })
}
