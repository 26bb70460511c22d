//! A user's function that makes a column's values: its name, its input and its result.

use serde::{Deserialize, Serialize};

use super::{
    Callable, KeyProblem,
    check::{MAX_SAMPLE_BYTES, check_shape},
};
use spdl_types::{DType, SampleShape};

/// The `returns` table of a column in a job file: what differs from what the function takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReturnsFile {
    /// The type of the elements. Default: the column's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// The shape of the array; `[]` is a number. Default: the shape that the function gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u32>>,
    /// For an array whose first dimension differs: the most rows that the function returns. `shape` is that of a row.
    /// Default: as what the function gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u32>,
    /// For a `bytes` column without `shape`: the length of the longest value that the function returns. Default: the
    /// column's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u32>,
}

/// A function that is called with each sample's value after decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transform {
    /// The function, or the class whose objects are called.
    pub function: Callable,
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
    /// An array whose first dimension differs.
    Rows {
        /// Shape of one row; empty for a scalar.
        row: Vec<u32>,
        /// Upper limit of the rows; a result with more is a bad sample.
        max_rows: u32,
    },
}

impl Returns {
    /// Returns the result of a function and the type of its elements. Keys that are not given are those of the input,
    /// of shape `input` with elements of type `takes`.
    pub(super) fn read(file: &ReturnsFile, input: &SampleShape, takes: DType) -> Result<(Self, DType), KeyProblem> {
        let returns = match (&file.shape, file.max_rows, input) {
            (None, None, SampleShape::Bytes { max_bytes }) => {
                Self::Ragged { max_bytes: file.max_bytes.unwrap_or(*max_bytes) }
            }
            _ if file.max_bytes.is_some() => {
                return Err(("max_bytes", "is only for a bytes column without `returns.shape`".to_owned()));
            }
            (Some(row), Some(max_rows), _) => Self::Rows { row: row.clone(), max_rows },
            (None, Some(max_rows), SampleShape::Rows { row, .. }) => Self::Rows { row: row.clone(), max_rows },
            (None, Some(_), _) => return Err(("max_rows", "is for rows; add `shape`, that of one row".to_owned())),
            (Some(shape), None, _) | (None, None, SampleShape::Fixed(shape)) => Self::Fixed { shape: shape.clone() },
            (None, None, SampleShape::Rows { row, max_rows }) => Self::Rows { row: row.clone(), max_rows: *max_rows },
        };
        Ok((returns, file.dtype.unwrap_or(takes)))
    }

    /// Checks a result with elements of type `dtype`.
    pub(super) fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        match self {
            Self::Fixed { shape } => check_shape(shape, dtype).map_err(|problem| ("shape", problem)),
            Self::Rows { row, max_rows } => {
                check_shape(row, dtype).map_err(|problem| ("shape", problem))?;
                if (1..=u64::from(MAX_SAMPLE_BYTES)).contains(&self.sample_shape().max_bytes(dtype)) {
                    return Ok(());
                }
                let problem = format!("is {max_rows}, not 1 or more rows that make at most {MAX_SAMPLE_BYTES} bytes");
                Err(("max_rows", problem))
            }
            Self::Ragged { max_bytes } if !(1..=MAX_SAMPLE_BYTES).contains(max_bytes) => {
                Err(("max_bytes", format!("is {max_bytes}, not in 1..={MAX_SAMPLE_BYTES}")))
            }
            Self::Ragged { .. } if dtype != DType::U8 => {
                Err(("dtype", "is for arrays; add `returns.shape`".to_owned()))
            }
            Self::Ragged { .. } => Ok(()),
        }
    }

    /// Returns the shape of the result.
    #[must_use]
    pub fn sample_shape(&self) -> SampleShape {
        match self {
            Self::Fixed { shape } => SampleShape::Fixed(shape.clone()),
            Self::Ragged { max_bytes } => SampleShape::Bytes { max_bytes: *max_bytes },
            Self::Rows { row, max_rows } => SampleShape::Rows { row: row.clone(), max_rows: *max_rows },
        }
    }
}

/// Returns the key of a `returns` table in the form that it has in a column.
fn of_column((key, problem): KeyProblem) -> KeyProblem {
    let key = match key {
        "dtype" => "returns.dtype",
        "shape" => "returns.shape",
        "max_rows" => "returns.max_rows",
        "max_bytes" => "returns.max_bytes",
        _ => "returns",
    };
    (key, problem)
}

impl Transform {
    /// Returns the function that makes a column's values from an input of that shape with elements of type `takes`, and
    /// the type of the column's elements.
    pub(super) fn read(
        function: Callable,
        returns: &ReturnsFile,
        input: &SampleShape,
        takes: DType,
    ) -> Result<(Self, DType), KeyProblem> {
        let (returns, dtype) = Returns::read(returns, input, takes).map_err(of_column)?;
        Ok((Self { function, takes, returns }, dtype))
    }

    /// Checks the function of a column with elements of type `dtype`, whose input has that shape.
    pub(super) fn check(&self, input: &SampleShape, dtype: DType) -> Result<(), KeyProblem> {
        self.function.check("transform")?;
        self.returns.check(dtype).map_err(of_column)?;
        let is_bytes = matches!(input, SampleShape::Bytes { .. }) && self.takes == DType::U8;
        if matches!(self.returns, Returns::Ragged { .. }) && !is_bytes {
            return Err(("returns", "can only be bytes for decode = \"bytes\"".to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Arguments, BytesColumn, Column, ColumnKind, IntColumn, Job, JobError};

    use super::*;

    fn job(columns: &str) -> Result<Job, JobError> {
        crate::testing::job_of(columns)
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
        assert_eq!(first, of("transform = \"a:b\"\narguments = {}"));
        let with_arguments = of("transform = \"a:b\"\narguments = { size = 3, name = \"x\" }");
        assert_ne!(first, with_arguments);
        assert_eq!(with_arguments, of("transform = \"a:b\"\narguments = { name = \"x\", size = 3 }"));
        assert_ne!(with_arguments, of("transform = \"a:b\"\narguments = { name = \"x\", size = 3.0 }"));
        assert_ne!(first, of("transform = \"a:b\"\nreturns = { shape = [8, 24] }"));
        assert_eq!(first, of("transform = \"a:b\"\nreturns = { shape = [8, 8, 3], dtype = \"u8\" }"));
    }

    #[test]
    fn a_function_in_rust_is_declared_like_one_in_python_and_has_its_version_in_the_fingerprint() {
        let job = image("transform = \"pictures::blur@3\"\narguments = { radius = 2 }").unwrap();
        let function = &job.columns[0].transform.as_ref().unwrap().function;
        assert_eq!(function.rust().map(|function| (function.name, function.version)), Some(("pictures::blur", 3)));
        assert_ne!(
            job.fingerprint(),
            image("transform = \"pictures::blur@4\"\narguments = { radius = 2 }").unwrap().fingerprint()
        );
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
        assert_eq!((back.fingerprint(), &back), (job.fingerprint(), &job));
        for (wrong, expected) in [
            (
                "\"pictures::blur\"",
                "name a function as `package.module:function`, or one in Rust as `module::function@version`",
            ),
            ("\"blur@3\"", "`transform` is `blur@3`; name a function"),
            ("\"pictures::blur@3\"\nsource_digest = \"7\"", "`source_digest` is for functions in Python"),
            ("\"pictures::blur@3\"\narguments = { \"a b\" = 1 }", "`arguments` has `a b`, which is not a name in Rust"),
        ] {
            let error = image(&format!("transform = {wrong}")).unwrap_err().to_string();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (result, expected) in [
            (image("transform = \"flip\""), "`transform` is `flip`; name a function as `package.module:function`"),
            (image("transform = \"os:system; rm\""), "`transform`"),
            (image("transform = \"a..b:c\""), "`transform`"),
            (image(&format!("transform = \"a:{}\"", "b".repeat(300))), "`transform`"),
            (image("returns = { shape = [1] }"), "`returns` is only for a column with `transform`"),
            (image("arguments = { size = 1 }"), "`arguments` is only for a column with `transform`"),
            (
                image("transform = \"a:b\"\narguments = { scale = [1.0, inf] }"),
                "`arguments` has a number that is not finite",
            ),
            (image("transform = \"a:b\"\narguments = { \"a b\" = 1 }"), "`arguments` has `a b`, which is not a name"),
            (image("transform = \"a:b\"\narguments = 3"), "column image: arguments expects a table, not 3"),
            (image("transform = \"a:b\"\narguments = { at = 2026-11-23 }"), "not a date"),
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
            (
                change(|_, transform| transform.function.arguments = Arguments::from_text("[1]".to_owned())),
                "`arguments` is not a JSON object",
            ),
            (
                change(|_, transform| {
                    transform.function.arguments =
                        Arguments::from_text(format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 16)));
                }),
                "`arguments` has 65544 bytes as JSON, more than 65536",
            ),
            (
                change(|kind, transform| (*kind, transform.takes) = (ColumnKind::Int(IntColumn), DType::I64)),
                "can only be bytes",
            ),
        ] {
            let error = result.unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&good).unwrap()).unwrap();
        assert_eq!((back.fingerprint(), &back), (good.fingerprint(), &good));
    }
}
