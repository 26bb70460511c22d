//! Reads a picture's orientation from its EXIF, or else from its XMP.

use std::ops::Range;

use image::metadata::Orientation as ExifOrientation;

use super::Orientation;

/// The orientation tag in the first directory.
const TAG: u16 = 0x0112;
/// Maximum number of entries of a directory that are read.
const MAX_ENTRIES: u64 = 1024;

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
    let number = Numbers::of(tiff)?.number(place).ok_or(Broken)?;
    Ok(Some(u32::try_from(number).unwrap_or(u32::MAX)))
}

/// Reads the numbers of a TIFF.
#[derive(Clone, Copy)]
struct Numbers<'t> {
    tiff: &'t [u8],
    is_little: bool,
    /// Whether it is a BigTIFF, whose places and counts have 8 bytes.
    is_big: bool,
}

impl<'t> Numbers<'t> {
    fn of(tiff: &'t [u8]) -> Result<Self, Broken> {
        let (is_little, is_big) = match tiff.get(..4).ok_or(Broken)? {
            b"II\x2a\0" => (true, false),
            b"MM\0\x2a" => (false, false),
            b"II\x2b\0" => (true, true),
            b"MM\0\x2b" => (false, true),
            _ => return Err(Broken),
        };
        Ok(Self { tiff, is_little, is_big })
    }

    /// Returns the number that lies in a range of at most 8 bytes.
    fn number(self, place: Range<usize>) -> Option<u64> {
        let bytes = self.tiff.get(place)?;
        let value = bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        Some(if self.is_little { value.swap_bytes() >> (64 - 8 * bytes.len()) } else { value })
    }

    fn at(self, at: usize, bytes: usize) -> Result<u64, Broken> {
        self.number(at..at.saturating_add(bytes)).ok_or(Broken)
    }

    fn place_at(self, at: usize) -> Result<usize, Broken> {
        usize::try_from(self.at(at, if self.is_big { 8 } else { 4 })?).map_err(|_| Broken)
    }
}

/// Returns whether a file is a BigTIFF.
pub(super) fn is_big_tiff(file: &[u8]) -> bool {
    Numbers::of(file).is_ok_and(|numbers| numbers.is_big)
}

/// Returns where the first value of a tag lies, in 1, 2, 4 or 8 bytes, under the same conditions as [`first_value`].
pub(super) fn first_place(tiff: &[u8], tag: u16) -> Result<Option<Range<usize>>, Broken> {
    let numbers = Numbers::of(tiff)?;
    // Bytes of a count or a place, and of an entry with its tag, its kind, its count and its values.
    let (width, head) = if numbers.is_big { (8, 8) } else { (4, 2) };
    let directory = numbers.place_at(width)?;
    let entries = numbers.at(directory, head)?;
    for entry in 0..entries.min(MAX_ENTRIES) {
        let at = directory.saturating_add(head + (4 + 2 * width) * entry as usize);
        if numbers.at(at, 2)? != u64::from(tag) {
            continue;
        }
        let (kind, count) = (numbers.at(at + 2, 2)?, numbers.at(at + 4, width)?);
        let bytes: u64 = match kind {
            // Whole numbers, unsigned or signed.
            1 | 6 => 1,
            3 | 8 => 2,
            4 | 9 => 4,
            16 | 17 if numbers.is_big => 8,
            _ => return Ok(None),
        };
        if count == 0 {
            return Ok(None);
        }
        // Values that do not fit into the entry lie elsewhere.
        let fits = count.saturating_mul(bytes) <= width as u64;
        let place = if fits { at + 4 + width } else { numbers.place_at(at + 4 + width)? };
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
