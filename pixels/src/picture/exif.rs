//! Reads a picture's orientation from its EXIF, or else from its XMP.

use std::ops::Range;

use image::metadata::Orientation as ExifOrientation;

use super::Orientation;

/// The orientation tag in the first directory.
const TAG: u16 = 0x0112;
/// Maximum number of entries of a directory that are read.
const MAX_ENTRIES: u16 = 1024;

/// The orientation of a picture according to its metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Upright {
    pub(crate) orientation: Orientation,
    /// Whether there is EXIF that cannot be read.
    pub(crate) has_broken_exif: bool,
}

/// Returns the orientation in EXIF, or else the one in XMP. EXIF may begin with `Exif\0\0`.
pub(crate) fn upright(exif: Option<&[u8]>, xmp: Option<&[u8]>) -> Upright {
    let tag = exif.map(|exif| of_exif(exif.strip_prefix(b"Exif\0\0").unwrap_or(exif)));
    let has_broken_exif = tag == Some(Err(Broken));
    let number = tag.and_then(|tag| tag.ok().flatten()).or_else(|| xmp.and_then(of_xmp));
    let orientation = number.and_then(ExifOrientation::from_exif).map(Orientation::from).unwrap_or_default();
    Upright { orientation, has_broken_exif }
}

/// The error of bytes that are not EXIF, or that end within the first directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Returns the number of the orientation, 1 to 8 in a valid picture; `None` if there is no such tag.
fn of_exif(tiff: &[u8]) -> Result<Option<u8>, Broken> {
    Ok(first_value(tiff, TAG)?.map(|value| u8::try_from(value).unwrap_or(0)))
}

/// Returns the first value of a tag in the first directory of a TIFF, if it is present and a whole number.
pub(super) fn first_value(tiff: &[u8], tag: u16) -> Result<Option<u32>, Broken> {
    let Some(place) = first_place(tiff, tag)? else { return Ok(None) };
    let bytes = tiff.get(place).ok_or(Broken)?;
    let value = bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
    Ok(Some(if is_little(tiff)? { value.swap_bytes() >> (32 - 8 * bytes.len()) } else { value }))
}

fn is_little(tiff: &[u8]) -> Result<bool, Broken> {
    match tiff.get(..4).ok_or(Broken)? {
        b"II\x2a\0" => Ok(true),
        b"MM\0\x2a" => Ok(false),
        _ => Err(Broken),
    }
}

/// Returns where the first value of a tag lies, in 1, 2 or 4 bytes, under the same conditions as [`first_value`].
pub(super) fn first_place(tiff: &[u8], tag: u16) -> Result<Option<Range<usize>>, Broken> {
    let is_little = is_little(tiff)?;
    let u16_at = |at: usize| {
        let bytes = *tiff.get(at..)?.first_chunk::<2>()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let u32_at = |at: usize| {
        let bytes = *tiff.get(at..)?.first_chunk::<4>()?;
        Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let directory = u32_at(4).ok_or(Broken)? as usize;
    let entries = u16_at(directory).ok_or(Broken)?;
    for entry in 0..entries.min(MAX_ENTRIES) {
        let at = directory.saturating_add(2 + 12 * usize::from(entry));
        if u16_at(at).ok_or(Broken)? != tag {
            continue;
        }
        let (kind, count) = (u16_at(at + 2).ok_or(Broken)?, u32_at(at + 4).ok_or(Broken)?);
        let bytes = match kind {
            // Whole numbers, unsigned or signed.
            1 | 6 => 1,
            3 | 8 => 2,
            4 | 9 => 4,
            _ => return Ok(None),
        };
        if count == 0 {
            return Ok(None);
        }
        // Values that do not fit into the entry lie elsewhere.
        let fits = u64::from(count) * bytes <= 4;
        let place = if fits { at + 8 } else { u32_at(at + 8).ok_or(Broken)? as usize };
        return Ok(Some(place..place.saturating_add(bytes as usize)));
    }
    Ok(None)
}

/// Returns the first digit of `tiff:Orientation`, which may be an attribute or an element.
fn of_xmp(xmp: &[u8]) -> Option<u8> {
    const NAME: &[u8] = b"tiff:Orientation";
    let found = xmp.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    found.into_iter().find_map(|(at, _)| {
        let rest = &xmp[at + NAME.len()..];
        let digit = rest.strip_prefix(b"=\"").or_else(|| rest.strip_prefix(b">"))?.first()?;
        digit.is_ascii_digit().then(|| digit - b'0')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiff(kind: u16, value: [u8; 4]) -> Vec<u8> {
        let mut bytes = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12".to_vec();
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 0, 0, 1]);
        bytes.extend(value);
        bytes
    }

    #[test]
    fn the_tag_is_read_in_every_type_that_is_written_and_with_the_prefix_of_jpeg() {
        for exif in [tiff(3, [0, 6, 0, 0]), tiff(4, [0, 0, 0, 6]), tiff(9, [0, 0, 0, 6]), tiff(1, [6, 0, 0, 0])] {
            for exif in [exif.clone(), [b"Exif\0\0", &exif[..]].concat()] {
                let upright = upright(Some(&exif), None);
                assert_eq!(upright, Upright { orientation: ExifOrientation::Rotate90.into(), has_broken_exif: false });
            }
        }
    }

    #[test]
    fn xmp_counts_where_exif_has_no_orientation() {
        for xmp in [&b"<x tiff:Orientation=\"8\"/>"[..], b"<tiff:Orientation>8</tiff:Orientation>"] {
            let turned = ExifOrientation::Rotate270.into();
            assert_eq!(upright(None, Some(xmp)).orientation, turned);
            assert_eq!(upright(Some(b"II\x2a\0\x08\0\0\0\0\0"), Some(xmp)).orientation, turned);
            assert_eq!(upright(Some(&tiff(3, [0, 1, 0, 0])), Some(xmp)).orientation, Orientation::default());
        }
    }

    #[test]
    fn broken_exif_turns_nothing_and_is_counted() {
        let whole = tiff(3, [0, 6, 0, 0]);
        for length in 0..whole.len() - 2 {
            let broken = upright(Some(&whole[..length]), None);
            assert_eq!(
                broken,
                Upright { orientation: Orientation::default(), has_broken_exif: true },
                "{length} bytes"
            );
        }
        assert!(!upright(Some(&tiff(2, [0; 4])), None).has_broken_exif, "another type is ignored");
        assert_eq!(upright(Some(&tiff(3, [0, 9, 0, 0])), None).orientation, Orientation::default());
    }
}
