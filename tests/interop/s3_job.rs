//! A dataset on S3 is packed, read and used by a job, with the same bytes as on a local disk.

use std::{fs, path::Path, process::Command};

use object_store::ObjectStoreExt;
use spdl_cli::pictures::write_image_folder;
use spdl_testkit::{
    processes::{ctl, run},
    s3::S3Server,
};

const PICTURES: u64 = 48;

/// Returns a command for `spdl-ctl` with only the server's endpoint and credentials.
pub(crate) fn ctl_for(server: &S3Server) -> Command {
    let mut command = ctl();
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.envs(server.environment());
    command
}

fn write_job(path: &Path, dataset: &str) {
    let text = format!(
        "name = \"pictures\"\ndataset = {dataset:?}\nseed = 3\nglobal_batch = 16\nepochs = 2\n\
         [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
         ops = [{{ random_resized_crop = {{ size = 64 }} }}, {{ random_flip = {{}} }}]\n\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n"
    );
    fs::write(path, text).unwrap();
}

fn pack(command: &mut Command, pictures: &Path, dataset: &str) {
    command.arg("pack").arg(pictures).arg(dataset).args(["--name", "pictures", "--block-size", "512KiB"]);
    run(command.args(["--records-per-shard", "16", "--json"])).json();
}

#[tokio::test]
async fn a_job_on_s3_delivers_what_the_same_job_on_disk_does() {
    let server = S3Server::start();
    let folder = tempfile::tempdir().unwrap();
    let (pictures, local) = (folder.path().join("pictures"), folder.path().join("dataset"));
    write_image_folder(&pictures, PICTURES, 21, |_| {}).unwrap();
    pack(&mut ctl(), &pictures, &local.display().to_string());
    pack(&mut ctl_for(&server), &pictures, &server.url("packed"));
    let verified = run(ctl_for(&server).args(["verify", &server.url("packed"), "--json"])).json();
    assert_eq!(verified["records"], PICTURES);
    assert_eq!(verified["faults"].as_array().map(Vec::len), Some(0));

    // A dataset that is copied there object by object works too.
    let copied = server.upload(&local, "copied").await;
    let mut digests = Vec::new();
    for (name, dataset) in [("disk", local.display().to_string()), ("packed", server.url("packed")), ("copied", copied)]
    {
        let job = folder.path().join(format!("{name}.toml"));
        write_job(&job, &dataset);
        let report = run(ctl_for(&server).arg("replay").arg(&job).args(["--all", "--json"])).json();
        assert_eq!(report["samples"], 2 * PICTURES);
        digests.push((report["receipt"].clone(), report["content_digest"].clone()));
    }
    assert!(digests.iter().all(|digest| digest == &digests[0]), "{digests:?}");
    server.clear().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_store_is_named() {
    let server = S3Server::start();
    let folder = tempfile::tempdir().unwrap();
    let pictures = folder.path().join("pictures");
    write_image_folder(&pictures, 9, 22, |_| {}).unwrap();
    let dataset = server.url("errors");
    pack(&mut ctl_for(&server), &pictures, &dataset);

    let verify = |command: &mut Command, dataset: &str| run(command.args(["verify", dataset, "--json"]));
    verify(ctl_for(&server).env("AWS_SECRET_ACCESS_KEY", "another"), &dataset).error(&[&dataset]);
    verify(&mut ctl_for(&server), "s3://no-such-bucket/errors").error(&["no-such-bucket"]);
    verify(&mut ctl_for(&server), &server.url("nothing-here")).error(&["nothing-here"]);

    // An object that was replaced since the manifest was made is refused.
    let job = folder.path().join("job.toml");
    write_job(&job, &dataset);
    let text = fs::read_to_string(&job).unwrap().replace("global_batch = 16", "global_batch = 4");
    fs::write(&job, text).unwrap();
    let replay = |job: &Path| run(ctl_for(&server).arg("replay").arg(job).args(["--all", "--json"]));
    replay(&job).json();
    let keys = server.keys("errors").await;
    let key = keys.iter().find(|key| key.as_ref().ends_with(".tar")).expect("a shard");
    server.client().put(key, vec![0; 512].into()).await.unwrap();
    replay(&job).error(&[key.filename().unwrap()]);
    server.clear().await;
}
