//! The stages of a blend: its tables of sources, each from a sample of the stream on.

use serde::{Deserialize, Serialize};

use super::{PlanError, table::BlendTable};

/// Upper limit of the stages of a blend that follow the first one. The table of each takes 320 KiB.
pub const MAX_STAGES: usize = 64;

/// Other weights of the sources, from a sample of the stream on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlendStage {
    /// The number of the first sample that is dealt by these weights, counted from 0 over all epochs; at least 1.
    pub from: u64,
    /// How many of [`BLEND_PERIOD`](super::BLEND_PERIOD) samples each source gives, in their order; those with 0 give none. In the last
    /// stage it can be empty: then the stream ends there.
    pub weights: Vec<u32>,
}

impl BlendStage {
    /// Returns whether the stream ends where the stage begins.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.weights.is_empty()
    }
}

/// The tables of a blend.
#[derive(Debug)]
pub(super) struct BlendTables {
    /// The first stage begins with sample 0.
    stages: Box<[StageTable]>,
}

#[derive(Debug)]
struct StageTable {
    /// The number of its first sample in the blend.
    from: u64,
    table: BlendTable,
    /// The number of samples that each source has given before.
    given: Box<[u64]>,
}

impl BlendTables {
    /// Creates the tables of sources with these weights, and of the stages that follow. The tables know of no end: steps do.
    ///
    /// # Errors
    /// [`PlanError`] if some weights do not add up to a period, or the stages do not follow one another.
    pub(super) fn new(weights: &[u32], stages: &[BlendStage]) -> Result<Self, PlanError> {
        if stages.len() > MAX_STAGES {
            return Err(PlanError::TooManyStages { stages: stages.len() });
        }
        let table_of =
            |weights: &[u32]| BlendTable::new(weights).ok_or_else(|| PlanError::Weights { weights: weights.to_vec() });
        let mut tables = vec![StageTable { from: 0, table: table_of(weights)?, given: vec![0; weights.len()].into() }];
        let is_last = |number: usize| number + 1 == stages.len();
        for (number, stage) in stages.iter().enumerate() {
            let last = tables.last().expect("there is a first stage");
            if stage.from <= last.from {
                return Err(PlanError::StageOrder { from: stage.from, after: last.from });
            }
            if stage.is_end() && is_last(number) {
                break;
            }
            if stage.weights.len() != weights.len() {
                return Err(PlanError::Weights { weights: stage.weights.clone() });
            }
            let more = last.table.given(stage.from - last.from);
            let given = last.given.iter().zip(more).map(|(before, more)| before + more).collect();
            tables.push(StageTable { from: stage.from, table: table_of(&stage.weights)?, given });
        }
        Ok(Self { stages: tables.into() })
    }

    /// Returns the source of sample number `sample` of the blend, and the number of samples that the source has given before, if the stage of
    /// sample `last` goes on up to there: the same sample, or one before it.
    #[inline]
    pub(super) fn of(&self, sample: u64, last: u64) -> (usize, u64) {
        let stage = &self.stages[self.stages.partition_point(|stage| stage.from <= last) - 1];
        let (source, before) = stage.table.of(sample - stage.from);
        (source, stage.given[source] + before)
    }

    /// Returns a number of the blend that is no longer before the sample that a source gives after `before` others of its own: the
    /// number of that sample, or if the source gives fewer, the number from which on it gives none. It is the last number there is if
    /// that is past 2^64.
    pub(super) fn reaches(&self, source: usize, before: u64) -> u64 {
        let stage = &self.stages[self.stages.partition_point(|stage| stage.given[source] <= before) - 1];
        if stage.table.weight(source) > 0 {
            return stage.from.saturating_add(stage.table.sample_of(source, before - stage.given[source]));
        }
        // The last stage: any other one without samples of the source ends with as many as it begins with.
        let of_others = self.stages.iter().rposition(|stage| stage.table.weight(source) > 0);
        self.stages[of_others.map_or(0, |of_others| of_others + 1)].from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLEND_PERIOD;

    const P: u32 = BLEND_PERIOD;

    fn stage(from: u64, weights: &[u32]) -> BlendStage {
        BlendStage { from, weights: weights.into() }
    }

    /// Checks each sample up to some past the last stage: the counts of sources, their shares within each stage, and the way back.
    fn check(weights: &[u32], stages: &[BlendStage]) {
        let tables = BlendTables::new(weights, stages).unwrap();
        let end = stages.last().map_or(0, |stage| stage.from) + 2 * u64::from(P);
        let mut given = vec![0_u64; weights.len()];
        let (mut begins, mut at_begin, mut now) = (0, given.clone(), weights);
        for sample in 0..end {
            if let Some(stage) = stages.iter().find(|stage| stage.from == sample) {
                (begins, at_begin, now) = (sample, given.clone(), &stage.weights);
            }
            let (source, before) = tables.of(sample, sample);
            assert_eq!(before, given[source], "sample {sample} of {stages:?}");
            assert_eq!(tables.reaches(source, before), sample, "sample {sample} of {stages:?}");
            assert!(now[source] > 0, "sample {sample} is of a source without a weight");
            given[source] += 1;
            for ((given, before), weight) in given.iter().zip(&at_begin).zip(now) {
                let share = u64::from(*weight) * (sample + 1 - begins);
                assert!(((given - before) * u64::from(P)).abs_diff(share) < u64::from(P), "after sample {sample}");
            }
        }
    }

    #[test]
    fn a_source_goes_on_where_it_was_and_has_its_share_of_each_prefix_of_a_stage() {
        let half = P / 2;
        check(&[half, half], &[]);
        check(&[half, half], &[stage(1, &[1, P - 1])]);
        check(&[half, half], &[stage(7, &[P - 9, 9]), stage(8, &[half, half]), stage(100_000, &[0, P])]);
        check(&[P, 0, 0], &[stage(1000, &[half, half, 0]), stage(70_001, &[P / 4, half, P / 4])]);
        check(&[1, P - 2, 1], &[stage(u64::from(P), &[P / 4, half, P / 4]), stage(u64::from(3 * P), &[P - 2, 1, 1])]);
    }

    #[test]
    fn a_source_that_ends_is_over_from_its_last_stage_on() {
        let half = P / 2;
        let stages = [stage(10, &[0, P]), stage(20, &[half, half]), stage(30, &[0, P]), stage(40, &[0, P])];
        let tables = BlendTables::new(&[half, half], &stages).unwrap();
        // Sources that have equal shares take turns, and the first of them begins.
        assert_eq!([0, 4, 5, 9].map(|before| tables.reaches(0, before)), [0, 8, 20, 28]);
        assert_eq!([10, 11, u64::MAX].map(|before| tables.reaches(0, before)), [30; 3]);
        let never = BlendTables::new(&[P, 0], &[]).unwrap();
        assert_eq!(never.reaches(1, 0), 0);
        assert_eq!(never.reaches(0, u64::MAX), u64::MAX);
    }

    #[test]
    fn stages_that_do_not_follow_and_weights_that_are_none_are_refused() {
        let refused = |stages: &[BlendStage]| BlendTables::new(&[P / 2; 2], stages).unwrap_err();
        assert_eq!(refused(&[stage(0, &[P, 0])]), PlanError::StageOrder { from: 0, after: 0 });
        let equal = [stage(5, &[P, 0]), stage(5, &[0, P])];
        assert_eq!(refused(&equal), PlanError::StageOrder { from: 5, after: 5 });
        assert_eq!(refused(&[stage(5, &[P])]), PlanError::Weights { weights: vec![P] });
        assert_eq!(refused(&[stage(5, &[1, 1])]), PlanError::Weights { weights: vec![1, 1] });
        assert_eq!(refused(&[stage(5, &[]), stage(6, &[P, 0])]), PlanError::Weights { weights: Vec::new() });
        assert!(BlendTables::new(&[P / 2; 2], &[stage(5, &[P, 0]), stage(6, &[])]).is_ok(), "a stream can end");
        let many: Vec<_> = (1..=65).map(|from| stage(from, &[P, 0])).collect();
        assert_eq!(refused(&many), PlanError::TooManyStages { stages: 65 });
    }
}
