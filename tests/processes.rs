//! Tests of whole clusters: real processes, sockets and files, faults, and other software.

mod arguments;
mod chaos;
mod cli;
mod cluster;
mod drawn;
mod etcd;
mod hostile;
mod interop;
mod memory;
mod monitoring;
mod page;
mod storage;

use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

use spdl_testkit::{processes::program, root, target};

// Counts each thread for itself, so that tests that run at the same time do not see each other.
#[global_allocator]
static HEAP: spdl_fuzz_targets::heap::CountingAllocator = spdl_fuzz_targets::heap::CountingAllocator;

/// Returns the path of the stand-in for a GPU's driver, which is built for these tests.
fn cuda_stand_in() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    let mut places = program.ancestors().skip(1).take(2).map(|folder| folder.join("libspdl_cuda_stand_in.so"));
    places.find(|path| path.exists()).expect("the stand-in is built before this test")
}

// The harness begins with the first name, and this test takes longest.
#[test]
fn all_tests_of_the_python_package_pass_where_it_is_installed_as_by_users() {
    let mut command = Command::new(root().join("tests/python/run"));
    command.arg("--installed").env("CARGO_TARGET_DIR", target()).stdin(Stdio::null());
    command.env("SPDL_TEST_CTL", program()).env("SPDL_TEST_CUDA_STAND_IN", cuda_stand_in());
    // Its output is not this test's, which cargo would only print after a failure: it names the tests that are skipped.
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
