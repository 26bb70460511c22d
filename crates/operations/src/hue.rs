//! Turns the hue.

use super::{
    pixel_pass::PixelPass,
    planes::{BLOCK, ChangeBlock, each_block},
    wide::{level, wide, within},
};

/// The factor between a value of 0..=255 and one of 0..1 that is multiplied by 255.999, as torchvision does.
const SCALE: f32 = 255.999 / 255.0;

wide! {
    /// Turns the hue of each pixel by a part of the circle, -0.5 to 0.5.
    pub(super) fn turn(pass: &mut PixelPass<'_>, turn: f32) {
        // In sixths of the circle, and never negative.
        let turn = if turn < 0.0 { turn * 6.0 + 6.0 } else { turn * 6.0 };
        each_block(pass, &Turn(turn));
    }
}

/// A turn by so many sixths of the circle, 0 to 6.
struct Turn(f32);

impl ChangeBlock for Turn {
    #[inline(always)]
    fn change(&self, planes: &mut [[u8; BLOCK]; 3]) {
        let [reds, greens, blues] = planes;
        for at in 0..BLOCK {
            let [r, g, b] = [reds[at], greens[at], blues[at]].map(f32::from);
            let greatest = r.max(g).max(b);
            let range = greatest - r.min(g).min(b);
            let per_range = 1.0 / range.max(1.0);
            // The hue in sixths of the circle from red on, 0 to 12.
            let hue = if greatest == r {
                (g - b) * per_range + 6.0
            } else if greatest == g {
                (b - r) * per_range + 2.0
            } else {
                (r - g) * per_range + 4.0
            };
            let hue = hue + self.0;
            // Each channel is a trapezoid over the hue.
            [reds[at], greens[at], blues[at]] = [5.0, 3.0, 1.0].map(|offset| {
                let place = hue + offset;
                let place = if place >= 12.0 { place - 12.0 } else { place };
                let place = if place >= 6.0 { place - 6.0 } else { place };
                let share = within(place.min(4.0 - place), 0.0, 1.0);
                level((greatest - range * share) * SCALE)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pixel_pass::PixelPass;

    #[test]
    fn a_third_of_the_circle_moves_the_channels_on() {
        let mut rgb = vec![200, 10, 10, 10, 200, 10, 10, 10, 200, 9, 9, 9];
        super::turn(&mut PixelPass::in_place(&mut rgb), 1.0 / 3.0);
        assert_eq!(rgb, [10, 200, 10, 10, 10, 200, 200, 10, 10, 9, 9, 9]);
        super::turn(&mut PixelPass::in_place(&mut rgb), -1.0 / 3.0);
        assert_eq!(rgb, [200, 10, 10, 10, 200, 10, 10, 10, 200, 9, 9, 9]);
    }
}
