//! One `[[column]]` of a job file. Which keys it has depends on its `decode`.

use std::{fmt, sync::LazyLock};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor},
};

use super::{Column, ColumnKind, DecodeFile, KindName, ValueKeys};
use crate::{ArgumentsFile, Callable, KeyProblem, ReturnsFile, SourceDigest, Transform};
use spdl_types::DType;

/// One `[[column]]` of a job file.
#[derive(Clone, Debug, Serialize)]
pub struct ColumnFile {
    /// Name in the batch.
    pub name: String,
    /// Field of the record; several with bars between, as `jpg|png`: the first that is there. Empty for kinds that read none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// How the field becomes an array, with the keys for that.
    #[serde(flatten)]
    pub decode: DecodeFile,
    /// Type of the elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// What is read of the field, for a single value.
    #[serde(flatten)]
    pub value: ValueKeys,
    /// What makes the value: a function or a class in Python, `package.module:function`, or a function in Rust,
    /// `module::function@version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transform: Option<String>,
    /// Arguments of the function or the class, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<ArgumentsFile>,
    /// The digest of the source of the function in Python. Set when the job is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_digest: Option<SourceDigest>,
    /// What the function returns, where it differs from what it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns: Option<ReturnsFile>,
}

impl ColumnFile {
    /// Converts how the column is decoded, without what it takes over from a column that it follows.
    pub(crate) fn kind(&self) -> Result<ColumnKind, KeyProblem> {
        self.decode.read()
    }

    /// Converts the column as it is written, without checking its values. `kinds` has the kinds of all columns of the job, which
    /// are `columns`, by name.
    pub(crate) fn read(
        &self,
        mut kind: ColumnKind,
        (columns, kinds): (&[Self], &[(&str, ColumnKind)]),
    ) -> Result<Column, KeyProblem> {
        if self.transform.is_none() {
            let alone = [
                ("returns", self.returns.is_some()),
                ("arguments", self.arguments.is_some()),
                ("source_digest", self.source_digest.is_some()),
            ];
            if let Some((key, _)) = alone.into_iter().find(|(_, is_there)| *is_there) {
                return Err((key, "is only for a column with `transform`".to_owned()));
            }
        }
        if let Some(followed) = kind.follows() {
            let followed = kinds.iter().zip(columns).find(|((name, _), _)| *name == followed);
            let followed = followed.map(|((_, kind), column)| Ok((kind, column.value.read_deltas()?)));
            let followed: Option<(&ColumnKind, Vec<i32>)> = followed.transpose()?;
            kind.follow(followed.as_ref().map(|(kind, deltas)| (*kind, &deltas[..])))?;
        }
        let value = self.value.read()?;
        let takes = self.dtype.unwrap_or(kind.dtypes()[0]);
        let (transform, dtype) = match &self.transform {
            None => (None, takes),
            Some(function) => {
                let function = Callable::read(function, self.arguments.as_ref(), self.source_digest)?;
                let returns = self.returns.clone().unwrap_or_default();
                let (transform, dtype) = Transform::read(function, &returns, &value.shape(kind.shape()), takes)?;
                (Some(transform), dtype)
            }
        };
        let fields = (!self.from.is_empty()).then(|| self.from.split('|'));
        let from = fields.into_iter().flatten().map(|field| field.trim().to_owned()).collect();
        Ok(Column { name: self.name.clone(), from, kind, dtype, value, transform })
    }
}

/// The keys of every kind of column.
#[derive(Default)]
struct CommonKeys {
    name: Option<String>,
    from: Option<String>,
    dtype: Option<DType>,
    value: ValueKeys,
    transform: Option<String>,
    arguments: Option<ArgumentsFile>,
    source_digest: Option<SourceDigest>,
    returns: Option<ReturnsFile>,
}

const DECODE: &str = "decode";

/// The names of all keys that some column can have.
static ALL_KEYS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut keys = vec!["name", "from", DECODE];
    for key in KindName::ALL.iter().flat_map(|kind| kind.keys().iter().chain(kind.value_keys())) {
        if !keys.contains(key) {
            keys.push(key);
        }
    }
    keys.extend(["dtype", "transform", "arguments", "source_digest", "returns"]);
    keys
});

impl<'de> Deserialize<'de> for ColumnFile {
    /// Reads a column whose first key is `decode`, wherever it is written: the reader of job files moves it there.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("ColumnFile", &ALL_KEYS, ColumnVisitor)
    }
}

struct ColumnVisitor;

impl<'de> Visitor<'de> for ColumnVisitor {
    type Value = ColumnFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("struct ColumnFile")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ColumnFile, A::Error> {
        let kind = match map.next_key::<String>()?.as_deref() {
            Some(DECODE) => map.next_value::<KindName>()?,
            _ => return Err(A::Error::missing_field(DECODE)),
        };
        let mut common = CommonKeys::default();
        let decode = kind.read_keys(OwnKeys { map, kind, common: &mut common })?;
        let CommonKeys { name, from, dtype, value, transform, arguments, source_digest, returns } = common;
        let name = name.ok_or_else(|| A::Error::missing_field("name"))?;
        let from = match from {
            Some(_) if !kind.reads_field() => {
                let name = kind.name();
                let problem =
                    format!("`from` is not for decode = \"{name}\", which follows a column of tokens; leave it out");
                return Err(A::Error::custom(problem));
            }
            None if kind.reads_field() => return Err(A::Error::missing_field("from")),
            from => from.unwrap_or_default(),
        };
        Ok(ColumnFile { name, from, decode, dtype, value, transform, arguments, source_digest, returns })
    }
}

/// The keys that only columns of this kind have. The others, which lie between them, are put aside.
struct OwnKeys<'c, A> {
    map: A,
    kind: KindName,
    common: &'c mut CommonKeys,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for OwnKeys<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            match key.as_str() {
                "name" => self.common.name = Some(self.map.next_value()?),
                "from" => self.common.from = Some(self.map.next_value()?),
                "dtype" => self.common.dtype = Some(self.map.next_value()?),
                "transform" => self.common.transform = Some(self.map.next_value()?),
                "arguments" => self.common.arguments = Some(self.map.next_value()?),
                "source_digest" => self.common.source_digest = Some(self.map.next_value()?),
                "returns" => self.common.returns = Some(self.map.next_value()?),
                own if self.kind.keys().contains(&own) => return seed.deserialize(own.into_deserializer()).map(Some),
                key if self.kind.value_keys().contains(&key) => match key {
                    "path" => self.common.value.path = Some(self.map.next_value()?),
                    "default" => self.common.value.default = Some(self.map.next_value()?),
                    "classes" => self.common.value.classes = Some(self.map.next_value()?),
                    "deltas" => self.common.value.deltas = Some(self.map.next_value()?),
                    key => unreachable!("`{key}` is a key of single values"),
                },
                other => return Err(not_a_key(other)),
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Returns the error of a key that the column's kind does not have.
fn not_a_key<E: Error>(key: &str) -> E {
    let others = KindName::ALL.iter().filter(|kind| kind.keys().iter().chain(kind.value_keys()).any(|own| *own == key));
    let others: Vec<String> = others.map(|kind| format!("\"{}\"", kind.name())).collect();
    if others.is_empty() {
        return E::unknown_field(key, &ALL_KEYS);
    }
    E::custom(format!("`{key}` is only for decode = {}", others.join(" or ")))
}
