//! Tests of the lines that `status` shows.

use serde_json::{Value, json};

use super::*;
use crate::ctl::table::WIDTH;
use spdl_control::coordinator::{FirstStep, SequenceStatus};

pub(crate) fn rank(rank: u32, waiting: f64) -> Value {
    json!({
        "rank": rank, "client": "process 7 on node-0", "node": "n", "is_alive": true, "left": false,
        "position": { "epoch": 2, "offset": 4096 }, "receipt": "00", "home": "node-0", "home_worker": "1",
        "transport": "local", "waited_ms": 90_000, "job_samples_per_s": 4000.0, "waiting": waiting, "heartbeat_age_ms": 10,
    })
}

pub(crate) fn session(id: u64, ranks: &[Value]) -> Value {
    let rate = ranks.iter().any(|rank| rank["is_alive"] == true).then_some(4000.0);
    json!({
        "session": id, "job": "train", "run": "train", "epochs": 90, "reason": "Given", "launch": null, "world": 2, "global_batch": 64, "start": { "epoch": 0, "offset": 0 },
        "acknowledged": { "epoch": 2, "offset": 4096 }, "superseded_by": null, "is_reset": false, "ranks": ranks,
        "lasted_ms": 645_000, "progress": {
            "done_samples": 2_566_400, "all_samples": 115_303_680, "done": 0.022, "is_finished": false, "epoch": 3,
            "epoch_samples": 1_281_152, "epoch_done": 0.003, "samples_per_s": rate, "epoch_left_ms": 319_264,
            "left_ms": 28_184_320, "session_samples": 2_566_400, "mean_samples_per_s": 3978.9, "waited": 0.14,
        },
    })
}

/// Returns a session that has ended, by itself or at the end of its run.
pub(crate) fn ended(id: u64, is_finished: bool) -> Value {
    let left = |number| {
        let mut rank = rank(number, 0.0);
        (rank["is_alive"], rank["left"]) = (false.into(), true.into());
        rank
    };
    let mut session = session(id, &[left(0), left(1)]);
    session["progress"]["is_finished"] = is_finished.into();
    session
}

fn window(seconds: u64, busy: f64) -> Value {
    json!({ "window_ms": seconds * 1_000, "seconds": seconds, "stages": [{
        "name": "decode", "items_per_s": 4012.4, "bytes_per_s": 1.0, "failures_per_s": 0.0, "busy": busy, "input_wait": 1.0,
        "output_wait": 0.0, "throttled": 0.75, "cpu": 6.0,
    }]})
}

pub(crate) fn worker(name: &str) -> Value {
    json!({
        "worker": "1", "name": name, "node": "rack-7", "quic": "10.0.0.1:7500", "socket": "/run/spdl.sock", "cores": 8.0,
        "draining": false, "heartbeat_age_ms": 5,
        "ranks": [{ "session": 2, "rank": 1, "transport": "local", "batches": 7, "ready": 0, "slots": 4, "stall": {
            "worker": name, "stage": "fetch", "waiting_for": "block 3 of shard `s3://bucket/train/shard-000003.tar` for rank \
             1 of job `train`; requests have failed for 8481 ms, 17 in all, the last with: the server answered 503",
            "waited_ms": 8481,
        }}],
        "stages": [{ "name": "decode", "items": 123_456, "bytes": 1, "failures": 1, "busy_ns": 5,
            "input_wait_ns": 7, "output_wait_ns": 0, "throttled_ns": 0, "cpu_ns": 5, "units": 8, "queue_depth": 0,
            "p50_ns": 1_500_000, "p90_ns": 2_000_000, "p99_ns": 9_000_000 }],
        "windows": [window(1, 9.0), window(10, 6.25), window(60, 9.0)],
        "uptime_ms": 70_000, "cpu_ns": 7,
        "cache": { "used_bytes": 1, "limit_bytes": 2, "window_bytes": 1, "transit_bytes": 1, "dataset_bytes": 3 }, "slow_object": null,
        "store": { "requests": 9, "answers": 9, "first_byte_ns": 40000000, "retries": 1, "timeouts": 0, "drips": 0, "refusals": 0, "hedges": 2, "hedge_wins": 1,
            "wrong_bytes": 0, "cache_faults": 0, "single_use_bytes": 0, "outage_ms": 0 },
        "peers": { "received_blocks": 3, "received_bytes": 24_000_000, "sent_blocks": 1, "sent_bytes": 8_000_000, "misses": 5, "failures": 0, "late": 1 },
        "tuned": [
            { "value": "requests", "current": 128, "is_pinned": false },
            { "value": "read_ahead", "current": 16, "is_pinned": true },
        ],
        "tuning": [{ "value": "requests", "from": 64, "to": 128, "reason": "a trial", "at_ms": 1500 }],
    })
}

pub(crate) fn status(sessions: &[Value], workers: &[Value]) -> Status {
    let job = json!({
        "name": "train", "dataset": "d", "fingerprint": "0", "dataset_fingerprint": "0", "samples": 1_281_167, "seed": 0,
        "global_batch": 64, "epochs": 90, "epoch_end": "drop", "bad_samples": "substitute", "max_bad_fraction": 0.1,
        "order": { "version": 1, "lanes": 1, "window": 1, "shuffle": true }, "failed": null, "session": 2, "runs": [],
        "acknowledged": { "epoch": 2, "offset": 4096 }, "bad_sample_count": 1, "bad_fraction": 0.0,
        "bad_sample_list": [{ "sample": 5, "shard": "s.tar", "key": "k", "cause": "it is cut off" }],
    });
    let text = json!({
        "version": "0.1.0", "protocol_version": 5, "leads": true, "leader": null, "uptime_ms": 7_260_000, "jobs": [job],
        "job_problems": [], "sessions": sessions, "workers": workers, "first_steps": [],
    });
    serde_json::from_value(text).unwrap()
}

#[test]
fn one_table_shows_all_processes_and_their_rates() {
    let mut silent = rank(0, 0.0);
    silent["is_alive"] = false.into();
    let over = session(1, &[silent]);
    let status = status(&[over, session(2, &[rank(0, 0.004), rank(1, 0.5)])], &[worker("node-0")]);
    let shown = [
        "coordinator 0.1.0, up 2 h 1 min: 1 job, 1 worker",
        "",
        "               STATE    POSITION  SAMPLES/S  WAITING",
        "job train      running    2:4096                      90 epochs of 1 281 167 samples, 1 bad sample",
        "  session 2    running    2:4096      4 000     50 %  2 ranks, from 0:0",
        "    rank 0     alive      2:4096      2 000      0 %  home node-0 (local)",
        "    rank 1     alive      2:4096      2 000     50 %  home node-0 (local)",
        "worker node-0  ready                  4 012           1 rank, 6.2 of 8 cores decode, node rack-7",
        "",
        "bad sample 5 of `train` (`s.tar`, `k`): it is cut off",
        "session 2: 2 % done, 2 566 400 of 115 303 680 samples; epoch 3 of 90 at 0 %; 7 h 49 min left, 5 min",
        "    19 s of this epoch",
        "rank 1 of session 2: stage `fetch` of worker `node-0` has waited 8481 ms for block 3 of shard",
        "    `s3://bucket/train/shard-000003.tar` for rank 1 of job `train`; requests have failed for 8481",
        "    ms, 17 in all, the last with: the server answered 503",
    ];
    assert_eq!(lines(&status, false), shown);
}

#[test]
fn a_run_is_named_where_its_name_is_not_the_jobs() {
    let mut sweep = session(3, &[rank(0, 0.0), rank(1, 0.0)]);
    sweep["run"] = "lr-3e-4".into();
    let mut status = status(&[sweep, session(4, &[rank(0, 0.0), rank(1, 0.0)])], &[]);
    let run = |name: &str, holder: Option<&str>| {
        let text = json!({ "name": name, "epochs": 120, "session": 3, "acknowledged": { "epoch": 2, "offset": 4096 },
            "is_finished": false, "ranks_alive": 2, "holder": holder, "receipt": null });
        serde_json::from_value(text).unwrap()
    };
    status.jobs[0].runs = vec![run("lr-1e-4", None), run("lr-3e-4", Some("rank 0 of 2")), run("train", Some("rank 0"))];
    let names: Vec<String> = lines(&status, false)[3..10].iter().map(|line| line[..15].trim_end().to_owned()).collect();
    let expected =
        ["job train", "  session 4", "    rank 0", "    rank 1", "  run lr-3e-4", "  session 3", "    rank 0"];
    assert_eq!(names, expected);
    let run = lines(&status, false).into_iter().find(|line| line.starts_with("  run ")).unwrap();
    assert_eq!(run.split_whitespace().collect::<Vec<_>>().join(" "), "run lr-3e-4 running 2:4096 120 epochs");
}

#[test]
fn details_are_stages_stores_and_what_is_over() {
    let mut silent = rank(0, 0.0);
    silent["is_alive"] = false.into();
    let status = status(&[session(1, &[silent])], &[worker("node-0")]);
    let brief = lines(&status, false);
    assert!(!brief.iter().any(|line| line.contains("session 1 ") || line.contains("p99")), "{brief:#?}");
    let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let full: Vec<String> = lines(&status, true).iter().map(words).collect();
    for expected in [
        "session 1 over 2:4096 - - 1 of 2 ranks, from 0:0",
        "address 10.0.0.1:7500, /run/spdl.sock",
        "decode 8 units 4 012 78 % busy, 13 % input, 9 % throttled",
        "p99 9.0 ms, 1 B/s, 1 failure",
        "store 9 requests, 1 retry, 2 hedges (1 won)",
        "peers 3 blocks received, 1 sent, 1 request late",
        "tuned 128 requests, 16 steps ahead pinned",
    ] {
        assert!(full.iter().any(|line| line == expected), "`{expected}` is not in\n{full:#?}");
    }
}

#[test]
fn no_line_is_wider_than_a_terminal() {
    let long = "a-worker-with-a-name-that-is-made-of-the-whole-name-of-its-pod-7d9f8b6c5-x2x4z";
    let mut far = rank(1, 1.0);
    far["home"] = long.into();
    far["position"] = json!({ "epoch": 89, "offset": 1_281_166 });
    let mut status = status(&[session(2, &[rank(0, 0.0), far])], &[worker(long)]);
    status.jobs[0].name = long.to_owned();
    status.sessions[0].job = long.to_owned();
    for details in [false, true] {
        let lines = lines(&status, details);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("a-worker-wi") && line.contains("x2x4z")), "{lines:#?}");
    }
}

#[test]
fn a_job_whose_ranks_have_ended_has_a_summary_of_its_last_session() {
    let notes = |sessions: &[Value], details| -> Vec<String> {
        let is_summary = |line: &String| line.starts_with("session ") || line.starts_with("    ");
        lines(&status(sessions, &[]), details).into_iter().skip(3).filter(is_summary).collect()
    };
    let finished = [
        "session 2: the run is finished: 2 566 400 samples in 10 min 45 s, 3 979 a second; its ranks waited",
        "    14 % of that time; `spdl-ctl audit --run train` checks its receipt",
    ];
    assert_eq!(notes(&[ended(1, false), ended(2, true)], false), finished);
    let all = notes(&[ended(1, false), ended(2, true)], true).join("\n");
    assert!(all.contains("session 1: it has ended before the run's last sample, and the next launch goes on"), "{all}");
    let mut restored = ended(2, true);
    restored["lasted_ms"] = Value::Null;
    (restored["progress"]["mean_samples_per_s"], restored["progress"]["waited"]) = (Value::Null, Value::Null);
    let short = "session 2: the run is finished: 2 566 400 samples; `spdl-ctl audit --run train` checks its receipt";
    assert_eq!(notes(&[restored], false), [short]);
    let runs = session(3, &[rank(0, 0.0), rank(1, 0.0)]);
    let of_running = notes(&[ended(2, true), runs], false).join("\n");
    assert!(of_running.contains("session 3: 2 % done") && !of_running.contains("finished"), "{of_running}");
}

#[test]
fn a_cluster_in_which_nothing_ran_says_what_to_start() {
    let mut status = status(&[], &[]);
    status.jobs.clear();
    let about = "coordinator 0.1.0, up 2 h 1 min: 0 jobs, 0 workers";
    assert_eq!(lines(&status, false), [about]);
    let step =
        |text: &str, command: &str, is_done| FirstStep { text: text.to_owned(), command: command.to_owned(), is_done };
    status.first_steps =
        vec![step("Start a worker.", "spdl-worker", true), step("Submit a job.", "spdl-ctl job", false)];
    let steps = [
        "",
        "nothing runs here yet:",
        "  1. Start a worker (done)",
        "       spdl-worker",
        "  2. Submit a job",
        "       spdl-ctl job",
    ];
    assert_eq!(lines(&status, false)[1..], steps);
    status.jobs = tests::status(&[], &[]).jobs;
    assert!(lines(&status, false).ends_with(&steps.map(str::to_owned)), "behind the table");
}

#[test]
fn sequences_are_called_so_with_their_tokens_and_how_full_they_are() {
    let mut status = status(&[session(2, &[rank(0, 0.0), rank(1, 0.5)])], &[worker("node-0")]);
    status.workers[0].ranks.clear();
    status.jobs[0].sequence =
        Some(SequenceStatus { seq_len: 4096, documents: 900_000, tokens: 5_200_000_000, padding: 47_660_032 });
    let shown = [
        "coordinator 0.1.0, up 2 h 1 min: 1 job, 1 worker",
        "",
        "               STATE    POSITION  SEQ/S  WAITING",
        "job train      running    2:4096                  90 epochs of 1 281 167 sequences, 1 bad document",
        "  session 2    running    2:4096  4 000     50 %  2 ranks, from 0:0",
        "    rank 0     alive      2:4096  2 000      0 %  home node-0 (local)",
        "    rank 1     alive      2:4096  2 000     50 %  home node-0 (local)",
        "worker node-0  ready                              0 ranks, 6.2 of 8 cores decode, node rack-7",
        "",
        "job `train`: sequences of 4 096 tokens, 99.09 % full: 5 200 000 000 tokens of 900 000 documents, 47",
        "    660 032 places of padding",
        "bad document 5 of `train` (`s.tar`, `k`): it is cut off",
    ];
    let lines = lines(&status, false);
    assert_eq!(lines[..shown.len()], shown);
    let rest = lines[shown.len()..].join(" ").replace("     ", " ");
    assert!(rest.contains("2 566 400 of 115 303 680 sequences; "), "{rest}");
    assert!(rest.contains("4 000 sequences/s, 16 235 198 tokens/s"), "{rest}");
    // Beside a job of pictures, the rates are of samples.
    let mut other = status.jobs[0].clone();
    (other.name, other.sequence) = ("pictures".to_owned(), None);
    status.jobs.push(other);
    assert!(super::lines(&status, false)[2].contains(" SAMPLES/S"));
}
