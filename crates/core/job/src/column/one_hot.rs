//! The kind `one_hot`: a class as a probability of each class.

use serde::{Deserialize, Serialize};

use super::{
    CategoryColumn, ClassesFile, ColumnKind, DefaultValue, Kind, kind::{keys, no_classes}, value::check_classes,
};
use spdl_types::{SampleShape, DType};
use crate::{KeyProblem, check::check_shape};

keys! {
    /// The keys of a `one_hot` column in a job file.
    OneHotKeys {
        /// For one_hot: the number of classes; or those of the dataset's classes that the column has, by name, in the order of
        /// their places. A sample of another class is a bad sample, unless a view leaves it out. Default: the number of `names`.
        classes: Option<ClassesFile>,
        /// For one_hot: the names of the classes, as for category. Default: none; the field holds the number of its class,
        /// or the name of one of the dataset's classes.
        names: Option<Vec<String>>,
    }
}

/// 1 at the place of the class that the field holds, and 0 at all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneHotColumn {
    /// The number of classes.
    pub classes: u32,
    /// The names of the classes in the order of their numbers; `None` for numbers, and names of the dataset's classes.
    pub names: Option<Vec<String>>,
    /// Those of the dataset's classes that the column has, in the order of their places; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<Vec<String>>,
}

impl Kind for OneHotColumn {
    const NAME: &'static str = "one_hot";
    const EXAMPLE: &'static str = "classes = 5";
    const IS_PLAIN: bool = true;
    type Keys = OneHotKeys;

    fn read(OneHotKeys { classes, names }: &OneHotKeys) -> Result<Self, KeyProblem> {
        let count = |names: &Vec<String>| u32::try_from(names.len()).unwrap_or(u32::MAX);
        let (classes, listed) = match (classes, names) {
            (Some(ClassesFile::Count(classes)), _) => (*classes, None),
            (Some(ClassesFile::Names(listed)), None) => (count(listed), Some(listed.clone())),
            (Some(ClassesFile::Names(_)), Some(_)) => {
                return Err(("names", "is not for a column with a list of `classes`".to_owned()));
            }
            (None, Some(names)) => (count(names), None),
            (None, None) => return Err(("classes", "is missing: the number of classes".to_owned())),
        };
        Ok(Self { classes, names: names.clone(), listed })
    }

    fn check_without_classes(&self, _: Option<&ColumnKind>) -> Result<(), KeyProblem> {
        if self.listed.is_none() { Ok(()) } else { Err(no_classes()) }
    }

    fn reads_classes(&self) -> bool {
        self.names.is_none()
    }

    fn check_default(&self, default: &DefaultValue, _: DType) -> Result<(), String> {
        let names = self.names.as_deref().or(self.listed.as_deref());
        match default {
            DefaultValue::Number(number) if number.parse().is_ok_and(|class: u32| class < self.classes) => Ok(()),
            DefaultValue::Text(name) if names.is_none_or(|names| names.contains(name)) => Ok(()),
            _ => Err("the number of a class, or one of the column's names".to_owned()),
        }
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::F32, DType::F16, DType::Bf16]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Fixed(vec![self.classes])
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        check_shape(&[self.classes], dtype).map_err(|problem| ("classes", problem))?;
        if let Some(listed) = &self.listed {
            if self.names.is_some() || listed.len() != self.classes as usize {
                return Err(("classes", format!("has {} names for {} classes", listed.len(), self.classes)));
            }
            return check_classes(listed);
        }
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
        let counted = |count| Some(ClassesFile::Count(count));
        assert_eq!(read(None, names(&["a", "b"])).unwrap().classes, 2);
        assert_eq!(read(None, None).unwrap_err(), ("classes", "is missing: the number of classes".to_owned()));
        let check = |column: OneHotColumn| column.check(DType::F32).map_err(|(key, problem)| format!("{key} {problem}"));
        assert_eq!(check(read(counted(2), names(&["a", "b"])).unwrap()), Ok(()));
        assert_eq!(check(read(counted(3), names(&["a", "b"])).unwrap()).unwrap_err(), "names has 2 names for 3 classes");
        assert_eq!(check(read(counted(2), names(&["a", "a"])).unwrap()).unwrap_err(), "names has `a` twice");
        assert!(check(read(counted(0), None).unwrap()).unwrap_err().starts_with("classes is [0], not"));
    }
}
