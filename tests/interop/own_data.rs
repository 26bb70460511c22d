//! The table of docs/guide/datasets.md that starts from what users have: each of its commands is run on such data, and its column is
//! read by a job. The page that a row leads to has the same commands.

use std::{
    fs,
    path::{Path, PathBuf},
};

use spdl_testkit::{
    hub::HubServer,
    processes::{run, write_pictures},
    python::{python, run_script},
    root,
    s3::S3Server,
};

use super::s3_job::ctl_for;

const PICTURES: u64 = 12;
/// What the commands call a folder in a store.
const BUCKET: &str = "s3://bucket/photos";

/// The column that others follow.
const FOLLOWED: &str =
    "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ resize = [64, 64] }]\n";

/// A row of the table.
struct Row {
    /// The arguments of `spdl-ctl`.
    commands: Vec<Vec<String>>,
    /// The keys of a column, one a line.
    column: String,
}

/// The parts of a text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The commands in a page's code blocks, without comments.
fn commands_of(page: &str) -> Vec<&str> {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).map(|line| line.split("  #").next().unwrap_or(line).trim_end()).collect()
}

/// Checks that the page behind the link in a row's first cell has the row's commands, so that what it says is run here, too.
fn check_page(have: &str, commands: &[String]) {
    let link = have.split("](").nth(1).and_then(|rest| rest.split(')').next());
    let link = link.unwrap_or_else(|| panic!("no link: {have}"));
    let path = link.split('#').next().filter(|path| !path.is_empty()).unwrap_or("datasets.md");
    let page = fs::read_to_string(root().join("docs/guide").join(path));
    let page = page.unwrap_or_else(|error| panic!("{path}: {error}"));
    for command in commands {
        let command = format!("spdl-ctl {command}");
        assert!(commands_of(&page).contains(&command.as_str()), "docs/guide/{path} lacks `{command}`");
    }
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(root().join("docs/guide/datasets.md")).unwrap();
    let section = page.split("\n## ").find(|part| part.starts_with("Start from what you have\n")).expect("the section");
    let lines = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| I have"));
    let row = |line: &str| {
        let [_, have, how, column, _] = line.split('|').collect::<Vec<_>>()[..] else { return None };
        let commands = quoted(how).filter_map(|command| command.strip_prefix("spdl-ctl "));
        let commands: Vec<String> = commands.map(str::to_owned).collect();
        assert!(!commands.is_empty(), "{line}");
        check_page(have, &commands);
        let commands = commands.iter().map(|command| command.split(' ').map(str::to_owned).collect()).collect();
        Some(Row { commands, column: quoted(column).map(|key| format!("{key}\n")).collect() })
    };
    lines.map(|line| row(line).unwrap_or_else(|| panic!("not three cells: {line}"))).collect()
}

/// The pictures in folders of classes, by path within `folder`, in order.
fn pictures(folder: &Path) -> Vec<PathBuf> {
    let classes = fs::read_dir(folder).unwrap().map(|class| class.unwrap().path());
    let mut found: Vec<PathBuf> =
        classes.flat_map(|class| fs::read_dir(class).unwrap()).map(|file| file.unwrap().path()).collect();
    found.sort();
    found
}

/// Returns the `.idx` and the `.bin` of documents of 16-bit tokens, each of one sequence.
fn megatron(documents: u64) -> (Vec<u8>, Vec<u8>) {
    let mut idx = [b"MMIDIDX\0\0", &1_u64.to_le_bytes()[..], &[8]].concat();
    [documents, documents + 1].iter().for_each(|count| idx.extend(count.to_le_bytes()));
    (0..documents as i32).for_each(|document| idx.extend(document.to_le_bytes()));
    let tokens_before = |document: u64| document * document.saturating_sub(1) / 2;
    (0..documents).for_each(|document| idx.extend((2 * tokens_before(document)).to_le_bytes()));
    (0..=documents).for_each(|document| idx.extend(document.to_le_bytes()));
    (idx, (0..tokens_before(documents) as u16).flat_map(u16::to_le_bytes).collect())
}

/// Writes all kinds of data into a folder, under the names of the table.
fn write_data(folder: &Path) {
    let path = |name: &str| folder.join(name);
    let write = |path: PathBuf, text: String| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write_pictures(&path("photos"), PICTURES);
    let pictures = pictures(&path("photos"));
    assert_eq!(pictures.len() as u64, PICTURES);
    let [mut list, mut captions] = [String::new(), "file\tcaption\n".to_owned()];
    let (mut names, mut images, mut annotations) = (String::new(), Vec::new(), Vec::new());
    for (number, picture) in pictures.iter().enumerate() {
        let relative = picture.strip_prefix(path("photos")).unwrap();
        let beside = path("captioned").join(relative);
        write(beside.with_extension("txt"), format!("picture {number}"));
        fs::copy(picture, beside).unwrap();
        list += &format!("photos/{}\t{}\n", relative.display(), number % 3);
        captions += &format!("{}\tpicture {number}\n", relative.display());
        names += &format!("JPEGImages/{number:06}.jpg\n");
        let object = "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>20</xmax><ymax>20</ymax></bndbox></object>";
        write(path("voc/Annotations").join(format!("{number:06}.xml")), format!("<annotation>{object}</annotation>"));
        images.push(serde_json::json!({ "id": number, "file_name": relative.display().to_string() }));
        let bbox = [10, 10, 30, 20];
        annotations
            .push(serde_json::json!({ "image_id": number, "category_id": 3, "bbox": bbox, "segmentation": [bbox] }));
        fs::create_dir_all(path("voc/JPEGImages")).unwrap();
        fs::copy(picture, path(&format!("voc/JPEGImages/{number:06}.jpg"))).unwrap();
    }
    write(path("files.tsv"), list);
    write(path("captions.tsv"), captions);
    write(path("voc/files.txt"), names);
    let categories = [serde_json::json!({ "id": 3, "name": "cat" })];
    let coco = serde_json::json!({ "images": images, "annotations": annotations, "categories": categories });
    write(path("instances.json"), coco.to_string());
    for (name, option) in [("shards/part-0.tar", "-cf"), ("compressed/part-0.tar.gz", "-czf")] {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        let mut tar = std::process::Command::new("tar");
        tar.arg(option).arg(path(name)).args(["--sort=name", "-C"]).arg(path("captioned")).arg(".");
        assert!(run(&mut tar).status.success());
    }
    fs::create_dir_all(path("tokens")).unwrap();
    let (idx, bin) = megatron(PICTURES);
    fs::write(path("tokens/text_document.idx"), idx).unwrap();
    fs::write(path("tokens/text_document.bin"), bin).unwrap();
    let text = |name: &str| path(name).display().to_string();
    let written = [text("photos"), String::new(), text("mds"), "zstd".to_owned(), String::new()];
    run_script(&python(), "tests/interop/mds.py", ["write".to_owned()].into_iter().chain(written));
    for (format, out) in [("tfrecord", "tfrecords"), ("array_record", "arrayrecords")] {
        let written = [format.to_owned(), text("photos"), text(out), String::new()];
        run_script(&python(), "tests/interop/examples.py", written);
    }
    let files = pictures.iter().map(|picture| picture.display().to_string());
    let written = ["pictures".to_owned(), text("parquet")].into_iter().chain(files);
    let python = python();
    run_script(&python, "tests/interop/write_parquet.py", written);
    run_script(&python, "tests/interop/write_arrays.py", [text("arrays"), PICTURES.to_string()]);
}

#[tokio::test]
async fn what_users_have_is_read_by_the_commands_of_the_table() {
    let have = tempfile::tempdir().unwrap();
    write_data(have.path());
    let bucket = S3Server::start();
    let bucket_url = bucket.upload(&have.path().join("photos"), "photos").await;
    let hub = HubServer::start();
    hub.push("main", &have.path().join("parquet"));
    let spdl_ctl = || {
        let mut command = ctl_for(&bucket);
        command.envs(hub.environment());
        command
    };

    let rows = rows();
    assert!(rows.len() >= 10, "{} rows", rows.len());
    for Row { commands, column } in rows {
        for command in commands {
            let work = tempfile::tempdir().unwrap();
            let copied = run(std::process::Command::new("cp").arg("-r").arg(have.path().join(".")).arg(work.path()));
            assert!(copied.status.success(), "{}", copied.stderr);
            let in_bucket = |word: &String| if word == BUCKET { bucket_url.clone() } else { word.clone() };
            let arguments: Vec<String> = command.iter().map(in_bucket).collect();
            let report = run(spdl_ctl().args(&arguments).arg("--json").current_dir(work.path())).json();
            assert_eq!(report["records"], PICTURES, "{command:?}");
            let out = arguments.iter().position(|word| word == "--out").map(|option| option + 1);
            let dataset = &arguments[out.unwrap_or(if arguments[0] == "pack" { 2 } else { 1 })];
            let verified = run(spdl_ctl().args(["verify", dataset, "--json"]).current_dir(work.path())).json();
            assert_eq!(verified["faults"].as_array().map(Vec::len), Some(0), "{command:?}");

            let job = work.path().join("job.toml");
            let followed = if column.contains("follows = \"image\"") { FOLLOWED } else { "" };
            let text = format!(
                "name = \"job\"\ndataset = {dataset:?}\nglobal_batch = 4\nepochs = 1\nbad_samples = \"fail\"\n\
                 {followed}[[column]]\nname = \"it\"\n{column}"
            );
            fs::write(&job, text).unwrap();
            let replayed = run(spdl_ctl().arg("replay").arg(&job).args(["--all", "--json"]));
            assert!(replayed.status.success(), "{command:?} with {column}: {}", replayed.stderr);
            assert_eq!(replayed.json()["samples"], PICTURES, "{command:?}");
        }
    }
    bucket.clear().await;
}
