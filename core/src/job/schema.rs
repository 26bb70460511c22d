//! The JSON Schema of a job file, with which editors complete keys and mark wrong ones. [`JobFile::check`] covers what
//! a schema cannot express, such as that a column's steps end in a fixed size.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};

use super::{ImageOp, JobFile, Size, step::Operation};

/// Returns the schema as the text of a file.
#[must_use]
pub fn job_file_schema() -> String {
    let schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<JobFile>();
    let mut text = serde_json::to_string_pretty(&schema).expect("plain data serialises");
    text.push('\n');
    text
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let side = json_schema!({ "type": "integer", "minimum": 1, "maximum": super::check::MAX_SIDE });
        json_schema!({
            "description": "A number of pixels, or [height, width].",
            "anyOf": [side, { "type": "array", "items": side, "minItems": 2, "maxItems": 2 }],
        })
    }
}

impl JsonSchema for Operation {
    fn schema_name() -> Cow<'static, str> {
        "Operation".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (full, size) = (generator.subschema_for::<ImageOp>(), generator.subschema_for::<Size>());
        json_schema!({
            "description": "A step: in full as { resize = { size = 256 } }, or short as { resize = 256 } or \"random_flip\".",
            "anyOf": [
                full,
                { "enum": ["crop_box", "random_flip"] },
                {
                    "type": "object",
                    "properties": {
                        "crop_box": { "type": "string" },
                        "random_resized_crop": size,
                        "resize": size,
                        "center_crop": size,
                        "random_flip": { "type": "number", "minimum": 0, "maximum": 1 },
                    },
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": false,
                },
            ],
        })
    }
}
