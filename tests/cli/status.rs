//! The output of `status`.

use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, run};

#[test]
fn status_is_one_table_that_fits_a_terminal_and_hides_what_is_over() {
    let dataset = TestDataset::of_pictures(24, 8);
    let job = dataset.job("a-job", "epochs = 1000000");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let status = |arguments: &[&str]| {
        let shown = run(&mut cluster.ctl("admin", ["status"].iter().chain(arguments))).stdout;
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        shown
    };
    let lines = |text: &str, start: &str| text.lines().filter(|line| line.starts_with(start)).count();

    let steps = status(&[]);
    for line in ["nothing runs here yet:", "  2. Submit a job: what to read, and how to make batches of it (done)"] {
        assert!(steps.lines().any(|shown| shown == line), "{steps}");
    }

    // A session that has ended.
    run(&mut cluster.pull("a-job", 0, 1, "node-0", &["--steps", "2"])).json();
    cluster.wait_for("its leave", |status| status["sessions"][0]["ranks"][0]["left"] == true);
    let idle = status(&[]);
    assert!(idle.starts_with("coordinator 0.1.0, up ") && idle.contains(": 1 job, 1 worker\n"), "{idle}");
    assert!(idle.lines().any(|line| line.starts_with("job a-job ") && line.contains(" idle ")), "{idle}");
    assert_eq!((lines(&idle, "  session"), lines(&status(&["-v"]), "  session")), (0, 1), "{idle}");
    let summary = "session 1: it has ended before the run's last sample, and the next launch goes on from there: 48";
    assert!(idle.contains(summary) && !idle.contains("nothing runs here yet"), "{idle}");

    // A running session: the table shows rates, not totals.
    let _pull = ServerProcess::spawn(&mut cluster.pull("a-job", 0, 1, "node-0", &["--from", "0:0"]));
    cluster.wait_for("rates", |status| {
        let rank = &status["sessions"][1]["ranks"][0];
        let decodes = |rate: &serde_json::Value| rate["name"] == "decode" && rate["items_per_s"].as_f64() > Some(0.0);
        let rates = status["workers"][0]["windows"][1]["stages"].as_array();
        rank["job_samples_per_s"].as_f64() > Some(0.0)
            && rank["waiting"].is_number()
            && rates.is_some_and(|rates| rates.iter().any(decodes))
    });
    let running = status(&[]);
    let row = |name: &str| {
        let line = running.lines().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no `{name}` in\n{running}")).to_owned()
    };
    let header: Vec<_> = row("STATE").split_whitespace().map(str::to_owned).collect();
    assert_eq!(header, ["STATE", "POSITION", "SAMPLES/S", "WAITING"], "{running}");
    assert!(
        row("job a-job").contains(" running ") && row("job a-job").ends_with("1 000 000 epochs of 24 samples"),
        "{running}"
    );
    assert!(row("rank 0").contains(" alive ") && row("rank 0").contains(" % "), "{running}");
    assert!(
        row("rank 0").ends_with("home node-0 (local)") || row("rank 0").ends_with("home node-0 (quic)"),
        "{running}"
    );
    assert!(row("session 2: 0 % done, ").contains(" of 24 000 000 samples; epoch "), "{running}");
    let words = running.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" left, ") && words.contains(" s of this epoch"), "{running}");
    assert!(!running.contains("session 1: "), "{running}");
    assert!(row("worker node-0").contains(" ready ") && row("worker node-0").contains("1 rank, "), "{running}");
    assert_eq!((lines(&running, "  session"), lines(&running, "  decode")), (1, 0), "{running}");
    let details = status(&["-v"]);
    assert_eq!(
        (lines(&details, "  session"), lines(&details, "  decode"), lines(&details, "  store")),
        (2, 1, 1),
        "{details}"
    );
}
