//! Faults of the coordinator's disk: full, damaged, lost; and the CA beside the state.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use spdl_control::{
    Role,
    messages::{FromCoordinator, Join, Refusal, ToCoordinator},
};
use spdl_testkit::disk::SmallDisk;

use crate::{
    cluster::{self, CoordinatorProcess, command, dataset, heartbeat, join},
    joined,
};

/// Returns a join of a job other than `j`.
fn join_of(job: &str, nonce: u64) -> ToCoordinator {
    let ToCoordinator::Join(join) = join(0, 1, nonce) else { unreachable!() };
    ToCoordinator::Join(Join { job: job.to_owned(), ..join })
}

fn refused(reply: FromCoordinator) -> Refusal {
    match reply {
        FromCoordinator::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_disk_is_full_nothing_new_is_taken_on_running_ranks_go_on_and_no_session_id_comes_twice() {
    let folder = tempfile::tempdir().unwrap();
    let disk = match SmallDisk::mount(folder.path().join("disk"), 300 << 10) {
        Ok(disk) => disk,
        Err(reason) => return spdl_testkit::skipped(format_args!("no file system can be mounted here: {reason}")),
    };
    let (data, state) = (dataset(&folder.path().join("data")), disk.path("state"));
    let coordinator = CoordinatorProcess::start(&state, &[]);
    let address = coordinator.quic.to_string();
    let client = coordinator.connect(Role::Client).await;
    for job in ["j", "k", "l"] {
        assert_eq!(client.submit(job, &data).await, FromCoordinator::Done);
    }
    let (running, _) = joined(&client, join(0, 1, 10)).await;

    let filler = disk.fill();
    // The database file has some free room: jobs are accepted until that is used up.
    let mut kept = 0;
    let refusal = loop {
        match client.submit(&format!("more-{kept}"), &data).await {
            FromCoordinator::Done => kept += 1,
            other => break refused(other),
        }
        assert!(kept < 1_000, "the disk is never full");
    };
    assert!(matches!(refusal, Refusal::Unwritable { .. }), "{refusal}");
    let text = refusal.to_string();
    assert!(text.contains("coordinator.redb") && text.contains("No space left"), "{text}");
    let (_, why) = coordinator.wait_get("/readyz", |code, _| code == 503);
    assert!(why.contains("coordinator.redb") && why.contains("No space left"), "{why}");
    // Sent twice: a repeated join does not count as one that has its place after the first was refused.
    for _ in 0..2 {
        let refusal = refused(client.ask(join_of("k", 20)).await);
        assert!(matches!(refusal, Refusal::Unwritable { .. }), "{refusal}");
    }
    // A rank that has its place continues, and can join again.
    assert!(matches!(client.ask(heartbeat(&running, 0, 10, 8)).await, FromCoordinator::RankAcknowledged { .. }));
    assert_eq!(joined(&client, join(0, 1, 10)).await.0.id, running.id);

    fs::remove_file(filler).unwrap();
    coordinator.wait_get("/readyz", |code, _| code == 200);
    let (second, _) = joined(&client, join_of("k", 20)).await;
    assert!(second.id > running.id);
    coordinator.kill();

    let coordinator = CoordinatorProcess::start_at(&state, &address, &[]);
    let client = coordinator.connect(Role::Client).await;
    assert!(matches!(client.ask(heartbeat(&running, 0, 10, 16)).await, FromCoordinator::RankAcknowledged { .. }));
    assert_eq!(joined(&client, join_of("k", 20)).await.0.id, second.id);
    let (third, _) = joined(&client, join_of("l", 30)).await;
    assert!(third.id > second.id, "{:?} was given before", third.id);
}

/// Returns the error output of a coordinator that does not start.
fn failure(state: &Path) -> String {
    let output = cluster::refused(&mut command(state, "127.0.0.1:0"));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// Runs `spdl-coord state` with these arguments.
fn state_command(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_spdl-coord")).arg("state").args(args).env_clear().output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_damaged_or_missing_is_refused_and_restored_from_its_backup_or_an_export() {
    let folder = tempfile::tempdir().unwrap();
    let (data, state) = (dataset(&folder.path().join("data")), folder.path().join("state"));
    let coordinator = CoordinatorProcess::start(&state, &[]);
    let client = coordinator.connect(Role::Client).await;
    client.submit("j", &data).await;
    let (session, _) = joined(&client, join(0, 1, 10)).await;
    client.ask(heartbeat(&session, 0, 10, 64)).await;
    coordinator.signal(rustix::process::Signal::TERM);
    coordinator.wait();
    let state_text = state.to_str().unwrap();
    let nothing = folder.path().join("nothing");
    let mut export = Command::new(env!("CARGO_BIN_EXE_spdl-coord"));
    let output = export.args(["state", "export", "--state"]).arg(&nothing).env_clear().output().unwrap();
    assert!(!output.status.success() && !nothing.exists(), "what is not there is not made");
    let export = folder.path().join("export.jsonl");
    state_command(&["export", "--state", state_text, "--out", export.to_str().unwrap()]);
    let exported = fs::read_to_string(&export).unwrap();
    assert_eq!(exported, fs::read_to_string(state.join("backup.jsonl")).unwrap(), "the backup is up to date");

    let database = state.join("coordinator.redb");
    let mut bytes = fs::read(&database).unwrap();
    bytes[0..64].fill(0xa5);
    fs::write(&database, &bytes).unwrap();
    let text = failure(&state);
    for part in ["coordinator.redb", "damaged", "spdl-coord state import", "backup.jsonl", "state create"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(fs::read(&database).unwrap(), bytes, "it is left as it is");
    fs::remove_file(&database).unwrap();
    let text = failure(&state);
    assert!(text.contains("was in use") && text.contains("spdl-coord state import"), "{text}");

    let backup = state.join("backup.jsonl");
    state_command(&["import", "--state", state_text, backup.to_str().unwrap()]);
    let coordinator = CoordinatorProcess::start(&state, &[]);
    let status = coordinator.status();
    assert_eq!(status["jobs"][0]["acknowledged"]["offset"], 64);
    let client = coordinator.connect(Role::Client).await;
    assert!(matches!(client.ask(heartbeat(&session, 0, 10, 72)).await, FromCoordinator::RankAcknowledged { .. }));
    client.submit("k", &data).await;
    let (later, _) = joined(&client, join_of("k", 20)).await;
    assert!(later.id.0 > session.id.0 + 1, "sessions may have begun since the backup: {:?}", later.id);
    coordinator.kill();

    state_command(&["create", "--state", state_text]);
    let coordinator = CoordinatorProcess::start(&state, &[]);
    assert_eq!(coordinator.status()["jobs"].as_array().unwrap().len(), 0);
}

#[test]
fn a_ca_that_is_missing_beside_a_state_in_use_is_not_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    CoordinatorProcess::start(&state, &[]).kill();
    let (ca, elsewhere) = (state.join("ca"), folder.path().join("elsewhere"));
    fs::rename(&ca, &elsewhere).unwrap();
    let text = failure(&state);
    assert!(text.contains(ca.to_str().unwrap()) && text.contains("hint: "), "{text}");
    assert!(!ca.exists());
    fs::rename(&elsewhere, &ca).unwrap();
    CoordinatorProcess::start(&state, &[]);
}

#[test]
fn a_key_of_the_ca_that_everyone_can_read_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let (state, log) = (folder.path().join("state"), folder.path().join("log"));
    CoordinatorProcess::start(&state, &[]).kill();
    let key = state.join("ca/ca.key");
    for (mode, is_warned) in [(0o600, false), (0o640, false), (0o644, true)] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        CoordinatorProcess::start_logged(&state, &[], &log).kill();
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.contains("ca.key") && text.contains("chmod"), is_warned, "{mode:o}: {text}");
    }
}

#[test]
fn an_empty_file_in_place_of_the_state_is_no_new_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("coordinator.redb"), b"").unwrap();
    assert!(failure(&state).contains("it is empty"));
}
