//! Reads the report of a run from a file that another command or a program wrote.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use serde::Deserialize;
use serde_json::Value;
use spdl_client::{REPORT_VERSION, RunReport};

use crate::ctl::CtlError;

/// The longest file that is read. A report has some 2 kB, and a file of `pull --json` a line for each batch before it.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a file: a report, or the output of a command whose last line has one.
pub(super) fn read(path: &Path) -> Result<RunReport, CtlError> {
    let failed = |source| CtlError::ReadFile { path: path.to_owned(), source };
    let mut text = String::new();
    File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(failed(io::Error::other(format!("it is longer than {MAX_BYTES} bytes, and no report is"))));
    }
    parse(&text).map_err(|problem| CtlError::NoReport { path: path.to_owned(), problem })
}

fn parse(text: &str) -> Result<RunReport, String> {
    let last = || text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let read: Value = serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(last()))
        .map_err(|error| format!("neither it nor its last line is JSON: {error}"))?;
    let report = read.get("report").unwrap_or(&read);
    match report.get("spdl_report").and_then(Value::as_u64) {
        None => return Err("it is JSON without a report".to_owned()),
        Some(version) if version != u64::from(REPORT_VERSION) => {
            return Err(format!("its report has version {version}; this program reads version {REPORT_VERSION}"));
        }
        Some(_) => {}
    }
    let report = RunReport::deserialize(report).map_err(|error| error.to_string())?;
    let figures = [report.batches_per_s, report.samples_per_s, report.waiting, report.bytes_per_sample];
    let figures = figures.into_iter().flatten().chain(report.cpu_s_per_sample.values().copied());
    if figures.chain([report.seconds, report.bad_fraction]).any(|figure| figure < 0.0) {
        return Err("a figure of its report is below 0".to_owned());
    }
    Ok(report)
}
