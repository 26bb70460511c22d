//! Building files of tokens unit by unit: what is kept in memory changes nothing, and what is done stays when it ends early.

use std::{collections::BTreeMap, sync::Arc};

use spdl_dataset::{
    DocumentSource, EachDocument, SourceDocument, TokenBuildOptions, TokenBuildReport, TokenEncoding, build_tokens,
};
use spdl_shard::{manifest::TokenizerFacts, store::DatasetStore};
use spdl_store::StoreLayer;
use spdl_types::Fingerprint;
use tokio::sync::Notify;

use super::{
    interrupted::{Interrupted, Interruption, Writes},
    *,
};

/// Documents of each unit.
const DOCUMENTS: u32 = 40;

/// How the reading of a unit ends.
#[derive(Debug)]
enum Ending {
    Whole,
    /// It asks to be stopped, and has documents until it is.
    Stopped(Arc<Notify>),
    /// Its last document is bad.
    Bad,
}

/// Units of documents, the last of which may end otherwise.
#[derive(Debug)]
struct NumberedUnits {
    units: u32,
    ending: Ending,
    read: Mutex<Vec<usize>>,
}

impl NumberedUnits {
    fn new(ending: Ending) -> Self {
        Self { units: 5, ending, read: Mutex::default() }
    }
}

impl DocumentSource for NumberedUnits {
    fn units(&self) -> usize {
        self.units as usize
    }

    fn bytes(&self) -> u64 {
        u64::from(self.units)
    }

    fn unit_bytes(&self, _: usize) -> u64 {
        1
    }

    fn read_bytes(&self) -> u64 {
        0
    }

    fn token_bytes(&self) -> u64 {
        5_700
    }

    fn tokenizer(&self) -> Option<TokenizerFacts> {
        None
    }

    fn source(&self) -> String {
        "numbers".to_owned()
    }

    fn unit_fingerprint(&self, unit: usize) -> Fingerprint {
        Fingerprint::of(&unit.to_le_bytes())
    }

    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn read(&self, unit: usize, each: &mut EachDocument<'_>) -> Result<(), DatasetError> {
        self.read.lock().unwrap().push(unit);
        for number in 0..DOCUMENTS {
            let ids: Vec<u32> = (0..number * 7 % 30).map(|place| unit as u32 * 1000 + number * 20 + place).collect();
            assert_eq!(each(SourceDocument::Ids(&ids, None))?, None);
        }
        match &self.ending {
            Ending::Stopped(stop) if unit + 1 == self.units() => {
                stop.notify_one();
                loop {
                    each(SourceDocument::Ids(&[1], None))?;
                }
            }
            Ending::Bad if unit + 1 == self.units() => {
                let bad = DatasetError::Source { path: "numbers".to_owned(), problem: "has a bad one".to_owned() };
                each(SourceDocument::Bad(bad)).map(drop)
            }
            _ => Ok(()),
        }
    }
}

fn options(order: PackOrder, memory_bytes: u64) -> TokenBuildOptions {
    let defaults = TokenBuildOptions::new(TokenEncoding::of_vocab(60_000).unwrap());
    TokenBuildOptions { order, shard_bytes: 1000, name: Some("numbers".to_owned()), memory_bytes, ..defaults }
}

async fn built(
    to: &DatasetStore,
    source: &Arc<NumberedUnits>,
    options: &TokenBuildOptions,
    stop: impl Future<Output = ()>,
) -> Result<TokenBuildReport, DatasetError> {
    let source: Arc<dyn DocumentSource> = source.clone();
    build_tokens(to, &source, options, &|_| (), stop).await
}

const ORDERS: [PackOrder; 2] = [PackOrder::AsListed, PackOrder::Shuffled { seed: 5 }];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_for_units_changes_no_byte_and_saves_writing_them() {
    let folder = tempfile::tempdir().unwrap();
    let source = Arc::new(NumberedUnits::new(Ending::Whole));
    for (order, name) in ORDERS.into_iter().zip(["listed", "shuffled"]) {
        let mut expected = None;
        let mut counts = Vec::new();
        // From no unit to all five, by some two.
        for memory_bytes in [0, 5_000, 9_000, 1 << 20] {
            for threads in [1, 3] {
                let to = folder.path().join(format!("{name}-{memory_bytes}-{threads}"));
                let writes = Writes::interrupted(Interruption::Once, usize::MAX);
                let store =
                    at(&to).through(|inner| Arc::new(Interrupted { inner, writes: Arc::clone(&writes) }).layered());
                let options = TokenBuildOptions { threads, ..options(order, memory_bytes) };
                let report = built(&store, &source, &options, std::future::pending()).await.unwrap();
                assert_eq!((report.empty_documents, report.dataset.shards > 4), (10, true));
                let expected = expected.get_or_insert_with(|| files(&to));
                assert_eq!(files(&to), *expected, "{memory_bytes}, {threads} threads");
                counts.push(writes.begun());
            }
        }
        // A unit that is written is begun, completed and removed.
        let saved: Vec<usize> = counts.iter().map(|count| (counts[0] - count) / 3).collect();
        assert_eq!((saved[0], saved[1], saved[6], saved[7]), (0, 0, 5, 5), "{saved:?}");
        assert!(saved[2..6].iter().all(|saved| (1..5).contains(saved)), "{saved:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_in_memory_stays_when_it_is_stopped_or_fails() {
    let folder = tempfile::tempdir().unwrap();
    let whole = Arc::new(NumberedUnits::new(Ending::Whole));
    for (order, name) in ORDERS.into_iter().zip(["listed", "shuffled"]) {
        let path = |what: &str| folder.path().join(format!("{name}-{what}"));
        let options = options(order, 1 << 20);
        built(&at(&path("whole")), &whole, &options, std::future::pending()).await.unwrap();
        let stop = Arc::new(Notify::new());
        for (ending, what) in [(Ending::Stopped(Arc::clone(&stop)), "stopped"), (Ending::Bad, "bad")] {
            let to = path(what);
            let source = Arc::new(NumberedUnits::new(ending));
            let failed = built(&at(&to), &source, &options, stop.notified()).await.unwrap_err().to_string();
            let problems = ["the same command goes on where it ended", "has a bad one"];
            assert!(problems.iter().any(|problem| failed.contains(problem)), "{failed}");
            let again = Arc::new(NumberedUnits::new(Ending::Whole));
            built(&at(&to), &again, &options, std::future::pending()).await.unwrap();
            assert_eq!(*again.read.lock().unwrap(), [4], "the others are done");
            assert_eq!(files(&to), files(&path("whole")));
        }
    }
}

/// Waits until writes that were cancelled have removed their temporary files.
fn settled(folder: &Path) {
    let is_temporary = |name: &str| name.contains('#');
    let has_some = |folder: &Path| folder.exists() && names(folder).iter().any(|name| is_temporary(name));
    while ["", ".spdl", ".spdl/tokens"].iter().any(|inner| has_some(&folder.join(inner))) {
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_in_memory_killed_at_any_write_is_made_again_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let source = Arc::new(NumberedUnits::new(Ending::Whole));
    for (order, name) in ORDERS.into_iter().zip(["listed", "shuffled"]) {
        let (options, expected) = (options(order, 1 << 20), folder.path().join(name));
        built(&at(&expected), &source, &options, std::future::pending()).await.unwrap();
        for write in 0.. {
            let to = folder.path().join(format!("{name}-{write}"));
            let writes = Writes::interrupted(Interruption::Kill, write);
            let store = at(&to).through(|inner| Arc::new(Interrupted { inner, writes: Arc::clone(&writes) }).layered());
            tokio::select! {
                built = built(&store, &source, &options, std::future::pending()) => drop(built.unwrap()),
                () = writes.killed() => {}
            }
            if !writes.were_interrupted() {
                assert!(write > 20, "only {write} writes were interrupted");
                break;
            }
            settled(&to);
            if !to.join(".spdl/manifest.spdl").exists() || to.join(".spdl/tokens/runs.json").exists() {
                built(&at(&to), &source, &options, std::future::pending()).await.unwrap();
            }
            assert_eq!(files(&to), files(&expected), "killed at write {write}");
        }
    }
}
