//! Checks the headers of pages before the pages are decoded: what they claim bounds what decoding allocates.

use super::{
    columns::{ParquetColumn, Physical},
    headers::{DATA_PAGE, DATA_PAGE_V2, DELTA_BYTE_ARRAY, DICTIONARY_PAGE, PageHeader},
};

/// Upper limit of a page that is not compressed, in bytes.
const MAX_PAGE_BYTES: i64 = 1 << 30;
/// Upper limit of the values of a page.
const MAX_PAGE_VALUES: i64 = 1 << 27;

/// The sums of what pages claim.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims {
    /// Bytes when they are decompressed.
    pub(super) bytes: u64,
    /// Values, those of a dictionary included.
    pub(super) values: u64,
    /// Whether values leave out the beginning that they share with the value before.
    pub(super) are_shortened: bool,
}

/// Checks the headers of the pages that `bytes` consist of. `max_bytes` is the most that all of them decompress to.
pub(super) fn check(bytes: &[u8], column: &ParquetColumn, max_bytes: u64) -> Result<Claims, String> {
    let (mut at, mut claims) = (0, Claims::default());
    while at < bytes.len() {
        let found = PageHeader::read(&bytes[at..]).and_then(|(header, length)| {
            let stored = header.stored_bytes.and_then(|bytes| usize::try_from(bytes).ok())?;
            Some((header, length, stored))
        });
        let Some((header, length, stored)) = found else {
            return Err(format!("has no header of a page at byte {at} of its pages"));
        };
        let claimed = header.check(column).map_err(|problem| format!("has a page {problem}"))?;
        claims.bytes += claimed;
        claims.values += header.values.and_then(|values| u64::try_from(values).ok()).unwrap_or(0);
        claims.are_shortened |= header.encoding == Some(DELTA_BYTE_ARRAY);
        if claims.bytes > max_bytes {
            let bytes = claims.bytes;
            return Err(format!("claims pages of {bytes} bytes, more than the {max_bytes} that its file states"));
        }
        at = match at.checked_add(length).and_then(|at| at.checked_add(stored)).filter(|end| *end <= bytes.len()) {
            Some(end) => end,
            None => return Err(format!("has a page of {stored} bytes that goes on behind its end")),
        };
    }
    Ok(claims)
}

impl PageHeader {
    /// Returns the size of the page when it is decompressed.
    fn check(&self, column: &ParquetColumn) -> Result<u64, String> {
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
fn least_bytes(column: &ParquetColumn) -> i64 {
    match column.physical {
        Physical::Boolean => 1,
        Physical::Int32 | Physical::Float | Physical::ByteArray => 4,
        Physical::Int64 | Physical::Double => 8,
        Physical::Int96 => 12,
        Physical::FixedLenByteArray => column.length.into(),
    }
}
