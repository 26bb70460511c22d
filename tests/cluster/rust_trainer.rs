//! The trainer in Rust of `examples/train-candle`, as users build and start it: it learns, validates every sample, and resumes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use spdl_testkit::{
    ports,
    processes::{Cluster, Finished, TestDataset, ctl, run},
    root, target,
};

/// Builds the example in a build folder of its own, and returns the path of its program.
fn trainer() -> PathBuf {
    let folder = target().join("train-candle");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    build.args(["build", "--locked", "--manifest-path"]).arg(root().join("examples/train-candle/Cargo.toml"));
    let status = build.arg("--target-dir").arg(&folder).status().expect("cargo starts");
    assert!(status.success(), "{build:?}: {status}");
    folder.join("debug/train-candle")
}

/// Writes the jobs `train` and `val`, of pictures of 16 pixels.
fn jobs(dataset: &TestDataset) -> [PathBuf; 2] {
    [("train", "epochs = 12\nepoch_end = \"exact\""), ("val", "shuffle = false\nepoch_end = \"exact\"")].map(|(name, keys)| {
        let (path, folder) = (dataset.path(format!("{name}.toml")), dataset.path("dataset"));
        let text = format!(
            "name = \"{name}\"\ndataset = {folder:?}\nseed = 5\nglobal_batch = 32\n{keys}\n\
             [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{{ resize = {{ size = [16, 16] }} }}]\n\
             [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n"
        );
        fs::write(&path, text).expect("a job file is written");
        path
    })
}

/// Runs the trainer as all ranks of a launch, and returns what each printed.
fn launch(cluster: &Cluster, program: &Path, world: u32, arguments: &[&str]) -> Vec<Finished> {
    let port = ports::lasting();
    let port: u16 = port.rsplit_once(':').expect("an address").1.parse().expect("a port");
    let command = |rank: u32| {
        let mut command = Command::new(program);
        command.args(["--validate", "val"]).args(arguments);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string());
        // torchrun listens at the port itself; the ranks use the next one.
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", (port - 1).to_string());
        command.env("SPDL_COORD", &cluster.address).env("SPDL_CERTS", cluster.certs("client")).env("SPDL_JOB", "train");
        command.env("SPDL_LAUNCH_ID", format!("{port}")).env("SPDL_NODE", "node-0");
        command
    };
    let ranks = (0..world).map(|rank| {
        std::thread::spawn({
            let mut command = command(rank);
            move || run(&mut command)
        })
    });
    ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().expect("it has run")).collect()
}

/// Returns the number of samples that each rank says it has seen, and the receipts.
fn seen(finished: &[Finished]) -> (u64, Vec<String>) {
    let mut receipts = Vec::new();
    let mut samples = 0;
    for Finished { status, stdout, stderr } in finished {
        assert!(status.success(), "{stdout}{stderr}");
        let line = stdout.lines().find(|line| line.starts_with("rank ")).expect("each rank ends with a line");
        let (count, receipt) =
            line.split_once(": ").and_then(|(_, line)| line.split_once(" samples, receipt ")).expect("it has both");
        samples += count.parse::<u64>().expect("a number");
        receipts.push(receipt.to_owned());
    }
    (samples, receipts)
}

#[test]
#[ignore = "builds candle; `.ci/run trainer` runs it"]
fn a_trainer_in_rust_learns_validates_each_sample_and_resumes_at_another_world_size() {
    const PICTURES: u64 = 200;
    const EPOCHS: u64 = 12;
    let (program, dataset) = (trainer(), TestDataset::of_pictures(PICTURES, 50));
    let cluster = Cluster::start(1);
    for job in jobs(&dataset) {
        let mut submit = ctl();
        submit.args(["job", "submit", "--coord", &cluster.address, "--certs"]).arg(cluster.certs("admin")).arg(job);
        assert!(run(&mut submit).status.success());
    }
    let whole = launch(&cluster, &program, 2, &[]);
    let (samples, receipts) = seen(&whole);
    assert_eq!(samples, PICTURES * EPOCHS);
    let verdicts: Vec<_> = whole[0].stdout.lines().filter(|line| line.starts_with("epoch ")).collect();
    assert_eq!(verdicts.len(), EPOCHS as usize, "{verdicts:?}");
    let right: Vec<u64> = verdicts
        .iter()
        .map(|line| {
            let (_, counts) = line.split_once(": ").expect("a verdict");
            let (right, all) = counts.split_once(" of ").expect("two counts");
            assert!(all.starts_with("200 validation samples"), "{line}");
            right.parse().expect("a number")
        })
        .collect();
    assert!(right.iter().max() > Some(&(PICTURES / 4)), "one of 16 classes is right by chance: {right:?}");

    // Ends in the middle of the second epoch, and goes on with one rank.
    let folder = dataset.path("checkpoint");
    let saved = ["--checkpoint", folder.to_str().expect("it is text"), "--every", "5"];
    for rank in launch(&cluster, &program, 2, &[&saved[..], &["--stop-after", "9"]].concat()) {
        rank.error(&["stopped after 9 steps"]);
    }
    let state = fs::read_to_string(folder.join("newest/loader.json")).expect("a checkpoint");
    assert!(state.contains("\"epoch\":0,\"offset\":160"), "{state}");
    let rest = launch(&cluster, &program, 1, &saved);
    assert_eq!(seen(&rest).0, PICTURES * EPOCHS - 160);
    assert_eq!(rest[0].stdout.lines().filter(|line| line.starts_with("epoch ")).count(), EPOCHS as usize);

    let mut audit = ctl();
    audit.args(["audit"]).arg(dataset.path("train.toml"));
    for receipt in &receipts {
        audit.args(["--receipt", receipt]);
    }
    let audit = run(&mut audit);
    assert!(audit.status.success(), "{}{}", audit.stdout, audit.stderr);
}
