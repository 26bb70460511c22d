//! What tests beside programs of others have in common; those of frames take it from here, too.

use std::{fs::OpenOptions, io::Write, path::PathBuf};

/// Returns a program, or `None` where there is none.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Reports that a test cannot run here, as those of other crates do.
pub(crate) fn skipped(test: &str, reason: &str) {
    eprintln!("skipped: {reason}");
    if let Some(path) = std::env::var_os("SPDL_TEST_SKIPPED") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "skipped: {test}: {reason}").unwrap();
    }
}
