//! Paths of tokens: a rank's feed of batches of sequences.

use std::{fs, path::Path, sync::Arc};

use spdl_dataset::{EvaluatedSequences, IndexOptions, SequenceRequest, evaluate_sequences, index};
use spdl_job::JobFile;
use spdl_shard::{samples::JobSamples, store::DatasetStore};
use spdl_testkit::tokens::write_megatron;
use spdl_types::Draw;
use spdl_worker::{
    decode::count_tokens,
    feed::{Access, StoreAccess},
};

use crate::data::{runtime, take_all};

const FOLDER: &str = "tokens";
const SEQ_LEN: u32 = 2048;
/// The shortest and the longest documents have this many tokens.
const LENGTHS: [u32; 2] = [100, 6000];
/// How many documents there are with a number of tokens that is drawn evenly between these.
const DOCUMENTS: u32 = 100;
const VOCAB: u32 = 50_000;

/// Writes documents of tokens, and a dataset of them.
pub(crate) fn prepare(folder: &Path) {
    let folder = folder.join(FOLDER);
    fs::create_dir(&folder).expect("a folder");
    let mut draw = Draw::new(1, 0, 0);
    let documents: Vec<Vec<u16>> = (0..DOCUMENTS)
        .map(|_| (0..LENGTHS[0] + draw.below(LENGTHS[1] - LENGTHS[0])).map(|_| draw.below(VOCAB) as u16).collect())
        .collect();
    write_megatron(&folder, "text", &documents);
    let store = store(&folder);
    runtime().block_on(async {
        index(&store, &store, &IndexOptions::default(), &|_| {}).await.expect("files are indexed");
    });
}

fn store(folder: &Path) -> DatasetStore {
    DatasetStore::open(folder.to_str().expect("UTF-8")).expect("a folder")
}

/// Takes all batches of a rank whose epoch is one batch: ids, labels and positions.
pub(crate) fn feed(folder: &Path, batches: u64) {
    let store = store(&folder.join(FOLDER));
    let text = |sequences: u64| {
        format!(
            "name = \"gate\"\ndataset = \"{}\"\nseed = 1\nglobal_batch = {sequences}\nepochs = {batches}\n\
             sequence = {{ seq_len = {SEQ_LEN} }}\n\
             column = [{{ name = \"tokens\", from = \"tokens\", decode = \"tokens\", vocab = {VOCAB} }},\n\
             {{ name = \"labels\", decode = \"labels\", follows = \"tokens\" }},\n\
             {{ name = \"positions\", decode = \"positions\", follows = \"tokens\" }}]\n",
            store.url()
        )
    };
    let parse = |sequences| JobFile::parse(&text(sequences), "gate").expect("a valid job");
    let keys = parse(1).sequence_keys().expect("valid keys").expect("a job of sequences");
    let request = SequenceRequest {
        from: vec!["tokens".to_owned()],
        params: keys.params(),
        pool_tokens: keys.pool_tokens,
        view: None,
        unread_allowed: 0,
        count: Arc::new(count_tokens),
        loss: None,
    };
    let (manifest, EvaluatedSequences { made, table, .. }) = runtime().block_on(async {
        let manifest = store.manifest().await.expect("a manifest");
        let evaluated = evaluate_sequences(&store, &manifest, request, &|_| ()).await.expect("documents are packed");
        (manifest, evaluated)
    });
    let mut file = parse(table.fill().sequences);
    file.sequence.as_mut().expect("a job of sequences").pools = Some(made.fingerprint);
    let job = file.freeze(&JobSamples::Sequences(table).facts(&manifest)).expect("a valid job");
    let stores = StoreAccess { sequences: vec![made], ..StoreAccess::default() };
    take_all(job, Access { stores, ..Access::default() });
}
