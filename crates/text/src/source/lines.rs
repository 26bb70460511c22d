//! Reads documents from files of text: JSON lines, whole files, and files cut at blank lines.

use std::{
    borrow::Cow,
    io::{BufRead, Read},
};

use spdl_dataset::DatasetError;

use super::{
    EachText, RecordText,
    file::{FileReader, TextCompression, TextFile},
    record::{record_of, text_of},
};

/// Size of the longest document and of the longest line, in bytes: 1 GiB.
const MAX_TEXT_BYTES: u64 = 1 << 30;
/// The mark that some editors put in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The lines of a file.
struct Lines<'f> {
    file: &'f TextFile,
    reader: Box<dyn BufRead>,
    /// Bytes of the last line that the reader still has; 0 if the line is in `joined`.
    at_hand: usize,
    /// The last line, if the reader had it in several pieces.
    joined: Vec<u8>,
}

impl<'f> Lines<'f> {
    fn new(file: &'f TextFile, reader: FileReader, compression: TextCompression) -> Result<Self, DatasetError> {
        let reader = reader.decompressed(compression).map_err(|error| file.unreadable(error))?;
        Ok(Self { file, reader, at_hand: 0, joined: Vec::new() })
    }

    /// Reads the next line, and returns it with its end; nothing at the end of the file.
    fn next(&mut self) -> Result<&[u8], DatasetError> {
        self.reader.consume(std::mem::take(&mut self.at_hand));
        self.joined.clear();
        loop {
            let piece = self.reader.fill_buf().map_err(|error| self.file.unreadable(error))?;
            let end = memchr::memchr(b'\n', piece).map(|at| at + 1);
            let bytes = end.unwrap_or(piece.len());
            if self.joined.len() as u64 + bytes as u64 > MAX_TEXT_BYTES {
                return Err(self.file.wrong("has a line of more than 1 GiB: write one document a line"));
            }
            if self.joined.is_empty() && end.is_some() {
                self.at_hand = bytes;
                return self
                    .reader
                    .fill_buf()
                    .map(|piece| &piece[..bytes])
                    .map_err(|error| self.file.unreadable(error));
            }
            self.joined.extend_from_slice(&piece[..bytes]);
            self.reader.consume(bytes);
            if end.is_some() || bytes == 0 {
                return Ok(&self.joined);
            }
        }
    }
}

/// Reads the records of JSON lines that begin in a range of the file. `reader` is at the byte before it, unless it begins the file.
/// Errors count lines from that place on; `lines_before` tells how many there are before it.
pub(super) fn json_lines(
    file: &TextFile,
    reader: FileReader,
    compression: TextCompression,
    from: &RecordText,
    range: (u64, u64),
    lines_before: &dyn Fn() -> Result<u64, DatasetError>,
    each: &mut EachText<'_>,
) -> Result<(), DatasetError> {
    let (first, end) = if compression == TextCompression::None { range } else { (0, u64::MAX) };
    let mut lines = Lines::new(file, reader, compression)?;
    let mut at = first;
    if first > 0 {
        // A line that begins before the range is another range's.
        at = first - 1 + lines.next()?.len() as u64;
    }
    let (mut number, mut memory) = (0_u64, String::new());
    while at < end {
        let read = lines.next()?;
        if read.is_empty() {
            break;
        }
        let mut line = read.trim_ascii();
        if at == 0 {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        number += 1;
        at += read.len() as u64;
        if line.is_empty() {
            continue;
        }
        let place = |problem: String| match lines_before() {
            Ok(before) => file.wrong_at(before + number, problem),
            Err(error) => error,
        };
        let text = match from {
            RecordText::Fields(fields) => text_of(line, fields, &mut memory),
            RecordText::Whole => record_of(line).map(Cow::Borrowed),
        };
        each(text.as_deref().map_err(Clone::clone), &place)?;
    }
    Ok(())
}

/// Returns the number of lines that begin before byte `end` of a file that is not compressed.
pub(super) fn lines_before(file: &TextFile, reader: FileReader, end: u64) -> Result<u64, DatasetError> {
    let mut lines = Lines::new(file, reader, TextCompression::None)?;
    let (mut at, mut number) = (0, 0);
    while at < end {
        match lines.next()?.len() {
            0 => break,
            bytes => at += bytes as u64,
        }
        number += 1;
    }
    Ok(number)
}

/// Reads a file as one document.
pub(super) fn whole(
    file: &TextFile,
    reader: FileReader,
    compression: TextCompression,
    each: &mut EachText<'_>,
) -> Result<(), DatasetError> {
    let mut bytes = Vec::new();
    let reader = reader.decompressed(compression).map_err(|error| file.unreadable(error))?;
    let read = reader.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes).map_err(|error| file.unreadable(error))?;
    if read as u64 > MAX_TEXT_BYTES {
        return Err(file
            .wrong("has more than 1 GiB and would be one document: cut it with `--split blank-lines`, or into files"));
    }
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes);
    match str::from_utf8(text) {
        Ok(text) => each(Ok(text), &|problem| file.wrong(problem)),
        Err(error) => {
            let line = 1 + text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() as u64;
            each(Err(no_utf8(error)), &|problem| file.wrong_at(line, problem))
        }
    }
}

/// Reads the documents of a file that blank lines divide. The end of a document's last line is no part of it.
pub(super) fn paragraphs(
    file: &TextFile,
    reader: FileReader,
    compression: TextCompression,
    each: &mut EachText<'_>,
) -> Result<(), DatasetError> {
    let mut lines = Lines::new(file, reader, compression)?;
    let (mut document, mut first, mut number) = (String::new(), 1_u64, 0_u64);
    // The first line of the document that is no text, and why.
    let mut bad = None;
    loop {
        let read = lines.next()?;
        let is_end = read.is_empty();
        number += 1;
        let line = if number == 1 { read.strip_prefix(BYTE_ORDER_MARK).unwrap_or(read) } else { read };
        let line = str::from_utf8(line).unwrap_or_else(|error| {
            bad.get_or_insert((number, no_utf8(error)));
            "\u{fffd}\n"
        });
        if line.trim().is_empty() {
            let text = document.strip_suffix('\n').unwrap_or(&document);
            let text = text.strip_suffix('\r').unwrap_or(text);
            match bad.take() {
                Some((line, problem)) => each(Err(problem), &|problem| file.wrong_at(line, problem))?,
                None if text.is_empty() => {}
                None => each(Ok(text), &|problem| file.wrong_at(first, problem))?,
            }
            document.clear();
        } else {
            if document.is_empty() {
                first = number;
            }
            document.push_str(line);
            if document.len() as u64 > MAX_TEXT_BYTES {
                return Err(file.wrong_at(first, "begins a document of more than 1 GiB without a blank line"));
            }
        }
        if is_end {
            return Ok(());
        }
    }
}

fn no_utf8(error: std::str::Utf8Error) -> String {
    let problem = match error.error_len() {
        None => "is cut off within a character",
        Some(_) => {
            "is not UTF-8: convert the file, as `iconv -t UTF-8` does, or leave it out with a pattern such as 'folder/*.txt'; its \
             name does not end as that of JSON lines or Parquet, so it is read as plain text"
        }
    };
    problem.to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use spdl_shard::store::DatasetStore;

    use super::*;

    #[test]
    fn a_line_is_whole_wherever_pieces_of_the_file_end() {
        let file = TextFile { store: DatasetStore::open("/").unwrap(), name: "a.jsonl".to_owned(), bytes: 0 };
        let text: &'static [u8] = b"a\n\nlonger than most pieces\r\n\nlast";
        for bytes in 1..=text.len() {
            let reader = Box::new(BufReader::with_capacity(bytes, text));
            let mut lines = Lines { file: &file, reader, at_hand: 0, joined: Vec::new() };
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                assert_eq!(lines.next().unwrap(), line, "pieces of {bytes} bytes");
            }
            assert_eq!(lines.next().unwrap(), b"");
        }
    }
}
