//! The coordinator's web page in a real Chromium, over a cluster of real processes. Pictures of the page are left in the
//! build directory under `page/`.

mod axe;

use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use spdl_testkit::{
    browser::Browser,
    http,
    processes::{Cluster, LIMIT, ServerProcess, TestDataset, ctl, run},
    target,
    tokens::write_megatron,
};

/// A key that would run a script where it was read as markup.
const HOSTILE_KEY: &str = "<img src=x onerror=document['title']='owned'>";
const TOKEN: &str = "a-token-that-is-long-enough";
/// The codes of keys in WebDriver.
const TAB: &str = "\u{e004}";
const RIGHT: &str = "\u{e014}";
const ENTER: &str = "\u{e007}";

/// A cluster with two ranks that pull without end from a dataset with a bad record.
struct Watched {
    /// Dropped before the cluster.
    _ranks: Vec<ServerProcess>,
    cluster: Cluster,
    _dataset: TestDataset,
}

impl Watched {
    fn start() -> Self {
        let pictures = spdl_cli::pictures::Pictures::new();
        let dataset = TestDataset::of_keys((0..96).map(|index| {
            let (key, picture) = match index {
                7 => (HOSTILE_KEY.to_owned(), b"this is no picture".to_vec()),
                _ => (format!("{index:04}"), pictures.picture(3, index)),
            };
            (key, picture, (index % 7).to_string())
        }));
        let job = dataset.job("watched", "max_bad_fraction = 0.5\nepochs = 100000");
        let cluster = Cluster::start(1);
        cluster.submit(&job);
        let rank = |rank, node| ServerProcess::spawn(&mut cluster.pull("watched", rank, 2, node, &["--rate", "400"]));
        let ranks = vec![rank(0, "node-0"), rank(1, "elsewhere")];
        Self { _ranks: ranks, cluster, _dataset: dataset }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.cluster.http)
    }

    /// Reads JSON as the page does.
    fn read(&self, path: &str) -> Value {
        let (code, text) = http::get(&self.cluster.http, path, LIMIT).expect("the coordinator answers");
        assert_eq!(code, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

#[test]
fn the_page_shows_a_running_job_goes_on_after_a_restart_and_is_accessible() {
    let Some(browser) = Browser::start() else { return };
    let mut watched = Watched::start();
    browser.show_as(1280, false);
    browser.open(&watched.url());
    browser.run("window.loaded = 'once'");
    it_shows_the_ranks_and_their_limit(&browser, &watched);
    it_changes_without_being_loaded_again(&browser);
    it_shows_a_hostile_key_as_text(&browser);
    it_is_used_by_the_keyboard(&browser);
    it_loads_nothing_from_elsewhere(&browser);
    assert_eq!(browser.console(), Vec::<String>::new(), "the browser complains of nothing");
    it_is_accessible_at_every_width(&browser);
    it_goes_on_with_another_coordinator_and_asks_for_its_token(&browser, &mut watched);
}

#[test]
fn the_page_of_a_job_of_tokens_speaks_of_sequences_and_how_full_they_are() {
    let Some(browser) = Browser::start() else { return };
    let dataset = TestDataset { folder: tempfile::tempdir().expect("a temporary folder") };
    let folder = dataset.path("dataset");
    fs::create_dir(&folder).expect("a folder is made");
    let documents: Vec<Vec<u16>> = (0..600).map(|number| vec![7; 20 + number * 37 % 300]).collect();
    write_megatron(&folder, "web_text_document", &documents);
    run(ctl().arg("index").arg(&folder).arg("--json")).json();
    let text = format!(
        "name = \"text\"\ndataset = {folder:?}\nglobal_batch = 8\nepochs = 100000\nsequence = {{ seq_len = 512 }}\n\
         [[column]]\nname = \"tokens\"\nfrom = \"tokens\"\ndecode = \"tokens\""
    );
    let job = dataset.path("text.toml");
    fs::write(&job, text).expect("a job is written");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let plan = run(ctl().arg("plan").arg(&job).arg("--json")).json();
    let of_plan = |field: &str| plan["sequences"][field].as_u64().expect("a number");
    let _rank = ServerProcess::spawn(&mut cluster.pull("text", 0, 1, "node-0", &["--rate", "400"]));
    browser.show_as(1280, false);
    browser.open(&format!("http://{}/", cluster.http));
    let terms = "[...document.querySelectorAll('#session-figures dt')].map((term) => term.textContent).join()";
    browser.wait_for(
        "the rates of sequences and of tokens",
        &format!("return {terms} === 'Done,Epoch,Time left,Sequences per second,Tokens per second,Waiting,Ranks'"),
    );
    browser.wait_for("stages", "return document.querySelectorAll('#stages > li').length > 1");
    browser.wait_for("a verdict", "return document.querySelector('#verdict-text').textContent.includes('rank ')");
    let seen = browser.run("return document.body.textContent.replaceAll(',', '')");
    let seen = seen.as_str().expect("a text");
    for part in [
        format!("{} sequences of 512 tokens", of_plan("sequences")),
        format!(
            "{} tokens of {} documents {} places of padding",
            of_plan("tokens"),
            of_plan("documents"),
            of_plan("padding")
        ),
        "sequences/s".to_owned(),
        "documents/s".to_owned(),
    ] {
        assert!(seen.contains(&part), "`{part}` is not in {seen}");
    }
    assert!(!seen.contains("samples/s") && !seen.contains("Samples per second"), "{seen}");
    browser.run("document.querySelectorAll('details').forEach((part) => { part.open = true; })");
    keep_picture(&browser, "sequences");
    assert_eq!(browser.console(), Vec::<String>::new(), "the browser complains of nothing");
}

#[test]
fn the_page_draws_weights_over_the_stream_and_marks_where_they_change_and_where_samples_are_redacted() {
    let Some(browser) = Browser::start() else { return };
    let records = |count: usize| (0..count).map(|number| (vec![number as u8; 40], (number % 5).to_string()));
    let [photos, drawings] = [60, 40].map(|count| TestDataset::of_records(records(count)));
    let source = |name: &str, dataset: &TestDataset, weight: u32| {
        format!("[[source]]\nname = \"{name}\"\ndataset = {:?}\nweight = {weight}\n", dataset.path("dataset"))
    };
    let text = format!(
        "name = \"blend\"\nglobal_batch = 20\nepochs = 40\ntotal_samples = 1000\n{}{}\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"",
        source("photos", &photos, 7),
        source("drawings", &drawings, 3)
    );
    let job = photos.path("blend.toml");
    fs::write(&job, text).expect("a job is written");
    let keys = photos.path("keys.txt");
    fs::write(&keys, "./0003\n./0005\n").expect("keys are written");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let _rank = ServerProcess::spawn(&mut cluster.pull("blend", 0, 1, "node-0", &["--rate", "400"]));
    browser.show_as(1280, false);
    browser.open(&format!("http://{}/", cluster.http));
    browser.wait_for(
        "a session without changes",
        "return document.querySelector('#stream').hidden && !document.querySelector('#session').hidden",
    );
    cluster.wait_for("progress", |status| status["jobs"][0]["acknowledged"]["offset"].as_u64() > Some(100));
    let change = |args: &[&str]| {
        let done = run(&mut cluster.ctl("admin", [&["job"], args].concat()));
        assert!(done.status.success(), "{}", done.stderr);
    };
    change(&["weights", "blend", "--set", "photos=0.2,drawings=0.8"]);
    change(&["redact", "blend", "--keys", keys.to_str().expect("a path")]);
    change(&["weights", "blend", "--set", "photos=0.5,drawings=0.5", "--at", "30:0"]);
    // The coordinator chooses where the first two begin, so either may come first.
    browser.wait_for(
        "three changes",
        "return [...document.querySelectorAll('#stream:not([hidden]) #stream-changes li')].map((item) => item.textContent.replace(/^.*: /, ''))
             .sort().join(';') === '4 samples are redacted;photos 20 %, drawings 80 %;photos 50 %, drawings 50 %'",
    );
    // A rectangle for each source in each of three spans, and a line for each change and for the session.
    let drawn = "return ['#stream-spans rect', '#stream-marks line', '#stream-marks .redaction', '#stream-key li']
        .map((what) => document.querySelectorAll(what).length)";
    assert_eq!(browser.run(drawn), serde_json::json!([6, 4, 1, 2]));
    let heights = browser.run("return [...document.querySelectorAll('#stream-spans rect')].map((part) => Math.round(part.getAttribute('height')))");
    assert_eq!(heights, serde_json::json!([70, 30, 20, 80, 50, 50]));
    browser.wait_for(
        "what each source has given",
        "return [...document.querySelectorAll('#sources:not([hidden]) #source-table tbody tr')].map((row) => row.cells[0].textContent).join() === 'photos,drawings'
             && [...document.querySelectorAll('#source-table tbody tr')].every((row) => parseFloat(row.cells[2].textContent) > 1 && row.cells[3].textContent === '0')",
    );
    keep_picture(&browser, "changes");
    if let Some(axe) = axe::script() {
        assert_eq!(axe::violations(&browser, &axe), Vec::<String>::new());
    }
    assert_eq!(browser.console(), Vec::<String>::new(), "the browser complains of nothing");
}

#[test]
fn the_page_says_what_to_start_and_sums_up_what_has_ended() {
    let Some(browser) = Browser::start() else { return };
    let dataset = TestDataset::of_pictures(50, 25);
    let cluster = Cluster::start(1);
    browser.open(&format!("http://{}/", cluster.http));
    let steps =
        "return [...document.querySelectorAll('#idle:not([hidden]) li')].map((step) => 'done' in step.dataset).join()";
    browser.wait_for("what to do after a worker was started", &format!("{steps} === 'true,false,false'"));
    cluster.submit(&dataset.job("short", "epochs = 2"));
    browser.wait_for("what to do after a job was submitted", &format!("{steps} === 'true,true,false'"));
    cluster.pull_all("short", 1, &["node-0"], &[]);
    // Each epoch has two batches of 24 samples, and drops the other two samples.
    browser.wait_for(
        "the summary",
        "return /^The run is finished: 96 samples in \\d+ s, [\\d.,]+ a second; its ranks waited \\d+ % of that time. \
         spdl-ctl audit --run short checks its receipt.$/.test(document.querySelector('#verdict-text').textContent)",
    );
    assert_eq!(browser.run("return document.querySelector('#progress').value"), 1);
    for hidden in ["#idle", "#pipeline"] {
        assert_eq!(browser.run(&format!("return document.querySelector('{hidden}').hidden")), true, "{hidden}");
    }
}

fn it_shows_the_ranks_and_their_limit(browser: &Browser, watched: &Watched) {
    browser.wait_for("a card for each rank", "return document.querySelectorAll('#ranks > li').length === 2");
    browser.wait_for("a verdict", "return document.querySelector('#verdict-text').textContent.includes('rank ')");
    browser.wait_for("a limit", "return document.querySelectorAll('#stages [data-limit]').length === 1");
    // The limit may change between the page's request and this one.
    let is_right = || {
        let status = watched.read("/status");
        let ranks = status["sessions"][0]["ranks"].as_array().expect("ranks");
        let limit = |rank: &Value| rank["diagnosis"]["limit"].as_str().map(ToOwned::to_owned);
        let wait = |rank: &&Value| rank["waiting"].as_f64().map(|waiting| (1e6 * waiting) as u64);
        // The verdict is on the first of those that wait longest.
        let Some(worst) = ranks.iter().rev().max_by_key(wait).and_then(limit) else { return false };
        let is_another = |limit: &String| *limit != worst && limit != "trainer";
        let others: Vec<String> =
            ranks.iter().filter_map(limit).filter(is_another).map(|limit| limit.replace('_', " ")).collect();
        let shown = browser.run(
            "return [...document.querySelectorAll('#ranks .badge:not([hidden])')].map((badge) => badge.textContent)",
        );
        shown == serde_json::json!(others)
    };
    let started = Instant::now();
    while !is_right() {
        assert!(started.elapsed() < LIMIT, "{}", watched.read("/status"));
        sleep(Duration::from_millis(50));
    }
    browser.wait_for(
        "a history of each rank's wait",
        "return [...document.querySelectorAll('#ranks svg')].every((chart) => /^rank \\d waited \\d+ %/.test(chart.textContent))",
    );
    browser.wait_for(
        "a history of each stage",
        "return [...document.querySelectorAll('#stages svg')].every((chart) => chart.textContent.includes('in the time shown'))",
    );
    let shares =
        browser.run("return [...document.querySelectorAll('#stages .shares')].map((node) => node.textContent)");
    assert!(
        shares.as_array().expect("stages").iter().all(|text| text.as_str().is_some_and(|text| text.contains(" %")))
    );
    browser.wait_for(
        "the cores that the worker keeps busy",
        "return /^\\d/.test(document.querySelectorAll('#workers tbody td')[2].textContent)",
    );
    browser.wait_for("how far the run is", "return document.querySelector('#progress').value > 0");
    let left = "return [...document.querySelectorAll('#session-figures > div')]
        .some((figure) => /^Time left\\d.*of this epoch$/.test(figure.textContent))";
    browser.wait_for("the time that is left", left);
    let receipt = browser.run("return document.querySelector('#receipts td code').textContent");
    assert_eq!(receipt.as_str().map(str::len), Some(32), "{receipt}");
}

fn it_changes_without_being_loaded_again(browser: &Browser) {
    browser.run("window.seen = document.querySelector('#ranks .at').textContent");
    browser.wait_for("another position", "return document.querySelector('#ranks .at').textContent !== window.seen");
    assert_eq!(browser.run("return window.loaded"), "once");
}

fn it_shows_a_hostile_key_as_text(browser: &Browser) {
    browser.wait_for("the bad sample", "return document.querySelectorAll('#bad tbody th').length === 1");
    let key = browser.run("return document.querySelector('#bad tbody th').textContent");
    assert_eq!(key, format!("./{HOSTILE_KEY}"), "as it is in the shard");
    let in_events = "return [...document.querySelectorAll('#events .text')].some((node) => node.textContent.includes('<img src=x'))";
    browser.wait_for("the event", in_events);
    assert_eq!(browser.run("return document.querySelectorAll('main img').length"), 0);
    assert_eq!(browser.run("return document.title"), "spdl-cluster");
}

fn it_is_used_by_the_keyboard(browser: &Browser) {
    browser.run("document.activeElement.blur()");
    browser.press(TAB);
    assert_eq!(browser.run("return document.activeElement.className"), "skip");
    browser.press(TAB);
    assert_eq!(browser.run("return document.activeElement.value"), "1000");
    browser.press(RIGHT);
    assert_eq!(browser.run("return document.querySelector('#span :checked').value"), "10000");
    browser
        .wait_for("the hour", "return document.querySelector('#ranks svg').getAttribute('viewBox') === '0 0 360 100'");
    browser.run("document.querySelector('#span input').click()");
}

fn it_loads_nothing_from_elsewhere(browser: &Browser) {
    let elsewhere = browser.run(
        "return performance.getEntriesByType('resource').map((entry) => entry.name)
             .filter((name) => !name.startsWith(location.origin + '/'))",
    );
    assert_eq!(elsewhere, Value::Array(vec![]));
}

fn it_is_accessible_at_every_width(browser: &Browser) {
    let axe = axe::script();
    for (width, is_dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
        browser.show_as(width, is_dark);
        let overhang =
            browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(overhang, 0, "at {width} pixels the page scrolls sideways");
        keep_picture(browser, &format!("{width}-{}", if is_dark { "dark" } else { "light" }));
        if let Some(axe) = &axe {
            assert_eq!(axe::violations(browser, axe), Vec::<String>::new(), "{width} pixels, dark: {is_dark}");
        }
    }
}

/// Leaves a picture of the page in the build directory.
fn keep_picture(browser: &Browser, name: &str) {
    let pictures = target().join("page");
    fs::create_dir_all(&pictures).expect("a folder for pictures");
    let png = BASE64_STANDARD.decode(browser.screenshot()).expect("base64");
    fs::write(pictures.join(format!("{name}.png")), png).expect("a picture is written");
}

fn it_goes_on_with_another_coordinator_and_asks_for_its_token(browser: &Browser, watched: &mut Watched) {
    let file = watched.cluster.path("token");
    fs::write(&file, TOKEN).expect("a token is written");
    watched.cluster.coordinator.take().expect("it runs").kill();
    browser.wait_for("the loss", "return document.querySelector('#connection').dataset.state === 'away'");
    browser.wait_for("a notice", "return document.querySelector('#notice').textContent.includes('does not answer')");
    watched.cluster.coordinator_args = vec!["--http-token-file".to_owned(), file.display().to_string()];
    watched.cluster.start_coordinator();
    browser.wait_for("the question for the token", "return !document.querySelector('#sign-in').hidden");
    let give = |token: &str| {
        browser.run("document.querySelector('#token').focus()");
        browser.press(&format!("{token}{ENTER}"));
    };
    give("another-token-of-some-length");
    browser.wait_for(
        "its refusal",
        "return document.querySelector('#token-problem').textContent.includes('not the token')",
    );
    give(TOKEN);
    browser.wait_for(
        "the events of the second coordinator alone",
        "const kinds = [...document.querySelectorAll('#events .kind')].map((node) => node.textContent);
         return kinds.filter((kind) => kind === 'leads').length === 1 && !kinds.includes('session started')",
    );
    browser.wait_for("the cluster", "return document.querySelector('#connection').dataset.state === 'live'");
    it_changes_without_being_loaded_again(browser);
    assert_eq!(
        browser.run("return location.pathname + location.search + location.hash"),
        "/",
        "the token is in no URL"
    );
}
