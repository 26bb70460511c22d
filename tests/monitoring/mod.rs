//! The alert rules and the dashboard of `k8s/monitoring` with a real Prometheus: it is the one on `PATH`, or Debian's. Where
//! there is none, the tests are skipped with the reason.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use spdl_testkit::{
    LONG, debian, http, ports,
    processes::{Cluster, ServerProcess, TestDataset},
    root, skipped,
};

/// The interval of scrapes and of evaluations of rules, in milliseconds.
const INTERVAL_MS: u64 = 500;

/// Returns the path of a program of Debian's Prometheus. Prints the reason if there is none.
fn program(name: &str) -> Option<PathBuf> {
    debian::program(name, "prometheus").inspect_err(|reason| skipped(format_args!("no {name}: {reason}"))).ok()
}

fn monitoring(file: &str) -> PathBuf {
    root().join("k8s/monitoring").join(file)
}

#[test]
fn promtool_accepts_the_rules_and_their_unit_tests_pass() {
    let Some(promtool) = program("promtool") else { return };
    for (command, file) in [("check", "rules.yaml"), ("test", "rules.test.yaml")] {
        let output = Command::new(&promtool).args([command, "rules"]).arg(monitoring(file)).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {command} rules {file}: {text}");
    }
    // Another threshold than the tests expect.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rules = fs::read_to_string(monitoring("rules.yaml")).expect("the rules");
    fs::write(folder.path().join("rules.yaml"), rules.replace("stall_seconds > 30", "stall_seconds > 20"))
        .expect("a file");
    fs::copy(monitoring("rules.test.yaml"), folder.path().join("rules.test.yaml")).expect("a file");
    let tests = folder.path().join("rules.test.yaml");
    let output = Command::new(&promtool).args(["test", "rules"]).arg(tests).output().expect("it runs");
    assert!(!output.status.success(), "the unit tests notice no change of a rule");
}

/// A Prometheus that scrapes a cluster; killed when dropped.
struct Prometheus {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(program: &PathBuf, targets: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (config, rules) = (folder.path().join("prometheus.yml"), monitoring("rules.yaml"));
        let text = format!(
            "global: {{ scrape_interval: {INTERVAL_MS}ms, scrape_timeout: {INTERVAL_MS}ms, evaluation_interval: {INTERVAL_MS}ms }}\n\
             rule_files: ['{}']\n\
             scrape_configs: [{{ job_name: spdl, honor_labels: true, static_configs: [{{ targets: {targets:?} }}] }}]\n",
            rules.display()
        );
        fs::write(&config, text).expect("the configuration is written");
        let address = ports::lasting();
        // The kernel kills Prometheus when the test process ends, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let log = fs::File::create(folder.path().join("log")).expect("a log file");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("Prometheus starts");
        Self { child, address, _folder: folder }
    }

    /// Returns the data of an answer of its API.
    fn ask(&self, path: &str) -> Result<Value, String> {
        let (code, body) = http::get(&self.address, path, LONG).map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&body).map_err(|error| format!("{error} in {code} {body}"))?;
        if answer["status"] == "success" { Ok(answer["data"].clone()) } else { Err(body) }
    }

    /// Evaluates an expression now and returns the series.
    fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let data = self.ask(&format!("/api/v1/query?query={}", escaped(expression)))?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until an expression has a result.
    fn wait_for(&self, expression: &str) -> Vec<Value> {
        let deadline = Instant::now() + LONG;
        loop {
            let result = self.query(expression);
            match result {
                Ok(series) if !series.is_empty() => return series,
                _ if Instant::now() > deadline => panic!("`{expression}` has no result: {result:?}"),
                _ => thread::sleep(Duration::from_millis(INTERVAL_MS / 2)),
            }
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Escapes a text for the query of a URL.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() {
            escaped.push(byte.into());
        } else {
            write!(escaped, "%{byte:02X}").expect("a string takes everything");
        }
        escaped
    })
}

/// Returns the title and the expression of every query of the dashboard, with Grafana's variables set.
fn dashboard() -> Vec<(String, String)> {
    let text = fs::read_to_string(monitoring("dashboard.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().expect("a title").to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let expression = move |target: Value| {
            let expression = target["expr"].as_str().expect("an expression");
            (title.clone(), expression.replace("$__rate_interval", "5s").replace("$job", ".*"))
        };
        targets.into_iter().map(expression).collect::<Vec<_>>()
    };
    panels.iter().flat_map(of_panel).collect()
}

/// Writes a job with sources, which have metrics of their own.
fn blend(dataset: &TestDataset) -> PathBuf {
    let source =
        |name: &str| format!("[[source]]\nname = \"{name}\"\ndataset = {:?}\nweight = 1\n", dataset.path("dataset"));
    let column = "[[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n";
    let job = dataset.path("blend.toml");
    let text =
        format!("name = \"blend\"\nglobal_batch = 8\ntotal_samples = 80\n{}{}{column}", source("one"), source("other"));
    fs::write(&job, text).expect("a job file is written");
    job
}

#[test]
fn every_expression_of_dashboard_and_rules_has_data_of_a_running_cluster() {
    let Some(program) = program("prometheus") else { return };
    let dataset = TestDataset::of_pictures(64, 16);
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--cores", "0.3"]);
    cluster.submit(&dataset.training_job("a-job", 1_000_000));
    cluster.submit(&blend(&dataset));
    let _ranks = [("node-0", 0), ("elsewhere", 1)]
        .map(|(node, rank)| ServerProcess::spawn(&mut cluster.pull("a-job", rank, 2, node, &[])));
    let worker = cluster.workers[0].ready["http"].as_str().expect("an address").to_owned();
    let prometheus = Prometheus::start(&program, &[&cluster.http, &worker]);

    let limits = prometheus.wait_for("count by (rank) (spdl_coordinator_rank_limit{job=\"a-job\"}) > 0");
    assert!(!limits.is_empty() && limits.len() <= 2, "one series for each rank: {limits:?}");
    prometheus.wait_for("count(spdl_coordinator_rank_limit) == 2 and count(spdl_coordinator_job_gain_ratio) == 7");
    // Whatever follows from two scrapes.
    prometheus.wait_for("sum(rate(spdl_worker_stage_items_total{stage=\"decode\"}[5s])) > 0");
    let queries = dashboard();
    assert!(queries.len() > 30, "{queries:?}");
    let without: Vec<&(String, String)> = queries
        .iter()
        .filter(|(_, expression)| prometheus.query(expression).is_ok_and(|series| series.is_empty()))
        .collect();
    let wrong = |(_, expression): &&(String, String)| prometheus.query(expression).is_err();
    assert!(queries.iter().find(wrong).is_none(), "{:?}", queries.iter().find(wrong));
    // A panel may have had no data at the moment of a scrape; all of them get some.
    without.iter().for_each(|(_, expression)| drop(prometheus.wait_for(expression)));

    let shares = prometheus.wait_for("sum by (stage) ({__name__=~\"spdl_worker_stage_(busy|input_wait|output_wait|throttled)_seconds_total\",stage=\"decode\"})");
    assert_eq!(shares.len(), 1, "{shares:?}");
    assert_rules_are_evaluated(&prometheus);
    assert_documented(&prometheus);
}

/// Checks that Prometheus has evaluated each rule without an error, and that what they look at is there.
fn assert_rules_are_evaluated(prometheus: &Prometheus) {
    let deadline = Instant::now() + LONG;
    let rules = loop {
        let groups = prometheus.ask("/api/v1/rules").expect("the rules");
        let rules = groups["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
        if !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok") {
            break rules;
        }
        assert!(Instant::now() < deadline, "rules are not evaluated: {rules:?}");
        thread::sleep(Duration::from_millis(INTERVAL_MS));
    };
    assert!(rules.len() >= 10, "{rules:?}");
    for rule in rules {
        let text = rule["query"].as_str().expect("an expression");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("spdl_")) {
            // Without a threshold, so that it has data in a cluster without faults.
            prometheus.wait_for(name);
        }
    }
}

/// Checks that the metrics that Prometheus has scraped are those of the documentation.
fn assert_documented(prometheus: &Prometheus) {
    let metadata = prometheus.ask("/api/v1/metadata").expect("the metadata");
    let names = metadata.as_object().expect("an object").keys();
    let scraped: BTreeSet<String> = names.filter(|name| name.starts_with("spdl_")).cloned().collect();
    let page = fs::read_to_string(root().join("docs/guide/observe/metrics.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `spdl_")?.split_once('`'));
    let documented: BTreeSet<String> = rows.map(|(name, _)| format!("spdl_{name}")).collect();
    let missing: Vec<_> = scraped.symmetric_difference(&documented).collect();
    assert!(missing.is_empty(), "only scraped or only documented: {missing:?}");
}
