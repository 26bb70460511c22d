//! Jobs whose samples are sequences of tokens: every way of delivery has the same ones, also at other world sizes and after
//! processes were killed; and tables of sequences that are away or another's.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, ServerProcess, TestDataset, ctl, run, undisturbed},
    tokens::write_megatron,
};

use super::deliveries::{assert_delivered, assert_the_same_at_8_then_6_then_8_ranks, digests, replay, replay_all};

/// Tokens of a sequence.
pub(super) const SEQ_LEN: usize = 256;
/// Documents of the dataset.
const DOCUMENTS: usize = 420;
/// The keys of a job whose epochs have several pools.
const TWO_EPOCHS: &str = "epochs = 2\nepoch_end = \"exact\"";

/// Returns the tokens of a document: none of some, and of others more than a sequence has. None is the padding, 0.
pub(super) fn document(number: usize) -> Vec<u16> {
    let length = match number {
        _ if number % 13 == 5 => 0,
        _ if number % 29 == 7 => 1000 + number,
        _ => number * number * 397 % 300,
    };
    (0..length).map(|place| 1 + ((number * 31 + place * 7) % 9000) as u16).collect()
}

/// Indexes two of Megatron's pairs with these documents, in small blocks.
pub(super) fn dataset(documents: impl Iterator<Item = usize>) -> TestDataset {
    let dataset = TestDataset { folder: tempfile::tempdir().unwrap() };
    let folder = dataset.path("dataset");
    fs::create_dir(&folder).unwrap();
    let documents: Vec<Vec<u16>> = documents.map(document).collect();
    let (first, second) = documents.split_at(documents.len() / 3);
    write_megatron(&folder, "a_text", first);
    write_megatron(&folder, "b_text", second);
    let report = run(ctl().arg("index").arg(&folder).args(["--block-size", "2KiB", "--json"])).json();
    assert_eq!(report["samples"].as_u64(), Some(documents.len() as u64), "{report}");
    dataset
}

/// Writes a job file with sequences, and all columns that follow the tokens.
fn job_file(dataset: &TestDataset, name: &str, keys: &str, sequence: &str) -> PathBuf {
    let folder = dataset.path("dataset");
    let text = format!(
        r#"
            name = "{name}"
            dataset = {folder:?}
            seed = 5
            global_batch = 24
            {keys}
            sequence = {{ seq_len = {SEQ_LEN}, pool_tokens = 12000, {sequence} }}
            column = [
                {{ name = "tokens", from = "tokens", decode = "tokens", vocab = 9001 }},
                {{ name = "labels", decode = "labels", follows = "tokens" }},
                {{ name = "positions", decode = "positions", follows = "tokens" }},
                {{ name = "lengths", decode = "document_lengths", follows = "tokens" }},
                {{ name = "document_ids", decode = "document_ids", follows = "tokens" }},
            ]
        "#
    );
    let path = dataset.path(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    path
}

/// Returns the path of the one table of sequences in a dataset's folder, and its fingerprint.
fn table(dataset: &TestDataset) -> (PathBuf, String) {
    let names = fs::read_dir(dataset.path("dataset/.spdl")).unwrap().map(|entry| entry.unwrap().path());
    let tables: Vec<_> = names.filter(|path| path.to_str().unwrap().contains("/sequences-")).collect();
    let [table] = &tables[..] else { panic!("{tables:?}") };
    let name = table.file_stem().unwrap().to_str().unwrap();
    (table.clone(), name.strip_prefix("sequences-").unwrap().to_owned())
}

#[test]
fn sequences_have_one_receipt_and_one_content_at_each_world_in_every_way() {
    let dataset = dataset(0..DOCUMENTS);
    let job = job_file(&dataset, "packed", TWO_EPOCHS, "eos = 9000");
    let alone = replay_all(&job, &[]);
    let sequences = alone["samples"].as_u64().unwrap() / 2;
    assert!(sequences > 200, "{alone}");

    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let plan = run(ctl().arg("plan").arg(&job).arg("--json")).json();
    let (planned, status) = (&plan["sequences"], run(&mut cluster.ctl("admin", ["status", "--json"])).json());
    let job_status = &status["jobs"][0];
    assert_eq!(job_status["samples"], planned["sequences"]);
    for field in ["tokens", "padding", "documents"] {
        assert_eq!(job_status["sequence"][field], planned[field], "{field}: {status}");
    }
    let text = run(&mut cluster.ctl("admin", ["status"])).stdout;
    for part in [" SEQ/S ", &format!("2 epochs of {sequences} sequences"), "sequences of 256 tokens, "] {
        assert!(text.contains(part) && !text.contains("sample"), "`{part}` is not in {text}");
    }
    // Submitting it again finds the table, and writes no other one.
    cluster.submit(&job);
    table(&dataset);
    let worlds = [(1, &["node-0"][..]), (2, &["node-0"]), (3, &["elsewhere"]), (3, &["node-0", "elsewhere"])];
    assert_delivered(&cluster, "packed", &alone, &worlds);
    let audit = run(cluster.ctl("admin", ["audit", "--run", "packed", "--json"]).env("SPDL_NODE", "elsewhere")).json();
    assert_eq!(audit["equal"], true, "{audit}");
    let keys = dataset.path("keys.txt");
    fs::write(&keys, "0\n").unwrap();
    run(cluster.ctl("admin", ["job", "redact", "packed"]).arg("--keys").arg(&keys))
        .error(&["`redactions` are not for a job with `sequence`", "make a `view` without these documents"]);

    // One batch in the middle of the second epoch, from its position alone.
    let from = format!("1:{}", sequences / 48 * 24);
    let pulled = cluster.pull_all("packed", 2, &["node-0", "elsewhere"], &["--from", &from, "--steps", "1"]);
    let replayed = replay(&job, &["--from", &from, "--steps", "1"]);
    assert_eq!(digests(&pulled), digests(&[replayed]), "{from}");
}

#[test]
fn sequences_are_the_same_at_8_then_6_then_8_ranks_with_kills_in_between() {
    let dataset = dataset(0..DOCUMENTS);
    let job = job_file(&dataset, "resized", TWO_EPOCHS, "align = 1, long = \"truncate\"");
    assert_the_same_at_8_then_6_then_8_ranks(&job, ["4", "5"]);
}

#[test]
fn workers_and_a_coordinator_killed_in_the_middle_of_an_epoch_change_no_sequence() {
    let dataset = dataset(0..DOCUMENTS);
    let job = job_file(&dataset, "killed", "epochs = 1000000", "method = \"chunk\", eos = 9000");
    let mut cluster = Cluster::start(2);
    cluster.submit(&job);
    let args = ["--from", "0:0", "--rate", "150", "--progress"];
    let pull = |(rank, node)| ServerProcess::spawn(&mut cluster.pull("killed", rank, 2, node, &args));
    let mut ranks = [(0, "node-0"), (1, "elsewhere")].map(pull);
    let mut seen = [0; 2];
    for life in 0..4 {
        // More than all slots hold, so that some were made after the last kill.
        for (rank, seen) in ranks.iter_mut().zip(&mut seen) {
            *seen = rank.progress_to(*seen + 120);
        }
        if life == 1 {
            cluster.coordinator.as_mut().unwrap().kill();
        }
        let worker = life % 2;
        cluster.workers[worker].process.kill();
        if life == 1 {
            cluster.start_coordinator();
        }
        cluster.restart_worker(worker);
    }
    for (number, mut rank) in ranks.into_iter().enumerate() {
        rank.progress_to(seen[number] + 120);
        rank.signal(Signal::TERM);
        let mut rest = String::new();
        rank.output.read_to_string(&mut rest).unwrap();
        assert!(!rank.wait().success(), "a rank that was asked to end fails");
        let report: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
        let samples = report["samples"].as_u64().unwrap();
        let alone = undisturbed(&job, samples / 12, &["--rank", &number.to_string(), "--world", "2"]);
        for field in ["samples", "receipt", "content_digest", "position", "state"] {
            assert_eq!(report[field], alone[field], "{field} of rank {number}");
        }
    }
}

/// Returns the numbers of a NumPy array, and its dimensions as NumPy writes them.
pub(super) fn array<const N: usize>(path: &Path) -> Vec<[u8; N]> {
    let file = fs::read(path).unwrap();
    let elements = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    file[elements..].as_chunks::<N>().0.to_vec()
}

#[test]
fn an_exact_evaluation_has_every_token_once_in_the_order_of_the_dataset() {
    let dataset = dataset(0..DOCUMENTS);
    let keys = "epochs = 1\nshuffle = false\nepoch_end = \"exact\"";
    let job = job_file(&dataset, "evaluation", keys, "align = 16");
    let folder = dataset.path("batches");
    let alone = replay_all(&job, &["--out", folder.to_str().unwrap()]);
    let plan = run(ctl().arg("plan").arg(&job).arg("--json")).json();
    assert_eq!(alone["samples"], plan["sequences"]["sequences"], "{plan}");
    let text = run(ctl().arg("replay").arg(&job)).stdout;
    assert!(
        text.starts_with("24 sequences in 1 batch, ") && text.contains(" tokens/s since the first batch"),
        "{text}"
    );
    assert!(!text.contains("sample") && !text.contains("image"), "{text}");

    let mut left = BTreeMap::<Vec<u16>, usize>::new();
    for number in 0..DOCUMENTS {
        document(number).chunks(SEQ_LEN).for_each(|piece| *left.entry(piece.to_vec()).or_default() += 1);
    }
    let (mut steps, mut learned): (Vec<_>, _) =
        (fs::read_dir(&folder).unwrap().map(|step| step.unwrap().path()).collect(), 0);
    steps.sort();
    for step in steps {
        let tokens: Vec<u16> =
            array(&step.join("tokens.npy")).into_iter().map(|token| i32::from_le_bytes(token) as u16).collect();
        let ids: Vec<i32> = array(&step.join("document_ids.npy")).into_iter().map(i32::from_le_bytes).collect();
        let labels: Vec<i64> = array(&step.join("labels.npy")).into_iter().map(i64::from_le_bytes).collect();
        learned += labels.iter().filter(|label| **label != -100).count();
        for (tokens, ids) in tokens.chunks(SEQ_LEN).zip(ids.chunks(SEQ_LEN)) {
            let mut at = 0;
            for of_document in ids.chunk_by(|a, b| a == b) {
                let places = &tokens[at..at + of_document.len()];
                at += of_document.len();
                let piece: Vec<u16> = places.iter().copied().filter(|token| *token != 0).collect();
                if of_document[0] == -1 {
                    assert!(piece.is_empty(), "{piece:?} is of no document");
                    continue;
                }
                assert_eq!(places[..piece.len()], piece, "padding comes last");
                let count = left.get_mut(&piece).unwrap_or_else(|| panic!("no document has {piece:?}"));
                *count -= 1;
                if *count == 0 {
                    left.remove(&piece);
                }
            }
        }
    }
    assert!(left.is_empty(), "{} pieces are missing", left.len());
    // Of each document that has tokens, all but the first.
    let all: usize = (0..DOCUMENTS).map(|number| document(number).len().saturating_sub(1)).sum();
    assert_eq!(learned, all);

    let cluster = Cluster::start(1);
    cluster.submit(&job);
    assert_delivered(&cluster, "evaluation", &alone, &[(1, &["node-0"]), (2, &["elsewhere"]), (3, &["node-0"])]);
}

#[test]
fn a_table_that_is_away_or_another_is_refused_in_one_line_wherever_it_is_read() {
    let ours = dataset(0..DOCUMENTS);
    let theirs = dataset(100..300);
    let cluster = Cluster::start(1);
    let job = job_file(&ours, "ours", "", "align = 1");
    cluster.submit(&job);
    let (path, pools) = table(&ours);
    let one_line = |mut command: std::process::Command, parts: &[&str]| {
        let finished = run(&mut command);
        let text = finished.error(parts);
        let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{text}");
    };
    let submit = |name: &str, pools: &str| {
        let job = job_file(&ours, name, "", &format!("align = 1, pools = \"{pools}\""));
        let mut command = cluster.ctl("admin", ["job", "submit"]);
        command.arg(job).arg("--json");
        command
    };
    // The fingerprint that was noted is that of the table, and of no other.
    run(&mut submit("noted", &pools)).json();

    // Another dataset's table in this folder, by its own name and by that of ours.
    cluster.submit(&job_file(&theirs, "theirs", "", "align = 1"));
    let (their_path, their_pools) = table(&theirs);
    let file = fs::read(&path).unwrap();
    let copied = path.with_file_name(their_path.file_name().unwrap());
    fs::copy(&their_path, &copied).unwrap();
    let name = copied.file_name().unwrap().to_str().unwrap().to_owned();
    one_line(submit("other", &their_pools), &[&name, "is of another dataset"]);
    fs::remove_file(&copied).unwrap();
    one_line(submit("away", &their_pools), &[&name]);

    let ours_name = path.file_name().unwrap().to_str().unwrap().to_owned();
    for (content, problem) in [
        (None, "does not exist"),
        (Some(fs::read(&their_path).unwrap()), "its fingerprint is"),
        (Some(file[..99].to_vec()), "is cut off: 99 bytes of "),
        (Some(file[..file.len() - 1].to_vec()), "is cut off: "),
        (Some([&file[..60], &[file[60] ^ 1], &file[61..]].concat()), "its checksum does not match"),
    ] {
        match &content {
            None => fs::remove_file(&path).unwrap(),
            Some(content) => fs::write(&path, content).unwrap(),
        }
        one_line(submit("refused", &pools), &[&ours_name, problem]);
        one_line(cluster.pull("ours", 0, 1, "node-0", &["--steps", "1"]), &[&ours_name, problem]);
    }
    // The lengths of documents are read when the pool is used.
    let mut other_length = file.clone();
    let first_length = 112 + 16 * u32::from_le_bytes(*file[40..].first_chunk().unwrap()) as usize;
    other_length[first_length..].iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(&path, other_length).unwrap();
    one_line(cluster.pull("ours", 0, 1, "node-0", &["--steps", "1"]), &[&ours_name, "its checksum does not match"]);
    // The worker has opened the table, and then it is cut off.
    for bytes in [first_length + 7, first_length - 1] {
        fs::write(&path, &file[..bytes]).unwrap();
        one_line(cluster.pull("ours", 0, 1, "node-0", &["--steps", "1"]), &[&ours_name]);
    }
    // Submitting the job without the fingerprint packs again, and writes the table where it was.
    cluster.submit(&job);
    assert_eq!(fs::read(&path).unwrap(), file);
    let pulled = cluster.pull_all("ours", 1, &["node-0"], &["--from", "0:0", "--steps", "2"]);
    assert_eq!(digests(&pulled), digests(&[replay(&job, &["--steps", "2"])]));
}

/// Returns a NumPy file of 32-bit tokens.
fn npy(tokens: &[u32]) -> Vec<u8> {
    let mut header = format!("{{'descr': '<u4', 'fortran_order': False, 'shape': ({},), }}", tokens.len());
    while (10 + header.len() + 1) % 64 > 0 {
        header.push(' ');
    }
    header.push('\n');
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    let tokens = tokens.iter().flat_map(|token| token.to_le_bytes());
    [&b"\x93NUMPY\x01\0"[..], &length, header.as_bytes()].concat().into_iter().chain(tokens).collect()
}

#[test]
fn documents_that_cannot_be_read_are_counted_among_those_of_the_view() {
    // A tenth is in the view, 40 documents, of which 5 are damaged.
    let dataset = TestDataset::of_keys((0..400_u32).map(|number| {
        let value = if number % 80 == 0 { b"damaged".repeat(9) } else { npy(&[number + 1; 40]) };
        (format!("{number:04}"), value, u32::from(number % 10 == 0).to_string())
    }));
    let job = |fraction: &str| {
        let text = format!(
            "name = \"tenth\"\ndataset = {:?}\nglobal_batch = 2\nmax_bad_fraction = {fraction}\nview = {{ where = \"cls == 1\" }}\n\
             sequence = {{ seq_len = 64, align = 1 }}\n[[column]]\nname = \"tokens\"\nfrom = \"jpg\"\ndecode = \"tokens\"",
            dataset.path("dataset")
        );
        let path = dataset.path("tenth.toml");
        fs::write(&path, text).unwrap();
        let mut plan = ctl();
        plan.arg("plan").arg(path);
        run(&mut plan)
    };
    let refused = job("0.05");
    refused.error(&["field `jpg`: it begins with ", "the packing leaves out 2 such records, and no more"]);
    let planned = job("0.2");
    assert!(planned.stderr.contains("5 documents are left out, which cannot be read"), "{}", planned.stderr);
    assert!(planned.stdout.contains("1 400 tokens of 35 documents in an epoch"), "{}", planned.stdout);
}
