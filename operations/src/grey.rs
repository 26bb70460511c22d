//! The grey picture, as torchvision weights the channels, and what blends with it.

use super::{
    planes::{BLOCK, channels, each_block},
    wide::{whole_level, wide},
};

/// Returns the grey value of a pixel; parts of a level are cut off.
#[inline(always)]
fn grey([r, g, b]: [f32; 3]) -> f32 {
    (r * 0.2989 + g * 0.587 + b * 0.114).trunc()
}

wide! {
    /// Makes the channels equal.
    pub(super) fn grayscale(rgb: &mut [u8]) {
        each_block(rgb, |[reds, greens, blues]| {
            for at in 0..BLOCK {
                let grey = grey([reds[at], greens[at], blues[at]]);
                (reds[at], greens[at], blues[at]) = (grey, grey, grey);
            }
        });
    }
}

wide! {
    /// Returns the sum of the grey values.
    fn sum(rgb: &[u8]) -> u64 {
        let (blocks, rest) = rgb.as_chunks::<{ 3 * BLOCK }>();
        let mut total = 0;
        // The sums of a run are exact in 32 bits.
        for run in blocks.chunks(1 << 16) {
            let mut sums = [0_u32; BLOCK];
            for block in run {
                let [reds, greens, blues] = channels(block).map(|values| values.map(f32::from));
                for at in 0..BLOCK {
                    sums[at] += u32::from(whole_level(grey([reds[at], greens[at], blues[at]])));
                }
            }
            total += sums.iter().map(|sum| u64::from(*sum)).sum::<u64>();
        }
        total + rest.as_chunks::<3>().0.iter().map(|pixel| grey(pixel.map(f32::from)) as u64).sum::<u64>()
    }
}

/// Returns the mean of the grey values; 0 for a picture without pixels.
pub(super) fn mean(rgb: &[u8]) -> f32 {
    let pixels = (rgb.len() / 3).max(1);
    (sum(rgb) as f64 / pixels as f64) as f32
}

wide! {
    /// Blends the values with the grey ones.
    pub(super) fn saturate(rgb: &mut [u8], own: f32, other: f32) {
        each_block(rgb, |[reds, greens, blues]| {
            for at in 0..BLOCK {
                let grey = grey([reds[at], greens[at], blues[at]]) * other;
                for channel in [&mut *reds, &mut *greens, &mut *blues] {
                    channel[at] = channel[at] * own + grey;
                }
            }
        });
    }
}
