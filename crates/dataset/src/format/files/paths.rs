//! The paths of files in a table, from the place that they are relative to.

use std::path::{Component, Path, PathBuf};

use spdl_shard::manifest::is_relative_path;

/// What the paths of a table are relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathBase {
    /// The dataset's folder.
    Dataset,
    /// The table's own folder, as NeMo's manifests have it.
    Table,
    /// The folder `clips` beside the table, as Common Voice has it.
    Clips,
}

/// Makes the paths of a table relative to the dataset's folder.
#[derive(Debug)]
pub(super) struct TablePaths {
    /// The dataset's folder as it was given and without links; `None` if it is in a store.
    dataset: Option<[PathBuf; 2]>,
    /// The folder that the table lies in, without links.
    table: PathBuf,
    /// Whether the dataset's folder is called `clips`.
    is_clips: bool,
}

/// The folder of Common Voice's sounds.
const CLIPS: &str = "clips";

impl TablePaths {
    /// Of a table in the folder `table`, for the dataset at the path or URL `dataset`.
    pub(super) fn new(table: &Path, dataset: &str) -> Self {
        let path = match dataset.split_once("://") {
            None => Some(dataset),
            Some(("file", path)) => Some(path),
            Some(_) => None,
        };
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| absolute(path));
        let dataset_folder = path.map(|path| [absolute(Path::new(path)), real(Path::new(path))]);
        let table = if table.as_os_str().is_empty() { Path::new(".") } else { table };
        let is_clips = dataset.trim_end_matches('/').rsplit('/').next() == Some(CLIPS);
        Self { dataset: dataset_folder, table: real(table), is_clips }
    }

    /// Returns a path of the table relative to the dataset's folder, or what is wrong with it.
    pub(super) fn resolve(&self, base: PathBase, path: &str) -> Result<String, String> {
        let outside = || {
            let shown = path.escape_debug();
            match path.starts_with('/') {
                true => format!(
                    "names `{shown}`, which is not inside the dataset's folder; index a folder that has all of the files"
                ),
                false => format!("names `{shown}`, which is not a path inside the dataset's folder"),
            }
        };
        let plain = |path: &str| {
            let path = path.strip_prefix("./").unwrap_or(path);
            if is_relative_path(path) { Ok(path.to_owned()) } else { Err(outside()) }
        };
        let from = match (base, &self.dataset) {
            _ if path.starts_with('/') => PathBuf::from(path),
            (PathBase::Table, Some(_)) => self.table.join(path),
            (PathBase::Clips, Some(_)) => self.table.join(CLIPS).join(path),
            (PathBase::Clips, None) if !self.is_clips => return plain(&format!("{CLIPS}/{path}")),
            _ => return plain(path),
        };
        let from = without_dots(&from);
        let folders = self.dataset.iter().flatten();
        let inside = folders.filter_map(|folder| from.strip_prefix(folder).ok()?.to_str()).next();
        inside.filter(|inside| is_relative_path(inside)).map(str::to_owned).ok_or_else(outside)
    }
}

/// Returns an absolute path without the parts `.` and `..`.
fn without_dots(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(result.pop()),
            part => result.push(part),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_inside_the_dataset_whatever_they_are_relative_to() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("corpus/lists")).unwrap();
        std::fs::create_dir_all(root.join("corpus/clips")).unwrap();
        std::os::unix::fs::symlink(root.join("corpus"), root.join("link")).unwrap();
        let at = |dataset: &str| root.join(dataset).to_str().unwrap().to_owned();
        let absolute = at("corpus/wav/a.wav");
        for (table, dataset, base, path, expected) in [
            ("corpus/lists", "corpus", PathBase::Dataset, "./wav/a.wav", Some("wav/a.wav")),
            ("corpus/lists", "corpus", PathBase::Dataset, "../wav/a.wav", None),
            ("corpus/lists", "corpus", PathBase::Table, "../wav/a.wav", Some("wav/a.wav")),
            ("corpus/lists", "corpus", PathBase::Table, "a.wav", Some("lists/a.wav")),
            ("corpus/lists", "corpus", PathBase::Table, "../../a.wav", None),
            ("corpus/lists", "link", PathBase::Table, "../wav/a.wav", Some("wav/a.wav")),
            ("corpus/lists", "corpus", PathBase::Dataset, &absolute, Some("wav/a.wav")),
            ("corpus/lists", "link", PathBase::Table, &at("link/wav/a.wav"), Some("wav/a.wav")),
            ("corpus/lists", "corpus/lists", PathBase::Table, &absolute, None),
            ("corpus", "corpus", PathBase::Clips, "a.mp3", Some("clips/a.mp3")),
            ("corpus", "corpus/clips", PathBase::Clips, "a.mp3", Some("a.mp3")),
            ("corpus", "corpus", PathBase::Table, ".", None),
        ] {
            let found = TablePaths::new(&root.join(table), &at(dataset)).resolve(base, path);
            assert_eq!(found.as_deref().ok(), expected, "{path} in {dataset}: {found:?}");
        }
        let stored = |dataset, base, path| TablePaths::new(&root, dataset).resolve(base, path);
        assert_eq!(stored("s3://bucket/cv", PathBase::Clips, "a.mp3").unwrap(), "clips/a.mp3");
        assert_eq!(stored("s3://bucket/cv/clips/", PathBase::Clips, "a.mp3").unwrap(), "a.mp3");
        assert_eq!(stored("s3://bucket/cv", PathBase::Table, "wav/a.mp3").unwrap(), "wav/a.mp3");
        assert!(
            stored("s3://bucket/cv", PathBase::Table, "/a.mp3").unwrap_err().contains("index a folder that has all")
        );
    }
}
