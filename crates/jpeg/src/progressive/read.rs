//! Reads the scans of a progressive picture into coefficients.

use super::{
    blocks::{AcBand, Dropped, KeptBlock},
    coefficients::{Coefficients, ComponentStore, Kept},
    scans::{ProgressiveScan, ScanKind, needed},
};
use crate::{
    bits::Bits,
    error::Error,
    header::{Component, Jpeg},
    huffman::Lookup,
    kernel::{RowWork, SimdKernel},
    window::{Window, WindowEnd},
};

const NO_BLOCK: Error = Error::Corrupt("coefficients that are none");

impl Coefficients {
    /// Reads all scans that `kept` needs.
    pub(crate) fn read<K: SimdKernel>(
        &mut self,
        kernel: K,
        jpeg: &Jpeg<'_>,
        kept: &Kept,
        window: &mut Window,
    ) -> Result<(), Error> {
        self.prepare(jpeg, kept);
        let wanted = self.stores.each_ref().map(ComponentStore::wanted);
        for (scan, is_needed) in jpeg.scans.iter().zip(needed(&jpeg.scans, wanted)) {
            if is_needed {
                kernel.run(ReadScan { jpeg, scan, kept, coefficients: self, window })?;
            }
        }
        Ok(())
    }
}

/// The MCUs of one scan: blocks, if it has only one component.
#[derive(Clone, Copy, Debug)]
struct ScanGrid {
    /// The number of MCUs in a row.
    columns: u32,
    /// The number of rows to read.
    rows: u32,
    /// The MCUs that are kept, horizontally and vertically.
    kept: [(u32, u32); 2],
}

impl ScanGrid {
    fn of(jpeg: &Jpeg<'_>, scan: &ProgressiveScan<'_>, kept: &Kept) -> Self {
        let (mut size, mut mcus) = (jpeg.mcus(), kept.mcus);
        if let &[component] = scan.components() {
            let component = &jpeg.components[usize::from(component)];
            size = blocks(jpeg, component);
            mcus = [0, 1].map(|axis| {
                let [from, to] = [mcus[axis].0, mcus[axis].1].map(|mcu| mcu * component.sampling[axis]);
                (from.min(size[axis]), to.min(size[axis]))
            });
        }
        Self { columns: size[0], rows: mcus[1].1, kept: mcus }
    }
}

/// Returns the number of blocks, horizontally and vertically, that a scan of one component has. Those that only fill up
/// MCUs are not among them.
fn blocks(jpeg: &Jpeg<'_>, component: &Component) -> [u32; 2] {
    let most = jpeg.components[0].sampling;
    [0, 1].map(|axis| (jpeg.size[axis] * component.sampling[axis]).div_ceil(most[axis]).div_ceil(8))
}

/// Reads one scan.
struct ReadScan<'r, 'b> {
    jpeg: &'r Jpeg<'b>,
    scan: &'r ProgressiveScan<'b>,
    kept: &'r Kept,
    coefficients: &'r mut Coefficients,
    window: &'r mut Window,
}

impl RowWork for ReadScan<'_, '_> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, _: K) -> Result<(), Error> {
        let Self { jpeg, scan, kept, coefficients, window } = self;
        let grid = ScanGrid::of(jpeg, scan, kept);
        window.start(jpeg.bytes, scan.at);
        let interval = if scan.restart_interval == 0 { u32::MAX } else { scan.restart_interval };
        let segment = ScanSegment { raw: jpeg.bytes, window, bits: Bits::default(), interval, left: interval, next: 0 };
        let low = scan.low;
        let first = usize::from(scan.components()[0]);
        match scan.kind() {
            kind @ (ScanKind::DcFirst | ScanKind::DcRefinement) => {
                let parts = DcMcu::of(jpeg, scan)?;
                if kind == ScanKind::DcFirst {
                    segment.read(&grid, FirstDc { parts, coefficients, low, last: [0; 3] })
                } else {
                    segment.read(&grid, RefinedDc { parts, coefficients, low })
                }
            }
            kind @ (ScanKind::AcFirst | ScanKind::AcRefinement) => {
                let spec = scan.tables[0].expect("each scan of AC coefficients has a table");
                let [band_first, band_last] = scan.band();
                let band = |table| AcBand { table, first: band_first, last: band_last, set: scan.band_set(), low };
                if kind == ScanKind::AcFirst {
                    let table = Lookup::ac_first(spec)?;
                    segment.read(&grid, Ac::<false> { band: band(&table), component: first, coefficients, ended: 0 })
                } else {
                    let table = Lookup::ac_refinement(spec)?;
                    segment.read(&grid, Ac::<true> { band: band(&table), component: first, coefficients, ended: 0 })
                }
            }
        }
    }
}

/// The state of reading one scan, from one restart marker to the next.
struct ScanSegment<'r, 'b> {
    raw: &'b [u8],
    window: &'r mut Window,
    bits: Bits,
    interval: u32,
    /// The number of MCUs up to the next restart marker.
    left: u32,
    /// The number of the next restart marker.
    next: u8,
}

/// The reading of one kind of scan.
trait ReadMcus {
    /// Reads `count` MCUs, from column `x` on.
    fn read(&mut self, segment: &mut ScanSegment<'_, '_>, at: [u32; 2], count: u32, is_kept: bool)
    -> Result<(), Error>;

    /// Starts anew after a restart marker.
    fn restart(&mut self);
}

impl ScanSegment<'_, '_> {
    #[inline(always)]
    fn read(mut self, grid: &ScanGrid, mut work: impl ReadMcus) -> Result<(), Error> {
        let [(left, right), (top, bottom)] = grid.kept;
        for y in 0..grid.rows {
            let [left, right] = if (top..bottom).contains(&y) { [left, right] } else { [grid.columns; 2] };
            for (from, to, is_kept) in [(0, left, false), (left, right, true), (right, grid.columns, false)] {
                let mut x = from;
                while x < to {
                    if self.left == 0 {
                        self.restart()?;
                        work.restart();
                    }
                    let count = (to - x).min(self.left);
                    work.read(&mut self, [x, y], count, is_kept)?;
                    self.left -= count;
                    x += count;
                }
            }
        }
        self.bits.check_used(self.window)
    }

    #[cold]
    #[inline(never)]
    fn restart(&mut self) -> Result<(), Error> {
        self.bits.check_used(self.window)?;
        if self.window.end() != WindowEnd::Marker(0xd0 + self.next) {
            return Err(Error::Corrupt("a restart marker out of turn"));
        }
        self.window.start(self.raw, self.window.at() + 2);
        self.bits = Bits::default();
        self.left = self.interval;
        self.next = (self.next + 1) % 8;
        Ok(())
    }

    #[inline(always)]
    fn ensure(&mut self) -> Result<(), Error> {
        self.bits.ensure(self.raw, self.window)
    }
}

/// One block of an MCU of a DC scan.
#[derive(Clone, Copy)]
struct DcMcuBlock {
    component: usize,
    /// The number of blocks from one MCU to the next, and the block's position in its MCU.
    step: [u32; 2],
    at: [u32; 2],
    /// The table among those of the scan.
    table: usize,
}

/// The blocks of an MCU, with their tables.
struct DcMcu {
    parts: [DcMcuBlock; 6],
    count: usize,
    tables: [Option<Box<Lookup>>; 3],
}

impl DcMcu {
    fn of(jpeg: &Jpeg<'_>, scan: &ProgressiveScan<'_>) -> Result<Self, Error> {
        let none = DcMcuBlock { component: 0, step: [1; 2], at: [0; 2], table: 0 };
        let mut parts = Self { parts: [none; 6], count: 0, tables: [const { None }; 3] };
        let is_single = scan.components().len() == 1;
        for (table, component) in scan.components().iter().enumerate() {
            if let Some(spec) = scan.tables[table] {
                parts.tables[table] = Some(Box::new(Lookup::dc(spec)?));
            }
            let component = usize::from(*component);
            let step = if is_single { [1; 2] } else { jpeg.components[component].sampling };
            for down in 0..step[1] {
                for across in 0..step[0] {
                    parts.parts[parts.count] = DcMcuBlock { component, step, at: [across, down], table };
                    parts.count += 1;
                }
            }
        }
        Ok(parts)
    }

    #[inline(always)]
    fn all(&self) -> &[DcMcuBlock] {
        &self.parts[..self.count]
    }
}

impl DcMcuBlock {
    /// Returns where the DC coefficient of the block is stored.
    #[inline(always)]
    fn value_at(&self, coefficients: &Coefficients, mcu: [u32; 2]) -> usize {
        let [x, y] = [0, 1].map(|axis| mcu[axis] * self.step[axis] + self.at[axis]);
        coefficients.stores[self.component].values_at(x, y)
    }
}

struct FirstDc<'c> {
    parts: DcMcu,
    coefficients: &'c mut Coefficients,
    low: u8,
    last: [i32; 3],
}

impl ReadMcus for FirstDc<'_> {
    #[inline(always)]
    fn read(
        &mut self,
        segment: &mut ScanSegment<'_, '_>,
        [x, y]: [u32; 2],
        count: u32,
        is_kept: bool,
    ) -> Result<(), Error> {
        for x in x..x + count {
            segment.ensure()?;
            for part in self.parts.all() {
                let table = self.parts.tables[part.table].as_ref().expect("each first scan has tables");
                let difference = segment.bits.difference(segment.window.bytes(), table).ok_or(NO_BLOCK)?;
                let last = &mut self.last[part.component];
                *last = last.wrapping_add(difference);
                if is_kept {
                    let at = part.value_at(self.coefficients, [x, y]);
                    self.coefficients.values[at] = (*last as i16) << self.low;
                }
            }
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.last = [0; 3];
    }
}

struct RefinedDc<'c> {
    parts: DcMcu,
    coefficients: &'c mut Coefficients,
    low: u8,
}

impl ReadMcus for RefinedDc<'_> {
    #[inline(always)]
    fn read(
        &mut self,
        segment: &mut ScanSegment<'_, '_>,
        [x, y]: [u32; 2],
        count: u32,
        is_kept: bool,
    ) -> Result<(), Error> {
        for x in x..x + count {
            segment.ensure()?;
            segment.bits.fill(segment.window.bytes());
            for part in self.parts.all() {
                if is_kept {
                    let at = part.value_at(self.coefficients, [x, y]);
                    self.coefficients.values[at] |= ((segment.bits.reservoir() >> 63) as i16) << self.low;
                }
                segment.bits.take(1);
            }
        }
        Ok(())
    }

    fn restart(&mut self) {}
}

/// A scan of AC coefficients.
struct Ac<'c, const IS_REFINEMENT: bool> {
    band: AcBand<'c>,
    component: usize,
    coefficients: &'c mut Coefficients,
    /// The number of blocks from here on that have no new coefficients.
    ended: u32,
}

impl<const IS_REFINEMENT: bool> ReadMcus for Ac<'_, IS_REFINEMENT> {
    #[inline(always)]
    fn read(
        &mut self,
        segment: &mut ScanSegment<'_, '_>,
        [x, y]: [u32; 2],
        count: u32,
        is_kept: bool,
    ) -> Result<(), Error> {
        let Coefficients { values, sets, stores } = &mut *self.coefficients;
        let store = &stores[self.component];
        let end = x + count;
        let mut x = x;
        while x < end {
            if self.ended > 0 {
                let run = self.ended.min(end - x);
                let passed = if IS_REFINEMENT {
                    // Only coefficients that are not zero have bits in a run.
                    let run_sets = sets[store.set_at(x, y)..].iter().take(run as usize);
                    run_sets.take_while(|set| **set & self.band.set == 0).count() as u32
                } else {
                    run
                };
                self.ended -= passed;
                x += passed;
                if x == end {
                    break;
                }
            }
            segment.ensure()?;
            let window = segment.window.bytes();
            let (set, ended) = (&mut sets[store.set_at(x, y)], &mut self.ended);
            let bits = &mut segment.bits;
            let is_block = if is_kept {
                let values = &mut values[store.values_at(x, y)..];
                let mut kept = KeptBlock { values, store };
                if IS_REFINEMENT {
                    bits.refined_block(window, self.band, set, ended, &mut kept)
                } else {
                    bits.first_block(window, self.band, set, ended, &mut kept)
                }
            } else if IS_REFINEMENT {
                bits.refined_block(window, self.band, set, ended, &mut Dropped)
            } else {
                bits.first_block(window, self.band, set, ended, &mut Dropped)
            };
            if !is_block {
                return Err(NO_BLOCK);
            }
            x += 1;
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.ended = 0;
    }
}
