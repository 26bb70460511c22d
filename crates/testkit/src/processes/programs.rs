//! The programs that tests start, built when the first of them asks.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use crate::{root, target};

/// Returns the path of `spdl-ctl`. The first call in a process has cargo build it.
///
/// # Panics
/// If it cannot be built.
pub fn program() -> PathBuf {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built("spdl-cli", "spdl-ctl"));
    PROGRAM.clone()
}

/// Returns the path of the worker in `examples/own-worker`, which has a function in Rust. The first call in a process has
/// cargo build it.
///
/// # Panics
/// If it cannot be built.
pub fn own_worker() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built("own-worker", "own-worker"));
    &PROGRAM
}

/// Builds a program with the running test's profile, and returns its path. Cargo builds no programs of other packages for
/// a test, and a test must never run an older program than the sources; where cargo has nothing to do, it takes less than a second. Cargo
/// releases the lock of its build directory before it runs tests.
fn built(package: &str, name: &str) -> PathBuf {
    let test = env::current_exe().expect("this program has a path");
    let folder = test.ancestors().nth(2).expect("a test lies in the folder of a profile");
    let profile = match folder.file_name().expect("a profile has a folder").to_str() {
        Some("debug") => "dev",
        profile => profile.expect("the name of a profile is UTF-8"),
    };
    let mut build = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    build.args(["build", "--locked", "--package", package, "--bin", name, "--profile", profile]);
    build.arg("--target-dir").arg(target()).current_dir(root()).stdin(Stdio::null());
    let status = build.status().unwrap_or_else(|error| panic!("{build:?}: {error}"));
    assert!(status.success(), "{build:?}: {status}");
    folder.join(name)
}
