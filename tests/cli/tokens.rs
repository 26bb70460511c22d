//! `pack --to megatron` in real processes: one is killed, one finds the disk full, and one packs from a bucket into a bucket.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use object_store::ObjectStoreExt;
use spdl_testkit::{
    processes::{ServerProcess, ctl, run},
    s3::S3Server,
    stored::contents,
    tokens::write_megatron,
};

/// The largest file that a command may write, in units of 512 bytes.
const LIMIT: u64 = 2048;

/// Writes a dataset of tokens, of which the last document is longer than the largest file.
fn write_source(folder: &Path, documents: usize) {
    fs::create_dir_all(folder).expect("a folder");
    let length = |number: usize| if number + 1 == documents { 600_000 } else { number * 997 % 30_000 };
    let document = |number: usize| (0..length(number)).map(|place| ((number * 31 + place) % 50_000) as u16).collect();
    write_megatron(folder, "all", &(0..documents).map(document).collect::<Vec<_>>());
    run(ctl().arg("index").arg(folder).arg("--json")).json();
}

fn pack(from: impl AsRef<std::ffi::OsStr>, to: impl AsRef<std::ffi::OsStr>, options: &[&str]) -> Command {
    let mut command = ctl();
    command.arg("pack").arg(from).arg(to).args(["--to", "megatron", "--vocab", "50000", "--shard-size", "300KB"]);
    command.args(["--name", "corpus", "--json"]).args(options);
    command
}

/// Asserts that each index that is there has its tokens, and that nothing looks like a dataset.
fn is_begun(folder: &Path, expected: &Path) {
    let (left, expected) = (contents(folder), contents(expected));
    assert!(left.contains_key(".spdl/unfinished.spdl") && !left.contains_key(".spdl/manifest.spdl"));
    let pairs = left.keys().filter(|name| name.ends_with(".idx") && !name.starts_with(".spdl/"));
    for idx in pairs {
        assert_eq!(left[idx], expected[idx]);
        let bin = idx.replace(".idx", ".bin");
        assert_eq!(left[&bin], expected[&bin]);
    }
}

#[test]
fn a_packing_of_tokens_that_is_killed_or_finds_the_disk_full_leaves_no_dataset_and_the_next_one_cleans_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    write_source(&path("source"), 60);
    for (name, options) in [("in-order", &["--no-shuffle"][..]), ("shuffled", &[])] {
        let (expected, set) = (path(&format!("{name}-expected")), path(name));
        let report = run(&mut pack(path("source"), &expected, options)).json();
        assert_eq!((&report["records"], report["shards"].as_u64() > Some(5)), (&60.into(), true), "{report}");
        let limited = |before: &str| {
            let command = pack(path("source"), &set, options);
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("{before} ulimit -f {LIMIT}; exec \"$@\"")).arg("sh");
            shell.arg(command.get_program()).args(command.get_args());
            shell
        };
        // With SIGXFSZ ignored, a write fails with EFBIG, as on a full disk.
        run(&mut limited("trap '' XFSZ;")).error(&["File too large"]);
        assert!(!set.exists(), "nothing of it is left");
        // Without that, the kernel kills the process, which then cannot clean up.
        let killed = run(&mut limited(""));
        assert_eq!(killed.status.signal(), Some(rustix::process::Signal::XFSZ.as_raw()), "{}", killed.stderr);
        is_begun(&set, &expected);
        run(&mut pack(path("source"), &set, options)).error(&["was begun and is not finished", "--force"]);
        let again = run(&mut pack(path("source"), &set, &[options, &["--force"]].concat())).json();
        assert_eq!(again["fingerprint"], report["fingerprint"]);
        assert_eq!(contents(&set), contents(&expected));
    }
}

#[test]
fn a_packing_of_tokens_that_is_killed_at_any_time_leaves_whole_pairs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    write_source(&path("source"), 400);
    run(&mut pack(path("source"), path("expected"), &["--no-shuffle"])).json();
    let mut begun = 0;
    for (number, pairs) in [0, 3, 9].into_iter().enumerate() {
        let set = path(&format!("set-{number}"));
        let mut packing = ServerProcess::spawn(
            pack(path("source"), &set, &["--no-shuffle"]).stderr(Stdio::null()).stdin(Stdio::null()),
        );
        let idx = set.join(format!("shard-{pairs:06}.idx"));
        while !idx.exists() && !set.join(".spdl/manifest.spdl").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        packing.kill();
        if !set.join(".spdl/manifest.spdl").exists() {
            begun += 1;
            is_begun(&set, &path("expected"));
            run(&mut pack(path("source"), &set, &["--no-shuffle", "--force"])).json();
        }
        assert_eq!(contents(&set), contents(&path("expected")));
    }
    assert!(begun > 0, "all were faster than the test");
}

#[tokio::test]
async fn tokens_of_a_bucket_are_packed_into_a_bucket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    write_source(&path("source"), 60);
    run(&mut pack(path("source"), path("expected"), &[])).json();
    let server = S3Server::start();
    let (from, to) = (server.upload(&path("source"), "source").await, server.url("set"));
    let report = run(pack(&from, &to, &[]).envs(server.environment())).json();
    assert_eq!(report["records"], 60);
    let mut found = std::collections::BTreeMap::new();
    for key in server.keys("set").await {
        let bytes = server.client().get(&key).await.expect("an object").bytes().await.expect("its bytes");
        found.insert(key.to_string().rsplit_once("/set/").expect("a key of the set").1.to_owned(), bytes.to_vec());
    }
    // The manifest has the store's etags.
    let is_data = |name: &str| !name.starts_with(".spdl/");
    let expected: Vec<_> = contents(&path("expected")).into_iter().filter(|(name, _)| is_data(name)).collect();
    assert_eq!(
        found
            .iter()
            .filter(|(name, _)| is_data(name))
            .map(|(name, bytes)| (name.clone(), bytes.clone()))
            .collect::<Vec<_>>(),
        expected
    );
    assert!(!found.contains_key(".spdl/unfinished.spdl"));
    let verified = run(ctl().arg("verify").arg(&to).arg("--json").envs(server.environment())).json();
    assert_eq!(verified["faults"], serde_json::json!([]));
    server.clear().await;
}
