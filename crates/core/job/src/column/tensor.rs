//! The kind `tensor`: the field holds an array. All samples have the same shape, or differ in their first dimension.

use serde::{Deserialize, Serialize};

use super::{Kind, kind::keys};
use spdl_types::{SampleShape, DType};
use crate::{KeyProblem, check::{MAX_SAMPLE_BYTES, check_shape}};

/// How the field stores an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TensorEncoding {
    /// A `.npy` or `.npz` file, which has the type and the shape.
    #[default]
    Numpy,
    /// Nothing but the elements, little-endian, in row-major order.
    Raw,
}

keys! {
    /// The keys of a `tensor` column in a job file.
    TensorKeys {
        /// For tensor: the shape of one sample, at most 8 sides; `[]` is a number. With `max_rows`, the shape of a row. An
        /// array of another shape is a bad sample, unless it has one dimension and as many elements. Required.
        shape: Option<Vec<u32>>,
        /// For tensor: for samples that differ in their first dimension, the most rows of one sample. A sample with more is
        /// a bad sample. It reserves no memory. Default: none; samples have one shape.
        max_rows: Option<u32>,
        /// For tensor: how the field stores the array. Default: `numpy`.
        encoding: Option<TensorEncoding>,
        /// For tensor: the name of the array in an `.npz` file. Default: the only one.
        array: Option<String>,
    }
}

/// An array, as the field holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorColumn {
    /// Shape of one sample, or of a row if samples differ in their number of rows; empty for a number.
    pub shape: Vec<u32>,
    /// The most rows of one sample, if samples differ in their number of rows. One with more is a bad sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u32>,
    /// How the field stores it.
    pub encoding: TensorEncoding,
    /// The array's name in a `.npz` file; `None` for the only one.
    pub array: Option<String>,
}

impl Kind for TensorColumn {
    const NAME: &'static str = "tensor";
    const EXAMPLE: &'static str = "shape = [2, 3]";
    const TAKES_DELTAS: bool = true;
    type Keys = TensorKeys;

    fn read(keys: &TensorKeys) -> Result<Self, KeyProblem> {
        let TensorKeys { shape, max_rows, encoding, array } = keys.clone();
        let Some(shape) = shape else {
            return Err(("shape", "is missing; write the shape of one sample, such as [16, 768]".to_owned()));
        };
        Ok(Self { shape, max_rows, encoding: encoding.unwrap_or_default(), array })
    }

    fn dtypes(&self) -> &'static [DType] {
        &[
            DType::F32,
            DType::U8,
            DType::I8,
            DType::U16,
            DType::I16,
            DType::U32,
            DType::I32,
            DType::U64,
            DType::I64,
            DType::F16,
            DType::Bf16,
            DType::F64,
            DType::Bool,
        ]
    }

    fn shape(&self) -> SampleShape {
        let shape = self.shape.clone();
        match self.max_rows {
            None => SampleShape::Fixed(shape),
            Some(max_rows) => SampleShape::Rows { row: shape, max_rows },
        }
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        let Self { shape, max_rows, encoding, array } = self;
        check_shape(shape, dtype).map_err(|problem| ("shape", problem))?;
        if let Some(max_rows) = max_rows {
            let bytes = self.shape().max_bytes(dtype);
            if !(1..=u64::from(MAX_SAMPLE_BYTES)).contains(&bytes) {
                let problem = format!("is {max_rows}, not 1 or more rows that make at most {MAX_SAMPLE_BYTES} bytes");
                return Err(("max_rows", problem));
            }
        }
        if *encoding == TensorEncoding::Raw && array.is_some() {
            return Err(("array", "is only for encoding = \"numpy\"".to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{ColumnKind, Job, JobError, column::testing::job_of};

    fn job(keys: &str) -> Result<Job, JobError> {
        job_of("tensor", keys)
    }

    #[test]
    fn a_tensor_has_the_shape_and_type_that_the_job_gives() {
        let column = &job("shape = [3, 5]").unwrap().columns[0];
        assert_eq!((column.sample_shape(), column.dtype), (Some(vec![3, 5]), DType::F32));
        let column = &job("shape = []\ndtype = \"bool\"\nencoding = \"raw\"").unwrap().columns[0];
        assert_eq!((column.sample_shape(), column.dtype), (Some(vec![]), DType::Bool));
    }

    #[test]
    fn a_tensor_with_a_number_of_rows_is_ragged() {
        let column = &job("shape = [3, 5]\nmax_rows = 7\ndtype = \"i16\"").unwrap().columns[0];
        assert_eq!(column.shape(), SampleShape::Rows { row: vec![3, 5], max_rows: 7 });
        assert_eq!((column.sample_shape(), column.max_bytes()), (None, 7 * 3 * 5 * 2));
    }

    #[test]
    fn a_function_of_a_ragged_tensor_returns_such_rows_or_declares_another_shape() {
        let ragged = "shape = []\nmax_rows = 7\ndtype = \"u8\"\ntransform = \"a:b\"\n";
        let shape = |returns: &str| job(&format!("{ragged}{returns}")).unwrap().columns[0].shape();
        let rows = |row, max_rows| SampleShape::Rows { row, max_rows };
        assert_eq!(shape(""), rows(vec![], 7));
        assert_eq!(shape("returns = { max_rows = 9 }"), rows(vec![], 9));
        assert_eq!(shape("returns = { shape = [2], max_rows = 3 }"), rows(vec![2], 3));
        let error = job("shape = [3]\ntransform = \"a:b\"\nreturns = { max_rows = 3 }").unwrap_err().to_string();
        assert!(error.contains("`returns.max_rows` is for rows; add `shape`"), "{error}");
        let error = job(&format!("{ragged}returns = {{ max_bytes = 7 }}")).unwrap_err().to_string();
        assert!(error.contains("`returns.max_bytes` is only for a bytes column"), "{error}");
        let column = &job(&format!("{ragged}returns = {{ shape = [7] }}")).unwrap().columns[0];
        assert_eq!(column.sample_shape(), Some(vec![7]));
    }

    #[test]
    fn every_key_of_a_tensor_is_in_the_fingerprint_and_survives_storage() {
        let jobs = ["", "max_rows = 1", "max_rows = 2", "array = \"x\"", "encoding = \"raw\"", "dtype = \"u16\""].map(|more| {
            let job = job(&format!("shape = [2]\n{more}")).unwrap();
            let back: Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
            assert_eq!(back, job);
            job
        });
        let fingerprints: BTreeSet<_> = jobs.iter().map(|job| job.fingerprint().to_string()).collect();
        assert_eq!(fingerprints.len(), jobs.len());
    }

    #[test]
    fn a_shape_that_makes_no_sense_is_named() {
        for (keys, expected) in [
            ("", "`shape` is missing; write the shape of one sample, such as [16, 768]"),
            ("shape = [0]", "`shape` is [0], not at most"),
            ("shape = [1, 1, 1, 1, 1, 1, 1, 1, 1]", "`shape` is [1, 1, 1, 1, 1, 1, 1, 1, 1], not at most 8 sides"),
            ("shape = [65536, 65536]", "`shape`"),
            ("max_rows = 3", "`shape` is missing"),
            ("shape = [4]\nmax_rows = 0", "`max_rows` is 0, not 1 or more rows"),
            ("shape = [4]\nmax_rows = 67108865", "`max_rows` is 67108865, not 1 or more rows that make at most 1073741824 bytes"),
            ("shape = [0]\nmax_rows = 1", "`shape` is [0]"),
            ("shape = [4]\narray = \"x\"\nencoding = \"raw\"", "`array` is only for encoding = \"numpy\""),
            ("shape = [4]\nencoding = \"zarr\"", "encoding cannot be `zarr`; it can be numpy, raw"),
            ("shape = [4]\nmax_bytes = 9", "`max_bytes` is only for decode = \"bytes\""),
            ("shape = [4]\ndtype = \"c64\"", "dtype cannot be `c64`"),
        ] {
            let error = job(keys).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn a_tensor_of_a_peer_is_checked_like_one_of_a_file() {
        let mut job = job("shape = [4]").unwrap();
        let ColumnKind::Tensor(tensor) = &mut job.columns[0].kind else { panic!("{job:?}") };
        tensor.shape = vec![u32::MAX; 20];
        assert!(job.check().unwrap_err().to_string().contains("`shape`"));
    }
}
