//! The grey value of a colour.

/// Returns the luma of ITU-R BT.601 in 16 bits of fraction, rounded, as Pillow's `convert("L")` does. For equal
/// channels, the result is their value.
#[must_use]
pub fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((19_595 * u32::from(r) + 38_470 * u32::from(g) + 7_471 * u32::from(b) + 0x8000) >> 16) as u8
}

/// Makes the channels of RGB pixels equal: each one becomes the pixel's luma.
pub fn make_gray(rgb: &mut [u8]) {
    for pixel in rgb.as_chunks_mut::<3>().0 {
        *pixel = [luma(*pixel); 3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_luma_of_a_grey_pixel_is_its_value_and_of_colours_what_pillow_gives() {
        assert!((0..=255).all(|value| luma([value; 3]) == value));
        // Pillow 12: `Image.new("RGB", (1, 1), colour).convert("L")`.
        for (rgb, expected) in [([255, 0, 0], 76), ([0, 255, 0], 150), ([0, 0, 255], 29), ([12, 34, 56], 30)] {
            assert_eq!(luma(rgb), expected, "{rgb:?}");
        }
        let mut pixels = [255, 0, 0, 7, 7, 7];
        make_gray(&mut pixels);
        assert_eq!(pixels, [76, 76, 76, 7, 7, 7]);
    }
}
