//! `pack`, also in parts, `verify`, `index` and `unpack` take less than 200 MB of memory, whatever they read: the peak of real processes, on
//! inputs that are far larger.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
};

use flate2::{Compression, write::ZlibEncoder};
use serde_json::Value;
use spdl_dataset::tar::{TAR_END, append_member};
use spdl_testkit::{
    processes::{ServerProcess, ctl},
    s3::S3Server,
};

/// The bound on the memory of each command, in bytes.
const BOUND: u64 = 200_000_000;
/// Runs a program, then prints the peak of its resident memory in KiB. The kernel keeps it for whoever waits for the process.
const MEASURE: &str = "\
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)
sys.exit(status)";

/// The output of a command that was given `--json`.
struct Measured {
    report: Value,
    peak_bytes: u64,
}

/// Starts a command whose last line of output is its peak resident memory in KiB.
fn measuring(command: &Command) -> ServerProcess {
    let mut python = Command::new("python3");
    python.args(["-c", MEASURE]).arg(command.get_program()).args(command.get_args());
    python.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    ServerProcess::spawn(python.stdin(Stdio::null()).stderr(Stdio::inherit()))
}

/// Runs `spdl-ctl COMMAND PATHS... --json` and measures its peak resident memory.
#[track_caller]
fn measured(command: &mut Command) -> Measured {
    let mut process = measuring(command.arg("--json"));
    let report = process.line();
    let peak_bytes = process.line().as_u64().expect("a number") * 1024;
    println!("{} MB: {command:?}", peak_bytes / 1_000_000);
    Measured { report, peak_bytes }
}

/// Runs a command within the bound and returns its report.
#[track_caller]
fn bounded(command: &mut Command) -> Value {
    let Measured { report, peak_bytes } = measured(command);
    assert!(peak_bytes < BOUND, "{command:?} took {} MB", peak_bytes / 1_000_000);
    report
}

fn command(name: &str, paths: &[&Path]) -> Command {
    let mut command = ctl();
    command.arg(name).args(paths);
    command
}

/// Writes a file that takes no room on the disk, with a few bytes that are not zero.
fn sparse(path: &Path, bytes: u64) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let file = File::create(path).expect("a file");
    file.set_len(bytes).expect("room");
    for place in (0..bytes).step_by(50_000_001) {
        file.write_all_at(&place.to_le_bytes()[..4], place.min(bytes - 4)).expect("room");
    }
}

#[track_caller]
fn same_files(one: &Path, other: &Path) {
    assert_eq!(fs::metadata(one).unwrap().len(), fs::metadata(other).unwrap().len());
    let (one, other) = (File::open(one).unwrap(), File::open(other).unwrap());
    let (mut place, mut pieces) = (0, [vec![0; 1 << 20], vec![0; 1 << 20]]);
    loop {
        let read = one.read_at(&mut pieces[0], place).unwrap();
        other.read_exact_at(&mut pieces[1][..read], place).unwrap();
        assert!(pieces[0][..read] == pieces[1][..read], "they differ behind byte {place}");
        place += read as u64;
        if read == 0 {
            return;
        }
    }
}

fn no_faults(report: &Value) {
    assert_eq!(report["faults"], Value::Array(vec![]));
}

/// Each takes 3 to 12 s of CPU time.
#[test]
fn a_sample_stays_within_the_bound() {
    crate::drawn::run("memory::", 3, &["tests/memory", "crates/dataset", "shard"]);
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn a_field_of_hundreds_of_megabytes_passes_through_all_commands_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    sparse(&path("files/a/x.bin"), 400_000_003);
    fs::write(path("files/a/x.jpg"), "not a picture").unwrap();
    bounded(&mut command("pack", &[&path("files"), &path("set")]));
    no_faults(&bounded(&mut command("verify", &[&path("set")])));
    let compared = bounded(command("verify", &[&path("set")]).arg("--against").arg(path("files")));
    no_faults(&compared);
    assert_eq!((&compared["same_pictures"], &compared["same_fields"]), (&1.into(), &2.into()));
    bounded(&mut command("unpack", &[&path("set"), &path("out")]));
    same_files(&path("files/a/x.bin"), &path("out/a/x.bin"));

    // One byte of the original, far behind the first piece, is another one.
    let original = File::options().write(true).open(path("files/a/x.bin")).unwrap();
    original.write_all_at(b"!", 300_000_000).unwrap();
    let compared = bounded(command("verify", &[&path("set")]).arg("--against").arg(path("files")));
    assert_eq!(compared["faults"].as_array().unwrap().len(), 1, "{compared}");
    assert!(compared["faults"][0]["problem"].as_str().unwrap().contains("other bytes than its original"));
    assert_eq!(compared["same_fields"], 1);

    // One byte of the shard, too: nothing is unpacked.
    let shard = File::options().write(true).open(path("set/shard-000000.tar")).unwrap();
    shard.write_all_at(b"!", 200_000_000).unwrap();
    let verified = bounded(&mut command("verify", &[&path("set")]));
    assert!(verified["faults"][0]["problem"].as_str().unwrap().contains("field `bin` at byte"), "{verified}");
    spdl_testkit::processes::run(&mut command("unpack", &[&path("set"), &path("again")])).error(&[
        "record `a/x`",
        "field `bin`",
        "has other bytes than were indexed",
    ]);
    assert!(!path("again").exists());
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn a_loose_file_of_hundreds_of_megabytes_is_verified_and_unpacked_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    sparse(&path("files/a/x.bin"), 400_000_003);
    fs::write(path("files/a/x.jpg"), "not a picture").unwrap();
    fs::create_dir(path("originals")).unwrap();
    sparse(&path("originals/a/x.bin"), 400_000_003);
    fs::write(path("originals/a/x.jpg"), "not a picture").unwrap();
    bounded(&mut command("index", &[&path("files")]));
    no_faults(&bounded(&mut command("verify", &[&path("files")])));
    let compared = bounded(command("verify", &[&path("files")]).arg("--against").arg(path("originals")));
    no_faults(&compared);
    bounded(&mut command("unpack", &[&path("files"), &path("out")]));
    same_files(&path("files/a/x.bin"), &path("out/a/x.bin"));
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn a_store_of_large_fields_is_packed_verified_and_unpacked_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    sparse(&path("files/a/x.bin"), 300_000_003);
    fs::write(path("files/a/x.jpg"), "not a picture").unwrap();
    let server = S3Server::start();
    let at_store = |name: &str| {
        let mut command = ctl();
        command.arg(name).envs(server.environment());
        command
    };
    let url = server.url("set");
    bounded(at_store("pack").arg(path("files")).arg(&url));
    no_faults(&bounded(at_store("verify").arg(&url).arg("--against").arg(path("files"))));
    bounded(at_store("unpack").arg(&url).arg(path("out")));
    same_files(&path("files/a/x.bin"), &path("out/a/x.bin"));
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn parts_are_packed_checked_and_merged_within_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for number in 0..6 {
        sparse(&path(&format!("files/a/{number}.jpg")), 60_000_000);
    }
    let server = S3Server::start();
    for to in [path("set").display().to_string(), server.url("set")] {
        let at_store = |name: &str| {
            let mut command = ctl();
            command.arg(name).envs(server.environment());
            command
        };
        let part = |part: &str| {
            let mut command = at_store("pack");
            command.arg(path("files")).arg(&to).args(["--part", part, "--shard-size", "130MB"]);
            bounded(&mut command)
        };
        let [first, second, again] = ["0/2", "1/2", "1/2"].map(part);
        assert_eq!((&first["shards"], &second["shards"], &second["records"]), (&1.into(), &2.into(), &4.into()));
        assert_eq!((&second["kept_shards"], &again["kept_shards"]), (&0.into(), &2.into()));
        assert_eq!(bounded(at_store("merge").arg(&to))["records"], 6);
    }
}

#[tokio::test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
async fn a_source_in_a_store_is_packed_within_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for number in 0..6 {
        sparse(&path(&format!("files/a/{number}.jpg")), 60_000_000);
    }
    let server = S3Server::start();
    let url = server.upload(&path("files"), "files").await;
    let report =
        bounded(ctl().args(["pack", &url]).arg(path("set")).args(["--part", "0/1"]).envs(server.environment()));
    assert_eq!(report["records"], 6);
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn a_record_of_hundreds_of_long_fields_is_packed_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for number in 0..300 {
        sparse(&path(&format!("files/a/x.f{number:03}.bin")), 1_000_000);
    }
    fs::write(path("files/a/x.jpg"), "not a picture").unwrap();
    for arguments in [&["--force"][..], &["--force", "--crop-ready"], &["--force", "--scalable"]] {
        let packed = bounded(command("pack", &[&path("files"), &path("set")]).args(arguments));
        assert_eq!((&packed["records"], packed["fields"].as_object().unwrap().len()), (&1.into(), 302));
        let compared = bounded(command("verify", &[&path("set")]).arg("--against").arg(path("files")));
        no_faults(&compared);
    }
}

/// Writes a grey JPEG of noise, of some 1.6 bytes for each of `width` times `height` pixels.
fn noise(path: &Path, width: u16, height: u16) {
    let mut state = 1_u64;
    let pixels: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(usize::from(width) * usize::from(height))
    .collect();
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let encoder = jpeg_encoder::Encoder::new_file(path, 100).expect("a file");
    encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Luma).expect("a picture");
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn long_jpegs_are_made_crop_ready_one_at_a_time_and_too_long_ones_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let large = path("files/a/0.jpg");
    noise(&large, 5600, 5000);
    let bytes = fs::metadata(&large).unwrap().len();
    assert!((40 << 20..48 << 20).contains(&bytes), "{bytes} bytes");
    for number in 1..3 {
        fs::copy(&large, path(&format!("files/a/{number}.jpg"))).unwrap();
    }
    // Bytes behind the end of a picture are kept, so this one is still a picture.
    fs::copy(&large, path("files/a/long.jpg")).unwrap();
    let long = File::options().append(true).open(path("files/a/long.jpg")).unwrap();
    long.set_len((48 << 20) + 1).unwrap();
    // A header that claims 65,000 pixels a side.
    let mut bomb = fs::read(spdl_testkit::root().join("assets/photos/rocket.jpg")).unwrap();
    let frame = bomb.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    bomb[frame + 5..frame + 9].copy_from_slice(&[0xfd, 0xe8, 0xfd, 0xe8]);
    fs::write(path("files/a/bomb.jpg"), &bomb).unwrap();

    let packed = bounded(command("pack", &[&path("files"), &path("set")]).arg("--crop-ready"));
    assert_eq!((&packed["records"], &packed["crop_ready_pictures"]), (&5.into(), &3.into()));
    let notes = packed["notes"].to_string();
    assert!(notes.contains("long.jpg` was packed as it is and not rewritten"), "{notes}");
    let compared = bounded(command("verify", &[&path("set")]).arg("--against").arg(path("files")));
    no_faults(&compared);
    assert_eq!(compared["same_pictures"], 5);
    let decoded = bounded(command("verify", &[&path("set")]).arg("--decode"));
    assert_eq!(
        (&decoded["decoded_pictures"], decoded["faults"].as_array().unwrap().len()),
        (&4.into(), 1),
        "{decoded}"
    );
    assert!(decoded["faults"][0].to_string().contains("65000x65000"), "{decoded}");
    bounded(&mut command("unpack", &[&path("set"), &path("out")]));
    for name in ["a/0.jpg", "a/2.jpg", "a/long.jpg", "a/bomb.jpg"] {
        same_files(&path("files").join(name), &path("out").join(name));
    }
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn large_jpegs_are_packed_scalable_within_the_bound_and_too_large_ones_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    noise(&path("files/a/0.jpg"), 3000, 2600);
    for number in 1..6 {
        fs::copy(path("files/a/0.jpg"), path(&format!("files/a/{number}.jpg"))).unwrap();
    }
    noise(&path("files/a/large.jpg"), 5600, 5000);
    let packed = bounded(command("pack", &[&path("files"), &path("set")]).arg("--scalable"));
    let pictures = &packed["scalable_pictures"];
    assert_eq!((pictures, &packed["jpegs_as_they_are"]["too_large"]), (&6.into(), &1.into()), "{packed}");
    let compared = bounded(command("verify", &[&path("set")]).arg("--against").arg(path("files")));
    no_faults(&compared);
    assert_eq!(compared["same_pictures"], 7);
    let decoded = bounded(command("verify", &[&path("set")]).arg("--decode"));
    no_faults(&decoded);
    assert_eq!((&decoded["decoded_pictures"], &decoded["scalable_pictures"]), (&7.into(), &6.into()));
    bounded(&mut command("unpack", &[&path("set"), &path("out")]));
    for name in ["a/0.jpg", "a/5.jpg", "a/large.jpg"] {
        same_files(&path("files").join(name), &path("out").join(name));
    }
}

/// Writes a PNG of equal RGBA pixels.
fn png(path: &Path, side: u32) {
    let mut row = vec![0x55; 1 + 4 * side as usize];
    row[0] = 0;
    let mut deflated = ZlibEncoder::new(Vec::new(), Compression::fast());
    (0..side).for_each(|_| deflated.write_all(&row).expect("memory"));
    let chunk = |kind: &[u8; 4], data: &[u8]| {
        let mut checksum = flate2::Crc::new();
        checksum.update(kind);
        checksum.update(data);
        [&(data.len() as u32).to_be_bytes()[..], kind, data, &checksum.sum().to_be_bytes()].concat()
    };
    let header = [&side.to_be_bytes()[..], &side.to_be_bytes(), &[8, 6, 0, 0, 0]].concat();
    let parts = [
        b"\x89PNG\r\n\x1a\n".to_vec(),
        chunk(b"IHDR", &header),
        chunk(b"IDAT", &deflated.finish().expect("memory")),
        chunk(b"IEND", b""),
    ];
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, parts.concat()).expect("a file");
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn huge_pictures_are_decoded_within_the_bound_and_one_that_takes_more_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for number in 0..3 {
        png(&path(&format!("files/a/{number}.png")), 10_000);
    }
    let mut encoder = jpeg_encoder::Encoder::new_file(path("files/a/scans.jpg"), 60).unwrap();
    // Each component has a scan of its own, so that all coefficients are kept.
    encoder.set_optimized_huffman_tables(true);
    encoder.encode(&vec![99; 5000 * 4000 * 3], 5000, 4000, jpeg_encoder::ColorType::Rgb).unwrap();
    bounded(&mut command("pack", &[&path("files"), &path("set")]));
    let decoded = bounded(command("verify", &[&path("set")]).arg("--decode"));
    assert_eq!(
        (&decoded["decoded_pictures"], decoded["faults"].as_array().unwrap().len()),
        (&3.into(), 1),
        "{decoded}"
    );
    for part in ["scans", "was not decoded", "5000x4000", "--decode-memory"] {
        assert!(decoded["faults"][0].to_string().contains(part), "`{part}` is not in {decoded}");
    }
    let more = measured(command("verify", &[&path("set")]).args(["--decode", "--decode-memory", "500MiB"])).report;
    no_faults(&more);
    assert_eq!(more["decoded_pictures"], 4);
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn shards_of_very_many_records_are_indexed_in_memory_that_does_not_grow_with_them() {
    const RECORDS: u64 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("tars")).unwrap();
    let mut tar = BufWriter::new(File::create(path("tars/many.tar")).unwrap());
    let mut member = Vec::new();
    for record in 0..RECORDS {
        member.clear();
        append_member(&mut member, &format!("train/n{record:08}.cls"), b"1");
        tar.write_all(&member).unwrap();
    }
    tar.write_all(&TAR_END).unwrap();
    drop(tar);
    for number in 0..3 {
        fs::copy(path("tars/many.tar"), path(&format!("tars/{number}.tar"))).unwrap();
    }
    // Four shards are indexed at once, with buffers of 120 MB; with their records in memory they took 130 bytes more for each.
    let Measured { report: indexed, peak_bytes } = measured(&mut command("index", &[&path("tars")]));
    assert!(peak_bytes < 150_000_000, "{peak_bytes} bytes");
    assert_eq!(indexed["records"], 4 * RECORDS);
    let Measured { report, peak_bytes } = measured(&mut command("verify", &[&path("tars")]));
    assert!(peak_bytes < 100_000_000 + 4 * 60 * RECORDS, "{peak_bytes} bytes");
    no_faults(&report);
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn a_source_of_very_many_files_is_listed_in_memory_that_does_not_grow_with_them() {
    const FILES: u64 = 500_000;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut list = BufWriter::new(File::create(path("list.txt")).unwrap());
    for number in 0..FILES {
        writeln!(list, "train/n{:04}/picture_{number:08}.jpg\t{}", number % 1000, number % 1000).unwrap();
    }
    drop(list);
    // The files do not exist, which is found when all names were read, sorted and mixed.
    let mut packing = command("pack", &[&path("list.txt"), &path("set")]);
    let mut process = measuring(&packing);
    let peak_bytes = process.line().as_u64().expect("a number") * 1024;
    assert!(peak_bytes < 75_000_000, "{} MB", peak_bytes / 1_000_000);
    spdl_testkit::processes::run(packing.arg("--no-shuffle"))
        .error(&["train/n0000/picture_00000000.jpg", "does not exist"]);
    assert!(!path("set").exists(), "nothing is left of the names");
}

/// Writes an `.idx` of Megatron for documents of `length` tokens of 8 bits, and a `.bin` that takes no room on the disk.
fn write_tokens(folder: &Path, stem: &str, documents: u64, length: u64) {
    fs::create_dir_all(folder).expect("a folder");
    let mut idx = BufWriter::new(File::create(folder.join(format!("{stem}.idx"))).expect("a file"));
    let mut write = |bytes: &[u8]| idx.write_all(bytes).expect("room");
    write(b"MMIDIDX\0\0");
    write(&1_u64.to_le_bytes());
    write(&[1]);
    [documents, documents + 1].iter().for_each(|count| write(&count.to_le_bytes()));
    (0..documents).for_each(|_| write(&(length as i32).to_le_bytes()));
    (0..documents).for_each(|document| write(&(document * length).to_le_bytes()));
    (0..=documents).for_each(|document| write(&document.to_le_bytes()));
    sparse(&folder.join(format!("{stem}.bin")), documents * length);
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn millions_of_documents_of_tokens_are_indexed() {
    let folder = tempfile::tempdir().unwrap();
    // Four whose documents are found side by side, and one that is read as its shards are taken.
    (0..4).for_each(|file| write_tokens(folder.path(), &format!("short-{file}"), 1_600_000, 20));
    write_tokens(folder.path(), "tall", 5_000_000, 20);
    let report = bounded(&mut command("index", &[folder.path()]));
    assert_eq!((&report["records"], &report["shards"]), (&11_400_000.into(), &13.into()), "{report}");
}

#[test]
#[ignore = "`memory::a_sample_stays_within_the_bound` draws some"]
fn tokens_are_packed_as_megatrons_files_in_memory_that_does_not_grow_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write_tokens(&path("source"), "empty", 500_000, 0);
    write_tokens(&path("source"), "long", 60, 1_000_003);
    write_tokens(&path("source"), "short", 500_000, 20);
    bounded(&mut command("index", &[&path("source")]));
    for (order, options) in [("in-order", &["--no-shuffle"][..]), ("shuffled", &[])] {
        let mut pack = command("pack", &[&path("source"), &path(order)]);
        let report = bounded(pack.args(["--to", "megatron", "--vocab", "65500", "--shard-size", "1TB"]).args(options));
        assert_eq!(report["records"], 1_000_060, "{report}");
        assert_eq!(
            fs::metadata(path(order).join("shard-000000.bin")).unwrap().len(),
            4 * (60 * 1_000_003 + 10_000_000)
        );
    }
}
