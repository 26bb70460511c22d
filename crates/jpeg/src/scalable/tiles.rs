//! The tiles of a picture, and the order of the blocks in them.

use super::bands::Class;
use crate::header::Jpeg;

/// The most MCUs along the side of a tile.
pub(crate) const MOST_SIDE: u32 = 8;

/// The tiles of a picture, row by row. Those at the right and at the bottom may have fewer MCUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    /// MCUs along one side.
    side: u32,
    /// MCUs of the picture, horizontally and vertically.
    mcus: [u32; 2],
}

impl Tiles {
    pub(crate) fn new(jpeg: &Jpeg<'_>, side: u32) -> Self {
        Self { side, mcus: jpeg.mcus() }
    }

    pub(crate) const fn side(&self) -> u32 {
        self.side
    }

    /// The number of tiles, horizontally and vertically.
    pub(crate) fn counts(&self) -> [u32; 2] {
        self.mcus.map(|mcus| mcus.div_ceil(self.side))
    }

    pub(crate) fn count(&self) -> usize {
        let [across, down] = self.counts();
        across as usize * down as usize
    }

    /// The MCUs of a tile, horizontally and vertically: the first, and one past the last.
    pub(crate) fn mcus(&self, tile: [u32; 2]) -> [(u32, u32); 2] {
        [0, 1].map(|axis| {
            let first = tile[axis] * self.side;
            (first, (first + self.side).min(self.mcus[axis]))
        })
    }

    /// The tiles that have some of these MCUs, horizontally and vertically.
    pub(crate) fn of_mcus(&self, mcus: [(u32, u32); 2]) -> [(u32, u32); 2] {
        mcus.map(|(first, end)| (first / self.side, end.div_ceil(self.side)))
    }
}

/// The blocks of one class of a tile: rows, each with the blocks of a first component, then those of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TileBlocks {
    /// Blocks of a row that belong to one component.
    pub(crate) across: u32,
    /// Components.
    pub(crate) components: u32,
    pub(crate) rows: u32,
}

impl TileBlocks {
    /// The blocks of a tile of this many MCUs.
    pub(crate) fn new(jpeg: &Jpeg<'_>, class: Class, mcus: [(u32, u32); 2]) -> Self {
        let [across, down] = mcus.map(|(first, end)| end - first);
        match class {
            Class::Luma => {
                let [horizontal, vertical] = jpeg.components()[0].sampling;
                Self { across: across * horizontal, components: 1, rows: down * vertical }
            }
            // Chroma has one block for each MCU.
            Class::Chroma => Self { across, components: 2, rows: down },
        }
    }

    pub(crate) const fn row(&self) -> u32 {
        self.across * self.components
    }

    pub(crate) const fn count(&self) -> u32 {
        self.row() * self.rows
    }
}

/// The classes of a picture's components.
pub(crate) fn classes(jpeg: &Jpeg<'_>) -> &'static [Class] {
    if jpeg.components().len() == 1 { &[Class::Luma] } else { &[Class::Luma, Class::Chroma] }
}
