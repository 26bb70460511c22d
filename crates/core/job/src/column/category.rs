//! The kind `category`: the number of a name.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{ColumnKind, DefaultValue, Kind, kind::{keys, no_names}};
use crate::KeyProblem;
use spdl_types::DType;

/// Upper limits of the number of names, and of the bytes of one.
const MAX_NAMES: usize = 100_000;
const MAX_NAME_BYTES: usize = 1_024;

keys! {
    /// The keys of a `category` column in a job file.
    CategoryKeys {
        /// For category: the names, whose numbers are 0, 1, 2 and so on: 1 to 100000 of them. A sample with another name is
        /// a bad sample. Default: the dataset's classes.
        names: Option<Vec<String>>,
    }
}

/// The number of the name that the field holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryColumn {
    /// The names in the order of their numbers; `None` for the dataset's classes.
    pub names: Option<Vec<String>>,
}

impl Kind for CategoryColumn {
    const NAME: &'static str = "category";
    const EXAMPLE: &'static str = "names = [\"a\", \"b\"]";
    const IS_PLAIN: bool = true;
    type Keys = CategoryKeys;

    fn read(keys: &CategoryKeys) -> Result<Self, KeyProblem> {
        Ok(Self { names: keys.names.clone() })
    }

    fn check_without_classes(&self, _: Option<&ColumnKind>) -> Result<(), KeyProblem> {
        if self.names.is_some() { Ok(()) } else { Err(no_names()) }
    }

    fn reads_classes(&self) -> bool {
        self.names.is_none()
    }

    fn check_default(&self, default: &DefaultValue, dtype: DType) -> Result<(), String> {
        default.check_name(self.names.as_deref(), dtype)
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::I64, DType::I32]
    }

    fn check(&self, _: DType) -> Result<(), KeyProblem> {
        let Some(names) = &self.names else { return Ok(()) };
        let wrong = |problem: String| Err(("names", problem));
        if !(1..=MAX_NAMES).contains(&names.len()) {
            return wrong(format!("has {} names, not 1 to {MAX_NAMES}", names.len()));
        }
        let mut known = BTreeSet::new();
        for name in names {
            // White space around a field is left out, so such a name would never be found.
            if name.trim() != name || !(1..=MAX_NAME_BYTES).contains(&name.len()) {
                let shown: String = name.chars().take(60).collect();
                return wrong(format!(
                    "has `{shown}`; a name is 1 to {MAX_NAME_BYTES} bytes, without white space around it"
                ));
            }
            if !known.insert(name) {
                return wrong(format!("has `{name}` twice"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_not_be_found_or_told_apart_are_refused() {
        let problem = |names: &[&str]| {
            let names = Some(names.iter().map(|name| (*name).to_owned()).collect());
            CategoryColumn { names }.check(DType::I64).map_err(|(key, problem)| format!("{key} {problem}"))
        };
        assert_eq!(CategoryColumn { names: None }.check(DType::I64), Ok(()));
        assert_eq!(problem(&["sun", "rain"]), Ok(()));
        assert_eq!(problem(&[]).unwrap_err(), "names has 0 names, not 1 to 100000");
        assert_eq!(problem(&["sun", "rain", "sun"]).unwrap_err(), "names has `sun` twice");
        assert!(problem(&["sun "]).unwrap_err().contains("without white space around it"));
        assert!(problem(&[""]).is_err() && problem(&[&"a".repeat(1025)]).is_err());
        assert!(problem(&["a"; 100_001]).is_err());
    }
}
