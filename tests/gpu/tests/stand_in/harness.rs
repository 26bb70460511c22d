//! Runs each test in its own process, with the stand-in as its driver.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use cudarc::driver::sys;
use serde_json::Value;

/// The longest run of a test.
const LIMIT: Duration = Duration::from_secs(100);

/// Returns the path of the stand-in that was built for this test.
pub(crate) fn library() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    let found = program.ancestors().skip(1).take(2).map(|folder| folder.join("libspdl_cuda_stand_in.so"));
    let found: Vec<_> = found.filter(|path| path.exists()).collect();
    found.first().expect("the stand-in is built before this test").clone()
}

/// Runs `body` in its own process, with the stand-in's `settings`, and with `library` as its driver.
pub(crate) fn with_library(test: &str, library: Option<&Path>, settings: &str, body: impl FnOnce()) {
    if env::var("SPDL_SCENE").is_ok_and(|running| running == test) {
        thread::spawn(|| {
            thread::sleep(LIMIT);
            eprintln!("not done after {LIMIT:?}");
            std::process::abort();
        });
        body();
        return;
    }
    let home = tempfile::tempdir().expect("a temporary folder");
    if let Some(library) = library {
        for name in ["libcuda.so", "libcuda.so.1"] {
            symlink(library, home.path().join(name)).expect("a link");
        }
    }
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("LD_LIBRARY_PATH", home.path()).env("CUDA_STAND_IN", settings).env("SPDL_SCENE", test);
    let output = command.output().expect("this program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "no test `{test}` ran: {}", text(&output.stdout));
}

/// Defines a test that runs in its own process.
macro_rules! stand_in_test {
    ($name:ident, $settings:expr, $body:block) => {
        #[test]
        fn $name() {
            let test = concat!(module_path!(), "::", stringify!($name));
            let test = test.split_once("::").expect("a test is in this program").1;
            let library = $crate::harness::library();
            $crate::harness::with_library(test, Some(&library), $settings, || $body);
        }
    };
}
pub(crate) use stand_in_test;

/// Returns the stand-in's report.
#[allow(unsafe_code)]
pub(crate) fn report() -> Value {
    let mut bytes = vec![0u8; 1 << 16];
    // SAFETY: the stand-in is the driver that is loaded, and its function writes at most as many bytes as there are.
    let length = unsafe {
        let report = sys::culib().get::<unsafe extern "C" fn(*mut u8, usize) -> usize>(b"cuda_stand_in_report");
        report.expect("the stand-in is loaded")(bytes.as_mut_ptr(), bytes.len())
    };
    serde_json::from_slice(&bytes[..length]).expect("the report is JSON")
}

/// Waits until the stand-in's report satisfies `is_right`.
#[track_caller]
pub(crate) fn wait_for_report(is_right: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let report = report();
        if is_right(&report) {
            return report;
        }
        assert!(Instant::now() < until, "{report}");
        thread::yield_now();
    }
}

/// Checks that everything was released in the right order, and that nothing was used after its release.
#[track_caller]
pub(crate) fn check_clean() -> Value {
    let left = ["allocations", "host_allocations", "registrations", "handles", "retained"];
    let report = wait_for_report(|report| left.iter().all(|what| report[what] == 0));
    assert_eq!(report["wrong"].as_array().expect("a list").len(), 0, "{report}");
    report
}

/// Makes a copy of the stand-in that lacks a function.
pub(crate) fn library_without(symbol: &str, folder: &Path) -> PathBuf {
    let mut bytes = fs::read(library()).expect("the stand-in can be read");
    let name = format!("\0{symbol}\0");
    let places: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|at| bytes[*at..].starts_with(name.as_bytes())).collect();
    assert!(!places.is_empty(), "the stand-in has `{symbol}`");
    for at in places {
        bytes[at + name.len() - 2] = b'#';
    }
    let path = folder.join("libwithout.so");
    fs::write(&path, bytes).expect("a file is written");
    path
}
