//! Datasets and their stores: invalid store settings, secrets in URLs, and manifests and servers that misbehave.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    sync::Arc,
};

use spdl_control::{
    Role,
    messages::{FromCoordinator, ToCoordinator},
};
use tokio::task::JoinSet;

use crate::cluster::{self, CoordinatorProcess, TestPeer, command, dataset, job_text};

async fn refusal(client: &TestPeer, dataset: &str) -> String {
    let toml = job_text("j", Path::new(dataset));
    match client.ask(ToCoordinator::SubmitJob { toml, origin: "mine.toml".to_owned() }).await {
        FromCoordinator::Refused(refusal) => refusal.to_string(),
        other => panic!("{dataset}: {other:?}"),
    }
}

/// Starts a server that answers every request with the same status and body.
fn http_server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/set", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

/// Returns the peak memory of a process, in bytes.
fn peak_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_malformed_setting_of_a_store_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in [
        ("AWS_ENDPOINT", "minio:9000"),
        ("AWS_ENDPOINT", "http://mi nio"),
        ("AWS_SECRET_ACCESS_KEY", "one\ntwo"),
        ("AWS_REGION", "us east"),
        ("AZURE_STORAGE_ENDPOINT", "foo:1"),
    ] {
        let output = cluster::refused(command(&folder.path().join("state"), "127.0.0.1:0").env(name, value));
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(name) && text.contains("hint: ") && !text.contains("panicked"), "{text}");
        assert!(!text.contains("two"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_end_with_a_line_as_in_kubernetes_secrets_work_and_one_bad_job_file_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = folder.path().join("jobs");
    fs::create_dir(&jobs).unwrap();
    let good = dataset(&folder.path().join("data"));
    for (name, dataset) in [("a", Path::new("s3://no bucket/x")), ("b", Path::new("s3://bucket/x")), ("c", &good)] {
        fs::write(jobs.join(format!("{name}.toml")), job_text(name, dataset)).unwrap();
    }
    let server = http_server("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    let endpoint = format!("{}\n", server.strip_suffix("/set").unwrap());
    let state = folder.path().join("state");
    let mut command = command(&state, "127.0.0.1:0");
    command.arg("--jobs").arg(&jobs).envs([
        ("AWS_ENDPOINT", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "me\n"),
        ("AWS_SECRET_ACCESS_KEY", "secret\r\n"),
        ("AWS_SESSION_TOKEN", "token\n"),
        ("AWS_REGION", "us-east-1\n"),
        ("AZURE_STORAGE_ENDPOINT", ""),
    ]);
    let coordinator = CoordinatorProcess::spawn(&mut command);
    let status = coordinator.wait_status(|status| {
        status["job_problems"].as_array().unwrap().len() == 2 && status["jobs"].as_array().unwrap().len() == 1
    });
    assert_eq!(status["jobs"][0]["name"], "c");
    let problem = status["job_problems"][1]["problem"].as_str().unwrap();
    assert!(problem.contains("denied") && problem.contains("403"), "{problem}");
    assert_eq!(coordinator.get("/readyz"), (200, "ready\n".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_or_a_signature_in_a_url_is_refused_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (jobs, log) = (folder.path().join("jobs"), folder.path().join("log"));
    fs::create_dir(&jobs).unwrap();
    let secrets = ["https://me:hunter2@host/set", "s3://key:hunter2@bucket/set", "https://host/set?sig=hunter2"];
    for (number, url) in secrets.iter().enumerate() {
        fs::write(jobs.join(format!("{number}.toml")), job_text("j", Path::new(url))).unwrap();
    }
    // An error message quotes this invalid line.
    fs::write(jobs.join("9.toml"), "dataset = \"https://me:hunter2@host/set\" and more").unwrap();
    let jobs = jobs.to_str().unwrap();
    let coordinator = CoordinatorProcess::start_logged(&folder.path().join("state"), &["--jobs", jobs], &log);
    let client = coordinator.connect(Role::Client).await;
    for url in secrets {
        let text = refusal(&client, url).await;
        assert!(text.contains("environment") && text.contains("***"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    coordinator.wait_status(|status| status["job_problems"].as_array().unwrap().len() == 4);
    let (_, status) = coordinator.get("/status");
    assert!(status.contains("***") && !status.contains("hunter2"), "{status}");
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("***") && !log.contains("hunter2"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_a_server_that_is_no_store_is_not_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &[]);
    let client = coordinator.connect(Role::Client).await;
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ninternal!",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\ninternal!",
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\ninternal!",
        "HTTP/1.1 418 Teapot\r\nContent-Length: 38\r\n\r\n<Code>internal!</Code><a>internal!</a>",
    ] {
        let text = refusal(&client, &http_server(answer)).await;
        assert!(!text.contains("intern"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn datasets_lie_in_the_stores_that_are_named_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
    let (set, other) = (dataset(&inside.join("set")), dataset(&outside));
    let stores = format!("s3://mine, {}", inside.display());
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &["--stores", &stores]);
    let client = coordinator.connect(Role::Client).await;
    let around = inside.join("../outside");
    for dataset in [&other, &around, Path::new("http://169.254.169.254/latest"), Path::new("s3://mine-too/x")] {
        let text = refusal(&client, dataset.to_str().unwrap()).await;
        assert!(text.contains("--stores") && text.contains("s3://mine"), "{text}");
    }
    assert_eq!(client.submit("j", &set).await, FromCoordinator::Done);
}

#[test]
fn an_empty_list_of_stores_is_an_error_and_does_not_allow_every_place() {
    let folder = tempfile::tempdir().unwrap();
    for stores in ["", " ", ",,", "s3://mine,,s3://other"] {
        let output = cluster::refused(command(&folder.path().join("state"), "127.0.0.1:0").args(["--stores", stores]));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains("--stores"), "{stores}: {error}");
        assert!(error.contains("leave the option out to allow every place"), "{stores}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_do_not_answer_hold_up_nobody_but_their_submitter() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &[]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/set", listener.local_addr().unwrap());
    let client = Arc::new(coordinator.connect(Role::Client).await);
    let mut slow = JoinSet::new();
    for number in 0..4 {
        let (client, url) = (Arc::clone(&client), url.clone());
        slow.spawn(async move { client.submit(&format!("slow-{number}"), Path::new(&url)).await });
    }
    let mut asked = Vec::new();
    for _ in 0..4 {
        asked.push(listener.accept().await.unwrap());
    }
    let admin = coordinator.connect(Role::Admin).await;
    assert_eq!(admin.submit("quick", &dataset(&folder.path().join("set"))).await, FromCoordinator::Done);
    assert!(slow.try_join_next().is_none(), "they are still being read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_claims_gigabytes_takes_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &[]);
    let client = coordinator.connect(Role::Client).await;
    let set = dataset(&folder.path().join("set"));
    let manifest = fs::OpenOptions::new().write(true).open(set.join(spdl_shard::manifest::MANIFEST_NAME)).unwrap();
    for (bytes, expected) in [(4 << 30, "--manifest-bytes"), (200 << 20, "bytes follow its end")] {
        // A sparse file: only reading it takes memory.
        manifest.set_len(bytes).unwrap();
        let text = refusal(&client, set.to_str().unwrap()).await;
        assert!(text.contains(expected), "{text}");
    }
    let peak = peak_bytes(coordinator.pid());
    assert!(peak < 128 << 20, "it had {peak} bytes");
}
