//! One `[[function]]` of a job file: a function of the user's that takes several fields or columns and returns several
//! columns.

use serde::{Deserialize, Serialize};

use super::{
    ArgumentsFile, Callable, Column, ColumnKind, FunctionCall, KeyProblem, ReturnedColumn, ReturnedValue, ReturnsFile,
    SourceDigest, transform::Returns,
};
use spdl_types::{DType, SampleShape};

/// The default of `max_bytes`: more than nearly every picture has.
const DEFAULT_MAX_BYTES: u32 = 16 << 20;

/// One `[[function]]` of a job file: a function that takes several fields or columns of a sample, or returns several
/// columns.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionFile {
    /// The function, or a class, in Python, as `package.module:function`. Or a function in Rust, as
    /// `module::function@version`.
    pub call: String,
    /// Arguments of the function by name, or of the class when its object is made. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<ArgumentsFile>,
    /// The digest of the source of the Python function, if that is found. A worker with another source refuses the job.
    /// Default: set when the job is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub source_digest: Option<SourceDigest>,
    /// The fields that it takes as they are stored, as bytes. `jpg|png` is the first that the record has, under this
    /// name. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// The length of the longest field that it takes. A longer one is a bad sample. Default: 16777216.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u32>,
    /// The columns of the job that it takes as they are decoded. They may not have a `transform`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// The columns that it returns.
    pub returns: Vec<ReturnedFile>,
}

/// One of the columns that a function returns.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReturnedFile {
    /// The name in the batch. A column in `columns` is replaced, and the others are added after those of the job file.
    pub name: String,
    /// The type of the elements. Default: that of the column of this name in `columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// The shape of the array; `[]` is a number. With `max_rows`, that of a row. Default: that of the column of this
    /// name in `columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u32>>,
    /// For an array whose first dimension differs: the most rows. Default: that of the column of this name in
    /// `columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u32>,
    /// For bytes: the length of the longest value. Default: that of the column of this name in `columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u32>,
}

impl FunctionFile {
    /// Adds the columns that the function returns to those of the job, or replaces those of the same names. `decoded` are the
    /// columns of the job file.
    pub(super) fn add(&self, decoded: &[Column], columns: &mut Vec<Column>) -> Result<(), KeyProblem> {
        let call = self.read(decoded)?;
        call.check()?;
        for (ReturnedValue { name, dtype, .. }, number) in call.returns.iter().zip(0..) {
            let kind = ColumnKind::Returned(ReturnedColumn { call: call.clone(), number });
            let (from, value) = Default::default();
            let column = Column { name: name.clone(), from, kind, dtype: *dtype, value, transform: None };
            match columns.iter_mut().find(|column| column.name == *name) {
                Some(known) if known.returned().is_some() => {
                    return Err(("returns", format!("has `{name}`, which another function returns")));
                }
                Some(known) => *known = column,
                None => columns.push(column),
            }
        }
        Ok(())
    }

    /// Converts the function as it is written, without checking all values. `decoded` are the columns of the job file.
    fn read(&self, decoded: &[Column]) -> Result<FunctionCall, KeyProblem> {
        let find = |name: &str| decoded.iter().find(|column| column.name == name);
        let column = |name: &String| {
            find(name).cloned().ok_or_else(|| ("columns", format!("has `{name}`, and the job has no such column")))
        };
        let columns = self.columns.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let returned = |file: &ReturnedFile| {
            if find(&file.name).is_some() && !self.columns.contains(&file.name) {
                let problem =
                    format!("has `{}`, a column that the function does not take; name it in `columns`", file.name);
                return Err(("returns", problem));
            }
            file.read(columns.iter().find(|column| column.name == file.name))
                .map_err(|(key, problem)| ("returns", format!("has `{}`, whose `{key}` {problem}", file.name)))
        };
        let returns = self.returns.iter().map(returned).collect::<Result<Vec<_>, _>>()?;
        Ok(FunctionCall {
            function: Callable::read(&self.call, self.arguments.as_ref(), self.source_digest)?,
            fields: self.fields.clone(),
            max_bytes: self.max_bytes.unwrap_or(DEFAULT_MAX_BYTES),
            columns,
            returns,
        })
    }
}

impl ReturnedFile {
    /// Converts the declaration. Keys that are not given are those of `taken`, the column of that name.
    fn read(&self, taken: Option<&Column>) -> Result<ReturnedValue, KeyProblem> {
        let file = ReturnsFile {
            dtype: self.dtype,
            shape: self.shape.clone(),
            max_rows: self.max_rows,
            max_bytes: self.max_bytes,
        };
        let (shape, dtype) = match taken {
            Some(column) => Returns::read(&file, &column.shape(), column.dtype)?,
            None if file.max_bytes.is_some() => Returns::read(&file, &SampleShape::Bytes { max_bytes: 1 }, DType::U8)?,
            None => {
                let dtype = file.dtype.ok_or_else(|| ("dtype", "is missing".to_owned()))?;
                if file.shape.is_none() {
                    return Err(("shape", "is missing; [] is a number, and `max_bytes` declares bytes".to_owned()));
                }
                Returns::read(&file, &SampleShape::Fixed(Vec::new()), dtype)?
            }
        };
        Ok(ReturnedValue { name: self.name.clone(), dtype, shape })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Job, JobError, JobFile, decoded_columns};

    use super::*;

    const COLUMNS: &str = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ center_crop = 8 }]\n\
        [[column]]\nname = \"mask\"\nfrom = \"png\"\ndecode = \"mask\"\nfollows = \"image\"\n";

    fn job(functions: &str) -> Result<Job, JobError> {
        crate::testing::job_of(&format!("{COLUMNS}{functions}"))
    }

    fn function(more: &str) -> Result<Job, JobError> {
        job(&format!("[[function]]\ncall = \"a.b:c\"\n{more}"))
    }

    const WHOLE: &str = "fields = [\"txt\", \"jpg|png\"]\ncolumns = [\"image\"]\nreturns = [\
        { name = \"tokens\", dtype = \"i32\", shape = [77] }, { name = \"image\", dtype = \"f32\" },\
        { name = \"boxes\", dtype = \"f32\", shape = [4], max_rows = 9 }, { name = \"text\", max_bytes = 100 }]";

    #[test]
    fn what_is_returned_replaces_what_is_taken_and_the_rest_comes_last() {
        let job = function(WHOLE).unwrap();
        let columns = job.columns.iter().map(|column| (column.name.as_str(), column.dtype, column.shape()));
        let expected = [
            ("image", DType::F32, SampleShape::Fixed(vec![8, 8, 3])),
            ("mask", DType::U8, SampleShape::Fixed(vec![8, 8])),
            ("tokens", DType::I32, SampleShape::Fixed(vec![77])),
            ("boxes", DType::F32, SampleShape::Rows { row: vec![4], max_rows: 9 }),
            ("text", DType::U8, SampleShape::Bytes { max_bytes: 100 }),
        ];
        assert_eq!(columns.collect::<Vec<_>>(), expected);
        let call = &job.columns[0].returned().unwrap().call;
        let takes: Vec<_> =
            call.takes().into_iter().map(|column| (column.name, column.from.len(), column.dtype)).collect();
        let taken = |name: &str, fields| (name.to_owned(), fields, DType::U8);
        assert_eq!(takes, [taken("txt", 1), taken("jpg|png", 2), taken("image", 1)]);
        assert_eq!(decoded_columns(&job.columns).next().unwrap().name, "mask");
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
        assert_eq!((back.fingerprint(), &back), (job.fingerprint(), &job));
    }

    #[test]
    fn all_of_a_function_is_in_the_fingerprint() {
        let whole = function(WHOLE).unwrap().fingerprint();
        for (from, to) in [
            ("\"txt\"", "\"json\""),
            ("columns = [\"image\"]", "columns = [\"image\", \"mask\"]"),
            ("[77]", "[78]"),
            ("fields", "max_bytes = 5\nfields"),
            ("fields", "arguments = { size = 3 }\nfields"),
        ] {
            assert_ne!(function(&WHOLE.replacen(from, to, 1)).unwrap().fingerprint(), whole, "{to}");
        }
        let default = format!("max_bytes = {DEFAULT_MAX_BYTES}\n{WHOLE}");
        assert_eq!(function(&default).unwrap().fingerprint(), whole);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let returns = "returns = [{ name = \"x\", dtype = \"i32\", shape = [] }]";
        for (more, expected) in [
            (returns.to_owned(), "function `a.b:c`: `fields` is missing; name the fields or the `columns`"),
            (format!("fields = [\"jpg|\"]\n{returns}"), "`fields` has an empty name"),
            (format!("fields = [\"a\", \"a\"]\n{returns}"), "`fields` has `a` twice"),
            (format!("fields = [\"a\"]\nmax_bytes = 0\n{returns}"), "`max_bytes` is 0"),
            (format!("fields = [\"image\"]\ncolumns = [\"image\"]\n{returns}"), "`image`, which is in `columns` too"),
            (format!("columns = [\"picture\"]\n{returns}"), "has `picture`, and the job has no such column"),
            (format!("columns = [\"mask\", \"mask\"]\n{returns}"), "`columns` has `mask` twice"),
            ("fields = [\"a\"]\nreturns = []".to_owned(), "`returns` is empty"),
            ("fields = [\"a\"]".to_owned(), "`returns` is missing"),
            (
                "fields = [\"a\"]\nreturns = [{ name = \"mask\" }]".to_owned(),
                "has `mask`, a column that the function does not take",
            ),
            ("fields = [\"a\"]\nreturns = [{ name = \"x\" }]".to_owned(), "has `x`, whose `dtype` is missing"),
            (
                "fields = [\"a\"]\nreturns = [{ name = \"x\", dtype = \"i32\" }]".to_owned(),
                "`shape` is missing; [] is a number",
            ),
            (
                "fields = [\"a\"]\nreturns = [{ name = \"x\", dtype = \"i32\", shape = [0] }]".to_owned(),
                "`returns` has `x`, whose `shape` is [0]",
            ),
            (
                "fields = [\"a\"]\nreturns = [{ name = \"x\", dtype = \"i32\", shape = [4], max_rows = 0 }]".to_owned(),
                "whose `max_rows` is 0, not 1 or more rows",
            ),
            (
                "fields = [\"a\"]\nreturns = [{ name = \"x\", max_bytes = 5 }, { name = \"x\", max_bytes = 5 }]"
                    .to_owned(),
                "`returns` has `x` twice",
            ),
            (format!("field = [\"a\"]\n{returns}"), "there is no key `field`; did you mean `fields`?"),
            (
                format!("fields = [\"a\"]\n{returns}\n[[function]]\ncall = \"a:d\"\nfields = [\"a\"]\n{returns}"),
                "function `a:d`: `returns` has `x`, which another function returns",
            ),
        ] {
            let error = function(&more).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let error = job("[function]\ncall = \"a:b\"").unwrap_err().to_string();
        assert!(error.contains("write [[function]] with two brackets"), "{error}");
        let by_function = COLUMNS.replacen("ops", "transform = \"a:b\"\nops", 1);
        let text = format!(
            "name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n{by_function}[[function]]\ncall = \"a:c\"\ncolumns = [\"image\"]\n{returns}"
        );
        let error = JobFile::parse(&text, "job.toml").unwrap().check().unwrap_err().to_string();
        assert!(error.contains("`columns` has `image`, which a function makes"), "{error}");
    }

    /// Changes all columns that functions return.
    fn edit(job: &mut Job, change: impl Fn(&mut ReturnedColumn)) {
        for column in &mut job.columns {
            if let ColumnKind::Returned(returned) = &mut column.kind {
                change(returned);
            }
        }
    }

    #[test]
    fn a_function_of_a_peer_is_checked_like_one_of_a_file() {
        let good = function(WHOLE).unwrap();
        good.check().unwrap();
        let changed = |change: fn(&mut Job)| {
            let mut job = good.clone();
            change(&mut job);
            job.check().unwrap_err().to_string()
        };
        for (error, expected) in [
            (changed(|job| drop(job.columns.pop())), "has `text`, and the job has no such column"),
            (changed(|job| job.columns[0].dtype = DType::I8), "does not fit the column"),
            (changed(|job| job.columns[2].from = vec!["a".to_owned()]), "`from` is for columns that are decoded"),
            (changed(|job| edit(job, |returned| returned.number += 9)), "does not fit the column"),
            (changed(|job| edit(job, |returned| returned.call.max_bytes = 0)), "`max_bytes` is 0"),
            (changed(|job| edit(job, |returned| returned.call.columns[0].from.clear())), "`from`"),
            (
                changed(|job| edit(job, |returned| returned.call.columns[0].name = "mask".to_owned())),
                "`columns` has `mask`, and another column has that name",
            ),
            (
                changed(|job| {
                    let inner = job.columns[2].clone();
                    edit(job, |returned| returned.call.columns.push(inner.clone()));
                }),
                "`columns` has `tokens`, which a function makes",
            ),
            (
                changed(|job| edit(job, |returned| returned.call.returns[0].shape = Returns::Fixed { shape: vec![0] })),
                "whose `shape` is [0]",
            ),
        ] {
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
