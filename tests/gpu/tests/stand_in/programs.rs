//! Runs the program for machines with a GPU on the stand-in: it must work before it is taken to a real GPU.

use std::{env, fs, os::unix::fs::PermissionsExt, process::Command};

use serde_json::Value;

use crate::harness::library;

/// Runs the program with these options; returns whether it succeeded, its output, and the JSON in the output's last
/// line.
fn run(options: &[&str], settings: &str) -> (bool, String, Value) {
    run_beside("", options, settings)
}

/// As [`run`], with a shell script as `compute-sanitizer`.
fn run_beside(sanitizer: &str, options: &[&str], settings: &str) -> (bool, String, Value) {
    let home = tempfile::tempdir().expect("a temporary folder");
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::os::unix::fs::symlink(library(), home.path().join(name)).expect("a link");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_spdl-gpu-tests"));
    command.args(["run", "--quick"]).args(options);
    command.env("LD_LIBRARY_PATH", home.path()).env("CUDA_STAND_IN", settings);
    if !sanitizer.is_empty() {
        let path = home.path().join("compute-sanitizer");
        fs::write(&path, format!("#!/bin/sh\n{sanitizer}\n")).expect("a file is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode is set");
        command.env("PATH", format!("{}:{}", home.path().display(), env::var("PATH").unwrap_or_default()));
    }
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let json = text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null);
    (output.status.success(), text + &String::from_utf8_lossy(&output.stderr), json)
}

/// Returns the step of this name in the program's JSON.
fn step<'a>(json: &'a Value, name: &str) -> &'a Value {
    let steps = json["steps"].as_array().expect("a list of steps");
    steps.iter().find(|step| step["step"] == name).unwrap_or_else(|| panic!("no step `{name}` in {json}"))
}

#[test]
fn every_step_for_a_gpu_is_right_on_the_stand_in() {
    let python_steps = concat!(env!("CARGO_MANIFEST_DIR"), "/torch_check.py");
    let options = ["--require", "--minutes", "30", "--python-steps", python_steps];
    let (is_right, text, json) = run(&options, "delay_us=50,memory=100000000");
    assert!(is_right, "{text}");
    let is_elsewhere =
        |name: &str| ["torch-", "dlpack-", "compute-"].into_iter().any(|prefix| name.starts_with(prefix));
    for step in json["steps"].as_array().expect("a list of steps") {
        let (name, outcome) = (step["step"].as_str().unwrap(), step["outcome"].as_str().unwrap());
        // Timings mean nothing here. No library of Python's works with the stand-in.
        let is_right = if is_elsewhere(name) { outcome == "skipped" } else { ["ok", "below"].contains(&outcome) };
        assert!(is_right && !step["words"].as_str().unwrap().is_empty(), "{step}");
    }
    for (name, figure) in [
        ("environment", "gpu"),
        ("ptx-cold", "four_byte_kernel_ms"),
        ("kernel", "units_of_last_place"),
        ("bandwidth-1024", "ratio"),
        ("overlap", "ratio"),
        ("overlap-kernel", "loader_ms"),
        ("launch-latency", "during_us"),
        ("growth", "largest_batch_bytes"),
    ] {
        assert!(!step(&json, name)["figures"][figure].is_null(), "no `{figure}` in {json}");
    }
    assert!(text.contains("the control tore 3 of 3") && text.contains("` cannot be used"), "{text}");
}

#[test]
fn a_step_that_fails_does_not_keep_the_next_one_from_its_result() {
    let (is_right, text, json) =
        run(&["--only", "copies-shared,environment,copies-private"], "fail=cuMemcpyHtoDAsync_v2@7:1");
    assert!(!is_right, "{text}");
    for name in ["copies-shared", "copies-private"] {
        let step = step(&json, name);
        assert_eq!(step["outcome"], "wrong", "{json}");
        assert!(step["words"].as_str().unwrap().contains("INVALID_VALUE"), "{step}");
    }
    assert_eq!((&json["wrong"], &json["ok"]), (&2.into(), &1.into()), "{json}");
}

#[test]
fn where_there_is_no_device_all_is_skipped_with_the_reason_unless_one_is_required() {
    let reason = "device `cuda:0` does not exist";
    let (is_right, text, json) = run(&[], "devices=0");
    assert!(is_right && text.starts_with("skipped: ") && text.contains(reason), "{text}");
    assert!(json["reason"].as_str().unwrap().contains(reason) && json["steps"] == serde_json::json!([]), "{json}");
    let (is_right, text, _) = run(&["--require"], "devices=0");
    assert!(!is_right && text.contains(reason), "{text}");
}

#[test]
fn the_kernels_are_wrong_where_compute_sanitizer_finds_a_fault() {
    // As the real one, it has options of its own before the program, and writes after the program has ended.
    let sanitizer = |code: &str| format!("shift 6; \"$@\" || exit 1; echo '== ERROR SUMMARY ==' ; exit {code}");
    let only = ["--only", "compute-sanitizer"];
    let (is_right, text, json) = run_beside(&sanitizer("0"), &only, "delay_us=0");
    assert!(is_right && text.contains("units of the last place"), "{text}");
    assert_eq!(step(&json, "compute-sanitizer")["outcome"], "ok");
    let (is_right, text, json) = run_beside(&sanitizer("9"), &only, "delay_us=0");
    assert!(!is_right && text.contains("exit status: 9"), "{text}");
    assert!(step(&json, "compute-sanitizer")["log"].as_str().unwrap().contains("ERROR SUMMARY"), "{json}");
}

#[test]
fn a_name_that_no_step_has_is_an_error() {
    let (is_right, text, _) = run(&["--only", "kernal"], "");
    assert!(!is_right && text.contains("there is no step `kernal`"), "{text}");
}
