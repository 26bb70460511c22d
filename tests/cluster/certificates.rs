//! Certificates and the CA are replaced while a cluster serves ranks.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use spdl_testkit::processes::{Cluster, ServerProcess, ctl, limit, run, sum};

/// Runs an attempt until it succeeds: programs look for renewed certificates every few seconds.
fn until(what: &str, mut attempt: impl FnMut() -> bool) {
    let started = Instant::now();
    while !attempt() {
        assert!(started.elapsed() < limit(), "{what} did not come about");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Puts the certificates of these CAs into one file.
fn trust(cas: &[&Path], file: &Path) {
    let texts: String = cas.iter().map(|ca| fs::read_to_string(ca.join("ca.pem")).unwrap()).collect();
    fs::write(file, texts).unwrap();
}

/// Issues a certificate as a user does.
fn issue(ca: &Path, role: &str, name: &str, out: &Path) {
    let mut cert = ctl();
    cert.arg("cert").arg("--ca").arg(ca).args(["--role", role, "--name", name, "--json", "--out"]).arg(out);
    run(&mut cert).json();
}

/// Returns whether coordinator and worker serve a rank that has the certificate in this folder.
fn is_served(cluster: &Cluster, certs: &Path) -> bool {
    let mut pull = ctl();
    pull.args(["pull", "--json", "--job", "probe", "--rank", "0", "--world", "1", "--timeout", "5", "--coord"]);
    pull.args([&cluster.address, "--from", "0:0", "--steps", "1", "--certs"]).arg(certs);
    pull.env("SPDL_NODE", "elsewhere");
    run(&mut pull).status.success()
}

#[test]
fn the_ca_is_replaced_in_steps_while_ranks_train_and_then_its_old_certificates_are_refused() {
    let (dataset, mut cluster) = Cluster::with_job(1, [60, 20], "certificates", "");
    cluster.submit(&dataset.job("probe", "epochs = 1000000"));
    cluster.submit(&dataset.job("long", "epochs = 1000000"));
    let before = cluster.pull_all("certificates", 2, &["elsewhere"], &["--from", "0:0"]);
    assert!(before.iter().all(|report| report["transport"] == "quic"), "{before:?}");
    let mut training =
        ServerProcess::spawn(&mut cluster.pull("long", 0, 1, "elsewhere", &["--progress", "--rate", "50"]));
    training.line();

    let (own, new, old): (PathBuf, PathBuf, PathBuf) =
        (cluster.path("state/ca"), cluster.path("new"), cluster.path("old"));
    let folders: Vec<(&str, PathBuf)> = ["worker", "client", "admin"].map(|role| (role, cluster.certs(role))).into();
    fs::create_dir(&old).unwrap();
    for file in ["ca.pem", "ca.key"] {
        fs::copy(own.join(file), old.join(file)).unwrap();
    }
    let (left_behind, renewed) = (cluster.path("left-behind"), cluster.path("renewed"));
    issue(&old, "client", "left-behind", &left_behind);
    issue(&new, "client", "renewed", &renewed);

    // 1. All trust the new CA too.
    for folder in folders.iter().map(|(_, folder)| folder).chain([&own]) {
        trust(&[&old, &new], &folder.join("ca.pem"));
    }
    trust(&[&new, &old], &renewed.join("ca.pem"));
    until("the new CA is trusted", || is_served(&cluster, &renewed));

    // 2. The new CA issues all certificates; the coordinator issues its own.
    fs::copy(new.join("ca.key"), own.join("ca.key")).unwrap();
    trust(&[&new, &old], &own.join("ca.pem"));
    for (role, folder) in &folders {
        issue(&own, role, "test", folder);
    }
    trust(&[&new], &renewed.join("ca.pem"));
    until("the certificates of the new CA are in use", || is_served(&cluster, &renewed));
    assert!(is_served(&cluster, &{
        trust(&[&old, &new], &left_behind.join("ca.pem"));
        left_behind.clone()
    }));

    // 3. All trust the new CA alone.
    for folder in folders.iter().map(|(_, folder)| folder).chain([&own]) {
        trust(&[&new], &folder.join("ca.pem"));
    }
    until("the old CA is trusted no more", || !is_served(&cluster, &left_behind));
    training.line();

    // The worker, which was never restarted, connects again to a coordinator that was.
    cluster.coordinator.as_mut().unwrap().kill();
    cluster.start_coordinator();
    let after = cluster.pull_all("certificates", 2, &["elsewhere"], &["--from", "0:0"]);
    assert_eq!(sum(&before, "content_digest"), sum(&after, "content_digest"));
    training.line();
    training.kill();
}
