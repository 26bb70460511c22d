//! docs/spec/failures.md names a test for each failure; this test checks that those tests exist.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use spdl_testkit::root;

/// Collects all Rust files of the workspace except build outputs.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the source").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

/// Returns the names of all tests: functions right after an attribute that ends in `test`, with or without arguments.
fn tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(root(), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("source is text");
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            let function = line.trim_start_matches("async ").strip_prefix("fn ");
            match function.and_then(|rest| rest.split('(').next()) {
                Some(name) if is_test => drop(names.insert(name.to_owned())),
                _ => {}
            }
            let attribute = line.starts_with("#[test") || line.starts_with("#[tokio::test");
            is_test = attribute || is_test && line.starts_with("#[");
        }
    }
    names
}

#[test]
fn every_test_in_the_table_of_failures_exists() {
    let page = fs::read_to_string(root().join("docs/spec/failures.md")).expect("a page");
    let mut lists_tests = false;
    let mut rows = Vec::new();
    for line in page.lines() {
        lists_tests = line.starts_with('|') && (lists_tests || line.ends_with("| tests |"));
        if lists_tests && line.contains('`') {
            rows.push(line);
        }
    }
    assert!(rows.len() >= 7, "one row for each failure: {rows:?}");
    let there = tests();
    for row in rows {
        let last = row.trim_end_matches([' ', '|']).rsplit('|').next().expect("a cell");
        let named: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test is named in: {row}");
        for test in named {
            assert!(there.contains(test), "`{test}` is no test; it is named in: {row}");
        }
    }
}
