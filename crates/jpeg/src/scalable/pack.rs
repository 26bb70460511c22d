//! Packs a JPEG.

use super::{
    ScalablePicture,
    bands::{
        Band, Class, DC_SLOT, DIFFERENCE_BITS, END, ESCAPE, FIRST_SLOT, HIGH, HIGH_SLOT, LOW, MIDDLE, MIDDLE_SLOT,
        PARTS, SECOND_SLOT, SLOTS, THIRD_SLOT, VALUE_BITS, ZEROS, bits_of, high_context, low_context, middle_context,
        part, places, values_of,
    },
    book::{BOOK, Code, CodeKind},
    decode::{Planes, has_planes, planes_of},
    packed_layout::{Contents, ScanPadding},
    restore::{NOT_RESTORABLE, ScanEncoder},
    tiles::{MOST_SIDE, TileBlocks, Tiles, classes},
};
use crate::{
    bits::{BitBlock, ScanOrder},
    error::Error,
    header::Jpeg,
    limits::Limits,
    rewrite::Walk,
    standard,
};

/// MCUs along the side of a tile. With fewer, a crop reads fewer bits that it does not need, but the file has more
/// lengths of streams.
const SIDE: u32 = 4;

/// Packs a JPEG so that [`ScalablePicture::render`] decodes what a crop needs at its scale, and
/// [`restore`](super::restore()) gives back the same file. The result is checked: it has the coefficients of the file,
/// and they give the same scan. A packed photograph is smaller than its file. A packed flat drawing may be larger; the
/// caller then keeps the file.
///
/// # Errors
/// Returns [`Error::Unsupported`] for a picture that cannot be packed and should stay as it is. Returns other errors
/// for a picture that is broken anywhere: all of it is read.
pub fn pack(bytes: &[u8], limits: Limits) -> Result<Vec<u8>, Error> {
    let jpeg = Jpeg::open(bytes, limits)?;
    if jpeg.is_progressive() {
        return Err(NOT_RESTORABLE);
    }
    let planes = read_planes(&jpeg)?;
    let mut out = bytes[..jpeg.scan_at].to_vec();
    out.reserve(bytes.len());
    let mut pads = Vec::new();
    let mut scan = ScanEncoder::new(&jpeg, &mut out, |out, bits| {
        let mask = 0xff >> (8 - bits);
        let pad = bytes.get(out.len()).copied().unwrap_or(0) & mask;
        pads.push((pad, mask));
        pad
    });
    scan.add(&planes, jpeg.mcus()[1])?;
    scan.finish();
    let tail = bytes.strip_prefix(&out[..]).ok_or(NOT_RESTORABLE)?;
    let padding = if pads.iter().all(|(pad, mask)| pad == mask) {
        ScanPadding::Ones
    } else if pads.iter().all(|(pad, _)| *pad == 0) {
        ScanPadding::Zeros
    } else {
        ScanPadding::Listed(pads.iter().map(|(pad, _)| *pad).collect())
    };
    let header = &bytes[..jpeg.scan_at];
    let standard = standard::segments(jpeg.component_count);
    let cut_at = header.windows(standard.len()).position(|window| window == standard);
    // The bytes found may belong to another segment, so the cut header is compared below.
    let without = cut_at.map(|at| [&header[..at], &header[at + standard.len()..]].concat());
    let is_same = |header: &[u8]| {
        Jpeg::header_only(header, limits, true)
            .is_ok_and(|cut| cut.scan_at == header.len() && cut.has_same_header(&jpeg))
    };
    let (cut_at, header) = match &without {
        Some(without) if is_same(without) => (cut_at, &without[..]),
        _ => (None, header),
    };
    let write = |side: u32| {
        let tiles = Tiles::new(&jpeg, side);
        let codes = choose_codes(&jpeg, &planes, &tiles)?;
        let parts = write_streams(&jpeg, &planes, &tiles, &codes)?;
        let codes = &codes[..classes(&jpeg).len()];
        let across = tiles.counts()[0] as usize;
        Contents { header, cut_at, side, across, codes, parts, tail, padding: &padding }.write().ok_or(NOT_RESTORABLE)
    };
    let mut packed = write(SIDE)?;
    if packed.len() > bytes.len() {
        // A flat picture, whose blocks have few bits: larger tiles have fewer lengths.
        let larger_tiles = write(MOST_SIDE)?;
        if larger_tiles.len() < packed.len() {
            packed = larger_tiles;
        }
    }
    let picture = ScalablePicture::open(&packed, limits)?;
    let is_whole = has_planes(picture.layout(), &planes)? && picture.layout().header() == bytes[..jpeg.scan_at];
    assert!(is_whole, "a packed picture with other coefficients");
    Ok(packed)
}

/// Returns an upper bound of the bytes of memory that [`pack`] takes for a picture, with the file and the result. It is
/// known from the header.
#[must_use]
pub fn pack_bytes(jpeg: &Jpeg<'_>, file_bytes: u64) -> u64 {
    jpeg.blocks() * size_of::<[i16; 64]>() as u64 + 5 * file_bytes + (1 << 20)
}

fn read_planes(jpeg: &Jpeg<'_>) -> Result<Planes, Error> {
    let mut walk = Walk::new(jpeg)?;
    let order = ScanOrder::new(false);
    let [columns, rows] = jpeg.mcus();
    let mut planes = planes_of(jpeg, rows);
    let mut block = BitBlock::ZERO;
    for y in 0..rows {
        for x in 0..columns {
            walk.begin_mcu()?;
            for (at, component) in jpeg.components().iter().enumerate() {
                let [across, down] = component.sampling;
                for row in y * down..(y + 1) * down {
                    let first = (row * columns * across + x * across) as usize;
                    for place in &mut planes[at][first..first + across as usize] {
                        walk.read_block(at, &order, &mut block)?;
                        *place = *block.coefficients();
                    }
                }
            }
        }
    }
    walk.finish()?;
    Ok(planes)
}

/// Returns the codes of each class that take the fewest bits.
fn choose_codes(jpeg: &Jpeg<'_>, planes: &Planes, tiles: &Tiles) -> Result<[[u8; SLOTS]; 2], Error> {
    let mut counts = Box::new([[[0u32; 256]; SLOTS]; 2]);
    for tile in 0..tiles.count() as u32 {
        for class in classes(jpeg) {
            let counts = &mut counts[*class as usize];
            tile_symbols(jpeg, planes, tiles, (tile, *class), |slot, symbol, _| {
                counts[slot % SLOTS][usize::from(symbol)] += 1;
            })?;
        }
    }
    Ok(counts.each_ref().map(|counts| std::array::from_fn(|slot| best_code(&counts[slot], CodeKind::of(slot)))))
}

/// Returns the code of a kind that takes the fewest bits for these symbols.
fn best_code(counts: &[u32; 256], kind: CodeKind) -> u8 {
    let present: Vec<(usize, u64)> =
        counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, count)| (at, u64::from(*count))).collect();
    let bits = |code: &Code| -> u64 {
        let escaped = kind.escaped_bits(code);
        let of = |&(symbol, count): &(usize, u64)| {
            count * u64::from(if code.lengths[symbol] > 0 { u32::from(code.lengths[symbol]) } else { escaped })
        };
        present.iter().map(of).sum()
    };
    let best = BOOK.codes(kind).enumerate().min_by_key(|(_, code)| bits(code));
    best.map_or(0, |(at, _)| at as u8)
}

/// Passes the symbols of one class of a tile to `put`, each as the slot of its code, the symbol, and its value.
#[inline(always)]
fn tile_symbols(
    jpeg: &Jpeg<'_>,
    planes: &Planes,
    tiles: &Tiles,
    (tile, class): (u32, Class),
    mut put: impl FnMut(usize, u8, i32),
) -> Result<(), Error> {
    let [across, _] = tiles.counts();
    let (columns, mcus) = (jpeg.mcus()[0], tiles.mcus([tile % across, tile / across]));
    let shape = TileBlocks::new(jpeg, class, mcus);
    let components = if class == Class::Luma { 0..1 } else { 1..3 };
    for row in 0..shape.rows {
        for component in components.clone() {
            let sampling = jpeg.components()[component].sampling;
            let width = (columns * sampling[0]) as usize;
            let plane = &planes[component];
            let first = (mcus[1].0 * sampling[1] + row) as usize * width + (mcus[0].0 * sampling[0]) as usize;
            for at in first..first + shape.across as usize {
                let before = match (at > first, row > 0) {
                    (true, _) => plane[at - 1][0],
                    (_, true) => plane[at - width][0],
                    _ => 0,
                };
                block_symbols(&plane[at], i32::from(before), &mut put)?;
            }
        }
    }
    Ok(())
}

/// The places of a block's coefficients band by band: DC, low, middle, high.
const BY_BAND: [u8; 64] = {
    let (middle, high): ([u8; MIDDLE], [u8; HIGH]) = (places(Band::Middle), places(Band::High));
    let mut all = [0; 64];
    let mut at = 1;
    while at < 64 {
        all[at] = if at < 4 {
            LOW[at - 1]
        } else if at < 16 {
            middle[at - 4]
        } else {
            high[at - 16]
        };
        at += 1;
    }
    all
};

/// Passes the symbols of a block to `put`. The block's DC coefficient is stored as its difference from `before`.
#[inline(always)]
fn block_symbols(block: &[i16; 64], before: i32, mut put: impl FnMut(usize, u8, i32)) -> Result<(), Error> {
    let ordered = BY_BAND.map(|place| block[usize::from(place)]);
    let values = values_of(&ordered);
    let mut put = |slot: usize, symbol: u32, value: i32| put(slot, symbol as u8, value);
    let difference = i32::from(ordered[0]) - before;
    let size = bits_of(difference);
    if size > DIFFERENCE_BITS || ordered[1..].iter().any(|value| value.unsigned_abs() >> VALUE_BITS > 0) {
        return Err(NOT_RESTORABLE);
    }
    put(DC_SLOT, size, difference);

    let (middle, high) = (values >> 4 & 0xfff, values >> 16);
    let mut sum = 0;
    for (slot, value) in [FIRST_SLOT, SECOND_SLOT, THIRD_SLOT].into_iter().zip(&ordered[1..]) {
        let size = bits_of(i32::from(*value));
        let further = u32::from(middle > 0) << 1 | u32::from(high > 0);
        let symbol = if slot == THIRD_SLOT { size << 2 | further } else { size };
        put(slot + if slot == FIRST_SLOT { 0 } else { low_context(sum) }, symbol, i32::from(*value));
        sum += size;
    }
    let slots = [MIDDLE_SLOT + middle_context(sum), HIGH_SLOT + high_context(middle.count_ones())];
    for ((band, values), slot) in [(&ordered[4..16], middle), (&ordered[16..], high)].into_iter().zip(slots) {
        let (mut rest, mut next) = (values, 0);
        while rest > 0 {
            let at = rest.trailing_zeros();
            let mut zeros = at - next;
            while zeros > 15 {
                put(slot, u32::from(ZEROS), 0);
                zeros -= 16;
            }
            let value = i32::from(band[at as usize]);
            put(slot, zeros << 4 | bits_of(value), value);
            (rest, next) = (rest & (rest - 1), at + 1);
        }
        if values > 0 && (next as usize) < band.len() {
            put(slot, u32::from(END), 0);
        }
    }
    Ok(())
}

/// Returns the stream of each tile, for each part that the picture has.
fn write_streams(
    jpeg: &Jpeg<'_>,
    planes: &Planes,
    tiles: &Tiles,
    codes: &[[u8; SLOTS]; 2],
) -> Result<Vec<Vec<Vec<u8>>>, Error> {
    let codes_of = |codes: &[u8; SLOTS]| -> [&Code; SLOTS] {
        std::array::from_fn(|slot| BOOK.codes(CodeKind::of(slot)).nth(usize::from(codes[slot])).expect("in the book"))
    };
    let (codes, classes) = (codes.each_ref().map(codes_of), classes(jpeg));
    let mut parts = vec![Vec::with_capacity(tiles.count()); PARTS.len()];
    for tile in 0..tiles.count() as u32 {
        for class in classes {
            let mut writers: [BitStream; 4] = Default::default();
            tile_symbols(jpeg, planes, tiles, (tile, *class), |slot, symbol, value| {
                let (writer, code) =
                    (&mut writers[CodeKind::of(slot).band() as usize], codes[*class as usize][slot % SLOTS]);
                let length = u32::from(code.lengths[usize::from(symbol)]);
                if length > 0 {
                    writer.put(u32::from(code.bits[usize::from(symbol)]), length);
                } else {
                    let escape = usize::from(ESCAPE);
                    writer.put(u32::from(code.bits[escape]), u32::from(code.lengths[escape]));
                    writer.put(u32::from(symbol), 8);
                }
                writer.put((value - i32::from(value < 0)) as u32, bits_of(value));
            })?;
            for (band, writer) in [Band::Dc, Band::Low, Band::Middle, Band::High].into_iter().zip(writers) {
                parts[part(band, *class)].push(writer.finish());
            }
        }
    }
    Ok(parts.into_iter().zip(PARTS).filter(|(_, (_, class))| classes.contains(class)).map(|(part, _)| part).collect())
}

/// Writes the bits of a stream, the topmost first.
#[derive(Default)]
struct BitStream {
    out: Vec<u8>,
    reservoir: u64,
    count: u32,
}

impl BitStream {
    /// Writes the lowest `count` bits of `bits`, at most 16.
    fn put(&mut self, bits: u32, count: u32) {
        self.reservoir = self.reservoir << count | u64::from(bits & ((1 << count) - 1));
        self.count += count;
        if self.count >= 32 {
            self.count -= 32;
            self.out.extend(((self.reservoir >> self.count) as u32).to_be_bytes());
        }
    }

    fn finish(mut self) -> Vec<u8> {
        while self.count > 0 {
            let taken = self.count.min(8);
            self.count -= taken;
            self.out.push((self.reservoir >> self.count << (8 - taken)) as u8);
        }
        self.out
    }
}
