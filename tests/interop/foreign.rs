//! Compares our decoder with Pillow on pictures of all kinds: those that Pillow and a few lines of Python write, or
//! with `SPDL_FOREIGN=FOLDER` all files below a folder:
//!
//! ```sh
//! SPDL_FOREIGN=pictures cargo test --test processes interop::foreign -- --nocapture
//! ```

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use bytes::Bytes;
use serde::Deserialize;
use spdl_job::JobFile;
use spdl_order::DatasetFacts;
use spdl_testkit::{
    processes::{ctl, run},
    python::{python, run_script},
    root,
};
use spdl_types::{Fingerprint, SampleId};
use spdl_worker::decode::{Decoder, FieldTarget, SampleKey};

const SCRIPT: &str = "tests/interop/foreign.py";
/// Names of the pictures written by Pillow that our decoder refuses: TIFF with separate planes of 16-bit channels.
const REFUSED: [&str; 1] = ["tiff-planar16"];
/// The PSNR, in dB, that stands for equal pictures.
const EQUAL: f64 = 99.0;

/// Pillow's answer about a picture, which precedes the pixels.
#[derive(Debug, Deserialize)]
struct PillowResult {
    format: Option<String>,
    #[serde(default)]
    width: u32,
    #[serde(default)]
    height: u32,
    error: Option<String>,
}

/// A Python process that decodes one picture after another with Pillow.
struct Pillow {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Pillow {
    fn start(python: &Path) -> Self {
        let script = root().join(SCRIPT);
        let mut command = Command::new(python);
        command.arg(script).arg("reference").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a Python that runs");
        let out = BufReader::new(child.stdout.take().expect("its output is ours"));
        Self { child, out }
    }

    fn read(&mut self, path: &Path) -> (PillowResult, Vec<u8>) {
        let stdin = self.child.stdin.as_mut().expect("its input is ours");
        // An error means that the process has died; then reading the answer fails too.
        let _ = writeln!(stdin, "{}", path.display());
        let mut line = String::new();
        self.out.read_line(&mut line).expect("Pillow answers");
        if line.is_empty() {
            let error = Some("Pillow's process died of it".to_owned());
            return (PillowResult { format: None, width: 0, height: 0, error }, Vec::new());
        }
        let opened: PillowResult = serde_json::from_str(&line).expect("a line of JSON");
        let mut pixels = vec![0; opened.width as usize * opened.height as usize * 3];
        self.out.read_exact(&mut pixels).expect("the pixels that it announced");
        (opened, pixels)
    }
}

impl Drop for Pillow {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Decodes a picture at this size with our decoder.
fn ours(bytes: &[u8], [width, height]: [u32; 2]) -> Result<Vec<u8>, String> {
    let text = format!(
        "name = \"test\"\ndataset = \"here\"\nglobal_batch = 8\n[[column]]\nname = \"image\"\nfrom = \"jpg\"\n\
         decode = \"image\"\nops = [{{ resize = {{ size = [{height}, {width}] }} }}]\n"
    );
    let facts = DatasetFacts::new(Fingerprint(7), 1000, 10);
    let job =
        JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&facts)).map_err(|error| error.to_string())?;
    let decoder = Decoder::new(&job, []).map_err(|error| error.to_string())?;
    let mut out = vec![0; width as usize * height as usize * 3];
    let key = SampleKey { epoch: 0, id: SampleId(0), sample_in_record: 0 };
    let field = |_: &str| Some(Bytes::copy_from_slice(bytes).into());
    decoder
        .decode_sample(key, &field, &mut [FieldTarget::Fixed(&mut out)])
        .map_err(|cause| cause.problem.to_string())?;
    Ok(out)
}

fn psnr(one: &[u8], other: &[u8]) -> f64 {
    let squares: u64 = one.iter().zip(other).map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2)).sum();
    if squares == 0 { EQUAL } else { 10.0 * (255.0 * 255.0 * one.len() as f64 / squares as f64).log10() }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// The results of the pictures of one format.
#[derive(Debug, Default)]
struct Tally {
    read: Vec<(f64, PathBuf)>,
    refused: Vec<(PathBuf, String)>,
}

fn compare(python: &Path, folder: &Path) -> (BTreeMap<String, Tally>, Vec<PathBuf>) {
    let mut paths = Vec::new();
    files(folder, &mut paths);
    let (mut formats, mut unread) = (BTreeMap::<String, Tally>::new(), Vec::new());
    let mut pillow = Pillow::start(python);
    for path in paths {
        let (opened, pixels) = pillow.read(&path);
        if pillow.child.try_wait().expect("a child of ours").is_some() {
            pillow = Pillow::start(python);
        }
        let Some(format) = opened.format.filter(|_| opened.error.is_none()) else {
            if let Some(error) = opened.error.filter(|error| error.contains("died")) {
                println!("{}: {error}", path.display());
            }
            unread.push(path);
            continue;
        };
        let tally = formats.entry(format).or_default();
        match ours(&fs::read(&path).unwrap(), [opened.width, opened.height]) {
            Ok(mine) => tally.read.push((psnr(&mine, &pixels), path)),
            Err(problem) => tally.refused.push((path, problem)),
        }
    }
    for tally in formats.values_mut() {
        tally.read.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    (formats, unread)
}

/// Prints a line for each format: how many pictures were read, how many of these are equal, and the difference of the
/// others.
fn print(formats: &BTreeMap<String, Tally>, unread: &[PathBuf], folder: &Path) {
    let name = |path: &Path| path.strip_prefix(folder).unwrap_or(path).display().to_string();
    println!("| format | read | equal | median dB | worst dB | refused |");
    println!("|---|---|---|---|---|---|");
    for (format, Tally { read, refused }) in formats {
        let equal = read.iter().filter(|(ratio, _)| *ratio == EQUAL).count();
        let at = |place: usize| read.get(place).map_or(f64::NAN, |(ratio, _)| *ratio);
        let (median, worst) = (at(read.len() / 2), at(0));
        println!("| {format} | {} | {equal} | {median:.1} | {worst:.1} | {} |", read.len(), refused.len());
    }
    for (format, Tally { read, refused }) in formats {
        for (ratio, path) in read.iter().filter(|(ratio, _)| *ratio < 40.0).take(40) {
            println!("{format}: {ratio:.1} dB: {}", name(path));
        }
        for (path, problem) in refused {
            println!("{format}: refused: {}: {problem}", name(path));
        }
    }
    println!("{} files that Pillow does not read", unread.len());
}

#[test]
fn pictures_of_all_kinds_come_back_from_a_scalable_dataset() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let photo = root().join("assets/photos/coffee.png");
    fs::create_dir_all(path("in/all")).unwrap();
    run_script(&python, SCRIPT, ["generate".as_ref(), photo.as_os_str(), path("in/all").as_os_str()]);
    // A record for each picture, whatever its stem is.
    let mut paths = Vec::new();
    files(&path("in/all"), &mut paths);
    for (number, picture) in paths.iter().enumerate() {
        let name = format!("{number:03}-{}", picture.file_name().expect("a file").to_string_lossy().to_lowercase());
        fs::rename(picture, path("in/all").join(name)).unwrap();
    }
    let packed = run(ctl().arg("pack").args([path("in"), path("set")]).args(["--scalable", "--json"])).json();
    let (stay, count) = (&packed["jpegs_as_they_are"], |value: &serde_json::Value| value.as_u64().unwrap_or(0));
    assert!(count(&packed["scalable_pictures"]) >= 15, "{packed}");
    assert!(count(&stay["progressive"]) >= 10 && count(&stay["kind"]) >= 2, "{packed}");
    let verified = run(ctl().arg("verify").arg(path("set")).arg("--against").arg(path("in")).arg("--json")).json();
    assert_eq!((&verified["faults"], &verified["same_pictures"]), (&serde_json::json!([]), &packed["records"]));
    run(ctl().arg("unpack").args([path("set"), path("out")]));
    let (mut before, mut after) = (Vec::new(), Vec::new());
    files(&path("in/all"), &mut before);
    files(&path("out/all"), &mut after);
    after.retain(|path| path.extension().is_none_or(|extension| extension != "cls"));
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        assert!(fs::read(before).unwrap() == fs::read(after).unwrap(), "{} is another file", after.display());
    }
}

#[test]
fn pictures_of_all_kinds_are_read_as_pillow_reads_them() {
    let python = python();
    if let Some(folder) = env::var_os("SPDL_FOREIGN") {
        let (formats, unread) = compare(&python, Path::new(&folder));
        print(&formats, &unread, Path::new(&folder));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let photo = root().join("assets/photos/coffee.png");
    run_script(&python, SCRIPT, ["generate".as_ref(), photo.as_os_str(), folder.path().as_os_str()]);
    let (formats, unread) = compare(&python, folder.path());
    print(&formats, &unread, folder.path());
    assert!(unread.is_empty(), "what Pillow wrote it reads: {unread:?}");
    for (format, Tally { read, refused }) in &formats {
        for (path, problem) in refused {
            let name = path.file_name().expect("a file").to_string_lossy();
            assert!(REFUSED.iter().any(|kind| name.starts_with(kind)), "{name}: {problem}");
        }
        for (ratio, path) in read {
            let least = if format == "JPEG" { 38.0 } else { 45.0 };
            assert!(*ratio >= least, "{format}: {ratio:.1} dB instead of {least} dB or more: {}", path.display());
        }
    }
    assert_eq!(formats.keys().collect::<Vec<_>>(), ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"]);
}
