//! Measures sequences of tokens from files in the page cache to their slots, in tokens per second of CPU time of the whole process, beside
//! a bare copy of as many ids of 16 bits to 32; or how long many short documents take to be indexed, and to the first batch.
//!
//! `cargo bench --bench tokens [-- --tokens N] [--length N] [--seq-len N] [--rounds N] | [-- --documents N]`
//!
//! Documents have `--length / 8` to `--length * 4` tokens. With `--documents`, they have 20 each, all of them 0 in a file without data.

mod arguments;

use std::{
    fs::{self, File},
    hint::black_box,
    io::{BufWriter, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use spdl_cli::local::{self, LocalLoader};
use spdl_dataset::{IndexOptions, index};
use spdl_job::JobFile;
use spdl_shard::{format::megatron::IdxHeader, store::DatasetStore};
use spdl_testkit::tokens::write_megatron;
use spdl_types::{DType, Draw};
use spdl_worker::budget::Budget;

/// Ids are below it.
const VOCAB: u32 = 50_257;
/// Tokens of a batch.
const BATCH_TOKENS: u64 = 256 << 10;
/// Tokens of each document with `--documents`.
const SHORT: u64 = 20;
const TOKENS: &str = "{ name = \"tokens\", from = \"tokens\", decode = \"tokens\", vocab = 50257 }";
const LABELS: &str = "{ name = \"labels\", decode = \"labels\", follows = \"tokens\" }";
const POSITIONS: &str = "{ name = \"positions\", decode = \"positions\", follows = \"tokens\" }";

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().expect("below a second"))
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    if !arguments::request_stats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    match arguments::number("--documents", 0) {
        0 => throughput(folder.path()).await,
        documents => start(folder.path(), documents).await,
    }
}

/// Writes the `.idx` of documents of so many tokens each.
fn write_idx(folder: &Path, documents: u64, tokens: u64) {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(folder.join("text.idx")).expect("a file"));
    let mut put = |bytes: &[u8]| file.write_all(bytes).expect("room");
    put(&IdxHeader { dtype: DType::U16, sequences: documents, entries: documents + 1, has_modes: false }.to_bytes());
    (0..documents).for_each(|_| put(&(tokens as i32).to_le_bytes()));
    (0..documents).for_each(|document| put(&(document * tokens * 2).to_le_bytes()));
    (0..=documents).for_each(|document| put(&document.to_le_bytes()));
}

async fn index_folder(folder: &Path) -> DatasetStore {
    let store = DatasetStore::open(folder.to_str().expect("UTF-8")).expect("a folder");
    index(&store, &store, &IndexOptions::default(), &|_| {}).await.expect("files are indexed");
    store
}

async fn open(folder: &Path, columns: &str, seq_len: u64, memory_bytes: u64) -> LocalLoader {
    let text = format!(
        "name = \"bench\"\ndataset = \"{}\"\nglobal_batch = {}\nepochs = 1000000\nsequence = {{ seq_len = {seq_len} }}\n\
         column = [{columns}]\n",
        folder.display(),
        BATCH_TOKENS / seq_len
    );
    let job = JobFile::parse(&text, "bench").expect("a valid job");
    local::builder(job).budget(Budget { cores: 1.0, memory_bytes, disk: None }).open().await.expect("a good dataset")
}

async fn throughput(folder: &Path) {
    let (tokens, length) = (arguments::number("--tokens", 64 << 20), arguments::number("--length", 2048));
    let (seq_len, rounds) = (arguments::number("--seq-len", 8192), arguments::number("--rounds", 3));
    let mut draw = Draw::new(17, 0, 0);
    let (mut documents, mut all) = (Vec::<Vec<u16>>::new(), 0);
    while all < tokens {
        // As even in the logarithm as those of code.
        let length = (length as f64 / 8.0 * 32_f64.powf(draw.unit())) as u64 + 1;
        documents.push((0..length).map(|_| draw.below(VOCAB) as u16).collect());
        all += length;
    }
    write_megatron(folder, "text", &documents);
    let (documents, ids) = (documents.len() as u64, fs::read(folder.join("text.bin")).expect("a file"));
    index_folder(folder).await;
    println!("{all} tokens, {documents} documents of {} on average, sequences of {seq_len}", all / documents);
    for (memory, memory_bytes) in [("all blocks in memory", 1 << 30), ("blocks read for one use", 64 << 20)] {
        for (name, columns) in [
            ("tokens", TOKENS.to_owned()),
            ("tokens, labels", [TOKENS, LABELS].join(", ")),
            ("tokens, labels, positions", [TOKENS, LABELS, POSITIONS].join(", ")),
        ] {
            let mut loader = open(folder, &columns, seq_len, memory_bytes).await;
            // In the first epoch, blocks come into memory.
            while next(&mut loader).await.0 == 0 {}
            for _ in 0..rounds {
                let before = bare(&ids);
                let feed = feed(&mut loader, tokens, seq_len).await;
                let bare = f64::midpoint(before, bare(&ids));
                println!(
                    "{memory:24} {name:26} {:5.0} M tokens/s, bare copy {:5.0}, ratio {:.2}",
                    feed / 1e6,
                    bare / 1e6,
                    feed / bare
                );
            }
        }
    }
}

/// Takes a batch; returns its epoch and the number of its sequences.
async fn next(loader: &mut LocalLoader) -> (u64, u64) {
    let batch = loader.next().await.expect("a good dataset").expect("epochs without end");
    (batch.from().epoch, batch.len() as u64)
}

/// Takes batches with at least so many places for tokens; returns how many are filled in a second of CPU time.
async fn feed(loader: &mut LocalLoader, tokens: u64, seq_len: u64) -> f64 {
    let (before, mut places) = (cpu_time(), 0);
    while places < tokens {
        places += next(loader).await.1 * seq_len;
    }
    places as f64 / (cpu_time() - before).as_secs_f64()
}

/// Copies all ids to numbers of 32 bits, into memory for four batches; returns how many a second of CPU time takes.
fn bare(ids: &[u8]) -> f64 {
    let batch = BATCH_TOKENS as usize;
    let mut slots = vec![1_i32; 4 * batch];
    let before = cpu_time();
    for (number, ids) in ids.chunks(2 * batch).enumerate() {
        let slot = &mut slots[number % 4 * batch..][..batch];
        for (place, id) in slot.iter_mut().zip(ids.as_chunks::<2>().0) {
            *place = i32::from(u16::from_le_bytes(*id));
        }
        black_box(slot);
    }
    (ids.len() / 2) as f64 / (cpu_time() - before).as_secs_f64()
}

/// Returns the largest memory of the process in MB since the last call.
fn peak_mb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    fs::write("/proc/self/clear_refs", "5").expect("Linux");
    peak.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024 / 1_000_000
}

async fn start(folder: &Path, documents: u64) {
    File::create(folder.join("text.bin")).and_then(|file| file.set_len(documents * SHORT * 2)).expect("a file");
    write_idx(folder, documents, SHORT);
    println!("{documents} documents of {SHORT} tokens");
    let step = |name: &str, began: Instant, cpu: Duration| {
        let (seconds, cpu_s) = (began.elapsed().as_secs_f64(), (cpu_time() - cpu).as_secs_f64());
        println!("{name:24} {seconds:6.2} s, {cpu_s:6.2} s of CPU time, {} MB at most", peak_mb());
    };
    peak_mb();
    let (began, cpu) = (Instant::now(), cpu_time());
    index_folder(folder).await;
    step("index", began, cpu);
    // With another field that might have the ids, lengths are kept beside the manifest, as those are that no index knows.
    let kept = TOKENS.replace("from = \"tokens\"", "from = \"ids|tokens\"");
    for (name, column) in [("start to first batch", TOKENS), ("the same again", TOKENS), ("lengths kept", &kept)] {
        let (began, cpu) = (Instant::now(), cpu_time());
        next(&mut open(folder, column, 8192, 256 << 20).await).await;
        step(name, began, cpu);
    }
}
