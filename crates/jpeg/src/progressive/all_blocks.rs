//! Reads all blocks of a progressive picture in the order of a baseline one.

use super::coefficients::{Coefficients, Kept};
use crate::{bits::BitBlock, error::Error, header::Jpeg, kernel::Portable, window::Window};

/// The memory for the coefficients that are kept at once. A picture that needs more, from about five million pixels in
/// 4:2:0, is read several times, a part of its rows each time. With a higher value, each thread of `pack` takes more
/// memory.
const KEPT_BYTES: u64 = 16 << 20;

/// A reader of all blocks, MCU by MCU.
pub(crate) struct ProgressiveBlocks<'j, 'b> {
    jpeg: &'j Jpeg<'b>,
    coefficients: Coefficients,
    window: Window,
    /// The rows of MCUs that are read together.
    rows: u32,
    /// The number of MCUs so far, and the number of blocks of each component of the last one.
    mcu: u32,
    blocks: [u32; 3],
}

impl<'j, 'b> ProgressiveBlocks<'j, 'b> {
    pub(crate) fn new(jpeg: &'j Jpeg<'b>) -> Result<Self, Error> {
        Self::with_memory(jpeg, KEPT_BYTES)
    }

    fn with_memory(jpeg: &'j Jpeg<'b>, kept_bytes: u64) -> Result<Self, Error> {
        let [_, rows] = jpeg.mcus();
        jpeg.check_length(rows)?;
        let row_bytes = jpeg.blocks() / u64::from(rows) * 128;
        let rows = (kept_bytes / row_bytes).clamp(1, u64::from(rows)) as u32;
        let (coefficients, window) = (Coefficients::default(), Window::default());
        Ok(Self { jpeg, coefficients, window, rows, mcu: 0, blocks: [0; 3] })
    }

    pub(crate) fn begin_mcu(&mut self) -> Result<(), Error> {
        let [columns, rows] = self.jpeg.mcus();
        let row = self.mcu / columns;
        if self.mcu.is_multiple_of(columns) && row.is_multiple_of(self.rows) {
            let mcus = [(0, columns), (row, (row + self.rows).min(rows))];
            let kept = Kept { mcus, points: [8; 3], transposed: false };
            self.coefficients.read(Portable, self.jpeg, &kept, &mut self.window)?;
        }
        self.mcu += 1;
        self.blocks = [0; 3];
        Ok(())
    }

    pub(crate) fn read_block(&mut self, component: usize, block: &mut BitBlock) {
        let (mcu, columns) = (self.mcu - 1, self.jpeg.mcus()[0]);
        let [across, down] = self.jpeg.components[component].sampling;
        let at = self.blocks[component];
        self.blocks[component] += 1;
        let (x, y) = (mcu % columns * across + at % across, mcu / columns * down + at / across);
        self.coefficients.copy_block(component, x, y, block);
    }
}

impl Coefficients {
    /// Reads all scans without keeping any coefficient.
    pub(crate) fn check_all(jpeg: &Jpeg<'_>) -> Result<(), Error> {
        let [_, rows] = jpeg.mcus();
        jpeg.check_length(rows)?;
        let kept = Kept { mcus: [(0, 0), (0, rows)], points: [8; 3], transposed: false };
        Self::default().read(Portable, jpeg, &kept, &mut Window::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn a_picture_that_is_read_in_parts_has_the_same_blocks() {
        let bytes = include_bytes!("../../../../assets/jpegs/coffee_progressive.jpg");
        let jpeg = Jpeg::open(bytes, Limits::default()).unwrap();
        let [columns, rows] = jpeg.mcus();
        let read = |kept_bytes: u64| {
            let mut all = ProgressiveBlocks::with_memory(&jpeg, kept_bytes).unwrap();
            let (mut block, mut blocks) = (BitBlock::ZERO, Vec::new());
            for _ in 0..columns * rows {
                all.begin_mcu().unwrap();
                for (at, component) in jpeg.components().iter().enumerate() {
                    for _ in 0..component.sampling[0] * component.sampling[1] {
                        all.read_block(at, &mut block);
                        blocks.push(*block.coefficients());
                    }
                }
            }
            blocks
        };
        let whole = read(KEPT_BYTES);
        assert!(rows > 3 && whole.iter().any(|block| *block != [0; 64]));
        for kept_bytes in [1, whole.len() as u64 * 128 / 3] {
            assert!(read(kept_bytes) == whole, "{kept_bytes} bytes");
        }
    }
}
