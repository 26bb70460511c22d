//! The definition of a kind of column.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{ColumnKind, DefaultValue, ImageColumn};
use crate::KeyProblem;
use spdl_types::{DType, SampleShape};

/// A kind of column, as a job describes it. Its decoder is in the worker's file of the same name.
pub trait Kind: Serialize + DeserializeOwned {
    /// Its name in a job file: the value of `decode`.
    const NAME: &'static str;
    /// An example of its keys in a job file, if it needs any. What it follows is a column `image`, `boxes` or `tokens`.
    const EXAMPLE: &'static str = "";
    /// Whether its name describes it completely.
    const IS_UNIT: bool = false;
    /// Whether a value is a single number, text, name, or true or false: such columns can have a `path` and a `default`.
    const IS_PLAIN: bool = false;
    /// Whether a field is read. If not, the values come from the column that it [follows](Self::follows), and a job file has no
    /// `from` for it.
    const READS_FIELD: bool = true;
    /// Whether columns can have a list of some of the dataset's classes, `classes`.
    const TAKES_CLASSES: bool = false;
    /// Whether columns can have values of records around the sample's, `deltas`.
    const TAKES_DELTAS: bool = false;
    /// The keys of a `[[column]]` that only some kinds have, this one among them.
    type Keys: KindKeys;

    /// Converts the keys, without checking all of their values.
    fn read(keys: &Self::Keys) -> Result<Self, KeyProblem>;

    /// Returns the name of the column whose changes its values follow, if they do.
    fn follows(&self) -> Option<&str> {
        None
    }

    /// Takes over the values that depend on the column that it [follows](Self::follows).
    ///
    /// # Errors
    /// The key that is wrong, and what is wrong with it, if a column of this kind cannot be followed.
    fn follow(&mut self, _followed: &ColumnKind) -> Result<(), KeyProblem> {
        Ok(())
    }

    /// Checks that this column can have `deltas`, if its kind [takes them](Self::TAKES_DELTAS).
    fn check_deltas(&self) -> Result<(), KeyProblem> {
        Ok(())
    }

    /// Takes over the `deltas` of the column that it [follows](Self::follows), none if that has none.
    ///
    /// # Errors
    /// The key that is wrong, and what is wrong with it, if such a column cannot be followed.
    fn follow_deltas(&mut self, _deltas: &[i32]) -> Result<(), KeyProblem> {
        Ok(())
    }

    /// Checks the column for a dataset that lists no classes. `followed` is the kind of the column that it
    /// [follows](Self::follows).
    fn check_without_classes(&self, _followed: Option<&ColumnKind>) -> Result<(), KeyProblem> {
        Ok(())
    }

    /// Returns whether decoding looks at the dataset's classes.
    fn reads_classes(&self) -> bool {
        false
    }

    /// Checks the value of samples without one, for elements of one of [`dtypes`](Self::dtypes), if the kind is
    /// [plain](Self::IS_PLAIN).
    ///
    /// # Errors
    /// What is expected.
    fn check_default(&self, _default: &DefaultValue, _dtype: DType) -> Result<(), String> {
        Err("for this kind of column".to_owned())
    }

    /// Returns the types that the elements can have, the default first.
    fn dtypes(&self) -> &'static [DType];

    /// Returns the shape of one sample. Most kinds hold a number.
    fn shape(&self) -> SampleShape {
        SampleShape::Fixed(Vec::new())
    }

    /// Checks all values, for elements of one of [`dtypes`](Self::dtypes).
    fn check(&self, _dtype: DType) -> Result<(), KeyProblem> {
        Ok(())
    }
}

/// Returns the problem of a column that follows `name`, which is of another kind than it has to be.
pub(super) fn not_of_kind(name: &str, followed: &ColumnKind, wanted: &str) -> KeyProblem {
    let kind = followed.name();
    ("follows", format!("is `{name}`, a column of decode = \"{kind}\"; it has to be of decode = \"{wanted}\""))
}

/// Returns the `image` column `name`, which a column follows.
///
/// # Errors
/// The problem of a column that follows another kind, or lists of pictures.
pub(super) fn followed_image<'c>(name: &str, followed: &'c ColumnKind) -> Result<&'c ImageColumn, KeyProblem> {
    let ColumnKind::Image(image) = followed else {
        return Err(not_of_kind(name, followed, "image"));
    };
    if image.list.is_some() {
        let problem = format!("is `{name}`, whose samples are lists of pictures; follow a column of one picture");
        return Err(("follows", problem));
    }
    Ok(image)
}

/// Returns the `image` column `name`, whose places a column follows.
///
/// # Errors
/// The problem of a column that follows another kind, or several pictures.
pub(super) fn followed_picture<'c>(name: &str, followed: &'c ColumnKind) -> Result<&'c ImageColumn, KeyProblem> {
    let image = followed_image(name, followed)?;
    let pictures = image.pictures_of_one();
    if pictures > 1 {
        let problem = format!("is `{name}`, whose operations make {pictures} pictures of one; follow one picture");
        return Err(("follows", problem));
    }
    Ok(image)
}

/// Returns the tokens of a sequence of the `tokens` column `name`, which a column follows.
///
/// # Errors
/// The problem of a column that follows another kind, or documents that are not packed.
pub(super) fn followed_tokens(name: &str, followed: &ColumnKind) -> Result<u32, KeyProblem> {
    let ColumnKind::Tokens(tokens) = followed else {
        return Err(not_of_kind(name, followed, "tokens"));
    };
    tokens.seq_len.ok_or_else(|| {
        let problem = format!(
            "is `{name}`, whose documents are not packed; add `sequence = {{ seq_len = 8192 }}` to the job, or leave this \
             column out"
        );
        ("follows", problem)
    })
}

/// Returns whether a key is as if it were not written.
pub(super) fn is_left_out<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Defines the keys of a kind in a job file, each of which may be left out.
macro_rules! keys {
    ($(#[$doc:meta])* $Keys:ident { $($(#[$key_doc:meta])* $key:ident: $Key:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub struct $Keys {
            $($(#[$key_doc])* #[serde(default, skip_serializing_if = "super::kind::is_left_out")] pub $key: $Key,)*
        }

        impl super::KindKeys for $Keys {
            const NAMES: &'static [&'static str] = &[$(stringify!($key)),*];
        }
    };
}
pub(super) use keys;

/// Defines a kind without keys: its column, its name in a job file, and the types that its elements can have.
macro_rules! unit_kind {
    ($(#[$doc:meta])* $Column:ident = $name:literal, [$($dtype:ident),+]; $($more:tt)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $Column;

        impl super::Kind for $Column {
            const NAME: &'static str = $name;
            const IS_UNIT: bool = true;
            type Keys = super::NoKeys;

            fn read(_: &super::NoKeys) -> Result<Self, crate::KeyProblem> {
                Ok(Self)
            }

            fn dtypes(&self) -> &'static [spdl_types::DType] {
                &[$(spdl_types::DType::$dtype),+]
            }

            $($more)*
        }
    };
}
pub(super) use unit_kind;

/// Defines a kind whose columns follow a column of the kind `$of`: its keys in a job file, and the column. `$take` checks the column
/// that is followed; what it returns is kept if the column has `seq_len`, and whether values differ in length if it has `is_ragged`.
macro_rules! follower {
    (
        $(#[$doc:meta])*
        $name:literal: $Keys:ident => $Column:ident follows $of:literal, $follows:literal, $take:path $(=> $seq_len:ident $(or less $is_ragged:ident)?)?;
        reads_field = $reads_field:literal;
        dtypes = [$($dtype:ident),+];
        shape = $shape:expr;
        $($(#[$key_doc:meta])* $key:ident: $Key:ty => $(#[$value_doc:meta])* $Value:ty = $read:expr;)*
    ) => {
        super::kind::keys! {
            #[doc = concat!("The keys of a column `", $name, "` in a job file.")]
            $Keys {
                #[doc = concat!("For ", $name, ": the name of the `", $of, "` column", $follows, ". Required.")]
                follows: Option<String>,
                $($(#[$key_doc])* $key: Option<$Key>,)*
            }
        }

        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $Column {
            #[doc = concat!("Name of the `", $of, "` column.")]
            pub follows: String,
            $($(#[$value_doc])* pub $key: $Value,)*
            $(
                /// The length of a value: that of the column that it follows, such as the tokens of a sequence.
                pub $seq_len: u32,
                $(
                    /// Whether values differ in length, and that is the most.
                    #[serde(default, skip_serializing_if = "super::kind::is_left_out")]
                    pub $is_ragged: bool,
                )?
            )?
        }

        impl super::Kind for $Column {
            const NAME: &'static str = $name;
            const EXAMPLE: &'static str = concat!("follows = \"", $of, "\"");
            const READS_FIELD: bool = $reads_field;
            type Keys = $Keys;

            fn read(keys: &$Keys) -> Result<Self, crate::KeyProblem> {
                let $Keys { follows, $($key),* } = keys.clone();
                let missing = concat!("is missing; write the name of the ", $of, " column that it is of");
                let follows = follows.ok_or_else(|| ("follows", missing.to_owned()))?;
                Ok(Self { follows, $($key: $read($key),)* $($seq_len: 0, $($is_ragged: false)?)? })
            }

            fn follows(&self) -> Option<&str> {
                Some(&self.follows)
            }

            fn follow(&mut self, followed: &super::ColumnKind) -> Result<(), crate::KeyProblem> {
                $((self.$seq_len $(, self.$is_ragged)?) =)? $take(&self.follows, followed)?;
                Ok(())
            }

            fn dtypes(&self) -> &'static [spdl_types::DType] {
                &[$(spdl_types::DType::$dtype),+]
            }

            fn shape(&self) -> spdl_types::SampleShape {
                let shape: fn(&Self) -> spdl_types::SampleShape = $shape;
                shape(self)
            }
        }
    };
}
pub(super) use follower;

/// Returns the problem of a column that looks names up where there are none.
pub(super) fn no_names() -> KeyProblem {
    ("names", "is missing, and the dataset lists no classes; write the names in the order of their numbers".to_owned())
}

/// Returns the problem of a column with a list of classes where the dataset has none.
pub(super) fn no_classes() -> KeyProblem {
    ("classes", "is a list of classes, and the dataset lists none".to_owned())
}

/// The keys of a kind in a job file.
pub trait KindKeys: Default + Serialize + DeserializeOwned {
    /// Their names.
    const NAMES: &'static [&'static str];
}

/// The keys of a kind that has none of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NoKeys {}

impl KindKeys for NoKeys {
    const NAMES: &'static [&'static str] = &[];
}
