//! The classes that a column lists: the numbers that it gives to some of the dataset's classes.

use std::{collections::HashMap, sync::Arc};

use super::{ColumnSetup, DecoderError};
use crate::decode::cause::{BadSampleProblem, quoted};

/// From the dataset's numbers of classes to those of a column.
pub(super) struct ListedClasses {
    numbers: HashMap<i64, i64>,
    /// The dataset's classes with their numbers.
    dataset: Arc<HashMap<String, i64>>,
}

impl ListedClasses {
    /// Returns those of a column; `None` if it has all classes.
    pub(super) fn new(setup: &ColumnSetup<'_>) -> Result<Option<Self>, DecoderError> {
        let Some(classes) = setup.column.classes() else { return Ok(None) };
        let dataset = setup.classes.clone();
        let number = |(class, place): (&String, i64)| match dataset.get(class) {
            Some(number) => Ok((*number, place)),
            None => {
                let (job, column, class) = (setup.job.to_owned(), setup.column.name.clone(), class.clone());
                Err(DecoderError::NoSuchClass { job, column, class })
            }
        };
        let numbers = classes.iter().zip(0..).map(number).collect::<Result<_, _>>()?;
        Ok(Some(Self { numbers, dataset }))
    }

    /// Returns the column's number of the dataset's class `class`, if the column has it.
    pub(super) fn get(&self, class: i64) -> Option<i64> {
        self.numbers.get(&class).copied()
    }

    /// Returns the column's number of the class called `name`, if the column has it.
    pub(super) fn called(&self, name: &str) -> Option<i64> {
        self.get(*self.dataset.get(name)?)
    }

    /// Returns the column's number of the dataset's class `class`, which a field holds.
    ///
    /// # Errors
    /// If the column does not have it.
    pub(super) fn of_field(&self, class: i64, field: &str) -> Result<i64, BadSampleProblem> {
        self.get(class).ok_or_else(|| {
            let mut classes = self.dataset.iter();
            let name = classes.find(|(_, number)| **number == class).map(|(name, _)| quoted(name.as_bytes()));
            let class = name.unwrap_or_else(|| class.to_string());
            BadSampleProblem::ClassNotListed { field: field.to_owned(), class }
        })
    }
}
