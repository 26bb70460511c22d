//! Cuts several parts out of a picture.

use spdl_canvas::View;

use super::{RgbPicture, mirror::mirror, pixel_pass::write_all};

/// Writes parts of a picture, which are inside of it and have this width and height, one after the other.
pub(super) fn cut(picture: &RgbPicture<'_>, views: &[View], size: [u32; 2], out: &mut Vec<u8>) {
    let [width, height] = size.map(|side| side as usize);
    let (row_bytes, from_bytes) = (width * 3, picture.size[0] as usize * 3);
    write_all(out, views.len() * height * row_bytes, |out| {
        for (view, out) in views.iter().zip(out.chunks_exact_mut(height * row_bytes)) {
            let [left, top] = view.place.map(|at| at as usize);
            for (number, to) in out.chunks_exact_mut(row_bytes).enumerate() {
                let row = top + if view.flipped { height - 1 - number } else { number };
                let from = &picture.pixels[row * from_bytes + left * 3..][..row_bytes];
                if view.mirrored {
                    mirror(from, to);
                } else {
                    to.write_copy_of_slice(from);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_one_below_the_other_and_may_be_mirrored() {
        // A picture of 3x2 whose pixels are 0 to 5.
        let pixels: Vec<u8> = (0..6).flat_map(|pixel| [pixel; 3]).collect();
        let picture = RgbPicture { pixels: pixels.into(), size: [3, 2] };
        let view = |place, mirrored, flipped| View { place, mirrored, flipped };
        let views = [view([1, 0], false, false), view([1, 0], true, false), view([0, 0], false, true)];
        let mut out = vec![9; 5];
        cut(&picture, &views, [2, 2], &mut out);
        let shown: Vec<u8> = out.chunks_exact(3).map(|pixel| pixel[0]).collect();
        assert_eq!(shown, [1, 2, 4, 5, 2, 1, 5, 4, 3, 4, 0, 1]);
        assert!(out.chunks_exact(3).all(|pixel| pixel == [pixel[0]; 3]));
    }
}
