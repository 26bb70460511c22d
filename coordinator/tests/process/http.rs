//! Who may read what over HTTP, and how the page is served.

use std::{fs, net::SocketAddr, process::Command};

use serde_json::Value;
use spdl_control::{Role, messages::FromCoordinator};
use spdl_testkit::http::{HttpAnswer, get_with};

use crate::{
    cluster::{CoordinatorProcess, TIME_LIMIT, dataset, heartbeat, join, refused, worker},
    joined,
};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Returns a command for a coordinator that listens for HTTP on all addresses.
fn open_to_all(folder: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spdl-coord"));
    command.args(["--listen", "127.0.0.1:0", "--http", "0.0.0.0:0", "--state"]).arg(folder.join("state")).env_clear();
    command
}

fn get(coordinator: &CoordinatorProcess, path: &str, headers: &[&str]) -> HttpAnswer {
    let address = SocketAddr::from(([127, 0, 0, 1], coordinator.http.port()));
    get_with(address, path, headers, TIME_LIMIT).unwrap()
}

#[test]
fn an_address_that_others_reach_is_served_with_a_token_alone_and_probes_and_metrics_without() {
    let folder = tempfile::tempdir().unwrap();
    let output = refused(&mut open_to_all(folder.path()));
    let text = String::from_utf8(output.stderr).unwrap();
    for part in
        ["`0.0.0.0:0` can be reached from other machines", "hint:", "--http-token-file FILE", "--http 127.0.0.1:7401"]
    {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    let file = folder.path().join("token");
    fs::write(&file, "short\n").unwrap();
    let output = refused(open_to_all(folder.path()).arg("--http-token-file").arg(&file));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("shorter than 16 characters") && !text.contains("short\n"), "{text}");

    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let coordinator = CoordinatorProcess::spawn(open_to_all(folder.path()).arg("--http-token-file").arg(&file));
    let named = "Host: spdl-coord.spdl.svc";
    for open in ["/healthz", "/readyz", "/metrics", "/", "/main.js", "/page.css"] {
        assert_eq!(get(&coordinator, open, &[named]).code, 200, "{open}");
    }
    for path in ["/status", "/history", "/events"] {
        let without = get(&coordinator, path, &[named]);
        assert_eq!(without.code, 401, "{path}");
        assert!(without.head.to_lowercase().contains("www-authenticate: bearer"), "{}", without.head);
        let wrong = get(&coordinator, path, &[named, "Authorization: Bearer 0123456789abcdef0123456789abcdeF"]);
        assert_eq!(wrong.code, 401, "{path}");
        let right = get(&coordinator, path, &[named, &format!("Authorization: Bearer {TOKEN}")]);
        assert_eq!(right.code, 200, "{path}: {}", right.body);
        assert!(!right.body.contains(TOKEN), "{path} shows the token");
        assert_eq!(
            get(&coordinator, &format!("{path}?token={TOKEN}"), &[named]).code,
            401,
            "no token is read from a URL"
        );
    }
    let metrics = get(&coordinator, "/metrics", &[named]).body;
    assert!(metrics.contains("spdl_coordinator_peers_rejected_total{cause=\"token\"} 3"), "{metrics}");
}

#[test]
fn a_coordinator_without_a_token_answers_no_request_that_names_another_site() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &[]);
    let foreign = get(&coordinator, "/status", &["Host: rebound.example:7401"]);
    assert_eq!(foreign.code, 403);
    assert!(foreign.body.contains("--http-token-file"), "{}", foreign.body);
    assert_eq!(get(&coordinator, "/status", &["Host: 127.0.0.1:7401"]).code, 200);
    assert_eq!(get(&coordinator, "/metrics", &["Host: prometheus.example"]).code, 200);
}

#[test]
fn the_page_may_run_its_own_scripts_and_load_from_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &[]);
    let page = get(&coordinator, "/", &["Host: localhost"]);
    assert!(page.body.starts_with("<!doctype html>"), "{}", page.body);
    let head = page.head.to_lowercase();
    for part in [
        "content-type: text/html",
        "default-src 'none'; script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        assert!(head.contains(part), "`{part}` is not in {head}");
    }
    assert!(!head.contains("unsafe") && !head.contains("access-control-allow"), "{head}");
    let nothing = get(&coordinator, "/nothing", &["Host: localhost"]);
    assert!(nothing.code == 404 && nothing.head.to_lowercase().contains("default-src 'none'"), "{}", nothing.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn history_and_events_show_what_was() {
    let folder = tempfile::tempdir().unwrap();
    let data = dataset(&folder.path().join("data"));
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &[]);
    let client = coordinator.connect(Role::Client).await;
    assert_eq!(client.submit("j", &data).await, FromCoordinator::Done);
    let serving = coordinator.connect(Role::Worker).await;
    serving.ask(worker(1)).await;
    let (session, _) = joined(&client, join(0, 1, 10)).await;
    let id = coordinator.status()["workers"][0]["worker"].as_str().unwrap().to_owned();
    let mut offset = 0;
    let history = loop {
        offset += 8;
        client.ask(heartbeat(&session, 0, 10, offset)).await;
        serving.ask(worker(1)).await;
        let (code, text) = coordinator.get(&format!("/history?session=1&ranks=0&workers={id}"));
        assert_eq!(code, 200, "{text}");
        let history: Value = serde_json::from_str(&text).unwrap();
        if history["ranks"][0]["waiting"].as_array().is_some_and(|steps| !steps.is_empty()) {
            break history;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!((&history["step_ms"], &history["workers"][0]["worker"]), (&1_000.into(), &id.into()));
    assert!(history["ranks"][0]["samples_per_s"][0].as_f64().unwrap() > 0.0, "{history}");
    for (query, problem) in [
        ("step_ms=7", "there are steps of 1000 and 10000"),
        ("ranks=0,x", "`x` in `ranks` is no number"),
        ("workers=zz", "`zz` in `workers` is no worker's id"),
        ("rank=0", "rank"),
    ] {
        let (code, text) = coordinator.get(&format!("/history?{query}"));
        assert!(code == 400 && text.contains(problem), "{query}: {code} {text}");
    }

    let events: Value = serde_json::from_str(&coordinator.get("/events").1).unwrap();
    assert_eq!(events["leads_since_unix_ms"], history["leads_since_unix_ms"]);
    let kinds: Vec<&str> =
        events["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["leads", "job_created", "worker_joined", "session_started"]);
    let after: Value = serde_json::from_str(&coordinator.get("/events?after=3").1).unwrap();
    assert_eq!(after["events"].as_array().unwrap().len(), 1);
}
