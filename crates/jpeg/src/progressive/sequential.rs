//! Writes a progressive picture as a baseline one with the same coefficients.

use super::all_blocks::ProgressiveBlocks;
use crate::{
    bit_writer::BitWriter,
    bits::BitBlock,
    error::Error,
    header::{Jpeg, NATURAL},
    markers::Markers,
    optimal::OptimalCode,
};

/// Length of the longest difference of DC coefficients, and of the longest AC coefficient.
const DC_BITS: u32 = 11;
const AC_BITS: u32 = 10;
/// The symbols for 16 zeros, and for the end of a block.
const ZEROS: u8 = 0xf0;
const END: u8 = 0;

/// Receives the symbols of a picture.
trait Symbols {
    /// Receives a symbol of a table (DC and AC of luma, DC and AC of chroma), and the bits after it.
    fn put(&mut self, table: usize, symbol: u8, bits: u32, count: u32);

    /// Ends a restart segment; `marker` is the second byte of the restart marker.
    fn end_segment(&mut self, marker: u8);
}

/// Counts symbols.
struct Counter([[u32; 256]; 4]);

impl Symbols for Counter {
    fn put(&mut self, table: usize, symbol: u8, _: u32, _: u32) {
        self.0[table][usize::from(symbol)] += 1;
    }

    fn end_segment(&mut self, _: u8) {}
}

/// Writes symbols.
struct Writer<'c> {
    codes: &'c [OptimalCode; 4],
    bits: BitWriter,
}

impl Symbols for Writer<'_> {
    fn put(&mut self, table: usize, symbol: u8, bits: u32, count: u32) {
        let (code, length) = self.codes[table].code(symbol);
        self.bits.put(code, length);
        self.bits.put(bits, count);
    }

    fn end_segment(&mut self, marker: u8) {
        self.bits.align();
        self.bits.out.extend([0xff, marker]);
    }
}

/// Returns the picture as a baseline one, with a restart marker after every `interval` MCUs, or with none for 0. Leaves
/// out all segments between two scans: a picture with other quantisation tables there becomes another one.
pub(crate) fn rewrite(jpeg: &Jpeg<'_>, interval: u16) -> Result<Vec<u8>, Error> {
    let mut counter = Counter([[0; 256]; 4]);
    write_symbols(jpeg, interval, &mut counter)?;
    let codes = counter.0.each_ref().map(OptimalCode::new);
    let mut out = Vec::with_capacity(jpeg.bytes.len() + jpeg.bytes.len() / 8);
    out.extend([0xff, 0xd8]);
    let mut markers = Markers::new(jpeg.bytes);
    let mut has_scan = false;
    // Everything after the scans is copied unchanged, from the end marker on.
    let rest = loop {
        let next = if has_scan { markers.next_marker() } else { markers.next_segment() };
        match next {
            Ok((0xda, _)) => {
                has_scan = true;
                markers.pass_scan();
            }
            Ok((0xd9, _)) => break &jpeg.bytes[markers.at() - 2..],
            Ok((0xc4 | 0xdd | 0x01 | 0xd0..=0xd7, _)) => {}
            Ok(_) if has_scan => {}
            Ok((marker, body)) => {
                // The marker of extended pictures allows quantisation factors of 16 bits.
                let frame = if jpeg.has_wide_quants() { 0xc1 } else { 0xc0 };
                let marker = if marker == 0xc2 { frame } else { marker };
                put_segment(&mut out, marker, body);
            }
            Err(_) => break &[0xff, 0xd9],
        }
    };
    let tables = if jpeg.component_count == 1 { 2 } else { 4 };
    for (codes, place) in codes[..tables].iter().zip([0, 0x10, 1, 0x11]) {
        put_segment(&mut out, 0xc4, &[&[place], &codes.counts[..], &codes.symbols].concat());
    }
    if interval > 0 {
        put_segment(&mut out, 0xdd, &interval.to_be_bytes());
    }
    let mut header = vec![jpeg.component_count as u8];
    for (at, component) in jpeg.components().iter().enumerate() {
        header.extend([component.id(), if at == 0 { 0 } else { 0x11 }]);
    }
    header.extend([0, 63, 0]);
    put_segment(&mut out, 0xda, &header);
    let mut writer = Writer { codes: &codes, bits: BitWriter::new(out) };
    write_symbols(jpeg, interval, &mut writer)?;
    writer.bits.align();
    let mut out = writer.bits.out;
    out.extend(rest);
    Ok(out)
}

fn put_segment(out: &mut Vec<u8>, marker: u8, body: &[u8]) {
    out.extend([0xff, marker]);
    out.extend((body.len() as u16 + 2).to_be_bytes());
    out.extend(body);
}

fn write_symbols(jpeg: &Jpeg<'_>, interval: u16, symbols: &mut impl Symbols) -> Result<(), Error> {
    let mut blocks = ProgressiveBlocks::new(jpeg)?;
    let (mut last, mut block) = ([0; 3], BitBlock::ZERO);
    let [columns, rows] = jpeg.mcus();
    for mcu in 0..columns * rows {
        if interval > 0 && mcu > 0 && mcu % u32::from(interval) == 0 {
            symbols.end_segment(0xd0 + (mcu / u32::from(interval) - 1) as u8 % 8);
            last = [0; 3];
        }
        blocks.begin_mcu()?;
        for (at, component) in jpeg.components().iter().enumerate() {
            for _ in 0..component.sampling[0] * component.sampling[1] {
                blocks.read_block(at, &mut block);
                write_block(block.coefficients(), 2 * at.min(1), &mut last[at], symbols)?;
            }
        }
    }
    Ok(())
}

fn write_block(
    coefficients: &[i16; 64],
    table: usize,
    last: &mut i32,
    symbols: &mut impl Symbols,
) -> Result<(), Error> {
    const TOO_LARGE: Error = Error::Corrupt("a coefficient beyond all bounds");
    let put = |table: usize, value: i32, zeros: u8, limit: u32, symbols: &mut dyn Symbols| {
        let size = 32 - value.unsigned_abs().leading_zeros();
        if size > limit {
            return Err(TOO_LARGE);
        }
        symbols.put(table, zeros << 4 | size as u8, if value < 0 { value - 1 } else { value } as u32, size);
        Ok(())
    };
    let dc = i32::from(coefficients[0]);
    put(table, dc - *last, 0, DC_BITS, symbols)?;
    *last = dc;
    let mut zeros = 0;
    for at in &NATURAL[1..] {
        let value = i32::from(coefficients[usize::from(*at)]);
        if value == 0 {
            zeros += 1;
            continue;
        }
        while zeros > 15 {
            symbols.put(table + 1, ZEROS, 0, 0);
            zeros -= 16;
        }
        put(table + 1, value, zeros, AC_BITS, symbols)?;
        zeros = 0;
    }
    if zeros > 0 {
        symbols.put(table + 1, END, 0, 0);
    }
    Ok(())
}
