//! Options for the numbering of the classes of a dataset.

use std::path::PathBuf;

use spdl_dataset::ClassOrder;
use spdl_shard::store::DatasetStore;

use super::CtlError;

/// The value of `--classes` for classes whose names are numbers.
const NUMERIC: &str = "numeric";

/// How classes are numbered; by name when not given.
#[derive(Debug, clap::Args)]
pub(crate) struct ClassArgs {
    /// The classes in the order of their numbers, so that two datasets use the same ones; or `numeric`, for classes whose names are
    /// numbers.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    classes: Option<Vec<String>>,
    /// A text file with the classes in the order of their numbers, one on each line.
    #[arg(long, value_name = "FILE", conflicts_with = "classes")]
    classes_file: Option<PathBuf>,
    /// Takes the classes of this dataset, as for validation those of training.
    #[arg(long, value_name = "DATASET", conflicts_with_all = ["classes", "classes_file"])]
    classes_from: Option<String>,
}

impl ClassArgs {
    /// Returns the order of the classes. May read a file or a dataset.
    pub(crate) async fn order(&self) -> Result<ClassOrder, CtlError> {
        Ok(match (&self.classes, &self.classes_file, &self.classes_from) {
            (Some(names), ..) if names[..] == [NUMERIC] => ClassOrder::Numeric,
            (Some(names), ..) => ClassOrder::Given(names.clone()),
            (None, Some(file), _) => ClassOrder::of_file(file)?,
            (None, None, Some(dataset)) => ClassOrder::of_dataset(&DatasetStore::open(dataset)?).await?,
            (None, None, None) => ClassOrder::ByName,
        })
    }
}
