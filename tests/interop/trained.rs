//! Trains on datasets of other programs' formats, end to end: from a disk and from S3, at several world sizes, with a worker
//! that is killed, and with one receipt.

use std::{fs, path::Path};

use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, ctl, run, sum},
    s3::S3Server,
};

/// Trains a job with these columns on the indexed dataset in `folder`, which has `samples`, and on its copy on a server.
pub(crate) async fn trains_end_to_end(folder: &Path, samples: u64, columns: &str) {
    let server = S3Server::start();
    let environment: Vec<(String, String)> =
        server.environment().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let url = server.upload(folder, "theirs").await;
    train_on(&[("disk", folder.display().to_string()), ("s3", url)], &environment, samples, columns);
    server.clear().await;
}

/// Trains a job with these columns on each of `datasets`, which have names and are copies of one with `samples`.
/// Everything that is delivered has one receipt and one content.
pub(crate) fn train_on(datasets: &[(&str, String)], environment: &[(String, String)], samples: u64, columns: &str) {
    let jobs = tempfile::tempdir().expect("a temporary folder");
    let mut expected = None;
    for (name, dataset) in datasets {
        let job = jobs.path().join(format!("{name}.toml"));
        let text = format!(
            "name = {name:?}\ndataset = {dataset:?}\nseed = 9\nglobal_batch = 8\nepochs = 2\nbad_samples = \"fail\"\n{columns}"
        );
        fs::write(&job, text).expect("a file");
        let replay =
            run(ctl().arg("replay").arg(&job).args(["--all", "--json"]).envs(environment.iter().cloned())).json();
        assert_eq!(replay["samples"], 2 * (samples / 8) * 8, "{replay}");
        let digests = (replay["receipt"].clone(), replay["content_digest"].clone());
        assert_eq!(expected.get_or_insert_with(|| digests.clone()), &digests, "{name}");
        let (receipt, content) = (digests.0.as_str().expect("a receipt"), digests.1.as_str().expect("a digest"));

        let mut cluster = Cluster::start_with(1, &[], environment.to_vec());
        cluster.submit(&job);
        for (world, node) in [(1, "node-0"), (2, "elsewhere"), (4, "node-0")] {
            let reports = cluster.pull_all(name, world, &[node], &["--from", "0:0"]);
            assert_eq!((&*sum(&reports, "receipt"), &*sum(&reports, "content_digest")), (receipt, content), "{world}");
        }
        let mut reports: Vec<Value> = cluster.pull_all(name, 2, &["node-0"], &["--steps", "2", "--from", "0:0"]);
        assert_eq!(reports[0]["position"], "0:16");
        cluster.workers[0].process.kill();
        cluster.restart_worker(0);
        reports.extend(cluster.pull_all(name, 4, &["node-0", "elsewhere"], &["--from", "0:16"]));
        assert_eq!((&*sum(&reports, "receipt"), &*sum(&reports, "content_digest")), (receipt, content), "killed");
    }
}
