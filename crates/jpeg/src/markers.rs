//! Reads a picture marker by marker, as `jdmarker.c` of libjpeg does: skips bytes between two segments.

use crate::{
    deviation::{Deviation, Deviations},
    error::Error,
    window::find_full,
};

/// The entries of a header about its colours, apart from the ids of the components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColourFacts {
    /// Whether there is a complete JFIF segment.
    jfif: bool,
    /// The transform of Adobe's segment.
    adobe_transform: Option<u8>,
}

/// The meaning of the components of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColourModel {
    Grey,
    /// Y, Cb, Cr.
    LumaChroma,
    Rgb,
    Cmyk,
    /// CMYK with the first three components stored as luma and chroma.
    Ycck,
}

/// Returns the colour model that libjpeg assumes (`default_decompress_parms`).
pub(crate) fn colour_model(facts: ColourFacts, ids: &[u8]) -> ColourModel {
    let ColourFacts { jfif, adobe_transform } = facts;
    match (ids, adobe_transform) {
        ([_], _) => ColourModel::Grey,
        ([_, _, _], _) if jfif => ColourModel::LumaChroma,
        ([_, _, _], Some(0)) => ColourModel::Rgb,
        (b"RGB", None) => ColourModel::Rgb,
        ([_, _, _, _], None | Some(0)) => ColourModel::Cmyk,
        ([_, _, _, _], _) => ColourModel::Ycck,
        _ => ColourModel::LumaChroma,
    }
}

/// A reader of a picture's segments, which remembers the content of the application segments.
#[derive(Clone, Debug)]
pub(crate) struct Markers<'b> {
    bytes: &'b [u8],
    at: usize,
    /// Position of the last marker, after fill bytes.
    marker_at: usize,
    deviations: Deviations,
    colour: ColourFacts,
    exif: Option<&'b [u8]>,
    xmp: Option<&'b [u8]>,
}

impl<'b> Markers<'b> {
    /// Starts after the start marker.
    pub(crate) const fn new(bytes: &'b [u8]) -> Self {
        let colour = ColourFacts { jfif: false, adobe_transform: None };
        Self { bytes, at: 2, marker_at: 2, deviations: Deviations::NONE, colour, exif: None, xmp: None }
    }

    /// Returns the position after the last segment.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    pub(crate) const fn deviations(&self) -> Deviations {
        self.deviations
    }

    /// Notes that there is no end marker.
    pub(crate) const fn without_end(&mut self) {
        self.deviations = self.deviations.with(Deviation::NoEnd);
    }

    pub(crate) const fn colour_facts(&self) -> ColourFacts {
        self.colour
    }

    /// Returns the body of the EXIF segment, starting at its TIFF header.
    pub(crate) const fn exif(&self) -> Option<&'b [u8]> {
        self.exif
    }

    pub(crate) const fn xmp(&self) -> Option<&'b [u8]> {
        self.xmp
    }

    /// Returns the next marker and the body of its segment, which is empty for markers without a segment.
    pub(crate) fn next_segment(&mut self) -> Result<(u8, &'b [u8]), Error> {
        let (marker, body) = self.next_marker()?;
        match marker {
            0xd8 => return Err(Error::Corrupt("a second start marker")),
            0xd9 => return Err(Error::Corrupt("an end before the picture")),
            0xe0 if body.len() >= 14 && body.starts_with(b"JFIF\0") => self.colour.jfif = true,
            0xe1 if self.exif.is_none() && body.starts_with(b"Exif\0\0") => self.exif = body.get(6..),
            0xe1 if self.xmp.is_none() => self.xmp = body.strip_prefix(b"http://ns.adobe.com/xap/1.0/\0"),
            0xee if body.len() >= 12 && body.starts_with(b"Adobe") => self.colour.adobe_transform = Some(body[11]),
            _ => {}
        }
        Ok((marker, body))
    }

    /// Returns the next marker of any kind, and the body of its segment.
    pub(crate) fn next_marker(&mut self) -> Result<(u8, &'b [u8]), Error> {
        let byte = |at: usize| self.bytes.get(at).copied().ok_or(Error::Truncated);
        let (mut at, mut junk) = (self.at, false);
        let marker = loop {
            while byte(at)? != 0xff {
                (at, junk) = (at + 1, true);
            }
            while byte(at)? == 0xff {
                at += 1;
            }
            let second = byte(at)?;
            at += 1;
            if second != 0 {
                break second;
            }
            junk = true;
        };
        if junk {
            self.deviations = self.deviations.with(Deviation::Junk);
        }
        self.marker_at = at - 2;
        if matches!(marker, 0x01 | 0xd0..=0xd9) {
            self.at = at;
            return Ok((marker, &[]));
        }
        let length = self.bytes.get(at..at + 2).ok_or(Error::Truncated)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length < 2 {
            self.deviations = self.deviations.with(Deviation::ShortSegment);
        }
        let end = at + length.max(2);
        let body = self.bytes.get(at + 2..end).ok_or(Error::Truncated)?;
        self.at = end;
        Ok((marker, body))
    }

    /// Skips the data of a scan up to the next marker that is not part of it, and returns that data.
    pub(crate) fn pass_scan(&mut self) -> &'b [u8] {
        let start = self.at;
        loop {
            let Some(found) = find_full(self.bytes, self.at) else {
                self.at = self.bytes.len();
                break;
            };
            self.at = found;
            match self.bytes.get(self.at + 1) {
                Some(0x00 | 0xd0..=0xd7) => self.at += 2,
                Some(0xff) => self.at += 1,
                Some(_) => break,
                None => {
                    self.at = self.bytes.len();
                    break;
                }
            }
        }
        &self.bytes[start..self.at]
    }
}

/// Returns the segments of a valid header, each with its marker, up to the scan header. Leaves out markers without a
/// meaning there, and segments without a body.
pub(crate) fn segments_before_scan(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut markers = Some(Markers::new(bytes));
    std::iter::from_fn(move || {
        loop {
            let walk = markers.as_mut()?;
            let (marker, body) = walk.next_segment().ok()?;
            let segment = &bytes[walk.marker_at..walk.at];
            if marker == 0xda {
                markers = None;
            }
            if segment.len() == body.len() + 4 && segment[2..4] != [0, 0] && segment[2..4] != [0, 1] {
                return Some((marker, segment));
            }
        }
    })
}

/// Returns whether there is an end marker after `at`, the beginning of a scan.
pub(crate) fn has_end(bytes: &[u8], mut at: usize) -> bool {
    const END: u8 = 0xd9;
    // Nearly all files end with this marker, and inside a scan these two bytes have no other meaning.
    if bytes[at..].ends_with(&[0xff, END]) {
        return true;
    }
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0xff)) {
        at += found + 1;
        match bytes.get(at) {
            Some(&END) => return true,
            // A fill byte, a stuffed zero, a restart marker or another marker without a length.
            Some(0xff) => {}
            Some(0x00 | 0x01 | 0xd0..=0xd8) => at += 1,
            // A segment. Skip it: an end marker inside it is not the picture's.
            Some(_) => match bytes.get(at + 1..at + 3) {
                Some(length) => at += 1 + usize::from(u16::from_be_bytes([length[0], length[1]])),
                None => return false,
            },
            None => return false,
        }
    }
    false
}
