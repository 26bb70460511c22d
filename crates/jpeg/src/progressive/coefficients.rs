//! The memory for the coefficients of a progressive picture.

use crate::{
    bits::BitBlock,
    header::{Jpeg, NATURAL},
    huffman::LAST,
};

/// Which coefficients to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The MCUs, horizontally and vertically: the first, and one past the last. No later row is read.
    pub(crate) mcus: [(u32, u32); 2],
    /// For each component, the lowest frequencies along one side of a block: 8, 4, 2 or 1.
    pub(crate) points: [u32; 3],
    /// Whether blocks are stored column by column.
    pub(crate) transposed: bool,
}

/// The coefficients of one component.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComponentStore {
    /// Position of its first coefficient and of its first set of non-zero coefficients.
    start: usize,
    sets_start: usize,
    /// The number of blocks in a row of the picture.
    row_blocks: u32,
    /// The blocks whose coefficients are kept, horizontally and vertically: the first, and one past the last.
    pub(super) blocks: [(u32, u32); 2],
    points: u32,
    /// The place of each coefficient in its block, by zigzag index. Those that are not kept share the last place.
    order: [u8; 64],
}

impl ComponentStore {
    const NONE: Self = Self { start: 0, sets_start: 0, row_blocks: 0, blocks: [(0, 0); 2], points: 1, order: [0; 64] };

    /// Returns the number of values that are stored for a block.
    #[inline(always)]
    fn block_values(&self) -> usize {
        match self.points {
            8 => 64,
            // No scan of AC coefficients is read.
            1 => 1,
            // One more, for those that are not kept.
            points => (points * points + 1) as usize,
        }
    }

    /// Returns the zigzag index of the last coefficient that is kept.
    pub(super) fn wanted(&self) -> usize {
        match self.points {
            8 => LAST,
            4 => 24,
            2 => 4,
            _ => 0,
        }
    }

    #[inline(always)]
    pub(super) fn place(&self, k: usize) -> usize {
        usize::from(self.order[k & LAST])
    }

    /// Returns where the values of a block begin. The block must be one that is kept.
    #[inline(always)]
    pub(super) fn values_at(&self, x: u32, y: u32) -> usize {
        let [(left, right), (top, _)] = self.blocks;
        self.start + ((y - top) as usize * (right - left) as usize + (x - left) as usize) * self.block_values()
    }

    /// Returns where the set of a block's non-zero coefficients is.
    #[inline(always)]
    pub(super) fn set_at(&self, x: u32, y: u32) -> usize {
        self.sets_start + y as usize * self.row_blocks as usize + x as usize
    }
}

/// The coefficients of a picture, as far as they are kept.
#[derive(Debug)]
pub(crate) struct Coefficients {
    pub(super) values: Vec<i16>,
    /// For each block that is read, the zigzag indices of its AC coefficients that are not zero.
    pub(super) sets: Vec<u64>,
    pub(super) stores: [ComponentStore; 3],
}

impl Default for Coefficients {
    fn default() -> Self {
        Self { values: Vec::new(), sets: Vec::new(), stores: [ComponentStore::NONE; 3] }
    }
}

impl Coefficients {
    /// Frees each buffer that has grown beyond `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if self.values.capacity() * size_of::<i16>() > bytes {
            self.values = Vec::new();
        }
        if self.sets.capacity() * size_of::<u64>() > bytes {
            self.sets = Vec::new();
        }
    }

    /// Makes room for a picture, with all coefficients 0.
    pub(super) fn prepare(&mut self, jpeg: &Jpeg<'_>, kept: &Kept) {
        let (mut values, mut sets) = (0, 0);
        for (at, component) in jpeg.components().iter().enumerate() {
            let [across, down] = component.sampling;
            let [(left, right), (top, bottom)] = kept.mcus;
            let blocks = [(left * across, right * across), (top * down, bottom * down)];
            let points = kept.points[at];
            let order = order(points, kept.transposed);
            let row_blocks = jpeg.mcus()[0] * across;
            let store = ComponentStore { start: values, sets_start: sets, row_blocks, blocks, points, order };
            values += ((right - left) * across) as usize * ((bottom - top) * down) as usize * store.block_values();
            // Without AC coefficients, no set is read.
            sets += if points == 1 { 0 } else { row_blocks as usize * (bottom * down) as usize };
            self.stores[at] = store;
        }
        self.values.clear();
        self.values.resize(values, 0);
        self.sets.clear();
        self.sets.resize(sets, 0);
    }

    /// Copies the coefficients of a block that is kept.
    #[inline(always)]
    pub(super) fn copy_block(&self, component: usize, x: u32, y: u32, block: &mut BitBlock) {
        let store = &self.stores[component];
        let values = &self.values[store.values_at(x, y)..][..store.block_values()];
        match store.points {
            8 => block.set_lowest::<8>(values),
            4 => block.set_lowest::<4>(values),
            2 => block.set_lowest::<2>(values),
            _ => block.set_lowest::<1>(values),
        }
    }
}

/// Returns the place of each coefficient of a block that is stored with `points` frequencies along each side.
fn order(points: u32, transposed: bool) -> [u8; 64] {
    NATURAL.map(|natural| {
        let (row, column) = if transposed { (natural & 7, natural >> 3) } else { (natural >> 3, natural & 7) };
        let points = points as u8;
        if row < points && column < points { row * points + column } else { points * points }
    })
}
