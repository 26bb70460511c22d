//! Jobs with `cost` in real processes: sequences and sounds are dealt to ranks by what they cost, over both transports and at other numbers
//! of ranks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, ServerProcess, ctl, run, sum, undisturbed},
    tokens::write_megatron,
};

/// Writes a dataset of documents whose lengths differ by a factor of a hundred.
fn write_dataset(folder: &Path) {
    fs::create_dir_all(folder).expect("a folder");
    let length = |number: usize| 10 + number * number * 37 % [300, 900, 100, 1500][number % 4];
    let document = |number: usize| (0..length(number)).map(|place| ((number * 31 + place) % 5000) as u16).collect();
    write_megatron(folder, "all", &(0..600).map(document).collect::<Vec<_>>());
    run(ctl().arg("index").arg(folder).arg("--json")).json();
}

/// Writes a job of the dataset with these keys.
fn write_job(folder: &Path, name: &str, keys: &str) -> PathBuf {
    let column = |keys: &str| format!("[[column]]\n{keys}\n");
    let columns = [
        "name = \"tokens\"\nfrom = \"tokens\"\ndecode = \"tokens\"",
        "name = \"labels\"\ndecode = \"labels\"\nfollows = \"tokens\"",
        "name = \"lengths\"\ndecode = \"document_lengths\"\nfollows = \"tokens\"",
    ];
    let text = format!(
        "name = \"{name}\"\ndataset = \"tokens\"\nseed = 3\nglobal_batch = 48\nepoch_end = \"exact\"\n{keys}\n\
         sequence = {{ seq_len = 256, pool_tokens = 40000, eos = 5000 }}\n{}",
        columns.map(column).concat()
    );
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).expect("the job is written");
    path
}

/// Writes a dataset of sounds of 0.1 to 3 seconds at 8 kHz.
fn write_sounds(folder: &Path) {
    fs::create_dir_all(folder).expect("a folder");
    for number in 0..600_u32 {
        let bytes = 2 * (800 + number * number * 37 % 23_000);
        let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data".to_vec();
        file.extend(bytes.to_le_bytes());
        file.extend((0..bytes).map(|place| (number + place % 7) as u8));
        fs::write(folder.join(format!("{number:03}.wav")), file).expect("the sound is written");
    }
    run(ctl().arg("index").arg(folder).arg("--json")).json();
}

/// Writes a job of sounds with these keys.
fn write_sounds_job(folder: &Path, name: &str, keys: &str) -> PathBuf {
    let text = format!(
        "name = \"{name}\"\ndataset = \"sounds\"\nseed = 3\nglobal_batch = 48\nepoch_end = \"exact\"\n{keys}\n\
         [[column]]\nname = \"sound\"\nfrom = \"wav\"\ndecode = \"audio\"\n"
    );
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).expect("the job is written");
    path
}

/// Returns what `plan --ids` has for these ranks: for each rank and step the position and the ids.
fn planned(job: &Path, world: u32, from: &str, steps: usize) -> Vec<Vec<(u64, Vec<u64>)>> {
    let offset = from.split(':').nth(1).expect("EPOCH:OFFSET");
    let mut plan = ctl();
    plan.arg("plan").arg(job).args(["--ids", "--world", &world.to_string(), "--from", offset]);
    plan.args(["--steps", &steps.to_string()]);
    let shown = run(&mut plan);
    assert!(shown.status.success(), "{}", shown.stderr);
    by_rank(world, shown.stdout.lines())
}

fn by_rank<'l>(world: u32, lines: impl Iterator<Item = &'l str>) -> Vec<Vec<(u64, Vec<u64>)>> {
    let mut ranks = vec![Vec::new(); world as usize];
    for line in lines {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let ids = line["ids"].as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id")).collect();
        ranks[line["rank"].as_u64().expect("a rank") as usize].push((line["offset"].as_u64().expect("an offset"), ids));
    }
    ranks
}

/// Runs a launch of the job `balanced`, and asserts that each rank gets what the plan has for it. Returns the ranks' reports.
fn launch(cluster: &Cluster, job: &Path, world: u32, (from, steps): (&str, usize)) -> Vec<Value> {
    let trace = |rank: u32| cluster.path(format!("trace-{world}-{from}-{rank}"));
    let start = |rank: u32| {
        let node = ["node-0", "node-1", "elsewhere"][rank as usize % 3];
        let mut pull = cluster.pull("balanced", rank, world, node, &["--from", from]);
        pull.args(["--steps", &steps.to_string()]).arg("--trace").arg(trace(rank));
        pull.env("SPDL_LAUNCH_ID", format!("{world} from {from}"));
        ServerProcess::spawn(&mut pull)
    };
    let ranks: Vec<ServerProcess> = (0..world).map(start).collect();
    let reports: Vec<Value> = ranks.into_iter().map(ServerProcess::finish).collect();
    let traces = (0..world).map(|rank| fs::read_to_string(trace(rank)).expect("a trace"));
    let delivered = by_rank(world, traces.collect::<String>().lines());
    assert!(delivered == planned(job, world, from, steps), "{world} ranks from {from}");
    reports
}

#[test]
fn a_balanced_job_delivers_the_same_at_every_number_of_ranks_and_its_run_is_audited() {
    let cluster = Cluster::start(2);
    let folder = cluster.path("data");
    write_dataset(&folder.join("tokens"));
    let (plain, job) = (write_job(&folder, "plain", ""), write_job(&folder, "balanced", "cost = \"tokens^2\""));
    run_of_launches(cluster, &plain, &job);
}

#[test]
fn a_job_of_sounds_that_are_dealt_by_their_lengths_does_so_too() {
    let cluster = Cluster::start(2);
    let folder = cluster.path("data");
    write_sounds(&folder.join("sounds"));
    let cost = "cost = \"seconds\"";
    let (plain, job) = (write_sounds_job(&folder, "plain", ""), write_sounds_job(&folder, "balanced", cost));
    run_of_launches(cluster, &plain, &job);
}

/// Trains a job in three launches, and compares them with the job without `cost`, and with the plan.
fn run_of_launches(mut cluster: Cluster, plain: &Path, job: &Path) {
    cluster.submit(job);
    let mut reports = launch(&cluster, job, 8, ("0:0", 4));
    for (world, steps) in [(6, 3), (8, 2)] {
        let from = reports.last().expect("a rank")["position"].as_str().expect("a position").to_owned();
        if world == 6 {
            cluster.workers[0].process.kill();
            cluster.restart_worker(0);
        }
        reports.extend(launch(&cluster, job, world, (&from, steps)));
    }
    let expected = undisturbed(plain, 9, &[]);
    for field in ["receipt", "content_digest"] {
        assert_eq!(sum(&reports, field), expected[field].as_str().expect("a digest"), "{field}");
    }
    let transports: Vec<&str> =
        reports.iter().map(|report| report["transport"].as_str().expect("a transport")).collect();
    assert!(transports.contains(&"local") && transports.contains(&"quic"), "{transports:?}");
    let replayed = undisturbed(job, 9, &[]);
    assert_eq!(replayed["content_digest"], expected["content_digest"]);

    // The coordinator hears of the last steps with the ranks' last messages.
    let is_told = |status: &Value| {
        let mut runs =
            status["jobs"].as_array().expect("jobs").iter().flat_map(|job| job["runs"].as_array().expect("runs"));
        runs.all(|run| run["ranks_alive"] == 0)
    };
    cluster.wait_for("the end of the ranks", is_told);
    let audit = run(&mut cluster.ctl("client", ["audit", "--run", "balanced"]));
    assert!(audit.status.success(), "{}{}", audit.stdout, audit.stderr);
    assert!(audit.stdout.contains("equal: every sample from 0:0 to 0:432 once"), "{}", audit.stdout);
}

#[test]
fn the_plan_shows_what_balance_gives_before_a_job_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    write_dataset(&folder.path().join("tokens"));
    let job = write_job(folder.path(), "plain", "");
    let plan = |further: &[&str]| {
        run(ctl().arg("plan").arg(&job).args(["--world", "8", "--ranks-per-node", "2", "--json"]).args(further)).json()
    };
    let spread = |report: &Value, of: &str| report["balance"][of].as_f64().expect("a number");
    let plain = plan(&[]);
    assert!(plain["balance"].is_null());
    let (all, nodes) = (plan(&["--cost", "tokens^2"]), plan(&["--cost", "{ quadratic = 1, within = 2 }"]));
    assert_eq!(spread(&all, "before"), spread(&nodes, "before"));
    // A node of two ranks reads what it would read without balance.
    for figure in ["downloads_per_dataset", "cache_bytes_per_node"] {
        assert_eq!(nodes[figure], plain[figure]);
        assert!(all[figure].as_f64() >= plain[figure].as_f64(), "{figure}: {all}");
    }
    let before = spread(&all, "before");
    let (all, nodes, least) = (spread(&all, "balanced"), spread(&nodes, "balanced"), spread(&all, "least"));
    assert!(least <= all && all < nodes && nodes < before, "{least} {all} {nodes} {before}");
    let shown = run(ctl().arg("plan").arg(&job).args(["--world", "8", "--cost", "tokens^2"]));
    assert!(shown.stdout.contains("largest / mean cost"), "{}", shown.stdout);
    run(ctl().arg("plan").arg(&job).args(["--cost", "frames"])).error(&["--cost", "\"tokens\", \"tokens^2\""]);
    run(ctl().arg("plan").arg(&job).args(["--cost", "pixels"]))
        .error(&["`cost` is of what samples have", "write \"tokens\""]);

    let unpacked = fs::read_to_string(&job).expect("the job").replace("sequence = ", "# ");
    let unpacked = unpacked.split("[[column]]").take(2).collect::<Vec<_>>().join("cost = \"tokens\"\n[[column]]");
    fs::write(&job, unpacked).expect("the job is written");
    run(ctl().arg("plan").arg(&job)).error(&["`cost` needs `sequence`", "leave `cost` out"]);
}
