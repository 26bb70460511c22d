//! Jobs with a view: every way of delivery has the samples of the view and no others, also after processes were killed.

use std::fs;

use spdl_testkit::processes::{Cluster, TestDataset, ctl, run};

use super::deliveries::{assert_delivered, assert_goes_on_after_kills, replay_all};

const VIEW: &str = "epochs = 2\nepoch_end = \"exact\"\n\
                    view = { where = \"cls in [0, 2, 3] and key != 'none'\", fraction = 0.8, seed = 3 }";

#[test]
fn a_view_has_one_receipt_at_each_world_in_every_way_and_after_kills() {
    let dataset = TestDataset::of_pictures(240, 32);
    let job = dataset.job("view", VIEW);
    let planned = run(ctl().arg("plan").arg(&job)).stdout;
    assert!(planned.contains("the view keeps ") && planned.contains(" of 240 samples; samples = \""), "{planned}");
    let alone = replay_all(&job, &[]);
    let samples = alone["samples"].as_u64().unwrap() / 2;
    assert!((60..200).contains(&samples), "{alone}");

    let mut cluster = Cluster::start(1);
    cluster.submit(&job);
    // The same view in other words is the same job.
    let text = fs::read_to_string(&job).unwrap();
    fs::write(&job, text.replace("cls in [0, 2, 3] and", "cls >= 0 and cls != 1 and cls <= 3 and")).unwrap();
    cluster.submit(&job);
    assert_delivered(&cluster, "view", &alone, &[(1, &["node-0"]), (2, &["node-0"]), (4, &["elsewhere"])]);
    assert_goes_on_after_kills(&mut cluster, "view", &alone, "2");
}

#[test]
fn a_view_that_cannot_be_is_refused_where_it_is_written() {
    let dataset = TestDataset::of_pictures(24, 8);
    let cluster = Cluster::start(0);
    for (view, expected) in [
        ("where = \"cls > 1000\"", "`view` keeps none of the 24 samples of the dataset"),
        ("where = \"cls >\"", "`view.where` is wrong at character 6, the end"),
        ("where = \"width > 3\"", "`view.where` is wrong at character 1, `width > 3`: no record has the field `width`"),
        ("folds = 3", "`view.folds` needs either `fold` or `except_fold`"),
        ("wehre = \"cls > 3\"", "there is no key `wehre`; did you mean `where`?"),
    ] {
        let job = dataset.job("refused", &format!("view = {{ {view} }}"));
        let submit = run(cluster.ctl("admin", ["job", "submit"]).arg(&job)).error(&[expected]).to_owned();
        assert!(submit.starts_with("error: "), "{submit}");
        run(ctl().arg("plan").arg(&job)).error(&[expected]);
    }
    // The set of a view that was not found, or never evaluated.
    let job = dataset.job("unknown", "view = { samples = \"000000000000000000000000000000ff\" }");
    run(cluster.ctl("admin", ["job", "submit"]).arg(&job)).error(&["view-000000000000000000000000000000ff.spdl"]);
}
