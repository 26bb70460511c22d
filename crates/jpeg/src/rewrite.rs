//! Rewrites a picture with other restart markers: the same coefficients, in segments of another length, so that a
//! decoder finds a crop without decoding what lies before it.

use crate::{
    bit_writer::BitWriter,
    bits::{BitBlock, Bits, ScanOrder},
    error::Error,
    header::Jpeg,
    huffman::{HuffmanSpec, Lookup, Pairs},
    limits::Limits,
    markers::segments_before_scan,
    progressive::{Coefficients, ProgressiveBlocks, sequential},
    standard,
    window::{Window, WindowEnd},
};

/// Returns the picture with a restart marker after every `interval` MCUs, or with none for 0. A progressive picture
/// becomes a baseline one, with Huffman tables made for it and without the segments between its scans. Coefficients and
/// all other segments stay the same; only a progressive picture with other quantisation tables between its scans
/// becomes another picture, which [`has_same_coefficients`] detects. [`Jpeg::open`] accepts the result for each picture
/// that it accepts.
///
/// # Errors
/// Returns an error when the picture is broken anywhere: all of it is read.
pub fn rewrite(bytes: &[u8], interval: u16, limits: Limits) -> Result<Vec<u8>, Error> {
    let jpeg = Jpeg::open(bytes, limits)?;
    if jpeg.is_progressive() {
        return sequential::rewrite(&jpeg, interval);
    }
    let mut walk = Walk::new(&jpeg)?;
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 32);
    out.extend([0xff, 0xd8]);
    let mut scan_header = &bytes[..0];
    for (marker, segment) in segments_before_scan(bytes) {
        match marker {
            0xdd => {}
            0xda => scan_header = segment,
            _ => out.extend(segment),
        }
    }
    let mut codes = [[(0, 0); 12]; 3];
    for (at, component) in jpeg.components().iter().enumerate() {
        let spec = jpeg.dc_spec(component);
        codes[at] = codes_of(spec).unwrap_or_else(|| {
            // At the beginning of segments, differences are larger than the picture's own table may allow.
            out.extend([0xff, 0xc4, 0, 31, component.dc]);
            out.extend(standard::DC[0].counts);
            out.extend(standard::DC[0].symbols);
            codes_of(standard::DC[0]).expect("it has all codes")
        });
    }
    if interval > 0 {
        out.extend([0xff, 0xdd, 0, 4]);
        out.extend(interval.to_be_bytes());
    }
    out.extend(scan_header);
    let mut writer = BitWriter::new(out);
    let mut last = [0; 3];
    let [columns, rows] = jpeg.mcus();
    for mcu in 0..columns * rows {
        if interval > 0 && mcu > 0 && mcu % u32::from(interval) == 0 {
            writer.align();
            writer.out.extend([0xff, 0xd0 + (mcu / u32::from(interval) - 1) as u8 % 8]);
            last = [0; 3];
        }
        walk.begin_mcu()?;
        for (at, component) in jpeg.components().iter().enumerate() {
            for _ in 0..component.sampling[0] * component.sampling[1] {
                walk.copy_block(at, &mut last[at], &codes[at], &mut writer)?;
            }
        }
    }
    walk.finish()?;
    writer.align();
    while walk.window.end() == WindowEnd::Open {
        // Skip meaningless bytes after the last MCU.
        walk.window.advance(bytes, walk.window.filled());
    }
    let mut out = writer.out;
    if walk.window.end() == WindowEnd::Bytes {
        out.extend([0xff, 0xd9]);
    } else {
        out.extend(&bytes[walk.window.at()..]);
    }
    Ok(out)
}

impl Jpeg<'_> {
    /// Reads all coefficients and all restart markers. A picture that passes can be decoded for any crop.
    ///
    /// # Errors
    /// Returns an error when the picture is broken.
    pub fn check_all(&self) -> Result<(), Error> {
        if self.is_progressive() {
            return Coefficients::check_all(self);
        }
        let mut walk = Walk::new(self)?;
        let [columns, rows] = self.mcus();
        for _ in 0..columns * rows {
            walk.begin_mcu()?;
            for (at, component) in self.components().iter().enumerate() {
                for _ in 0..component.sampling[0] * component.sampling[1] {
                    walk.measure_block(at)?;
                }
            }
        }
        walk.finish()
    }
}

/// Returns whether two pictures have the same size, quantisation and coefficients, and so the same pixels in any
/// decoder.
///
/// # Errors
/// Returns an error when one of the pictures is broken. All of both is read, unless they differ earlier.
pub fn has_same_coefficients(one: &[u8], other: &[u8], limits: Limits) -> Result<bool, Error> {
    let jpegs = [Jpeg::open(one, limits)?, Jpeg::open(other, limits)?];
    let shape = |jpeg: &Jpeg<'_>| {
        let components = jpeg.components().iter().map(|component| (component.sampling, *jpeg.quant(component)));
        (jpeg.size, components.collect::<Vec<_>>())
    };
    if shape(&jpegs[0]) != shape(&jpegs[1]) {
        return Ok(false);
    }
    let mut readers = [BlockReader::new(&jpegs[0])?, BlockReader::new(&jpegs[1])?];
    let order = ScanOrder::new(false);
    let mut blocks = [BitBlock::ZERO; 2];
    let [columns, rows] = jpegs[0].mcus();
    for _ in 0..columns * rows {
        for reader in &mut readers {
            reader.begin_mcu()?;
        }
        for (at, component) in jpegs[0].components().iter().enumerate() {
            for _ in 0..component.sampling[0] * component.sampling[1] {
                for (reader, block) in readers.iter_mut().zip(&mut blocks) {
                    reader.read_block(at, &order, block)?;
                }
                if blocks[0].coefficients() != blocks[1].coefficients() {
                    return Ok(false);
                }
            }
        }
    }
    readers.iter().try_for_each(BlockReader::finish)?;
    Ok(true)
}

/// Reads all blocks of a picture, MCU by MCU.
enum BlockReader<'j, 'b> {
    Baseline(Walk<'b>),
    Progressive(Box<ProgressiveBlocks<'j, 'b>>),
}

impl<'j, 'b> BlockReader<'j, 'b> {
    fn new(jpeg: &'j Jpeg<'b>) -> Result<Self, Error> {
        Ok(if jpeg.is_progressive() {
            Self::Progressive(Box::new(ProgressiveBlocks::new(jpeg)?))
        } else {
            Self::Baseline(Walk::new(jpeg)?)
        })
    }

    fn begin_mcu(&mut self) -> Result<(), Error> {
        match self {
            Self::Baseline(walk) => walk.begin_mcu(),
            Self::Progressive(blocks) => blocks.begin_mcu(),
        }
    }

    fn read_block(&mut self, component: usize, order: &ScanOrder, block: &mut BitBlock) -> Result<(), Error> {
        match self {
            Self::Baseline(walk) => walk.read_block(component, order, block)?,
            Self::Progressive(blocks) => blocks.read_block(component, block),
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        match self {
            Self::Baseline(walk) => walk.finish(),
            Self::Progressive(_) => Ok(()),
        }
    }
}

/// Returns the code, with its length, of each size of a difference, or `None` when one size has no code.
fn codes_of(spec: HuffmanSpec<'_>) -> Option<[(u32, u32); 12]> {
    let mut codes = [(0, 0); 12];
    let (mut code, mut symbols) = (0, spec.symbols.iter());
    for (length, count) in (1..).zip(spec.counts) {
        for symbol in symbols.by_ref().take(usize::from(*count)) {
            if let Some(place) = codes.get_mut(usize::from(*symbol)) {
                *place = (code, length);
            }
            code += 1;
        }
        code <<= 1;
    }
    codes.iter().all(|(_, length)| *length > 0).then_some(codes)
}

/// Reads all MCUs of a picture in order.
pub(crate) struct Walk<'b> {
    raw: &'b [u8],
    window: Window,
    bits: Bits,
    last: [i32; 3],
    interval: u32,
    mcu: u32,
    tables: Vec<(Lookup, Lookup, Pairs)>,
}

impl<'b> Walk<'b> {
    pub(crate) fn new(jpeg: &Jpeg<'b>) -> Result<Self, Error> {
        assert!(!jpeg.is_progressive(), "its blocks do not come in order");
        let table = |component| {
            let ac = jpeg.ac_spec(component);
            Ok((Lookup::dc(jpeg.dc_spec(component))?, Lookup::ac(ac)?, Pairs::new(ac)))
        };
        let tables = jpeg.components().iter().map(table).collect::<Result<_, _>>()?;
        let mut window = Window::default();
        window.start(jpeg.bytes, jpeg.scan_at);
        let (raw, interval) = (jpeg.bytes, jpeg.restart_interval);
        Ok(Self { raw, window, bits: Bits::default(), last: [0; 3], interval, mcu: 0, tables })
    }

    pub(crate) fn begin_mcu(&mut self) -> Result<(), Error> {
        if self.interval > 0 && self.mcu > 0 && self.mcu.is_multiple_of(self.interval) {
            self.finish()?;
            if self.window.end() != WindowEnd::Marker(0xd0 + (self.mcu / self.interval - 1) as u8 % 8) {
                return Err(Error::Corrupt("a restart marker out of turn"));
            }
            self.window.start(self.raw, self.window.at() + 2);
            (self.bits, self.last) = (Bits::default(), [0; 3]);
        }
        self.mcu += 1;
        self.bits.ensure(self.raw, &mut self.window)
    }

    pub(crate) fn read_block(
        &mut self,
        component: usize,
        order: &ScanOrder,
        block: &mut BitBlock,
    ) -> Result<(), Error> {
        let (dc, ac, pairs) = &self.tables[component];
        let last = &mut self.last[component];
        let is_block = self.bits.block(self.window.bytes(), (dc, ac, pairs), order, last, block);
        is_block.then_some(()).ok_or(Error::Corrupt("coefficients that are none"))
    }

    /// Copies the bits of a block, except for its DC coefficient, which it writes as the difference from `last`.
    fn copy_block(
        &mut self,
        component: usize,
        last: &mut i32,
        codes: &[(u32, u32); 12],
        writer: &mut BitWriter,
    ) -> Result<(), Error> {
        let (dc, ac, _) = &self.tables[component];
        let window = self.window.bytes();
        let first = self.bits.difference(window, dc).ok_or(Error::Corrupt("coefficients that are none"))?;
        self.last[component] = self.last[component].wrapping_add(first);
        let difference = self.last[component].wrapping_sub(*last);
        *last = self.last[component];
        let size = 32 - difference.unsigned_abs().leading_zeros();
        let &(code, length) = codes.get(size as usize).ok_or(Error::Corrupt("a coefficient beyond all bounds"))?;
        writer.put(code, length);
        writer.put(if difference < 0 { difference - 1 } else { difference } as u32, size);
        let is_block = self.bits.copy_rest(window, ac, |bits, count| writer.put(bits, count));
        is_block.then_some(()).ok_or(Error::Corrupt("coefficients that are none"))
    }

    /// Returns the number of symbols and of bits of the next block.
    pub(crate) fn measure_block(&mut self, component: usize) -> Result<[u64; 2], Error> {
        let (dc, ac, _) = &self.tables[component];
        let window = self.window.bytes();
        let mut counts = [1, u64::from(self.bits.difference_bits(window, dc))];
        let is_block = self.bits.copy_rest(window, ac, |_, bits| counts = [counts[0] + 1, counts[1] + u64::from(bits)]);
        is_block.then_some(counts).ok_or(Error::Corrupt("coefficients that are none"))
    }

    pub(crate) fn finish(&self) -> Result<(), Error> {
        self.bits.check_used(&self.window)
    }
}
