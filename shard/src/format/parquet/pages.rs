//! Checks the headers of pages before the pages are decoded: what they claim bounds what decoding allocates.

use super::{
    columns::{Column, Physical},
    thrift::walk,
};

/// Upper limit of a page that is not compressed, in bytes.
const MAX_PAGE_BYTES: i64 = 1 << 30;
/// Upper limit of the values of a page.
const MAX_PAGE_VALUES: i64 = 1 << 27;
const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;
const DATA_PAGE_V2: i64 = 3;

/// What a page's header claims.
#[derive(Debug, Default)]
struct PageHeader {
    kind: Option<i64>,
    bytes: Option<i64>,
    stored_bytes: Option<i64>,
    values: Option<i64>,
}

/// Checks the headers of the pages that `bytes` consist of. `max_bytes` is the most that all of them decompress to.
pub(super) fn check(bytes: &[u8], column: &Column, max_bytes: u64) -> Result<(), String> {
    let (mut at, mut total) = (0, 0_u64);
    while at < bytes.len() {
        let mut header = PageHeader::default();
        let length = walk(&bytes[at..], &mut |path, value| match path {
            [1] => header.kind = Some(value),
            [2] => header.bytes = Some(value),
            [3] => header.stored_bytes = Some(value),
            [5 | 7 | 8, 1] => header.values = Some(value),
            _ => {}
        });
        let Some((length, stored)) = length.zip(header.stored_bytes.and_then(|bytes| usize::try_from(bytes).ok()))
        else {
            return Err(format!("has no header of a page at byte {at} of its pages"));
        };
        let claimed = header.check(column).map_err(|problem| format!("has a page {problem}"))?;
        total += claimed;
        if total > max_bytes {
            return Err(format!("claims pages of {total} bytes, more than the {max_bytes} that its file states"));
        }
        at = match at.checked_add(length).and_then(|at| at.checked_add(stored)).filter(|end| *end <= bytes.len()) {
            Some(end) => end,
            None => return Err(format!("has a page of {stored} bytes that goes on behind its end")),
        };
    }
    Ok(())
}

impl PageHeader {
    /// Returns the size of the page when it is decompressed.
    fn check(&self, column: &Column) -> Result<u64, String> {
        let bytes = self.bytes.filter(|bytes| (0..=MAX_PAGE_BYTES).contains(bytes));
        let Some(bytes) = bytes else {
            return Err(format!("of {} bytes; {MAX_PAGE_BYTES} are the most", self.bytes.unwrap_or(-1)));
        };
        match self.kind {
            Some(DATA_PAGE | DATA_PAGE_V2 | DICTIONARY_PAGE) => {}
            _ => return Ok(bytes as u64),
        }
        let values = self.values.unwrap_or(-1);
        // Each value of a dictionary takes bytes of its own.
        let most = match self.kind {
            Some(DICTIONARY_PAGE) => bytes / least_bytes(column).max(1),
            _ => MAX_PAGE_VALUES,
        };
        if (0..=most).contains(&values) {
            Ok(bytes as u64)
        } else {
            Err(format!("of {values} values in {bytes} bytes"))
        }
    }
}

/// Returns the least bytes that a value takes in a dictionary.
fn least_bytes(column: &Column) -> i64 {
    match column.physical {
        Physical::Boolean => 1,
        Physical::Int32 | Physical::Float | Physical::ByteArray => 4,
        Physical::Int64 | Physical::Double => 8,
        Physical::Int96 => 12,
        Physical::FixedLenByteArray => column.length.into(),
    }
}
