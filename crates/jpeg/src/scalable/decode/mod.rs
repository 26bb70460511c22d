//! Decodes the tiles and the bands that a request needs.

mod places;
mod planes;
mod transform;

use std::ops::Range;

pub(crate) use self::planes::{PlaneRows, Planes, has_planes, planes_of};
use self::{places::BandPlaces, transform::Quants};
use super::{
    bands::{Band, Class, HIGH, HIGH_SLOT, MIDDLE, MIDDLE_SLOT, SLOTS, high_context, middle_context, part},
    book::{BOOK, Book},
    packed_layout::{PackedLayout, StreamCursor},
    streams::{
        BLOCKS, BlockSpec, COEFFICIENTS, DcStreams, LongStreams, LowBandFacts, LowStreams, LowTables, OFFSETS,
        StreamSet, StreamSpec,
    },
    tiles::{TileBlocks, classes},
};
use crate::{Error, kernel::SimdKernel, plan::CropPlan};

pub(crate) const fn is_needed(band: Band, points: u32) -> bool {
    match band {
        Band::Dc => true,
        Band::Low => points >= 2,
        Band::Middle => points >= 4,
        Band::High => points >= 8,
    }
}

/// A thread's memory for decoding packed pictures.
#[derive(Debug)]
pub(crate) struct ScalableMemory {
    coefficients: Box<[i16; COEFFICIENTS]>,
    facts: Box<[LowBandFacts; BLOCKS]>,
    specs: Box<[BlockSpec; BLOCKS]>,
    low: Box<LowTables>,
    streams: Vec<StreamSpec>,
    groups: Vec<Group>,
    /// For blocks of eight by eight, four by four, and two by two coefficients, each as it is and transposed.
    places: [[BandPlaces; 2]; 3],
}

/// The blocks of one class of a tile.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// The tile's first MCU, horizontally and vertically.
    mcu: [u32; 2],
    tile: usize,
    class: usize,
    /// The first block in [`ScalableMemory::facts`], and the number of blocks to decode.
    first: u32,
    count: u32,
    /// Where the coefficients begin, and the number of coefficients of one block.
    offset: u16,
    step: u16,
    shape: TileBlocks,
}

impl Default for ScalableMemory {
    fn default() -> Self {
        let of_side = |side: u8| [false, true].map(|transposed| BandPlaces::new(side, transposed));
        Self {
            coefficients: vec![0; COEFFICIENTS].try_into().expect("as many"),
            facts: vec![LowBandFacts::default(); BLOCKS].try_into().expect("as many"),
            specs: vec![BlockSpec::default(); BLOCKS].try_into().expect("as many"),
            low: Box::default(),
            streams: Vec::new(),
            groups: Vec::new(),
            places: [of_side(8), of_side(4), of_side(2)],
        }
    }
}

/// At least this many groups are decoded together, if there are as many, so that all streams in step have work.
const GROUPS: usize = 16;

impl ScalableMemory {
    /// The bytes of this memory.
    pub(super) const BYTES: u64 = (COEFFICIENTS * 2 + BLOCKS * 5 + size_of::<LowTables>()) as u64 + (8 << 10);

    /// Decodes the samples of a plan.
    #[inline(always)]
    pub(crate) fn decode<K: SimdKernel>(
        &mut self,
        kernel: K,
        layout: &PackedLayout<'_>,
        plan: &CropPlan,
        transposed: bool,
        samples: &mut [u8],
    ) -> Result<(), Error> {
        let points = [0, 1].map(|class| plan.planes[class].points);
        let quants = Quants::new(&layout.jpeg, transposed);
        let mut cursors = std::array::from_fn(|part| layout.cursor(part));
        let work = (layout, plan.mcus, points, transposed);
        self.decode_mcus(kernel, work, &mut cursors, |memory, group| {
            memory.transform(kernel, &layout.jpeg, plan, &quants, group, transposed, samples);
        })
    }

    /// Decodes the coefficients of all blocks in these MCUs, and passes each group of blocks to `use_group`. `points`
    /// are the samples along a block's side, of luma and of chroma. `cursors` must not be past any tile of these MCUs.
    #[inline(always)]
    fn decode_mcus<K: SimdKernel>(
        &mut self,
        kernel: K,
        (layout, mcus, points, transposed): (&PackedLayout<'_>, [(u32, u32); 2], [u32; 2], bool),
        cursors: &mut [StreamCursor; 8],
        mut use_group: impl FnMut(&Self, &Group),
    ) -> Result<(), Error> {
        let [columns, rows] = layout.tiles.of_mcus(mcus);
        let mut tiles = (rows.0..rows.1).flat_map(|row| (columns.0..columns.1).map(move |column| [column, row]));
        let mut next = tiles.next();
        while next.is_some() {
            self.groups.clear();
            let (mut blocks, mut offset) = (0, 0);
            while let Some(tile) = next {
                if !self.add_tile(layout, tile, mcus[1].1, points, &mut blocks, &mut offset) {
                    break;
                }
                next = tiles.next();
            }
            self.decode_groups(kernel, layout, points, transposed, cursors, offset)?;
            for at in 0..self.groups.len() {
                let group = self.groups[at];
                use_group(self, &group);
            }
        }
        Ok(())
    }

    /// Adds the groups of a tile, or returns false when they have no room.
    #[inline(always)]
    fn add_tile(
        &mut self,
        layout: &PackedLayout<'_>,
        tile: [u32; 2],
        bottom: u32,
        points: [u32; 2],
        blocks: &mut u32,
        offset: &mut usize,
    ) -> bool {
        if self.groups.len() >= GROUPS {
            return false;
        }
        let (before, mcus) = (self.groups.len(), layout.tiles.mcus(tile));
        let (mut first, mut start) = (*blocks, *offset);
        for (class, of) in classes(&layout.jpeg).iter().enumerate() {
            let shape = TileBlocks::new(&layout.jpeg, *of, mcus);
            // The rows below the last MCU are not needed.
            let needed = shape.rows / (mcus[1].1 - mcus[1].0) * (mcus[1].1.min(bottom) - mcus[1].0);
            let (count, step) = (shape.row() * needed, (points[class] * points[class]) as usize);
            self.groups.push(Group {
                mcu: [mcus[0].0, mcus[1].0],
                tile: (tile[1] * layout.tiles.counts()[0] + tile[0]) as usize,
                class,
                first,
                count,
                offset: start as u16,
                step: step as u16,
                shape,
            });
            first += count;
            start += count as usize * step;
        }
        let has_room = start <= OFFSETS && first as usize <= BLOCKS;
        if has_room {
            (*blocks, *offset) = (first, start);
        } else {
            self.groups.truncate(before);
        }
        has_room
    }

    #[inline(always)]
    fn decode_groups<K: SimdKernel>(
        &mut self,
        kernel: K,
        layout: &PackedLayout<'_>,
        points: [u32; 2],
        transposed: bool,
        cursors: &mut [StreamCursor; 8],
        used: usize,
    ) -> Result<(), Error> {
        let book: &Book = &BOOK;
        let Self { coefficients, facts, specs, low, streams, groups, places } = self;
        coefficients[..used].fill(0);
        low.prepare(book, &layout.codes);
        let places = |class: usize| {
            let of_side = match points[class] {
                8 => &places[0],
                4 => &places[1],
                _ => &places[2],
            };
            &of_side[usize::from(transposed)]
        };
        let classes = classes(&layout.jpeg).len();
        // Where both classes have blocks of one size, their streams are decoded together.
        let sets: &[(usize, usize)] =
            if classes == 2 && points[0] != points[1] { &[(0, 1), (1, 2)] } else { &[(0, classes)] };
        for &(from, to) in sets {
            collect(streams, layout, groups, (from, to), Band::Low, points, cursors)?;
            let set = StreamSet { data: layout.bytes, book, coefficients, streams };
            kernel.run(LowStreams { set, tables: low, places: places(from).low, facts })?;
            collect(streams, layout, groups, (from, to), Band::Middle, points, cursors)?;
            describe(&layout.codes, facts, coefficients, specs, streams, Band::Middle);
            let set = StreamSet { data: layout.bytes, book, coefficients, streams };
            kernel.run(LongStreams::<{ MIDDLE as u8 }> { set, blocks: specs, places: &places(from).middle })?;
            collect(streams, layout, groups, (from, to), Band::High, points, cursors)?;
            describe(&layout.codes, facts, coefficients, specs, streams, Band::High);
            let set = StreamSet { data: layout.bytes, book, coefficients, streams };
            kernel.run(LongStreams::<{ HIGH as u8 }> { set, blocks: specs, places: &places(from).high })?;
        }
        // DC comes last, because the other bands write values that belong to no coefficient to the place of DC.
        collect(streams, layout, groups, (0, classes), Band::Dc, points, cursors)?;
        let set = StreamSet { data: layout.bytes, book, coefficients, streams };
        kernel.run(DcStreams { set, codes: &layout.codes })
    }
}

/// Collects the streams of one band of the groups of these classes, one class after the other.
#[inline(always)]
fn collect(
    streams: &mut Vec<StreamSpec>,
    layout: &PackedLayout<'_>,
    groups: &[Group],
    in_classes: (usize, usize),
    band: Band,
    points: [u32; 2],
    cursors: &mut [StreamCursor; 8],
) -> Result<(), Error> {
    streams.clear();
    for (class, of) in [Class::Luma, Class::Chroma].into_iter().enumerate().take(in_classes.1).skip(in_classes.0) {
        if !is_needed(band, points[class]) {
            continue;
        }
        let cursor = &mut cursors[part(band, of)];
        for group in groups {
            if group.class == class {
                let Range { start, end } = cursor.find(layout, group.tile)?;
                streams.push(StreamSpec {
                    bytes: [start, end],
                    blocks: [group.first, group.first + group.count],
                    offset: group.offset,
                    step: group.step,
                    shape: group.shape,
                    class,
                });
            }
        }
    }
    Ok(())
}

/// Describes the blocks of each stream that have the middle or the high band.
#[inline(always)]
fn describe(
    codes: &[[u8; SLOTS]; 2],
    facts: &[LowBandFacts; BLOCKS],
    coefficients: &[i16; COEFFICIENTS],
    specs: &mut [BlockSpec; BLOCKS],
    streams: &mut [StreamSpec],
    band: Band,
) {
    let of_class = codes.map(|codes| {
        let code = |slot: usize| Book::long_index(slot, codes[slot]);
        let middle: [u8; 8] = std::array::from_fn(|context| code((MIDDLE_SLOT + context).min(HIGH_SLOT - 1)));
        let high: [u8; 4] = std::array::from_fn(|context| code(HIGH_SLOT + context));
        (middle, high)
    });
    let mut count = 0;
    for stream in streams {
        let first = count;
        let mut offset = stream.offset;
        let (middle, high) = &of_class[stream.class & 1];
        for block in stream.blocks[0]..stream.blocks[1] {
            let fact = facts[block as usize % BLOCKS];
            let (is_there, code) = if band == Band::Middle {
                (fact.has_middle(), middle[middle_context(fact.low_bits()) % 8])
            } else if fact.has_high() {
                let values = coefficients[usize::from(offset)..].first_chunk().map_or(0, middle_values);
                (true, high[high_context(values) % 4])
            } else {
                (false, 0)
            };
            specs[count as usize % BLOCKS] = BlockSpec::new(offset, code);
            count += u32::from(is_there);
            offset = offset.wrapping_add(stream.step);
        }
        stream.blocks = [first, count];
    }
}

/// The number of values in the middle band of a block of eight by eight coefficients.
#[inline(always)]
fn middle_values(block: &[i16; 64]) -> u32 {
    // Each row has four values of 16 bits. A value that is not 0 sets the topmost bit of its 16.
    let row = |row: usize, mask: u64| {
        let values: [i16; 4] = *block[row * 8..row * 8 + 4].first_chunk().expect("4 values");
        let values = values.iter().rev().fold(0u64, |word, value| word << 16 | u64::from(*value as u16)) & mask;
        const LOW: u64 = 0x7fff_7fff_7fff_7fff;
        (((values & LOW) + LOW) | values) & !LOW
    };
    const RIGHT: u64 = 0xffff_ffff_0000_0000;
    let rows = row(0, RIGHT) >> 3 | row(1, RIGHT) >> 2 | row(2, !0) >> 1 | row(3, !0);
    rows.count_ones()
}
