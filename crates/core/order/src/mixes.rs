//! Mixes: the partner that a sample of the stream is mixed with, and how much of the partner is taken.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    Step,
    batch::rank_offsets,
    permutation::{Key, Purpose},
};
use spdl_types::elementary::{exp, ln, sin_cos};

/// The weight of a whole sample; weights are whole numbers from 0 to this, so that they have the same value in every type.
pub const WHOLE_WEIGHT: u32 = 1 << 16;

/// How the samples of a stream are mixed with each other. The result for a sample depends on its position alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixParams {
    /// Both parameters of the Beta distribution of a sample's weight in mixup; `None` without mixup.
    pub mixup: Option<f64>,
    /// Both parameters of the Beta distribution of a sample's weight in cutmix; `None` without cutmix.
    pub cutmix: Option<f64>,
    /// The probability that a sample is mixed.
    pub p: f64,
    /// The probability that a mixed sample gets cutmix, in a job with both methods.
    pub cutmix_p: f64,
    /// Distance of the two samples of a pair in the stream, at least 1.
    pub distance: u32,
}

/// The other sample of a mix, and how the two are mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawnMix {
    /// Offset of the other sample in the same epoch.
    pub partner: u64,
    /// How much of the other sample is taken, and which part.
    pub method: MixMethod,
}

/// How two samples are mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MixMethod {
    /// The sum of both, the sample itself with this weight and the other one with the rest of [`WHOLE_WEIGHT`].
    Mixup(u32),
    /// A rectangle of the other sample lies over the sample.
    Cutmix(Cut),
}

/// The rectangle of a cutmix, before the size of the pictures is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The sample's weight before the rectangle is clipped.
    own: u32,
    /// Random bits for the place of the rectangle's middle, across and down.
    place: [Key; 2],
}

/// The part of a picture that another one covers, in pixels: half-open ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastedArea {
    /// First and last column.
    pub columns: [u32; 2],
    /// First and last row.
    pub rows: [u32; 2],
}

/// The numbers that are drawn for a sample, each from a key of its own.
#[derive(Clone, Copy)]
enum Word {
    IsMixed = 0,
    Method = 1,
    Across = 2,
    Down = 3,
    /// The weight is drawn with this word and the words after it.
    Weight = 4,
}

impl MixParams {
    /// Returns the distance of pairs for a job with these lanes and batches. Each pair then lies in one rank's part of a
    /// batch for as many worlds as possible: in the same lane if a batch has an even number of its samples, and otherwise
    /// in neighbouring lanes.
    #[must_use]
    pub const fn default_distance(lanes: u32, global_batch: u32) -> u32 {
        if lanes > 1 && global_batch.is_multiple_of(lanes) && (global_batch / lanes).is_multiple_of(2) {
            lanes
        } else {
            1
        }
    }

    /// Returns the offset of a sample's partner in an epoch of `samples`; `None` if it would be past the end. The
    /// relation is symmetric: a partner's partner is the sample itself.
    #[must_use]
    pub fn partner(&self, offset: u64, samples: u64) -> Option<u64> {
        let distance = u64::from(self.distance);
        let is_first = (offset / distance).is_multiple_of(2);
        if is_first {
            offset.checked_add(distance).filter(|partner| *partner < samples)
        } else {
            Some(offset - distance)
        }
    }

    /// Counts the samples of a rank in a step whose partners are not among the rank's samples of that step: such a
    /// partner is decoded once more for the mix. Entries past the end of the epoch are not counted.
    #[must_use]
    pub fn partners_elsewhere(&self, step: &Step, lanes: u32, samples: u64, rank: u32, world: u32) -> usize {
        let offsets: BTreeSet<u64> = rank_offsets(step, lanes, rank, world).collect();
        let partners = offsets.iter().filter_map(|offset| self.partner(*offset, samples));
        partners.filter(|partner| !offsets.contains(partner)).count()
    }

    /// Draws the mix of the sample at `offset` of an epoch of `samples`; `None` if the sample is not mixed.
    #[must_use]
    pub fn draw(&self, seed: u64, epoch: u64, offset: u64, samples: u64) -> Option<DrawnMix> {
        let partner = self.partner(offset, samples)?;
        let key = Key::new(seed, Purpose::Mix).with(epoch).with(offset);
        let word = |word: Word| key.with(word as u64);
        if unit(word(Word::IsMixed)) >= self.p {
            return None;
        }
        let alphas = match (self.mixup, self.cutmix) {
            (Some(_), Some(alpha)) if unit(word(Word::Method)) < self.cutmix_p => (None, Some(alpha)),
            (Some(alpha), _) => (Some(alpha), None),
            (None, cutmix) => (None, cutmix),
        };
        let method = match alphas {
            (Some(alpha), _) => MixMethod::Mixup(weight(alpha, key)),
            (None, Some(alpha)) => {
                MixMethod::Cutmix(Cut { own: weight(alpha, key), place: [word(Word::Across), word(Word::Down)] })
            }
            (None, None) => return None,
        };
        Some(DrawnMix { partner, method })
    }
}

impl Cut {
    /// Returns the part of a picture of this height and width that is covered, as torchvision's `CutMix` computes it.
    #[must_use]
    pub fn area(&self, [height, width]: [u32; 2]) -> PastedArea {
        let radius = 0.5 * (f64::from(WHOLE_WEIGHT - self.own) / f64::from(WHOLE_WEIGHT)).sqrt();
        let range = |place: Key, size: u32| {
            let middle = place.below(size.into()) as u32;
            let half = (radius * f64::from(size)) as u32;
            [middle.saturating_sub(half), (middle + half).min(size)]
        };
        PastedArea { columns: range(self.place[0], width), rows: range(self.place[1], height) }
    }
}

impl PastedArea {
    /// Returns the share of a picture of this height and width that stays uncovered.
    #[must_use]
    pub fn share_left(&self, [height, width]: [u32; 2]) -> f32 {
        let length = |[start, end]: [u32; 2]| u64::from(end - start);
        let covered = length(self.columns) * length(self.rows);
        (1.0 - covered as f64 / (u64::from(height) * u64::from(width)) as f64) as f32
    }
}

/// Returns a number of [0, 1), a multiple of 2^-53.
fn unit(key: Key) -> f64 {
    (key.0 >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// Returns a number of (0, 1], a multiple of 2^-53.
fn positive_unit(key: Key) -> f64 {
    ((key.0 >> 11) + 1) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// Draws a weight from Beta(`alpha`, `alpha`).
fn weight(alpha: f64, key: Key) -> u32 {
    let pairs = (Word::Weight as u64..).step_by(2);
    let mut pairs = pairs.map(|word| [positive_unit(key.with(word)), positive_unit(key.with(word + 1))]);
    let share = if alpha > 1.0 {
        let [u, v] = pairs.next().expect("they have no end");
        polar(alpha, u, v)
    } else {
        pairs.find_map(|[u, v]| joehnk(alpha, u, v)).expect("they have no end")
    };
    (share * f64::from(WHOLE_WEIGHT)).round() as u32
}

/// Ulrich's polar method ("Computer generation of distributions on the m-sphere", 1984), for `alpha` above 1/2.
fn polar(alpha: f64, u: f64, v: f64) -> f64 {
    let (_, cos) = sin_cos(360.0 * v);
    0.5 + 0.5 * (1.0 - exp((ln(u) * 2.0 / (2.0 * alpha - 1.0)).max(LEAST_EXPONENT))).max(0.0).sqrt() * cos
}

/// Jöhnk's method ("Erzeugung von betaverteilten und gammaverteilten Zufallszahlen", 1964). It computes with
/// logarithms, because the powers would be 0 for a small `alpha`. Returns `None` if the method rejects these numbers.
fn joehnk(alpha: f64, u: f64, v: f64) -> Option<f64> {
    let (x, y) = (ln(u) / alpha, ln(v) / alpha);
    let most = x.max(y);
    let [x, y] = [x, y].map(|log| exp((log - most).max(LEAST_EXPONENT)));
    let log_sum = most + ln(x + y);
    (log_sum <= 0.0).then(|| x / (x + y))
}

/// Lower limit of the arguments of `exp`: the result of a smaller one would not change a weight.
const LEAST_EXPONENT: f64 = -600.0;

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: MixParams = MixParams { mixup: Some(0.2), cutmix: Some(1.0), p: 1.0, cutmix_p: 0.5, distance: 1 };

    fn drawn(params: MixParams, count: u64) -> impl Iterator<Item = DrawnMix> {
        (0..count).filter_map(move |offset| params.draw(11, 3, offset, count))
    }

    #[test]
    fn the_pair_of_a_partner_is_the_sample_itself_and_nobody_is_mixed_past_the_end() {
        for distance in [1, 2, 5, 8] {
            let params = MixParams { distance, ..BOTH };
            for samples in [1, 7, 16, 100] {
                let partners: Vec<_> = (0..samples).map(|offset| params.partner(offset, samples)).collect();
                for (offset, partner) in partners.iter().enumerate() {
                    let Some(partner) = partner else { continue };
                    assert_eq!(partner.abs_diff(offset as u64), u64::from(distance));
                    assert_eq!(partners[*partner as usize], Some(offset as u64));
                }
                let alone = partners.iter().filter(|partner| partner.is_none()).count();
                assert!(alone as u64 <= samples.min(distance.into()), "{alone} of {samples} at {distance}");
            }
        }
        assert_eq!(BOTH.partner(u64::MAX - 1, u64::MAX), None);
    }

    #[test]
    fn pairs_are_within_a_rank_of_a_batch_at_usual_worlds() {
        use crate::{BatchParams, EpochEnd, OrderParams, Plan};
        for (lanes, global_batch, worlds) in [
            (128, 2048, &[1, 2, 8, 64, 512, 1024][..]),
            (64, 64, &[1, 2, 8, 32]),
            (1, 256, &[1, 4, 128]),
            (24, 36, &[1, 2, 3, 6]),
        ] {
            let order = OrderParams { version: 1, lanes, window: 100, shuffle: true };
            let plan = Plan::new(&vec![10; 1000], 3, order).unwrap();
            let batches = BatchParams { global_batch, epochs: 1, epoch_end: EpochEnd::Drop, end: None };
            let step = plan.steps(spdl_types::Position::START, &batches).nth(2).unwrap();
            let params = MixParams { distance: MixParams::default_distance(lanes, global_batch), ..BOTH };
            for world in worlds {
                let mut items = Vec::new();
                for rank in [0, world / 2, world - 1] {
                    plan.rank_items(&step, rank, *world, &mut items);
                    let offsets: Vec<u64> = items.iter().map(|item| item.at.offset).collect();
                    let partner = |offset: &u64| params.partner(*offset, plan.samples()).unwrap();
                    assert!(
                        offsets.iter().all(|offset| offsets.contains(&partner(offset))),
                        "{lanes} lanes, {global_batch}, rank {rank} of {world}"
                    );
                }
            }
        }
    }

    /// The greatest distance between the distribution of weights and Beta(`alpha`, `alpha`), times the square root of their
    /// number: Kolmogorov's statistic.
    fn kolmogorov(drawn_with: f64, alpha: f64) -> f64 {
        let params = MixParams { mixup: Some(drawn_with), cutmix: None, ..BOTH };
        let mut counts = vec![0_u32; WHOLE_WEIGHT as usize + 1];
        let mut all = 0;
        for mix in drawn(params, 40_000) {
            let MixMethod::Mixup(own) = mix.method else { panic!("{mix:?}") };
            counts[own as usize] += 1;
            all += 1;
        }
        // P(weight <= k) is P(share < (k + 1/2) / 2^16). In u = share^alpha the density has no pole below 1/2.
        let density = |u: f64| (1.0 - u.powf(1.0 / alpha)).powf(alpha - 1.0);
        let at = |k: u32| ((f64::from(k) + 0.5) / f64::from(WHOLE_WEIGHT)).powf(alpha);
        let half = WHOLE_WEIGHT / 2;
        let mut sums = vec![0.0];
        let mut from = 0.0;
        for k in 0..half {
            let to = at(k);
            let step = (to - from) / 6.0;
            let simpson = density(from) + 4.0 * density(f64::midpoint(from, to)) + density(to);
            sums.push(sums.last().unwrap() + step * simpson);
            from = to;
        }
        let end = 0.5_f64.powf(alpha);
        let total = 2.0 * (sums.last().unwrap() + (end - from) * density(end));
        let below = |k: u32| {
            if k < half {
                sums[k as usize + 1] / total
            } else {
                1.0 - sums[(WHOLE_WEIGHT - k) as usize - usize::from(k == WHOLE_WEIGHT)] / total
            }
        };
        let (mut seen, mut most) = (0, 0.0_f64);
        for k in 0..WHOLE_WEIGHT {
            seen += counts[k as usize];
            most = most.max((f64::from(seen) / f64::from(all) - below(k)).abs());
        }
        most * f64::from(all).sqrt()
    }

    #[test]
    fn weights_have_the_distribution_that_was_asked_for() {
        for alpha in [0.05, 0.2, 0.4, 0.7, 1.0, 1.5, 4.0, 30.0] {
            let statistic = kolmogorov(alpha, alpha);
            // 1.95 is exceeded once in a thousand times.
            assert!(statistic < 1.95, "Beta({alpha}, {alpha}): {statistic}");
            let other = kolmogorov(alpha, alpha * 1.1);
            assert!(other > statistic + 0.3, "Beta({alpha}, {alpha}) is told from another: {statistic} and {other}");
        }
    }

    #[test]
    fn methods_and_samples_are_chosen_with_their_probabilities() {
        let cutmix = |mixes: &[DrawnMix]| mixes.iter().filter(|mix| matches!(mix.method, MixMethod::Cutmix(_))).count();
        let mixes: Vec<_> = drawn(MixParams { p: 0.25, cutmix_p: 0.75, ..BOTH }, 40_000).collect();
        assert!(mixes.len().abs_diff(10_000) < 300, "{}", mixes.len());
        assert!(cutmix(&mixes).abs_diff(mixes.len() * 3 / 4) < 200, "{}", cutmix(&mixes));
        for (params, expected) in [
            (MixParams { mixup: None, ..BOTH }, 1000),
            (MixParams { cutmix: None, ..BOTH }, 0),
            (MixParams { p: 0.0, ..BOTH }, 0),
        ] {
            assert_eq!(cutmix(&drawn(params, 1000).collect::<Vec<_>>()), expected, "{params:?}");
        }
    }

    #[test]
    fn a_cut_is_where_torchvision_has_it() {
        // own, middle and size; then columns, rows and the share that is left, by the formula of torchvision's `CutMix`.
        let area = |own: u32, [across, down]: [u64; 2], size: [u32; 2]| {
            let bits = |at: u64, of: u32| Key((((u128::from(at) << 64) + (1 << 63)) / u128::from(of)) as u64);
            let cut = Cut { own, place: [bits(across, size[1]), bits(down, size[0])] };
            let area = cut.area(size);
            (area.columns, area.rows, area.share_left(size))
        };
        assert_eq!(area(WHOLE_WEIGHT / 4 * 3, [100, 50], [200, 300]), ([25, 175], [0, 100], 0.75));
        assert_eq!(area(0, [0, 0], [10, 10]), ([0, 5], [0, 5], 0.75));
        assert_eq!(
            area(0, [299, 199], [200, 300]),
            ([149, 300], [99, 200], (1.0 - 151.0 * 101.0 / 60_000.0_f64) as f32)
        );
        assert_eq!(area(WHOLE_WEIGHT, [7, 7], [10, 10]), ([7, 7], [7, 7], 1.0));
        for mix in drawn(MixParams { mixup: None, ..BOTH }, 10_000) {
            let MixMethod::Cutmix(cut) = mix.method else { panic!("{mix:?}") };
            let area = cut.area([33, 65]);
            assert!(area.columns[0] <= area.columns[1] && area.columns[1] <= 65, "{area:?}");
            assert!(area.rows[0] <= area.rows[1] && area.rows[1] <= 33, "{area:?}");
        }
    }
}
