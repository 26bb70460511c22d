//! The operation `random_choice`.

use serde::{Deserialize, Serialize};

use super::{ImageOp, Operation, OperationProblem, PicturePlanner, kind::check_nested, step};
use crate::KeyProblem;

/// Applies one of the `transforms`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomChoice {
    /// The operations, nested up to 4 deep; not `crop_box`, `five_crop` and `ten_crop`.
    #[serde(deserialize_with = "step::read_all")]
    #[schemars(with = "Vec<step::StepFile>")]
    pub transforms: Vec<ImageOp>,
    /// How probable each of the `transforms` is, in proportion. Default: all equally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<Vec<f32>>,
}

impl Operation for RandomChoice {
    const NAME: &'static str = "random_choice";
    const KEYS: &'static [&'static str] = &["transforms", "p"];
    const EXAMPLE: &'static str = "{ transforms = [\"grayscale\", { random_invert = 1.0 }], p = [0.7, 0.3] }";

    fn only_moves(&self) -> bool {
        self.transforms.iter().all(ImageOp::only_moves)
    }

    fn output_size(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]> {
        let mut sizes = self.transforms.iter().map(|op| op.output_size(before));
        let first = sizes.next()??;
        sizes.all(|size| size == Some(first)).then_some(first)
    }

    fn check(&self) -> Result<(), KeyProblem> {
        check_nested(&self.transforms)?;
        let Some(p) = &self.p else { return Ok(()) };
        if p.len() != self.transforms.len() {
            return Err(("p", format!("has {} numbers for {} operations", p.len(), self.transforms.len())));
        }
        if !p.iter().all(|p| (0.0..=1e6).contains(p)) || p.iter().sum::<f32>() <= 0.0 {
            return Err(("p", format!("is {p:?}; give numbers from 0 on, not all 0")));
        }
        Ok(())
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
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
