//! Shards that cannot be read, and those that look so, which GNU tar, gzip and zstd read.

use std::process::Command;

use super::*;

/// Returns what `command` prints, if it accepts the file.
fn accepted(folder: &Path, command: &[&str]) -> Option<String> {
    let output = Command::new(command[0]).args(&command[1..]).current_dir(folder).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

fn python(script: &str, path: &Path) {
    assert!(Command::new("python3").arg("-c").arg(script).arg(path).status().unwrap().success());
}

#[tokio::test]
async fn a_pax_header_of_any_size_is_passed_over_as_gnu_tar_does() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
import io, sys, tarfile
with tarfile.open(sys.argv[1], 'w', format=tarfile.PAX_FORMAT) as tar:
    for name in ['n' * 200 + '.jpg', 'a.cls']:
        info = tarfile.TarInfo(name)
        info.size = 3
        info.pax_headers = {'SCHILY.xattr.user.note': 'x=\\n' * (1 << 20), 'comment': '7'}
        tar.addfile(info, io.BytesIO(b'123'))
";
    python(script, &folder.path().join("a.tar"));
    let names = accepted(folder.path(), &["tar", "-tf", "a.tar"]).expect("GNU tar reads it");
    indexed(folder.path(), &IndexOptions::default()).await.unwrap();
    let found: Vec<_> =
        records(folder.path()).await.into_iter().map(|(_, key, _, fields)| format!("{key}.{}", fields[0].0)).collect();
    assert_eq!(found, names.lines().collect::<Vec<_>>());
    assert_eq!(verified(folder.path()).await.faults, []);
}

#[tokio::test]
async fn zeros_behind_gzip_are_padding_and_other_bytes_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("padded")).unwrap();
    write(path("a.tar"), tar(&[("1.jpg", &[7; 3000])]));
    write(path("b.tar"), tar(&[("2.jpg", &[8; 3000])]));
    let zip = |name: &str| {
        let output = Command::new("gzip").arg("-c").arg(path(name)).output().unwrap();
        assert!(output.status.success());
        output.stdout
    };
    // Two members of one stream, of which the second one is what the first one lacks.
    let whole = fs::read(path("a.tar")).unwrap();
    let mut halves = Vec::new();
    for (name, half) in [("first", &whole[..1000]), ("second", &whole[1000..])] {
        write(path(name), half);
        halves.extend(zip(name));
    }
    let zeros = vec![0; 10_000];
    write(path("padded/halves.tar.gz"), [&halves[..], &zeros].concat());
    write(path("padded/b.tar.gz"), [&zip("b.tar")[..], &zeros].concat());
    for name in ["halves", "b"] {
        assert!(accepted(&path("padded"), &["gzip", "-t", &format!("{name}.tar.gz")]).is_some());
    }
    let report = indexed(&path("padded"), &IndexOptions::default()).await.unwrap();
    assert_eq!((report.records, verified(&path("padded")).await.faults), (2, vec![]));

    write(path("other/a.tar.gz"), [&zip("a.tar")[..], &zeros, b"other"].concat());
    assert_eq!(accepted(&path("other"), &["gzip", "-t", "a.tar.gz"]), None);
    let error = indexed(&path("other"), &IndexOptions::default()).await.unwrap_err().to_string();
    assert!(error.contains("bytes follow the zeros behind its end"), "{error}");
}

#[tokio::test]
async fn zstd_with_a_large_window_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let content = tar(&[("1.jpg", &[7; 3000])]);
    // A frame with a window of 1 GiB, and one raw block.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (30 - 10) << 3];
    frame.extend(&((content.len() as u32) << 3 | 1).to_le_bytes()[..3]);
    frame.extend(&content);
    write(folder.path().join("a.tar.zst"), frame);
    let report = indexed(folder.path(), &IndexOptions::default()).await.unwrap();
    assert_eq!((report.records, verified(folder.path()).await.faults), (1, vec![]));
}

#[tokio::test]
async fn bad_shards_are_left_out_and_named_up_to_a_number() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..6 {
        write(folder.path().join(format!("{number}.tar")), tar(&[(&format!("{number}.jpg"), b"one")]));
    }
    write(folder.path().join("1.tar"), &tar(&[("1.jpg", b"one")])[..700]);
    write(folder.path().join("4.tar"), "no tar".repeat(200));
    let skip = |skip_bad_shards| IndexOptions { skip_bad_shards, ..IndexOptions::default() };
    for (allowed, expected) in [
        (0, "shard `1.tar` at byte 700: the tar is cut off"),
        (
            1,
            "shards that cannot be read: 2, and 1 may be left out; the last of them: shard `4.tar` at byte 0: not a tar header",
        ),
    ] {
        let error = indexed(folder.path(), &skip(allowed)).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.hint().unwrap().contains("--skip-bad-shards"));
        assert_eq!(names(folder.path()).len(), 6, "nothing is written");
    }
    let report = indexed(folder.path(), &skip(2)).await.unwrap();
    let bad: Vec<_> = report.bad_shards.iter().map(|bad| bad.shard.as_str()).collect();
    assert_eq!((report.shards, report.records, bad), (4, 4, vec!["1.tar", "4.tar"]));
    assert!(report.bad_shards[0].problem.contains("the tar is cut off"), "{report:?}");
    assert_eq!(verified(folder.path()).await.faults, []);

    let all = tempfile::tempdir().unwrap();
    write(all.path().join("1.tar"), "no tar".repeat(200));
    let error = indexed(all.path(), &skip(9)).await.unwrap_err().to_string();
    assert!(
        error.contains("shards that cannot be read: 1, and there is no other; the last of them: shard `1.tar`"),
        "{error}"
    );
}

#[tokio::test]
async fn files_of_other_formats_are_left_out_alike() {
    let folder = tempfile::tempdir().unwrap();
    let golden = |name: &str| fs::read(Path::new("tests/golden").join(name)).unwrap();
    let parquet = golden("rows.parquet");
    write(folder.path().join("parquet/a.parquet"), &parquet);
    write(folder.path().join("parquet/b.parquet"), &parquet[..parquet.len() - 9]);
    write(folder.path().join("tfrecord/a.tfrecord"), b"");
    write(folder.path().join("tfrecord/b.tfrecord"), [7; 100]);
    for name in ["parquet", "tfrecord"] {
        let options = IndexOptions { skip_bad_shards: 1, ..IndexOptions::default() };
        let report = indexed(&folder.path().join(name), &options).await.unwrap();
        let bad: Vec<_> = report.bad_shards.iter().map(|bad| bad.shard.clone()).collect();
        assert_eq!((report.shards, bad), (1, vec![format!("b.{name}")]));
    }
}
