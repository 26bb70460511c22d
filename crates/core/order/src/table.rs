//! The table of a blend: which source the samples of a period come from. It is R. Tijdeman's chairman assignment ("The
//! chairman assignment problem", Discrete Mathematics 32, 1980): at every prefix each source has its share of the samples, to
//! less than one sample.

/// P, the number of samples of a period. Weights are parts of it.
pub const BLEND_PERIOD: u32 = 1 << 16;

/// Upper limit of the sources of a blend.
pub const MAX_SOURCES: usize = 64;

/// The sources of a period, in order. It takes 5 bytes per sample of the period.
#[derive(Debug)]
pub(super) struct BlendTable {
    /// The source of each sample.
    sources: Box<[u8]>,
    /// The number of samples before each sample that have its source.
    ranks: Box<[u16]>,
    /// The samples of each source: those of the first, then those of the second, and so on.
    places: Box<[u16]>,
    /// Where the samples of each source begin in `places`.
    firsts: Box<[u32]>,
    weights: Box<[u32]>,
}

impl BlendTable {
    /// Creates the table of sources with these weights, which add up to [`BLEND_PERIOD`]; `None` for others. Sources with the weight 0
    /// give no sample.
    pub(super) fn new(weights: &[u32]) -> Option<Self> {
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        if weights.is_empty() || weights.len() > MAX_SOURCES || sum != u64::from(BLEND_PERIOD) {
            return None;
        }
        let firsts: Box<[u32]> = weights
            .iter()
            .scan(0, |sum, weight| {
                let first = *sum;
                *sum += weight;
                Some(first)
            })
            .collect();
        let mut given = vec![0_u32; weights.len()];
        let (mut sources, mut ranks) = (Vec::new(), Vec::new());
        let mut places = vec![0; BLEND_PERIOD as usize];
        for place in 0..BLEND_PERIOD {
            let source = chairman(weights, &given, place + 1);
            // There are at most 64 sources, and places and ranks are below the period.
            sources.push(source as u8);
            ranks.push(given[source] as u16);
            places[(firsts[source] + given[source]) as usize] = place as u16;
            given[source] += 1;
        }
        Some(Self {
            sources: sources.into(),
            ranks: ranks.into(),
            places: places.into(),
            firsts,
            weights: weights.into(),
        })
    }

    /// Returns the source of sample number `sample` of the blend, and the number of samples that the source has given before.
    #[inline]
    pub(super) fn of(&self, sample: u64) -> (usize, u64) {
        let (period, place) = (sample / u64::from(BLEND_PERIOD), (sample % u64::from(BLEND_PERIOD)) as usize);
        let source = usize::from(self.sources[place]);
        (source, period * u64::from(self.weights[source]) + u64::from(self.ranks[place]))
    }

    /// Returns how many of the first `samples` samples each source gives.
    pub(super) fn given(&self, samples: u64) -> Vec<u64> {
        let (periods, rest) = (samples / u64::from(BLEND_PERIOD), (samples % u64::from(BLEND_PERIOD)) as usize);
        let mut given: Vec<u64> = self.weights.iter().map(|weight| periods * u64::from(*weight)).collect();
        self.sources[..rest].iter().for_each(|source| given[usize::from(*source)] += 1);
        given
    }

    /// Returns how many samples of a period a source gives.
    pub(super) fn weight(&self, source: usize) -> u32 {
        self.weights[source]
    }

    /// Returns the number in the blend of the sample that a source with a weight gives after `before` others of its own; the last
    /// number there is if that is past 2^64.
    pub(super) fn sample_of(&self, source: usize, before: u64) -> u64 {
        let weight = u64::from(self.weights[source]);
        let place = self.places[self.firsts[source] as usize + (before % weight) as usize];
        (before / weight).saturating_mul(BLEND_PERIOD.into()).saturating_add(place.into())
    }
}

/// Returns how many samples come of sources with these weights and numbers of samples before the first of the sources begins again; `None` if
/// the weights do not add up to [`BLEND_PERIOD`], or are no weights.
#[must_use]
pub fn samples_once_through(sources: &[(u32, u64)]) -> Option<u64> {
    let weights: Vec<u32> = sources.iter().map(|(weight, _)| *weight).collect();
    let table = BlendTable::new(&weights)?;
    let given = sources.iter().enumerate().filter(|(_, (weight, _))| *weight > 0);
    given.map(|(source, (_, samples))| table.sample_of(source, *samples)).min()
}

/// Returns the source of the sample that is the `nth` one, from 1, when the sources have given so many before.
///
/// With k sources that have weights, those may give it that have given at least 1 / (2k - 2) samples less than their share by then. The one of
/// these gives it that would otherwise be the first to be 1 - 1 / (2k - 2) samples behind. So all stay within that bound.
fn chairman(weights: &[u32], given: &[u32], nth: u32) -> usize {
    let sources = weights.iter().filter(|weight| **weight > 0).count();
    let parts = (2 * sources as i64 - 2).max(1);
    let period = i64::from(BLEND_PERIOD);
    let mut first: Option<(usize, i64, i64)> = None;
    for (source, (weight, given)) in weights.iter().zip(given).enumerate() {
        let weight = i64::from(*weight);
        // All numbers are counted in parts of a sample, times the period: below 2^40, and products of two below 2^56.
        let behind = parts * (weight * i64::from(nth) - period * i64::from(*given));
        if behind < period {
            continue;
        }
        let left = (parts - 1) * period - behind;
        if first.is_none_or(|(_, least, of_weight)| left * of_weight < least * weight) {
            first = Some((source, left, weight));
        }
    }
    first.expect("the shares of all sources add up to one more sample than they have given").0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns weights that are as uneven as `shares`.
    fn weights(shares: &[f64]) -> Vec<u32> {
        crate::blend_weights(shares)
    }

    /// Checks all prefixes of two periods, and the way back from a source's samples to those of the blend.
    fn check(weights: &[u32]) {
        let table = BlendTable::new(weights).unwrap();
        let period = i64::from(BLEND_PERIOD);
        let mut given = vec![0_i64; weights.len()];
        for sample in 0..2 * u64::from(BLEND_PERIOD) {
            let (source, before) = table.of(sample);
            assert_eq!(i64::try_from(before).unwrap(), given[source], "sample {sample} of {weights:?}");
            assert_eq!(table.sample_of(source, before), sample);
            given[source] += 1;
            for (given, weight) in given.iter().zip(weights) {
                let off = given * period - i64::from(*weight) * (i64::try_from(sample).unwrap() + 1);
                assert!(off.abs() < period, "after sample {sample} of {weights:?}: {given} of weight {weight}");
            }
        }
        assert!(given.iter().zip(weights).all(|(given, weight)| *given == 2 * i64::from(*weight)));
    }

    #[test]
    fn no_source_is_off_by_a_whole_sample_at_any_prefix() {
        let odd = |count: u32| -> Vec<f64> { (0..count).map(|n| f64::from(1 + n * n * 37 % 101)).collect() };
        for shares in [
            vec![1.0],
            vec![0.0, 0.7, 0.0, 0.3],
            vec![0.7, 0.3],
            vec![1.0, 1.0],
            vec![1e-9, 1.0],
            vec![0.5, 0.3, 0.2],
            vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0],
            odd(7),
            odd(64),
            vec![1.0; 64],
            std::iter::once(1e6).chain(vec![1.0; 63]).collect(),
        ] {
            check(&weights(&shares));
        }
    }

    #[test]
    fn weights_that_are_no_parts_of_the_period_have_no_table() {
        for weights in [&[][..], &[0; 2], &[1, 2], &[u32::MAX, u32::MAX], &[1024; 65]] {
            assert!(BlendTable::new(weights).is_none(), "{weights:?}");
        }
    }

    #[test]
    fn the_first_source_that_is_through_ends_what_comes_once() {
        for (shares, samples) in
            [(vec![1.0], vec![7]), (vec![0.7, 0.3], vec![200, 199]), (vec![3.0, 1.0, 9.0], vec![500, 9, 4000])]
        {
            let weights = weights(&shares);
            let sources: Vec<_> = weights.iter().copied().zip(samples.iter().copied()).collect();
            let end = samples_once_through(&sources).unwrap();
            let table = BlendTable::new(&weights).unwrap();
            let mut given = vec![0; samples.len()];
            (0..end).for_each(|sample| given[table.of(sample).0] += 1);
            assert!(given.iter().zip(&samples).all(|(given, samples)| given <= samples), "{given:?} of {samples:?}");
            let next = table.of(end).0;
            assert_eq!(given[next], samples[next], "the next sample would be one that came before");
        }
        assert_eq!(samples_once_through(&[(5, 9)]), None);
    }

    #[test]
    fn a_sample_past_all_numbers_is_the_last() {
        assert_eq!(BlendTable::new(&[1, BLEND_PERIOD - 1]).unwrap().sample_of(0, u64::MAX / 2), u64::MAX);
    }
}
