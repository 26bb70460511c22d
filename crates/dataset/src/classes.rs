//! The order in which classes get their numbers.

use std::{cmp::Ordering, path::Path};

use spdl_shard::store::DatasetStore;

use super::{DatasetError, read_text};

/// How classes are numbered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClassOrder {
    /// By name, as torchvision numbers folders. Only classes that have samples are numbered.
    #[default]
    ByName,
    /// In the order of the whole numbers that their names are.
    Numeric,
    /// In the order of this list.
    Given(Vec<String>),
}

impl ClassOrder {
    /// Reads the names of classes from a text file, one on each line, in the order of their numbers. Empty lines, and lines that
    /// begin with `#`, are passed over.
    ///
    /// # Errors
    /// If the file cannot be read, is no UTF-8, or has no name.
    pub fn of_file(path: &Path) -> Result<Self, DatasetError> {
        let text = read_text(path)?;
        let names = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let names: Vec<String> = names.map(str::to_owned).collect();
        if names.is_empty() {
            let problem = "has no name of a class; one on each line is expected".to_owned();
            return Err(DatasetError::Source { path: path.display().to_string(), problem });
        }
        Ok(Self::Given(names))
    }

    /// Takes the classes of a dataset, so that another one numbers them as it does.
    ///
    /// # Errors
    /// If there is no dataset, or it has no classes.
    pub async fn of_dataset(from: &DatasetStore) -> Result<Self, DatasetError> {
        let classes: Vec<String> = from.manifest().await?.classes().map(str::to_owned).collect();
        if classes.is_empty() {
            let problem = "has no classes that another dataset could take".to_owned();
            return Err(DatasetError::Source { path: from.url().to_owned(), problem });
        }
        Ok(Self::Given(classes))
    }

    /// Returns the classes that are given.
    pub(crate) fn given(&self) -> Option<&[String]> {
        match self {
            Self::Given(classes) => Some(classes),
            Self::ByName | Self::Numeric => None,
        }
    }

    /// Puts classes that were found in order.
    pub(crate) fn sort(&self, classes: &mut [String]) -> Result<(), DatasetError> {
        if *self == Self::Numeric {
            if let Some(class) = classes.iter().find(|class| number(class).is_none()) {
                let problem = format!("are to be in the order of their numbers, and `{class}` is not a whole number");
                return Err(DatasetError::Option { option: "classes", problem });
            }
            classes.sort_by(|a, b| by_number(a, b));
        } else {
            classes.sort_unstable();
        }
        Ok(())
    }

    /// Returns the note that classes whose names are numbers are not numbered in the order of these.
    pub(crate) fn note(&self, classes: &[String]) -> Option<String> {
        let in_order = classes.iter().map(|class| number(class)).collect::<Option<Vec<_>>>()?;
        let at = in_order.windows(2).position(|two| two[0] > two[1])?;
        (*self == Self::ByName).then(|| {
            format!(
                "classes are numbered by their names, so that `{}` is class {at} and `{}` is class {}; `--classes numeric` takes \
                 the numbers that they are called in order",
                classes[at],
                classes[at + 1],
                at + 1
            )
        })
    }
}

fn by_number(a: &str, b: &str) -> Ordering {
    number(a).cmp(&number(b)).then_with(|| a.cmp(b))
}

fn number(class: &str) -> Option<i128> {
    class.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(order: &ClassOrder, classes: &[&str]) -> Result<Vec<String>, DatasetError> {
        let mut classes: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
        order.sort(&mut classes).map(|()| classes)
    }

    #[test]
    fn numbers_are_sorted_as_texts_or_as_numbers_and_a_note_says_which() {
        let folders = ["2", "11", "0", "100", "1", "10"];
        let by_name = sorted(&ClassOrder::ByName, &folders).unwrap();
        assert_eq!(by_name, ["0", "1", "10", "100", "11", "2"]);
        let note = ClassOrder::ByName.note(&by_name).unwrap();
        assert!(note.contains("so that `100` is class 3 and `11` is class 4;"), "{note}");
        let numeric = sorted(&ClassOrder::Numeric, &folders).unwrap();
        assert_eq!(numeric, ["0", "1", "2", "10", "11", "100"]);
        assert_eq!((ClassOrder::Numeric.note(&numeric), ClassOrder::ByName.note(&numeric)), (None, None));
        assert_eq!(ClassOrder::ByName.note(&["10".into(), "9".into(), "cat".into()]), None);
        assert_eq!(ClassOrder::ByName.note(&[]), None);
        let refused = sorted(&ClassOrder::Numeric, &["1", "cat"]).unwrap_err().to_string();
        assert_eq!(refused, "`classes` are to be in the order of their numbers, and `cat` is not a whole number");
    }
}
