//! Makes JPEGs crop-ready, without loss, and reverts that.

use spdl_jpeg::{Jpeg, Limits, segment_lengths};

use super::parts::MAX_WHOLE_BYTES;

/// Lower bound of the pixels between the restart markers of crop-ready pictures: 4 to 16 MCUs. A lower value reads less
/// beside a crop, but files grow by some five bytes a marker.
const SEGMENT_PIXELS: u32 = 1024;
/// Lower bound of the mean number of bytes between markers, so that no baseline picture grows by more than 2 %.
const SEGMENT_BYTES: u64 = 320;
/// Number of segments from one entry of a table to the next.
const TABLE_STEP: u32 = 8;

/// A picture that was made crop-ready.
pub(super) struct CropReady {
    pub(super) picture: Vec<u8>,
    /// Number of segments from one entry of the picture's table to the next, and the entries; `None` if there is only
    /// one segment, or a segment is too long.
    pub(super) segments: Option<(u32, Vec<[u8; 2]>)>,
}

/// Returns the picture as a baseline one with more restart markers; `None` if it is not a baseline or progressive JPEG,
/// or is broken. The result is used only if it has the same coefficients as the original.
pub(super) fn crop_ready(picture: &[u8]) -> Option<CropReady> {
    let limits = Limits::default();
    let jpeg = Jpeg::open(picture, limits).ok()?;
    let ready = spdl_jpeg::rewrite(picture, interval(&jpeg, picture.len()), limits).ok()?;
    if ready.len() as u64 > MAX_WHOLE_BYTES {
        return None;
    }
    if !spdl_jpeg::has_same_coefficients(picture, &ready, limits).ok()? {
        return None;
    }
    let starts = Jpeg::open(&ready, limits).ok()?.segment_starts().ok()?;
    let lengths = segment_lengths(TABLE_STEP, &starts).filter(|lengths| !lengths.is_empty());
    Some(CropReady { picture: ready, segments: lengths.map(|lengths| (TABLE_STEP, lengths)) })
}

/// Returns the number of MCUs between restart markers.
fn interval(jpeg: &Jpeg<'_>, bytes: usize) -> u16 {
    let ([width, height], [columns, rows]) = (jpeg.mcu_pixels(), jpeg.mcus());
    let mcus = u64::from(columns) * u64::from(rows);
    let mut interval = SEGMENT_PIXELS / (width * height);
    while interval < 1 << 15 && bytes as u64 * u64::from(interval) < mcus * SEGMENT_BYTES {
        interval *= 2;
    }
    interval as u16
}

/// Returns the same picture without restart markers; `None` if [`crop_ready`] cannot have made it.
pub(super) fn without_markers(picture: &[u8]) -> Option<Vec<u8>> {
    let limits = Limits::default();
    let plain = spdl_jpeg::rewrite(picture, 0, limits).ok()?;
    spdl_jpeg::has_same_coefficients(picture, &plain, limits).ok()?.then_some(plain)
}

/// Returns what is wrong with the scans of a progressive JPEG. A decoder reads only those that its result needs.
pub(super) fn check_scans(picture: &[u8]) -> Option<String> {
    let jpeg = Jpeg::open(picture, Limits::default()).ok().filter(Jpeg::is_progressive)?;
    jpeg.check_all().err().map(|error| format!("does not decode: {error}"))
}

/// Returns what is wrong with a crop-ready picture or its table.
pub(super) fn check(picture: &[u8], step: u32, lengths: &[[u8; 2]]) -> Option<String> {
    let found = (|| {
        let jpeg = Jpeg::open(picture, Limits::default())?;
        jpeg.check_all()?;
        jpeg.segment_starts()
    })();
    match found {
        Err(error) => Some(format!("does not decode: {error}")),
        Ok(starts) if segment_lengths(step, &starts).as_deref() != Some(lengths) => {
            Some("has restart segments that are not where its table has them".to_owned())
        }
        Ok(_) => None,
    }
}
