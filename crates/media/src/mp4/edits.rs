//! Edit lists of MP4 (ISO/IEC 14496-12, 8.6.6): which part of a track is shown, and when.

use super::boxes::{find, long_number, number, table};

/// A part of a track that is shown, or a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// In units of the movie; 0 reaches to the end of the track.
    pub(crate) duration: u64,
    /// Where the part begins, in units of the track; negative for a pause.
    pub(crate) start: i64,
    /// The speed, 1 as a number of 16.16 bits.
    pub(crate) rate: u32,
}

/// Returns the edits of the content of a box `trak`; `None` if it has no list.
pub(crate) fn edits(track: &[u8]) -> Option<Vec<Edit>> {
    let list = find(track, &[b"edts", b"elst"])?;
    let is_long = *list.first()? == 1;
    let edit = |entry: &[u8]| {
        let (duration, start, rate) = match is_long {
            true => (long_number(entry, 0)?, long_number(entry, 8)?.cast_signed(), number(entry, 16)?),
            false => (number(entry, 0)?.into(), number(entry, 4)?.cast_signed().into(), number(entry, 8)?),
        };
        Some(Edit { duration, start, rate })
    };
    match is_long {
        true => table::<20>(list)?.iter().map(|entry| edit(entry)).collect(),
        false => table::<12>(list)?.iter().map(|entry| edit(entry)).collect(),
    }
}
