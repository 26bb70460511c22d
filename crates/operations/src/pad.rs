//! Pads a picture.

use spdl_canvas::PadWith;

use super::{RgbPicture, blur::reflected};

/// Returns which pixel of a row of `size` pixels is at `at` in the padded row; `None` for the constant colour.
pub(super) fn place(with: PadWith, at: usize, before: u32, size: usize) -> Option<usize> {
    let at = at as isize - before as isize;
    match with {
        _ if (0..size as isize).contains(&at) => Some(at as usize),
        PadWith::Constant(_) => None,
        PadWith::Edge => Some(at.clamp(0, size as isize - 1) as usize),
        PadWith::Reflect => Some(reflected(at, size)),
        PadWith::Symmetric => Some(symmetric(at, size)),
    }
}

/// Pads a picture of numbers like [`pad`]; uses the number `beyond` instead of a constant colour.
pub(super) fn pad_indices(
    (values, [width, height]): (&[u16], [u32; 2]),
    [left, top, right, bottom]: [u32; 4],
    with: PadWith,
    out: &mut Vec<u16>,
    beyond: u16,
) {
    let [out_width, out_height] = [left + width + right, top + height + bottom].map(|side| side as usize);
    let [width, height] = [width, height].map(|side| side as usize);
    let columns: Vec<Option<usize>> = (0..out_width).map(|x| place(with, x, left, width)).collect();
    out.clear();
    out.resize(out_width * out_height, beyond);
    for (y, row) in out.chunks_exact_mut(out_width).enumerate() {
        let Some(y) = place(with, y, top, height) else { continue };
        let from = &values[y * width..][..width];
        for (value, column) in row.iter_mut().zip(&columns) {
            *value = column.map_or(beyond, |column| from[column]);
        }
    }
}

/// Pads a picture by so many pixels on its left, top, right and bottom, and writes the result to `out`.
pub(super) fn pad(picture: &RgbPicture<'_>, [left, top, right, bottom]: [u32; 4], with: PadWith, out: &mut Vec<u8>) {
    let [width, height] = picture.size.map(|side| side as usize);
    let fill = if let PadWith::Constant(color) = with { color } else { [0; 3] };
    let out_width = width + left as usize + right as usize;
    let out_height = height + top as usize + bottom as usize;
    let outside: Vec<Option<usize>> =
        (0..left as usize).chain(left as usize + width..out_width).map(|x| place(with, x, left, width)).collect();
    let (before, after) = outside.split_at(left as usize);
    let blank = fill.repeat(if matches!(with, PadWith::Constant(_)) { out_width } else { 0 });
    out.clear();
    out.reserve(out_width * out_height * 3);
    for y in 0..out_height {
        let Some(y) = place(with, y, top, height) else {
            out.extend_from_slice(&blank);
            continue;
        };
        let row = &picture.pixels[y * width * 3..][..width * 3];
        let pixel = |x: &Option<usize>| x.map_or(fill, |x| [row[x * 3], row[x * 3 + 1], row[x * 3 + 2]]);
        out.extend(before.iter().flat_map(pixel));
        out.extend_from_slice(row);
        out.extend(after.iter().flat_map(pixel));
    }
}

/// Returns the place of a pixel, where places beyond the border are reflected at the border.
const fn symmetric(at: isize, size: usize) -> usize {
    let at = at.rem_euclid(2 * size as isize);
    (if at < size as isize { at } else { 2 * size as isize - 1 - at }) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_padding_continues_the_row() {
        let picture = RgbPicture {
            pixels: [1, 2, 3].iter().flat_map(|value| [*value; 3]).collect::<Vec<u8>>().into(),
            size: [3, 1],
        };
        for (with, expected) in [
            (PadWith::Constant([9; 3]), [9, 9, 1, 2, 3, 9, 9, 9, 9]),
            (PadWith::Edge, [1, 1, 1, 2, 3, 3, 3, 3, 3]),
            (PadWith::Reflect, [3, 2, 1, 2, 3, 2, 1, 2, 3]),
            (PadWith::Symmetric, [2, 1, 1, 2, 3, 3, 2, 1, 1]),
        ] {
            let mut out = Vec::new();
            pad(&picture, [2, 1, 4, 0], with, &mut out);
            let values: Vec<u8> = out.chunks_exact(3).map(|pixel| pixel[1]).collect();
            let above = if matches!(with, PadWith::Constant(_)) { [9; 9] } else { expected };
            assert_eq!(values, [above, expected].concat(), "{with:?}");
        }
    }
}
