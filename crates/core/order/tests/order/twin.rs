//! The second implementation of the order, in Python.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test reads files and starts a process"
)]

use std::{
    fmt::Debug,
    io::Write,
    process::{Command, Stdio},
};

use serde::Serialize;
use serde_json::Value;

/// The folder of the second implementation, and of the golden vectors.
pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/order");

/// Returns what a program of the second implementation makes of each case.
pub(crate) fn python(program: &str, cases: &[impl Serialize]) -> Vec<Value> {
    let mut child = Command::new("python3")
        .arg("-B")
        .arg(format!("{FOLDER}/{program}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test runs `python3`; install Python 3.9 or later and put it on the PATH");
    let input = serde_json::to_vec(cases).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "`python3 tests/order/{program}` ended with {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts that a program of the second implementation makes of each case what `ours` does. Returns that.
pub(crate) fn agrees<C: Serialize + Debug>(program: &str, cases: &[C], ours: impl Fn(&C) -> Value) -> Vec<Value> {
    let twins = python(program, cases);
    assert_eq!(twins.len(), cases.len());
    let compared = |(case, twin): (&C, Value)| {
        assert_eq!(ours(case), twin, "{case:?}");
        twin
    };
    cases.iter().zip(twins).map(compared).collect()
}
