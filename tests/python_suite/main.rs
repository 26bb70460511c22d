//! The Python package, as users get it: built and installed into a virtual environment, and its own tests run there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Runs a command to its end; what it prints goes to the test's output.
fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}", output.status);
}

/// The Python of the suite's environment, and why it has no torch, where it has none.
fn environment(root: &Path) -> (PathBuf, Option<String>) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../test-venv");
    let mut command = Command::new("python3");
    command.arg(root.join("tests/python/suite_venv.py")).arg(folder).stderr(Stdio::inherit());
    let output = command.output().expect("the tests need python3 on the path");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    let path = String::from_utf8(output.stdout).expect("the path of a Python is UTF-8");
    let python = PathBuf::from(path.trim_end());
    let home = python.ancestors().nth(2).expect("a Python is in the folder bin of its environment");
    (python.clone(), fs::read_to_string(home.join("no-torch")).ok())
}

#[test]
fn the_package_installs_and_its_tests_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (python, no_torch) = environment(root);
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-build-isolation",
        "--no-deps",
    ]);
    // The environment has maturin; on its path the build finds it.
    let bin = python.parent().expect("a Python is in a folder");
    let path = std::env::join_paths(
        std::iter::once(bin.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    run(install.args(["--force-reinstall"]).arg(root.join("python")).env("PATH", path.expect("paths without colons")));

    let mut pytest = Command::new(&python);
    pytest
        .args(["-m", "pytest", "-q", "-rs", "--durations=5", "-p", "no:cacheprovider"])
        .arg(root.join("tests/python"));
    pytest.env("SPDL_TEST_CTL", env!("CARGO_BIN_EXE_spdl-ctl"));
    if let Some(reason) = no_torch {
        eprintln!("the tests with torch are skipped: {reason}");
        pytest.env("SPDL_TEST_NO_TORCH", reason);
    }
    run(&mut pytest);
}
