//! A small dataset on disk and ranks that read it, for tests.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use spdl_control::messages::Session;
use spdl_dataset::{
    IndexOptions, index,
    tar::{TAR_END, append_member},
};
use spdl_job::{
    BytesColumn, ColumnKind, Job, JobFile,
    layout::{Entry, Layout},
};
use spdl_media::encode_sound_table;
use spdl_order::DatasetFacts;
use spdl_shard::{
    format::{ShardIndex as _, format_called},
    index::IndexBuilder,
    manifest::{BlockFacts, ManifestBuilder, ShardFacts},
    store::DatasetStore,
};
use spdl_types::{Fingerprint, Position, SessionId};
use spdl_wire::slab::Slab;

use crate::{
    budget::Budget,
    feed::{Access, FeedError, FeedEvent, FeedRequest, RankFeed, Resources, SlabKind, StoreAccess, WrapStore},
    fetch::RetrySettings,
};

pub(crate) const SHARDS: u64 = 3;
pub(crate) const RECORDS: u64 = 40;
pub(crate) const SAMPLES: u64 = SHARDS * RECORDS;
const BLOCK_RECORDS: u64 = 8;

/// The parts of a sample that a trainer sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: u64,
    pub(crate) flags: u32,
    pub(crate) label: i64,
    pub(crate) text: Vec<u8>,
}

pub(crate) struct FeedFixture {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) job: Job,
}

pub(crate) fn text(id: u64) -> Vec<u8> {
    format!("sample {id} ").repeat(id as usize % 50 + 1).into_bytes()
}

impl FeedFixture {
    /// Creates a dataset in which the samples with an id in `bad` have a label that is not a number; `more` is added to
    /// the job file.
    pub(crate) fn new(bad: &[u64], more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let facts = write_dataset(directory.path(), bad, false, text);
        Self::of(directory, &facts, more)
    }

    /// Creates such a dataset with other texts.
    pub(crate) fn of_other_texts(bad: &[u64], more: &str, text: impl Fn(u64) -> Vec<u8>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let facts = write_dataset(directory.path(), bad, false, text);
        Self::of(directory, &facts, more)
    }

    /// Creates a dataset whose samples have texts of these lengths, of which a job allows `max_bytes`.
    pub(crate) fn of_lengths(length: impl Fn(u64) -> usize, max_bytes: u32, more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let facts = write_dataset(directory.path(), &[], false, |id| vec![id as u8; length(id)]);
        let mut fixture = Self::of(directory, &facts, more);
        fixture.job.columns[1].kind = ColumnKind::Bytes(BytesColumn { max_bytes });
        fixture
    }

    /// Creates a dataset whose samples have these bytes in their field `txt`, which the job's second column reads.
    pub(crate) fn of_values(value: impl Fn(u64) -> Vec<u8>, more: &str, column: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let facts = write_dataset(directory.path(), &[], false, value);
        Self::of_column(directory, &facts, more, column)
    }

    /// Creates such a dataset of sounds, whose index has their tables of packets.
    pub(crate) fn of_sounds(sound: impl Fn(u64) -> Vec<u8>, more: &str, column: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let facts = write_dataset(directory.path(), &[], true, sound);
        Self::of_column(directory, &facts, more, column)
    }

    /// Creates a dataset with the same samples in loose files, two for each: `000000.cls` and `000000.txt`.
    pub(crate) async fn of_files(more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for id in 0..SAMPLES {
            fs::write(directory.path().join(format!("{id:06}.cls")), (id * 3).to_string()).unwrap();
            fs::write(directory.path().join(format!("{id:06}.txt")), text(id)).unwrap();
        }
        let store = DatasetStore::open(directory.path().to_str().unwrap()).unwrap();
        let options = IndexOptions { format: format_called("files"), ..IndexOptions::default() };
        index(&store, &store, &options, &|_| {}).await.unwrap();
        let facts = store.manifest().await.unwrap().facts();
        Self::of(directory, &facts, more)
    }

    fn of(directory: tempfile::TempDir, facts: &DatasetFacts, more: &str) -> Self {
        let text = "name = \"text\"\nfrom = \"txt\"\ndecode = \"bytes\"\nmax_bytes = 4096";
        Self::of_column(directory, facts, more, text)
    }

    /// Takes a dataset whose samples have a label, and a job with the label and another column.
    pub(crate) fn of_column(directory: tempfile::TempDir, facts: &DatasetFacts, more: &str, column: &str) -> Self {
        let file = format!(
            r#"
                name = "train"
                dataset = "{}"
                seed = 5
                {more}
                [[column]]
                name = "label"
                from = "cls"
                decode = "int"
                [[column]]
                {column}
            "#,
            directory.path().display()
        );
        let job = JobFile::parse(&file, "job.toml").unwrap().freeze(facts).unwrap();
        Self { directory, job }
    }

    pub(crate) fn session(&self, world: u32) -> Session {
        let job = self.job.clone();
        Session { id: SessionId(1), world, global_batch: job.global_batch, start: Position::START, job }
    }
}

fn write_dataset(directory: &Path, bad: &[u64], has_tables: bool, text: impl Fn(u64) -> Vec<u8>) -> DatasetFacts {
    let mut manifest = ManifestBuilder::new("small");
    for shard in 0..SHARDS {
        let (mut tar, mut index, mut blocks) = (Vec::new(), IndexBuilder::new(), Vec::new());
        for first in (0..RECORDS).step_by(BLOCK_RECORDS as usize) {
            let offset = tar.len();
            for record in first..first + BLOCK_RECORDS {
                let id = shard * RECORDS + record;
                let label = if bad.contains(&id) { "no number".to_owned() } else { (id * 3).to_string() };
                let mut field = |name, data: &[u8]| {
                    let offset = append_member(&mut tar, &format!("{id:06}.{name}"), data);
                    (name, offset as u64, data.len() as u32, crc32c::crc32c(data))
                };
                let value = text(id);
                let fields = [field("cls", label.as_bytes()), field("txt", &value)];
                index.record(&format!("{id:06}"), 1, fields).unwrap();
                if has_tables {
                    index.packet_table(1, &encode_sound_table(&value).unwrap().unwrap()).unwrap();
                }
            }
            blocks.push(BlockFacts {
                offset: offset as u64,
                bytes: (tar.len() - offset) as u32,
                first_record: first as u32,
                records: BLOCK_RECORDS as u32,
                samples: BLOCK_RECORDS as u32,
            });
        }
        tar.extend_from_slice(&TAR_END);
        let url = format!("{shard}.tar");
        let (index, index_hash): (_, Fingerprint) = index.finish(tar.len() as u64).unwrap();
        fs::write(directory.join(&url), &tar).unwrap();
        fs::write(directory.join(format!("{url}.idx")), index.bytes()).unwrap();
        let facts = ShardFacts {
            url,
            bytes: tar.len() as u64,
            etag: None,
            records: RECORDS as u32,
            index_bytes: index.bytes().len() as u64,
            index_hash,
        };
        manifest.shard(&facts, &blocks).unwrap();
    }
    let manifest = manifest.finish().unwrap();
    fs::write(directory.join("manifest.spdl"), manifest.bytes()).unwrap();
    manifest.facts()
}

/// Creates resources with little memory and few, fast retries.
pub(crate) fn resources(memory_bytes: u64, wrap: Option<WrapStore>) -> Arc<Resources> {
    resources_with(memory_bytes, Access { stores: StoreAccess { wrap, ..StoreAccess::default() }, ..Access::default() })
}

/// Does the same with other access.
pub(crate) fn resources_with(memory_bytes: u64, mut access: Access) -> Arc<Resources> {
    access.stores.retry = RetrySettings {
        refusals: 2,
        first_delay: Duration::from_millis(1),
        max_delay: Duration::from_millis(5),
        ..RetrySettings::default()
    };
    let budget = Budget { cores: 2.0, memory_bytes, disk: None };
    Resources::with_access("test", budget, access).unwrap()
}

pub(crate) fn start(resources: &Arc<Resources>, session: &Session, rank: u32, from: Position) -> RankFeed {
    let request = FeedRequest { session: session.clone(), rank, from, slots: 0, slab: SlabKind::Private };
    RankFeed::start(resources, request).unwrap()
}

/// The samples of one or more ranks by position, and the number of batches.
pub(crate) type ReceivedSamples = (BTreeMap<(Position, u32), Seen>, u64);

pub(crate) async fn drain(feed: &mut RankFeed) -> Result<ReceivedSamples, FeedError> {
    let mut seen = BTreeMap::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(60), feed.next()).await.expect("a batch within a minute");
        match next? {
            FeedEvent::Filled { slot, used_bytes, .. } => {
                read_batch(feed.slab(), feed.layout(), slot, used_bytes, &mut seen);
                feed.free(slot)?;
            }
            FeedEvent::End { sequence, .. } => return Ok((seen, sequence)),
        }
    }
}

pub(crate) fn read_batch(
    slab: &Slab,
    layout: &Layout,
    slot: u32,
    used_bytes: u64,
    seen: &mut BTreeMap<(Position, u32), Seen>,
) {
    let bytes = slab.read(slot).unwrap();
    let batch = layout.read(&bytes[..used_bytes as usize]).unwrap();
    for (number, entry) in batch.entries().enumerate() {
        let Entry { id, flags, .. } = entry;
        let label = i64::from_le_bytes(batch.sample_bytes(0, number).try_into().unwrap());
        let sample = Seen { id, flags, label, text: batch.sample_bytes(1, number).to_vec() };
        let before = seen.insert((entry.position(), flags), sample);
        assert!(before.is_none(), "{:?} was delivered twice", entry.position());
    }
}

/// Asserts that other numbers of ranks get together what one rank `alone` got, and that a run goes on in the middle of an epoch.
pub(crate) async fn assert_every_world_gets(
    alone: &BTreeMap<(Position, u32), Seen>,
    resources: &Arc<Resources>,
    fixture: &FeedFixture,
) {
    for world in [2, 3, 4] {
        let (shared, _) = run(resources, &fixture.session(world), Position::START).await.unwrap();
        assert!(shared == *alone, "world {world} gets what one rank gets");
    }
    let later = Position::new(1, 36);
    let (rest, _) = run(resources, &fixture.session(4), later).await.unwrap();
    assert!(alone.iter().filter(|((at, _), _)| *at >= later).eq(&rest), "a resumed run goes on where it was");
}

/// Returns all samples of all ranks, and the number of batches that each rank got.
pub(crate) async fn run(
    resources: &Arc<Resources>,
    session: &Session,
    from: Position,
) -> Result<ReceivedSamples, FeedError> {
    let mut feeds: Vec<_> = (0..session.world).map(|rank| start(resources, session, rank, from)).collect();
    let mut all = BTreeMap::new();
    let mut steps = None;
    for result in futures::future::join_all(feeds.iter_mut().map(drain)).await {
        let (seen, batches) = result?;
        assert_eq!(*steps.get_or_insert(batches), batches, "all ranks get as many batches");
        let entries = all.len() + seen.len();
        all.extend(seen);
        assert_eq!(all.len(), entries, "no two ranks get the same entry");
    }
    Ok((all, steps.unwrap()))
}
