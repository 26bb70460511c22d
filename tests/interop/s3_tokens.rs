//! Text on S3 is tokenized in parts into a dataset on S3, with the same documents in the same order as on a local disk.

use std::fs;

use spdl_testkit::{
    processes::{ctl, run},
    s3::S3Server,
};

use super::s3_job::ctl_for;

const OPTIONS: [&str; 8] = ["--tokenizer", "", "--unit-size", "2KiB", "--shard-size", "4KiB", "--name", "text"];

#[tokio::test]
async fn text_on_s3_becomes_the_tokens_that_it_becomes_on_disk() {
    let server = S3Server::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(path("text")).unwrap();
    for file in 0..4 {
        let line = |number: u32| {
            format!("{{\"text\": \"document {number} of file {file}: {}\"}}\n", "é漢 ".repeat(number as usize % 9))
        };
        fs::write(path(&format!("text/{file}.jsonl")), (0..60).map(line).collect::<String>()).unwrap();
    }
    let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/text/tests/data/tokenizer.json");
    let options = OPTIONS.map(|option| if option.is_empty() { tokenizer } else { option });
    let local = run(ctl().args(["tokenize", &path("text"), &path("local")]).args(options).arg("--json")).json();
    let (text, out) = (server.upload(&folder.path().join("text"), "text").await, server.url("tokens"));
    for part in ["1/2", "0/2"] {
        run(ctl_for(&server).args(["tokenize", &text, &out, "--part", part]).args(options));
    }
    let stored = run(ctl_for(&server).args(["merge", &out, "--json"])).json();
    for figure in ["records", "tokens", "shards", "fingerprint"] {
        assert_eq!(stored[figure], local[figure], "{figure}");
    }
    assert!(local["shards"].as_u64().unwrap() > 2 && local["records"] == 240);
    let mut digests = Vec::new();
    for (name, dataset) in [("disk", path("local")), ("s3", out.clone())] {
        let job = path(&format!("{name}.toml"));
        let column = "[[column]]\nname = \"tokens\"\nfrom = \"tokens\"\ndecode = \"tokens\"\nvocab = 1000\n";
        let sequence = "[sequence]\nseq_len = 64\n";
        fs::write(
            &job,
            format!("name = \"t\"\ndataset = {dataset:?}\nglobal_batch = 4\nepochs = 1\n{sequence}{column}"),
        )
        .unwrap();
        let report = run(ctl_for(&server).arg("replay").arg(&job).args(["--all", "--json"])).json();
        digests.push((report["receipt"].clone(), report["content_digest"].clone()));
    }
    assert_eq!(digests[0], digests[1]);
    run(ctl_for(&server).args(["tokenize", &text, &out]).args(options)).error(&["exists already"]);
    server.clear().await;
}
