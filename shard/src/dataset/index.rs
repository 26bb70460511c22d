//! Making a manifest and record indexes for shards that exist, without rewriting them.

use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectMeta, ObjectStoreExt};

use super::{
    DatasetError, DatasetReport, Progress,
    catalog::{Catalog, Catalogued},
    folder::{Overwrite, add_shard, dataset_name, list_shards, refuse_manifest, write_manifest},
    pack::check_block_bytes,
    report::{Meter, Tally},
};
use crate::{
    index::INDEX_SUFFIX,
    manifest::{DEFAULT_BLOCK_BYTES, ManifestBuilder},
    store::{DatasetStore, StoreError},
};

/// How shards are indexed.
#[derive(Clone, Debug)]
pub struct IndexOptions {
    /// Which shards. Default: all.
    pub shards: ShardList,
    /// The dataset's name. Default: the last part of its URL.
    pub name: Option<String>,
    /// Field that holds a Pascal VOC annotation, such as `xml`: a record has one sample per object in it. Default:
    /// none, one sample per record.
    pub boxes: Option<String>,
    /// The classes in the order of their numbers. Those that annotations name beside these follow, by name.
    pub classes: Vec<String>,
    /// Size that blocks are cut at, in bytes. Default: 8 MiB. See [`PackOptions`](super::PackOptions::block_bytes).
    pub block_bytes: u64,
    /// Shards that are read at once. Default: 4. Raised, more memory is used, 32 MiB each.
    pub shards_at_once: usize,
    /// What happens when there is a manifest. Default: refuse.
    pub overwrite: Overwrite,
}

/// Which shards a dataset has, relative to its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ShardList {
    /// Every object in the folder and the folders in it that ends in `.tar`, by name.
    #[default]
    All,
    /// These, in this order. The only way for web servers, which cannot list.
    Named(Vec<String>),
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            shards: ShardList::All,
            name: None,
            boxes: None,
            classes: Vec::new(),
            block_bytes: DEFAULT_BLOCK_BYTES,
            shards_at_once: 4,
            overwrite: Overwrite::Refuse,
        }
    }
}

/// Reads the shards in the folder `from` and writes a record index for each and the manifest to the folder `to`. This
/// is the same folder, unless that cannot be written: then what was written has to be copied there.
///
/// # Errors
/// If a shard cannot be read or is not a WebDataset tar, or `to` cannot be written.
pub async fn index(
    from: &DatasetStore,
    to: &DatasetStore,
    options: &IndexOptions,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<DatasetReport, DatasetError> {
    check_block_bytes(options.block_bytes)?;
    refuse_manifest(to, options.overwrite).await?;
    let shards = shards(from, options).await?;
    let meter = Meter::new(shards.iter().map(|(_, meta)| meta.size).sum(), progress);

    let mut manifest = ManifestBuilder::new(&dataset_name(from, options.name.as_deref()));
    let mut tally = Tally::default();
    let mut catalogued = std::pin::pin!(
        stream::iter(shards)
            .map(|(name, meta)| index_shard(from, to, options, name, meta, &meter))
            .buffered(options.shards_at_once.max(1))
    );
    while let Some(mut shard) = catalogued.try_next().await? {
        add_shard(&mut manifest, &shard)?;
        tally.add(&mut shard);
    }
    let classes = tally.classes(options.classes.clone());
    let manifest = write_manifest(to, manifest.classes(classes)).await?;
    Ok(tally.report(to.url(), &manifest))
}

async fn shards(from: &DatasetStore, options: &IndexOptions) -> Result<Vec<(String, ObjectMeta)>, DatasetError> {
    let shards = match &options.shards {
        ShardList::All => list_shards(from).await?,
        ShardList::Named(names) => {
            if let Some(name) = names.iter().find(|name| !crate::manifest::is_relative_path(name)) {
                let problem = format!("names `{name}`, which is not a path inside the dataset's folder");
                return Err(DatasetError::Option { option: "shards", problem });
            }
            stream::iter(names.clone())
                .map(|name| async move {
                    let meta = from.object().head(&from.path_of(&name)).await;
                    Ok::<_, StoreError>((
                        name.clone(),
                        meta.map_err(|source| StoreError::of(&from.url_of(&name), source))?,
                    ))
                })
                .buffered(16)
                .try_collect()
                .await?
        }
    };
    if shards.is_empty() {
        let problem = "shards whose names end in `.tar` are expected".to_owned();
        return Err(DatasetError::Nothing { origin: from.url().to_owned(), problem });
    }
    Ok(shards)
}

async fn index_shard(
    from: &DatasetStore,
    to: &DatasetStore,
    options: &IndexOptions,
    name: String,
    meta: ObjectMeta,
    meter: &Meter<'_>,
) -> Result<Catalogued, DatasetError> {
    let etag = from.lasting_etag(meta.e_tag.clone());
    let mut catalog = Catalog::new(&name, options.boxes.as_deref(), options.block_bytes);
    let mut chunks = std::pin::pin!(from.stream(&name, meta));
    while let Some(chunk) = chunks.try_next().await? {
        let before = catalog.record_count();
        catalog.read(&chunk)?;
        meter.add(0, u64::from(catalog.record_count() - before), chunk.len() as u64);
    }
    let before = catalog.record_count();
    let mut shard = catalog.finish(etag)?;
    let index = std::mem::take(&mut shard.index);
    to.put(&format!("{name}{INDEX_SUFFIX}"), index).await?;
    meter.add(1, u64::from(shard.facts.records - before), 0);
    Ok(shard)
}
