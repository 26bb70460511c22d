//! A Python with the packages that a test needs, installed once under `target/` and then reused.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{root, target};

/// The packages whose writers and readers the tests compare ours with. Their other dependencies, for clouds and
/// frameworks, are not installed.
const PACKAGES: &[&str] = &[
    "--no-deps",
    "anyio==4.16.0",
    "array_record==0.8.6",
    "braceexpand==0.1.7",
    "brotli==1.2.1",
    "certifi==2026.10.19.post1",
    "click==8.5.1",
    "cramjam==2.14.0",
    "crc32c==2.9.post0",
    "datasets==5.2.0",
    "dill==0.4.1",
    "filelock==4.3.1",
    "fsspec==2026.9.0",
    "h11==0.16.0",
    "hf-xet==1.8.0",
    "httpcore2==2.16.2",
    "httpx2==2.16.2",
    "huggingface_hub==2.4.0",
    "idna==3.20",
    "mosaicml-streaming==0.13.0",
    "multiprocess==0.70.19",
    "numpy==2.4.6",
    "packaging==26.4",
    "pandas==3.1.1",
    "pillow==13.0.0",
    "protobuf==7.36.2",
    "pyarrow==26.0.1",
    "python-dateutil==4.0.0",
    "python-snappy==0.7.3",
    "pyyaml==6.0.4",
    "six==1.17.0",
    "tfrecord==1.14.6",
    "tqdm==4.70.1",
    "truststore==0.10.5",
    "typing_extensions==4.16.0",
    "webdataset==1.0.2",
    "xxhash==4.1.0",
    "zstd==1.5.7.2",
];

/// Returns the Python of a virtual environment with packages that write and read datasets, NumPy and Pillow.
///
/// # Panics
/// If there is no Python 3 with `venv`, or a package cannot be installed.
pub fn python() -> PathBuf {
    let maker = root().join("tests/python/venv.py");
    let home = target().join("test-venv");
    let output = Command::new("python3")
        .arg(&maker)
        .arg(&home)
        .args(PACKAGES)
        .stderr(Stdio::inherit())
        .output()
        .expect("the tests need python3 on the path");
    assert!(output.status.success(), "{}: {}", maker.display(), output.status);
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
