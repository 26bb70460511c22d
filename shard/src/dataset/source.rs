//! The pictures that a dataset is packed from: a folder of class folders, or a text file that lists files.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use super::DatasetError;
use crate::Fingerprint;

/// Extensions of files that count as pictures in a folder, in lower case.
const PICTURES: [&str; 14] =
    ["jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "gif", "tif", "tiff", "pbm", "pgm", "ppm", "pnm"];
/// Folders inside folders, at most: more is a link to itself.
const MAX_DEPTH: usize = 32;

/// Where pictures come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder with one folder per class, pictures anywhere inside. Classes are numbered by the order of their
    /// names; each record gets its class's number as the field `cls`.
    ImageFolder(PathBuf),
    /// A text file with the path of a picture on each line, relative to the list's own folder, and after a tab, where
    /// wanted, its label. Empty lines and lines that start with `#` are passed over. If every label is an integer,
    /// labels go into the field `cls` as they are; otherwise they are names of classes, numbered by the order of
    /// their names.
    FileList(PathBuf),
}

/// Where the Pascal VOC annotation of a picture is: a file with the picture's name and the extension `xml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Annotations {
    /// In the picture's own folder.
    Beside,
    /// Under this folder, at the picture's path in the source, or else directly in it.
    Under(PathBuf),
}

/// One picture to pack.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    /// Path as the source gives it, with `/` between parts.
    name: Box<str>,
    /// Set apart from other pictures with the same key, from 1.
    twin: u32,
    pub(super) label: Option<i64>,
}

/// The pictures of a source, in its order.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    root: PathBuf,
    pub(super) pictures: Vec<Picture>,
    pub(super) classes: Vec<String>,
    pub(super) skipped_files: u64,
}

impl Source {
    /// What lies at `path`: a file is a list, all else a folder of class folders.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        if path.is_file() { Self::FileList(path.to_owned()) } else { Self::ImageFolder(path.to_owned()) }
    }

    /// Lists the pictures. With `classes`, these are the classes and their numbers, and no others may come up.
    pub(super) fn list(&self, classes: Option<&[String]>) -> Result<Pictures, DatasetError> {
        let mut pictures = match self {
            Self::ImageFolder(root) => image_folder(root, classes),
            Self::FileList(list) => file_list(list, classes),
        }?;
        if pictures.pictures.is_empty() {
            let (origin, problem) = match self {
                Self::ImageFolder(root) => (root, "a folder per class with pictures in it is expected"),
                Self::FileList(list) => (list, "a line per picture is expected"),
            };
            return Err(DatasetError::Nothing { origin: origin.display().to_string(), problem: problem.to_owned() });
        }
        assert!(u32::try_from(pictures.pictures.len()).is_ok(), "{} pictures", pictures.pictures.len());
        pictures.tell_twins_apart();
        Ok(pictures)
    }
}

impl Pictures {
    /// Where `picture` is.
    pub(super) fn path(&self, picture: &Picture) -> PathBuf {
        self.root.join(&*picture.name)
    }

    /// Where the annotation of `picture` may be, best first.
    pub(super) fn annotation_paths(&self, picture: &Picture, annotations: &Annotations) -> Vec<PathBuf> {
        match annotations {
            Annotations::Beside => vec![self.path(picture).with_extension("xml")],
            Annotations::Under(root) => {
                let name = Path::new(&*picture.name).with_extension("xml");
                let flat = name.file_name().map(|file| root.join(file));
                let same = (!name.is_absolute()).then(|| root.join(&name));
                same.into_iter().chain(flat).collect()
            }
        }
    }

    fn tell_twins_apart(&mut self) {
        let mut keys = HashSet::with_capacity(self.pictures.len());
        for picture in &mut self.pictures {
            while !keys.insert(Fingerprint::of(picture.key().as_bytes())) {
                picture.twin += 1;
            }
        }
    }
}

impl Picture {
    /// The record's key: the path without the extension. Dots would end the key, so they become `_`, as do parts
    /// that lead out of a folder and a leading `__`, which WebDataset reserves.
    pub(super) fn key(&self) -> String {
        let stem = self.name.rsplit_once('.').map_or(&*self.name, |(stem, _)| stem);
        let (folder, file) = stem.rsplit_once('/').unwrap_or(("", stem));
        let parts = folder.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
        let mut key: String = parts.flat_map(|part| [part, "/"]).collect();
        key.push_str(&file.replace('.', "_"));
        if key.starts_with("__") {
            key.replace_range(..1, "x");
        }
        if self.twin > 0 {
            key.push_str(&format!("~{}", self.twin));
        }
        key
    }

    /// The field that the picture goes into: its extension in lower case, `jpg` and `tif` for their other spellings.
    pub(super) fn field(&self) -> String {
        match extension(&self.name).unwrap_or_default().as_str() {
            "jpeg" | "jpe" | "jfif" => "jpg".to_owned(),
            "tiff" => "tif".to_owned(),
            other => other.to_owned(),
        }
    }
}

fn extension(name: &str) -> Option<String> {
    let file = name.rsplit('/').next()?;
    let (stem, extension) = file.rsplit_once('.')?;
    (!stem.is_empty() && !extension.is_empty()).then(|| extension.to_lowercase())
}

fn image_folder(root: &Path, fixed: Option<&[String]>) -> Result<Pictures, DatasetError> {
    let mut found = Pictures { root: root.to_owned(), ..Default::default() };
    let folders = entries(root)?.into_iter().filter(|(_, folder)| *folder).map(|(name, _)| name);
    let folders: Vec<String> = folders.collect();
    found.classes = fixed.map_or_else(|| folders.clone(), <[_]>::to_vec);
    let classes = found.classes.clone();
    let numbers = numbers(&classes);
    for folder in folders {
        let number = *numbers.get(folder.as_str()).ok_or_else(|| unknown_class(&root.join(&folder), &folder))?;
        walk(&mut found, &folder, number, 1)?;
    }
    Ok(found)
}

fn walk(found: &mut Pictures, folder: &str, label: i64, depth: usize) -> Result<(), DatasetError> {
    if depth > MAX_DEPTH {
        return Err(wrong(&found.root.join(folder), "lies too deep, or is a link to a folder around it"));
    }
    for (name, is_folder) in entries(&found.root.join(folder))? {
        let name = format!("{folder}/{name}");
        if is_folder {
            walk(found, &name, label, depth + 1)?;
        } else if extension(&name).is_some_and(|extension| PICTURES.contains(&&*extension)) {
            found.pictures.push(Picture { name: name.into(), twin: 0, label: Some(label) });
        } else {
            found.skipped_files += u64::from(extension(&name).as_deref() != Some("xml"));
        }
    }
    Ok(())
}

/// Names in a folder, sorted, and whether each is a folder. Hidden ones are left out.
fn entries(folder: &Path) -> Result<Vec<(String, bool)>, DatasetError> {
    let fail = |error: std::io::Error| wrong(folder, &format!("cannot be read: {error}"));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|_| wrong(&entry.path(), "has a name that is not UTF-8"))?;
        if !name.starts_with('.') {
            let metadata = std::fs::metadata(entry.path());
            let metadata = metadata.map_err(|error| wrong(&entry.path(), &format!("cannot be read: {error}")))?;
            names.push((name, metadata.is_dir()));
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn file_list(list: &Path, fixed: Option<&[String]>) -> Result<Pictures, DatasetError> {
    let text = std::fs::read(list).map_err(|error| wrong(list, &format!("cannot be read: {error}")))?;
    let text = std::str::from_utf8(&text).map_err(|_| wrong(list, "is not UTF-8"))?;
    let mut found = Pictures { root: list.parent().unwrap_or(Path::new("")).to_owned(), ..Default::default() };
    let mut labels: Vec<(usize, &str)> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let (name, label) = text.split_once('\t').map_or((text, None), |(name, label)| (name, Some(label.trim())));
        let name = name.trim();
        if extension(name).is_none() || name.contains('\0') {
            return Err(at_line(list, line, &format!("names `{name}`, which has no extension to tell what it is")));
        }
        let unlike_the_first = !found.pictures.is_empty() && label.is_some() == labels.is_empty();
        if unlike_the_first || label.is_some_and(str::is_empty) {
            return Err(at_line(
                list,
                line,
                "has no label, or is the first with one; give one on each line or on none",
            ));
        }
        labels.extend(label.map(|label| (line, label)));
        found.pictures.push(Picture { name: name.into(), twin: 0, label: None });
    }
    let integers: Option<Vec<i64>> = labels.iter().map(|(_, label)| label.parse().ok()).collect();
    match integers {
        Some(integers) => label_by_number(&mut found, list, &labels, integers, fixed)?,
        None => label_by_class(&mut found, list, &labels, fixed)?,
    }
    Ok(found)
}

fn label_by_number(
    found: &mut Pictures,
    list: &Path,
    labels: &[(usize, &str)],
    integers: Vec<i64>,
    fixed: Option<&[String]>,
) -> Result<(), DatasetError> {
    for ((picture, number), (line, _)) in found.pictures.iter_mut().zip(integers).zip(labels) {
        let is_class = |classes: &[String]| usize::try_from(number).is_ok_and(|number| number < classes.len());
        if !fixed.is_none_or(is_class) {
            return Err(at_line(list, *line, &format!("has the label {number}, which is not the number of a class")));
        }
        picture.label = Some(number);
    }
    found.classes = fixed.map(<[_]>::to_vec).unwrap_or_default();
    Ok(())
}

fn label_by_class(
    found: &mut Pictures,
    list: &Path,
    labels: &[(usize, &str)],
    fixed: Option<&[String]>,
) -> Result<(), DatasetError> {
    let by_name = || labels.iter().map(|(_, label)| *label).collect::<BTreeSet<_>>();
    found.classes = fixed.map_or_else(|| by_name().into_iter().map(str::to_owned).collect(), <[_]>::to_vec);
    let numbers = numbers(&found.classes);
    for (picture, (line, label)) in found.pictures.iter_mut().zip(labels) {
        let unknown = || at_line(list, *line, &format!("has the class `{label}`, which is not among the given ones"));
        picture.label = Some(*numbers.get(label).ok_or_else(unknown)?);
    }
    Ok(())
}

fn numbers(classes: &[String]) -> BTreeMap<&str, i64> {
    classes.iter().map(String::as_str).zip(0..).collect()
}

fn unknown_class(path: &Path, class: &str) -> DatasetError {
    wrong(path, &format!("is the folder of class `{class}`, which is not among the given ones"))
}

fn at_line(list: &Path, line: usize, problem: &str) -> DatasetError {
    DatasetError::Source { path: format!("{}:{line}", list.display()), problem: problem.to_owned() }
}

pub(super) fn wrong(path: &Path, problem: &str) -> DatasetError {
    DatasetError::Source { path: path.display().to_string(), problem: problem.to_owned() }
}
