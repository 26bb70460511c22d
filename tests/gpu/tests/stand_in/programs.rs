//! Runs the program for machines with a GPU on the stand-in: it must work before it is taken to a real GPU.

use std::process::Command;

use serde_json::Value;

use crate::harness::library;

fn run(driver: bool, settings: &str) -> (bool, String) {
    let home = tempfile::tempdir().expect("a temporary folder");
    if driver {
        for name in ["libcuda.so", "libcuda.so.1"] {
            std::os::unix::fs::symlink(library(), home.path().join(name)).expect("a link");
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_spdl-gpu-tests"));
    command.arg("--quick").env("LD_LIBRARY_PATH", home.path()).env("CUDA_STAND_IN", settings);
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn the_program_for_a_gpu_finds_everything_right_on_the_stand_in() {
    let (is_right, text) = run(true, "delay_us=50");
    assert!(is_right, "{text}");
    assert!(
        !text.contains("WRONG") && text.contains("every byte") && text.contains("units of the last place"),
        "{text}"
    );
    let last: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    for key in ["bandwidth_ratio", "step", "step_with_kernel", "bytes_by_processor"] {
        assert!(!last["figures"][key].is_null(), "no `{key}` in {last}");
    }
}

#[test]
fn the_program_for_a_gpu_fails_where_something_is_wrong() {
    let (is_right, text) = run(true, "delay_us=0,lose_at_copy=7");
    assert!(!is_right && text.contains("LAUNCH_FAILED"), "{text}");
}

#[test]
fn the_program_for_a_gpu_is_skipped_with_the_reason_where_there_is_none() {
    let (is_right, text) = run(true, "devices=0");
    assert!(is_right && text.contains("skipped: device `cuda:0` does not exist"), "{text}");
}
