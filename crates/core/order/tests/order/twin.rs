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
    process::{Child, Command, Stdio},
};

use serde::Serialize;
use serde_json::Value;

/// The folder of the second implementation, and of the golden vectors.
pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/order");

/// Returns what a program of the second implementation makes of each case. It is slow, so two processes take half of the cases each.
pub(crate) fn python(program: &str, cases: &[impl Serialize]) -> Vec<Value> {
    let halves = cases.chunks(cases.len().div_ceil(2).max(1)).map(|half| serde_json::to_vec(half).unwrap());
    let processes: Vec<_> = halves.map(|half| (start(program), half)).collect();
    std::thread::scope(|scope| {
        let made = processes.into_iter().map(|(child, input)| scope.spawn(move || made_by(program, child, &input)));
        let made: Vec<_> = made.collect();
        made.into_iter().flat_map(|values| values.join().unwrap()).collect()
    })
}

fn start(program: &str) -> Child {
    Command::new("python3")
        .arg("-B")
        .arg(format!("{FOLDER}/{program}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test runs `python3`; install Python 3.9 or later and put it on the PATH")
}

/// Returns what a process makes of the cases that it gets. It reads all of them before it writes.
fn made_by(program: &str, mut child: Child, input: &[u8]) -> Vec<Value> {
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
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
