//! Reads the header of a picture: the markers before the entropy-coded data.

use crate::{
    deviation::{Deviation, Deviations},
    error::{Error, Unsupported},
    huffman::HuffmanSpec,
    limits::Limits,
    markers::{ColourFacts, ColourModel, Markers, colour_model, has_end},
    progressive::{Progression, ProgressiveScan},
    standard,
};

/// The position of each coefficient of the zigzag order in its block, row by row.
pub(crate) const NATURAL: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// One colour component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Component {
    id: u8,
    /// The number of blocks of an MCU, horizontally and vertically.
    pub(crate) sampling: [u32; 2],
    quant: u8,
    pub(crate) dc: u8,
    pub(crate) ac: u8,
}

/// A baseline or progressive JPEG whose header has been read.
#[derive(Clone, Debug)]
pub struct Jpeg<'b> {
    pub(crate) bytes: &'b [u8],
    pub(crate) size: [u32; 2],
    pub(crate) components: [Component; 3],
    pub(crate) component_count: usize,
    /// The number of MCUs between restart markers, or 0 if there are none.
    pub(crate) restart_interval: u32,
    quants: [Option<[u16; 64]>; 4],
    dc: [Option<HuffmanSpec<'b>>; 4],
    ac: [Option<HuffmanSpec<'b>>; 4],
    /// The position of the entropy-coded data, which for a progressive picture is that of its first scan.
    pub(crate) scan_at: usize,
    /// The scans of a progressive picture; empty for a baseline one.
    pub(crate) scans: Vec<ProgressiveScan<'b>>,
    exif: Option<&'b [u8]>,
    xmp: Option<&'b [u8]>,
    deviations: Deviations,
}

const NO_QUANTS: Error = Error::Corrupt("no quantisation table");
const NO_TABLE: Error = Error::Corrupt("no Huffman table");

impl Component {
    /// Returns the identifier by which scans refer to the component.
    pub(crate) fn id(&self) -> u8 {
        self.id
    }
}

impl<'b> Jpeg<'b> {
    /// Reads the header of a picture, as leniently as libjpeg: [`deviations`](Self::deviations) lists the faults that
    /// were ignored. Of a progressive picture, reads the headers of all scans. If the end marker is missing, reads the
    /// whole picture to check that it is complete.
    ///
    /// # Errors
    /// Returns [`Error::Unsupported`] for a picture that another decoder may be able to decode. The other errors mean
    /// that the picture is bad.
    pub fn open(bytes: &'b [u8], limits: Limits) -> Result<Self, Error> {
        let (mut jpeg, has_end) = Self::read(bytes, limits, false)?;
        if !has_end {
            jpeg.check_all().map_err(|_| Error::Truncated)?;
            jpeg.deviations = jpeg.deviations.with(Deviation::NoEnd);
        }
        Ok(jpeg)
    }

    /// Reads the header of a picture whose scan may be elsewhere. `has_standard` is whether the standard's Huffman tables
    /// were taken from the header.
    pub(crate) fn header_only(bytes: &'b [u8], limits: Limits, has_standard: bool) -> Result<Self, Error> {
        let (jpeg, _) = Self::read(bytes, limits, has_standard)?;
        if jpeg.is_progressive() {
            return Err(Error::Unsupported(Unsupported::NotRestorable));
        }
        Ok(jpeg)
    }

    /// Reads the header, and whether the picture has its end marker.
    fn read(bytes: &'b [u8], limits: Limits, has_standard: bool) -> Result<(Self, bool), Error> {
        if !bytes.starts_with(&[0xff, 0xd8]) {
            return Err(Error::Corrupt("no start marker"));
        }
        let mut jpeg = Self {
            bytes,
            size: [0; 2],
            components: [Component::default(); 3],
            component_count: 0,
            restart_interval: 0,
            quants: [None; 4],
            dc: [None; 4],
            ac: [None; 4],
            scan_at: 0,
            scans: Vec::new(),
            exif: None,
            xmp: None,
            deviations: Deviations::NONE,
        };
        let mut markers = Markers::new(bytes);
        let mut is_progressive = false;
        let has_end = loop {
            let (marker, body) = markers.next_segment()?;
            match marker {
                0xc0..=0xc2 => {
                    jpeg.read_frame(body, limits)?;
                    is_progressive = marker == 0xc2;
                }
                0xc9..=0xcf => return Err(Error::Unsupported(Unsupported::Arithmetic)),
                0xc3 | 0xc5..=0xc7 | 0xde => return Err(Error::Unsupported(Unsupported::OtherProcess)),
                0xc4 => jpeg.read_huffman(body)?,
                0xda => {
                    jpeg.scan_at = markers.at();
                    jpeg.check_components(markers.colour_facts())?;
                    (jpeg.exif, jpeg.xmp) = (markers.exif(), markers.xmp());
                    if is_progressive {
                        break jpeg.read_progressive(body, &mut markers)?;
                    }
                    jpeg.read_scan(body)?;
                    jpeg.check_tables(has_standard)?;
                    break has_end(bytes, jpeg.scan_at);
                }
                0xdb => jpeg.read_quants(body)?,
                0xdd => jpeg.read_restart_interval(body)?,
                _ => {}
            }
        };
        jpeg.deviations = jpeg.deviations | markers.deviations();
        Ok((jpeg, has_end))
    }

    /// Returns width and height in pixels, each at least 1.
    #[must_use]
    pub fn size(&self) -> [u32; 2] {
        self.size
    }

    /// Returns the body of the EXIF segment, starting at its TIFF header.
    #[must_use]
    pub fn exif(&self) -> Option<&'b [u8]> {
        self.exif
    }

    /// Returns the XMP packet.
    #[must_use]
    pub fn xmp(&self) -> Option<&'b [u8]> {
        self.xmp
    }

    /// Returns the harmless departures of the picture from the standard.
    #[must_use]
    pub const fn deviations(&self) -> Deviations {
        self.deviations
    }

    /// Returns the number of MCUs between restart markers, or 0 if there are none.
    #[must_use]
    pub fn restart_interval(&self) -> u32 {
        self.restart_interval
    }

    /// Returns width and height of an MCU in pixels.
    #[must_use]
    pub fn mcu_pixels(&self) -> [u32; 2] {
        self.components[0].sampling.map(|blocks| blocks * 8)
    }

    /// Returns the number of MCUs of the picture, horizontally and vertically.
    #[must_use]
    pub fn mcus(&self) -> [u32; 2] {
        let mcu = self.mcu_pixels();
        [self.size[0].div_ceil(mcu[0]), self.size[1].div_ceil(mcu[1])]
    }

    /// Returns whether the picture is progressive.
    #[must_use]
    pub fn is_progressive(&self) -> bool {
        !self.scans.is_empty()
    }

    pub(crate) fn components(&self) -> &[Component] {
        &self.components[..self.component_count]
    }

    /// Returns whether a header means the same as another one, apart from a missing end marker.
    pub(crate) fn has_same_header(&self, other: &Jpeg<'_>) -> bool {
        let tables = |jpeg: &Jpeg<'b>, one: &Component| (*jpeg.quant(one), jpeg.dc_spec(one), jpeg.ac_spec(one));
        let same_tables = |(one, of_other): (&Component, &Component)| {
            let other = (*other.quant(of_other), other.dc_spec(of_other), other.ac_spec(of_other));
            tables(self, one) == other
        };
        let facts = |jpeg: &Jpeg<'_>| (jpeg.size, jpeg.component_count, jpeg.restart_interval);
        facts(self) == facts(other)
            && self.components() == other.components()
            && (self.exif, self.xmp) == (other.exif, other.xmp)
            && self.deviations.with(Deviation::NoEnd) == other.deviations.with(Deviation::NoEnd)
            && self.components().iter().zip(other.components()).all(same_tables)
    }

    pub(crate) fn quant(&self, component: &Component) -> &[u16; 64] {
        self.quants[usize::from(component.quant)].as_ref().expect("checked when the header was read")
    }

    /// Returns whether a quantisation factor has more than 8 bits.
    pub(crate) fn has_wide_quants(&self) -> bool {
        self.components().iter().any(|component| self.quant(component).iter().any(|factor| *factor > 255))
    }

    pub(crate) fn dc_spec(&self, component: &Component) -> HuffmanSpec<'b> {
        self.dc[usize::from(component.dc)].expect("checked when the header was read")
    }

    pub(crate) fn ac_spec(&self, component: &Component) -> HuffmanSpec<'b> {
        self.ac[usize::from(component.ac)].expect("checked when the header was read")
    }

    /// Returns a table that the file has for DC coefficients.
    pub(crate) fn dc_table(&self, slot: u8) -> Result<HuffmanSpec<'b>, Error> {
        self.dc.get(usize::from(slot)).copied().flatten().ok_or(NO_TABLE)
    }

    /// Returns a table that the file has for AC coefficients.
    pub(crate) fn ac_table(&self, slot: u8) -> Result<HuffmanSpec<'b>, Error> {
        self.ac.get(usize::from(slot)).copied().flatten().ok_or(NO_TABLE)
    }

    fn read_frame(&mut self, body: &[u8], limits: Limits) -> Result<(), Error> {
        if self.component_count > 0 {
            return Err(Error::Corrupt("two frame headers"));
        }
        let [precision, h1, h0, w1, w0, count, ..] = *body else { return Err(Error::Corrupt("a short frame header")) };
        if precision != 8 {
            return Err(Error::Unsupported(Unsupported::Precision));
        }
        let [height, width] = [[h1, h0], [w1, w0]].map(|side| u32::from(u16::from_be_bytes(side)));
        if height == 0 {
            return Err(Error::Unsupported(Unsupported::LateHeight));
        }
        if width == 0 {
            return Err(Error::Corrupt("a width of 0"));
        }
        if width.max(height) > limits.side_pixels || u64::from(width) * u64::from(height) > limits.pixels {
            return Err(Error::TooLarge { width, height });
        }
        self.size = [width, height];
        if count != 1 && count != 3 {
            return Err(Error::Unsupported(Unsupported::Components));
        }
        self.component_count = usize::from(count);
        let (components, rest) = body[6..].as_chunks::<3>();
        if components.len() != self.component_count || !rest.is_empty() {
            return Err(Error::Corrupt("a frame header of the wrong length"));
        }
        for (component, &[id, sampling, quant]) in self.components.iter_mut().zip(components) {
            let sampling = [u32::from(sampling >> 4), u32::from(sampling & 15)];
            if sampling.iter().any(|blocks| !(1..=4).contains(blocks)) || quant > 3 {
                return Err(Error::Corrupt("a frame header with impossible numbers"));
            }
            *component = Component { id, sampling, quant, dc: 0, ac: 0 };
        }
        Ok(())
    }

    fn read_huffman(&mut self, mut body: &'b [u8]) -> Result<(), Error> {
        while let Some((&class_and_slot, rest)) = body.split_first() {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or(Error::Corrupt("a short Huffman table"))?;
            let symbols = counts.iter().map(|count| usize::from(*count)).sum();
            let (symbols, rest) = rest.split_at_checked(symbols).ok_or(Error::Corrupt("a short Huffman table"))?;
            let tables = match class_and_slot >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return Err(Error::Corrupt("a Huffman table of no class")),
            };
            let slot = tables.get_mut(usize::from(class_and_slot & 15));
            *slot.ok_or(Error::Corrupt("a Huffman table of no slot"))? = Some(HuffmanSpec { counts, symbols });
            body = rest;
        }
        Ok(())
    }

    fn read_quants(&mut self, mut body: &[u8]) -> Result<(), Error> {
        const SHORT: Error = Error::Corrupt("a short quantisation table");
        while let Some((&wide_and_slot, rest)) = body.split_first() {
            let mut quant = [0; 64];
            body = if wide_and_slot >> 4 == 0 {
                let (values, rest) = rest.split_first_chunk::<64>().ok_or(SHORT)?;
                for (value, at) in values.iter().zip(NATURAL) {
                    quant[usize::from(at)] = u16::from(*value);
                }
                rest
            } else {
                let (values, rest) = rest.split_first_chunk::<128>().ok_or(SHORT)?;
                for (value, at) in values.as_chunks::<2>().0.iter().zip(NATURAL) {
                    quant[usize::from(at)] = u16::from_be_bytes(*value);
                }
                rest
            };
            let slot = self.quants.get_mut(usize::from(wide_and_slot & 15));
            *slot.ok_or(Error::Corrupt("a quantisation table of no slot"))? = Some(quant);
        }
        Ok(())
    }

    fn read_restart_interval(&mut self, body: &[u8]) -> Result<(), Error> {
        let interval = body.first_chunk::<2>().ok_or(Error::Corrupt("a short restart interval"))?;
        self.restart_interval = u32::from(u16::from_be_bytes(*interval));
        Ok(())
    }

    /// Reads the headers of all scans of a progressive picture, the first of which is `body`, and the tables between
    /// them. Returns whether there is an end marker.
    fn read_progressive(&mut self, body: &[u8], markers: &mut Markers<'b>) -> Result<bool, Error> {
        let mut progression = Progression::new();
        let (mut body, mut quants) = (body, [None; 4]);
        let has_end = 'scans: loop {
            let scan = progression.read(self, body, markers.at())?;
            for &component in scan.components() {
                // As in libjpeg, a component has the quantisation table that is in force for its first scan.
                let component = usize::from(component);
                let table = self.quants[usize::from(self.components[component].quant)];
                quants[component] = quants[component].or(table);
                quants[component].ok_or(NO_QUANTS)?;
            }
            self.scans.push(scan);
            markers.pass_scan();
            loop {
                let (marker, next) = match markers.next_marker() {
                    Err(Error::Truncated) => break 'scans false,
                    next => next?,
                };
                match marker {
                    0xd8 => return Err(Error::Corrupt("a second start marker")),
                    0xd9 => break 'scans true,
                    0xc4 => self.read_huffman(next)?,
                    0xdb => self.read_quants(next)?,
                    0xdd => self.read_restart_interval(next)?,
                    0xc0..=0xcf => return Err(Error::Corrupt("two frame headers")),
                    0xda => {
                        body = next;
                        break;
                    }
                    _ => {}
                }
            }
        };
        if (0..self.component_count).any(|component| progression.lacks(component)) {
            return Err(Error::Truncated);
        }
        if !progression.is_complete(self.component_count) {
            if !has_end {
                return Err(Error::Truncated);
            }
            self.deviations = self.deviations.with(Deviation::MissingScans);
        }
        self.quants = quants;
        for (component, own) in self.components.iter_mut().zip(0..) {
            component.quant = own;
        }
        Ok(has_end)
    }

    fn read_scan(&mut self, body: &[u8]) -> Result<(), Error> {
        let Some((&count, rest)) = body.split_first() else { return Err(Error::Corrupt("a short scan header")) };
        if usize::from(count) != self.component_count {
            return Err(Error::Unsupported(Unsupported::SeveralScans));
        }
        let Some((selectors, &[first, last, approximation])) = rest.split_last_chunk::<3>() else {
            return Err(Error::Corrupt("a short scan header"));
        };
        let (selectors, rest) = selectors.as_chunks::<2>();
        if selectors.len() != usize::from(count) || !rest.is_empty() {
            return Err(Error::Corrupt("a scan header of the wrong length"));
        }
        if [first, last, approximation] != [0, 63, 0] {
            // A sequential picture always has all coefficients in its scan, whatever this field contains.
            self.deviations = self.deviations.with(Deviation::ScanParameters);
        }
        for (component, &[id, tables]) in self.components.iter_mut().zip(selectors) {
            if component.id != id {
                return Err(Error::Corrupt("a scan of unknown components"));
            }
            (component.dc, component.ac) = (tables >> 4, tables & 15);
        }
        Ok(())
    }

    /// Checks the tables of a baseline picture, and fills in missing Huffman tables.
    fn check_tables(&mut self, has_standard: bool) -> Result<(), Error> {
        for at in 0..self.component_count {
            let Component { quant, dc, ac, .. } = self.components[at];
            if self.quants[usize::from(quant)].is_none() {
                return Err(NO_QUANTS);
            }
            for (tables, slot, standard) in [(&mut self.dc, dc, standard::DC), (&mut self.ac, ac, standard::AC)] {
                let table = tables.get_mut(usize::from(slot)).ok_or(NO_TABLE)?;
                if table.is_none() {
                    // The frames of Motion JPEG leave out these tables.
                    *table = Some(*standard.get(usize::from(slot)).ok_or(NO_TABLE)?);
                    if !has_standard {
                        self.deviations = self.deviations.with(Deviation::StandardTables);
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks the components before the first scan.
    fn check_components(&mut self, facts: ColourFacts) -> Result<(), Error> {
        if self.component_count == 0 {
            return Err(Error::Corrupt("a scan without a frame"));
        }
        if self.component_count == 1 {
            // The blocks of a single component come row by row, whatever its sampling factors are.
            self.components[0].sampling = [1, 1];
            return Ok(());
        }
        if colour_model(facts, &self.components.map(|component| component.id)) != ColourModel::LumaChroma {
            return Err(Error::Unsupported(Unsupported::ColourSpace));
        }
        let [luma, chroma @ ..] = self.components.map(|component| component.sampling);
        if luma.iter().any(|blocks| *blocks > 2) || chroma != [[1, 1]; 2] {
            return Err(Error::Unsupported(Unsupported::Sampling));
        }
        Ok(())
    }
}
