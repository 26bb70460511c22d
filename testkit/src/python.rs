//! A Python with the packages that a test needs, installed once under `target/` and then reused.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{root, target};

/// Returns the Python of a virtual environment that has `requirements` (in pip's form, with pinned versions).
///
/// # Panics
/// If there is no Python 3 with `venv`, or a package cannot be installed.
pub fn python_with(requirements: &[&str]) -> PathBuf {
    let maker = root().join("tests/python/venv.py");
    let home = target().join("test-venv");
    let output = Command::new("python3")
        .arg(&maker)
        .arg(&home)
        .args(requirements)
        .stderr(Stdio::inherit())
        .output()
        .expect("the tests need python3 on the path");
    assert!(output.status.success(), "{} for {requirements:?}: {}", maker.display(), output.status);
    let path = String::from_utf8(output.stdout).expect("the path of a Python is UTF-8");
    PathBuf::from(path.trim_end())
}

/// Runs one of our scripts with `python` and returns the JSON value that it prints.
///
/// # Panics
/// If the script fails or prints something else.
pub fn run_script<S: AsRef<std::ffi::OsStr>>(
    python: &Path,
    script: &str,
    arguments: impl IntoIterator<Item = S>,
) -> serde_json::Value {
    let script = root().join(script);
    let output = Command::new(python)
        .arg(&script)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .expect("a Python that runs");
    assert!(output.status.success(), "{}: {}", script.display(), output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{}: {error}", script.display()))
}
