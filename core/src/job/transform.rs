//! A Python function of the user that makes a column's values: its name, its input and its result.

use serde::{Deserialize, Serialize};

use super::{
    DType, KeyProblem, SampleShape,
    check::{MAX_SAMPLE_BYTES, check_shape},
};

/// Length of the longest name of a function, in bytes.
const MAX_FUNCTION_BYTES: usize = 256;

/// The `returns` table of a column in a job file: what differs from what the function takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReturnsFile {
    /// Type of the elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// Shape of the array; empty for a scalar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u32>>,
    /// For a bytes column without a shape: the most bytes of one sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u32>,
}

/// A function that is called with each sample's value after decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transform {
    /// `package.module:function`.
    pub function: String,
    /// Type of the elements of its input, which the column's kind decodes.
    pub takes: DType,
    /// Its result; the type of the result's elements is the column's.
    pub returns: Returns,
}

/// The result of a function for a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Returns {
    /// An array of this shape.
    Fixed {
        /// The lengths of its axes; none for a scalar.
        shape: Vec<u32>,
    },
    /// Bytes.
    Ragged {
        /// Upper limit of the bytes; a longer result is a bad sample.
        max_bytes: u32,
    },
}

impl Transform {
    /// Returns the function that makes a column's values from an input of that shape with elements of type `takes`, and
    /// the type of the column's elements.
    pub(super) fn read(
        function: &str,
        returns: ReturnsFile,
        input: SampleShape,
        takes: DType,
    ) -> Result<(Self, DType), KeyProblem> {
        let ReturnsFile { dtype, shape, max_bytes } = returns;
        let returns = match (shape, input) {
            (None, SampleShape::Bytes { max_bytes: most }) => Returns::Ragged { max_bytes: max_bytes.unwrap_or(most) },
            _ if max_bytes.is_some() => {
                let problem = "is only for a bytes column without `returns.shape`";
                return Err(("returns.max_bytes", problem.to_owned()));
            }
            (Some(shape), _) | (None, SampleShape::Fixed(shape)) => Returns::Fixed { shape },
            (None, SampleShape::Rows { .. }) => {
                return Err(("returns.shape", "is missing; give the shape of the result".to_owned()));
            }
        };
        Ok((Self { function: function.to_owned(), takes, returns }, dtype.unwrap_or(takes)))
    }

    /// Checks the function of a column with elements of type `dtype`, whose input has that shape.
    pub(super) fn check(&self, input: &SampleShape, dtype: DType) -> Result<(), KeyProblem> {
        if !is_function(&self.function) {
            let shown: String = self.function.chars().take(MAX_FUNCTION_BYTES).collect();
            return Err(("transform", format!("is `{shown}`; name a function as `package.module:function`")));
        }
        match &self.returns {
            Returns::Fixed { shape } => {
                check_shape(shape, dtype).map_err(|problem| ("returns.shape", problem))?;
            }
            Returns::Ragged { max_bytes } if !(1..=MAX_SAMPLE_BYTES).contains(max_bytes) => {
                return Err(("returns.max_bytes", format!("is {max_bytes}, not in 1..={MAX_SAMPLE_BYTES}")));
            }
            Returns::Ragged { .. } if dtype != DType::U8 => {
                return Err(("returns.dtype", "is for arrays; add `returns.shape`".to_owned()));
            }
            Returns::Ragged { .. } => {
                if !matches!(input, SampleShape::Bytes { .. }) || self.takes != DType::U8 {
                    return Err(("returns", "can only be ragged for decode = \"bytes\"".to_owned()));
                }
            }
        }
        Ok(())
    }
}

/// Returns whether `name` has the form `package.module:function`.
fn is_function(name: &str) -> bool {
    let is_name = |part: &str| {
        let mut letters = part.chars();
        letters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
            && letters.all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    let is_path = |path: &str| path.split('.').all(is_name);
    name.len() <= MAX_FUNCTION_BYTES
        && name.split_once(':').is_some_and(|(module, function)| is_path(module) && is_path(function))
}

#[cfg(test)]
mod tests {
    use crate::{
        Fingerprint,
        job::{BytesColumn, Column, ColumnKind, DatasetFacts, IntColumn, Job, JobError, JobFile},
    };

    use super::*;

    fn job(columns: &str) -> Result<Job, JobError> {
        let text = format!("name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n{columns}");
        let facts = DatasetFacts { fingerprint: Fingerprint(7), samples: 100, blocks: 10 };
        JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&facts))
    }

    fn image(more: &str) -> Result<Job, JobError> {
        job(&format!(
            "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{{ center_crop = {{ size = 8 }} }}]\n\
             {more}"
        ))
    }

    fn text(more: &str) -> Result<Job, JobError> {
        job(&format!("[[column]]\nname = \"text\"\nfrom = \"txt\"\ndecode = \"bytes\"\nmax_bytes = 100\n{more}"))
    }

    #[test]
    fn what_is_not_declared_is_as_what_goes_in() {
        let column = &image("transform = \"a.b:c\"").unwrap().columns[0];
        assert_eq!((column.sample_shape(), column.dtype), (Some(vec![8, 8, 3]), DType::U8));
        let column = &image("dtype = \"f16\"\ntransform = \"a:b\"\nreturns = { shape = [] }").unwrap().columns[0];
        assert_eq!((column.sample_shape(), column.dtype), (Some(vec![]), DType::F16));
        let column = &text("transform = \"a:b\"\nreturns = { dtype = \"i64\", shape = [77] }").unwrap().columns[0];
        assert_eq!((column.sample_shape(), column.dtype, column.max_bytes()), (Some(vec![77]), DType::I64, 77 * 8));
        let column = &text("transform = \"a:b\"").unwrap().columns[0];
        assert_eq!((column.sample_shape(), column.dtype, column.max_bytes()), (None, DType::U8, 100));
        let column = &text("transform = \"a:b\"\nreturns = { max_bytes = 9000 }").unwrap().columns[0];
        assert_eq!(column.max_bytes(), 9000);
    }

    #[test]
    fn the_function_and_what_it_returns_are_in_the_fingerprint() {
        let of = |more: &str| image(more).unwrap().fingerprint();
        let plain = of("");
        let first = of("transform = \"a:b\"");
        assert_ne!(first, plain);
        assert_ne!(first, of("transform = \"a:c\""));
        assert_ne!(first, of("transform = \"a:b\"\nreturns = { shape = [8, 24] }"));
        assert_eq!(first, of("transform = \"a:b\"\nreturns = { shape = [8, 8, 3], dtype = \"u8\" }"));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (result, expected) in [
            (image("transform = \"flip\""), "`transform` is `flip`; name a function as `package.module:function`"),
            (image("transform = \"os:system; rm\""), "`transform`"),
            (image("transform = \"a..b:c\""), "`transform`"),
            (image(&format!("transform = \"a:{}\"", "b".repeat(300))), "`transform`"),
            (image("returns = { shape = [1] }"), "`returns` is only for a column with `transform`"),
            (image("transform = \"a:b\"\nreturns = { shape = [0] }"), "`returns.shape` is [0]"),
            (image("transform = \"a:b\"\nreturns = { shape = [65536, 65536] }"), "`returns.shape`"),
            (image("transform = \"a:b\"\nreturns = { shape = [1, 1, 1, 1, 1, 1, 1, 1, 1] }"), "`returns.shape`"),
            (
                image("transform = \"a:b\"\nreturns = { max_bytes = 5 }"),
                "`returns.max_bytes` is only for a bytes column",
            ),
            (image("dtype = \"i64\"\ntransform = \"a:b\""), "`dtype` cannot be i64"),
            (text("transform = \"a:b\"\nreturns = { dtype = \"f32\" }"), "add `returns.shape`"),
            (text("transform = \"a:b\"\nreturns = { max_bytes = 0 }"), "`returns.max_bytes` is 0"),
            (text("transform = \"a:b\"\nreturns = { size = 3 }"), "size"),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn a_function_of_a_peer_is_checked_like_one_of_a_file() {
        let good = text("transform = \"a:b\"").unwrap();
        let change = |change: fn(&mut ColumnKind, &mut Transform)| {
            let mut job = good.clone();
            let Column { kind, transform, .. } = &mut job.columns[0];
            change(kind, transform.as_mut().unwrap());
            job.check().map_err(|error| error.to_string())
        };
        change(|_, _| {}).unwrap();
        for (result, expected) in [
            (change(|kind, _| *kind = ColumnKind::Bytes(BytesColumn { max_bytes: 0 })), "`max_bytes`"),
            (change(|_, transform| transform.takes = DType::F32), "`dtype`"),
            (change(|kind, transform| (*kind, transform.takes) = (ColumnKind::Int(IntColumn), DType::I64)), "ragged"),
        ] {
            let error = result.unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&good).unwrap()).unwrap();
        assert_eq!((back.fingerprint(), &back), (good.fingerprint(), &good));
    }
}
