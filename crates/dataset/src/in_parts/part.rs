//! Packs one part: its shards that are not there yet, and then its manifest.

use std::{
    collections::{BTreeMap, VecDeque},
    iter::Enumerate,
    ops::Range,
};

use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use serde::Serialize;
use spdl_shard::{
    index::INDEX_SUFFIX,
    manifest::{METADATA_FOLDER, MetadataPlace},
    store::{DatasetStore, MAX_INDEX_BYTES},
};
use spdl_store::{StoreError, split};
use spdl_types::Fingerprint;
use xxhash_rust::xxh3::Xxh3;

use super::{
    super::{
        DatasetError, DatasetProgress, Overwrite, PackOptions,
        folder::{dataset_name, remove, shard_name},
        listing::Listing,
        members::Members,
        pack::{bytes_made, list, stages},
        record::MadeRecord,
        replace::{begin_part, check_for_parts},
        report::JpegTally,
        source::{CHANGED, SourceRecord, SourceRecords},
        stages::RunningStages,
        upload::ShardUpload,
    },
    PackPart,
    files::{Agreement, PackedShard, PartManifest, ShardEntry},
    names::is_part_name,
    plan::{PackPlan, PlannedShard},
};

/// Number of shards of an earlier run that are checked at once, and of their entries that are read at once.
const CHECKED_AT_ONCE: usize = 8;

/// The report about a part that is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartReport {
    /// URL of the dataset's folder.
    pub url: String,
    /// Number of the part, from 0.
    pub part: u32,
    /// Number of parts.
    pub parts: u32,
    /// Number of shards in this part.
    pub shards: u64,
    /// Number of these that an earlier run had packed.
    pub kept_shards: u64,
    /// Number of shards in all parts.
    pub all_shards: u64,
    /// Number of records in this part.
    pub records: u64,
    /// Number of samples in this part.
    pub samples: u64,
    /// Bytes of its shards.
    pub bytes: u64,
}

/// Packs one part of the source. The shards of all parts are those of a pack in one part, and [`merge`](super::merge)
/// makes a dataset of them. Shards that an earlier run of the part has packed are kept if they have the bytes that it
/// wrote.
///
/// Shards are closed by the sizes of the files as they are, also where JPEGs are made crop-ready.
///
/// # Errors
/// As for [`pack`](super::super::pack), and [`DatasetError::Parts`] if other parts were packed from another source, with
/// other options or by another version.
pub async fn pack_part(
    to: &DatasetStore,
    options: &PackOptions,
    part: PackPart,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<PartReport, DatasetError> {
    pack_part_until(to, options, part, progress, std::future::pending()).await
}

/// Packs like [`pack_part`], but stops when `stop` is ready. Whole shards stay, however it ends.
///
/// # Errors
/// As for [`pack_part`], and [`DatasetError::Parts`] if it was stopped.
pub async fn pack_part_until(
    to: &DatasetStore,
    options: &PackOptions,
    part: PackPart,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> Result<PartReport, DatasetError> {
    options.check()?;
    if options.overwrite == Overwrite::Replace {
        let problem = "cannot replace a dataset in parts; pack into another folder".to_owned();
        return Err(DatasetError::Option { option: "overwrite", problem });
    }
    let work = async {
        let (source, temporary) = (options.clone(), to.temporary_folder());
        let listed = tokio::task::spawn_blocking(move || list(&source, &temporary));
        let source = listed.await.expect("listing does not panic")?;
        check_for_parts(to).await?;
        let plan = PackPlan::of(options, &source).await?;
        let pack = Agreement::of(to, options, &plan);
        let own = part.shards(plan.shards.len() as u64);
        let packed = known(to, part, &own, &pack).await?;
        begin_part(to).await?;
        Ok::<_, DatasetError>((source, plan, PartPacking { to, options, part, pack, own, packed, kept: 0 }))
    };
    let mut stop = std::pin::pin!(stop);
    let (source, plan, mut packing) = tokio::select! {
        biased;
        () = &mut stop => return Err(stopped(to, part)),
        begun = work => begun?,
    };
    packing.kept = packing.packed.len() as u64;
    let mut open = None;
    match packing.pack(&source, &plan, &mut open, progress, stop).await {
        Ok(()) => packing.finish(source, plan).await,
        Err(error) => {
            if let Some(OpenShard { upload, .. }) = open {
                upload.abort().await;
            }
            Err(error)
        }
    }
}

fn stopped(to: &DatasetStore, part: PackPart) -> DatasetError {
    let problem =
        format!("was not finished: part {part} was stopped, and the same command goes on after its last whole shard");
    DatasetError::Parts { url: to.url().to_owned(), problem }
}

/// The state of packing a part.
struct PartPacking<'a> {
    to: &'a DatasetStore,
    options: &'a PackOptions,
    part: PackPart,
    pack: Agreement,
    /// The numbers of its shards.
    own: Range<u64>,
    /// Its shards that are complete, by their numbers.
    packed: BTreeMap<u64, PackedShard>,
    /// Number of shards that an earlier run had packed.
    kept: u64,
}

/// A shard that is being written.
struct OpenShard<'a> {
    number: u64,
    upload: ShardUpload<'a>,
    /// Number of listed records that are still to come.
    left: u64,
    /// Number of records that the plan has in it.
    planned_records: u32,
    jpegs: JpegTally,
    notes: Vec<String>,
}

impl<'a> PartPacking<'a> {
    /// Packs the shards that are not there yet.
    async fn pack(
        &mut self,
        source: &SourceRecords,
        plan: &PackPlan,
        open: &mut Option<OpenShard<'a>>,
        progress: &(dyn Fn(DatasetProgress) + Send + Sync),
        stop: impl Future<Output = ()>,
    ) -> Result<(), DatasetError> {
        let listed = |shard: u64| plan.shards[shard as usize].end - plan.shards[shard as usize].first;
        let mut missing: VecDeque<u64> = self.own.clone().filter(|shard| !self.packed.contains_key(shard)).collect();
        let mut done = DatasetProgress {
            shards: self.kept,
            records: self.packed.keys().map(|shard| listed(*shard)).sum(),
            total_records: Some(self.own.clone().map(listed).sum()),
            ..DatasetProgress::default()
        };
        progress(done);
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = missing.iter().map(|shard| shard_name(*shard)).collect();
        let is_ours = |name: &str| names.iter().any(|own| name.strip_suffix(INDEX_SUFFIX).unwrap_or(name) == own);
        self.to.remove_temporaries("", is_ours)?;
        self.to.remove_temporaries(METADATA_FOLDER, is_ours)?;
        let shards = missing.iter().map(|shard| plan.shards[*shard as usize]).collect();
        let records = RecordsOf { records: source.records.iter()?.enumerate(), shards };
        let mut groups = RunningStages::start(stages(self.options, source.files.clone(), records))?;
        let mut stop = std::pin::pin!(stop);
        loop {
            let mut shown = done;
            let group = tokio::select! {
                biased;
                () = &mut stop => return Err(stopped(self.to, self.part)),
                group = groups.next(|stats| {
                    shown.bytes = bytes_made(stats);
                    progress(shown);
                }) => group?,
            };
            let Some(group) = group else { break };
            for record in group.records {
                if open.is_none() {
                    let number = missing.pop_front().expect("only records of missing shards are packed");
                    *open = Some(self.open(number, &plan.shards[number as usize]).await?);
                }
                let shard = open.as_mut().expect("it was opened");
                if let MadeRecord::Whole(members) = record {
                    shard.append(members).await?;
                }
                shard.left -= 1;
                done.records += 1;
                if shard.left == 0 {
                    self.close(open.take().expect("it is open")).await?;
                    done.shards += 1;
                }
            }
        }
        assert!(open.is_none() && missing.is_empty(), "{} shards have no records", missing.len());
        Ok(())
    }

    async fn open(&self, number: u64, shard: &PlannedShard) -> Result<OpenShard<'a>, DatasetError> {
        let name = shard_name(number);
        let catalog = self.options.shards().catalog(&name, self.to);
        let upload = ShardUpload::start(self.to, name, catalog).await?.hashed();
        let (left, planned_records) = (shard.end - shard.first, shard.records);
        Ok(OpenShard { number, upload, left, planned_records, jpegs: JpegTally::default(), notes: Vec::new() })
    }

    /// Finishes a shard, and then writes its entry.
    async fn close(&mut self, shard: OpenShard<'a>) -> Result<(), DatasetError> {
        let OpenShard { number, upload, planned_records, jpegs, notes, .. } = shard;
        if upload.records != planned_records {
            upload.abort().await;
            let path = self.to.url_of(&shard_name(number));
            let problem = format!("has other records than were planned: its source {CHANGED}");
            return Err(DatasetError::Source { path, problem });
        }
        let (scanned, hash) = upload.finish_hashed().await?;
        let entry = ShardEntry::of(self.pack.clone(), PackedShard::of(scanned, hash, jpegs, notes));
        entry.write(self.to).await?;
        self.packed.insert(number, entry.shard);
        Ok(())
    }

    /// Writes the part's manifest, which takes the place of the entries of its shards.
    async fn finish(self, source: SourceRecords, plan: PackPlan) -> Result<PartReport, DatasetError> {
        let Self { to, options, part, pack, packed, kept, own } = self;
        let shards: Vec<PackedShard> = packed.into_values().collect();
        let report = PartReport {
            url: to.url().to_owned(),
            part: part.number,
            parts: part.count,
            shards: shards.len() as u64,
            kept_shards: kept,
            all_shards: plan.shards.len() as u64,
            records: shards.iter().map(|shard| u64::from(shard.records)).sum(),
            samples: shards.iter().map(PackedShard::samples).sum(),
            bytes: shards.iter().map(|shard| shard.bytes).sum(),
        };
        let name = dataset_name(to, options.name.as_deref());
        let manifest = PartManifest::of(part, pack, name, source, plan, shards);
        manifest.write(to).await?;
        let entries: Vec<String> = own.map(|shard| ShardEntry::name_of(&shard_name(shard))).collect();
        let left = Listing::of(to, |name| entries.binary_search_by(|entry| entry.as_str().cmp(name)).is_ok()).await?;
        let removed = stream::iter(left.iter()).map(|entry| remove(to, entry.name)).buffer_unordered(CHECKED_AT_ONCE);
        removed.try_collect::<()>().await?;
        Ok(report)
    }
}

impl OpenShard<'_> {
    async fn append(&mut self, members: Members) -> Result<(), DatasetError> {
        self.jpegs.add(&members.jpegs);
        self.notes.extend(members.notes());
        self.upload.append(members).await
    }
}

/// The listed records that lie in chosen shards.
struct RecordsOf<R> {
    records: Enumerate<R>,
    shards: VecDeque<PlannedShard>,
}

impl<R: Iterator<Item = Result<SourceRecord, DatasetError>>> Iterator for RecordsOf<R> {
    type Item = Result<SourceRecord, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let shard = *self.shards.front()?;
            let (number, record) = self.records.next()?;
            if record.is_err() {
                return Some(record);
            }
            if number as u64 + 1 == shard.end {
                self.shards.pop_front();
            }
            if number as u64 >= shard.first {
                return Some(record);
            }
        }
    }
}

/// Returns the shards of a part that an earlier run has packed and that are still there. Fails if another part does not
/// agree with this one.
async fn known(
    to: &DatasetStore,
    part: PackPart,
    own: &Range<u64>,
    pack: &Agreement,
) -> Result<BTreeMap<u64, PackedShard>, DatasetError> {
    let found = Listing::of(to, is_part_name).await?;
    let has = |name: &str| found.find_by(|other| other.cmp(name)).is_some();
    let agrees = |name: String, other: &Agreement| match other.difference(&format!("`{name}`"), pack, "this part") {
        None => Ok(()),
        Some(difference) => {
            let problem = format!(
                "holds another pack: {difference}; give all parts the same source and options, or another folder"
            );
            Err(DatasetError::Parts { url: to.url().to_owned(), problem })
        }
    };
    if let Some(other) = found.iter().find_map(|object| PackPart::of_file(object.name)) {
        agrees(other.file_name(), &PartManifest::read(to, other).await?.pack)?;
    }
    let mut packed = BTreeMap::new();
    if has(&part.file_name()) {
        let manifest = PartManifest::read(to, part).await?;
        agrees(part.file_name(), &manifest.pack)?;
        packed.extend(own.clone().zip(manifest.shards));
    }
    let has_entry = |shard: &u64| has(&ShardEntry::name_of(&shard_name(*shard)));
    let entries = stream::iter(own.clone().filter(has_entry)).map(async |shard| {
        let entry = ShardEntry::read(to, &shard_name(shard)).await?;
        agrees(ShardEntry::name_of(&entry.shard.name), &entry.pack)?;
        Ok::<_, DatasetError>((shard, entry.shard))
    });
    packed.extend(entries.buffered(CHECKED_AT_ONCE).try_collect::<Vec<_>>().await?);
    let checked = stream::iter(packed).map(async |(number, shard)| {
        let is_there = is_there(to, &shard).await?;
        Ok::<_, DatasetError>(is_there.then_some((number, shard)))
    });
    let kept: Vec<_> = checked.buffered(CHECKED_AT_ONCE).try_collect().await?;
    Ok(kept.into_iter().flatten().collect())
}

/// Returns whether a shard and its index have the bytes that were written. The shard is not read if the store has a
/// lasting etag of it.
async fn is_there(to: &DatasetStore, shard: &PackedShard) -> Result<bool, DatasetError> {
    let index = to.read(&MetadataPlace::Hidden.index_path(&shard.name), MAX_INDEX_BYTES).await;
    match index {
        Ok(index) if Fingerprint::of(&index) == shard.index_hash => {}
        Ok(_) | Err(StoreError::Missing { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let (path, fail) = (to.path_of(&shard.name), |source| StoreError::of(&to.url_of(&shard.name), source));
    let meta = match to.object().head(&path).await.map_err(fail) {
        Ok(meta) => meta,
        Err(StoreError::Missing { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if meta.size != shard.bytes {
        return Ok(false);
    }
    if shard.etag.is_some() && to.lasting_etag(meta.e_tag) == shard.etag {
        return Ok(true);
    }
    let mut hasher = Xxh3::new();
    for range in split(0..shard.bytes) {
        hasher.update(&to.object().get_range(&path, range).await.map_err(fail)?);
    }
    Ok(Fingerprint(hasher.digest128()) == shard.hash)
}
