//! A sample that kills every worker which decodes it.

use std::fs;

use spdl_testkit::{
    processes::{Cluster, ServerProcess, TestDataset},
    python::python,
};

/// A function that kills its parent, the worker, as the out-of-memory killer of a cgroup does.
const MODULE: &str = "
import os, signal

def look(label, rng):
    if label == 77:
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    return label
";

#[test]
fn a_sample_that_was_being_decoded_at_three_deaths_of_its_worker_is_left_out_and_named() {
    let python = python();
    let pictures = spdl_cli::pictures::Pictures::new();
    let label = |index| if index == 17 { 77 } else { index % 7 };
    let dataset = TestDataset::of_records((0..24).map(|index| (pictures.picture(3, index), label(index).to_string())));
    fs::write(dataset.path("deadly.py"), MODULE).unwrap();
    let job = dataset.training_job("deadly", 1);
    let text = fs::read_to_string(&job).unwrap();
    let text = text.replace("global_batch = 64", "global_batch = 8\nmax_bad_fraction = 0.5\nepoch_end = \"exact\"");
    let looked = "decode = \"int\"\ntransform = \"deadly:look\"\nreturns = { dtype = \"i64\", shape = [] }";
    fs::write(&job, text.replace("decode = \"int\"", looked)).unwrap();

    let folder = dataset.folder.path().display().to_string();
    let mut cluster = Cluster::start_with(0, &[], vec![("PYTHONPATH".to_owned(), folder)]);
    let python = python.display().to_string();
    cluster.start_worker("node-0", &["--python", &python]);
    cluster.submit(&job);
    let rank = ServerProcess::spawn(&mut cluster.pull("deadly", 0, 1, "node-0", &[]));
    for death in 1..=3 {
        let status = cluster.workers[0].process.wait();
        assert!(!status.success(), "death {death}: {status}");
        cluster.restart_worker(0);
    }
    let report = rank.finish();
    assert_eq!((&report["samples"], &report["substituted"]), (&24.into(), &1.into()), "{report}");
    let seen = cluster.wait_for("a bad sample", |status| status["jobs"][0]["bad_sample_count"] == 1);
    let causes = seen["jobs"][0]["bad_sample_list"].to_string();
    for part in ["0017", "the worker died 3 times in a row while it was being decoded"] {
        assert!(causes.contains(part), "`{part}` is not in {causes}");
    }
}
