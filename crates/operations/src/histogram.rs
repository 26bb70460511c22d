//! How often values occur, for each channel.

use super::{points::ValueTables, wide::wide};

/// Bytes of a row of running extremes: a multiple of a pixel and of every vector.
const RUN: usize = 96;

wide! {
    /// Returns the least and the greatest value of each channel; of a picture without pixels, 255 and 0.
    pub(super) fn extremes(rgb: &[u8]) -> [[u8; 3]; 2] {
        let (mut least, mut greatest) = ([255; RUN], [0; RUN]);
        let (runs, rest) = rgb.as_chunks::<RUN>();
        for run in runs {
            for at in 0..RUN {
                least[at] = least[at].min(run[at]);
                greatest[at] = greatest[at].max(run[at]);
            }
        }
        for (at, value) in rest.iter().enumerate() {
            least[at] = least[at].min(*value);
            greatest[at] = greatest[at].max(*value);
        }
        let of = |channel: usize| (0..RUN / 3).map(move |pixel| pixel * 3 + channel);
        [
            std::array::from_fn(|channel| of(channel).map(|at| least[at]).min().unwrap_or(255)),
            std::array::from_fn(|channel| of(channel).map(|at| greatest[at]).max().unwrap_or(0)),
        ]
    }
}

/// Returns how often each value occurs in each channel.
pub(super) fn histograms(rgb: &[u8]) -> [[u32; 256]; 3] {
    // Neighbouring pixels are often equal: counting them in separate tables does not wait for the last count.
    let mut counts = [[[0_u32; 256]; 3]; 2];
    let (pairs, rest) = rgb.as_chunks::<6>();
    for pair in pairs {
        for (at, value) in pair.iter().enumerate() {
            counts[at / 3][at % 3][usize::from(*value)] += 1;
        }
    }
    for (channel, value) in rest.iter().enumerate() {
        counts[0][channel % 3][usize::from(*value)] += 1;
    }
    let [mut counts, others] = counts;
    counts.as_flattened_mut().iter_mut().zip(others.as_flattened()).for_each(|(count, other)| *count += other);
    counts
}

impl ValueTables {
    /// Returns the least and the greatest value of each channel after these operations.
    pub(super) fn extremes(&self, raw: [[u8; 3]; 2], rgb: &[u8]) -> [[u8; 3]; 2] {
        if matches!(self, Self::Identity) {
            return raw;
        }
        // A table need not be monotonic, so every value counts.
        let histograms = self.mapped(histograms(rgb));
        let first = |channel: usize| histograms[channel].iter().position(|count| *count > 0).unwrap_or(255) as u8;
        let last = |channel: usize| histograms[channel].iter().rposition(|count| *count > 0).unwrap_or(0) as u8;
        [std::array::from_fn(first), std::array::from_fn(last)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pixel_counts_once() {
        for pixels in [0, 1, 2, 31, 32, 33, 1000] {
            let rgb: Vec<u8> = (0..pixels * 3).map(|at| (at * 37 % 251) as u8 / (at % 3 + 1) as u8 + 2).collect();
            let histograms = histograms(&rgb);
            let channels: [Vec<u8>; 3] =
                std::array::from_fn(|channel| rgb.iter().skip(channel).step_by(3).copied().collect());
            for (histogram, values) in histograms.iter().zip(&channels) {
                for value in 0..=255 {
                    let expected = values.iter().filter(|own| **own == value).count();
                    assert_eq!(histogram[usize::from(value)] as usize, expected);
                }
            }
            let [least, greatest] = extremes(&rgb);
            assert_eq!(least, channels.each_ref().map(|values| values.iter().copied().min().unwrap_or(255)));
            assert_eq!(greatest, channels.each_ref().map(|values| values.iter().copied().max().unwrap_or(0)));
        }
    }
}
