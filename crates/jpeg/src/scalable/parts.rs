//! Reads parts of a packed picture: rows of tiles, of the bands that a crop needs at its scale.

use std::ops::Range;

use super::{ScalablePicture, bands::PARTS, decode::is_needed, packed_layout::PackedLayout};
use crate::{Error, Limits, PictureRequest, plan::CropPlan};

/// Which parts of a packed picture a request needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// For each band of each class the rows of tiles: the first, and one past the last.
    rows: [(u32, u32); 8],
}

impl Parts {
    /// Adds the parts of another request, and the rows between both.
    pub fn add(&mut self, other: &Self) {
        for (own, other) in self.rows.iter_mut().zip(other.rows) {
            *own = match *own {
                (first, end) if first == end => other,
                own if other.0 == other.1 => own,
                (first, end) => (first.min(other.0), end.max(other.1)),
            };
        }
    }
}

/// The head of a packed picture, from which parts of the picture are planned and cut.
#[derive(Clone, Debug)]
pub struct PictureHead<'b> {
    layout: PackedLayout<'b>,
}

impl<'b> PictureHead<'b> {
    /// Reads the head of a picture of `total` bytes from its first bytes. Returns `None` if the picture has to be read
    /// whole: it is not a packed picture, or a small one without checksums.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the head is longer than these bytes. Other errors if it is broken, does not match its
    /// checksum, or exceeds the limits.
    pub fn read(first: &'b [u8], total: usize, limits: Limits) -> Result<Option<Self>, Error> {
        if !ScalablePicture::is_packed(first) {
            return Ok(None);
        }
        let layout = PackedLayout::read_beginning(first, total, limits)?;
        Ok(layout.has_checksums()?.then_some(Self { layout }))
    }

    /// Returns width and height in pixels, each at least 1.
    #[must_use]
    pub fn size(&self) -> [u32; 2] {
        self.layout.jpeg.size()
    }

    /// Returns the body of the EXIF segment, starting at its TIFF header.
    #[must_use]
    pub fn exif(&self) -> Option<&'b [u8]> {
        self.layout.jpeg.exif()
    }

    /// Returns the XMP packet.
    #[must_use]
    pub fn xmp(&self) -> Option<&'b [u8]> {
        self.layout.jpeg.xmp()
    }

    /// Returns the parts that a request needs.
    ///
    /// # Panics
    /// Panics when the request does not lie within the picture.
    #[must_use]
    pub fn parts(&self, request: &PictureRequest) -> Parts {
        let layout = &self.layout;
        layout.jpeg.check_request(request);
        let mut plan = CropPlan::default();
        plan.make(&layout.jpeg, request);
        let [_, rows] = layout.tiles.of_mcus(plan.mcus);
        let mut parts = Parts::default();
        for part in layout.written_parts() {
            let (band, class) = PARTS[part];
            if is_needed(band, plan.planes[class as usize].points) {
                parts.rows[part] = rows;
            }
        }
        parts
    }

    /// Returns the ranges of the picture's bytes that hold these parts, in order, without the head.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the table of lengths is broken.
    pub fn ranges(&self, parts: &Parts) -> Result<Vec<Range<usize>>, Error> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for part in self.layout.written_parts() {
            let found = self.of_rows(part, parts.rows[part])?;
            match ranges.last_mut() {
                _ if found.is_empty() => {}
                Some(last) if last.end == found.start => last.end = found.end,
                _ => ranges.push(found),
            }
        }
        Ok(ranges)
    }

    /// Returns a packed picture with these parts alone. A request that needs no other parts renders to the same pixels
    /// as on the whole picture; any other request is an error. `bytes_of` returns the bytes of a range of the picture,
    /// which lies within one of [`ranges`](Self::ranges).
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the bytes do not match their checksums, and [`Error::Truncated`] when some are missing.
    pub fn cut<B: AsRef<[u8]>>(
        &self,
        parts: &Parts,
        mut bytes_of: impl FnMut(Range<usize>) -> Option<B>,
    ) -> Result<Vec<u8>, Error> {
        let mut found = Vec::new();
        for part in self.layout.written_parts() {
            let (first, end) = parts.rows[part];
            let all = self.of_rows(part, (first, end))?;
            let streams = bytes_of(all.clone()).ok_or(Error::Truncated)?;
            if streams.as_ref().len() != all.len() {
                return Err(Error::Truncated);
            }
            let mut cursor = self.layout.cursor(part);
            for row in first..end {
                let Range { start, end } = cursor.find_run(&self.layout, self.tiles_of((row, row + 1)))?;
                let row_of = &streams.as_ref()[start - all.start..end - all.start];
                if crc32c::crc32c(row_of) != self.layout.checksum(part, row) && !cfg!(fuzzing) {
                    return Err(Error::Corrupt("streams with another checksum"));
                }
            }
            found.push(streams);
        }
        let streams: Vec<&[u8]> = found.iter().map(AsRef::as_ref).collect();
        Ok(self.layout.write_part(&parts.rows, &streams))
    }

    /// Returns the range of bytes with the streams of some rows of tiles.
    fn of_rows(&self, part: usize, rows: (u32, u32)) -> Result<Range<usize>, Error> {
        if rows.0 == rows.1 {
            let start = self.layout.parts[part].start;
            return Ok(start..start);
        }
        self.layout.cursor(part).find_run(&self.layout, self.tiles_of(rows))
    }

    fn tiles_of(&self, (first, end): (u32, u32)) -> Range<usize> {
        let across = self.layout.tiles.counts()[0];
        (first * across) as usize..(end * across) as usize
    }
}
