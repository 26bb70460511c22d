//! A sample of tests of one kind that take long together: each of them is ignored, and one test of their module runs some.

use std::{
    env,
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    io::{self, Write},
    process::{Command, Output, Stdio},
};

use spdl_testkit::root;

/// Runs `count` of the ignored tests of a module: others each time, and with `SPDL_TEST_DRAW` those that its value draws. All run with
/// `SPDL_TEST_ALL`, and where something in `paths` differs from the commit that a change is compared with.
#[track_caller]
pub(crate) fn run(module: &str, count: usize, paths: &[&str]) {
    let mut tests = ignored(module);
    let all = tests.len();
    assert!(count < all, "module `{module}` has {all} ignored tests");
    if env::var_os("SPDL_TEST_ALL").is_none_or(|value| value.is_empty()) && !have_changed(paths) {
        let draw =
            env::var("SPDL_TEST_DRAW").unwrap_or_else(|_| (RandomState::new().hash_one(module) % 32_768).to_string());
        tests.sort_by_cached_key(|test| {
            let mut hasher = DefaultHasher::new();
            (&draw, test).hash(&mut hasher);
            hasher.finish()
        });
        tests.truncate(count);
        let line = format!(
            "drawn: {count} of {all} tests of `{module}`: {}; with SPDL_TEST_ALL=1 all run, with SPDL_TEST_DRAW={draw} these again\n",
            tests.join(", ")
        );
        // The harness does not capture this, so it is seen where all pass.
        io::stderr().write_all(line.as_bytes()).expect("standard error can be written");
    }
    let failed: Vec<String> = tests.iter().filter_map(|test| failure(test)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Returns the names of the ignored tests of a module.
fn ignored(module: &str) -> Vec<String> {
    let listed = of_this_program(&["--list", "--ignored", "--format", "terse"]);
    let names = String::from_utf8(listed.stdout).expect("names of tests are text");
    let in_module = |line: &str| Some(line.strip_suffix(": test")?.to_owned()).filter(|name| name.starts_with(module));
    names.lines().filter_map(in_module).collect()
}

/// Whether one of the files at these paths, or below them, differs.
fn have_changed(paths: &[&str]) -> bool {
    let changed = Command::new(root().join(".ci/changed")).args(paths).current_dir(root()).output();
    !changed.expect("`.ci/changed` runs").stdout.is_empty()
}

/// Runs an ignored test, and returns what it has printed if it failed.
fn failure(test: &str) -> Option<String> {
    let Output { status, stdout, stderr } = of_this_program(&[test, "--exact", "--ignored", "--nocapture"]);
    let stdout = String::from_utf8_lossy(&stdout);
    let has_passed = status.success() && stdout.contains("test result: ok. 1 passed");
    (!has_passed).then(|| format!("`{test}` failed, {status}:\n{stdout}{}", String::from_utf8_lossy(&stderr)))
}

fn of_this_program(arguments: &[&str]) -> Output {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}
