//! The grey picture, with channels weighted as in torchvision, and the operation that blends with it.

use spdl_canvas::{MixedChain, PixelOp};

use super::{
    pixel_pass::PixelPass,
    planes::{BLOCK, ChangeBlock, Ways, each_block},
    wide::{level, whole_level, wide},
};

/// Returns the grey value of a pixel, with fractions of a level cut off.
#[inline(always)]
fn grey(r: u8, g: u8, b: u8) -> f32 {
    (f32::from(r) * 0.2989 + f32::from(g) * 0.587 + f32::from(b) * 0.114).trunc()
}

/// Returns the grey values of a block.
#[inline(always)]
fn greys([reds, greens, blues]: &[[u8; BLOCK]; 3]) -> [u8; BLOCK] {
    let mut greys = [0; BLOCK];
    for at in 0..BLOCK {
        greys[at] = whole_level(grey(reds[at], greens[at], blues[at]));
    }
    greys
}

wide! {
    /// Makes the channels equal.
    pub(super) fn grayscale(pass: &mut PixelPass<'_>) {
        each_block(pass, &ToGrayscale);
    }
}

wide! {
    /// Returns the sum of the grey values.
    fn sum(rgb: &[u8]) -> u64 {
        let (blocks, rest) = rgb.as_chunks::<{ 3 * BLOCK }>();
        let (ways, mut planes) = (Ways::detect(), [[0; BLOCK]; 3]);
        let mut total = 0;
        for block in blocks {
            ways.split(block, &mut planes);
            total += u64::from(greys(&planes).iter().map(|grey| u32::from(*grey)).sum::<u32>());
        }
        total + rest.as_chunks::<3>().0.iter().map(|[r, g, b]| grey(*r, *g, *b) as u64).sum::<u64>()
    }
}

/// Returns the operations without those that change only colours, which must leave a grey picture as it is. On a grey
/// picture stored as RGB they would darken it, because the weights of the grey values add up to a little less than 1.
#[must_use]
pub fn without_colors(ops: &[PixelOp]) -> Vec<PixelOp> {
    let is_of_colors = |op: &PixelOp| matches!(op, PixelOp::Saturation(_) | PixelOp::Hue(_) | PixelOp::Grayscale);
    let kept = ops.iter().filter(|op| !is_of_colors(op)).map(|op| match op {
        PixelOp::Mix { own, chains } => {
            let chain = |chain: &MixedChain| MixedChain { weight: chain.weight, ops: without_colors(&chain.ops) };
            PixelOp::Mix { own: *own, chains: chains.iter().map(chain).collect() }
        }
        op => op.clone(),
    });
    kept.collect()
}

/// Returns the mean of the grey values; 0 for a picture without pixels.
pub(super) fn mean(rgb: &[u8]) -> f32 {
    let pixels = (rgb.len() / 3).max(1);
    (sum(rgb) as f64 / pixels as f64) as f32
}

wide! {
    /// Blends the values with the grey ones.
    pub(super) fn saturate(pass: &mut PixelPass<'_>, own: f32, other: f32) {
        each_block(pass, &Saturate { own, other });
    }
}

struct ToGrayscale;

impl ChangeBlock for ToGrayscale {
    #[inline(always)]
    fn change(&self, planes: &mut [[u8; BLOCK]; 3]) {
        *planes = [greys(planes); 3];
    }
}

struct Saturate {
    own: f32,
    other: f32,
}

impl ChangeBlock for Saturate {
    #[inline(always)]
    fn change(&self, planes: &mut [[u8; BLOCK]; 3]) {
        let greys = greys(planes);
        for plane in planes {
            for (value, grey) in plane.iter_mut().zip(&greys) {
                *value = level(f32::from(*value) * self.own + f32::from(*grey) * self.other);
            }
        }
    }
}
