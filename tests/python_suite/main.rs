//! Installs the Python package into a virtual environment as users do, and runs its tests there.

use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

use spdl_testkit::{processes::program, root, target};

/// Returns the path of the stand-in for a GPU's driver, which is built for these tests.
fn cuda_stand_in() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    let mut places = program.ancestors().skip(1).take(2).map(|folder| folder.join("libspdl_cuda_stand_in.so"));
    places.find(|path| path.exists()).expect("the stand-in is built before this test")
}

#[test]
fn the_package_installs_and_its_tests_pass() {
    let mut command = Command::new(root().join("tests/python/run"));
    command.arg("--installed").env("CARGO_TARGET_DIR", target()).stdin(Stdio::null());
    command.env("SPDL_TEST_CTL", program()).env("SPDL_TEST_CUDA_STAND_IN", cuda_stand_in());
    // Its output is not this test's, which cargo would only print after a failure: it names the tests that are skipped.
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
