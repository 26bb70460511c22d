//! The classes of a loader's dataset: their names, and whether numbers of them are in a batch.

use std::sync::Arc;

use spdl_job::{BoxLabelsKeys, CLASS_NUMBERS, CategoryKeys, ColumnFile, DecodeFile, Job, OneHotKeys, listed_classes};
use spdl_shard::{manifest::Manifest, store::DatasetStore};
use spdl_store::StoreError;

use super::LocalBuilder;

impl LocalBuilder {
    /// Returns the names of the job's classes, in the order of their numbers; `None` if neither it nor its dataset lists any. Reads the
    /// manifest, and opens nothing else.
    ///
    /// # Errors
    /// [`StoreError`] if the manifest cannot be read.
    pub async fn classes(&self) -> Result<Option<Arc<[String]>>, StoreError> {
        // What is wrong with a column is the error of opening the loader.
        if let Some(listed) = self.job.check().ok().and_then(|columns| listed_classes(&columns).map(Arc::from)) {
            return Ok(Some(listed));
        }
        let store = DatasetStore::open_pinned(self.job.first_dataset()).await?;
        Ok(of_manifest(&store.manifest().await?))
    }

    /// Returns whether a column of the job has numbers of the dataset's classes.
    #[must_use]
    pub fn has_class_numbers(&self) -> bool {
        self.job.column.iter().any(has_class_numbers)
    }
}

fn has_class_numbers(column: &ColumnFile) -> bool {
    if column.value.classes.is_some() {
        return true;
    }
    match &column.decode {
        DecodeFile::BoxClass(_) => true,
        DecodeFile::Category(CategoryKeys { names, .. })
        | DecodeFile::BoxLabels(BoxLabelsKeys { names, .. })
        | DecodeFile::OneHot(OneHotKeys { names, .. }) => names.is_none(),
        DecodeFile::Int(_) => column.from.split('|').any(|field| CLASS_NUMBERS.contains(&field.trim())),
        _ => false,
    }
}

/// Returns the names of the classes whose numbers a job's batches have.
pub(super) fn of_job(job: &Job, manifest: &Manifest) -> Option<Arc<[String]>> {
    job.listed_classes().map(Arc::from).or_else(|| of_manifest(manifest))
}

/// Returns the names of a dataset's classes, in the order of their numbers; `None` if it lists none.
fn of_manifest(manifest: &Manifest) -> Option<Arc<[String]>> {
    let classes = manifest.classes();
    (classes.len() > 0).then(|| classes.map(str::to_owned).collect())
}
