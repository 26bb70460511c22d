//! The classes of a loader's dataset: their names, and whether numbers of them are in a batch.

use std::sync::Arc;

use spdl_job::{BoxLabelsKeys, CategoryKeys, ColumnFile, DecodeFile, OneHotKeys};
use spdl_shard::{manifest::Manifest, store::DatasetStore};
use spdl_store::StoreError;

use super::LocalBuilder;

/// The field that has a record's class, where `pack` and `index` number classes.
const LABEL: &str = "cls";

impl LocalBuilder {
    /// Returns the names of the dataset's classes, in the order of their numbers; `None` if it lists none. Reads the manifest, and opens
    /// nothing else.
    ///
    /// # Errors
    /// [`StoreError`] if the manifest cannot be read.
    pub async fn classes(&self) -> Result<Option<Arc<[String]>>, StoreError> {
        let store = DatasetStore::open_pinned(&self.job.dataset).await?;
        Ok(of_manifest(&store.manifest().await?))
    }

    /// Returns whether a column of the job has numbers of the dataset's classes.
    #[must_use]
    pub fn has_class_numbers(&self) -> bool {
        self.job.column.iter().any(has_class_numbers)
    }
}

fn has_class_numbers(column: &ColumnFile) -> bool {
    match &column.decode {
        DecodeFile::BoxClass(_) => true,
        DecodeFile::Category(CategoryKeys { names, .. })
        | DecodeFile::BoxLabels(BoxLabelsKeys { names, .. })
        | DecodeFile::OneHot(OneHotKeys { names, .. }) => names.is_none(),
        DecodeFile::Int(_) => column.from.split('|').any(|field| field.trim() == LABEL),
        _ => false,
    }
}

/// Returns the names of a dataset's classes, in the order of their numbers; `None` if it lists none.
pub(super) fn of_manifest(manifest: &Manifest) -> Option<Arc<[String]>> {
    let classes = manifest.classes();
    (classes.len() > 0).then(|| classes.map(str::to_owned).collect())
}
