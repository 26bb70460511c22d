//! Sharpens or smooths with a kernel of 3x3 pixels, whose middle counts five times.

use super::wide::{level, wide};

/// Blends the picture with a smoothed one, and writes the result to `out`. Pixels at the border are not changed.
pub(super) fn sharpen(rgb: &[u8], [width, height]: [u32; 2], factor: f32, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(rgb);
    let row_bytes = width as usize * 3;
    if width <= 2 || height <= 2 {
        return;
    }
    let mut sums = vec![0; row_bytes];
    let rows = rgb.windows(3 * row_bytes).step_by(row_bytes);
    for (rows, out) in rows.zip(out[row_bytes..].chunks_exact_mut(row_bytes)) {
        sharpen_row(rows, &mut sums, 1.0 - factor, &mut out[3..row_bytes - 3]);
    }
}

wide! {
    /// Writes the inner pixels of the middle one of three rows.
    fn sharpen_row(rows: &[u8], sums: &mut [u16], smooth: f32, out: &mut [u8]) {
        let row_bytes = sums.len();
        let (above, rest) = rows.split_at(row_bytes);
        let (own, below) = rest.split_at(row_bytes);
        for (((sum, above), own), below) in sums.iter_mut().zip(above).zip(own).zip(below) {
            *sum = u16::from(*above) + u16::from(*own) + u16::from(*below);
        }
        let count = out.len();
        let (left, middle, right) = (&sums[..count], &sums[3..][..count], &sums[6..][..count]);
        let own = &own[3..][..count];
        for at in 0..count {
            let total = left[at] + middle[at] + right[at] + 4 * u16::from(own[at]);
            let value = f32::from(own[at]);
            let difference = f32::from(thirteenth(total)) - value;
            out[at] = level(value + difference * smooth);
        }
    }
}

/// Divides a sum of 13 values by 13, and rounds.
#[inline(always)]
const fn thirteenth(sum: u16) -> u16 {
    (((sum + 6) as u32 * 5042) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thirteenth_is_rounded() {
        for sum in 0..=13 * 255 {
            assert_eq!(f64::from(thirteenth(sum)), (f64::from(sum) / 13.0).round(), "{sum}");
        }
    }

    #[test]
    fn the_border_is_not_changed() {
        let rgb: Vec<u8> = (0..5 * 4 * 3).map(|at| (at * 91 % 256) as u8).collect();
        let mut out = Vec::new();
        sharpen(&rgb, [5, 4], 0.0, &mut out);
        for (at, (before, after)) in rgb.chunks(3).zip(out.chunks(3)).enumerate() {
            let (x, y) = (at % 5, at / 5);
            if x == 0 || x == 4 || y == 0 || y == 3 {
                assert_eq!(before, after, "{x} {y}");
            } else {
                assert_ne!(before, after, "{x} {y}");
            }
        }
    }
}
