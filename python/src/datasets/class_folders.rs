//! Looks at a folder of class folders, so that a change of it is noticed.

use std::{
    fmt::Write as _,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use pyo3::prelude::*;
use spdl_dataset::{is_hidden, is_picture_file};
use spdl_types::Fingerprint;

use crate::errors::ErrorKind;

/// Folders inside one another: more than any data has, and few enough for the stack and for links that lead in circles.
const MAX_DEPTH: u32 = 24;

/// What a folder has: the digest of the names, sizes and times of its files, the folders in it with their number of pictures, and the number
/// of pictures in none of these.
type ScannedClasses = (String, Vec<(String, u64)>, u64);

/// Returns what a folder has. Leaves out hidden files. `salt` is part of the digest, beside the path of the folder.
#[pyfunction]
pub(crate) fn image_folder(py: Python<'_>, folder: PathBuf, salt: &str) -> PyResult<ScannedClasses> {
    let found = py.detach(|| {
        let mut classes = Vec::new();
        let (digest, pictures) = look(&folder, 0, &mut classes)?;
        let of_folders: u64 = classes.iter().map(|(_, pictures)| pictures).sum();
        let digest = Fingerprint::of(format!("{}\n{salt}\n{digest}", folder.display()).as_bytes());
        Ok((digest.to_string(), classes, pictures - of_folders))
    });
    found.map_err(|(path, error): (PathBuf, io::Error)| {
        let problem = match error.kind() {
            io::ErrorKind::NotFound => "does not exist".to_owned(),
            io::ErrorKind::NotADirectory => "is no folder".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        ErrorKind::Data.error(py, &format!("`{}` {problem}", path.display()), None)
    })
}

/// Returns the digest of a folder and the number of its pictures; `classes` gets the folders in it, by name.
fn look(
    folder: &Path,
    depth: u32,
    classes: &mut Vec<(String, u64)>,
) -> Result<(Fingerprint, u64), (PathBuf, io::Error)> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| (path, error)
    };
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(at(folder))?;
    let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !is_hidden(name));
    names.sort_unstable();
    let (mut text, mut pictures) = (String::new(), 0);
    for name in names {
        let path = folder.join(&name);
        let found = match fs::metadata(&path) {
            // A link to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found.map_err(at(&path))?,
        };
        if found.is_dir() && depth < MAX_DEPTH {
            let (digest, inside) = look(&path, depth + 1, classes)?;
            if depth == 0 {
                classes.push((name.clone(), inside));
            }
            pictures += inside;
            let _ = writeln!(text, "{name}/{digest}");
        } else if found.is_file() {
            pictures += u64::from(is_picture_file(&name));
            let _ = writeln!(text, "{name} {} {} {}", found.len(), found.mtime(), found.mtime_nsec());
        }
    }
    Ok((Fingerprint::of(text.as_bytes()), pictures))
}
