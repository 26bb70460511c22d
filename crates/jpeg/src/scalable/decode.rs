//! Decodes the tiles and the bands that a request needs.

use std::ops::Range;

use super::{
    bands::{
        Band, Class, HIGH, HIGH_SLOT, LOW, MIDDLE, MIDDLE_SLOT, PARTS, SLOTS, high_context, middle_context, part,
        places,
    },
    book::{BOOK, Book},
    layout::{LAST_VERSION, Layout, MAGIC, StreamCursor, VERSION},
    streams::{
        BLOCKS, BlockFacts, BlockSpec, COEFFICIENTS, DcStreams, LongStreams, LowStreams, LowTables, OFFSETS, StreamSet,
        StreamSpec,
    },
    tiles::{TileBlocks, classes},
};
use crate::{
    Deviations, Error, Limits, Output, PictureRequest, Scratch,
    header::Jpeg,
    idct::{self, CoefficientPlace},
    kernel::{RowWork, SimdKernel},
    plan::{CropPlan, Plane},
};

/// A packed picture whose head has been read.
#[derive(Clone, Debug)]
pub struct ScalablePicture<'b> {
    layout: Layout<'b>,
}

impl<'b> ScalablePicture<'b> {
    /// Returns whether bytes begin like a packed picture of this or a later version. No text begins so.
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
        Ok(Self { layout: Layout::read(bytes, limits)? })
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

    /// Decodes the pixels of a request: the same pixels as [`Jpeg::render`] on the file that was packed.
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

    pub(crate) const fn layout(&self) -> &Layout<'b> {
        &self.layout
    }
}

pub(crate) const fn is_needed(band: Band, points: u32) -> bool {
    match band {
        Band::Dc => true,
        Band::Low => points >= 2,
        Band::Middle => points >= 4,
        Band::High => points >= 8,
    }
}

/// The places of the bands' coefficients in blocks of `side` by `side` coefficients. A band that these do not have has none.
#[derive(Clone, Debug)]
struct BandPlaces {
    low: [u8; 3],
    middle: [u8; 256],
    high: [u8; 256],
}

impl BandPlaces {
    fn new(side: u8, transposed: bool) -> Self {
        let placed = |natural: u8| {
            let [row, column] = if transposed { [natural & 7, natural >> 3] } else { [natural >> 3, natural & 7] };
            row * side + column
        };
        let (mut middle, mut high) = ([0; 256], [0; 256]);
        if side >= 4 {
            for (place, natural) in middle[1..].iter_mut().zip(places::<MIDDLE>(Band::Middle)) {
                *place = placed(natural);
            }
        }
        if side == 8 {
            for (place, natural) in high[1..].iter_mut().zip(places::<HIGH>(Band::High)) {
                *place = placed(natural);
            }
        }
        Self { low: LOW.map(placed), middle, high }
    }
}

/// A thread's memory for decoding packed pictures.
#[derive(Debug)]
pub(crate) struct ScalableMemory {
    coefficients: Box<[i16; COEFFICIENTS]>,
    facts: Box<[BlockFacts; BLOCKS]>,
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
    /// The first block in [`ScalableMemory::facts`], and the number of those to decode.
    first: u32,
    count: u32,
    /// Where the coefficients begin, and those of one block.
    offset: u16,
    step: u16,
    shape: TileBlocks,
}

impl Default for ScalableMemory {
    fn default() -> Self {
        let of_side = |side: u8| [false, true].map(|transposed| BandPlaces::new(side, transposed));
        Self {
            coefficients: vec![0; COEFFICIENTS].try_into().expect("as many"),
            facts: vec![BlockFacts::default(); BLOCKS].try_into().expect("as many"),
            specs: vec![BlockSpec::default(); BLOCKS].try_into().expect("as many"),
            low: Box::default(),
            streams: Vec::new(),
            groups: Vec::new(),
            places: [of_side(8), of_side(4), of_side(2)],
        }
    }
}

/// The smallest number of groups that are decoded together where there are as many, so that all lanes have work.
const GROUPS: usize = 16;

impl ScalableMemory {
    /// The bytes of this memory.
    const BYTES: u64 = (COEFFICIENTS * 2 + BLOCKS * 5 + size_of::<LowTables>()) as u64 + (8 << 10);

    /// Decodes the samples of a plan.
    #[inline(always)]
    pub(crate) fn decode<K: SimdKernel>(
        &mut self,
        kernel: K,
        layout: &Layout<'_>,
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

    /// Decodes the coefficients of all blocks in these MCUs, and passes each group of them to `use_group`. `points` are
    /// the samples along a block's side, of luma and of chroma. `cursors` have passed no tile of them.
    #[inline(always)]
    fn decode_mcus<K: SimdKernel>(
        &mut self,
        kernel: K,
        (layout, mcus, points, transposed): (&Layout<'_>, [(u32, u32); 2], [u32; 2], bool),
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
        layout: &Layout<'_>,
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
        layout: &Layout<'_>,
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
        // Last, because the bands before it use the places of DC for what belongs to no coefficient.
        collect(streams, layout, groups, (0, classes), Band::Dc, points, cursors)?;
        let set = StreamSet { data: layout.bytes, book, coefficients, streams };
        kernel.run(DcStreams { set, codes: &layout.codes })
    }

    /// Transforms the blocks of a group that the plan needs.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn transform<K: SimdKernel>(
        &self,
        kernel: K,
        jpeg: &Jpeg<'_>,
        plan: &CropPlan,
        quants: &Quants,
        group: &Group,
        transposed: bool,
        samples: &mut [u8],
    ) {
        let components = if group.class == 0 { 0..1 } else { 1..jpeg.components().len() };
        for (at, component) in components.enumerate() {
            let work = TransformGroup {
                coefficients: &self.coefficients,
                group,
                skipped: at as u32 * group.shape.across,
                plane: &plan.planes[component],
                mcus: plan.mcus,
                quants,
                component,
                transposed,
                samples,
            };
            kernel.run(work);
        }
    }
}

/// Collects the streams of one band of these classes' groups, those of a class after each other.
#[inline(always)]
fn collect(
    streams: &mut Vec<StreamSpec>,
    layout: &Layout<'_>,
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
    facts: &[BlockFacts; BLOCKS],
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
    // In each row four values of 16 bits; a value that is not 0 leaves its topmost bit.
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

/// The quantisation of each component, in the order of the coefficients.
struct Quants {
    eight: [[i16; 64]; 3],
    four: [[i16; 16]; 3],
    two: [[i16; 4]; 3],
}

impl Quants {
    fn new(jpeg: &Jpeg<'_>, transposed: bool) -> Self {
        let mut quants = Self { eight: [[0; 64]; 3], four: [[0; 16]; 3], two: [[0; 4]; 3] };
        for (at, component) in jpeg.components().iter().enumerate() {
            let written = jpeg.quant(component);
            quants.eight[at] =
                std::array::from_fn(|at| written[if transposed { at >> 3 | (at & 7) << 3 } else { at }] as i16);
            quants.four[at] = std::array::from_fn(|place| quants.eight[at][place / 4 * 8 + place % 4]);
            quants.two[at] = std::array::from_fn(|place| quants.eight[at][place / 2 * 8 + place % 2]);
        }
        quants
    }
}

/// Transforms the blocks of one component of a group.
struct TransformGroup<'t> {
    coefficients: &'t [i16; COEFFICIENTS],
    group: &'t Group,
    /// The blocks before the component's in each row.
    skipped: u32,
    plane: &'t Plane,
    mcus: [(u32, u32); 2],
    quants: &'t Quants,
    component: usize,
    transposed: bool,
    samples: &'t mut [u8],
}

impl RowWork for TransformGroup<'_> {
    type Outcome = ();

    #[inline(always)]
    fn run<K: SimdKernel>(self, kernel: K) {
        let Self { coefficients, group, plane, samples, .. } = self;
        // In blocks: the tile's first, and those that the plan needs.
        let origin = [0, 1].map(|axis| group.mcu[axis] * plane.blocks[axis]);
        let needed = [0, 1].map(|axis| {
            let blocks = plane.blocks[axis];
            (self.mcus[axis].0 * blocks, self.mcus[axis].1 * blocks)
        });
        let columns =
            needed[0].0.max(origin[0]) - origin[0]..needed[0].1.min(origin[0] + group.shape.across) - origin[0];
        let rows = needed[1].0.max(origin[1]) - origin[1]..needed[1].1.min(origin[1] + group.shape.rows) - origin[1];
        let points = plane.points;
        let per_block = points as usize * if self.transposed { 1 } else { plane.stride };
        for row in rows {
            let [x, y] = [(origin[0] + columns.start - needed[0].0) * points, (origin[1] + row - needed[1].0) * points];
            let [p, q] = if self.transposed { [y, x] } else { [x, y] };
            let mut start = plane.start + p as usize * plane.stride + q as usize;
            let first = row * group.shape.row() + self.skipped + columns.start;
            let at = usize::from(group.offset) + first as usize * usize::from(group.step);
            let length = columns.len() * usize::from(group.step);
            let blocks = &coefficients[at..at + length];
            let mut next = || {
                let place = CoefficientPlace { start, stride: plane.stride };
                start += per_block;
                place
            };
            match points {
                8 => {
                    let quant = &self.quants.eight[self.component];
                    let (pairs, last) = blocks.as_chunks::<64>().0.as_chunks::<2>();
                    for [one, other] in pairs {
                        kernel.full_pair([one, other], [quant; 2], samples, [next(), next()]);
                    }
                    for block in last {
                        kernel.full_pair([block; 2], [quant; 2], samples, [next(); 2]);
                    }
                }
                4 => {
                    let quant = &self.quants.four[self.component];
                    let (fours, last) = blocks.as_chunks::<64>();
                    for four in fours {
                        kernel.half_four(four, quant, samples, [next(), next(), next(), next()]);
                    }
                    for block in last.as_chunks::<16>().0 {
                        idct::half_of_four(block, quant, samples, next());
                    }
                }
                2 => {
                    let quant = &self.quants.two[self.component];
                    let (fours, last) = blocks.as_chunks::<16>();
                    for four in fours {
                        kernel.quarter_four(four, quant, samples, [next(), next(), next(), next()]);
                    }
                    for block in last.as_chunks::<4>().0 {
                        idct::quarter_of_two(block, quant, samples, next());
                    }
                }
                _ => {
                    let quant = self.quants.two[self.component][0];
                    let samples = samples[start..].iter_mut().step_by(per_block);
                    samples
                        .zip(blocks)
                        .for_each(|(sample, coefficient)| *sample = idct::eighth_of(*coefficient, quant));
                }
            }
        }
    }
}

/// All coefficients of a picture: for each component its blocks, row by row, of whole MCUs.
pub(crate) type Planes = Vec<Vec<[i16; 64]>>;

/// Returns planes for this many rows of MCUs.
pub(crate) fn planes_of(jpeg: &Jpeg<'_>, rows: u32) -> Planes {
    let blocks = |sampling: [u32; 2]| (jpeg.mcus()[0] * sampling[0]) as usize * (rows * sampling[1]) as usize;
    jpeg.components().iter().map(|component| vec![[0; 64]; blocks(component.sampling)]).collect()
}

/// Decodes all coefficients, one row of tiles after the other.
pub(crate) struct PlaneRows<'l, 'b> {
    layout: &'l Layout<'b>,
    memory: ScalableMemory,
    cursors: [StreamCursor; 8],
    /// The first row of MCUs that was not decoded yet.
    next: u32,
}

impl<'l, 'b> PlaneRows<'l, 'b> {
    pub(crate) fn new(layout: &'l Layout<'b>) -> Self {
        let cursors = std::array::from_fn(|part| layout.cursor(part));
        Self { layout, memory: ScalableMemory::default(), cursors, next: 0 }
    }

    /// Passes the blocks of the next row of tiles to `use_blocks`: for each the component, where they begin in planes of
    /// these tiles alone, and some blocks that follow each other. Returns the rows of MCUs, or `None` behind the last.
    fn next_blocks(
        &mut self,
        mut use_blocks: impl FnMut(usize, usize, &[[i16; 64]]),
    ) -> Result<Option<(u32, u32)>, Error> {
        let jpeg = &self.layout.jpeg;
        let [columns, rows] = jpeg.mcus();
        let first = self.next;
        if first == rows {
            return Ok(None);
        }
        let tile = self.layout.tiles.of_mcus([(0, columns), (first, first + 1)])[1].0;
        let end = self.layout.tiles.mcus([0, tile])[1].1;
        self.next = end;
        let mcus = [(0, columns), (first, end)];
        let work = (self.layout, mcus, [8; 2], false);
        self.memory.decode_mcus(crate::kernel::Portable, work, &mut self.cursors, |memory, group| {
            for part in 0..group.shape.components {
                let component = if group.class == 0 { 0 } else { 1 + part as usize };
                let sampling = jpeg.components()[component].sampling;
                for row in 0..group.shape.rows {
                    let at = row * group.shape.row() + part * group.shape.across;
                    let from = usize::from(group.offset) + at as usize * 64;
                    let y = (group.mcu[1] - first) * sampling[1] + row;
                    let to = (y * columns * sampling[0] + group.mcu[0] * sampling[0]) as usize;
                    let blocks = &memory.coefficients[from..from + group.shape.across as usize * 64];
                    use_blocks(component, to, blocks.as_chunks().0);
                }
            }
        })?;
        Ok(Some((first, end)))
    }

    /// Decodes the next row of tiles to the begin of planes that have room for it. Returns its rows of MCUs, or `None` behind
    /// the last.
    pub(crate) fn next(&mut self, planes: &mut Planes) -> Result<Option<(u32, u32)>, Error> {
        self.next_blocks(|component, to, blocks| planes[component][to..to + blocks.len()].copy_from_slice(blocks))
    }
}

/// Returns whether a packed picture has these coefficients.
pub(crate) fn has_planes(layout: &Layout<'_>, planes: &Planes) -> Result<bool, Error> {
    let (mut rows, mut is_same) = (PlaneRows::new(layout), true);
    let jpeg = &layout.jpeg;
    loop {
        let first = rows.next;
        let starts = |component: usize| {
            let [across, down] = jpeg.components()[component].sampling;
            (jpeg.mcus()[0] * across) as usize * (first * down) as usize
        };
        let found = rows.next_blocks(|component, at, blocks| {
            let at = starts(component) + at;
            is_same &= planes[component][at..at + blocks.len()] == *blocks;
        })?;
        if found.is_none() {
            return Ok(is_same);
        }
    }
}
