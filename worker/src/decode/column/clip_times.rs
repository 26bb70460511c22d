//! The times of a clip's frames, where a field of the record names them.

use spdl_job::VideoClip;
use spdl_shard::format::{Content, FieldValue};

use super::int::array_or_text;
use crate::decode::{
    cause::{BadSampleProblem, quoted},
    number::float_of,
    record::SampleRecord,
    sample_clip::SampleClip,
};

/// The most bytes that times have, if they are compressed.
const MAX_BYTES: u32 = 1 << 20;

/// Returns the clip of a record's sample.
pub(in crate::decode) fn sample_clip<'c>(
    clip: &'c VideoClip,
    record: &SampleRecord<'_>,
) -> Result<SampleClip<'c>, BadSampleProblem> {
    let at = clip.at.is_some().then(|| times(clip.at.as_slice(), record)).transpose()?;
    Ok(SampleClip::new(clip, at))
}

/// Returns the numbers of seconds that a record has in the field with this name.
fn times(name: &[String], record: &SampleRecord<'_>) -> Result<Vec<f64>, BadSampleProblem> {
    let (field, value) = record.first_value_of(name, MAX_BYTES)?;
    let wrong = |text: String| BadSampleProblem::NotAFloat { field: field.to_owned(), text };
    let of_text = |text: &[u8]| -> Result<Vec<f64>, BadSampleProblem> {
        let is_between = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b';' | b'[' | b']');
        let words = text.split(is_between).filter(|word| !word.is_empty());
        let number = |word| std::str::from_utf8(word).ok()?.parse().ok();
        words.map(|word| number(word).ok_or_else(|| wrong(quoted(word)))).collect()
    };
    let seconds = match value {
        FieldValue::List(texts) => {
            let texts = texts.iter().flatten().map(|text| of_text(text));
            texts.collect::<Result<Vec<_>, _>>()?.concat()
        }
        FieldValue::One(content) => match array_or_text(content, field)? {
            Content::File(text) => of_text(&text)?,
            Content::Array(array) => {
                let elements = array.elements.chunks_exact(array.dtype.bytes());
                elements.map(|element| float_of(array.dtype, element)).collect()
            }
        },
    };
    match seconds.iter().find(|second| !second.is_finite()) {
        Some(second) => Err(wrong(second.to_string())),
        None => Ok(seconds),
    }
}
