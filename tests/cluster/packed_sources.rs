//! Jobs that blend the sequences of several sources: every way of delivery has the same ones, also at other world sizes and after
//! processes were killed, and each sequence has documents of its own source.

use std::{fs, path::PathBuf};

use serde_json::Value;
use spdl_testkit::processes::{Cluster, TestDataset, ctl, run};

use super::{
    deliveries::{assert_delivered, assert_the_same_at_8_then_6_then_8_ranks, digests, replay, replay_all},
    sequences::{SEQ_LEN, array, dataset, document},
};

/// The first of the documents of `code`, whose numbers `web` does not have.
const FIRST_OF_CODE: usize = 500;
const DOCUMENTS: [usize; 2] = [420, 180];

/// Two datasets, and a job file that blends them 70 to 30.
struct TwoTexts {
    web: TestDataset,
    code: TestDataset,
}

impl TwoTexts {
    fn new() -> Self {
        let [of_web, of_code] = DOCUMENTS;
        Self { web: dataset(0..of_web), code: dataset(FIRST_OF_CODE..FIRST_OF_CODE + of_code) }
    }

    fn job_file(&self, name: &str, keys: &str, sequence: &str, tables: &str) -> PathBuf {
        let [web, code] = [&self.web, &self.code].map(|dataset| dataset.path("dataset"));
        let text = format!(
            r#"
                name = "{name}"
                seed = 5
                global_batch = 24
                {keys}
                sequence = {{ seq_len = {SEQ_LEN}, pool_tokens = 12000, {sequence} }}
                column = [
                    {{ name = "tokens", from = "tokens", decode = "tokens", vocab = 9001 }},
                    {{ name = "labels", decode = "labels", follows = "tokens" }},
                    {{ name = "lengths", decode = "document_lengths", follows = "tokens" }},
                ]
                [[source]]
                name = "web"
                dataset = {web:?}
                weight = 0.7
                [[source]]
                name = "code"
                dataset = {code:?}
                weight = 0.3
                {tables}
            "#
        );
        let path = self.web.path(format!("{name}.toml"));
        fs::write(&path, text).unwrap();
        path
    }
}

/// Returns the number of the document that has a key, among those of a dataset with so many.
fn number_of(key: &str, documents: usize) -> usize {
    let (file, number) = key.split_once('/').unwrap();
    let before = if file == "b_text" { documents / 3 } else { 0 };
    before + number.parse::<usize>().unwrap()
}

#[test]
fn sequences_of_sources_have_one_receipt_and_one_content_at_each_world_in_every_way() {
    let texts = TwoTexts::new();
    let job = texts.job_file("blend", "epochs = 2\ntotal_samples = 360", "eos = 9000", "");
    let alone = replay_all(&job, &[]);
    assert_eq!(alone["samples"], 720);

    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let plan = run(ctl().arg("plan").arg(&job).arg("--json")).json();
    let packed = plan["packed_sources"].as_array().unwrap();
    let of = |field: &str| packed.iter().map(|source| source[field].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("documents"), DOCUMENTS.map(|documents| documents as u64));
    assert!(plan["sequences"].is_null() && packed[1]["source"] == "code", "{plan}");
    let text = run(ctl().arg("plan").arg(&job)).stdout;
    for part in
        ["source web: 70.0 % of the sequences, ", "packed code: ", " once through; pools = ", " sequences in an epoch"]
    {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    let worlds = [(1, &["node-0"][..]), (2, &["node-0"]), (3, &["elsewhere"]), (3, &["node-0", "elsewhere"])];
    assert_delivered(&cluster, "blend", &alone, &worlds);
    // The coordinator hears of the last steps with the ranks' last messages.
    let is_told = |status: &Value| {
        let mut runs =
            status["jobs"].as_array().expect("jobs").iter().flat_map(|job| job["runs"].as_array().expect("runs"));
        runs.all(|run| run["ranks_alive"] == 0)
    };
    let status = cluster.wait_for("the end of the ranks", is_told);
    let audit = run(cluster.ctl("admin", ["audit", "--run", "blend", "--json"]).env("SPDL_NODE", "elsewhere")).json();
    assert_eq!(audit["equal"], true, "{audit}");

    let of_job = &status["jobs"][0];
    let given: Vec<_> = of_job["sources"].as_array().unwrap().iter().map(|of| of["samples"].clone()).collect();
    assert_eq!(given, [504, 216]);
    assert_eq!(of_job["sequence"]["documents"], 600);
    // 252 and 108 sequences in an epoch, each with as many tokens as those of its source have on average.
    let mean = |number: usize| of("tokens")[number] as f64 / of("sequences")[number] as f64;
    let expected_tokens = 252.0 * mean(0) + 108.0 * mean(1);
    assert!((of_job["sequence"]["tokens"].as_f64().unwrap() - expected_tokens).abs() < 2.0, "{status}");
    let text = run(&mut cluster.ctl("admin", ["status"])).stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["504 sequences of web, ", "216 sequences of code, ", "sequences of 256 tokens, "] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }

    // One batch in the middle of the second epoch, from its position alone.
    let from = ["--from", "1:192", "--steps", "1"];
    let pulled = cluster.pull_all("blend", 2, &["node-0", "elsewhere"], &from);
    assert_eq!(digests(&pulled), digests(&[replay(&job, &from)]));
}

#[test]
fn the_sequences_of_a_source_have_its_documents_by_their_keys() {
    let texts = TwoTexts::new();
    let job = texts.job_file("keys", "total_samples = 240", "eos = 9000", "");
    let folder = texts.web.path("batches");
    replay(&job, &["--from", "0:96", "--steps", "3", "--out", folder.to_str().unwrap()]);
    let plan = run(ctl().arg("plan").arg(&job).arg("--json")).json();
    let of_web = plan["packed_sources"][0]["sequences"].as_u64().unwrap();
    let (mut pieces, mut of_code) = (0, 0);
    for step in 0..3 {
        let step = folder.join(format!("step-{step:05}"));
        let batch: Value = serde_json::from_slice(&fs::read(step.join("batch.json")).unwrap()).unwrap();
        let tokens: Vec<u16> =
            array(&step.join("tokens.npy")).into_iter().map(|token| i32::from_le_bytes(token) as u16).collect();
        let entries = batch["entries"].as_array().unwrap();
        assert_eq!(entries.len(), 24);
        for (number, (entry, row)) in entries.iter().zip(tokens.chunks(SEQ_LEN)).enumerate() {
            let is_code = entry["id"].as_u64().unwrap() >= of_web;
            of_code += usize::from(is_code);
            let lengths = array(&step.join(format!("lengths-{number:05}.npy"))).into_iter().map(i32::from_le_bytes);
            let lengths: Vec<usize> = lengths.map(|length| length as usize).collect();
            let documents = entry["documents"].as_array().unwrap();
            assert_eq!(documents.len(), lengths.len(), "{entry}");
            let mut at = 0;
            for (name, length) in documents.iter().zip(lengths) {
                let own = number_of(name["key"].as_str().unwrap(), DOCUMENTS[usize::from(is_code)]);
                let all = [document(own + if is_code { FIRST_OF_CODE } else { 0 }), vec![9000]].concat();
                let piece: Vec<u16> = row[at..at + length].iter().copied().filter(|token| *token != 0).collect();
                assert!(all.windows(piece.len()).any(|part| part == piece), "{name} has no {piece:?}");
                (at, pieces) = (at + length, pieces + 1);
            }
        }
    }
    assert!(pieces > 100 && (21..=22).contains(&of_code), "{pieces} pieces, {of_code} sequences of code");
    // The plan knows the same documents without reading any.
    let planned = run(ctl().arg("plan").arg(&job).args(["--from", "96", "--steps", "1", "--ids", "--keys"])).stdout;
    let planned: Value = serde_json::from_str(planned.lines().next().unwrap()).unwrap();
    let batch: Value = serde_json::from_slice(&fs::read(folder.join("step-00000/batch.json")).unwrap()).unwrap();
    let replayed: Vec<_> =
        batch["entries"].as_array().unwrap().iter().map(|entry| entry["documents"].clone()).collect();
    assert_eq!(planned["documents"], Value::from(replayed));
}

#[test]
fn a_blend_of_sequences_is_the_same_at_8_then_6_then_8_ranks_with_kills_and_other_weights_in_between() {
    let texts = TwoTexts::new();
    let stage = "[[stage]]\nfrom = 150\nweights = { web = 1, code = 3 }";
    let keys = "epochs = 2\nepoch_end = \"continuous\"\ncost = \"tokens^2\"\n";
    let job = texts.job_file("resized", &format!("{keys}total_tokens = 80_000"), "align = 1", stage);
    let all = assert_the_same_at_8_then_6_then_8_ranks(&job, ["4", "9"]);
    // 312 sequences of 256 places are 79,872; of two epochs, 26 steps of 24.
    assert_eq!(all["samples"], 624);
}
