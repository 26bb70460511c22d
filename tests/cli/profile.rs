//! The output of `profile`.

use std::path::Path;

use serde_json::Value;
use spdl_testkit::processes::{TestDataset, ctl, run};

const PICTURES: u64 = 48;

fn profile(job: &Path, further: &[&str]) -> Value {
    run(ctl().arg("profile").arg(job).args(["--seconds", "0.2", "--json"]).args(further)).json()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn real(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_profile_counts_the_samples_and_bytes_of_each_part() {
    let dataset = TestDataset::of_pictures(PICTURES, 16);
    let found = profile(&dataset.job("a-job", "epochs = 3"), &["--memory", "256MiB"]);
    let parts = found["measurements"].as_array().expect("a list");
    let names: Vec<_> = parts.iter().map(|part| part["name"].as_str().expect("a name")).collect();
    assert_eq!(
        names,
        [
            "serial",
            "parallel",
            "fetch alone",
            "cached",
            "decode alone",
            "image",
            "random_resized_crop",
            "random_flip + center_crop",
            "label",
            "raw"
        ]
    );
    let part = |name: &str| &parts[names.iter().position(|known| *known == name).expect("it is there")];
    for part in parts {
        let (samples, seconds) = (real(&part["samples"]), real(&part["seconds"]));
        assert!(samples > 0.0 && part["failures"] == 0, "{part}");
        assert!((real(&part["samples_per_s"]) * seconds - samples).abs() < 1e-6 * samples, "{part}");
    }
    // What is decoded alone is decoded in rounds of all pictures, and reads nothing.
    let round = |name: &str| {
        let samples = number(&part(name)["samples"]);
        assert!(samples.is_multiple_of(PICTURES) && part(name)["store_bytes"] == 0, "{}", part(name));
        number(&part(name)["field_bytes"]) / (samples / PICTURES)
    };
    let (pictures, labels) = (round("raw"), round("label"));
    assert_eq!(round("image"), pictures, "both columns read the pictures");
    assert_eq!(round("random_resized_crop"), pictures);
    // What is only fetched is an epoch, with the bytes of all fields, and the blocks that hold them.
    let fetch = part("fetch alone");
    assert_eq!((number(&fetch["samples"]), number(&fetch["field_bytes"])), (PICTURES, pictures + labels));
    assert!(number(&fetch["store_bytes"]) >= pictures + labels, "{fetch}");
    assert_eq!(part("cached")["store_bytes"], 0, "the dataset fits the memory");
    assert!(number(&found["dataset_bytes"]) >= pictures + labels, "{found}");
    assert_eq!((number(&found["samples"]), number(&found["batch_samples"])), (PICTURES, 24));
    let rate = |name: &str| real(&part(name)["samples_per_s"]);
    assert!((real(&found["speed_up"]) - rate("parallel") / rate("serial")).abs() < 1e-9);
}

#[test]
fn the_advice_follows_from_what_was_measured() {
    let dataset = TestDataset::of_pictures(PICTURES, 16);
    let job = dataset.job("a-job", "");
    let found = profile(&job, &["--step-ms", "100", "--world", "4", "--ranks-per-node", "2"]);
    let advice = &found["advice"];
    assert_eq!((number(&found["batch_samples"]), real(&advice["samples_per_s"])), (12, 120.0));
    let parallel = &found["measurements"][1];
    let needed = 120.0 * real(&parallel["cpu_ms_per_sample"]) / 1e3;
    let cores = real(&advice["cores"]);
    assert!(cores >= needed && cores <= 1.1 * needed + 0.1, "{cores} cores for {needed}");
    let [memory, slabs, used, epoch] =
        ["memory_bytes", "slab_bytes", "in_use_bytes", "epoch_bytes"].map(|name| number(&advice[name]));
    assert!(memory > slabs + used && used <= epoch && epoch <= number(&found["dataset_bytes"]), "{advice}");
    let image = 64 * 64 * 3;
    let (least, bound) = (4 * 12 * image, 4 * 12 * (image + 400_000));
    assert!(
        (least..bound).contains(&slabs),
        "four slots of twelve samples, whose bytes are below their bound: {slabs}"
    );
    // A worker with the recommended memory can serve these ranks.
    let text = run(ctl().arg("profile").arg(&job).args(["--seconds", "0.1", "--rate", "100"]).args([
        "--memory",
        &memory.to_string(),
        "--world",
        "2",
    ]));
    assert!(text.status.success(), "{}", text.stderr);
    assert!(text.stdout.lines().all(|line| line.chars().count() <= 100), "{}", text.stdout);
    for part in
        ["fetch alone", "  random_flip + center_crop", "for 100 samples/s on a node:", "--cores 0.", "--memory "]
    {
        assert!(text.stdout.contains(part), "`{part}` is not in\n{}", text.stdout);
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_reason() {
    let dataset = TestDataset::of_pictures(PICTURES, 16);
    let job = dataset.job("a-job", "");
    let refused = |arguments: &[&str], parts: &[&str]| {
        run(ctl().arg("profile").arg(&job).args(arguments)).error(parts);
    };
    refused(&["--cores", "4096"], &["`--cores`: 4096 cores are more than the ", "of this machine"]);
    refused(&["--memory", "1000TiB"], &["`--memory`: ", " are more than the ", "of this machine"]);
    let many = TestDataset::of_pictures(64, 16);
    let large = many.training_job("large", 1);
    run(ctl().arg("profile").arg(large).args(["--memory", "17MiB"]))
        .error(&["a batch for rank 0 of job `large`", "raise its memory budget"]);
    refused(&["--world", "25"], &["world 25 is more than the global batch of 24"]);
    let elsewhere = |place: &str, parts: &[&str]| {
        let text = std::fs::read_to_string(&job).expect("a job file");
        let path = dataset.path("elsewhere.toml");
        let changed = text.replace(&format!("{:?}", dataset.path("dataset")), &format!("{place:?}"));
        assert_ne!(changed, text);
        std::fs::write(&path, changed).expect("it is written");
        run(ctl().arg("profile").arg(&path)).error(parts);
    };
    elsewhere("/nowhere/at/all", &["`/nowhere/at/all` does not exist"]);
    elsewhere("http://127.0.0.1:1/set", &["http://127.0.0.1:1/set", "cannot be reached"]);
}

#[test]
fn the_page_has_a_row_for_each_thread_loads_nothing_and_shows_names_as_text() {
    let dataset = TestDataset::of_pictures(PICTURES, 16);
    let job = dataset.job("a-job", "");
    let text = std::fs::read_to_string(&job).expect("a job file");
    let hostile = text.replace("name = \"label\"", "name = '<img src=x onerror=\"a()\">&'");
    std::fs::write(&job, hostile).expect("it is written");
    let page = dataset.path("page.html");
    let arguments = ["--cores", "2", "--html", page.to_str().expect("a plain path")];
    let found = profile(&job, &arguments);
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"), "{html}");
    assert!(
        html.contains("Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'"),
        "{html}"
    );
    for loaded in ["<script", "<img", "<link", "src=\"", "href=", "http:", "https:", "url("] {
        assert!(!html.contains(loaded), "`{loaded}` is in {html}");
    }
    assert!(html.contains("&lt;img src=x onerror=&quot;a()&quot;&gt;&amp;"), "{html}");
    // Of one core, and three times of two.
    let rows = |unit: &str| html.matches(&format!("aria-label=\"{unit} ")).count();
    assert_eq!((html.matches("<h3>").count(), html.matches("<span class=\"stage\">decode").count()), (4, 4), "{html}");
    assert!((4..=7).contains(&rows("thread")) && (4..=16).contains(&rows("slot")), "{html}");
    assert!(rows("request") > 0, "blocks were read from the store: {html}");
    for part in found["measurements"].as_array().expect("a list") {
        let rate = part["samples_per_s"].as_f64().expect("a rate").round();
        assert!(rate >= 1_000.0 || html.contains(&format!("<td>{rate}</td>")), "{part}");
    }
    let mut nowhere = ctl();
    nowhere.arg("profile").arg(&job).args(["--html", "/nowhere/page.html"]);
    run(&mut nowhere).error(&["cannot write `/nowhere/page.html`"]);
}
