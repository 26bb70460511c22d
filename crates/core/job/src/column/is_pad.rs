//! The kind `is_pad`: which of the values of a column with `deltas` are of no record of the series.

use serde::{Deserialize, Serialize};

use super::{Kind, kind::keys};
use crate::KeyProblem;
use spdl_types::{DType, SampleShape};

keys! {
    /// The keys of an `is_pad` column in a job file.
    IsPadKeys {
        /// For is_pad: the name of the column with `deltas` that it is of. Required.
        follows: Option<String>,
    }
}

/// Which of the values of a column are of a place before the first or behind the last record of the series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IsPadColumn {
    /// Name of the column.
    pub follows: String,
    /// The places of its values: those of the column that it follows.
    pub places: Vec<i32>,
}

impl Kind for IsPadColumn {
    const NAME: &'static str = "is_pad";
    const EXAMPLE: &'static str = "follows = \"deltas\"";
    type Keys = IsPadKeys;

    fn read(keys: &IsPadKeys) -> Result<Self, KeyProblem> {
        let missing = "is missing; write the name of the column with `deltas` that it is of";
        let follows = keys.follows.clone().ok_or_else(|| ("follows", missing.to_owned()))?;
        Ok(Self { follows, places: Vec::new() })
    }

    fn follows(&self) -> Option<&str> {
        Some(&self.follows)
    }

    fn follow_deltas(&mut self, deltas: &[i32]) -> Result<(), KeyProblem> {
        if deltas.is_empty() {
            let problem = format!("is `{}`, which has no `deltas`: all its values are of the sample's record", self.follows);
            return Err(("follows", problem));
        }
        self.places = deltas.to_vec();
        Ok(())
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::Bool]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Fixed(vec![self.places.len() as u32])
    }

    fn check(&self, _dtype: DType) -> Result<(), KeyProblem> {
        super::deltas::check(&self.places)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Job, JobError, column::testing::job_of};
    use spdl_types::DType;

    fn followed(keys: &str) -> Result<Job, JobError> {
        let other = "[[column]]\nname = \"pad\"\nfrom = \"npy\"\ndecode = \"is_pad\"";
        job_of("tensor", &format!("shape = [2]\n{keys}\n{other}\nfollows = \"c\""))
    }

    #[test]
    fn it_has_a_value_for_each_place_of_the_column_that_it_follows() {
        let job = followed("deltas = [-1, 0, 1]").unwrap();
        assert_eq!((job.columns[1].sample_shape(), job.columns[1].dtype), (Some(vec![3]), DType::Bool));
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
        assert_eq!((back.check().is_ok(), &back), (true, &job));
        let mut other = job;
        other.columns[0].value.deltas.pop();
        assert!(other.check().unwrap_err().to_string().contains("`follows` is `c`, which the column does not fit"));
    }

    #[test]
    fn a_column_without_deltas_has_no_mask() {
        let error = followed("").unwrap_err().to_string();
        assert!(error.contains("`follows` is `c`, which has no `deltas`"), "{error}");
        let error = job_of("is_pad", "").unwrap_err().to_string();
        assert!(error.contains("`follows` is missing; write the name of the column with `deltas`"), "{error}");
    }
}
