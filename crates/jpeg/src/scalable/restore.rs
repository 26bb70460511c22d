//! Restores the file that was packed.

use super::{
    ScalablePicture,
    bands::{bits_of, values_of},
    decode::{PlaneRows, Planes, planes_of},
    packed_layout::ScanPadding,
    tiles::MOST_SIDE,
};
use crate::{
    error::{Error, Unsupported},
    header::{Jpeg, NATURAL},
    huffman::HuffmanSpec,
    limits::Limits,
};

/// Returns the JPEG that was packed, bit for bit.
///
/// # Errors
/// Returns an error when the packed picture is broken anywhere, or exceeds the limits, and for [a part](super::PictureHead::cut) of one.
pub fn restore(bytes: &[u8], limits: Limits) -> Result<Vec<u8>, Error> {
    let picture = ScalablePicture::open(bytes, limits)?;
    let layout = picture.layout();
    if layout.is_part {
        return Err(NOT_RESTORABLE);
    }
    let header = layout.header();
    let jpeg = Jpeg::header_only(&header, limits, false)?;
    let (padding, mut segment) = (layout.padding(), 0);
    let mut out = header.clone();
    out.reserve(bytes.len() + bytes.len() / 4);
    let mut scan = ScanEncoder::new(&jpeg, &mut out, |_, _| {
        let bits = match &padding {
            ScanPadding::Ones => 0xff,
            ScanPadding::Zeros => 0,
            ScanPadding::Listed(list) => list.get(segment).copied().unwrap_or(0xff),
        };
        segment += 1;
        bits
    });
    let (mut rows, mut planes) = (PlaneRows::new(layout), planes_of(&jpeg, jpeg.mcus()[1].min(MOST_SIDE)));
    while let Some((first, end)) = rows.next(&mut planes)? {
        scan.add(&planes, end - first)?;
    }
    scan.finish();
    out.extend(layout.tail());
    Ok(out)
}

impl ScalablePicture<'_> {
    /// Returns a rough upper bound of the bytes of memory that [`restore`] takes for this picture, with the result.
    #[must_use]
    pub fn restore_bytes(&self) -> u64 {
        let jpeg = &self.layout().jpeg;
        let rows = u64::from(jpeg.mcus()[1]).div_ceil(MOST_SIDE.into());
        // A file is seldom more than twice as long as its packed picture, and a buffer up to twice as long as its
        // content.
        4 * self.layout().bytes.len() as u64 + jpeg.blocks().div_ceil(rows) * 128 + (1 << 20)
    }
}

/// Writes the scan of a picture, some rows of MCUs after the other.
pub(crate) struct ScanEncoder<'j, 'o, P> {
    jpeg: &'j Jpeg<'j>,
    codes: Vec<[Codes; 2]>,
    writer: ScanWriter<'o>,
    /// Gets the bytes written so far and the number of bits that are missing in the last byte; returns these bits, as
    /// the lowest ones of a byte.
    pad: P,
    /// The last DC coefficient of each component.
    last: [i32; 3],
    /// The number of MCUs that were written.
    mcu: u32,
}

impl<'j, 'o, P: FnMut(&[u8], u32) -> u8> ScanEncoder<'j, 'o, P> {
    pub(crate) fn new(jpeg: &'j Jpeg<'j>, out: &'o mut Vec<u8>, pad: P) -> Self {
        let of = |one| [Codes::new(jpeg.dc_spec(one)), Codes::new(jpeg.ac_spec(one))];
        let codes = jpeg.components().iter().map(of).collect();
        Self { jpeg, codes, writer: ScanWriter { out, reservoir: 0, count: 0 }, pad, last: [0; 3], mcu: 0 }
    }

    /// Writes the next rows of MCUs, which are the first rows of the planes.
    pub(crate) fn add(&mut self, planes: &Planes, rows: u32) -> Result<(), Error> {
        let (columns, interval) = (self.jpeg.mcus()[0], self.jpeg.restart_interval);
        for place in 0..columns * rows {
            let mcu = self.mcu;
            if interval > 0 && mcu > 0 && mcu.is_multiple_of(interval) {
                self.writer.align(&mut self.pad);
                self.writer.out.extend([0xff, 0xd0 + (mcu / interval - 1) as u8 % 8]);
                self.last = [0; 3];
            }
            let (x, y) = (place % columns, place / columns);
            for (at, component) in self.jpeg.components().iter().enumerate() {
                let [across, down] = component.sampling;
                for row in y * down..(y + 1) * down {
                    let first = (row * columns * across + x * across) as usize;
                    for block in &planes[at][first..first + across as usize] {
                        self.writer.block(block, &self.codes[at], &mut self.last[at]).ok_or(NOT_RESTORABLE)?;
                    }
                }
            }
            self.mcu += 1;
        }
        Ok(())
    }

    /// Writes the last bits.
    pub(crate) fn finish(mut self) {
        self.writer.align(&mut self.pad);
    }
}

pub(crate) const NOT_RESTORABLE: Error = Error::Unsupported(Unsupported::NotRestorable);

/// The code of each symbol of a Huffman table, and its length, which is 0 for a symbol without one.
struct Codes {
    codes: [(u16, u8); 256],
}

impl Codes {
    fn new(spec: HuffmanSpec<'_>) -> Self {
        let mut codes = [(0, 0); 256];
        let (mut code, mut symbols) = (0u32, spec.symbols.iter());
        for (length, count) in (1u8..).zip(spec.counts) {
            for symbol in symbols.by_ref().take(usize::from(*count)) {
                codes[usize::from(*symbol)] = (code as u16, length);
                code += 1;
            }
            code <<= 1;
        }
        Self { codes }
    }
}

/// Writes the bits of a scan.
struct ScanWriter<'o> {
    out: &'o mut Vec<u8>,
    reservoir: u64,
    /// The bits that are not written yet, at most 32.
    count: u32,
}

impl ScanWriter<'_> {
    /// Writes a symbol and the `size` bits of its value.
    #[inline(always)]
    fn put(&mut self, codes: &Codes, symbol: u8, value: u32, size: u32) -> Option<()> {
        let (code, length) = codes.codes[usize::from(symbol)];
        if length == 0 {
            return None;
        }
        let bits = u64::from(code) << size | u64::from(value & ((1 << size) - 1));
        let length = u32::from(length) + size;
        self.reservoir = self.reservoir << length | bits;
        self.count += length;
        if self.count >= 32 {
            self.count -= 32;
            let word = (self.reservoir >> self.count) as u32;
            if has_full(word) {
                for byte in word.to_be_bytes() {
                    self.byte(byte);
                }
            } else {
                self.out.extend(word.to_be_bytes());
            }
        }
        Some(())
    }

    fn byte(&mut self, byte: u8) {
        self.out.push(byte);
        if byte == 0xff {
            self.out.push(0);
        }
    }

    fn align(&mut self, pad: &mut impl FnMut(&[u8], u32) -> u8) {
        while self.count >= 8 {
            self.count -= 8;
            self.byte((self.reservoir >> self.count) as u8);
        }
        let missing = 8 - self.count;
        if missing < 8 {
            let bits = pad(self.out, missing) & (0xff >> (8 - missing));
            self.byte(((self.reservoir << missing) as u8) | bits);
        }
        (self.reservoir, self.count) = (0, 0);
    }

    #[inline(always)]
    fn block(&mut self, block: &[i16; 64], [dc, ac]: &[Codes; 2], last: &mut i32) -> Option<()> {
        let value = i32::from(block[0]);
        let difference = value - *last;
        *last = value;
        let size = bits_of(difference);
        self.put(dc, size as u8, (difference - i32::from(difference < 0)) as u32, size)?;
        let ordered = NATURAL.map(|place| block[usize::from(place)]);
        let mut rest = values_of(&ordered) & !1;
        let mut next = 1;
        while rest > 0 {
            let at = rest.trailing_zeros();
            let mut zeros = at - next;
            while zeros > 15 {
                self.put(ac, 0xf0, 0, 0)?;
                zeros -= 16;
            }
            let value = i32::from(ordered[at as usize & 63]);
            let size = bits_of(value);
            if size > 15 {
                return None;
            }
            self.put(ac, (zeros << 4 | size) as u8, (value - i32::from(value < 0)) as u32, size)?;
            (rest, next) = (rest & (rest - 1), at + 1);
        }
        if next < 64 { self.put(ac, 0, 0, 0) } else { Some(()) }
    }
}

/// Returns whether one of the four bytes is 255.
#[inline(always)]
fn has_full(word: u32) -> bool {
    let free = !word;
    free.wrapping_sub(0x0101_0101) & !free & 0x8080_8080 != 0
}
