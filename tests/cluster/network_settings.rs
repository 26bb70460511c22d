//! The settings of QUIC reach all programs, and change nothing that a rank receives.

use spdl_testkit::processes::{Cluster, TestDataset, ctl, run, sum};

/// Settings for paths that are long, lossy, slow, or carry only small packets.
const SETTINGS: [&str; 3] = [
    "payload=1452,offload=off,ack-every=10,congestion=bbr,idle-timeout=9s,keep-alive=700ms",
    "stream-window=64KiB,connection-window=256KiB,socket-buffer=64KiB,initial-window=14720,congestion=new-reno",
    "initial-payload=1400,payload=16000",
];

#[test]
fn ranks_receive_the_same_whatever_the_settings_of_the_network() {
    let dataset = TestDataset::of_pictures(60, 20);
    let job = dataset.job("network", "epochs = 2");
    let received = |settings: &str, nodes: &[&str], transport: &str| {
        let cluster = Cluster::start_with(2, &[], vec![("SPDL_QUIC".into(), settings.into())]);
        cluster.submit(&job);
        let ranks = cluster.pull_all("network", 2, nodes, &["--from", "0:0"]);
        assert!(ranks.iter().all(|report| report["transport"] == transport), "{settings}: {ranks:?}");
        let samples: u64 = ranks.iter().map(|report| report["samples"].as_u64().expect("a count")).sum();
        assert_eq!(samples, 96, "{settings}: {ranks:?}");
        ["receipt", "content_digest"].map(|field| sum(&ranks, field))
    };
    let expected = received("", &["node-0", "node-1"], "local");
    for settings in SETTINGS {
        assert_eq!(received(settings, &["elsewhere"], "quic"), expected, "{settings}");
    }
}

#[test]
fn a_setting_of_the_network_that_cannot_be_meant_is_named_by_every_program() {
    let wrong = "offload=maybe";
    let expected = ["offload=maybe", "it has to be on or off"];
    for program in ["worker", "coord"] {
        let mut command = ctl();
        command.args([program, "--quic", wrong]);
        if program == "worker" {
            command.args(["--coord", "127.0.0.1:1", "--certs", "nowhere"]);
        }
        run(&mut command).error(&expected);
    }
    let mut pull = ctl();
    pull.args(["pull", "--coord", "127.0.0.1:1", "--job", "any", "--certs", "nowhere"]);
    run(pull.env("SPDL_QUIC", wrong)).error(&["SPDL_QUIC", expected[0], expected[1]]);
}
