//! `spdl-ctl trace` of a running cluster: what it writes, read as the format demands it, and by a library that is not ours.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    process::Command,
};

use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, ServerProcess, TestDataset, run},
    target,
};

/// A package of npm that reads trace files.
const READER: &str = "@tracerbench/trace-model@8.0.0";

/// Reads a file with that package. Prints the names of its processes and the number of their slices.
const READ: &str = "
const { buildModel } = require('@tracerbench/trace-model');
const events = JSON.parse(require('fs').readFileSync(process.argv[1], 'utf8')).traceEvents;
const threads = buildModel(events).processes.flatMap((process) => process.threads.map((thread) => ({ process, thread })));
console.log(JSON.stringify({
  processes: [...new Set(threads.map(({ process }) => process.name))],
  threads: threads.map(({ thread }) => thread.name),
  slices: threads.flatMap(({ thread }) => thread.events.filter((event) => event.isComplete())).length,
}));
";

/// Returns what [`READER`] finds in a file, or why there is no such reader.
fn read_elsewhere(file: &Path) -> Result<Value, String> {
    let home = target().join("trace-reader");
    fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    if !home.join("node_modules/@tracerbench").exists() {
        let mut install = Command::new("npm");
        install.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(&home).arg(READER);
        let output = install.output().map_err(|error| format!("npm: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
    }
    Ok(run(Command::new("node").args(["-e", READ]).arg(file).current_dir(home)).json())
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("no `{key}` in {event}"))
}

fn with_phase<'e>(events: &'e [Value], phase: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["ph"] == phase).collect()
}

/// Returns the slices of each track, as their begin and end, in order.
fn tracks(events: &[Value]) -> BTreeMap<(u64, u64), Vec<(u64, u64)>> {
    let mut tracks: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for slice in with_phase(events, "X") {
        let start = number(slice, "ts");
        let track = tracks.entry((number(slice, "pid"), number(slice, "tid"))).or_default();
        track.push((start, start + number(slice, "dur")));
    }
    tracks.values_mut().for_each(|slices| slices.sort_unstable());
    tracks
}

/// Checks that each arrow begins and ends once, in time, at slices of its tracks. Returns the phases of each.
fn check_arrows(events: &[Value], tracks: &BTreeMap<(u64, u64), Vec<(u64, u64)>>) -> HashMap<u64, Vec<(u64, String)>> {
    let mut arrows: HashMap<u64, Vec<(u64, String)>> = HashMap::new();
    let phases = ["s", "t", "f"];
    for event in events.iter().filter(|event| phases.iter().any(|phase| event["ph"] == *phase)) {
        let (at, track) = (number(event, "ts"), (number(event, "pid"), number(event, "tid")));
        let is_in_slice = tracks[&track].iter().any(|(start, end)| (*start..=*end).contains(&at));
        assert!(is_in_slice, "no slice where {event} is");
        arrows.entry(number(event, "id")).or_default().push((at, event["ph"].as_str().expect("a text").to_owned()));
    }
    for (id, steps) in &mut arrows {
        steps.sort_by_key(|(at, phase)| (*at, phases.iter().position(|known| known == phase)));
        let count = |phase: &str| steps.iter().filter(|(_, found)| found == phase).count();
        assert_eq!((count("s"), count("f")), (1, 1), "arrow {id}: {steps:?}");
        assert_eq!((&*steps[0].1, &*steps[steps.len() - 1].1), ("s", "f"), "arrow {id}: {steps:?}");
    }
    arrows
}

#[test]
fn a_trace_has_a_track_for_each_unit_and_arrows_that_follow_each_batch() {
    let dataset = TestDataset::of_pictures(64, 16);
    let cluster = Cluster::start(1);
    cluster.submit(&dataset.training_job("a-job", 1_000_000));
    let out = cluster.path("trace.json");
    let trace = |cluster: &Cluster, further: &[&str]| {
        let mut command = cluster.ctl("admin", ["trace", "--json", "--seconds", "2"]);
        run(command.arg("--out").arg(&out).args(further))
    };
    trace(&cluster, &[]).error(&["no job has ranks alive", "start its trainers first"]);
    trace(&cluster, &["--job", "nothing"]).error(&["job `nothing` is unknown"]);

    let _ranks = [("node-0", 0), ("elsewhere", 1)]
        .map(|(node, rank)| ServerProcess::spawn(&mut cluster.pull("a-job", rank, 2, node, &["--rate", "400"])));
    cluster.wait_for("both ranks have batches", |status| {
        let ranks = status["workers"][0]["ranks"].as_array();
        ranks.is_some_and(|ranks| ranks.len() == 2 && ranks.iter().all(|rank| rank["batches"].as_u64() > Some(2)))
    });
    let summary = trace(&cluster, &[]).json();
    assert_eq!((&summary["processes"], &summary["missing"]), (&3.into(), &Value::Array(Vec::new())), "{summary}");
    assert!(number(&summary, "clock_accuracy_us") < 1_000_000 && number(&summary, "lost") == 0, "{summary}");

    let copy = cluster.path("copy.json");
    fs::copy(&out, &copy).expect("a copy");
    let text = fs::read_to_string(&out).expect("the trace");
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    let events = file["traceEvents"].as_array().expect("events");
    let slices = with_phase(events, "X");
    assert_eq!(slices.len() as u64, number(&summary, "intervals"));
    let tracks = tracks(events);
    for (track, slices) in &tracks {
        // A microsecond is the resolution.
        let overlap = slices.windows(2).find(|pair| pair[1].0 + 1 < pair[0].1);
        assert!(overlap.is_none(), "slices of track {track:?} overlap: {overlap:?}");
    }
    let named = with_phase(events, "M").into_iter().filter(|event| event["name"] == "thread_name");
    let names: HashMap<(u64, u64), &str> = named
        .map(|event| ((number(event, "pid"), number(event, "tid")), event["args"]["name"].as_str().expect("a name")))
        .collect();
    assert!(tracks.keys().all(|track| names.contains_key(track)), "every track has a name: {names:?}");
    // Which slots a batch passes while it is recorded depends on how fast the ranks are.
    for name in ["decode 0", "hand-over rank 0 slot ", "hand-over rank 1 slot ", "step"] {
        assert!(names.values().any(|found| found.starts_with(name)), "{name} is not in {names:?}");
    }
    let arrows = check_arrows(events, &tracks);
    assert_eq!(arrows.len() as u64, number(&summary, "batches"));
    let whole = arrows.values().filter(|steps| steps.len() >= 3).count();
    assert!(whole > 2, "batches that go from decoding over a slot to a step: {arrows:?}");
    // The cluster runs on, and records nothing any more.
    assert_eq!(trace(&cluster, &["--job", "a-job"]).json()["missing"], Value::Array(Vec::new()));

    match read_elsewhere(&copy) {
        Ok(read) => {
            assert_eq!(read["slices"], slices.len(), "{read}");
            assert!(
                read["processes"].as_array().is_some_and(|found| found.contains(&"worker node-0".into())),
                "{read}"
            );
            let threads = read["threads"].as_array().expect("names");
            assert!(names.values().all(|name| threads.contains(&Value::from(*name))), "{read}");
        }
        Err(reason) => eprintln!("not read by {READER}: {reason}"),
    }
}
