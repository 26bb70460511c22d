//! All coefficients of a packed picture, as a JPEG has them: for restoring it, and for checking that it can be restored.

use super::ScalableMemory;
use crate::{
    Error,
    header::Jpeg,
    kernel::Portable,
    scalable::packed_layout::{PackedLayout, StreamCursor},
};

/// All coefficients of a picture: for each component its blocks, row by row, of whole MCUs.
pub(crate) type Planes = Vec<Vec<[i16; 64]>>;

/// Returns planes for this many rows of MCUs.
pub(crate) fn planes_of(jpeg: &Jpeg<'_>, rows: u32) -> Planes {
    let blocks = |sampling: [u32; 2]| (jpeg.mcus()[0] * sampling[0]) as usize * (rows * sampling[1]) as usize;
    jpeg.components().iter().map(|component| vec![[0; 64]; blocks(component.sampling)]).collect()
}

/// Decodes all coefficients, one row of tiles after the other.
pub(crate) struct PlaneRows<'l, 'b> {
    layout: &'l PackedLayout<'b>,
    memory: ScalableMemory,
    cursors: [StreamCursor; 8],
    /// The first row of MCUs that was not decoded yet.
    next: u32,
}

impl<'l, 'b> PlaneRows<'l, 'b> {
    pub(crate) fn new(layout: &'l PackedLayout<'b>) -> Self {
        let cursors = std::array::from_fn(|part| layout.cursor(part));
        Self { layout, memory: ScalableMemory::default(), cursors, next: 0 }
    }

    /// Passes the blocks of the next row of tiles to `use_blocks`: each time a component, an index into its plane of
    /// this row of tiles alone, and the consecutive blocks that belong there. Returns the rows of MCUs, or `None` after
    /// the last row.
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
        self.memory.decode_mcus(Portable, work, &mut self.cursors, |memory, group| {
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

    /// Decodes the next row of tiles to the beginning of planes that have room for it. Returns its rows of MCUs, or
    /// `None` after the last row.
    pub(crate) fn next(&mut self, planes: &mut Planes) -> Result<Option<(u32, u32)>, Error> {
        self.next_blocks(|component, to, blocks| planes[component][to..to + blocks.len()].copy_from_slice(blocks))
    }
}

/// Returns whether a packed picture has these coefficients.
pub(crate) fn has_planes(layout: &PackedLayout<'_>, planes: &Planes) -> Result<bool, Error> {
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
