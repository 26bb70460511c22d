//! Finds libavcodec and loads it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::layout::MAJORS;

/// The most libraries that are loaded beside libavcodec because the system does not find them itself.
const MAX_BESIDE: usize = 100;

/// Where to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LibraryFolders {
    /// The one folder in which to look, if it is named.
    pub(crate) only: Option<PathBuf>,
    /// Folders of Python packages.
    pub(crate) packages: Vec<PathBuf>,
}

/// A loaded libavcodec, and what it needs.
pub(super) struct LoadedLibrary {
    /// The file, or its name if the system has found it.
    pub(super) file: PathBuf,
    /// In the order in which they are unloaded.
    pub(super) libraries: Vec<Library>,
}

/// Loads the first libavcodec that is found.
///
/// # Errors
/// Where it was looked for, and why what was there cannot be loaded.
pub(super) fn load(folders: &LibraryFolders) -> Result<LoadedLibrary, String> {
    let mut problems = Vec::new();
    if let Some(folder) = &folders.only {
        let (oldest, newest) = (MAJORS.start(), MAJORS.end());
        let none = || format!("`{}` has no file libavcodec.so.{oldest} to .{newest}", folder.display());
        return load_from(folder).unwrap_or_else(|| Err(none()));
    }
    for major in MAJORS.rev() {
        let file = PathBuf::from(format!("libavcodec.so.{major}"));
        match open(&file) {
            Ok(library) => return Ok(LoadedLibrary { file, libraries: vec![library] }),
            // It is there, and something that it needs is not.
            Err(problem) if !problem.starts_with(&*file.to_string_lossy()) => problems.push(problem),
            Err(_) => {}
        }
    }
    for folder in &folders.packages {
        match load_from(&folder.join("av.libs")) {
            Some(Ok(loaded)) => return Ok(loaded),
            Some(Err(problem)) => problems.push(problem),
            None => {}
        }
    }
    let packages = match &*folders.packages {
        [] => String::new(),
        [folder] => format!(", and no PyAV in `{}`", folder.display()),
        [folder, ..] => {
            format!(", and no PyAV in `{}` and {} more folders", folder.display(), folders.packages.len() - 1)
        }
    };
    let none = format!("the system has no libavcodec.so.{} to .{}{packages}", MAJORS.start(), MAJORS.end());
    Err(if problems.is_empty() { none } else { problems.join("; ") })
}

/// Loads the newest libavcodec of a folder; `None` if it has none.
fn load_from(folder: &Path) -> Option<Result<LoadedLibrary, String>> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let mut found: Vec<_> = entries.filter_map(|file| Some((major(file.file_name()?)?, file))).collect();
    found.sort();
    let file = found.pop()?.1;
    Some(load_with_neighbours(file, folder))
}

/// Loads a library. Those of its folder that it needs are loaded first where the system does not find them: some packages of PyAV
/// expect that a variable of the environment names the folder.
fn load_with_neighbours(file: PathBuf, folder: &Path) -> Result<LoadedLibrary, String> {
    let mut libraries = Vec::new();
    let mut pending = vec![file.clone()];
    while let Some(next) = pending.last() {
        match open(next) {
            Ok(library) => {
                libraries.push(library);
                pending.pop();
            }
            Err(problem) => {
                let missing = problem.split_once(": cannot open shared object file").map(|(name, _)| folder.join(name));
                match missing.filter(|missing| missing.is_file() && !pending.contains(missing)) {
                    Some(missing) if libraries.len() < MAX_BESIDE => pending.push(missing),
                    _ => return Err(format!("`{}` cannot be loaded: {problem}", file.display())),
                }
            }
        }
    }
    libraries.reverse();
    Ok(LoadedLibrary { file, libraries })
}

/// Returns the major version in the name of a libavcodec, such as `libavcodec.so.61` or `libavcodec-6f7d2a3b.so.61.19.100`, if it is
/// a known one.
fn major(name: &OsStr) -> Option<u32> {
    let (start, version) = name.to_str()?.split_once(".so.")?;
    let hash = start.strip_prefix("libavcodec")?;
    let major = version.split('.').next()?.parse().ok()?;
    ((hash.is_empty() || hash.starts_with('-')) && MAJORS.contains(&major)).then_some(major)
}

fn open(file: &Path) -> Result<Library, String> {
    // Symbols stay out of sight of other libraries, which may have another version of the same.
    // SAFETY: libraries of FFmpeg, and those that it needs, have initialisers that may run at any time.
    unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| words(&error))
}

/// Returns what the loader of the system says.
fn words(error: &libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_packages_is_looked_into() {
        let system = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
        // Under an emulator, the libraries are those of another processor.
        let system = system.filter(|folder| folder.to_string_lossy().contains(std::env::consts::ARCH));
        let in_folder =
            |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut files = system.flat_map(in_folder);
        let Some(file) = files.find(|file| file.file_name().and_then(major).is_some()) else {
            eprintln!("skipped: the system has no libavcodec");
            return;
        };
        let packages = tempfile::tempdir().unwrap();
        assert!(load_from(&packages.path().join("av.libs")).is_none());
        let folder = packages.path().join("av.libs");
        fs::create_dir(&folder).unwrap();
        // The newest one is taken, and what is no library is named.
        let major = major(file.file_name().unwrap()).unwrap();
        let found = folder.join(format!("libavcodec-0123abcd.so.{major}.1.100"));
        std::os::unix::fs::symlink(&file, &found).unwrap();
        fs::write(folder.join("libavcodec.so.58"), "").unwrap();
        assert_eq!(load_from(&folder).unwrap().map_err(drop).unwrap().file, found);
        fs::write(folder.join("libavcodec.so.63"), "").unwrap();
        let problem = load_from(&folder).unwrap().map(|_| ()).unwrap_err();
        assert!(problem.contains("libavcodec.so.63` cannot be loaded"), "{problem}");
    }

    #[test]
    fn names_of_files_say_the_version() {
        for (name, expected) in [
            ("libavcodec.so.59", Some(59)),
            ("libavcodec.so.63.0.100", Some(63)),
            ("libavcodec-6f7d2a3b.so.61.19.100", Some(61)),
            ("libavcodec.so", None),
            ("libavcodec.so.58", None),
            ("libavcodec.so.64", None),
            ("libavcodecs.so.60", None),
            ("libavutil.so.60", None),
        ] {
            assert_eq!(major(OsStr::new(name)), expected, "{name}");
        }
    }
}
