//! Blurs with a separable kernel; beyond the border lies the picture's reflection.

use super::wide::{level, wide};

/// Values that are added up at a time, in registers.
const RUN: usize = 32;

/// Blurs the picture with a symmetric kernel, whose weights are given from its middle on, and writes the result to `out`.
pub(super) fn blur(rgb: &[u8], [width, height]: [u32; 2], weights: &[f32], out: &mut Vec<u8>) {
    out.clear();
    out.resize(rgb.len(), 0);
    let (width, height) = (width as usize, height as usize);
    let (row_bytes, reach) = (width * 3, weights.len() - 1);
    let mut sums = vec![0.0; (width + 2 * reach) * 3];
    for (y, out) in out.chunks_exact_mut(row_bytes).enumerate() {
        let row = |y: isize| &rgb[reflected(y, height) * row_bytes..][..row_bytes];
        let inner = &mut sums[reach * 3..][..row_bytes];
        start(row(y as isize), weights[0], inner);
        for (distance, weight) in weights.iter().enumerate().skip(1) {
            let by = distance as isize;
            add(row(y as isize - by), row(y as isize + by), *weight, inner);
        }
        for beyond in 1..=reach {
            let beyond = beyond as isize;
            for (to, from) in [(-beyond, -beyond), (width as isize - 1 + beyond, width as isize - 1 + beyond)] {
                let (to, from) = ((to + reach as isize) as usize, reflected(from, width) + reach);
                sums.copy_within(from * 3..from * 3 + 3, to * 3);
            }
        }
        across(&sums, weights, out);
    }
}

/// Returns the place of a pixel, where places beyond the border are reflected at the pixels of the border.
pub(super) const fn reflected(at: isize, size: usize) -> usize {
    if size == 1 {
        return 0;
    }
    let period = 2 * (size as isize - 1);
    let at = at.rem_euclid(period);
    (if at < size as isize { at } else { period - at }) as usize
}

wide! {
    fn start(row: &[u8], weight: f32, sums: &mut [f32]) {
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum = f32::from(*value) * weight;
        }
    }
}

wide! {
    fn add(above: &[u8], below: &[u8], weight: f32, sums: &mut [f32]) {
        for ((sum, above), below) in sums.iter_mut().zip(above).zip(below) {
            *sum += f32::from(u16::from(*above) + u16::from(*below)) * weight;
        }
    }
}

wide! {
    /// Writes a row of which `sums` has the values, with those beyond both ends.
    fn across(sums: &[f32], weights: &[f32], out: &mut [u8]) {
        let reach = weights.len() - 1;
        let (runs, rest) = out.as_chunks_mut::<RUN>();
        let done = runs.len() * RUN;
        for (run, out) in runs.iter_mut().enumerate() {
            let middle = run * RUN + reach * 3;
            let of = |place: usize| -> &[f32; RUN] { sums[place..].first_chunk().expect("a run") };
            let mut total = of(middle).map(|value| value * weights[0] + 0.5);
            for (distance, weight) in weights.iter().enumerate().skip(1) {
                let (left, right) = (of(middle - distance * 3), of(middle + distance * 3));
                for lane in 0..RUN {
                    total[lane] += (left[lane] + right[lane]) * weight;
                }
            }
            *out = total.map(level);
        }
        for (at, out) in rest.iter_mut().enumerate() {
            let middle = done + at + reach * 3;
            let mut total = sums[middle] * weights[0] + 0.5;
            for (distance, weight) in weights.iter().enumerate().skip(1) {
                total += (sums[middle - distance * 3] + sums[middle + distance * 3]) * weight;
            }
            *out = level(total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_beyond_the_border_are_reflected() {
        let places: Vec<usize> = (-5..8).map(|at| reflected(at, 3)).collect();
        assert_eq!(places, [1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1]);
        assert_eq!((reflected(-7, 1), reflected(9, 1), reflected(-1, 2), reflected(2, 2)), (0, 0, 1, 0));
    }

    #[test]
    fn one_color_stays() {
        for size in [[1, 1], [2, 7], [40, 3]] {
            let rgb = [9, 130, 255].repeat((size[0] * size[1]) as usize);
            let mut out = Vec::new();
            blur(&rgb, size, &[0.4, 0.2, 0.1], &mut out);
            assert_eq!(out, rgb, "{size:?}");
        }
    }
}
