//! Mistakes of users and peers: each gets an error that names the subject and suggests a remedy.

use std::{fs, net::UdpSocket};

use spdl_testkit::processes::{Cluster, TestDataset, ctl, run};

#[test]
fn a_tar_that_is_cut_in_the_middle_is_refused_by_name() {
    let dataset = TestDataset::of_pictures(40, 20);
    let shard = fs::read_dir(dataset.path("dataset"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "tar"))
        .unwrap();
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
    let name = shard.file_name().unwrap().to_str().unwrap();

    run(ctl().arg("index").arg(dataset.path("dataset")).arg("--force")).error(&["error:", name]);

    let job = dataset.job("cut", "");
    let verify = run(ctl().arg("verify").arg(dataset.path("dataset")));
    assert!(!verify.status.success() && verify.stdout.contains(name), "{}", verify.stdout);
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    run(&mut cluster.pull("cut", 0, 1, "node-0", &[])).error(&[name, "the manifest has"]);
}

#[test]
fn a_job_whose_dataset_was_replaced_is_refused_with_both_fingerprints() {
    let dataset = TestDataset::of_pictures(40, 20);
    let job = dataset.job("replaced", "");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let frozen = run(&mut cluster.ctl("admin", ["job", "show", "replaced", "--json"])).json();
    let mut pack = ctl();
    pack.arg("pack").arg(dataset.path("pictures")).arg(dataset.path("dataset")).args(["--force", "--seed", "99"]);
    assert!(run(&mut pack).status.success());
    let ours = frozen["dataset_fingerprint"].as_str().unwrap();
    run(&mut cluster.pull("replaced", 0, 1, "node-0", &[])).error(&["fingerprint", ours]);
    run(cluster.ctl("admin", ["job", "submit"]).arg(&job)).error(&["job `replaced`", "fingerprint"]);
}

#[test]
fn a_batch_too_large_for_its_worker_ends_the_trainer_with_the_memory_that_would_be_enough() {
    let dataset = TestDataset::of_pictures(80, 20);
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--memory", "17MiB"]);
    cluster.submit(&dataset.training_job("large", 1));
    let expected = ["a batch for rank 0 of job `large`", "raise its memory budget to "];
    run(&mut cluster.pull("large", 0, 1, "node-0", &[])).error(&expected);
}

#[test]
fn a_job_file_with_an_unknown_key_is_refused_with_its_line() {
    let dataset = TestDataset::of_pictures(10, 20);
    let job = dataset.job("typo", "epoks = 3");
    run(ctl().arg("plan").arg(&job)).error(&["typo.toml", "epoks", "line 5"]);
}

#[test]
fn a_malformed_setting_of_a_store_is_named_and_is_no_panic() {
    for (name, value, expected) in [
        ("AWS_ENDPOINT", "minio:9000", "without a scheme"),
        ("AWS_SECRET_ACCESS_KEY", "one\ntwo", "end of a line"),
        ("AWS_REGION", "us east", "us east"),
    ] {
        let mut verify = ctl();
        verify.args(["verify", "s3://bucket/set"]).env("AWS_ACCESS_KEY_ID", "me").env(name, value);
        let finished = run(&mut verify);
        assert!(!finished.error(&[name, expected, "hint:"]).contains("two"), "{}", finished.stderr);
    }
    // A final newline, as in a Kubernetes Secret, and an empty variable do no harm.
    let unused = "http://127.0.0.1:9\n";
    let mut verify = ctl();
    verify.args(["verify", "s3://bucket/set"]).env("AWS_ENDPOINT", unused).env("AWS_ENDPOINT_URL", "");
    verify.env("AWS_ACCESS_KEY_ID", "me\n").env("AWS_SECRET_ACCESS_KEY", "secret\r\n").env("AWS_REGION", "here\n");
    run(&mut verify).error(&["cannot be reached"]);
}

#[test]
fn a_password_in_a_dataset_s_url_is_refused_by_commands_and_not_shown() {
    let dataset = TestDataset::of_pictures(10, 20);
    let job = dataset.job("secret", "");
    let local = format!("{:?}", dataset.path("dataset"));
    let text = fs::read_to_string(&job).unwrap().replace(&local, "\"https://me:hunter2@host/set\"");
    fs::write(&job, text).unwrap();
    for command in [ctl().arg("plan").arg(&job), ctl().args(["verify", "https://me:hunter2@host/set"])] {
        let finished = run(command);
        assert!(!finished.error(&["https://***@host/set", "NETRC"]).contains("hunter2"), "{}", finished.stderr);
    }
}

#[test]
fn a_dataset_that_is_not_there_is_named() {
    let dataset = TestDataset::of_pictures(10, 20);
    let job = dataset.job("gone", "");
    fs::remove_dir_all(dataset.path("dataset")).unwrap();
    run(ctl().arg("plan").arg(&job)).error(&["dataset` does not exist", "hint:"]);
    let cluster = Cluster::start(0);
    run(cluster.ctl("admin", ["job", "submit"]).arg(&job)).error(&["job `gone`", "dataset` does not exist"]);
}

#[test]
fn a_job_that_was_never_submitted_is_refused_with_the_names_of_all_jobs() {
    let (_dataset, cluster) = Cluster::with_job(0, [10, 20], "known", "epoch_end = \"exact\"");
    run(&mut cluster.pull("unknown", 0, 1, "node-0", &[])).error(&["job `unknown`", "known", "hint:"]);
}

#[test]
fn the_error_for_a_port_without_a_listener_names_it() {
    let cluster = Cluster::start(0);
    // A bound port that never answers; binding it keeps other programs from using it.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut pull = ctl();
    pull.args(["pull", "--coord", &address, "--job", "any", "--rank", "0", "--world", "1", "--timeout", "2"]);
    pull.arg("--certs").arg(cluster.certs("client"));
    run(&mut pull).error(&[&address, "hint:"]);
    run(ctl().args(["status", "--coord", &address, "--certs"]).arg(cluster.certs("admin"))).error(&[&address]);
}

#[test]
fn a_certificate_of_another_cluster_is_refused() {
    let (ours, theirs) = (Cluster::start(0), Cluster::start(0));
    let mut pull = ctl();
    pull.args(["pull", "--coord", &ours.address, "--job", "any", "--rank", "0", "--world", "1", "--timeout", "5"]);
    pull.arg("--certs").arg(theirs.certs("client"));
    run(&mut pull).error(&["certificate", &ours.address]);
}

#[test]
fn a_certificate_of_the_wrong_role_is_refused() {
    let dataset = TestDataset::of_pictures(10, 20);
    let cluster = Cluster::start(0);
    let job = dataset.job("role", "epoch_end = \"exact\"");
    run(cluster.ctl("worker", ["job", "submit"]).arg(&job)).error(&["worker", "may not"]);
}

#[test]
fn a_rank_that_is_not_below_its_world_is_refused() {
    let (_dataset, cluster) = Cluster::with_job(0, [40, 20], "ranks", "");
    run(&mut cluster.pull("ranks", 2, 2, "node-0", &[])).error(&["rank 2", "world 2"]);
}

#[test]
fn a_batch_that_the_dataset_cannot_fill_is_refused() {
    let dataset = TestDataset::of_pictures(10, 20);
    run(ctl().arg("plan").arg(dataset.job("small", ""))).error(&["24", "10"]);
}
