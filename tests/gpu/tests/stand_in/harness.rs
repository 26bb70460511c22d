//! Runs each test in its own process, with the stand-in as its driver.

use std::{
    env, fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Mutex, Once,
        atomic::{AtomicU32, AtomicU64},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use spdl_gpu::StreamHandle;
use spdl_gpu_tests::driver;

/// The longest run of a test.
const LIMIT: Duration = Duration::from_secs(300);
/// The longest that it waits for one thing.
pub(crate) const WAIT: Duration = Duration::from_secs(100);

/// Returns the path of the stand-in that was built for this test.
pub(crate) fn library() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    let found = program.ancestors().skip(1).take(2).map(|folder| folder.join("libspdl_cuda_stand_in.so"));
    let found: Vec<_> = found.filter(|path| path.exists()).collect();
    found.first().expect("the stand-in is built before this test").clone()
}

/// Runs `body` in its own process, with the stand-in's `settings`, and with `library` as its driver.
pub(crate) fn with_library(test: &str, library: &Path, settings: &str, body: impl FnOnce()) {
    with_files(test, &[("libcuda.so", library), ("libcuda.so.1", library)], settings, body);
}

/// Runs `body` in its own process, with the stand-in's `settings`, and with these files as the driver's.
pub(crate) fn with_files(test: &str, files: &[(&str, &Path)], settings: &str, body: impl FnOnce()) {
    let Some(output) = run_in_process(test, files, settings, body) else { return };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "no test `{test}` ran: {}", text(&output.stdout));
}

/// Runs `body` in its own process, as `with_files` does, and returns how the process ended. Returns `None` in that
/// process.
pub(crate) fn run_in_process(
    test: &str,
    files: &[(&str, &Path)],
    settings: &str,
    body: impl FnOnce(),
) -> Option<Output> {
    if env::var("SPDL_SCENE").is_ok_and(|running| running == test) {
        thread::spawn(|| {
            thread::sleep(LIMIT);
            eprintln!("not done after {LIMIT:?}");
            std::process::abort();
        });
        body();
        return None;
    }
    let home = tempfile::tempdir().expect("a temporary folder");
    for (name, library) in files {
        symlink(library, home.path().join(name)).expect("a link");
    }
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("LD_LIBRARY_PATH", home.path()).env("CUDA_STAND_IN", settings).env("SPDL_SCENE", test);
    Some(command.output().expect("this program starts"))
}

/// Defines a test that runs in its own process.
macro_rules! stand_in_test {
    ($name:ident, $settings:expr, $body:block) => {
        #[test]
        fn $name() {
            let test = concat!(module_path!(), "::", stringify!($name));
            let test = test.split_once("::").expect("a test is in this program").1;
            let library = $crate::harness::library();
            $crate::harness::with_library(test, &library, $settings, || $body);
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
        let report = driver::library().get::<unsafe extern "C" fn(*mut u8, usize) -> usize>(b"cuda_stand_in_report");
        report.expect("the stand-in is loaded")(bytes.as_mut_ptr(), bytes.len())
    };
    serde_json::from_slice(&bytes[..length]).expect("the report is JSON")
}

/// Returns the log of this process from the first call on.
pub(crate) fn log() -> String {
    static TEXT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    static START: Once = Once::new();
    struct ToText;
    impl io::Write for ToText {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            TEXT.lock().expect("no thread panics with the log").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    START.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| ToText).init());
    String::from_utf8(TEXT.lock().expect("no thread panics with the log").clone()).expect("a log is text")
}

/// Makes all copies that have not begun wait, or go on.
#[allow(unsafe_code)]
pub(crate) fn pause_copies(is_paused: bool) {
    // SAFETY: the stand-in is the driver that is loaded, and its function may be called at any time.
    let code = unsafe {
        let pause = driver::library().get::<unsafe extern "C" fn(i32) -> u32>(b"cuda_stand_in_pause_copies");
        pause.expect("the stand-in is loaded")(i32::from(is_paused))
    };
    assert_eq!(code, 0);
}

/// Keeps a stream busy until `until` is not zero, like a kernel that waits for another process.
#[allow(unsafe_code)]
pub(crate) fn hold(stream: StreamHandle, until: &'static AtomicU32) {
    // SAFETY: the stand-in is the driver that is loaded, the number stays valid, and the stream's context is current on
    // this thread.
    let code = unsafe {
        let hold = driver::library().get::<unsafe extern "C" fn(usize, *mut u32) -> u32>(b"cuda_stand_in_hold");
        hold.expect("the stand-in is loaded")(stream.as_raw(), until.as_ptr())
    };
    assert_eq!(code, 0);
}

/// Queues a digest of device memory on a stream. The result is in `to` when the stream has passed it.
#[allow(unsafe_code)]
pub(crate) fn digest(stream: StreamHandle, from: u64, bytes: usize, to: &'static AtomicU64) {
    // SAFETY: the stand-in is the driver that is loaded, the number stays valid, and the stream's context is current on
    // this thread.
    let code = unsafe {
        let digest =
            driver::library().get::<unsafe extern "C" fn(usize, u64, usize, *mut u64) -> u32>(b"cuda_stand_in_digest");
        digest.expect("the stand-in is loaded")(stream.as_raw(), from, bytes, to.as_ptr())
    };
    assert_eq!(code, 0);
}

/// Waits until the stand-in's report satisfies `is_right`.
#[track_caller]
pub(crate) fn wait_for_report(is_right: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + WAIT;
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
