//! Reads the entropy-coded data: decodes the MCUs of the crop and skips all others.

use crate::{
    bits::{BitBlock, Bits, ScanOrder},
    error::Error,
    header::Jpeg,
    huffman::{Lookup, Pairs, Skip},
    idct::{self, CoefficientPlace},
    kernel::{RowWork, SimdKernel},
    plan::CropPlan,
    segments::next_segment,
    window::Window,
};

/// The largest number of blocks in an MCU: four of luma, two of chroma.
const BLOCKS: usize = 6;

/// The tables of one component.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'t> {
    pub(crate) dc: &'t Lookup,
    pub(crate) ac: &'t Lookup,
    pub(crate) pairs: &'t Pairs,
    pub(crate) skip: &'t Skip,
    pub(crate) quant: &'t [i16; 64],
}

/// One block of an MCU.
#[derive(Clone, Copy)]
struct McuBlock<'t> {
    component: usize,
    tables: Tables<'t>,
    points: u32,
    /// Distance from the samples of one MCU to those of the next.
    step: usize,
    /// Position of the block in its MCU, horizontally and vertically in the stored picture.
    at: [u32; 2],
}

/// The state of reading one scan.
pub(crate) struct ScanState<'s, 'b> {
    raw: &'b [u8],
    window: &'s mut Window,
    bits: Bits,
    last: [i32; 3],
    /// The next MCU to read.
    mcu: u32,
    /// The number of MCUs between restart markers, or `u32::MAX` if there are none.
    interval: u32,
    parts: [McuBlock<'s>; BLOCKS],
    part_count: usize,
    order: &'s ScanOrder,
}

impl<'s, 'b> ScanState<'s, 'b> {
    pub(crate) fn new(
        jpeg: &Jpeg<'b>,
        plan: &CropPlan,
        transposed: bool,
        tables: &[Tables<'s>; 3],
        order: &'s ScanOrder,
        window: &'s mut Window,
    ) -> Self {
        let none = McuBlock { component: 0, tables: tables[0], points: 8, step: 0, at: [0; 2] };
        let (mut parts, mut part_count) = ([none; BLOCKS], 0);
        for (component, (plane, tables)) in plan.planes.iter().zip(tables).enumerate().take(jpeg.component_count) {
            let samples = (plane.points * plane.blocks[0]) as usize;
            let step = if transposed { samples } else { samples * plane.stride };
            for down in 0..plane.blocks[1] {
                for across in 0..plane.blocks[0] {
                    parts[part_count] =
                        McuBlock { component, tables: *tables, points: plane.points, step, at: [across, down] };
                    part_count += 1;
                }
            }
        }
        let interval = if jpeg.restart_interval == 0 { u32::MAX } else { jpeg.restart_interval };
        let mut scan = Self {
            raw: jpeg.bytes,
            window,
            bits: Bits::default(),
            last: [0; 3],
            mcu: 0,
            interval,
            parts,
            part_count,
            order,
        };
        scan.start_segment(jpeg.scan_at);
        scan
    }

    /// Decodes the crop's MCUs into the planes.
    #[inline(always)]
    pub(crate) fn run<K: SimdKernel>(
        &mut self,
        kernel: K,
        jpeg: &Jpeg<'_>,
        plan: &CropPlan,
        transposed: bool,
        samples: &mut [u8],
    ) -> Result<(), Error> {
        let [(left, right), (top, bottom)] = plan.mcus;
        let row_mcus = jpeg.mcus()[0];
        for row in top..bottom {
            let (first, end) = (row * row_mcus + left, row * row_mcus + right);
            let mut mcu = first;
            while mcu < end {
                self.seek(kernel, mcu)?;
                let count = end.min(self.segment_end(mcu)) - mcu;
                let starts = self.parts.map(|part| {
                    let plane = &plan.planes[part.component];
                    let at = [mcu - first, row - top];
                    let [x, y] = [0, 1].map(|axis| (at[axis] * plane.blocks[axis] + part.at[axis]) * plane.points);
                    let [p, q] = if transposed { [y, x] } else { [x, y] };
                    CoefficientPlace {
                        start: plane.start + p as usize * plane.stride + q as usize,
                        stride: plane.stride,
                    }
                });
                kernel.run(Decode { scan: self, count, places: starts, samples })?;
                mcu += count;
            }
        }
        self.finish()
    }

    fn start_segment(&mut self, at: usize) {
        self.window.start(self.raw, at);
        (self.bits, self.last) = (Bits::default(), [0; 3]);
    }

    fn segment_end(&self, mcu: u32) -> u32 {
        (mcu / self.interval).saturating_add(1).saturating_mul(self.interval)
    }

    /// Advances to an MCU that has not been read. Skips whole segments without decoding them.
    #[inline(always)]
    fn seek<K: SimdKernel>(&mut self, kernel: K, mcu: u32) -> Result<(), Error> {
        let segment = mcu / self.interval;
        // The segment of the last MCU that was read; that MCU may have been the last of its segment.
        let mut current = self.mcu.saturating_sub(1) / self.interval;
        if current < segment {
            if self.mcu > 0 && self.mcu.is_multiple_of(self.interval) {
                self.finish()?;
            }
            let mut at = self.window.at();
            while current < segment {
                current += 1;
                at = next_segment(kernel, self.raw, at, current)?;
            }
            self.start_segment(at);
            self.mcu = segment * self.interval;
        }
        let count = mcu - self.mcu;
        if count == 0 { Ok(()) } else { kernel.run(Pass { scan: self, count }) }
    }

    #[inline(always)]
    fn pass(&mut self, count: u32) -> Result<(), Error> {
        let mut bits = self.bits;
        for _ in 0..count {
            bits.ensure(self.raw, self.window)?;
            let window = self.window.bytes();
            for part in &self.parts[..self.part_count] {
                let Tables { dc, ac, skip, .. } = part.tables;
                if !bits.skip_block(window, (dc, ac, skip), &mut self.last[part.component]) {
                    return Err(Error::Corrupt("coefficients that are none"));
                }
            }
        }
        self.bits = bits;
        self.mcu += count;
        Ok(())
    }

    #[inline(always)]
    fn decode<K: SimdKernel>(
        &mut self,
        kernel: K,
        count: u32,
        mut places: [CoefficientPlace; BLOCKS],
        samples: &mut [u8],
    ) -> Result<(), Error> {
        let mut blocks = [BitBlock::ZERO; BLOCKS];
        let mut bits = self.bits;
        let parts = &self.parts[..self.part_count];
        for _ in 0..count {
            bits.ensure(self.raw, self.window)?;
            let window = self.window.bytes();
            for (part, block) in parts.iter().zip(&mut blocks) {
                let Tables { dc, ac, pairs, skip, .. } = part.tables;
                let last = &mut self.last[part.component];
                let is_block = if part.points == 8 {
                    bits.block(window, (dc, ac, pairs), self.order, last, block)
                } else {
                    bits.part_of_block(window, (dc, ac, skip), wanted(part.points), self.order, last, block)
                };
                if !is_block {
                    return Err(Error::Corrupt("coefficients that are none"));
                }
            }
            transform(kernel, parts, &blocks, &places, samples);
            for (place, part) in places.iter_mut().zip(parts) {
                place.start += part.step;
            }
        }
        self.bits = bits;
        self.mcu += count;
        Ok(())
    }

    /// Checks that all bits that were read exist.
    fn finish(&self) -> Result<(), Error> {
        self.bits.check_used(self.window)
    }
}

/// Decodes `count` MCUs.
struct Decode<'d, 's, 'b> {
    scan: &'d mut ScanState<'s, 'b>,
    count: u32,
    places: [CoefficientPlace; BLOCKS],
    samples: &'d mut [u8],
}

impl RowWork for Decode<'_, '_, '_> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, kernel: K) -> Result<(), Error> {
        self.scan.decode(kernel, self.count, self.places, self.samples)
    }
}

/// Skips `count` MCUs.
struct Pass<'d, 's, 'b> {
    scan: &'d mut ScanState<'s, 'b>,
    count: u32,
}

impl RowWork for Pass<'_, '_, '_> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, _: K) -> Result<(), Error> {
        self.scan.pass(self.count)
    }
}

/// Returns the zigzag index of the last coefficient that a block of this size needs.
#[inline(always)]
fn wanted(points: u32) -> usize {
    match points {
        4 => 24,
        2 => 4,
        _ => 0,
    }
}

#[inline(always)]
fn transform<K: SimdKernel>(
    kernel: K,
    parts: &[McuBlock<'_>],
    blocks: &[BitBlock; BLOCKS],
    places: &[CoefficientPlace; BLOCKS],
    samples: &mut [u8],
) {
    let mut waiting = None;
    for (at, part) in parts.iter().enumerate() {
        let (block, quant) = (blocks[at].coefficients(), part.tables.quant);
        match part.points {
            8 => match waiting.take() {
                None => waiting = Some(at),
                Some(first) => pair(kernel, parts, blocks, places, [first, at], samples),
            },
            4 => idct::half(block, quant, samples, places[at]),
            2 => idct::quarter(block, quant, samples, places[at]),
            _ => idct::eighth(block, quant, samples, places[at]),
        }
    }
    if let Some(first) = waiting {
        pair(kernel, parts, blocks, places, [first; 2], samples);
    }
}

#[inline(always)]
fn pair<K: SimdKernel>(
    kernel: K,
    parts: &[McuBlock<'_>],
    blocks: &[BitBlock; BLOCKS],
    places: &[CoefficientPlace; BLOCKS],
    pair: [usize; 2],
    samples: &mut [u8],
) {
    let quants = pair.map(|at| parts[at].tables.quant);
    kernel.full_pair(pair.map(|at| blocks[at].coefficients()), quants, samples, pair.map(|at| places[at]));
}
