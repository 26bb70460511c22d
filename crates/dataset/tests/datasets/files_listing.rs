//! A prefix with very many loose files is indexed in little memory and CPU time, both of which the test prints. It runs
//! in a process of its own, so that nothing else counts, and so does the server: it lists in pages, as S3 does.
//!
//! By hand, for a million files: `SPDL_FILES=1000000 cargo test -p spdl-shard --test datasets files_listing -- --nocapture`

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Command, Stdio},
    thread,
};

use spdl_dataset::{IndexOptions, index};
use spdl_shard::store::DatasetStore;
use spdl_store::StoreOptions;

/// Number of files when the environment does not give one.
const FILES: u64 = 20_000;
const PAGE: u64 = 1000;
const CLASSES: u64 = 100;
/// The variable that makes the process a server of this many files.
const SERVE: &str = "SPDL_TEST_SERVE_FILES";
/// Is set in the process that measures itself.
const MEASURED: &str = "SPDL_TEST_MEASURED";

fn key(file: u64, files: u64) -> String {
    let class = file * CLASSES / files;
    format!("train/n{:08}/n{:08}_{file:07}.JPEG", 1_440_764 + class * 7919, 1_440_764 + class * 7919)
}

/// Answers `GET /bucket?list-type=2...` with a page, and everything else with 404.
fn answer(request: &str, files: u64) -> String {
    let query = request.split_whitespace().nth(1).and_then(|target| target.split_once('?')).map(|(_, query)| query);
    let Some(query) = query.filter(|query| query.contains("list-type=2")) else {
        return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned();
    };
    let token = query.split('&').find_map(|pair| pair.strip_prefix("continuation-token="));
    let first: u64 = token.map_or(0, |token| token.parse().expect("a token of ours"));
    let end = (first + PAGE).min(files);
    let mut page = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult>");
    write!(page, "<Name>bucket</Name><Prefix>train/</Prefix><KeyCount>{}</KeyCount>", end - first).unwrap();
    for file in first..end {
        let (key, bytes) = (key(file, files), 80_000 + file * 31 % 60_000);
        let etag = u128::from(file).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        write!(
            page,
            "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
             <ETag>&quot;{etag:032x}&quot;</ETag><Size>{bytes}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
        .unwrap();
    }
    if end < files {
        write!(page, "<IsTruncated>true</IsTruncated><NextContinuationToken>{end}</NextContinuationToken>").unwrap();
    }
    page.push_str("</ListBucketResult>");
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n{page}", page.len())
}

fn serve(stream: TcpStream, files: u64) {
    let mut requests = BufReader::new(stream.try_clone().expect("a socket"));
    let mut stream = stream;
    let mut request = String::new();
    let mut line = String::new();
    while requests.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if line.trim().is_empty() {
            if stream.write_all(answer(&request, files).as_bytes()).is_err() {
                return;
            }
            request.clear();
        } else {
            request.push_str(&line);
        }
        line.clear();
    }
}

#[test]
#[ignore = "is the server of the other test, in a process of its own"]
fn server() {
    let Some(files) = env::var(SERVE).ok().and_then(|files| files.parse().ok()) else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    println!("port {}", listener.local_addr().expect("a bound socket").port());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, files));
        }
    });
    // The other test closes this end when it is over.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Returns a field of this process's status, in bytes.
fn status_bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Returns the CPU time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let ticks = |field: usize| after_name.split_whitespace().nth(field).unwrap().parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

#[test]
fn a_prefix_with_very_many_files_is_indexed_in_little_memory() {
    if env::var_os(MEASURED).is_none() {
        let name = "files_listing::a_prefix_with_very_many_files_is_indexed_in_little_memory";
        let mut alone = Command::new(env::current_exe().unwrap());
        let output = alone.args(["--exact", name, "--nocapture"]).env(MEASURED, "").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        print!("{text}");
        assert!(output.status.success() && text.contains("1 passed"), "{}", output.status);
        return;
    }
    let files: u64 = env::var("SPDL_FILES").map_or(FILES, |files| files.parse().expect("a number"));
    let mut server = Command::new(env::current_exe().unwrap())
        .args(["--exact", "files_listing::server", "--ignored", "--nocapture"])
        .env(SERVE, files.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| Some(line.split_once("port ")?.1.to_owned()));
    let endpoint = format!("http://127.0.0.1:{}", port.expect("a server"));

    let options = [("AWS_ENDPOINT", &*endpoint), ("AWS_REGION", "us-east-1"), ("AWS_SKIP_SIGNATURE", "true")];
    let options: StoreOptions = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
    let from = DatasetStore::open_with("s3://bucket/train", &options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let to = DatasetStore::create_with(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(index(&from, &to, &IndexOptions::default(), &|_| {})).unwrap();
    let (cpu, peak) = (cpu_seconds(), status_bytes("VmHWM:"));
    drop(server.stdin.take());
    lines.for_each(drop);
    server.wait().unwrap();

    let written =
        fs::read_dir(folder.path().join(".spdl")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    let written: u64 = written.sum();
    println!(
        "{files} files: {cpu:.1} s of CPU time, {} MB resident at most, {} bytes of manifest and indexes for each file",
        peak / 1_000_000,
        written / files
    );
    assert_eq!((report.records, report.samples, report.classes as u64), (files, files, CLASSES));
    assert!(peak < 40_000_000 + 160 * files, "{peak} bytes resident");
    assert!(written < 130 * files, "{written} bytes");

    // What a worker reads is bounded, too: one index of some thousand files at a time.
    let manifest = runtime.block_on(to.manifest()).unwrap();
    let last = manifest.shard(manifest.shard_count() - 1);
    assert!(last.index_bytes < 2_000_000, "{} bytes", last.index_bytes);
    let index = runtime.block_on(to.index(&last)).unwrap();
    let record = index.record(index.record_count() - 1);
    assert_eq!(record.field("cls").and_then(|field| field.value), Some(&b"99"[..]));
    assert_eq!(format!("train/{}.JPEG", record.key), key(files - 1, files));
    let parts = index.plan(&last, record.field("jpg").and_then(|field| field.range()).as_slice());
    assert_eq!(parts.len(), 1);
    assert!(parts[0].object.etag.as_ref().is_some_and(|etag| etag.len() == 34), "{:?}", parts[0]);
}
