//! A step of a column's `ops` in the forms that a job file allows: in full, `{ resize = { size = 256 } }`; short, with
//! the value of its first key, `{ resize = 256 }`; or as its name if every key has a default, `"random_flip"`.

use std::{fmt, iter, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{
        self, DeserializeOwned, DeserializeSeed, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess,
        VariantAccess, Visitor,
        value::{EnumAccessDeserializer, MapDeserializer, SeqAccessDeserializer},
    },
    forward_to_deserialize_any,
};

use super::ImageOp;
use crate::{JobError, reader};

/// An operation, on pictures or on sounds, that is a step of a list.
pub(crate) trait StepOp: DeserializeOwned {
    /// The names of the schemas of an operation and of a step with one.
    const SCHEMA: [&'static str; 2];
    /// What an operation is, for the schema.
    const ABOUT: &'static str;
    /// The forms of a step, for the schema.
    const FORMS: &'static str;
    /// An example of a step, for errors.
    const SUCH_AS: &'static str;
    /// The name and the keys of each operation in a job file, and an example of its value.
    const CATALOG: &'static [(&'static str, &'static [&'static str], &'static str)];

    /// Returns the name, the keys and the schema of each operation.
    fn schemas(
        generator: &mut schemars::SchemaGenerator,
    ) -> Vec<(&'static str, &'static [&'static str], schemars::Schema)>;

    /// Describes the value that the operation `name` expects, if there is one.
    fn expects(name: &str) -> Option<String> {
        let (name, _, example) = Self::CATALOG.iter().find(|(known, ..)| *known == name)?;
        Some(format!("{name} expects {example}"))
    }
}

/// Makes the operations that are steps of a list one type. What follows them are the constants of [`StepOp`] about it.
macro_rules! step_ops {
    ($(#[$about:meta])* $Ops:ident { $($Op:ident,)* } $($constants:tt)*) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[allow(missing_docs)]
        pub enum $Ops {
            $($Op($Op),)*
        }

        impl $Ops {
            /// The name and the keys of each operation in a job file, and an example of its value.
            pub const CATALOG: &[(&str, &[&str], &str)] = &[$(($Op::NAME, $Op::KEYS, $Op::EXAMPLE),)*];

            /// Returns the operation's name in a job file.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$Op(_) => $Op::NAME,)* }
            }

            /// Describes the value that the operation `name` expects, if there is one.
            pub(crate) fn expects(name: &str) -> Option<String> {
                <Self as $crate::operation::step::StepOp>::expects(name)
            }
        }

        impl $crate::operation::step::StepOp for $Ops {
            $($constants)*
            const CATALOG: &'static [(&'static str, &'static [&'static str], &'static str)] = Self::CATALOG;

            fn schemas(
                generator: &mut schemars::SchemaGenerator,
            ) -> Vec<(&'static str, &'static [&'static str], schemars::Schema)> {
                use schemars::JsonSchema;
                vec![$(($Op::NAME, $Op::KEYS, $Op::json_schema(generator)),)*]
            }
        }
    };
}

pub(crate) use step_ops;

/// Reads a list of steps.
pub(crate) fn read_all<'de, D: Deserializer<'de>, O: StepOp>(deserializer: D) -> Result<Vec<O>, D::Error> {
    let steps = Vec::<StepFile<O>>::deserialize(deserializer)?;
    Ok(steps.into_iter().map(|step| step.0).collect())
}

/// A list of steps by itself.
#[derive(Deserialize)]
struct StepsFile {
    #[serde(deserialize_with = "read_all")]
    ops: Vec<ImageOp>,
}

impl ImageOp {
    /// Reads and checks a list of steps, in the forms that a job file allows.
    ///
    /// # Errors
    /// [`JobError::Value`] for the first invalid value, with its place and `origin`, which is where the list comes from.
    pub fn read_list(ops: toml::Value, origin: &str) -> Result<Vec<Self>, JobError> {
        let wrong = |problem: String| JobError::Value { origin: origin.to_owned(), problem };
        let StepsFile { ops } =
            reader::read(&toml::Table::from_iter([("ops".to_owned(), ops)])).map_err(|fault| wrong(fault.problem))?;
        super::check_all(&ops).map_err(|(index, (key, problem))| {
            wrong(format!("ops[{index}].{}: `{key}` {problem}", ops[index].name()))
        })?;
        Ok(ops)
    }
}

/// A step in any of its forms.
pub(crate) struct StepFile<O = ImageOp>(O);

impl<'de, O: StepOp> Deserialize<'de> for StepFile<O> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StepVisitor(PhantomData)).map(Self)
    }
}

struct StepVisitor<O>(PhantomData<O>);

impl<'de, O: StepOp> Visitor<'de> for StepVisitor<O> {
    type Value = O;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a step, such as {}", O::SUCH_AS)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<O, E> {
        O::deserialize(EnumAccessDeserializer::new(StepName::<E, O>(name, PhantomData)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<O, A::Error> {
        O::deserialize(EnumAccessDeserializer::new(StepTable(map, PhantomData::<O>)))
    }
}

/// A step that is written as its name only.
struct StepName<'a, E, O>(&'a str, PhantomData<(E, O)>);

impl<'de, E: Error, O: StepOp> EnumAccess<'de> for StepName<'_, E, O> {
    type Error = E;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), E> {
        Ok((seed.deserialize(self.0.into_deserializer())?, self))
    }
}

impl<'de, E: Error, O: StepOp> VariantAccess<'de> for StepName<'_, E, O> {
    type Error = E;

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, E> {
        let no_keys = MapDeserializer::<_, E>::new(iter::empty::<(&str, u32)>());
        seed.deserialize(no_keys).map_err(|_| E::custom(O::expects(self.0).unwrap_or_default()))
    }

    fn unit_variant(self) -> Result<(), E> {
        Err(not_a_step())
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, E> {
        Err(not_a_step())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, E> {
        Err(not_a_step())
    }
}

/// A step that is written as a table of one key.
struct StepTable<A, O>(A, PhantomData<O>);

impl<'de, A: MapAccess<'de>, O: StepOp> EnumAccess<'de> for StepTable<A, O> {
    type Error = A::Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(mut self, seed: V) -> Result<(V::Value, Self), A::Error> {
        let name = self.0.next_key_seed(seed)?;
        name.map(|name| (name, self))
            .ok_or_else(|| A::Error::invalid_type(de::Unexpected::Map, &StepVisitor::<O>(PhantomData)))
    }
}

impl<'de, A: MapAccess<'de>, O: StepOp> VariantAccess<'de> for StepTable<A, O> {
    type Error = A::Error;

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Result<T::Value, A::Error> {
        let step = self.0.next_value_seed(StepSeed(seed))?;
        match self.0.next_key::<String>()? {
            None => Ok(step),
            Some(second) => {
                self.0.next_value::<IgnoredAny>()?;
                Err(A::Error::custom(format!("has two steps in one table; give {second} a table of its own")))
            }
        }
    }

    fn unit_variant(self) -> Result<(), A::Error> {
        Err(not_a_step())
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, A::Error> {
        Err(not_a_step())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, A::Error> {
        Err(not_a_step())
    }
}

/// Every variant of an operation holds an operation with keys, so this error cannot occur.
fn not_a_step<E: Error>() -> E {
    E::custom("is no step with keys")
}

/// Reads an operation from the value of a step.
struct StepSeed<T>(T);

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for StepSeed<T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T::Value, D::Error> {
        self.0.deserialize(StepValue(deserializer))
    }
}

/// The value of a step, as a serde deserializer of the operation.
struct StepValue<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for StepValue<D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(StepText { first: keys.first().copied(), visitor })
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The value of a step: a table of its keys, or the value of the first key.
struct StepText<V> {
    first: Option<&'static str>,
    visitor: V,
}

impl<V> StepText<V> {
    fn short<'de, D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error>
    where
        V: Visitor<'de>,
    {
        if self.first.is_none() {
            return Err(D::Error::invalid_type(de::Unexpected::Other("a value"), &"no keys"));
        }
        self.visitor.visit_map(OneKey { key: self.first, value: Some(value) })
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for StepText<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first {
            Some(first) => write!(f, "a table, or its {first}"),
            None => f.write_str("an empty table"),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(map)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        self.short(value.into_deserializer())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        self.short(value.into_deserializer())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        self.short(value.into_deserializer())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        self.short(value.into_deserializer())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.short(SeqAccessDeserializer::new(list))
    }
}

/// A table of one key, made from a single value.
struct OneKey<D> {
    key: Option<&'static str>,
    value: Option<D>,
}

impl<'de, D: Deserializer<'de>> MapAccess<'de> for OneKey<D> {
    type Error = D::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, D::Error> {
        self.key.take().map(|key| seed.deserialize(key.into_deserializer())).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, D::Error> {
        let value = self.value.take().ok_or_else(|| D::Error::custom("has no value"))?;
        seed.deserialize(value)
    }
}
