//! Masks on features, as in *SpecAugment* (Park et al., Interspeech 2019).

use std::ops::Range;

use spdl_types::Draw;

/// Gives a random run of at most `widest` bands the same value in all frames: first its width is drawn, then its place.
///
/// `features` has `bands` values for each frame, one frame after the other.
pub fn mask_bands(features: &mut [f32], bands: usize, widest: usize, value: f32, draw: &mut Draw) {
    let masked = run(bands, widest, draw);
    for frame in features.chunks_exact_mut(bands.max(1)) {
        frame[masked.clone()].fill(value);
    }
}

/// Gives all bands of a random run of at most `widest` frames the same value: first its width is drawn, then its place.
///
/// `features` has `bands` values for each frame, one frame after the other. Several masks can lie on each other.
pub fn mask_frames(features: &mut [f32], bands: usize, widest: usize, value: f32, draw: &mut Draw) {
    let bands = bands.max(1);
    let Range { start, end } = run(features.len() / bands, widest, draw);
    features[start * bands..end * bands].fill(value);
}

/// Draws a run of 0 to `widest` of `all`, each width and then each place with the same probability.
fn run(all: usize, widest: usize, draw: &mut Draw) -> Range<usize> {
    let mut below = |n: usize| draw.below(u32::try_from(n).unwrap_or(u32::MAX)) as usize;
    let width = below(widest.min(all) + 1);
    let start = below(all - width + 1);
    start..start + width
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns, for each of many draws, the run of equal values along one axis.
    fn runs(mask: impl Fn(&mut [f32], &mut Draw), along_bands: bool) -> Vec<Range<usize>> {
        (0..3_000)
            .map(|id| {
                let mut features = [1.0; 6 * 4];
                mask(&mut features, &mut Draw::new(9, 0, id));
                let is_masked = |frame: usize, band: usize| features[frame * 4 + band] == -3.0;
                let (along, across) = if along_bands { (4, 6) } else { (6, 4) };
                let places: Vec<usize> = (0..along)
                    .filter(|&at| {
                        let masked = (0..across)
                            .filter(|&other| if along_bands { is_masked(other, at) } else { is_masked(at, other) });
                        let masked = masked.count();
                        assert!(masked == 0 || masked == across, "{features:?}");
                        masked > 0
                    })
                    .collect();
                let run = places.first().map_or(0..0, |first| *first..first + places.len());
                assert!(places.iter().copied().eq(run.clone()), "{features:?}");
                run
            })
            .collect()
    }

    #[test]
    fn all_widths_are_as_likely_and_all_places_occur() {
        for (along, along_bands) in [(4, true), (6, false)] {
            let found = runs(
                |features, draw| {
                    if along_bands {
                        mask_bands(features, 4, 2, -3.0, draw)
                    } else {
                        mask_frames(features, 4, 2, -3.0, draw)
                    }
                },
                along_bands,
            );
            for width in 0..=2 {
                let many = found.iter().filter(|run| run.len() == width).count();
                assert!((850..1150).contains(&many), "{many} of 3,000 runs have width {width}");
            }
            for start in 0..along - 1 {
                assert!(found.contains(&(start..start + 2)), "no run begins at {start}");
            }
            assert!(found.contains(&(along - 1..along)));
        }
    }

    #[test]
    fn a_mask_is_at_most_all_there_is() {
        for id in 0..100 {
            let mut draw = Draw::new(1, 1, id);
            mask_frames(&mut [], 80, 10, 0.0, &mut draw);
            mask_bands(&mut [], 80, 100, 0.0, &mut draw);
            mask_bands(&mut [], 0, 100, 0.0, &mut draw);
            let mut two = [1.0; 2];
            mask_frames(&mut two, 1, usize::MAX, 0.0, &mut draw);
            mask_bands(&mut two, 2, usize::MAX, 0.0, &mut draw);
        }
    }
}
