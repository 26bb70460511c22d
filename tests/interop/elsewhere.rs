//! A manifest that does not lie with its shards, which are on a disk, in a bucket or on a web server where nobody may
//! write.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use object_store::ObjectStoreExt;
use spdl_cli::pictures::write_image_folder;
use spdl_testkit::{
    processes::{Cluster, ctl, run},
    s3::S3Server,
};

use super::trained::train_on;

const SAMPLES: u64 = 40;
const COLUMNS: &str = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
    ops = [{ random_resized_crop = { size = 32 } }]\n\
    [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n";

/// Tars as others write them: without manifest and indexes.
fn tars(folder: &Path) -> PathBuf {
    let (pictures, packed, tars) = (folder.join("pictures"), folder.join("packed"), folder.join("theirs/tars"));
    write_image_folder(&pictures, SAMPLES, 6, |_| {}).unwrap();
    let mut pack = ctl();
    pack.arg("pack").arg(&pictures).arg(&packed).args(["--records-per-shard", "14", "--json"]);
    run(&mut pack).json();
    fs::create_dir_all(&tars).unwrap();
    for file in fs::read_dir(&packed).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|suffix| suffix == "tar") {
            fs::rename(&file, tars.join(file.file_name().unwrap())).unwrap();
        }
    }
    tars
}

/// The files in a folder.
fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_manifest_finds_its_shards_on_a_disk_in_a_bucket_and_on_a_web_server() {
    let folder = tempfile::tempdir().unwrap();
    let tars = tars(folder.path());
    let shards = names(&tars);
    assert_eq!(shards.len(), 3);
    let server = S3Server::start_open();
    let bucket = server.upload(&tars, "theirs").await;
    let mut environment = server.environment().map(|(name, value)| (name.to_owned(), value)).to_vec();
    environment.push(("AWS_SKIP_SIGNATURE".to_owned(), "true".to_owned()));
    let spdl_ctl = || {
        let mut command = ctl();
        command.envs(environment.clone());
        command
    };
    let index = |from: &str, to: &str| {
        let mut index = spdl_ctl();
        index.args(["index", from, "--out", to, "--json", "--block-size", "64KiB"]);
        if from.starts_with("http") {
            index.arg("--shards").arg(shards.iter().cloned().collect::<Vec<_>>().join(","));
        }
        run(&mut index)
    };
    let path = |name: &str| folder.path().join(name).display().to_string();
    let places = [
        ("disk", tars.display().to_string(), path("theirs/manifest")),
        ("bucket", bucket.clone(), path("of-bucket")),
        ("web", server.web_url("theirs"), path("of-web")),
        // A manifest in a bucket, beside the folder of the shards and in another place.
        ("beside", bucket.clone(), server.url("manifest")),
        ("afar", server.web_url("theirs"), server.url("manifests/web")),
    ];
    let mut found = BTreeSet::new();
    for (name, from, to) in &places {
        found.insert(index(from, to).json()["fingerprint"].to_string());
        assert_eq!(names(&tars), shards, "nothing is written beside the shards");
        let verified = run(spdl_ctl().args(["verify", to, "--decode", "--json"])).json();
        assert_eq!(
            (&verified["decoded_pictures"], &verified["faults"]),
            (&SAMPLES.into(), &serde_json::json!([])),
            "{name}"
        );
        let against = run(spdl_ctl().args(["verify", to, "--against", &places[0].2, "--json"])).json();
        assert_eq!(against["same_pictures"], SAMPLES, "{name}");
        let unpacked = folder.path().join(format!("{name}-unpacked"));
        let report = run(spdl_ctl().args(["unpack", to]).arg(&unpacked).arg("--json")).json();
        assert_eq!(report["files"], 2 * SAMPLES, "{name}");
    }
    assert_eq!(found.len(), 1, "where a dataset lies is no part of its fingerprint: {found:?}");

    // What lies beside a manifest moves with it.
    fs::rename(folder.path().join("theirs"), folder.path().join("moved")).unwrap();
    let datasets = places.map(|(name, _, to)| (name, if name == "disk" { path("moved/manifest") } else { to }));
    train_on(&datasets, &environment, SAMPLES, COLUMNS);

    // A shard that is gone, and a folder that is, are named with the manifest that has them there.
    let gone = shards.first().unwrap();
    server.client().delete(&server.key(&format!("theirs/{gone}"))).await.unwrap();
    let job = folder.path().join("gone.toml");
    let write_job = |dataset: &str| {
        fs::write(&job, format!("name = \"gone\"\ndataset = {dataset:?}\nglobal_batch = 8\nepochs = 1\n{COLUMNS}"))
            .unwrap();
    };
    write_job(&path("of-bucket"));
    let named = [format!("`{bucket}/{gone}`"), path("of-bucket/.spdl/manifest.spdl")];
    let error = run(spdl_ctl().arg("replay").arg(&job).args(["--all", "--json"]));
    error.error(&named.each_ref().map(String::as_str));
    fs::rename(folder.path().join("moved/tars"), folder.path().join("away")).unwrap();
    write_job(&path("moved/manifest"));
    let error = run(spdl_ctl().arg("replay").arg(&job).args(["--all", "--json"]));
    error.error(&[&path("moved/manifest/.spdl/manifest.spdl"), "has its shards in `../tars`", "does not exist"]);
    server.clear().await;
}

#[tokio::test]
async fn a_manifest_leads_no_process_out_of_its_stores_and_none_in_a_store_to_local_files() {
    let folder = tempfile::tempdir().unwrap();
    let tars = tars(folder.path());
    let server = S3Server::start();
    let environment = server.environment().map(|(name, value)| (name.to_owned(), value)).to_vec();
    let spdl_ctl = || {
        let mut command = ctl();
        command.envs(environment.clone());
        command
    };
    let text = |path: &Path| path.display().to_string();
    // None is written that way...
    let refused = run(spdl_ctl().arg("index").arg(&tars).args(["--out", &server.url("local"), "--json"]));
    refused.error(&[
        &format!("`{}/.spdl/manifest.spdl`", server.url("local")),
        &text(&tars),
        "cannot have its shards on this machine",
    ]);
    // ...and where somebody else has, it is not followed.
    let apart = folder.path().join("apart/manifest");
    run(spdl_ctl().arg("index").arg(&tars).arg("--out").arg(&apart).arg("--json")).json();
    let stored = server.upload(&apart, "stored").await;
    for command in ["verify", "unpack"] {
        let mut reading = spdl_ctl();
        reading.args([command, &stored]);
        if command == "unpack" {
            reading.arg(folder.path().join("unpacked"));
        }
        run(reading.arg("--json")).error(&[&text(&tars), "cannot have its shards on this machine"]);
    }

    // A coordinator and a worker that read from one folder.
    let job = |name: &str, dataset: &str| {
        let path = folder.path().join(format!("{name}.toml"));
        let text = format!("name = {name:?}\ndataset = {dataset:?}\nglobal_batch = 8\nepochs = 1\n{COLUMNS}");
        fs::write(&path, text).unwrap();
        path
    };
    let only = format!("{},{}", text(&folder.path().join("apart")), server.url("stored"));
    let mut cluster = Cluster::start_with(0, &["--stores", &only], environment.clone());
    let submit = |cluster: &Cluster, path: &Path| -> Command {
        let mut command = cluster.ctl("admin", ["job", "submit"]);
        command.arg(path).arg("--json");
        command
    };
    let outside = job("outside", &text(&apart));
    run(&mut submit(&cluster, &outside)).error(&["has its shards elsewhere", &text(&tars), "--stores"]);
    run(&mut submit(&cluster, &job("local", &stored))).error(&["cannot have its shards on this machine"]);
    drop(cluster);
    cluster = Cluster::start_with(0, &[], environment);
    cluster.start_worker("node-0", &["--stores", &only]);
    run(&mut submit(&cluster, &outside)).json();
    let pulled = run(&mut cluster.pull("outside", 0, 1, "node-0", &[]));
    pulled.error(&["has its shards elsewhere", &text(&tars), "--stores"]);
    server.clear().await;
}
