//! The errors of a sample whose bytes are right but cannot be decoded.

use spdl_feed::BadSampleKind;
use spdl_job::{OperationProblem, PictureList};
use spdl_pixels::{PictureError, PictureLimits};
use spdl_shard::format::NotOneValue;

/// Maximum bytes of a sample's own text that an error quotes.
const QUOTED_BYTES: usize = 40;
/// Maximum bytes of a decoder's message that an error repeats.
const REASON_BYTES: usize = 200;

/// What comes of writing a value into its place.
pub(super) type ValueResult = Result<(), BadSampleProblem>;

/// Returns the problem of boxes in a field.
pub(super) fn wrong_boxes(field: &str, problem: impl std::fmt::Display) -> BadSampleProblem {
    BadSampleProblem::Boxes { field: field.to_owned(), problem: reason(problem) }
}

/// The error of a sample that cannot be decoded as the job requires. A retry gives the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column `{column}`: {problem}")]
pub struct BadSampleCause {
    /// Name of the column.
    pub column: String,
    /// What is wrong with it.
    pub problem: BadSampleProblem,
}

impl BadSampleCause {
    /// Returns the kind of the fault, without the details of this sample, so that equal faults of several samples have equal
    /// kinds. `has_good`: whether the feed has decoded any good sample.
    pub(crate) fn kind(&self, has_good: bool) -> BadSampleKind {
        let question = if has_good { None } else { self.question() };
        BadSampleKind::new(self.kind_text(), question)
    }

    /// Returns the question that the user is asked if all samples are like this one: whether a key of the column is wrong.
    fn question(&self) -> Option<String> {
        let column = &self.column;
        match &self.problem {
            BadSampleProblem::Missing { fields, there } => {
                let there = its_fields(there);
                Some(format!("no sample so far has {fields}: check `from` of column `{column}`{there}"))
            }
            BadSampleProblem::NothingAt { field, path, wanted, found } => Some(format!(
                "field `{field}` of no sample so far has a {wanted} at `{path}`: check `path` of column `{column}`; there is {found}"
            )),
            BadSampleProblem::NameUnknown { field, name } => Some(format!(
                "field `{field}` of no sample so far has a name that column `{column}` lists: check `names`, or the dataset's classes; it has \"{name}\""
            )),
            BadSampleProblem::Token { field, problem } => Some(format!(
                "field `{field}` of no sample so far has only ids that column `{column}` takes: check `vocab` and `dtype`; it {problem}"
            )),
            _ => None,
        }
    }

    fn kind_text(&self) -> String {
        let Self { column, problem } = self;
        let (problem, of_list) = match problem {
            BadSampleProblem::InList { problem, .. } => (&**problem, "in a list, "),
            problem => (problem, ""),
        };
        let (field, what) = match problem {
            BadSampleProblem::Missing { fields, .. } => {
                return format!("column `{column}`: {of_list}record has no field {fields}");
            }
            BadSampleProblem::Empty { .. } | BadSampleProblem::Operation(OperationProblem::BoxEmpty { .. }) => {
                return format!("column `{column}`: {of_list}{problem}");
            }
            BadSampleProblem::Function { function, .. } => {
                return format!("column `{column}`: function `{function}` fails");
            }
            BadSampleProblem::Operation(OperationProblem::TooSmall { operation, .. }) => {
                return format!("column `{column}`: {of_list}a picture is smaller than `{operation}`");
            }
            BadSampleProblem::Operation(problem) => return format!("column `{column}`: {of_list}{problem}"),
            BadSampleProblem::Null { field } => (field, "is null"),
            BadSampleProblem::NotOneValue { field, .. } => (field, "is a list, and the column takes one value"),
            BadSampleProblem::PictureCount { field, .. } => (field, "has another number of pictures than the column"),
            BadSampleProblem::InList { .. } => return format!("column `{column}`: {of_list}{problem}"),
            BadSampleProblem::TooLong { field, .. } => (field, "is too long"),
            BadSampleProblem::Truncated { field, .. } => (field, "is cut off"),
            BadSampleProblem::Undecodable { field, .. } => (field, "does not decode"),
            BadSampleProblem::TooLarge { field, .. } => (field, "is too large a picture"),
            BadSampleProblem::GrowsTooLarge { field, .. } => (field, "becomes too large a picture"),
            BadSampleProblem::TooMuchMemory { field, .. } => (field, "takes too much memory to decode"),
            BadSampleProblem::Sound { field, .. } => (field, "is no sound that the column can hold"),
            BadSampleProblem::SoundTooLong { field, .. } => (field, "is a longer sound than `max_seconds`"),
            BadSampleProblem::SoundMemory { field, .. } => (field, "takes too much memory to decode"),
            BadSampleProblem::DatasetSound { operation, dataset, .. } => {
                return format!(
                    "column `{column}`: a recording of `{dataset}` that `{operation}` takes cannot be used"
                );
            }
            BadSampleProblem::Span { field, .. } => (field, "names no part of the file"),
            BadSampleProblem::Video { field, .. } => (field, "is no video that the column can hold"),
            BadSampleProblem::Frame { field, .. } => (field, "is not the frame that its dataset says"),
            BadSampleProblem::VideoTooShort { field, .. } => (field, "is a shorter video than the clip"),
            BadSampleProblem::VideoTooLong { field, .. } => (field, "is a longer video than samples may have"),
            BadSampleProblem::VideoMemory { field, .. } => (field, "takes too much memory to decode"),
            BadSampleProblem::VideoDecoder { problem } => return format!("column `{column}`: {problem}"),
            BadSampleProblem::Boxes { field, .. } => (field, "has no boxes that the column can hold"),
            BadSampleProblem::MaskSize { field, .. } => (field, "is a mask of another size than the picture"),
            BadSampleProblem::Malformed { field, .. } => (field, "is not what its format has there"),
            BadSampleProblem::NotANumber { field, .. } => (field, "is not a whole number"),
            BadSampleProblem::NotAFloat { field, .. } => (field, "is not a number"),
            BadSampleProblem::NotABool { field, .. } => (field, "is neither true nor false"),
            BadSampleProblem::NotText { field, .. } => (field, "is not UTF-8"),
            BadSampleProblem::NameUnknown { field, .. } => (field, "has a name that the column does not list"),
            BadSampleProblem::NoSuchClass { field, .. } => (field, "has a class that the column does not have"),
            BadSampleProblem::OutOfRange { field, .. } => (field, "is out of range"),
            BadSampleProblem::Token { field, .. } => (field, "has an id that the column does not take"),
            BadSampleProblem::NotJson { field, .. } => (field, "is not JSON"),
            BadSampleProblem::NothingAt { field, .. } => (field, "has nothing that fits at its path"),
            BadSampleProblem::ClassNotListed { field, .. } => (field, "has a class that the column does not list"),
            BadSampleProblem::Annotation { field, .. } => (field, "is not a VOC annotation"),
            BadSampleProblem::BoxMissing { field, .. } => (field, "has no box"),
            BadSampleProblem::ClassUnknown { field, .. } => (field, "has a box of an unknown class"),
        };
        format!("column `{column}`: {of_list}field `{field}` {what}")
    }
}

/// Returns the names of a record's fields as words that follow a message, if they are known.
fn its_fields(there: &[String]) -> String {
    if there.is_empty() {
        return String::new();
    }
    let named = there.iter().take(FIELDS_NAMED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = if there.len() > FIELDS_NAMED { ", ..." } else { "" };
    format!("; it has {named}{more}")
}

/// Number of a record's fields that a message names.
const FIELDS_NAMED: usize = 20;

/// The fault in a field of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum BadSampleProblem {
    #[error("record has no field {fields}{}", its_fields(there))]
    Missing { fields: String, there: Vec<String> },
    #[error("field `{field}` is empty")]
    Empty { field: String },
    #[error("field `{field}` is null")]
    Null { field: String },
    #[error(
        "field `{field}` {problem}; decode = \"image\" takes lists of pictures with `max_rows`, the most of a sample, or \
         `pictures`, the number that all samples have"
    )]
    NotOneValue { field: String, problem: NotOneValue },
    #[error("field `{field}` has {pictures} pictures; `{}` is {}", .list.key(), .list.count())]
    PictureCount { field: String, pictures: usize, list: PictureList },
    #[error("picture {number} of the list, from 0: {problem}")]
    InList { number: u32, problem: Box<BadSampleProblem> },
    #[error("field `{field}` is {bytes} bytes; `max_bytes` is {max_bytes}")]
    TooLong { field: String, bytes: usize, max_bytes: u32 },
    #[error("field `{field}` is a JPEG that is cut off after {bytes} bytes")]
    Truncated { field: String, bytes: usize },
    #[error("field `{field}` does not decode: {reason}")]
    Undecodable { field: String, reason: String },
    #[error(
        "field `{field}` is a picture of {width}x{height}; the limits are {side_pixels} a side and {pixels} in all"
    )]
    TooLarge { field: String, width: u32, height: u32, side_pixels: u32, pixels: u64 },
    #[error(transparent)]
    Operation(#[from] OperationProblem),
    #[error("field `{field}` is a picture that operations make {width}x{height}; the limit is {pixels} pixels")]
    GrowsTooLarge { field: String, width: u32, height: u32, pixels: u64 },
    #[error(
        "field `{field}` is a picture of {width}x{height} that takes {needed_bytes} bytes to decode; {max_bytes} are for \
         decoding (a part of the memory budget)"
    )]
    TooMuchMemory { field: String, width: u32, height: u32, needed_bytes: u64, max_bytes: u64 },
    #[error("field `{field}` {problem}")]
    Sound { field: String, problem: String },
    #[error("field `{field}` {problem}")]
    SoundTooLong { field: String, problem: String },
    #[error(
        "field `{field}` is a sound that takes {needed_bytes} bytes to decode; {max_bytes} are for decoding (a part of the memory \
         budget)"
    )]
    SoundMemory { field: String, needed_bytes: u64, max_bytes: u64 },
    #[error("`{operation}` takes `{key}` of dataset `{dataset}`, which {problem}")]
    DatasetSound { operation: &'static str, dataset: String, key: String, problem: String },
    #[error("field `{field}` {problem}")]
    Span { field: String, problem: String },
    #[error("field `{field}` {problem}")]
    Video { field: String, problem: String },
    #[error("field `{field}` {problem}")]
    Frame { field: String, problem: String },
    #[error("field `{field}` has {frames} frames, which are fewer than those of the clip, and short = \"bad\"")]
    VideoTooShort { field: String, frames: usize },
    #[error(
        "field `{field}` has more frames than the {wanted} that a sample has at most; raise `frames` of the clip, or its stride"
    )]
    VideoTooLong { field: String, wanted: u32 },
    #[error(
        "field `{field}` is a video of {width}x{height} that takes {needed_bytes} bytes to decode; {max_bytes} are for decoding (a \
         part of the memory budget)"
    )]
    VideoMemory { field: String, width: u32, height: u32, needed_bytes: u64, max_bytes: u64 },
    #[error("{problem}")]
    VideoDecoder { problem: String },
    #[error("field `{field}` is a mask of {width}x{height}, and the picture has {picture_width}x{picture_height}")]
    MaskSize { field: String, width: u32, height: u32, picture_width: u32, picture_height: u32 },
    #[error("field `{field}` {problem}")]
    Boxes { field: String, problem: String },
    #[error("field `{field}` {problem}")]
    Malformed { field: String, problem: String },
    #[error("field `{field}` is \"{text}\", not a whole number")]
    NotANumber { field: String, text: String },
    #[error("field `{field}` is \"{text}\", not a number")]
    NotAFloat { field: String, text: String },
    #[error("field `{field}` is \"{text}\", neither `true` or `1` nor `false` or `0`")]
    NotABool { field: String, text: String },
    #[error("field `{field}` is not UTF-8 from byte {byte} on")]
    NotText { field: String, byte: usize },
    #[error("field `{field}` is \"{name}\", which is none of the column's names")]
    NameUnknown { field: String, name: String },
    #[error("field `{field}` is of class {class}; the column has {classes} classes, from 0")]
    NoSuchClass { field: String, class: i64, classes: u32 },
    #[error("field `{field}` is \"{text}\", outside the range of {dtype}")]
    OutOfRange { field: String, text: String, dtype: &'static str },
    #[error("field `{field}` {problem}")]
    Token { field: String, problem: String },
    #[error("field `{field}` is not JSON: {reason}")]
    NotJson { field: String, reason: String },
    #[error("field `{field}` has no {wanted} at `{path}`, but {found}")]
    NothingAt { field: String, path: String, wanted: &'static str, found: &'static str },
    #[error(
        "field `{field}` is of class `{class}`, which is none of the column's `classes`; a view with `where` leaves samples of other \
         classes out"
    )]
    ClassNotListed { field: String, class: String },
    #[error("field `{field}` is not a VOC annotation: {reason}")]
    Annotation { field: String, reason: String },
    #[error("field `{field}` has {boxes} boxes; the sample is number {index} from 0")]
    BoxMissing { field: String, index: u32, boxes: usize },
    #[error("field `{field}` has a box of class `{class}`, which the dataset does not list")]
    ClassUnknown { field: String, class: String },
    #[error("function `{function}` {problem}")]
    Function { function: String, problem: String },
}

/// Returns at most [`QUOTED_BYTES`] of a sample's own bytes, with unprintable ones escaped.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let shown = bytes[..bytes.len().min(QUOTED_BYTES)].escape_ascii();
    if bytes.len() > QUOTED_BYTES { format!("{shown}...") } else { shown.to_string() }
}

impl BadSampleProblem {
    /// Returns the fault of a name in a field that is none of a column's.
    pub(super) fn name_unknown(field: &str, name: &[u8]) -> Self {
        Self::NameUnknown { field: field.to_owned(), name: quoted(name) }
    }

    /// Returns the fault of a picture of `bytes` bytes in a field.
    pub(super) fn of_picture(error: PictureError, field: &str, bytes: usize, limits: PictureLimits) -> Self {
        let field = field.to_owned();
        match error {
            PictureError::Truncated => Self::Truncated { field, bytes },
            PictureError::TooLarge([width, height]) => {
                let PictureLimits { side_pixels, pixels } = limits;
                Self::TooLarge { field, width, height, side_pixels, pixels }
            }
            PictureError::Other(message) => Self::Undecodable { field, reason: reason(message) },
        }
    }
}

/// Returns a decoder's message in one line of bounded length.
pub(crate) fn reason(message: impl std::fmt::Display) -> String {
    let mut text = message.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let mut end = text.len().min(REASON_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_a_sample_is_quoted_short_and_escaped() {
        assert_eq!(quoted(b"cat"), "cat");
        assert_eq!(quoted(b"a\x1b[2J\xff"), "a\\x1b[2J\\xff");
        let long = quoted(&[b'x'; 5000]);
        assert_eq!(long, format!("{}...", "x".repeat(40)));
        assert_eq!(reason("two\n  lines"), "two lines");
        assert_eq!(reason("é".repeat(300)).len(), 200);
    }

    #[test]
    fn a_field_that_every_sample_lacks_is_an_error_with_a_question() {
        let problem = BadSampleProblem::Missing { fields: "`nofield`".into(), there: vec!["cls".into(), "jpg".into()] };
        assert_eq!(problem.to_string(), "record has no field `nofield`; it has `cls`, `jpg`");
        let cause = BadSampleCause { column: "caption".into(), problem };
        let question = "no sample so far has `nofield`: check `from` of column `caption`; it has `cls`, `jpg`";
        let text = "column `caption`: record has no field `nofield`".to_owned();
        assert_eq!(cause.kind(false), BadSampleKind::new(text.clone(), Some(question.to_owned())));
        assert_eq!(cause.kind(true), BadSampleKind::new(text, None));
    }

    #[test]
    fn a_path_or_names_that_fit_no_sample_are_questions() {
        let question = |problem| {
            let cause = BadSampleCause { column: "label".into(), problem };
            assert_eq!(cause.kind(true), BadSampleKind::new(cause.kind_text(), None));
            cause.question()
        };
        let (field, path) = ("json".to_owned(), "a.b".to_owned());
        let path = BadSampleProblem::NothingAt { field, path, wanted: "number", found: "a text" };
        let asked = question(path).unwrap();
        assert!(asked.contains("at `a.b`: check `path` of column `label`; there is a text"), "{asked}");
        let asked = question(BadSampleProblem::NameUnknown { field: "cls".into(), name: "cat".into() }).unwrap();
        assert!(
            asked.contains("column `label` lists: check `names`, or the dataset's classes; it has \"cat\""),
            "{asked}"
        );
        assert_eq!(question(BadSampleProblem::Empty { field: "cls".into() }), None);
    }

    #[test]
    fn causes_of_one_kind_differ_in_what_is_the_samples_own() {
        let kind = |bytes| {
            let problem = BadSampleProblem::Truncated { field: "jpg".into(), bytes };
            BadSampleCause { column: "image".into(), problem }.kind(true)
        };
        assert_eq!(kind(12), kind(500));
        assert_eq!(kind(12), BadSampleKind::new("column `image`: field `jpg` is cut off".to_owned(), None));
    }
}
