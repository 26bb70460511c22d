//! Reads local files: those that are packed, and the texts that list them.

use std::{
    fs::File,
    io::{self, BufReader, ErrorKind, Read as _},
    ops::Range,
    os::unix::fs::FileExt as _,
    path::Path,
};

use super::DatasetError;

/// Size of the largest file that is packed, in bytes: 1 GiB.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// What is wrong with a file whose size has changed since it was measured.
pub(crate) const CHANGED: &str = "changed while it was packed";
/// The mark that some editors put in front of UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Returns the size of a file in bytes; `None` if there is no such file. Pipes and devices are errors, because reading
/// them may never end.
pub(super) fn file_bytes(path: &Path) -> Result<Option<u64>, DatasetError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(Some(metadata.len())),
        Ok(_) => Err(wrong(path, "is not a regular file")),
        Err(error) => missing(path, &error),
    }
}

/// Returns the size of a file that is packed; see [`file_bytes`].
pub(super) fn packable_bytes(path: &Path) -> Result<Option<u64>, DatasetError> {
    file_bytes(path)?.map(|bytes| check_length(path, bytes)).transpose()
}

/// Refuses a file that is too long to be packed.
pub(super) fn check_length(path: &Path, bytes: u64) -> Result<u64, DatasetError> {
    if bytes > MAX_FILE_BYTES { Err(too_long(path)) } else { Ok(bytes) }
}

/// Returns a file's content; `None` if there is no such file.
pub(super) fn read_file(path: &Path) -> Result<Option<Vec<u8>>, DatasetError> {
    let Some(bytes) = packable_bytes(path)? else { return Ok(None) };
    let Some(file) = open(path)? else { return Ok(None) };
    let mut data = Vec::with_capacity(bytes as usize);
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut data).map_err(|error| unreadable(path, &error))?;
    if data.len() as u64 > MAX_FILE_BYTES {
        return Err(too_long(path));
    }
    Ok(Some(data))
}

/// Returns the content of a file of this size.
pub(super) fn read_measured(path: &Path, bytes: u64) -> Result<Vec<u8>, DatasetError> {
    let file = open(path)?.ok_or_else(|| missing_file(path))?;
    let mut data = Vec::with_capacity(bytes as usize + 1);
    file.take(bytes + 1).read_to_end(&mut data).map_err(|error| unreadable(path, &error))?;
    if data.len() as u64 == bytes { Ok(data) } else { Err(wrong(path, CHANGED)) }
}

/// Returns a range of a file's content; `None` if there is no such file.
pub(super) fn read_file_range(path: &Path, range: Range<u64>) -> Result<Option<Vec<u8>>, DatasetError> {
    let Some(file) = open(path)? else { return Ok(None) };
    let mut data = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut data, range.start).map_err(|error| unreadable(path, &error))?;
    Ok(Some(data))
}

fn open(path: &Path) -> Result<Option<File>, DatasetError> {
    File::open(path).map(Some).or_else(|error| missing(path, &error))
}

/// Returns `None` for the error of a file that is not there.
fn missing<T>(path: &Path, error: &io::Error) -> Result<Option<T>, DatasetError> {
    if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(unreadable(path, error)) }
}

fn unreadable(path: &Path, error: &io::Error) -> DatasetError {
    wrong(path, &format!("cannot be read: {error}"))
}

fn too_long(path: &Path) -> DatasetError {
    wrong(path, &format!("has more than {MAX_FILE_BYTES} bytes"))
}

/// Returns the text of a file without a byte order mark.
pub(crate) fn read_text(path: &Path) -> Result<String, DatasetError> {
    let text = read_file(path)?.ok_or_else(|| missing_file(path))?;
    text_of(path, text, 1)
}

/// Opens a text file to be read by lines. Pipes and devices are errors.
pub(super) fn open_text(path: &Path) -> Result<BufReader<File>, DatasetError> {
    file_bytes(path)?.ok_or_else(|| missing_file(path))?;
    Ok(BufReader::new(open(path)?.ok_or_else(|| missing_file(path))?))
}

/// Returns the text of a file from line `line` on, without a byte order mark.
pub(crate) fn text_of(path: &Path, text: Vec<u8>, line: usize) -> Result<String, DatasetError> {
    if line == 1 && (text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff])) {
        return Err(wrong(path, "is UTF-16; save it as UTF-8"));
    }
    let mut text = String::from_utf8(text).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        at_line(path, line + before.iter().filter(|byte| **byte == b'\n').count(), "is not UTF-8")
    })?;
    if line == 1 && text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    Ok(text)
}

/// Returns the error for a file that is not there.
pub(crate) fn missing_file(path: &Path) -> DatasetError {
    wrong(path, "does not exist")
}

/// Returns the error for a file.
pub(crate) fn wrong(path: &Path, problem: &str) -> DatasetError {
    DatasetError::Source { path: path.display().to_string(), problem: problem.to_owned() }
}

/// Returns the error for a line of a file.
pub(crate) fn at_line(path: &Path, line: usize, problem: &str) -> DatasetError {
    DatasetError::Source { path: format!("{}:{line}", path.display()), problem: problem.to_owned() }
}
