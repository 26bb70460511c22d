//! Runs of pixels, with each channel by itself, so that the compiler computes many pixels at a time.

use super::wide::level;

/// Pixels of a block.
pub(super) const BLOCK: usize = 256;

/// Calls `change` with the channels of each block of pixels, and writes them back; parts of a level are cut off. Blocks are
/// filled up at the end.
#[inline(always)]
pub(super) fn each_block(rgb: &mut [u8], mut change: impl FnMut(&mut [[f32; BLOCK]; 3])) {
    let (blocks, rest) = rgb.as_chunks_mut::<{ 3 * BLOCK }>();
    for block in blocks {
        change_block(block, &mut change);
    }
    if !rest.is_empty() {
        let mut block = [0; 3 * BLOCK];
        block[..rest.len()].copy_from_slice(rest);
        change_block(&mut block, &mut change);
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

#[inline(always)]
fn change_block(block: &mut [u8; 3 * BLOCK], change: &mut impl FnMut(&mut [[f32; BLOCK]; 3])) {
    let mut channels = channels(block).map(|values| values.map(f32::from));
    change(&mut channels);
    let bytes = channels.map(|values| values.map(level));
    for at in 0..BLOCK {
        [block[at * 3], block[at * 3 + 1], block[at * 3 + 2]] = [bytes[0][at], bytes[1][at], bytes[2][at]];
    }
}

/// Returns the channels of a block.
#[inline(always)]
pub(super) fn channels(block: &[u8; 3 * BLOCK]) -> [[u8; BLOCK]; 3] {
    let mut channels = [[0; BLOCK]; 3];
    for at in 0..BLOCK {
        for channel in 0..3 {
            channels[channel][at] = block[at * 3 + channel];
        }
    }
    channels
}
