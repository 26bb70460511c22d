//! Boxes of MP4 (ISO/IEC 14496-12, 4.2): those at the top of a file, and those in another one.

use crate::{MediaError, input::Input};

/// The most bytes of a box `moov`: tables of hundreds of hours.
pub(crate) const MAX_MOOV_BYTES: u64 = 1 << 26;

/// The head of a box at the top of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoxHead {
    pub(crate) kind: [u8; 4],
    /// Length of the head.
    pub(crate) head_bytes: u64,
    /// Length of the box, with its head.
    pub(crate) bytes: u64,
}

impl BoxHead {
    /// Reads the head of the next box, without passing it; `None` if its bytes have to be fetched first. Without them, the
    /// file ends within `what`.
    pub(crate) fn read(input: &mut Input<'_, '_>, what: &'static str) -> Result<Option<Self>, MediaError> {
        let Some(head) = input.peek(8, what)? else { return Ok(None) };
        let kind = *head[4..].first_chunk().expect("8 bytes");
        let (head_bytes, bytes) = match number(head, 0) {
            Some(0) => (8, input.file_bytes() - input.at()),
            Some(1) => {
                let Some(head) = input.peek(16, what)? else { return Ok(None) };
                (16, u64::from_be_bytes(*head[8..].first_chunk().expect("16 bytes")))
            }
            bytes => (8, bytes.unwrap_or_default().into()),
        };
        if bytes < head_bytes {
            return Err(input.malformed("a box is shorter than its head"));
        }
        Ok(Some(Self { kind, head_bytes, bytes }))
    }

    /// Returns the content of the next box, without passing it; `None` if it has to be fetched first.
    pub(crate) fn content<'b>(
        &self,
        input: &mut Input<'_, 'b>,
        what: &'static str,
    ) -> Result<Option<&'b [u8]>, MediaError> {
        let bytes = input.peek(self.bytes, what)?;
        Ok(bytes.map(|bytes| &bytes[usize::try_from(self.head_bytes).expect("8 or 16")..]))
    }
}

/// Returns the boxes in another one, each by its name and its content.
pub(crate) fn boxes(mut bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let size = usize::try_from(number(bytes, 0)?).ok()?;
        let kind = *bytes.get(4..)?.first_chunk()?;
        let size = if size == 0 { bytes.len() } else { size };
        let content = bytes.get(8..size)?;
        bytes = &bytes[size..];
        Some((kind, content))
    })
}

/// Returns the first box of a name, in boxes in one another.
pub(crate) fn find<'b>(bytes: &'b [u8], path: &[&[u8; 4]]) -> Option<&'b [u8]> {
    path.iter().try_fold(bytes, |bytes, name| boxes(bytes).find(|(kind, _)| kind == *name).map(|(_, content)| content))
}

/// Returns the number of 4 bytes at a place.
pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the number of 8 bytes at a place.
pub(crate) fn long_number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the table behind a box's version, flags and number of entries.
pub(crate) fn table<const N: usize>(content: &[u8]) -> Option<&[[u8; N]]> {
    let count = usize::try_from(number(content, 4)?).ok()?;
    content.get(8..)?.as_chunks().0.get(..count)
}

/// Returns the units of time in a second, of the content of a box `mvhd` or `mdhd`.
pub(crate) fn time_scale(content: &[u8]) -> Option<u32> {
    number(content, if *content.first()? == 1 { 20 } else { 12 }).filter(|scale| *scale > 0)
}

/// Returns what kind of track the content of a box `trak` is.
pub(crate) fn handler(track: &[u8]) -> Option<[u8; 4]> {
    find(track, &[b"mdia", b"hdlr"])?.get(8..)?.first_chunk().copied()
}
