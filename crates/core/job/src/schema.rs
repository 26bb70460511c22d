//! The JSON Schema of a job file, with which editors complete keys and mark wrong ones. [`JobFile::check`] covers what
//! a schema cannot express, such as that a column's steps end in a fixed size.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value};

use super::{
    ArgumentsFile, ColumnFile, Fill, ImageOp, JobFile, NumberOrRange, Padding, ReturnsFile, Size, SoundOp,
    column::{KindName, ValueKeysSchema},
    described::described,
    operation::step::{StepFile, StepOp},
};
use spdl_types::DType;

/// Returns the schema as the text of a file.
#[must_use]
pub fn job_file_schema() -> String {
    let schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<JobFile>();
    let mut text = serde_json::to_string_pretty(&schema).expect("plain data serialises");
    text.push('\n');
    text
}

described!(Size, "Size", |_| {
    let side = json_schema!({ "type": "integer", "minimum": 1, "maximum": super::check::MAX_SIDE });
    json_schema!({
        "description": "A number of pixels, or [height, width].",
        "anyOf": [side, { "type": "array", "items": side, "minItems": 2, "maxItems": 2 }],
    })
});

described!(NumberOrRange, "NumberOrRange", |_| {
    let number = json_schema!({ "type": "number" });
    json_schema!({
        "description": "A number, or [low, high].",
        "anyOf": [number, { "type": "array", "items": number, "minItems": 2, "maxItems": 2 }],
    })
});

described!(Fill, "Fill", |_| {
    let value = json_schema!({ "type": "integer", "minimum": 0, "maximum": 255 });
    json_schema!({
        "description": "A value from 0 to 255, or [red, green, blue].",
        "anyOf": [value, { "type": "array", "items": value, "minItems": 3, "maxItems": 3 }],
    })
});

described!(Padding, "Padding", |_| {
    let side = json_schema!({ "type": "integer", "minimum": 0, "maximum": super::check::MAX_SIDE });
    let list = |sides: u32| json_schema!({ "type": "array", "items": side, "minItems": sides, "maxItems": sides });
    json_schema!({
        "description": "A number of pixels, [left and right, top and bottom] or [left, top, right, bottom].",
        "anyOf": [side, list(2), list(4)],
    })
});

impl JsonSchema for ColumnFile {
    fn schema_name() -> Cow<'static, str> {
        "ColumnFile".into()
    }

    /// Returns the keys of all kinds in one table: editors complete them better than one table for each kind.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        /// The keys of every column.
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "only its schema is used")]
        struct ColumnKeysSchema {
            /// The column's name in the batch.
            name: String,
            /// The record's field: what follows the first dot of a file's name in the tar; in Parquet a column or a
            /// leaf of one, such as `image.bytes`. `jpg|png` takes the first that the record has. `__key__` is the
            /// record's name, and `__shard__` the path of its shard. Default: none, which is for kinds that follow a column of
            /// tokens; the others need it.
            from: Option<String>,
            /// The kind of the column: how the field becomes an array.
            decode: KindName,
            /// The type of the elements, one of those of the column's kind. Default: the kind's first.
            dtype: Option<DType>,
            /// A function in Python, as `package.module:function`, that is called with each decoded value, or a class,
            /// whose object is. Or a function in Rust, as `module::function@version`. Default: none.
            transform: Option<String>,
            /// Arguments of the function by name, or of the class when its object is made. Default: none.
            arguments: Option<ArgumentsFile>,
            /// The digest of the source of the Python function, if that is found. A worker with another source refuses
            /// the job. Default: set when the job is created.
            source_digest: Option<String>,
            /// What the function returns, where it differs from what it gets. Default: the type and shape that the
            /// function gets.
            returns: Option<ReturnsFile>,
        }
        let mut schema = ColumnKeysSchema::json_schema(generator);
        let shared = ValueKeysSchema::json_schema(generator);
        let mut described: BTreeMap<String, Vec<(Vec<&str>, String)>> = BTreeMap::new();
        for kind in KindName::ALL {
            let own = kind.schema(generator);
            let mut keys = own.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
            for key in kind.value_keys().iter().filter(|key| !kind.keys().contains(key)) {
                keys.insert((*key).to_owned(), shared.as_value()["properties"][key].clone());
            }
            for (key, own) in keys {
                let text = own["description"].as_str().unwrap_or_default();
                let text = text.strip_prefix(&format!("For {}: ", kind.name())).unwrap_or(text).to_owned();
                let texts = described.entry(key.clone()).or_default();
                // A key that several kinds have is described for each, or for all of which the same is true.
                match texts.iter_mut().find(|(_, known)| *known == text) {
                    Some((kinds, _)) => kinds.push(kind.name()),
                    None => texts.push((vec![kind.name()], text)),
                }
                let all = schema.ensure_object().entry("properties").or_insert_with(|| Value::Object(Map::new()));
                match all.get_mut(&key) {
                    None => all[key] = own,
                    Some(known) => *known = either(known, &own),
                }
            }
        }
        for (key, texts) in described {
            let texts = texts.iter().map(|(kinds, text)| format!("For {}: {text}", listed(kinds)));
            schema.ensure_object()["properties"][key]["description"] = texts.collect::<Vec<_>>().join(" ").into();
        }
        schema.insert("description".to_owned(), "One `[[column]]` of a job file.".into());
        schema.insert("additionalProperties".to_owned(), false.into());
        schema
    }
}

/// Returns the schema of a key that kinds have: `known` if it is that of all, and otherwise what either of two allows.
fn either(known: &Value, own: &Value) -> Value {
    let [bare_known, bare_own] = [known, own].map(|schema| {
        let mut schema = schema.clone();
        schema.as_object_mut().map(|schema| schema.remove("description"));
        schema
    });
    if bare_known == bare_own || known.get("items").is_none() || own.get("items").is_none() {
        return known.clone();
    }
    json_schema!({ "description": known["description"], "anyOf": [bare_known, bare_own] }).to_value()
}

/// Lists the names of kinds, as `a, b and c`.
fn listed(kinds: &[&str]) -> String {
    match kinds {
        [some @ .., last] if !some.is_empty() => format!("{} and {last}", some.join(", ")),
        kinds => kinds.concat(),
    }
}

described!(ImageOp, ImageOp::SCHEMA[0], |generator| schema_of_operations::<ImageOp>(generator));

described!(SoundOp, SoundOp::SCHEMA[0], |generator| schema_of_operations::<SoundOp>(generator));

/// Returns the schema of an operation in full.
fn schema_of_operations<O: StepOp>(generator: &mut SchemaGenerator) -> Schema {
    let forms = O::schemas(generator).into_iter().map(|(name, _, mut keys)| {
        let description = keys.remove("description").unwrap_or_default();
        json_schema!({
            "description": description,
            "type": "object",
            "properties": { name: keys },
            "required": [name],
            "additionalProperties": false,
        })
    });
    json_schema!({ "description": O::ABOUT, "oneOf": forms.collect::<Vec<_>>() })
}

impl<O: StepOp + JsonSchema> JsonSchema for StepFile<O> {
    fn schema_name() -> Cow<'static, str> {
        O::SCHEMA[1].into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let full = generator.subschema_for::<O>();
        let operations = O::schemas(generator);
        let is_optional = |keys: &Schema| keys.get("required").is_none();
        let names: Vec<_> =
            operations.iter().filter(|(_, _, keys)| is_optional(keys)).map(|(name, ..)| *name).collect();
        let short: Map<String, Value> = operations
            .iter()
            .filter_map(|(name, keys, schema)| {
                Some(((*name).to_owned(), short_form(first_key(keys, schema)?, generator.definitions())))
            })
            .collect();
        let names = (!names.is_empty()).then(|| json_schema!({ "enum": names }));
        let short = json_schema!({
            "type": "object",
            "properties": short,
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": false,
        });
        let forms: Vec<Schema> = [full].into_iter().chain(names).chain([short]).collect();
        json_schema!({
            "description": O::FORMS,
            "anyOf": forms,
        })
    }
}

/// Returns the schema of an operation's first key, if it has keys.
fn first_key(keys: &[&str], schema: &Schema) -> Option<Value> {
    schema.get("properties")?.get(keys.first()?).cloned()
}

/// Returns the schema of a key whose value stands for a whole operation, without tables: a table has all keys of the operation.
fn short_form(mut key: Value, definitions: &Map<String, Value>) -> Value {
    let is_table = |form: &Value| {
        let named = form.get("$ref").or_else(|| form.get("allOf")?.get(0)?.get("$ref"));
        let named = named.and_then(Value::as_str).and_then(|named| definitions.get(named.rsplit('/').next()?));
        named.unwrap_or(form).get("properties").is_some()
    };
    if let Some(Value::Array(forms)) = key.get_mut("anyOf") {
        forms.retain(|form| !is_table(form));
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference of job files, `docs/reference/job.md`, divides the keys of columns by these words.
    #[test]
    fn the_description_of_a_kind_s_key_begins_with_the_kind() {
        let mut generator = SchemaSettings::draft07().into_generator();
        for kind in KindName::ALL {
            let own = kind.schema(&mut generator);
            let Some(Value::Object(keys)) = own.get("properties") else { continue };
            for (key, own) in keys {
                let (text, kind) = (own["description"].as_str().unwrap_or_default(), kind.name());
                assert!(text.starts_with(&format!("For {kind}: ")), "`{key}` of `{kind}`: {text}");
            }
        }
    }
}
