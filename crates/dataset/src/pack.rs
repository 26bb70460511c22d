//! Packs files into shards: pictures, and the files beside them.

use std::sync::Arc;

use spdl_pipeline::{Op, Pipeline, PipelinePlan};
use spdl_shard::{
    manifest::{DEFAULT_BLOCK_BYTES, Manifest, ManifestBuilder},
    store::DatasetStore,
};
use spdl_store::TemporaryFolder;
use spdl_types::StageStats;

use super::{
    Annotations, DEFAULT_SHARD_BYTES, DatasetError, DatasetProgress, DatasetReport, FieldChoice, PackSource,
    blocks::check_block_bytes,
    catalog::Catalog,
    classes::ClassOrder,
    coded_anew::VideoCoder,
    folder::{Overwrite, add_shard, dataset_name, shard_name},
    members::Members,
    record::{MEASURED_TOGETHER, MadeRecord, RecordGroup, RecordMaker},
    replace::{NotCommitted, Replacement},
    report::DatasetTally,
    source::{ANNOTATION_FIELD, LABEL_FIELD, ListOptions, SourceFiles, SourceRecord, SourceRecords},
    stages::{MemoryBound, RunningStages, cpu_threads},
    upload::ShardUpload,
};

/// Number of lists of records that are measured at once, and of groups of records that are read at once.
pub(super) const FILES_AT_ONCE: usize = 16;
/// Number of groups of records that may be ready to be written.
pub(super) const GROUPS_READY: usize = 16;
/// Name of the stage that makes the members of records.
pub(super) const MEMBERS: &str = "members";

/// How files are packed.
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// Where the files come from.
    pub source: PackSource,
    /// The dataset's name. Default: the last part of its URL.
    pub name: Option<String>,
    /// Which files of a record become fields, and under which names. Default: all that have the stem of a picture.
    pub fields: Option<FieldChoice>,
    /// Where Pascal VOC annotations are. With annotations a record has one sample per object, and pictures without an
    /// annotation are left out. Default: none, one sample per picture.
    pub annotations: Option<Annotations>,
    /// How classes are numbered. A list of classes, in the order of their numbers, makes two datasets agree. Default:
    /// by name.
    pub classes: ClassOrder,
    /// Whether folders with the names of splits, such as `train` and `val`, are classes. Default: no, they are an
    /// error.
    pub all_splits: bool,
    /// Order of the records. Default: shuffled with seed 0.
    pub order: PackOrder,
    /// Size at which shards are closed, in bytes. Default: 256 MiB. A higher value gives fewer objects to open; fewer
    /// shards can be written or copied at once.
    pub shard_bytes: u64,
    /// Number of records at which shards are closed. Default: no limit but the size.
    pub shard_records: Option<u32>,
    /// Size at which blocks are cut, in bytes. Default: 8 MiB. A higher value gives fewer and longer requests; the
    /// shuffle is coarser, or needs more memory to be as fine.
    pub block_bytes: u64,
    /// Whether JPEGs are rewritten, without loss, so that crops are read fast. Default: they stay as they are.
    pub jpegs: Jpegs,
    /// How many frames of a video, 1 to 600, are from one key frame to the next, at most: all videos are coded anew for that, by the program
    /// `ffmpeg`, and their pixels change. A lower value gives larger files, of which a clip decodes less. Default: none; they stay as they are.
    pub gop: Option<u32>,
    /// What happens if something exists where the dataset should go. Default: refuse.
    pub overwrite: Overwrite,
}

/// Order of the records in the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackOrder {
    /// Mixed by a hash keyed with the seed, so that every block holds samples of all classes.
    Shuffled {
        /// The seed.
        seed: u64,
    },
    /// The order of the source.
    AsListed,
}

/// How JPEGs are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jpegs {
    /// They are copied byte by byte.
    #[default]
    AsTheyAre,
    /// Baseline JPEGs get a restart marker behind every few MCUs, so that a decoder reaches a crop without reading the
    /// data before it: they are about 1 % larger, with the same coefficients. Progressive ones become baseline ones, some
    /// 5 % larger. All others stay as they are.
    CropReady,
    /// Baseline JPEGs become scalable pictures: a decoder reads only what the area and the scale of a crop need. They
    /// are some 5 % smaller, and the same file can be restored from them. All others stay as they are, as do those that
    /// would be larger.
    Scalable,
}

impl PackOptions {
    /// Returns the defaults for a source.
    #[must_use]
    pub fn new(source: PackSource) -> Self {
        Self {
            source,
            name: None,
            fields: None,
            annotations: None,
            classes: ClassOrder::ByName,
            all_splits: false,
            order: PackOrder::Shuffled { seed: 0 },
            shard_bytes: DEFAULT_SHARD_BYTES,
            shard_records: None,
            block_bytes: DEFAULT_BLOCK_BYTES,
            jpegs: Jpegs::AsTheyAre,
            gop: None,
            overwrite: Overwrite::Refuse,
        }
    }

    pub(super) fn check(&self) -> Result<(), DatasetError> {
        match &self.fields {
            Some(fields) if fields.names().any(|name| name == LABEL_FIELD) => {
                let problem = format!("has the field `{LABEL_FIELD}`, which is the label's");
                Err(DatasetError::Option { option: "fields", problem })
            }
            _ if self.classes == ClassOrder::Numeric && self.annotations.is_some() => {
                let problem =
                    "are those of annotations, whose names are no numbers: give the names in their order".to_owned();
                Err(DatasetError::Option { option: "classes", problem })
            }
            _ => {
                self.gop.map_or(Ok(()), VideoCoder::check)?;
                self.shards().check()
            }
        }
    }

    /// Returns how its shards are written.
    pub(super) fn shards(&self) -> ShardOptions<'_> {
        ShardOptions {
            name: self.name.as_deref(),
            boxes: self.annotations.as_ref().map(|_| ANNOTATION_FIELD),
            shard_bytes: self.shard_bytes,
            shard_records: self.shard_records,
            block_bytes: self.block_bytes,
            has_distinct_keys: false,
        }
    }
}

/// How shards are written, wherever their records come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardOptions<'o> {
    /// The dataset's name. Default: the last part of its URL.
    pub(super) name: Option<&'o str>,
    /// Field with the annotations of a record, if it has a sample for each object.
    pub(super) boxes: Option<&'static str>,
    pub(super) shard_bytes: u64,
    pub(super) shard_records: Option<u32>,
    pub(super) block_bytes: u64,
    /// Whether two records of a shard with one key are an error.
    pub(super) has_distinct_keys: bool,
}

impl ShardOptions<'_> {
    pub(super) fn check(&self) -> Result<(), DatasetError> {
        let zero = |option| Err(DatasetError::Option { option, problem: "is 0; give at least 1".to_owned() });
        match self {
            Self { shard_bytes: 0, .. } => zero("shard_bytes"),
            Self { shard_records: Some(0), .. } => zero("shard_records"),
            _ => check_block_bytes(self.block_bytes),
        }
    }

    /// Returns the catalogue of a shard that will be written.
    pub(super) fn catalog(&self, shard: &str, to: &DatasetStore) -> Catalog {
        let temporary = to.temporary_folder();
        Catalog::new(shard, self.boxes, self.block_bytes, &temporary).packet_tables(&temporary)
    }
}

/// Packs files into shards in the folder `to`, with a record index for each shard. The manifest is written last: a
/// dataset without a manifest is not finished. A dataset that is replaced stays until then, so that the folder needs
/// room for both.
///
/// # Errors
/// If the source cannot be read or is invalid, or the store cannot be written.
pub async fn pack(
    to: &DatasetStore,
    options: &PackOptions,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<DatasetReport, DatasetError> {
    pack_until(to, options, progress, std::future::pending()).await
}

/// Packs like [`pack`], but stops when `stop` is ready. A packing that fails removes what it wrote, and what existed
/// before stays. If the process is killed, its files stay until the next packing with [`Overwrite::Replace`] removes
/// them.
///
/// # Errors
/// As for [`pack`], and [`DatasetError::Stopped`].
pub async fn pack_until(
    to: &DatasetStore,
    options: &PackOptions,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> Result<DatasetReport, DatasetError> {
    options.check()?;
    let (source, temporary) = (options.clone(), to.temporary_folder());
    let listed = tokio::task::spawn_blocking(move || list(&source, &temporary));
    let source = listed.await.expect("listing does not panic")?;
    let replacement = Replacement::begin(to, options.overwrite).await?;

    let SourceRecords { files, records, classes, left_out, notes } = source;
    let mut packing = Packing::new(to, options.shards(), &replacement, Some(records.len()), progress);
    packing.tally.left_out = left_out.list();
    notes.iter().for_each(|note| packing.tally.odd.note(|| note.clone()));
    packing.run(records.iter().map(|listed| stages(options, files, listed)), classes, stop).await
}

/// The state of a packing run: the open shard, and the work done so far.
pub(super) struct Packing<'a> {
    to: &'a DatasetStore,
    options: ShardOptions<'a>,
    replacement: &'a Replacement,
    progress: &'a (dyn Fn(DatasetProgress) + Send + Sync),
    done: DatasetProgress,
    open: Option<ShardUpload<'a>>,
    /// Number of shards that were finished, or may have been.
    finished: u64,
    manifest: ManifestBuilder,
    tally: DatasetTally,
}

impl<'a> Packing<'a> {
    pub(super) fn new(
        to: &'a DatasetStore,
        options: ShardOptions<'a>,
        replacement: &'a Replacement,
        total_records: Option<u64>,
        progress: &'a (dyn Fn(DatasetProgress) + Send + Sync),
    ) -> Self {
        let done = DatasetProgress { total_records, ..DatasetProgress::default() };
        let manifest = ManifestBuilder::new(&dataset_name(to, options.name));
        let tally = DatasetTally::default();
        Self { to, options, replacement, progress, done, open: None, finished: 0, manifest, tally }
    }

    /// Packs the records that the stages make and commits them as the dataset. Removes what it wrote if that fails.
    pub(super) async fn run(
        mut self,
        stages: Result<PipelinePlan<RecordGroup<Members>>, DatasetError>,
        classes: Vec<String>,
        stop: impl Future<Output = ()>,
    ) -> Result<DatasetReport, DatasetError> {
        match self.whole(stages, classes, stop).await {
            Ok(manifest) => Ok(self.tally.report(self.to.url(), &manifest)),
            Err(NotCommitted { error, can_be_removed }) => {
                if can_be_removed {
                    self.abort().await;
                }
                Err(error)
            }
        }
    }

    async fn whole(
        &mut self,
        stages: Result<PipelinePlan<RecordGroup<Members>>, DatasetError>,
        classes: Vec<String>,
        stop: impl Future<Output = ()>,
    ) -> Result<Manifest, NotCommitted> {
        let packed = match stages {
            Ok(stages) => self.all(stages, stop).await,
            Err(error) => Err(error),
        };
        packed.map_err(|error| NotCommitted { error, can_be_removed: true })?;
        let classes = self.tally.classes(classes, &ClassOrder::ByName).map_err(NotCommitted::before)?;
        self.replacement.commit(self.to, std::mem::take(&mut self.manifest).classes(classes)).await
    }

    /// Packs the records. It stops only while it waits for a record: a write to the store that is cancelled may still
    /// create the object.
    async fn all(
        &mut self,
        stages: PipelinePlan<RecordGroup<Members>>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), DatasetError> {
        let mut stop = std::pin::pin!(stop);
        let mut groups = RunningStages::start(stages)?;
        loop {
            let (progress, mut done) = (self.progress, self.done);
            let group = tokio::select! {
                biased;
                () = &mut stop => return Err(DatasetError::Stopped { url: self.to.url().to_owned() }),
                group = groups.next(|stats| {
                    done.bytes = bytes_made(stats);
                    progress(done);
                }) => group?,
            };
            let Some(group) = group else { return self.close().await };
            for record in group.records {
                match record {
                    MadeRecord::Whole(members) => self.record(members).await?,
                    MadeRecord::NoAnnotation(picture) => {
                        self.tally.pictures_without_annotation += 1;
                        self.tally.odd.note(|| no_annotation(&picture));
                    }
                }
                self.done.records += 1;
            }
        }
    }

    async fn record(&mut self, record: Members) -> Result<(), DatasetError> {
        self.tally.jpegs.add(&record.jpegs);
        record.notes().for_each(|note| self.tally.odd.note(|| note));
        let full = |open: &ShardUpload<'_>| {
            open.bytes + record.bytes > self.options.shard_bytes || Some(open.records) == self.options.shard_records
        };
        if self.open.as_ref().is_some_and(full) {
            self.close().await?;
        }
        if self.open.is_none() {
            let name = shard_name(self.done.shards);
            let catalog = self.options.catalog(&name, self.to);
            let place = self.replacement.place_of(&name);
            self.open = Some(ShardUpload::start(self.to, place, catalog).await?);
        }
        self.open.as_mut().expect("a shard was opened").append(record).await
    }

    async fn close(&mut self) -> Result<(), DatasetError> {
        if let Some(open) = self.open.take() {
            // Counted before the write: a shard whose finish is cancelled may still exist.
            self.finished += 1;
            let mut shard = open.finish().await?;
            if self.options.has_distinct_keys
                && let Some(odd) = std::mem::take(&mut shard.odd.members).list().into_iter().next()
            {
                return Err(DatasetError::KeyTwice { url: self.to.url().to_owned(), key: odd.first });
            }
            add_shard(&mut self.manifest, &shard)?;
            self.tally.add(&mut shard);
            self.done.shards += 1;
        }
        Ok(())
    }

    /// Removes everything that was written. The first error is the one to report.
    async fn abort(self) {
        if let Some(open) = self.open {
            open.abort().await;
        }
        self.replacement.abort(self.to, self.finished).await;
    }
}

/// Returns the stages that make the records, in their order.
pub(super) fn stages(
    options: &PackOptions,
    files: SourceFiles,
    records: impl Iterator<Item = Result<SourceRecord, DatasetError>> + Send + 'static,
) -> PipelinePlan<RecordGroup<Members>> {
    let maker = Arc::new(RecordMaker::new(files, options));
    let [measuring, admitting, reading, making] = [(); 4].map(|()| Arc::clone(&maker));
    let memory = MemoryBound::new();
    let admit = move |group| Arc::clone(&admitting).admit(group, memory.clone());
    let members = Op::cpu(move |group| making.members(group)).count_bytes(RecordGroup::bytes);
    Pipeline::builder()
        .source(records)
        .aggregate(MEASURED_TOGETHER)
        .pipe("measure", Op::blocking(move |records| measuring.measure(records)), FILES_AT_ONCE)
        .disaggregate()
        .pipe("memory", Op::asynchronous(admit), 1)
        .pipe("read", Op::blocking(move |group| reading.read(group)), FILES_AT_ONCE)
        .pipe(MEMBERS, members, cpu_threads())
        .sink(GROUPS_READY)
}

/// Returns the bytes of the members that the [`stages`] have made.
pub(super) fn bytes_made(stats: &[StageStats]) -> u64 {
    stats.iter().find(|stage| stage.stage.name() == MEMBERS).expect("the stage has this name").bytes
}

/// Returns the note on a picture that is left out.
pub(super) fn no_annotation(picture: &str) -> String {
    format!("`{picture}` has no annotation and was left out")
}

/// Lists the records of the source in the order in which they are packed.
pub(super) fn list(options: &PackOptions, temporary: &TemporaryFolder) -> Result<SourceRecords, DatasetError> {
    let PackOptions { classes, fields, annotations, .. } = options;
    let (fields, annotations) = (fields.as_ref(), annotations.as_ref());
    let mut source = options
        .source
        .list(&ListOptions { classes, all_splits: options.all_splits, fields, annotations }, temporary)?;
    if let PackOrder::Shuffled { seed } = options.order {
        source.records = source.records.shuffled(seed)?;
    }
    Ok(source)
}
