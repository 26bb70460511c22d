//! The part of a file that is the sound of a sample, where fields of the record name it.

use std::ops::Range;

use spdl_job::AudioSpan;
use spdl_shard::format::Content;

use super::int::{array_or_text, check_one_number};
use crate::decode::{
    cause::{BadSampleProblem, quoted},
    number::float_of,
    record::{SampleRecord, one_value},
};

/// How far a sound may end beyond the end of its file, in seconds: what lists say is rounded, or was measured on another copy. It
/// then ends with the file. Kaldi's `extract-segments` allows as much.
const OVERSHOOT_SECONDS: f64 = 0.5;
/// The most bytes that a number of seconds has, if it is compressed.
const MAX_BYTES: u32 = 4096;

/// Returns the frames that are the sound of a record, of a file with `all` frames, of which `rate` are a second of the file.
pub(super) fn frames(
    span: &AudioSpan,
    record: &SampleRecord<'_>,
    all: u64,
    rate: f64,
) -> Result<Range<u64>, BadSampleProblem> {
    let wrong = |field: &str, problem: String| BadSampleProblem::Span { field: field.to_owned(), problem };
    let frames_of = |seconds: f64| (seconds * rate).round() as u64;
    let has = all as f64 / rate;
    let mut found = 0..all;
    if let Some((field, start)) = number(span.start.as_ref(), record)? {
        found.start = frames_of(start);
        if start < 0.0 || found.start >= all {
            return Err(wrong(field, format!("begins the sound at {start} seconds, and the file has {has}")));
        }
    }
    if let Some((field, seconds)) = number(span.seconds.as_ref(), record)? {
        let end = found.start.saturating_add(frames_of(seconds));
        if end <= found.start {
            return Err(wrong(field, format!("is {seconds} seconds, less than a frame of {rate} Hz")));
        }
        if end > all.saturating_add(frames_of(OVERSHOOT_SECONDS)) {
            let ends = end as f64 / rate;
            return Err(wrong(field, format!("ends the sound at {ends} seconds, and the file has {has}")));
        }
        found.end = end.min(all);
    }
    Ok(found)
}

/// Returns the number that a record has in a field, with the field's name; `None` if no field is named, or its text is empty.
fn number<'f>(
    field: Option<&'f String>,
    record: &SampleRecord<'_>,
) -> Result<Option<(&'f str, f64)>, BadSampleProblem> {
    let Some(field) = field else { return Ok(None) };
    let (field, value) = record.first_value_of(std::slice::from_ref(field), MAX_BYTES)?;
    let number = match array_or_text(one_value(field, value)?, field)? {
        Content::Array(array) => {
            check_one_number(&array, field)?;
            let number = float_of(array.dtype, &array.elements);
            (Some(number), number.to_string())
        }
        Content::File(text) if text.trim_ascii().is_empty() => return Ok(None),
        Content::File(text) => {
            let number = std::str::from_utf8(text.trim_ascii()).ok();
            (number.and_then(|number| number.parse().ok()), quoted(&text))
        }
    };
    match number {
        (Some(number), _) if f64::is_finite(number) => Ok(Some((field, number))),
        (_, text) => Err(BadSampleProblem::NotAFloat { field: field.to_owned(), text }),
    }
}
