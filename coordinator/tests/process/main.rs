//! `spdl-coord` as a real process: QUIC with certificates, HTTP, the jobs directory, kill -9 and signals.

mod cluster;
mod disk;
mod http;
mod stores;
mod strangers;

use std::{ffi::OsStr, fs, path::Path};

use cluster::{CoordinatorProcess, TestPeer, command, dataset, heartbeat, job_text, join, refused, worker};
use rustix::process::Signal;
use spdl_control::{
    Role,
    messages::{FromCoordinator, Home, Refusal, Session, ToCoordinator},
};
use spdl_job::MAX_JOB_FILE_BYTES;
use spdl_types::{Position, WorkerId};
use spdl_wire::certs::{ClusterCa, LEAF_VALIDITY};

async fn joined(peer: &TestPeer, request: ToCoordinator) -> (Session, Option<Home>) {
    match peer.ask(request).await {
        FromCoordinator::Joined { session, home, .. } => (*session, home),
        other => panic!("{other:?}"),
    }
}

async fn home_of(peer: &TestPeer, request: ToCoordinator) -> Option<WorkerId> {
    match peer.ask(request).await {
        FromCoordinator::RankAcknowledged { home, .. } => home.map(|home| home.worker),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_get_a_home_and_another_one_when_its_connection_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let data = dataset(&folder.path().join("data"));
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &[]);
    let client = coordinator.connect(Role::Client).await;
    assert_eq!(client.submit("j", &data).await, FromCoordinator::Done);
    let (first, second) = (coordinator.connect(Role::Worker).await, coordinator.connect(Role::Worker).await);
    assert!(matches!(
        first.ask(worker(1)).await,
        FromCoordinator::WorkerAcknowledged {
            heartbeat_ms: 1_000,
            liveness_ms: 5_000,
            trace: None,
            peers: None,
            helpers: None
        }
    ));

    let (session, home) = joined(&client, join(0, 2, 10)).await;
    assert_eq!((session.world, session.global_batch, session.job.samples), (2, 8, 1_000));
    assert_eq!(home.unwrap().worker, WorkerId(1));
    second.ask(worker(2)).await;
    assert_eq!(home_of(&client, heartbeat(&session, 0, 10, 8)).await, Some(WorkerId(1)));

    drop(first);
    coordinator.wait_status(|status| status["workers"].as_array().unwrap().len() == 1);
    assert_eq!(home_of(&client, heartbeat(&session, 0, 10, 16)).await, Some(WorkerId(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_jobs_sessions_and_positions_are_still_known() {
    let folder = tempfile::tempdir().unwrap();
    let (data, state) = (dataset(&folder.path().join("data")), folder.path().join("state"));
    let coordinator = CoordinatorProcess::start(&state, &[]);
    let address = coordinator.quic.to_string();
    let client = coordinator.connect(Role::Client).await;
    assert_eq!(client.submit("j", &data).await, FromCoordinator::Done);
    let (session, _) = joined(&client, join(0, 2, 10)).await;
    joined(&client, join(1, 2, 11)).await;
    for rank in [0, 1] {
        client.ask(heartbeat(&session, rank, 10 + u64::from(rank), 96 + 8 * u64::from(rank))).await;
    }
    // Rank 1 leaves, which persists what both ranks have acknowledged.
    let ToCoordinator::RankHeartbeat(leave) = heartbeat(&session, 1, 11, 104) else { unreachable!() };
    assert_eq!(client.ask(ToCoordinator::RankLeave(leave)).await, FromCoordinator::Done);
    coordinator.kill();

    let coordinator = CoordinatorProcess::start_at(&state, &address, &[]);
    let client = coordinator.connect(Role::Client).await;
    assert_eq!(client.submit("j", &data).await, FromCoordinator::Done, "the job reads back as it was written");
    let FromCoordinator::Job(job) = client.ask(ToCoordinator::DescribeJob { name: "j".to_owned() }).await else {
        panic!("no job")
    };
    assert_eq!(*job, session.job);
    assert!(matches!(client.ask(heartbeat(&session, 0, 10, 96)).await, FromCoordinator::RankAcknowledged { .. }));
    let (again, _) = joined(&client, join(0, 4, 20)).await;
    assert_eq!(again.start, Position::new(0, 96), "the last position that both had acknowledged");
    assert!(again.id > session.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn http_answers_probes_prometheus_and_people() {
    let folder = tempfile::tempdir().unwrap();
    let data = dataset(&folder.path().join("data"));
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &[]);
    assert_eq!(coordinator.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(coordinator.get("/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(coordinator.get("/nothing").0, 404);

    let client = coordinator.connect(Role::Client).await;
    client.submit("j", &data).await;
    let (session, _) = joined(&client, join(0, 1, 10)).await;
    client.ask(heartbeat(&session, 0, 10, 64)).await;
    let status = coordinator.status();
    assert_eq!(status["jobs"][0]["name"], "j");
    assert_eq!(status["jobs"][0]["acknowledged"]["offset"], 64);
    let rank = &status["sessions"][0]["ranks"][0];
    assert_eq!((rank["position"]["offset"].as_u64(), rank["waited_ms"].as_u64()), (Some(64), Some(17)));
    assert_eq!(rank["receipt"], "fffffffffffffffffffffffffffffff8");
    assert!(rank["home"].is_null());
    let FromCoordinator::Status(text) = client.ask(ToCoordinator::Status).await else { panic!("no status") };
    let over_quic: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(over_quic["jobs"], status["jobs"]);

    let (code, metrics) = coordinator.get("/metrics");
    assert_eq!(code, 200);
    for line in [
        "spdl_coordinator_jobs 1.0",
        "spdl_coordinator_job_offset_samples{job=\"j\"} 64.0",
        "spdl_coordinator_job_ranks_homeless{job=\"j\"} 1.0",
        "spdl_coordinator_requests_total{request=\"join\",outcome=\"done\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_decide_which_peers_may_connect_and_what_they_may_request() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &[]);
    let stranger = coordinator.try_connect(&folder.path().join("another cluster"), Role::Client).await;
    assert!(stranger.is_err(), "a certificate of another cluster");
    let pretender = coordinator.try_connect(&coordinator.state.join("ca"), Role::Coordinator).await;
    assert!(pretender.err().unwrap().to_string().contains("coordinator"), "a role that has no business here");
    let client = coordinator.connect(Role::Client).await;
    let refused = client.ask(worker(1)).await;
    let expected = Refusal::Role { role: "client".to_owned(), request: "WorkerHeartbeat".to_owned() };
    assert_eq!(refused, FromCoordinator::Refused(expected));
    let admin = coordinator.connect(Role::Admin).await;
    let refused = admin.ask(ToCoordinator::RemoveJob { name: "none".to_owned() }).await;
    assert!(matches!(refused, FromCoordinator::Refused(Refusal::UnknownJob { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_be_is_refused_with_the_key_or_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let data = dataset(&folder.path().join("data"));
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &[]);
    let client = coordinator.connect(Role::Client).await;
    let good = job_text("j", &data);
    for (toml, expected) in [
        (good.replace("global_batch", "globel_batch"), "globel_batch"),
        (good.replace("global_batch = 8", "global_batch = 0"), "`global_batch`"),
        (job_text("j", &folder.path().join("nowhere")), "nowhere"),
        (format!("# {}\n{good}", "x".repeat(MAX_JOB_FILE_BYTES)), "more than 7340032"),
    ] {
        let reply = client.ask(ToCoordinator::SubmitJob { toml, origin: "mine.toml".to_owned() }).await;
        let FromCoordinator::Refused(refusal) = reply else { panic!("{expected}: {reply:?}") };
        let text = refusal.to_string();
        assert!(text.contains(expected) && text.contains("mine.toml"), "{expected}: {text}");
    }
    let (_, status) = coordinator.get("/status");
    assert!(!status.contains("mine.toml"), "only the jobs directory's problems are shown");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_directory_is_loaded_and_what_is_wrong_with_a_file_is_shown_until_it_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let data = dataset(&folder.path().join("data"));
    let jobs = folder.path().join("jobs");
    fs::create_dir(&jobs).unwrap();
    fs::write(jobs.join("a.toml"), job_text("a", &data).replace("column", "colum")).unwrap();
    fs::write(jobs.join("b.toml"), job_text("b", &data)).unwrap();
    fs::write(jobs.join("c.toml"), job_text("c", &folder.path().join("later"))).unwrap();
    fs::write(jobs.join("notes.txt"), "no job").unwrap();
    let coordinator = CoordinatorProcess::start(&folder.path().join("state"), &["--jobs", jobs.to_str().unwrap()]);
    let status = coordinator.wait_status(|status| status["job_problems"].as_array().unwrap().len() == 2);
    let problem = |at: usize| status["job_problems"][at]["problem"].as_str().unwrap().to_owned();
    assert!(problem(0).contains("a.toml") && problem(0).contains("`colum`"), "{}", problem(0));
    assert!(problem(1).contains("c.toml") && problem(1).contains("later"), "{}", problem(1));
    assert_eq!(status["jobs"][0]["name"], "b");

    fs::remove_file(jobs.join("a.toml")).unwrap();
    dataset(&folder.path().join("later"));
    let status = coordinator.wait_status(|status| status["job_problems"].as_array().unwrap().is_empty());
    assert_eq!(status["jobs"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_and_sigint_stop_it_in_good_order_and_the_state_is_free_again() {
    let folder = tempfile::tempdir().unwrap();
    let (data, state) = (dataset(&folder.path().join("data")), folder.path().join("state"));
    for (signal, offset) in [(Signal::TERM, 8), (Signal::INT, 16)] {
        let coordinator = CoordinatorProcess::start(&state, &[]);
        let client = coordinator.connect(Role::Client).await;
        client.submit("j", &data).await;
        let (session, _) = joined(&client, join(0, 1, 10)).await;
        client.ask(heartbeat(&session, 0, 10, offset)).await;
        coordinator.signal(signal);
        let reason = client.connection.closed().await.to_string();
        assert!(reason.contains("stopping"), "the peer gets the reason: {reason}");
        assert_eq!(coordinator.wait(), Some(0));
    }
    let coordinator = CoordinatorProcess::start(&state, &[]);
    assert_eq!(coordinator.status()["jobs"][0]["acknowledged"]["offset"], 16);
}

#[test]
fn a_second_coordinator_on_one_state_directory_reports_why_it_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let _first = CoordinatorProcess::start(folder.path(), &[]);
    let second = refused(&mut command(folder.path(), "127.0.0.1:0"));
    let text = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(text.contains("in use by another process") && text.contains("hint: "), "{text}");
    assert!(second.stdout.is_empty(), "it was never ready");
}

#[test]
fn a_port_that_is_taken_is_named_with_the_option_to_choose_another() {
    let folder = tempfile::tempdir().unwrap();
    let first = CoordinatorProcess::start(&folder.path().join("1"), &[]);
    let second = refused(&mut command(&folder.path().join("2"), &first.quic.to_string()));
    let text = String::from_utf8(second.stderr).unwrap();
    assert!(text.contains(&first.quic.to_string()) && text.contains("--listen"), "{text}");
}

#[test]
fn a_coordinator_with_its_state_in_etcd_wants_the_clusters_ca_and_a_certificate_of_its_role() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = Path::new("etcd://127.0.0.1:1/spdl");
    let ca = folder.path().join("ca");
    let certs = folder.path().join("certs");
    let text = |more: [&OsStr; 2]| {
        let output = refused(command(etcd, "127.0.0.1:0").args(more.iter().filter(|arg| !arg.is_empty())));
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    for more in [["".as_ref(), "".as_ref()], ["--ca".as_ref(), ca.as_os_str()]] {
        let text = text(more);
        assert!(text.contains("CA") && text.contains("hint: `spdl-ctl cert"), "{text}");
    }
    let issued = ClusterCa::open_or_create(&ca).unwrap().issue(Role::Worker, "w", &[], LEAF_VALIDITY).unwrap();
    issued.write(&certs).unwrap();
    let error_output = text(["--certs".as_ref(), certs.as_os_str()]);
    assert!(error_output.contains("`w` is for a worker"), "{error_output}");
    ClusterCa::open_or_create(&ca).unwrap();
    let advertise = |address: &str| {
        let mut command = command(etcd, "127.0.0.1:0");
        let output = refused(command.args(["--advertise", address, "--ca"]).arg(&ca));
        String::from_utf8(output.stderr).unwrap()
    };
    for address in ["0.0.0.0:0", "127.0.0.1:0", "0.0.0.0:7400"] {
        let error_output = advertise(address);
        assert!(error_output.contains(&format!("`{address}` is not HOST:PORT")), "{error_output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_without_its_etcd_reports_it_to_every_caller_and_stops_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca");
    ClusterCa::open_or_create(&ca).unwrap();
    let more = ["--ca", ca.to_str().unwrap()];
    let coordinator = CoordinatorProcess::start(Path::new("etcd://127.0.0.1:1/spdl"), &more);
    let client = coordinator.try_connect(&ca, Role::Client).await.unwrap();
    let reply = client.ask(join(0, 1, 10)).await;
    let FromCoordinator::Refused(Refusal::NotLeader { leader: None, cause }) = reply else { panic!("{reply:?}") };
    assert!(cause.contains("no coordinator"), "{cause}");
    coordinator.wait_status(|status| status["leads"] == false && status["leader"].is_null());
    let (code, text) = coordinator.get("/readyz");
    assert!(code == 503 && text.contains("does not lead"), "{text}");
    assert_eq!(coordinator.get("/healthz").0, 200);
    coordinator.signal(Signal::TERM);
    let reason = client.connection.closed().await.to_string();
    assert!(reason.contains("stopping"), "the peer gets the reason: {reason}");
    assert_eq!(coordinator.wait(), Some(0));
}
