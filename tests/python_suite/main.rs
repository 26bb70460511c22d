//! Builds the Python package, installs it into a virtual environment as users do, and runs its tests there.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::LazyLock,
};

use spdl_testkit::{processes::program, root, target};

/// The tests of whole trainings, with torchrun and Ray. They wait more than they compute, and so run beside the others.
const TRAININGS: &[&str] = &["tests/python/test_ddp.py", "tests/python/test_objects.py", "tests/python/test_ray.py"];

/// The virtual environment of the tests.
struct Environment {
    python: PathBuf,
    /// The reason why it has no torch, if it has none.
    no_torch: Option<String>,
    /// The reason why it lacks the frameworks of the examples, if it lacks them.
    no_frameworks: Option<String>,
}

/// The environment with the package installed; created once.
static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let mut make = Command::new("python3");
    make.arg(root().join("tests/python/suite_venv.py")).arg(target().join("test-venv")).stderr(Stdio::inherit());
    let output = make.output().expect("the tests need python3 on the path");
    assert!(output.status.success(), "{make:?}: {}", output.status);
    let path = String::from_utf8(output.stdout).expect("the path of a Python is UTF-8");
    let python = PathBuf::from(path.trim_end());
    let bin = python.parent().expect("a Python is in the folder `bin` of its environment");
    let home = bin.parent().expect("a folder `bin` is in its environment");

    // Without isolation, the build uses this environment's maturin, whose program must be on `PATH`.
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([bin.to_owned()].into_iter().chain(env::split_paths(&path))).expect("no colon in it");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation"]);
    install.args(["--no-deps", "--force-reinstall"]).arg(root().join("python")).env("PATH", path);
    run(&mut install);
    let no_torch = fs::read_to_string(home.join("no-torch")).ok();
    let no_frameworks = fs::read_to_string(home.join("no-frameworks")).ok();
    Environment { python, no_torch, no_frameworks }
});

/// Returns the path of the stand-in for a GPU's driver, which is built for these tests.
fn cuda_stand_in() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    let mut places = program.ancestors().skip(1).take(2).map(|folder| folder.join("libspdl_cuda_stand_in.so"));
    places.find(|path| path.exists()).expect("the stand-in is built before this test")
}

/// Runs a command to its end and prints its output in the test's.
fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}", output.status);
}

/// Runs pytest with `arguments`.
fn pytest(arguments: &[&str]) {
    let mut command = Command::new(&ENVIRONMENT.python);
    command.args(["-m", "pytest", "-q", "-rs", "--durations=5", "-p", "no:cacheprovider"]).args(arguments);
    command.current_dir(root()).env("SPDL_TEST_CTL", program());
    command.env("SPDL_TEST_CUDA_STAND_IN", cuda_stand_in());
    if let Some(reason) = &ENVIRONMENT.no_torch {
        eprintln!("the tests with torch are skipped: {reason}");
        command.env("SPDL_TEST_NO_TORCH", reason);
    }
    if let Some(reason) = &ENVIRONMENT.no_frameworks {
        eprintln!("the tests with other frameworks are skipped: {reason}");
        command.env("SPDL_TEST_NO_FRAMEWORKS", reason);
    }
    run(&mut command);
}

#[test]
fn the_package_installs_and_its_tests_pass() {
    let ignored = TRAININGS.iter().flat_map(|file| ["--ignore", file]);
    pytest(&["tests/python"].into_iter().chain(ignored).collect::<Vec<_>>());
}

#[test]
fn trainings_that_are_killed_go_on() {
    // Without torch the whole files are skipped, which pytest reports as an error: no tests.
    if ENVIRONMENT.no_torch.is_none() {
        pytest(TRAININGS);
    }
}
