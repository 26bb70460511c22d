//! The kind `one_hot`: a class as a probability of each class.

use serde::{Deserialize, Serialize};

use super::{CategoryColumn, Kind, KindKeys};
use spdl_types::{SampleShape, DType};
use crate::{KeyProblem, check::check_shape};

/// The keys of a `one_hot` column in a job file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
pub struct OneHotKeys {
    /// For one_hot: the number of classes. Default: the number of `names`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<u32>,
    /// For one_hot: the names of the classes, as for category. Default: none; the field holds the number of its class,
    /// or the name of one of the dataset's classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
}

impl KindKeys for OneHotKeys {
    const NAMES: &'static [&'static str] = &["classes", "names"];
}

/// 1 at the place of the class that the field holds, and 0 at all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneHotColumn {
    /// The number of classes.
    pub classes: u32,
    /// The names of the classes in the order of their numbers; `None` for numbers, and names of the dataset's classes.
    pub names: Option<Vec<String>>,
}

impl Kind for OneHotColumn {
    const NAME: &'static str = "one_hot";
    const EXAMPLE: &'static str = "classes = 5";
    type Keys = OneHotKeys;

    fn read(OneHotKeys { classes, names }: &OneHotKeys) -> Result<Self, KeyProblem> {
        let count = names.as_ref().and_then(|names| u32::try_from(names.len()).ok());
        let Some(classes) = classes.or(count) else {
            return Err(("classes", "is missing: the number of classes".to_owned()));
        };
        Ok(Self { classes, names: names.clone() })
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::F32, DType::F16, DType::Bf16]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Fixed(vec![self.classes])
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        check_shape(&[self.classes], dtype).map_err(|problem| ("classes", problem))?;
        let Some(names) = &self.names else { return Ok(()) };
        if names.len() != self.classes as usize {
            return Err(("names", format!("has {} names for {} classes", names.len(), self.classes)));
        }
        CategoryColumn { names: self.names.clone() }.check(DType::I64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_are_counted_or_named() {
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let read = |classes, names| OneHotColumn::read(&OneHotKeys { classes, names });
        assert_eq!(read(None, names(&["a", "b"])).unwrap().classes, 2);
        assert_eq!(read(None, None).unwrap_err(), ("classes", "is missing: the number of classes".to_owned()));
        let check = |column: OneHotColumn| column.check(DType::F32).map_err(|(key, problem)| format!("{key} {problem}"));
        assert_eq!(check(read(Some(2), names(&["a", "b"])).unwrap()), Ok(()));
        assert_eq!(check(read(Some(3), names(&["a", "b"])).unwrap()).unwrap_err(), "names has 2 names for 3 classes");
        assert_eq!(check(read(Some(2), names(&["a", "a"])).unwrap()).unwrap_err(), "names has `a` twice");
        assert!(check(read(Some(0), None).unwrap()).unwrap_err().starts_with("classes is [0], not"));
    }
}
