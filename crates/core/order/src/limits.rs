//! Sources of a blend that give only so many samples: where each is used up, and what becomes of the blend there, as stages that are
//! known before any sample is read.

use serde::{Deserialize, Serialize};
use spdl_types::mutations::{Mutation, mutated};

use super::{BLEND_PERIOD, BlendStage, PlanError, table::BlendTable};

/// Upper limit of the first sample of a stage that follows from a limit: no job has more samples.
const MAX_FROM: u64 = 1 << 62;

/// What happens where a source has given all the samples that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenDone {
    /// The stream ends where the source would begin again.
    Stop,
    /// From there on the other sources share what it gave, in the proportions of their weights. Where all sources are used up, the stream
    /// ends.
    Reweight,
    /// The source begins again.
    Repeat,
}

impl WhenDone {
    /// Returns its name in a job.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Reweight => "reweight",
            Self::Repeat => "repeat",
        }
    }
}

/// How many samples a source gives, over all epochs, and what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLimit {
    /// The number of samples; at least 1.
    pub samples: u64,
    /// What happens then.
    pub when_done: WhenDone,
}

/// Returns the stages of a blend of sources with these weights and limits, where `stages` change the weights: the same stages, in which
/// a source that is used up has the weight 0, and one more from each sample on with which a source would begin again. If the stream ends,
/// the last stage is [the end](BlendStage::is_end), and no stage begins after it.
///
/// What comes before a sample depends only on the stages that begin before it. The result with these limits is itself again.
///
/// # Errors
/// [`PlanError`] if some weights are not those of all sources, or the stages do not follow one another.
pub fn stages_with_limits(
    weights: &[u32],
    limits: &[Option<SourceLimit>],
    stages: &[BlendStage],
) -> Result<Vec<BlendStage>, PlanError> {
    assert_eq!(limits.len(), weights.len(), "a limit or none for each source");
    let mut limited = Vec::new();
    let mut given = vec![0; weights.len()];
    let mut now = BlendStage { from: 0, weights: weights.to_vec() };
    let mut later = stages.iter();
    let mut next = later.next();
    while !now.is_end() {
        if now.weights.len() != weights.len() {
            return Err(PlanError::Weights { weights: now.weights });
        }
        let is_used_up = |source: usize| {
            limits[source].is_some_and(|of| of.when_done == WhenDone::Reweight && given[source] >= of.samples)
        };
        if (0..weights.len()).any(|source| now.weights[source] > 0 && is_used_up(source)) {
            now.weights = without(&now.weights, is_used_up).unwrap_or_default();
            if now.is_end() {
                break;
            }
        }
        let table = BlendTable::new(&now.weights).ok_or_else(|| PlanError::Weights { weights: now.weights.clone() })?;
        let first = first_used_up(&table, limits, &given);
        let first = first.map(|(before, when_done)| (now.from.saturating_add(before), when_done));
        let until = next.map_or(MAX_FROM, |stage| stage.from);
        let following = match (first, next) {
            (Some((from, WhenDone::Stop)), _) if from < until => BlendStage { from, weights: Vec::new() },
            (Some((from, _)), _) if from < until => BlendStage { from, weights: now.weights.clone() },
            (_, None) => break,
            (_, Some(stage)) if stage.from <= now.from => {
                return Err(PlanError::StageOrder { from: stage.from, after: now.from });
            }
            (_, Some(stage)) => {
                next = later.next();
                stage.clone()
            }
        };
        given.iter_mut().zip(table.given(following.from - now.from)).for_each(|(given, more)| *given += more);
        if mutated(Mutation::ForgetGiven) && stages.contains(&following) {
            given.fill(0);
        }
        // A source that comes again after it was used up can end the stream right there.
        limited.extend((0 < now.from && now.from < following.from).then_some(now));
        now = following;
    }
    limited.extend((now.from > 0).then_some(now));
    Ok(limited)
}

/// Returns how many samples of a table come before the first with which a source gives more than it may, and what happens there; `None`
/// if no source does.
fn first_used_up(table: &BlendTable, limits: &[Option<SourceLimit>], given: &[u64]) -> Option<(u64, WhenDone)> {
    let used_up = |(source, limit): (usize, &Option<SourceLimit>)| {
        let SourceLimit { samples, when_done } = limit.filter(|of| of.when_done != WhenDone::Repeat)?;
        let left = samples.saturating_sub(given[source]);
        (table.weight(source) > 0).then(|| (table.sample_of(source, left), when_done))
    };
    limits.iter().enumerate().filter_map(used_up).min_by_key(|(before, _)| *before)
}

/// Returns the weights without some sources: the others have what these had, in the proportions of their weights, by largest remainders,
/// of which equal ones go to the first sources. `None` if no other source has a weight.
fn without(weights: &[u32], is_out: impl Fn(usize) -> bool) -> Option<Vec<u32>> {
    let left: Vec<u64> = weights
        .iter()
        .enumerate()
        .map(|(source, weight)| if is_out(source) { 0 } else { u64::from(*weight) })
        .collect();
    let sum: u64 = left.iter().sum();
    if sum == 0 {
        return None;
    }
    let (period, mut missing) = (u64::from(BLEND_PERIOD), BLEND_PERIOD);
    let mut raised: Vec<u32> = Vec::with_capacity(weights.len());
    for weight in &left {
        // Weights are at most the period, so that this is below 2^32 and the result at most the period.
        let whole = (weight * period / sum) as u32;
        raised.push(whole);
        missing = missing.saturating_sub(whole);
    }
    let mut by_remainder: Vec<usize> = (0..left.len()).collect();
    by_remainder.sort_by_key(|source| std::cmp::Reverse(left[*source] * period % sum));
    by_remainder.into_iter().take(missing as usize).for_each(|source| raised[source] += 1);
    Some(raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u32 = BLEND_PERIOD;

    fn stage(from: u64, weights: &[u32]) -> BlendStage {
        BlendStage { from, weights: weights.into() }
    }

    fn limit(samples: u64, when_done: WhenDone) -> Option<SourceLimit> {
        Some(SourceLimit { samples, when_done })
    }

    /// Returns how many samples each source gives up to the end, or up to some past the last stage.
    fn counted(weights: &[u32], stages: &[BlendStage]) -> Vec<u64> {
        let mut given = vec![0; weights.len()];
        let last = stages.last().map_or(0, |stage| stage.from) + 3 * u64::from(P);
        let first = stage(0, weights);
        let all: Vec<&BlendStage> = std::iter::once(&first).chain(stages).collect();
        for (number, now) in all.iter().enumerate().take_while(|(_, stage)| !stage.is_end()) {
            let table = BlendTable::new(&now.weights).unwrap();
            let end = all.get(number + 1).map_or(last, |stage| stage.from);
            for (given, more) in given.iter_mut().zip(table.given(end - now.from)) {
                *given += more;
            }
        }
        given
    }

    #[test]
    fn the_names_are_those_of_the_job_file() {
        for when_done in [WhenDone::Stop, WhenDone::Reweight, WhenDone::Repeat] {
            assert_eq!(serde_json::to_value(when_done).unwrap(), when_done.name());
        }
    }

    #[test]
    fn without_limits_the_stages_are_as_they_are() {
        let stages = [stage(7, &[P - 9, 9]), stage(100, &[0, P])];
        for limits in [[None; 2], [limit(3, WhenDone::Repeat), limit(1, WhenDone::Repeat)]] {
            assert_eq!(stages_with_limits(&[P / 2; 2], &limits, &stages).unwrap(), stages);
        }
        assert_eq!(stages_with_limits(&[P / 2; 2], &[None; 2], &[]).unwrap(), []);
    }

    #[test]
    fn the_stream_ends_where_the_first_source_that_stops_it_would_begin_again() {
        let weights = [P / 2, P / 4, P / 4];
        let limits = [None, limit(50, WhenDone::Stop), limit(30, WhenDone::Stop)];
        let stages = stages_with_limits(&weights, &limits, &[]).unwrap();
        let [end] = &stages[..] else { panic!("{stages:?}") };
        assert!(end.is_end() && (120..=123).contains(&end.from), "{end:?}");
        let [_, second, third] = counted(&weights, &stages)[..] else { panic!("three sources") };
        assert!(third == 30 && second <= 32, "{second}");
        // Nothing begins after the end.
        let later = [stage(100, &[P / 2, P / 2, 0]), stage(500, &[P, 0, 0])];
        let stages = stages_with_limits(&weights, &limits, &later).unwrap();
        assert_eq!(stages.len(), 2);
        assert!(stages[0] == later[0] && stages[1].is_end() && stages[1].from < 200, "{stages:?}");
        assert_eq!(counted(&weights, &stages)[1], 50);
    }

    #[test]
    fn what_a_used_up_source_gave_goes_to_the_others_in_their_proportions() {
        let weights = crate::blend_weights(&[0.5, 0.3, 0.2]);
        let limits = [None, None, limit(40, WhenDone::Reweight)];
        let stages = stages_with_limits(&weights, &limits, &[]).unwrap();
        assert_eq!(stages, [stage(stages[0].from, &[P / 8 * 5, P / 8 * 3, 0])]);
        assert!((200..=204).contains(&stages[0].from), "{stages:?}");
        assert_eq!(counted(&weights, &stages)[2], 40);
        // A later stage gives it nothing either.
        let given = [stage(1000, &[P / 4, P / 4, P / 2]), stage(2000, &[0, 0, P])];
        let stages = stages_with_limits(&weights, &limits, &given).unwrap();
        assert_eq!(stages[1..], [stage(1000, &[P / 2, P / 2, 0]), stage(2000, &[])], "only the used up one is left");
        assert!(stages[2].is_end());
        assert_eq!(counted(&weights, &stages)[2], 40);
    }

    #[test]
    fn sources_are_used_up_one_after_another_and_the_last_one_ends_the_stream() {
        let weights = crate::blend_weights(&[1.0, 2.0, 3.0, 4.0]);
        let limits = [10, 300, 20, 5000].map(|samples| limit(samples, WhenDone::Reweight));
        let stages = stages_with_limits(&weights, &limits, &[]).unwrap();
        assert_eq!(stages.len(), 4, "{stages:?}");
        assert!(stages[3].is_end() && stages[3].from == 10 + 300 + 20 + 5000);
        assert_eq!(counted(&weights, &stages), [10, 300, 20, 5000]);
        assert_eq!(stages_with_limits(&weights, &limits, &stages).unwrap(), stages, "it is itself again");
        // A stage changes nothing before it.
        let more = [stages[0].clone(), stage(stages[1].from + 5, &[P / 4; 4])];
        let changed = stages_with_limits(&weights, &limits, &more).unwrap();
        assert_eq!(changed[..2], stages[..2]);
        assert_eq!(counted(&weights, &changed), [10, 300, 20, 5000]);
    }

    #[test]
    fn a_source_that_begins_late_is_counted_from_there_and_one_that_ends_before_its_limit_is_not_used_up() {
        let limits = [limit(100, WhenDone::Reweight), limit(100, WhenDone::Stop)];
        let given = [stage(60, &[P / 2, P / 2]), stage(110, &[0, P])];
        let stages = stages_with_limits(&[P, 0], &limits, &given).unwrap();
        assert_eq!(stages[..2], given);
        assert!(stages.len() == 3 && stages[2].is_end() && stages[2].from == 110 + 75, "{stages:?}");
        assert_eq!(counted(&[P, 0], &stages), [85, 100]);
        // Where it has a weight again after all of its samples, the first of them ends the stream.
        let given = [stage(60, &[0, P]), stage(160, &[P, 0]), stage(170, &[0, P])];
        let stages = stages_with_limits(&[P, 0], &limits, &given).unwrap();
        assert_eq!(stages, [given[0].clone(), given[1].clone(), stage(170, &[])]);
    }

    #[test]
    fn weights_are_raised_to_a_whole_period() {
        assert_eq!(without(&[P / 2, P / 4, P / 4], |source| source == 0), Some(vec![0, P / 2, P / 2]));
        assert_eq!(without(&[1, 1, 1, P - 3], |source| source == 3), Some(vec![21_846, 21_845, 21_845, 0]));
        assert_eq!(without(&[P - 1, 1], |source| source == 0), Some(vec![0, P]));
        assert_eq!(without(&[P, 0], |source| source == 0), None);
        assert_eq!(without(&[5, P - 5], |_| false), Some(vec![5, P - 5]));
    }

    #[test]
    fn stages_that_do_not_follow_and_weights_of_other_sources_are_refused() {
        let limits = [None, limit(9, WhenDone::Reweight)];
        let refused = |stages: &[BlendStage]| stages_with_limits(&[P / 2; 2], &limits, stages).unwrap_err();
        assert_eq!(refused(&[stage(0, &[P, 0])]), PlanError::StageOrder { from: 0, after: 0 });
        assert_eq!(refused(&[stage(9, &[P, 0]), stage(9, &[0, P])]), PlanError::StageOrder { from: 9, after: 9 });
        assert_eq!(refused(&[stage(5, &[P])]), PlanError::Weights { weights: vec![P] });
        assert_eq!(refused(&[stage(5, &[1, 1])]), PlanError::Weights { weights: vec![1, 1] });
    }
}
