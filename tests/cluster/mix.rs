//! Jobs whose samples are mixed in pairs: every way of delivery has the same contents, also after processes were killed.

use std::fs;

use spdl_testkit::processes::{Cluster, TestDataset};

use super::deliveries::{assert_delivered, assert_goes_on_after_kills, digests, replay, replay_all};

const TARGET: &str = "[[column]]\nname = \"target\"\nfrom = \"cls\"\ndecode = \"one_hot\"\nclasses = 10\n";

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
        let alone = replay_all(&job, &[]);
        let plain = replay_all(&self::job(&dataset, "plain", keys), &[]);
        assert_eq!(plain["receipt"], alone["receipt"], "{name}: mixing changes no sample's place");
        assert_ne!(plain["content_digest"], alone["content_digest"], "{name}: mixing changes the contents");

        let mut cluster = Cluster::start(1);
        cluster.submit(&job);
        // With 24 ranks no rank has the partner of any of its samples.
        let worlds = [(1, &["node-0"][..]), (2, &["elsewhere"]), (4, &["node-0"]), (24, &["node-0"])];
        assert_delivered(&cluster, name, &alone, &worlds);
        // With other batches from then on, pairs lie across their borders.
        assert_goes_on_after_kills(&mut cluster, name, &alone, "3");
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
            digests(&[replay(&job, &["--from", "0:0", "--all"])])
        };
        let expected = contents(24);
        // Of each lane a batch has an even number of samples, so all have the same pairs.
        for batch in [8, 16, 40, 64] {
            assert_eq!(contents(batch), expected, "{policy}, batches of {batch}");
        }
    }
}
