//! The schema of types that serde does not derive.

/// Implements the JSON Schema of a type: its name, and what it allows.
macro_rules! described {
    ($Type:ty, $name:expr, |$generator:pat_param| $schema:expr) => {
        impl schemars::JsonSchema for $Type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}
pub(crate) use described;
