//! Helpers that the tests and benchmarks of several crates share: real processes, stores and disks that fail on
//! purpose, an S3 server, programs of Debian's packages such as etcd, and Python.
//!
//! It depends on no crate whose unit tests use it.

pub mod arguments;
mod background;
pub mod browser;
pub mod certs;
pub mod debian;
pub mod disk;
pub mod etcd;
pub mod home;
pub mod http;
pub mod hub;
pub mod ports;
pub mod processes;
pub mod proxy;
pub mod python;
pub mod s3;
pub mod stored;
pub mod terminal;
pub mod tokens;
pub mod udp_link;

use std::{
    env, fmt,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// A time limit that no test reaches: it only matters when something hangs.
pub const LONG: Duration = Duration::from_secs(300);

/// Reports that the running test cannot run here: on standard error, and in the file that the variable `SPDL_TEST_SKIPPED`
/// names, from which CI lists what was skipped.
///
/// # Panics
/// If that file cannot be written.
pub fn skipped(reason: impl fmt::Display) {
    eprintln!("skipped: {reason}");
    let Some(path) = env::var_os("SPDL_TEST_SKIPPED") else { return };
    let current = thread::current();
    // The harness gives a test's thread the name of the test. One write, since other tests append to the file too.
    let line = format!("skipped: {}: {reason}\n", current.name().unwrap_or("a test"));
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the list of skipped tests opens");
    file.write_all(line.as_bytes()).expect("the list of skipped tests can be written");
}

/// Returns the median of the rounds of a measurement.
///
/// # Panics
/// If there is none.
pub fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// Returns the root of the repository.
///
/// # Panics
/// Never: this crate is in a folder of it.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate is two folders below the repository")
}

/// Returns the folder that cargo builds into.
///
/// # Panics
/// If the running test lies in no such folder.
pub fn target() -> PathBuf {
    let test = env::current_exe().expect("this program has a path");
    test.ancestors().nth(3).expect("a test lies in a build directory").to_owned()
}
