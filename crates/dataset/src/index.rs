//! Makes a manifest and indexes for existing data, without rewriting them.

use std::sync::Arc;

use futures::TryStreamExt;
use spdl_shard::{
    format::{DEFAULT_FORMAT, Format},
    index::is_index,
    manifest::{DEFAULT_BLOCK_BYTES, Manifest, ManifestBuilder, MetadataPlace, TokenizerFacts, check_names},
    store::DatasetStore,
};
use spdl_types::DType;

use super::{
    DatasetError, DatasetProgress, DatasetReport, LeftOutReason, LeftOutTally,
    beside::leave_beside,
    blocks::check_block_bytes,
    classes::ClassOrder,
    dots,
    folder::{Overwrite, add_shard, dataset_name, put_index, remove},
    hidden::{is_hidden, is_hidden_shard},
    listing::{FilesSeen, Listing, not_objects},
    old_manifest::OldManifest,
    patterns::{chosen, in_common_folder, split_at_commas},
    progress::Meter,
    replace::{
        NotCommitted, is_metadata, manifest_name, recover, refuse_manifest, remove_unused, settle_indexes,
        staged_index, switch,
    },
    report::{DatasetTally, LeftOutShard},
    scan::{BadShard, Scan, ShardResult},
    source::way_out_of,
    split::Splits,
};
use crate::{
    format::{FileTable, FormatScan, Takes, recognise, scan_of, scan_of_table, with_token_options},
    tar::KeyEnd,
};

/// How shards are indexed.
#[derive(Clone, Debug)]
pub struct IndexOptions {
    /// The format. Default: the first format that recognises the folder.
    pub format: Option<&'static dyn Format>,
    /// Which shards are indexed. Default: all.
    pub shards: ShardList,
    /// Which splits are indexed, if no shards were chosen and the names of shards, or of folders of pictures, are those
    /// of splits. Default: the only split; several are an error.
    pub splits: Splits,
    /// A table with a row for each record of loose files, or for a member of a tar, and its fields: of tars without a `format`, if these are
    /// there and no file of its first row. Default: none; all files are indexed, and the folders that loose files lie in are their labels.
    pub table: Option<Arc<FileTable>>,
    /// Of loose files: what the pictures of a folder are. Default: samples.
    pub pictures: FolderPictures,
    /// The dataset's name. Default: the last part of its URL.
    pub name: Option<String>,
    /// Field that holds a Pascal VOC annotation, such as `xml`: a record has one sample per object in it. Default:
    /// none, one sample per record.
    pub boxes: Option<String>,
    /// Where keys end in the names of members of tars. Default: at the first dot, as in WebDataset. With this default,
    /// it is an error if the pictures look as if each were meant as a record.
    pub key_ends_at: Option<KeyEnd>,
    /// Of files of tokens alone: the type of the tokens. Default: what the suffix of a file states.
    pub dtype: Option<DType>,
    /// Of files of tokens alone: the token that ends documents. They need it, and are what is indexed if it is given without a format.
    pub end_token: Option<i64>,
    /// How classes are numbered. Other classes than those that are given follow, by name. Default: by name.
    pub classes: ClassOrder,
    /// The tokenizer that the tokens are of. Default: it is not known, or as the manifest that is replaced has it.
    pub tokenizer: Option<TokenizerFacts>,
    /// Size at which blocks are cut, in bytes. Default: 8 MiB. See [`PackOptions`](super::PackOptions::block_bytes).
    pub block_bytes: Option<u64>,
    /// Upper limit of the shards that are left out because they are damaged, or not shards of the format. The report
    /// names them. Default: 0, so that the first one is an error.
    pub skip_bad_shards: u32,
    /// Number of shards that are read at once, on a thread each. Default: 4. They share 48 MiB of memory.
    pub shards_at_once: usize,
    /// What happens if there is a manifest. Default: refuse.
    pub overwrite: Overwrite,
    /// What happens to the metadata of a manifest that is replaced. Default: it is kept.
    pub old_metadata: OldMetadata,
}

/// What the pictures that lie in one folder are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FolderPictures {
    /// Samples.
    #[default]
    Samples,
    /// The frames of a video, which is one sample.
    Frames,
}

/// What happens to the part of an old manifest's metadata that the shards alone do not contain: how they were cut into
/// blocks, where the segments of crop-ready pictures begin, how many samples records have, and the names of the
/// classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldMetadata {
    /// It is kept for shards whose bytes are the same, so that the dataset keeps its identity.
    #[default]
    Keep,
    /// It is lost: the result is another dataset, on which no job or checkpoint of the old one can continue.
    Discard,
}

/// The shards of a dataset, relative to its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ShardList {
    /// All that the format finds in the folder and its subfolders, by name.
    #[default]
    All,
    /// These, in this order. Braces stand for several names, as in a shell: `train-{000000..000999}.tar`; `*`, `?` and `[...]` for
    /// what matches them. Web servers allow only names and braces, because they cannot list.
    Named(Vec<String>),
}

impl ShardList {
    /// Splits texts into names at the commas outside of braces.
    #[must_use]
    pub fn of_texts(texts: &[String]) -> Self {
        Self::Named(texts.iter().flat_map(|text| split_at_commas(text)).collect())
    }

    /// Divides the paths or URLs of shards, or what matches them, into the folder that they have in common and the shards in it: a
    /// shell gives several for `shards/*.tar`. A single path without a pattern is that of a folder, which may have `chosen` shards.
    ///
    /// # Errors
    /// If shards are given both ways.
    pub fn of_paths(paths: &[String], chosen: Option<Self>) -> Result<(String, Self), DatasetError> {
        match (in_common_folder(paths), chosen) {
            (None, chosen) => Ok((paths.first().cloned().unwrap_or_default(), chosen.unwrap_or_default())),
            (Some((folder, names)), None) => Ok((folder, Self::Named(names))),
            (Some(_), Some(_)) => {
                let problem = "is for the path of a folder, and the paths of shards are given".to_owned();
                Err(DatasetError::Option { option: "shards", problem })
            }
        }
    }
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            format: None,
            shards: ShardList::All,
            splits: Splits::One,
            table: None,
            pictures: FolderPictures::Samples,
            name: None,
            boxes: None,
            key_ends_at: None,
            dtype: None,
            end_token: None,
            classes: ClassOrder::ByName,
            tokenizer: None,
            block_bytes: None,
            skip_bad_shards: 0,
            shards_at_once: 4,
            overwrite: Overwrite::Refuse,
            old_metadata: OldMetadata::Keep,
        }
    }
}

/// Reads the shards in the folder `from` and writes a record index for each, and the manifest, to the folder `to`. If
/// `from` cannot be written, `to` can be another folder: then the manifest names `from`.
///
/// # Errors
/// If a shard cannot be read or is not one of the format, `to` cannot be written, or metadata of the manifest there
/// would be lost without [`OldMetadata::Discard`]. The files that were written by then are removed again, and the
/// previous files stay.
pub async fn index(
    from: &DatasetStore,
    to: &DatasetStore,
    options: &IndexOptions,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<DatasetReport, DatasetError> {
    index_until(from, to, options, progress, std::future::pending()).await
}

/// Indexes like [`index`], but stops when `stop` is ready.
///
/// # Errors
/// As for [`index`], and [`DatasetError::Stopped`].
pub async fn index_until(
    from: &DatasetStore,
    to: &DatasetStore,
    options: &IndexOptions,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> Result<DatasetReport, DatasetError> {
    check(options, to)?;
    let from = &from.pinned().await?;
    let old = match options.overwrite {
        Overwrite::Refuse => refuse_manifest(to).await.map(|()| None)?,
        Overwrite::Replace => recover(to).await?,
    };
    index_as(from, to, options, old, progress, stop).await.map_err(|failed| failed.error)
}

fn check(options: &IndexOptions, to: &DatasetStore) -> Result<(), DatasetError> {
    check_block_bytes(options.block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES))?;
    check_names(options.classes.given().unwrap_or_default())
        .map_err(|source| DatasetError::Unwritable { url: to.url().to_owned(), source })
}

/// Indexes like [`index_until`], where `old` is the manifest that is replaced. What else is in the folder `to` is the caller's concern.
pub(super) async fn index_as(
    from: &DatasetStore,
    to: &DatasetStore,
    options: &IndexOptions,
    old: Option<Manifest>,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> Result<DatasetReport, NotCommitted> {
    let kept = old.as_ref().filter(|_| options.old_metadata == OldMetadata::Keep).and_then(Manifest::tokenizer);
    let tokenizer = options.tokenizer.or(kept);
    let old_manifest = OldManifest::of(old, options.old_metadata);
    let (format, folder, tally) = found(from, options).await.map_err(NotCommitted::before)?;
    let base = to.base_of(from).map_err(NotCommitted::before)?;
    let meter = Meter::new(progress);
    let mut indexing = Indexing {
        from,
        to,
        options,
        block_bytes: options.block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES),
        old_manifest,
        meter,
        manifest: ManifestBuilder::new(&dataset_name(from, options.name.as_deref()))
            .format(format.format())
            .base(base.as_deref())
            .tokenizer(tokenizer),
        tally,
        written: Vec::new(),
    };
    let mut stop = std::pin::pin!(stop);
    let indexed = indexing.all(format, folder, &mut stop).await;
    if let Err(NotCommitted { can_be_removed: true, .. }) = &indexed {
        for name in &indexing.written {
            // The first error is the one to report.
            let _ = remove(to, name).await;
        }
    }
    indexed
}

/// Finds the shards of a folder that the options choose, and their format.
async fn found(
    from: &DatasetStore,
    options: &IndexOptions,
) -> Result<(&'static dyn FormatScan, Listing, DatasetTally), DatasetError> {
    let mut folder = list(from, options).await?;
    let format = format_of(from, options, &folder)?;
    if let Some(problem) = format.refuses_boxes().filter(|_| options.boxes.is_some()) {
        return Err(DatasetError::Option { option: "boxes", problem: problem.to_owned() });
    }
    if options.table.is_some() && !format.takes_table() {
        let problem = format!("is for loose files and for tars, and not for {}", format.format().name());
        return Err(DatasetError::Option { option: "table", problem });
    }
    if options.pictures == FolderPictures::Frames && !format.takes_frames() {
        let problem = format!("is for loose files (`--format files`), and not for {}", format.format().name());
        return Err(DatasetError::Option { option: "frames", problem });
    }
    let token_options = [("dtype", options.dtype.is_some()), ("end_token", options.end_token.is_some())];
    if let Some((option, _)) =
        token_options.into_iter().find(|(_, is_given)| *is_given && !format.takes_token_options())
    {
        let problem =
            format!("is for files of tokens alone (`--format raw_tokens`), and not for {}", format.format().name());
        return Err(DatasetError::Option { option, problem });
    }
    let mut tally = DatasetTally::default();
    if options.shards == ShardList::All {
        tally.odd.left_out.join(not_objects(from).await);
        take(format, from, &mut folder, &mut tally.odd.left_out);
        if matches!(format.takes(), Takes::Shards | Takes::ShardsOrAll) {
            options.splits.choose(from.url(), &mut folder, |name| !format.is_beside_shard(name))?;
        } else if let Splits::Named(split) = &options.splits {
            let problem = format!("is `{split}`, and is for shards of their own; here, give the folder of the split");
            return Err(DatasetError::Option { option: "split", problem });
        }
    }
    Ok((format, folder, tally))
}

/// The state of an indexing run.
struct Indexing<'i> {
    from: &'i DatasetStore,
    to: &'i DatasetStore,
    options: &'i IndexOptions,
    block_bytes: u64,
    old_manifest: OldManifest,
    meter: Meter<'i>,
    manifest: ManifestBuilder,
    tally: DatasetTally,
    /// Indexes that were written; under staged names if a manifest is being replaced.
    written: Vec<String>,
}

impl Indexing<'_> {
    async fn all(
        &mut self,
        format: &'static dyn FormatScan,
        folder: Listing,
        stop: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<DatasetReport, NotCommitted> {
        let order = &self.options.classes;
        let classes = self.old_manifest.classes(order.given().unwrap_or_default());
        let fixed = classes.as_deref().unwrap_or_default().to_vec();
        let written = self.write_indexes(format, folder, stop, fixed).await;
        let fixed = written.and(classes).map_err(NotCommitted::before)?;
        let classes = self.tally.classes(fixed, order).map_err(NotCommitted::before)?;
        let unwritable = |source| DatasetError::Unwritable { url: self.to.url_of(&manifest_name()), source };
        let manifest = std::mem::take(&mut self.manifest).classes(classes).finish();
        let manifest = manifest.map_err(|source| NotCommitted::before(unwritable(source)))?;
        dots::check(self.from.url(), manifest.records(), &mut self.tally.odd).map_err(NotCommitted::before)?;
        switch(self.to, &manifest).await?;
        if self.old_manifest.exists() {
            self.tidy_up(&manifest).await.map_err(NotCommitted::after)?;
        }
        Ok(std::mem::take(&mut self.tally).report(self.to.url(), &manifest))
    }

    /// Gives staged indexes their names, and removes those of the manifest that was replaced.
    async fn tidy_up(&self, manifest: &Manifest) -> Result<(), DatasetError> {
        settle_indexes(self.to, manifest).await?;
        remove_unused(self.to, Some(manifest)).await?;
        leave_beside(self.to).await
    }

    async fn write_indexes(
        &mut self,
        format: &'static dyn FormatScan,
        folder: Listing,
        stop: &mut (impl Future<Output = ()> + Unpin),
        classes: Vec<String>,
    ) -> Result<(), DatasetError> {
        let mut scanned = format.scan(Scan {
            from: self.from,
            folder,
            is_chosen: matches!(self.options.shards, ShardList::Named(_)),
            options: self.options,
            block_bytes: self.block_bytes,
            temporary: self.to.temporary_folder(),
            classes,
            meter: &self.meter,
        });
        let (mut are_all_bad, mut last_bad) = (true, None);
        loop {
            let mut shard = tokio::select! {
                biased;
                () = &mut *stop => return Err(DatasetError::Stopped { url: self.to.url().to_owned() }),
                shard = scanned.try_next() => match shard? {
                    Some(ShardResult::Scanned(shard)) => shard,
                    Some(ShardResult::Bad(bad)) => {
                        last_bad = Some(leave_out(&mut self.tally, self.from, self.options.skip_bad_shards, bad)?);
                        continue;
                    }
                    None => break,
                },
            };
            are_all_bad = false;
            let is_kept = self.old_manifest.restore(self.to, format.format(), self.options, &mut shard).await?;
            add_shard(&mut self.manifest, &shard)?;
            let name = MetadataPlace::Hidden.index_path(&shard.facts.url);
            self.tally.add(&mut shard);
            let has_old = self.old_manifest.has_indexes_at(MetadataPlace::Hidden);
            if !(is_kept && has_old) {
                let name = if has_old { staged_index(&name) } else { name };
                // Recorded before the write: a write that is cancelled may still create the object.
                self.written.push(name.clone());
                put_index(self.to, &name, &shard.index).await?;
            }
        }
        match last_bad.filter(|_| are_all_bad) {
            Some(last) => Err(too_many_bad(&self.tally, self.from, "there is no other".to_owned(), last)),
            None => Ok(()),
        }
    }
}

/// Notes a shard that is left out, and returns what is wrong with it. Fails if there are too many.
fn leave_out(
    tally: &mut DatasetTally,
    from: &DatasetStore,
    allowed: u32,
    BadShard { shard, error }: BadShard,
) -> Result<DatasetError, DatasetError> {
    tally.bad_shards.push(LeftOutShard { shard, problem: error.to_string() });
    if tally.bad_shards.len() > allowed as usize {
        return Err(too_many_bad(tally, from, format!("{allowed} may be left out"), error));
    }
    Ok(error)
}

fn too_many_bad(tally: &DatasetTally, from: &DatasetStore, allowed: String, last: DatasetError) -> DatasetError {
    let bad = tally.bad_shards.len() as u32;
    DatasetError::BadShards { url: from.url().to_owned(), bad, allowed, last: Box::new(last) }
}

/// Lists the objects that may belong to the dataset.
async fn list(from: &DatasetStore, options: &IndexOptions) -> Result<Listing, DatasetError> {
    match &options.shards {
        ShardList::All => match options.table.as_ref().filter(|table| !from.can_list() && table.is_of_files()) {
            Some(table) => {
                let mut names: Vec<String> = table.files().map(str::to_owned).collect();
                names.dedup();
                Listing::of_names(from, &names).await
            }
            None => Listing::of(from, |name| !is_metadata(name)).await,
        },
        ShardList::Named(names) => chosen(from, names).await,
    }
}

/// Removes from a listing what is no part of a dataset of this format. Counts what looks like a part of it: hidden
/// files, and links to shards that are listed under another name.
fn take(format: &dyn FormatScan, from: &DatasetStore, folder: &mut Listing, left_out: &mut LeftOutTally) {
    let takes = match format.takes() {
        Takes::ShardsOrAll if !format.recognises(folder) => {
            folder.retain(|object| !is_index(object.name));
            Takes::Listed
        }
        takes => takes,
    };
    let mut seen = FilesSeen::in_folder(from.local_folder());
    folder.retain(|object| {
        let name = object.name;
        let why = match takes {
            Takes::Files => is_hidden(name).then_some(LeftOutReason::Hidden),
            Takes::Shards | Takes::ShardsOrAll if !format.is_shard(name) => return false,
            _ if is_hidden_shard(name) => Some(LeftOutReason::Hidden),
            Takes::Listed => None,
            Takes::Shards | Takes::ShardsOrAll => (!seen.is_first(name)).then_some(LeftOutReason::SameFile),
        };
        if let Some(why) = why {
            left_out.add(&name.escape_debug().to_string(), why);
        }
        why.is_none()
    });
}

/// Returns how to find the shards of the format that the options name, or else of the first that recognises the folder.
fn format_of(
    from: &DatasetStore,
    options: &IndexOptions,
    folder: &Listing,
) -> Result<&'static dyn FormatScan, DatasetError> {
    let is_chosen = matches!(options.shards, ShardList::Named(_)) && !folder.is_empty();
    let of_options = || options.end_token.and_then(|_| with_token_options());
    let found = options
        .format
        .map(scan_of)
        .or_else(of_options)
        .or_else(|| options.table.as_deref().map(|table| scan_of_table(table, folder)))
        .or_else(|| recognise(folder))
        .or_else(|| options.dtype.and_then(|_| with_token_options()))
        .or(is_chosen.then(|| scan_of(DEFAULT_FORMAT)));
    found.ok_or_else(|| {
        let mut others = LeftOutTally::default();
        folder.iter().for_each(|object| others.add(object.name, LeftOutReason::NoShard));
        let mut problem =
            "shards (`*.tar`, MDS, Parquet, TFRecord, ArrayRecord or Megatron) or pictures are expected; `--format tfrecord` or \
             `array_record` takes files of any name as such, `--format files` as records of their own, and `--dtype` with \
             `--end-token` as ids of tokens"
                .to_owned();
        if let Some(words) = others.in_words() {
            problem.push_str(&format!("; it contains: {words}"));
        }
        let found = others.list();
        if let Some(way) = way_out_of(found.iter().map(|entry| entry.suffix.trim_start_matches('.'))) {
            problem.push_str(&format!("; {way}"));
        }
        DatasetError::Nothing { origin: from.url().to_owned(), problem }
    })
}
