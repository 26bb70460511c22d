//! The scans of a progressive picture: their headers, and which of them a crop needs.

use crate::{
    error::Error,
    header::{Component, Jpeg},
    huffman::{HuffmanSpec, LAST},
};

/// The largest number of scans; programs write about 10. Each scan of a few bytes can touch all blocks of a picture.
const MAX_SCANS: usize = 500;
/// The largest number of blocks of all scans together. The largest picture within the default limits has six million
/// blocks, which usual programs write about four times each.
const MAX_SCANNED_BLOCKS: u64 = 1 << 28;

/// What a scan contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanKind {
    /// The upper bits of DC coefficients.
    DcFirst,
    /// One more bit of DC coefficients.
    DcRefinement,
    /// The upper bits of a band of AC coefficients.
    AcFirst,
    /// One more bit of a band of AC coefficients.
    AcRefinement,
}

/// One scan, with the tables that are in force for it.
#[derive(Clone, Debug)]
pub(crate) struct ProgressiveScan<'b> {
    /// The components, by their place in the frame.
    components: [u8; 3],
    count: u8,
    /// The zigzag indices of the band's first and last coefficient.
    first: u8,
    last: u8,
    is_refinement: bool,
    /// The number of low bits that later scans add.
    pub(super) low: u8,
    /// For each component of a first DC scan its table; for an AC scan the only table.
    pub(super) tables: [Option<HuffmanSpec<'b>>; 3],
    /// The number of MCUs between restart markers, or 0 if there are none.
    pub(super) restart_interval: u32,
    /// The position of the entropy-coded data.
    pub(super) at: usize,
}

impl ProgressiveScan<'_> {
    pub(super) fn kind(&self) -> ScanKind {
        match (self.first, self.is_refinement) {
            (0, false) => ScanKind::DcFirst,
            (0, true) => ScanKind::DcRefinement,
            (_, false) => ScanKind::AcFirst,
            (_, true) => ScanKind::AcRefinement,
        }
    }

    /// Returns the components of the scan, by their place in the frame.
    pub(crate) fn components(&self) -> &[u8] {
        &self.components[..usize::from(self.count)]
    }

    /// Returns the zigzag indices of the band's first and last coefficient.
    pub(super) fn band(&self) -> [usize; 2] {
        [usize::from(self.first), usize::from(self.last)]
    }

    /// Returns the band as a set of zigzag indices.
    pub(super) fn band_set(&self) -> u64 {
        let [first, last] = self.band();
        !0 << first & !0 >> (LAST - last)
    }
}

/// Which bits of which coefficients the scans so far contain.
#[derive(Clone, Debug)]
pub(crate) struct Progression {
    /// For each component and zigzag index, the number of low bits that are still missing; `None` without any scan.
    missing: [[Option<u8>; 64]; 3],
    scanned_blocks: u64,
}

impl Progression {
    pub(crate) fn new() -> Self {
        Self { missing: [[None; 64]; 3], scanned_blocks: 0 }
    }

    /// Returns whether a component has no scan at all.
    pub(crate) fn lacks(&self, component: usize) -> bool {
        self.missing[component][0].is_none()
    }

    /// Returns whether all bits of all coefficients are there.
    pub(crate) fn is_complete(&self, components: usize) -> bool {
        self.missing[..components].as_flattened().iter().all(|missing| *missing == Some(0))
    }

    /// Reads the header of the next scan, whose data is at `at`. The tables are the picture's current ones.
    pub(crate) fn read<'b>(&mut self, jpeg: &Jpeg<'b>, body: &[u8], at: usize) -> Result<ProgressiveScan<'b>, Error> {
        let Some((&count, rest)) = body.split_first() else { return Err(Error::Corrupt("a short scan header")) };
        let Some((selectors, &[first, last, high_and_low])) = rest.split_last_chunk::<3>() else {
            return Err(Error::Corrupt("a short scan header"));
        };
        let (selectors, rest) = selectors.as_chunks::<2>();
        if selectors.len() != usize::from(count) || !rest.is_empty() || !(1..=3).contains(&count) {
            return Err(Error::Corrupt("a scan header of the wrong length"));
        }
        let (high, low) = (high_and_low >> 4, high_and_low & 15);
        let is_band = if first == 0 { last == 0 } else { first <= last && usize::from(last) <= LAST && count == 1 };
        if !is_band || low > 13 || (high != 0 && high != low + 1) {
            return Err(Error::Corrupt("a scan with impossible numbers"));
        }
        let restart_interval = jpeg.restart_interval;
        let is_refinement = high != 0;
        let (components, tables) = ([0; 3], [None; 3]);
        let mut scan =
            ProgressiveScan { components, count, first, last, is_refinement, low, tables, restart_interval, at };
        for (place, &[id, tables]) in selectors.iter().enumerate() {
            let component = jpeg.components().iter().position(|component| component.id() == id);
            let component = component.ok_or(Error::Corrupt("a scan of unknown components"))?;
            if scan.components[..place].contains(&(component as u8)) {
                return Err(Error::Corrupt("a scan with a component twice"));
            }
            scan.components[place] = component as u8;
            scan.tables[place] = match scan.kind() {
                ScanKind::DcFirst => Some(jpeg.dc_table(tables >> 4)?),
                ScanKind::DcRefinement => None,
                ScanKind::AcFirst | ScanKind::AcRefinement => Some(jpeg.ac_table(tables & 15)?),
            };
            self.missing[component][usize::from(first)..=usize::from(last)].fill(Some(low));
            self.scanned_blocks += blocks_of(jpeg, &jpeg.components[component]);
        }
        if jpeg.scans.len() >= MAX_SCANS || self.scanned_blocks > MAX_SCANNED_BLOCKS {
            return Err(Error::Corrupt("more scans than any picture has"));
        }
        Ok(scan)
    }
}

fn blocks_of(jpeg: &Jpeg<'_>, component: &Component) -> u64 {
    jpeg.mcus().iter().zip(component.sampling).map(|(mcus, blocks)| u64::from(*mcus) * u64::from(blocks)).product()
}

/// Returns which scans affect the coefficients up to the zigzag index `wanted` of each component. A refinement scan
/// affects a coefficient by all coefficients of its band, so that earlier scans of that band are needed, too.
pub(super) fn needed(scans: &[ProgressiveScan<'_>], wanted: [usize; 3]) -> Vec<bool> {
    let mut affecting = wanted.map(|wanted| !0u64 >> (LAST - wanted));
    let mut needed: Vec<bool> = scans
        .iter()
        .rev()
        .map(|scan| {
            let mut is_needed = false;
            for component in scan.components() {
                let affecting = &mut affecting[usize::from(*component)];
                if scan.band_set() & *affecting != 0 {
                    is_needed = true;
                    if scan.kind() == ScanKind::AcRefinement {
                        *affecting |= scan.band_set();
                    }
                }
            }
            is_needed
        })
        .collect();
    needed.reverse();
    needed
}
