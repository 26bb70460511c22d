//! Jobs whose samples are mixed in pairs: every way of delivery has the same contents, also after processes were killed.

use std::fs;

use serde_json::Value;
use spdl_testkit::processes::{Cluster, TestDataset, ctl, run, sum};

const TARGET: &str = "[[column]]\nname = \"target\"\nfrom = \"cls\"\ndecode = \"one_hot\"\nclasses = 10\n";

/// Returns the sum of the receipts and that of the contents' digests.
fn digests(reports: &[Value]) -> (String, String) {
    (sum(reports, "receipt"), sum(reports, "content_digest"))
}

/// Writes a job whose samples are mixed; its classes are below 10.
fn job(dataset: &TestDataset, name: &str, keys: &str) -> std::path::PathBuf {
    let job = dataset.job(name, keys);
    let text = fs::read_to_string(&job).expect("a job file");
    fs::write(&job, format!("{text}{TARGET}")).expect("it is written");
    job
}

#[test]
fn mixed_samples_are_the_same_at_each_world_in_every_way_and_after_kills() {
    let dataset = TestDataset::of_pictures(125, 32);
    let mix = "mix = { mixup = 0.4, cutmix = 1.0, p = 0.8 }";
    for (name, keys) in [
        // A batch has 4 samples of each lane, so pairs are in one lane.
        ("lanes", "epochs = 2\nepoch_end = \"pad\"\norder = { lanes = 6, window = 16 }"),
        // A batch has one sample of each lane, so pairs are in neighbouring lanes.
        ("many", "epochs = 2\nepoch_end = \"continuous\"\norder = { lanes = 24, window = 16 }"),
        ("one", "epochs = 1\nepoch_end = \"exact\"\nshuffle = false"),
    ] {
        let job = job(&dataset, name, &format!("{keys}\n{mix}"));
        let alone = run(ctl().arg("replay").arg(&job).args(["--from", "0:0", "--all", "--json"])).json();
        let expected = digests(std::slice::from_ref(&alone));
        let plain = self::job(&dataset, "plain", keys);
        let plain = digests(&[run(ctl().arg("replay").arg(&plain).args(["--from", "0:0", "--all", "--json"])).json()]);
        assert_eq!(plain.0, expected.0, "{name}: mixing changes no sample's place");
        assert_ne!(plain.1, expected.1, "{name}: mixing changes the contents");

        let mut cluster = Cluster::start(1);
        cluster.submit(&job);
        // With 24 ranks no rank has the partner of any of its samples.
        for (world, node, transport) in
            [(1, "node-0", "local"), (2, "elsewhere", "quic"), (4, "node-0", "local"), (24, "node-0", "local")]
        {
            let reports = cluster.pull_all(name, world, &[node], &["--from", "0:0"]);
            assert!(reports.iter().all(|report| report["transport"] == transport), "{reports:?}");
            assert_eq!(digests(&reports), expected, "{name}, world {world}, {transport}");
        }

        // With other batches from then on, pairs lie across their borders.
        let mut reports = cluster.pull_all(name, 4, &["node-0"], &["--steps", "3", "--from", "0:0"]);
        let position = reports[0]["position"].as_str().expect("a position").to_owned();
        let socket = cluster.workers[0].socket.clone();
        cluster.workers[0].process.kill();
        cluster.coordinator.as_mut().expect("it runs").kill();
        cluster.start_coordinator();
        cluster.start_worker_on("node-0", &socket, &[]);
        reports.extend(cluster.pull_all(name, 2, &["elsewhere"], &["--from", &position]));
        assert_eq!(digests(&reports), expected, "{name}, after {position}");
    }
}

#[test]
fn samples_are_mixed_alike_whatever_the_batch_and_with_bad_samples() {
    let pictures = spdl_cli::pictures::Pictures::new();
    let label = |index: u64| if index % 9 == 4 { "none".to_owned() } else { (index % 10).to_string() };
    let dataset = TestDataset::of_records((0..64).map(|index| (pictures.picture(3, index), label(index))));
    for policy in ["substitute", "mask"] {
        let keys = format!(
            "bad_samples = \"{policy}\"\nmax_bad_fraction = 1.0\nepochs = 2\nepoch_end = \"pad\"\n\
                 order = {{ lanes = 4, window = 16 }}\nmix = {{ mixup = 1.0, cutmix = 1.0 }}"
        );
        let contents = |batch: u32| {
            let job = job(&dataset, "odd", &keys);
            let text = fs::read_to_string(&job).expect("a job file");
            fs::write(&job, text.replace("global_batch = 24", &format!("global_batch = {batch}")))
                .expect("it is written");
            let report = run(ctl().arg("replay").arg(&job).args(["--from", "0:0", "--all", "--json"])).json();
            digests(&[report])
        };
        let expected = contents(24);
        // Of each lane a batch has an even number of samples, so all have the same pairs.
        for batch in [8, 16, 40, 64] {
            assert_eq!(contents(batch), expected, "{policy}, batches of {batch}");
        }
    }
}
