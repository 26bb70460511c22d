//! A function in Rust of a worker of the user's own, `examples/own-worker`: it has its values in real jobs, and programs that lack
//! it refuse them.

use std::{fs, path::PathBuf};

use spdl_cli::local;
use spdl_client::{Client, Settings};
use spdl_functions::{
    Draw, FunctionProblem, FunctionRegistry, FunctionSetup, Returned, SampleFunction, Taken, ValueType,
};
use spdl_shard::read_job_file;
use spdl_testkit::{
    processes::{Cluster, TestDataset, ctl, own_worker, run},
    root,
};

use super::deliveries::{assert_delivered, digests};

const SEED: u64 = 5;
const AMPLITUDE: u32 = 40;

/// Writes a job of pictures of 16 pixels, with these tables added.
fn job(dataset: &TestDataset, name: &str, tables: &str) -> PathBuf {
    let (path, folder) = (dataset.path(format!("{name}.toml")), dataset.path("dataset"));
    let text = format!(
        "name = \"{name}\"\ndataset = {folder:?}\nseed = {SEED}\nglobal_batch = 24\nepochs = 2\nepoch_end = \"exact\"\nbad_samples = \"fail\"\n\
         [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{{ random_resized_crop = 16 }}]\n{tables}"
    );
    fs::write(&path, text).expect("a job file is written");
    path
}

fn noise(arguments: &str, version: u32) -> String {
    format!(
        "[[function]]\ncall = \"own_worker::noise@{version}\"\narguments = {{ {arguments} }}\ncolumns = [\"image\"]\n\
         returns = [{{ name = \"image\" }}, {{ name = \"brightness\", dtype = \"f32\", shape = [] }}]\n"
    )
}

/// Takes all batches of a job, and returns the picture and the brightness, if there is one, of each sample by epoch and id.
async fn pictures(cluster: &Cluster, job: &str) -> Vec<((u64, u64), Vec<u8>, Option<f32>)> {
    let settings = Settings {
        coordinators: cluster.address.clone(),
        certs: cluster.certs("client"),
        job: job.to_owned(),
        node: Some("node-0".to_owned()),
        ..Settings::default()
    };
    let mut client = Client::builder().settings(settings).connect(0, 1).await.expect("the cluster lets a rank join");
    let mut found = Vec::new();
    while let Some(batch) = client.next().await.expect("a batch") {
        let images = batch.column("image").expect("the job has it");
        let brightness = batch.column("brightness").ok();
        for (at, entry) in batch.entries().enumerate() {
            let brightness = brightness.map(|column| column.as_slice::<f32>().expect("numbers")[at]);
            found.push(((entry.epoch, entry.id), images.sample_bytes(at).to_vec(), brightness));
        }
    }
    client.close().await;
    found.sort_by_key(|(key, ..)| *key);
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_of_a_worker_of_ones_own_has_its_values_in_a_real_job() {
    let dataset = TestDataset::of_pictures(48, 16);
    let (plain, noisy) = (job(&dataset, "plain", ""), job(&dataset, "noisy", &noise("amplitude = 40", 1)));
    let mut cluster = Cluster::start(0);
    cluster.start_worker_of(own_worker(), "node-0", &[]);
    for job in [&plain, &noisy] {
        cluster.submit(job);
    }
    let (plain, noisy) = (pictures(&cluster, "plain").await, pictures(&cluster, "noisy").await);
    assert_eq!((plain.len(), noisy.len()), (96, 96));
    for ((key, pixels, _), (same_key, made, brightness)) in plain.iter().zip(&noisy) {
        let mut draw = Draw::new(SEED, key.0, key.1);
        let expected: Vec<u8> = pixels.iter().map(|pixel| pixel.saturating_add(draw.below(AMPLITUDE) as u8)).collect();
        assert!(key == same_key && *made == expected, "{key:?}");
        let mean = pixels.iter().map(|pixel| f64::from(*pixel)).sum::<f64>() / pixels.len() as f64;
        assert!((f64::from(brightness.unwrap()) - mean).abs() < 1e-3, "{key:?}");
    }
}

#[test]
fn its_batches_are_the_same_at_each_world_and_after_a_kill() {
    let dataset = TestDataset::of_pictures(60, 20);
    let job = job(&dataset, "noisy", &noise("amplitude = 40", 1));
    let mut cluster = Cluster::start(0);
    for node in ["node-0", "node-1"] {
        cluster.start_worker_of(own_worker(), node, &[]);
    }
    cluster.submit(&job);
    let expected = cluster.pull_all("noisy", 1, &["node-0"], &["--from", "0:0"]).remove(0);
    assert_delivered(&cluster, "noisy", &expected, &[(2, &["node-0", "node-1"]), (3, &["elsewhere"])]);
    let mut reports = cluster.pull_all("noisy", 2, &["node-0"], &["--steps", "2", "--from", "0:0"]);
    let position = reports[0]["position"].as_str().unwrap().to_owned();
    cluster.workers[0].process.kill();
    reports.extend(cluster.pull_all("noisy", 1, &["node-1"], &["--from", &position]));
    assert_eq!(digests(&reports), digests(&[expected]), "after {position}");
}

/// Returns the label as text, and a row for each unit of it up to four.
struct Described;

impl SampleFunction for Described {
    const NAME: &'static str = "tests::described";
    const VERSION: u32 = 7;

    fn prepare(setup: &FunctionSetup) -> Result<Self, FunctionProblem> {
        let names = |types: &[ValueType]| types.iter().map(|value| value.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(setup.takes()), names(setup.returns())),
            (vec!["cls".into(), "label".into()], vec!["text".into(), "rows".into()])
        );
        Ok(Self)
    }

    fn call(&self, taken: &Taken<'_>, returned: &mut Returned<'_>, _: &mut Draw) -> Result<(), FunctionProblem> {
        let (text, label) = (taken.value("cls")?.bytes(), taken.value("label")?.number::<i64>()?);
        if label == 3 {
            return Err(FunctionProblem::new("is not liked"));
        }
        returned.put("text", &[text, b"!"].concat())?;
        returned.put("rows", &vec![i16::try_from(label)?; 2 * (label as usize % 4)])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loader_in_one_process_calls_the_functions_that_it_is_given() {
    let dataset = TestDataset::of_pictures(48, 16);
    let tables = "[[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n\
                  [[function]]\ncall = \"tests::described@7\"\nfields = [\"cls\"]\ncolumns = [\"label\"]\n\
                  returns = [{ name = \"text\", max_bytes = 9 }, { name = \"rows\", dtype = \"i16\", shape = [2], max_rows = 3 }]\n";
    let path = job(&dataset, "described", tables);
    let text = fs::read_to_string(&path).expect("it is there");
    fs::write(&path, text.replace("\"fail\"", "\"mask\"\nmax_bad_fraction = 1.0")).expect("it is written");
    let file = read_job_file(&path).expect("a job file");
    let functions = FunctionRegistry::new().with::<Described>();
    let mut loader = local::builder(file).functions(functions).open().await.expect("the job is valid");
    let (mut good, mut masked) = (0, 0);
    while let Some(batch) = loader.next().await.expect("a batch") {
        let [label, text, rows] = ["label", "text", "rows"].map(|name| batch.column(name).expect("the job has it"));
        for (at, entry) in batch.entries().enumerate() {
            if entry.flags != 0 {
                assert!(text.sample_bytes(at).is_empty() && rows.sample_bytes(at).is_empty());
                masked += 1;
                continue;
            }
            let label = label.as_slice::<i64>().expect("numbers")[at];
            assert_eq!(text.sample_bytes(at), format!("{label}!").as_bytes());
            let expected: Vec<u8> = (0..2 * (label % 4)).flat_map(|_| (label as i16).to_le_bytes()).collect();
            assert_eq!(rows.sample_bytes(at), expected);
            good += 1;
        }
    }
    assert!(good + masked == 96 && good > 0 && masked > 0, "{good} good samples, {masked} masked ones");
}

#[test]
fn the_guide_has_the_program_of_the_example() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a file of the repository");
    let program = read("examples/own-worker/src/main.rs");
    let code = &program[program.find("use std").expect("it begins after its comment")..];
    assert!(read("docs/guide/rust-functions.md").contains(&format!("```rust\n{code}```\n")));
}

#[test]
fn what_lacks_the_function_refuses_the_job_and_says_so() {
    let dataset = TestDataset::of_pictures(24, 24);
    let lacks = "calls the function `own_worker::noise@1` in Rust, and worker";
    let where_it_is =
        "the function is in the worker program that was built with it, and not in `spdl-worker`, `spdl-ctl` or `local`";
    let noisy = job(&dataset, "noisy", &noise("amplitude = 40", 1));
    run(ctl().arg("replay").arg(&noisy)).error(&[
        "`in-process` cannot: it has no functions in Rust",
        lacks,
        where_it_is,
    ]);
    run(ctl().arg("profile").arg(&noisy)).error(&["cannot: it has no functions in Rust", lacks]);
    let mut cluster = Cluster::start(1);
    cluster.submit(&noisy);
    run(&mut cluster.pull("noisy", 0, 1, "node-0", &[])).error(&[
        "column `image` of job `noisy`",
        lacks,
        "`node-0` cannot: it has no functions in Rust",
        where_it_is,
    ]);

    cluster.workers[0].process.kill();
    cluster.start_worker_of(own_worker(), "node-0", &[]);
    for (name, tables, expected) in [
        (
            "version",
            noise("amplitude = 40", 2),
            "`own_worker::noise@2` in Rust, and worker `node-0` cannot: it has version 1 of it",
        ),
        (
            "argument",
            noise("amplitude = \"much\"", 1),
            "it cannot be prepared: `arguments`: invalid type: string \"much\", expected u32",
        ),
        (
            "other",
            noise("amplitude = 40", 1).replace("noise", "blur"),
            "`own_worker::blur@1` in Rust, and worker `node-0` cannot: it has `own_worker::noise@1`",
        ),
    ] {
        cluster.submit(&job(&dataset, name, &tables));
        run(&mut cluster.pull(name, 0, 1, "node-0", &[])).error(&[expected]);
    }
    // What the function cannot take is a bad sample, with its reason.
    let text = "[[column]]\nname = \"raw\"\nfrom = \"cls\"\ndecode = \"bytes\"\ntransform = \"own_worker::noise@1\"\narguments = { amplitude = 1 }\n";
    cluster.submit(&job(&dataset, "bad", text));
    run(&mut cluster.pull("bad", 0, 1, "node-0", &[]))
        .error(&["column `raw`: function `own_worker::noise@1` takes `image`, which its job does not give it"]);
}
