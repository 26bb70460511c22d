//! The `deltas` of a column: at which places of its series, counted from the sample's record, a column has values.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

use crate::{KeyProblem, described::described};

/// Upper limit of the number of places.
const MAX_DELTAS: usize = 1024;
/// Upper limit of the distance of a place from the record.
const MAX_DISTANCE: i32 = 1 << 20;

/// The `deltas` of a job file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum DeltasFile {
    /// Each place.
    List(Vec<i32>),
    /// A run of places.
    Run(DeltaRunFile),
}

/// The places from one up to another, which is not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeltaRunFile {
    /// The first place, such as 0 for the record of the sample. Required.
    pub from: i32,
    /// The place behind the last. Required.
    pub to: i32,
}

impl DeltasFile {
    /// Returns the places.
    pub(super) fn read(&self) -> Result<Vec<i32>, KeyProblem> {
        let deltas = match self {
            Self::List(deltas) => deltas.clone(),
            Self::Run(DeltaRunFile { from, to }) if i64::from(*to) - i64::from(*from) > MAX_DELTAS as i64 => {
                return Err((
                    "deltas",
                    format!("has the places from {from} to {to}; a column has at most {MAX_DELTAS}"),
                ));
            }
            Self::Run(DeltaRunFile { from, to }) => (*from..*to).collect(),
        };
        match deltas.is_empty() {
            true => Err(("deltas", "names no place; leave it out for the value of the sample alone".to_owned())),
            false => Ok(deltas),
        }
    }
}

/// Checks the places of a column.
pub(super) fn check(deltas: &[i32]) -> Result<(), KeyProblem> {
    if deltas.len() > MAX_DELTAS {
        return Err(("deltas", format!("has {} places; a column has at most {MAX_DELTAS}", deltas.len())));
    }
    match deltas.iter().find(|delta| !(-MAX_DISTANCE..=MAX_DISTANCE).contains(*delta)) {
        Some(delta) => Err(("deltas", format!("has {delta}, which is more than {MAX_DISTANCE} records away"))),
        None => Ok(()),
    }
}

struct DeltasVisitor;

impl<'de> Visitor<'de> for DeltasVisitor {
    type Value = DeltasFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of whole numbers, or { from = 0, to = 50 }")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, deltas: A) -> Result<DeltasFile, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(deltas)).map(DeltasFile::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, run: A) -> Result<DeltasFile, A::Error> {
        DeltaRunFile::deserialize(MapAccessDeserializer::new(run)).map(DeltasFile::Run)
    }
}

impl<'de> Deserialize<'de> for DeltasFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DeltasVisitor)
    }
}

described!(DeltasFile, "DeltasFile", |generator| {
    let run = generator.subschema_for::<DeltaRunFile>();
    schemars::json_schema!({
        "description": "Places, or a run of them.",
        "anyOf": [
            { "type": "array", "items": { "type": "integer", "format": "int32" } },
            run,
        ],
    })
});

#[cfg(test)]
mod tests {
    use crate::column::testing::job_of;

    #[test]
    fn a_column_with_deltas_has_one_more_side() {
        let shape = |kind: &str, keys: &str| job_of(kind, keys).unwrap().columns[0].sample_shape();
        assert_eq!(shape("tensor", "shape = [7]\ndeltas = [-1, 0]"), Some(vec![2, 7]));
        assert_eq!(shape("float", "deltas = { from = 0, to = 50 }"), Some(vec![50]));
        assert_eq!(shape("int", "deltas = [3]"), Some(vec![1]));
        assert_eq!(shape("bool", "deltas = [0, 1]"), Some(vec![2]));
        assert_eq!(shape("tensor", "shape = [7]\ndeltas = [-1, 0]\ntransform = \"a:b\""), Some(vec![2, 7]));
    }

    #[test]
    fn places_that_make_no_sense_are_named() {
        for (kind, keys, expected) in [
            ("int", "deltas = []", "`deltas` names no place"),
            ("int", "deltas = { from = 3, to = 3 }", "`deltas` names no place"),
            ("int", "deltas = { from = 0, to = 2000 }", "from 0 to 2000; a column has at most 1024"),
            ("int", "deltas = [2000000]", "`deltas` has 2000000, which is more than 1048576 records away"),
            ("int", "deltas = 3", "deltas expects a list of whole numbers, or { from = 0, to = 50 }"),
            ("int", "deltas = { from = 3 }", "to"),
            ("text", "deltas = [0]", "`deltas` is only for decode = \"int\""),
            ("tensor", "shape = [2]\nmax_rows = 3\ndeltas = [0]", "`deltas` is for values of one shape"),
            ("tensor", "shape = [1, 1, 1, 1, 1, 1, 1, 1]\ndeltas = [0]", "makes a value that is [1, 1,"),
        ] {
            let error = job_of(kind, keys).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
