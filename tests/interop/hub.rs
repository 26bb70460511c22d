//! A dataset on the Hugging Face Hub: Parquet as `datasets` writes it there, and a repository that has a manifest.

use std::{fs, path::Path};

use spdl_testkit::{
    hub::{HubAccess, HubServer, TOKEN},
    processes::{Cluster, ctl, run, write_pictures},
    python::{python, run_script},
};

use super::trained::train_on;

const PICTURES: u64 = 40;
const COLUMNS: &str = "[[column]]\nname = \"image\"\nfrom = \"image.bytes\"\ndecode = \"image\"\n\
    ops = [{ random_resized_crop = { size = 32 } }]\n\
    [[column]]\nname = \"label\"\nfrom = \"label\"\ndecode = \"int\"\n";

/// Writes pictures as Parquet files into a folder `data`, as repositories have them.
fn repository(folder: &Path, count: u64) -> std::path::PathBuf {
    let (pictures, repository) = (folder.join("pictures"), folder.join("repository"));
    write_pictures(&pictures, count);
    let classes = fs::read_dir(&pictures).unwrap().map(|class| class.unwrap().path());
    let files =
        classes.flat_map(|class| fs::read_dir(class).unwrap()).map(|file| file.unwrap().path().into_os_string());
    let arguments = ["pictures".into(), repository.join("data").into_os_string()].into_iter().chain(files);
    run_script(&python(), "tests/interop/write_parquet.py", arguments);
    fs::write(repository.join("README.md"), "about").unwrap();
    repository
}

#[tokio::test]
async fn parquet_on_the_hub_trains_as_it_does_on_disk_whatever_is_pushed_meanwhile() {
    let [here, other, work] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let ours = repository(here.path(), PICTURES);
    let hub = HubServer::start();
    let commit = hub.push("main", &ours);
    hub.set_access(HubAccess::Private);
    let mut environment = hub.environment().map(|(name, value)| (name.to_owned(), value)).to_vec();
    environment.push(("HF_TOKEN".to_owned(), TOKEN.to_owned()));
    let spdl_ctl = || {
        let mut command = ctl();
        command.envs(environment.clone());
        command
    };
    let path = |name: &str| work.path().join(name).display().to_string();
    let index = |from: &str, to: &str| {
        run(spdl_ctl().args(["index", from, "--out", to, "--json", "--block-size", "64KiB"])).json()
    };
    let on_hub = index("hf://datasets/ORG/NAME/data", &path("on-hub"));
    let data = ours.join("data").display().to_string();
    assert_eq!(on_hub["fingerprint"], index(&data, &path("on-disk"))["fingerprint"]);
    assert_eq!(on_hub["samples"], PICTURES);
    // The same repository with its manifest in it.
    let with_manifest = work.path().join("with-manifest");
    fs::create_dir(&with_manifest).unwrap();
    fs::rename(&ours, with_manifest.join("repository")).unwrap();
    let ours = with_manifest.join("repository");
    let data = ours.join("data").display().to_string();
    index(&data, &ours.join("spdl").display().to_string());
    let whole = hub.push("v1", &ours);
    // The first commit has moved with the folder; the branch goes on to other files.
    hub.replace(&commit, &ours);
    hub.push("main", &repository(other.path(), 8));

    let verified = run(spdl_ctl().args(["verify", &path("on-hub"), "--json"])).json();
    assert_eq!((&verified["records"], &verified["faults"]), (&PICTURES.into(), &serde_json::json!([])));
    hub.answer_busy(&["Retry-After: 0", "Retry-After: 0", "Retry-After: 0"]);
    let datasets = [
        ("disk", ours.join("spdl").display().to_string()),
        ("hub", path("on-hub")),
        ("whole", "hf://datasets/ORG/NAME@v1/spdl".to_owned()),
    ];
    train_on(&datasets, &environment, PICTURES, COLUMNS);
    assert_eq!(hub.requests().iter().filter(|request| request.status == 429).count(), 3);
    for request in hub.requests() {
        assert_ne!(request.has_token, request.is_behind, "{request:?}");
    }

    // The job names the commit, and goes on when the revision is another one.
    let job = work.path().join("job.toml");
    let dataset = "hf://datasets/ORG/NAME@v1/spdl";
    let text = format!("name = \"frozen\"\ndataset = {dataset:?}\nglobal_batch = 8\nepochs = 1\n{COLUMNS}");
    fs::write(&job, text).unwrap();
    let cluster = Cluster::start_with(1, &["--stores", "hf://datasets/ORG/NAME"], environment.clone());
    cluster.submit(&job);
    let frozen = run(&mut cluster.ctl("admin", ["job", "show", "frozen", "--json"])).json();
    assert_eq!(frozen["dataset"], format!("hf://datasets/ORG/NAME@{whole}/spdl"));
    hub.push("v1", &other.path().join("repository"));
    let reports = cluster.pull_all("frozen", 2, &["node-0"], &["--from", "0:0"]);
    assert_eq!(reports.len(), 2);
    assert_eq!(reports.iter().map(|report| report["samples"].as_u64().unwrap()).sum::<u64>(), PICTURES / 8 * 8);

    // What the Hub refuses ends a command and a job with what to do.
    hub.set_access(HubAccess::Gated);
    let refused = run(spdl_ctl().args(["index", "hf://datasets/ORG/NAME", "--out", &path("gated"), "--json"]));
    refused.error(&["access to `hf://datasets/ORG/NAME` is denied", "GatedRepo", "accept the terms"]);
    let refused = run(cluster.ctl("admin", ["job", "submit"]).arg(&job).arg("--json"));
    refused.error(&["GatedRepo", "accept the terms"]);
}
