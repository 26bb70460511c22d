//! Loose files as a user meets them: `index`, `plan`, `replay`, `verify`, `audit` and `unpack` on folders of real pictures,
//! and what they print when something is wrong with a file.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use serde_json::Value;
use spdl_cli::pictures::{Pictures, write_image_folder};
use spdl_testkit::{
    processes::{Finished, TestDataset, ctl, run},
    root,
    s3::S3Server,
};

pub(super) fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.as_ref().parent().expect("a folder")).expect("a folder");
    fs::write(path, content).expect("a file");
}

/// Returns a dataset's folder with nothing in it.
fn empty() -> TestDataset {
    let dataset = TestDataset { folder: tempfile::tempdir().expect("a temporary folder") };
    fs::create_dir(dataset.path("dataset")).expect("a folder");
    dataset
}

/// Runs `spdl-ctl COMMAND PATH ARGUMENTS...`.
#[track_caller]
fn of(command: &str, path: impl AsRef<Path>, arguments: &[&str]) -> Finished {
    run(ctl().arg(command).arg(path.as_ref()).args(arguments))
}

#[track_caller]
fn has_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "no line `{line}` in:\n{text}");
    }
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).expect("inside").to_owned(), fs::read(&path).expect("a file"));
            }
        }
    }
    found
}

#[test]
fn a_folder_of_classes_gives_the_same_samples_order_and_receipts_as_when_it_is_packed_in_its_order() {
    let (loose, packed) = (empty(), empty());
    write_image_folder(&loose.path("dataset"), 40, 6, |_| {}).expect("pictures");
    let originals = files(&loose.path("dataset"));
    let arguments = [loose.path("dataset"), packed.path("dataset")];
    run(ctl().arg("pack").args(&arguments).args(["--no-shuffle", "--json"])).json();
    let report = of("index", loose.path("dataset"), &[]);
    let first = format!("{}: 40 samples in 40 records, 1 block, 1 shard, ", loose.path("dataset").display());
    assert!(report.stdout.starts_with(&first), "{}{}", report.stdout, report.stderr);
    has_lines(
        &report.stdout,
        &[
            "9 classes: astronaut, brick, chelsea, coffee, grace_hopper, grass, hubble_deep_field, motorcycle, rocket",
            "fields: cls in all records, jpg in all records",
        ],
    );

    let jobs = [&loose, &packed].map(|dataset| dataset.job("pictures", "epochs = 2"));
    let [ids, of_packed] = [0, 1].map(|at| of("plan", &jobs[at], &["--ids", "--world", "2"]).stdout);
    assert_eq!(ids, of_packed);
    let replayed = |job: &PathBuf| of("replay", job, &["--all", "--json"]).json();
    let [made, of_packed] = [0, 1].map(|at| replayed(&jobs[at]));
    assert_eq!(made["samples"], 48);
    for figure in ["receipt", "content_digest", "samples"] {
        assert_eq!(made[figure], of_packed[figure], "{figure}");
    }
    let receipt = made["receipt"].as_str().expect("a receipt");
    for job in &jobs {
        assert_eq!(of("audit", job, &["--receipt", receipt, "--json"]).json()["equal"], true);
    }

    let verified = of("verify", loose.path("dataset"), &[]);
    assert!(verified.status.success(), "{}", verified.stderr);
    has_lines(
        &verified.stdout,
        &[
            "pictures were not decoded; --decode finds bad ones",
            "40 fields have no checksum, as loose files: only sizes were compared, and etags where the store has them",
        ],
    );
    let against = loose.path("dataset");
    let compared = of("verify", packed.path("dataset"), &["--json", "--against", against.to_str().expect("text")]);
    assert_eq!(compared.json()["same_pictures"], 40);
    assert_eq!(compared.json()["fields_without_checksum"], 0);
    assert_eq!(of("verify", loose.path("dataset"), &["--decode", "--json"]).json()["decoded_pictures"], 40);
    let unpacked = loose.path("unpacked");
    assert!(run(ctl().arg("unpack").arg(loose.path("dataset")).arg(&unpacked)).status.success());
    let mut unpacked = files(&unpacked);
    unpacked.retain(|path, _| path.extension().is_some_and(|suffix| suffix == "jpg"));
    assert!(unpacked == originals);
}

/// Writes a job with pictures and these columns.
fn write_job(dataset: &TestDataset, url: &str, global_batch: u32, columns: &str) -> PathBuf {
    let text = format!(
        "name = \"j\"\ndataset = {url:?}\nglobal_batch = {global_batch}\n\
         [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{{ resize = {{ size = [8, 8] }} }}]\n{columns}"
    );
    let path = dataset.path("j.toml");
    write(&path, text);
    path
}

const CAPTION_AND_STARS: &str = "[[column]]\nname = \"caption\"\nfrom = \"caption\"\ndecode = \"bytes\"\nmax_bytes = 99\n\
                                 [[column]]\nname = \"stars\"\nfrom = \"stars\"\ndecode = \"int\"\n";

#[test]
fn a_list_chooses_files_and_tabs_or_json_lines_give_fields_that_a_job_decodes() {
    let dataset = empty();
    let pictures = Pictures::new();
    for (number, name) in ["a/one.jpg", "deep/er/two words.jpg", "three.jpg"].into_iter().enumerate() {
        write(dataset.path("dataset").join(name), pictures.picture(1, number as u64));
    }
    write(dataset.path("list.txt"), "# the good ones\nthree.jpg\n# and\n./a/one.jpg\n");
    write(
        dataset.path("table.tsv"),
        "file\tcaption\tstars\na/one.jpg\ta dog, running\t5\ndeep/er/two words.jpg\tein Hündchen\t-3\n",
    );
    let rows = [
        r#"{"file_name": "deep/er/two words.jpg", "stars": -3, "caption": "ein Hündchen"}"#,
        r#"{"file_name": "a/one.jpg", "stars": 5, "caption": "a dog, running", "nothing": null}"#,
    ];
    write(dataset.path("table.jsonl"), rows.join("\n"));
    let indexed = |table: &str| {
        let path = dataset.path(table);
        of("index", dataset.path("dataset"), &["--force", "--table", path.to_str().expect("text")])
    };
    let listed = indexed("list.txt");
    has_lines(
        &listed.stdout,
        &["fields: jpg in all records", "left out: 1 `.jpg` file: no row in the table (`deep/er/two words.jpg`)"],
    );
    let mut made = Vec::new();
    for table in ["table.tsv", "table.jsonl"] {
        let report = indexed(table);
        has_lines(
            &report.stdout,
            &[
                "fields: caption in all records, jpg in all records, stars in all records",
                "left out: 1 `.jpg` file: no row in the table (`three.jpg`)",
            ],
        );
        let fingerprint = report.stdout.lines().find(|line| line.starts_with("fingerprint ")).map(str::to_owned);
        let out = dataset.path(table.replace('.', "-"));
        let job = write_job(&dataset, "dataset", 2, CAPTION_AND_STARS);
        let replay = of("replay", job, &["--json", "--out", out.to_str().expect("text")]).json();
        made.push((fingerprint, replay["content_digest"].clone(), replay["receipt"].clone()));
        let step = out.join("step-00000");
        let batch: Value = serde_json::from_slice(&fs::read(step.join("batch.json")).expect("a file")).expect("JSON");
        let stars = fs::read(step.join("stars.npy")).expect("a file");
        for entry in 0..2 {
            let id = batch["entries"][entry]["id"].as_u64().expect("an id") as usize;
            let caption = fs::read_to_string(step.join(format!("caption-{entry:05}.bin"))).expect("a file");
            assert_eq!(caption, ["a dog, running", "ein Hündchen"][id]);
            let (_, value) = stars.split_at(stars.len() - 8 * (2 - entry));
            assert_eq!(i64::from_le_bytes(*value.first_chunk().expect("8 bytes")), [5, -3][id]);
        }
    }
    assert_eq!(made[0], made[1]);
}

#[test]
fn an_index_names_what_it_leaves_out_and_takes_any_name_and_links() {
    let dataset = empty();
    let (folder, elsewhere) = (dataset.path("dataset"), dataset.path("elsewhere"));
    let picture = Pictures::new().picture(2, 0);
    let names = ["bee/1.jpg", "ünï çödé 字/ #1 50 % ?&*\\'.jpg", "ünï çödé 字/two.dots here.JPEG"];
    names.iter().for_each(|name| write(folder.join(name), &picture));
    write(elsewhere.join("2.jpg"), &picture);
    symlink(&elsewhere, folder.join("wasp")).expect("a link");
    symlink(elsewhere.join("2.jpg"), folder.join("bee/2.jpg")).expect("a link");
    write(folder.join("bee/empty.jpg"), "");
    symlink("nowhere", folder.join("bee/3.jpg")).expect("a link");
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("bee/pipe.jpg"), 0o600.into()).expect("a pipe");
    write(folder.join(".ipynb_checkpoints/1-checkpoint.jpg"), &picture);
    write(folder.join("bee/._1.jpg"), "what a Mac leaves");
    write(folder.join("bee/README"), "a note");
    let report = of("index", &folder, &[]).stdout;
    has_lines(
        &report,
        &[
            "3 classes: bee, wasp, ünï çödé 字",
            "fields: cls in all records, jpg in all records",
            "left out: 1 `.jpg` file: links to nothing (`bee/3.jpg`)",
            "left out: 1 `.jpg` file: no regular files (`bee/pipe.jpg`)",
            "left out: 2 files: hidden, or in a hidden folder (`.ipynb_checkpoints/1-checkpoint.jpg`)",
            "left out: 1 file: their names give no field, as `KEY.jpg` does (`bee/README`)",
            "note: file `bee/empty.jpg` is empty",
        ],
    );
    assert!(report.contains(": 6 samples in 6 records"), "{report}");

    let verified = of("verify", &folder, &["--decode"]);
    assert_eq!(verified.status.code(), Some(1));
    has_lines(&verified.stdout, &["shard `files-000000`, record `bee/empty`: field `jpg` is empty"]);
    let replayed = of("replay", write_job(&dataset, "dataset", 6, ""), &["--json"]);
    assert_eq!(replayed.json()["substituted"], 1);
    assert!(replayed.stderr.contains("bee/empty") && replayed.stderr.contains("field `jpg` is empty"));
    let unpacked = dataset.path("unpacked");
    assert!(run(ctl().arg("unpack").arg(&folder).arg(&unpacked)).status.success());
    assert!(files(&unpacked)[Path::new(names[1])] == picture);
}

#[test]
fn a_file_that_changed_or_is_gone_is_named_by_every_command_with_what_to_do() {
    let dataset = empty();
    let folder = dataset.path("dataset");
    write_image_folder(&folder, 27, 3, |_| {}).expect("pictures");
    assert!(of("index", &folder, &[]).status.success());
    let job = dataset.job("j", "epoch_end = \"exact\"");
    let pictures = files(&folder);
    let path = |name: &str| folder.join(name);
    let first_line =
        |finished: &Finished| finished.stderr.lines().find(|line| line.starts_with("error")).map(str::to_owned);

    // Each is put back before the next one.
    let changes: [(&str, &dyn Fn(), &str, &str); 4] = [
        (
            "coffee/0000003.jpg",
            &|| write(path("coffee/0000003.jpg"), "shorter"),
            "changed: ",
            "the store has 7 bytes; put the old file back, or index the dataset again and give the job a new name",
        ),
        (
            "rocket/0000008.jpg",
            &|| fs::remove_file(path("rocket/0000008.jpg")).expect("it is there"),
            "does not exist",
            "; put the old file back, or index the dataset again and give the job a new name",
        ),
        (
            "grass/0000005.jpg",
            &|| {
                fs::remove_dir_all(path("grass")).expect("it is there");
                write(path("grass"), "a file where a folder was");
            },
            "does not exist",
            "file `grass/0000005.jpg` cannot be read: ",
        ),
        (
            "brick/0000001.jpg",
            &|| {
                fs::remove_file(path("brick/0000001.jpg")).expect("it is there");
                fs::create_dir(path("brick/0000001.jpg")).expect("a folder");
            },
            "does not exist",
            "; put the old file back",
        ),
    ];
    for (name, change, found, advice) in changes {
        change();
        let verified = of("verify", &folder, &[]);
        let key = name.strip_suffix(".jpg").expect("a picture");
        let line =
            format!("shard `files-000000`, record `{key}`: field `jpg` cannot be read: `{}", path(name).display());
        let fault = verified.stdout.lines().find(|fault| fault.starts_with(&line));
        assert!(fault.is_some_and(|fault| fault.contains(found)), "{name}: {}{}", verified.stdout, verified.stderr);
        assert_eq!(verified.status.code(), Some(1));
        let replayed = of("replay", &job, &["--all"]);
        let error = first_line(&replayed).unwrap_or_else(|| panic!("{name}: {}", replayed.stdout));
        assert!(error.contains(&format!("file `{name}`")) && error.contains(advice), "{error}");
        of("unpack", &folder, &[dataset.path("unpacked").to_str().expect("text")]).error(&[name, found, "hint: "]);
        // An order does not depend on what files hold.
        assert!(of("audit", &job, &["--json"]).status.success());

        for gone in [path("grass"), path(name)] {
            let _ = if gone.is_dir() { fs::remove_dir_all(gone) } else { fs::remove_file(gone) };
        }
        for (name, content) in &pictures {
            write(folder.join(name), content);
        }
        assert!(of("verify", &folder, &[]).status.success(), "{name}");
    }
}

/// Sets a flag when it is dropped, so that a thread which waits for it ends although the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_folder_that_is_being_written_to_is_indexed_with_the_files_that_are_there() {
    let dataset = empty();
    let folder = dataset.path("dataset");
    (0..40).for_each(|number| write(folder.join(format!("there/{number}.jpg")), [7; 99]));
    fs::create_dir(folder.join("arriving")).expect("a folder");
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let number = written.fetch_add(1, Relaxed);
                let [part, whole] = ["part", "jpg"].map(|suffix| folder.join(format!("arriving/{number}.{suffix}")));
                fs::write(&part, [7; 50]).expect("a file");
                fs::rename(part, whole).expect("a file is renamed");
                if let Some(old) = number.checked_sub(20) {
                    fs::remove_file(folder.join(format!("arriving/{old}.jpg"))).expect("an old file");
                }
            }
        });
        let mut rounds = 0;
        while rounds < 5 {
            let before = written.load(Relaxed);
            let report = of("index", &folder, &["--force", "--json"]).json();
            assert!(report["records"].as_u64() >= Some(40), "{report}");
            rounds += u32::from(written.load(Relaxed) > before);
        }
    });
    let left = files(&folder.join("arriving")).len() as u64;
    let report = of("index", &folder, &["--force", "--json"]).json();
    assert_eq!(report["records"], 40 + left);
    assert!(of("verify", &folder, &[]).status.success());
}

#[test]
fn an_index_that_cannot_be_made_explains_what_is_expected() {
    let dataset = empty();
    let folder = dataset.path("dataset");
    write(folder.join("a.npy"), "an array");
    let index = |arguments: &[&str]| of("index", &folder, arguments);
    index(&[]).error(&[
        "shards (`*.tar`, MDS, Parquet, TFRecord, ArrayRecord or Megatron) or pictures are expected",
        "`--format files` as records of their own",
        "1 `.npy` file",
    ]);
    let table = |name: &str, text: &[u8]| {
        write(dataset.path(name), text);
        index(&["--table", dataset.path(name).to_str().expect("text")])
    };
    table("t.csv", b"file,caption\na.npy,\"x\n").error(&["t.csv:2`", "has a quote that is not closed"]);
    table("u.csv", b"id,label\na,x\n")
        .error(&["name them in the first line, one of them `file`, `file_name`, `filename`, `path`"]);
    table("t.tsv", b"image\tcaption\na.npy\tx\n")
        .error(&["t.tsv:1` has several columns", "one of them `file`, `file_name`, `filename`, `path`"]);
    table("t.json", b"[{\"file\": \"a.npy\"}]")
        .error(&["t.json:1` is not a JSON object, as each line of JSON lines is"]);
    table("u.txt", b"\xff\xfea\0.\0n\0p\0y\0").error(&["u.txt` is UTF-16; save it as UTF-8"]);
    table("t.txt", b"a.npy\nb.npy\n").error(&["t.txt:2` names `b.npy`, which is not in the dataset's folder"]);
    index(&["--format", "files", "--boxes", "xml"]).error(&["`boxes` needs the annotations", "`--annotations-beside`"]);
    assert!(!folder.join(".spdl").exists());

    let out = dataset.path("made/for it");
    let report = index(&["--format", "files", "--out", out.to_str().expect("text")]);
    assert!(report.status.success(), "{}", report.stderr);
    assert!(report.stdout.contains("note: no labels: `a.npy` lies in no folder"), "{}", report.stdout);
    assert!(out.join(".spdl/manifest.spdl").exists() && out.join(".spdl/files-000000.idx").exists());
}

/// The commands of a section of the page about files in folders.
fn documented(section: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/guide/datasets/folders.md")).expect("a page");
    let section = page.split("\n## ").find(|part| part.starts_with(section)).expect("the section");
    let commands = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("commands");
    commands.lines().map(|line| line.split("  #").next().unwrap_or(line).trim().to_owned()).collect()
}

#[tokio::test]
async fn the_documented_commands_index_a_bucket_and_a_file_that_is_replaced_there_is_named() {
    let server = S3Server::start();
    let dataset = empty();
    write_image_folder(&dataset.path("photos"), 18, 4, |_| {}).expect("pictures");
    let url = server.upload(&dataset.path("photos"), "photos").await;
    let rows = files(&dataset.path("photos")).into_keys().map(|path| format!("{}\tabout {0}\n", path.display()));
    write(dataset.path("captions.tsv"), format!("file\tcaption\n{}", rows.collect::<String>()));
    let for_server = |command: &mut Command| run(command.envs(server.environment()));

    let commands = documented("Index loose files");
    assert!(commands.len() >= 2, "{commands:?}");
    for command in commands {
        let mut words = command.split_whitespace();
        assert_eq!(words.next(), Some("spdl-ctl"));
        let arguments = words.map(|word| if word == "s3://bucket/photos" { &*url } else { word });
        let report = for_server(ctl().args(arguments).arg("--force").current_dir(dataset.folder.path()));
        assert!(
            report.stdout.starts_with(&format!("{url}: 18 samples in 18 records, ")),
            "{command}: {}",
            report.stderr
        );
        assert!(for_server(ctl().args(["verify", &url])).status.success());
    }

    let job = write_job(&dataset, &url, 18, "");
    assert_eq!(for_server(ctl().arg("replay").arg(&job).arg("--json")).json()["samples"], 18);
    write(dataset.path("again/rocket/0000008.jpg"), "another picture");
    server.upload(&dataset.path("again"), "photos").await;
    let verified = for_server(ctl().args(["verify", &url]));
    assert_eq!(verified.status.code(), Some(1));
    assert!(verified.stdout.contains("rocket/0000008.jpg` changed: "), "{}", verified.stdout);
    let replayed = for_server(ctl().arg("replay").arg(&job));
    replayed.error(&[
        "file `rocket/0000008.jpg` changed: the manifest has ",
        "the store has 15 bytes; put the old file back",
    ]);
    server.clear().await;
}
