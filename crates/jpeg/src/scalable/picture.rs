//! A packed picture as a caller sees it: the facts in its head, and its pixels.

use std::ops::Range;

use super::{
    bands::PARTS,
    decode::{ScalableMemory, is_needed},
    packed_layout::{LAST_VERSION, MAGIC, PackedLayout, VERSION},
};
use crate::{Deviations, Error, Limits, Output, PictureRequest, Scratch, plan::CropPlan};

/// A packed picture whose head has been read.
#[derive(Clone, Debug)]
pub struct ScalablePicture<'b> {
    layout: PackedLayout<'b>,
}

impl<'b> ScalablePicture<'b> {
    /// Returns whether bytes begin like a packed picture of this or a later version. No text begins with these bytes.
    #[must_use]
    pub fn is_packed(bytes: &[u8]) -> bool {
        let is_version = |byte: &u8| (VERSION..=LAST_VERSION).contains(byte);
        bytes.starts_with(&MAGIC) && bytes.get(MAGIC.len()).is_some_and(is_version)
    }

    /// Reads the head of a packed picture.
    ///
    /// # Errors
    /// Returns an error when the bytes are not a packed picture, when its head is broken, or when it exceeds the limits.
    pub fn open(bytes: &'b [u8], limits: Limits) -> Result<Self, Error> {
        Ok(Self { layout: PackedLayout::read(bytes, limits)? })
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

    /// Returns the harmless departures of the JPEG's header from the standard.
    #[must_use]
    pub const fn deviations(&self) -> Deviations {
        self.layout.jpeg.deviations()
    }

    /// Decodes the pixels of a request: the same pixels as [`Jpeg::render`](crate::Jpeg::render) on the file that was packed.
    ///
    /// # Errors
    /// Returns an error when the picture is broken where it is read. The output may have received some of it.
    ///
    /// # Panics
    /// Panics when the request does not lie within the picture.
    pub fn render(
        &self,
        request: &PictureRequest,
        scratch: &mut Scratch,
        output: &mut impl Output,
    ) -> Result<(), Error> {
        scratch.render_scalable(&self.layout, request, output)
    }

    /// Returns a rough upper bound of the bytes of memory that [`render`](Self::render) takes.
    #[must_use]
    pub fn render_bytes(&self, request: &PictureRequest) -> u64 {
        self.layout.jpeg.render_bytes(request) + ScalableMemory::BYTES
    }

    /// Returns the ranges of bytes that a request needs, in order, merged where they touch. The first begins with the
    /// head and the table of lengths, which have to be there before this can be asked.
    ///
    /// # Errors
    /// Returns an error when the table of lengths is broken.
    ///
    /// # Panics
    /// Panics when the request does not lie within the picture.
    pub fn ranges(&self, request: &PictureRequest) -> Result<Vec<Range<usize>>, Error> {
        let layout = &self.layout;
        layout.jpeg.check_request(request);
        let mut plan = CropPlan::default();
        plan.make(&layout.jpeg, request);
        let [columns, rows] = layout.tiles.of_mcus(plan.mcus);
        let mut ranges: Vec<Range<usize>> = std::iter::once(0..layout.table_end).collect();
        for index in layout.written_parts() {
            let (band, class) = PARTS[index];
            if !is_needed(band, plan.planes[class as usize].points) {
                continue;
            }
            let mut cursor = layout.cursor(index);
            for row in rows.0..rows.1 {
                for column in columns.0..columns.1 {
                    let found = cursor.find(layout, (row * layout.tiles.counts()[0] + column) as usize)?;
                    match ranges.last_mut() {
                        Some(last) if last.end == found.start => last.end = found.end,
                        _ if found.is_empty() => {}
                        _ => ranges.push(found),
                    }
                }
            }
        }
        Ok(ranges)
    }

    pub(crate) const fn layout(&self) -> &PackedLayout<'b> {
        &self.layout
    }
}
