//! The plan of `random_choice`.

use spdl_job::RandomChoice;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomChoice {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        let chosen = match &self.p {
            None => planner.draw.below(self.transforms.len() as u32) as usize,
            Some(p) => weighted(p, planner.draw.unit()),
        };
        planner.add(&self.transforms[chosen..=chosen])
    }
}

/// Returns the number of the part in which a share of the whole, 0 to 1, lies.
fn weighted(parts: &[f32], share: f64) -> usize {
    let wanted = share * parts.iter().map(|part| f64::from(*part)).sum::<f64>();
    let mut sum = 0.0;
    let found = parts.iter().position(|part| {
        sum += f64::from(*part);
        wanted < sum
    });
    found.or_else(|| parts.iter().rposition(|part| *part > 0.0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::weighted;

    #[test]
    fn a_part_of_nothing_is_never_chosen() {
        let parts = [0.0, 1.0, 0.0, 3.0, 0.0];
        let chosen = [0.0, 0.2499, 0.25, 0.999_999, 1.0].map(|share| weighted(&parts, share));
        assert_eq!(chosen, [1, 1, 3, 3, 3]);
    }
}
