//! Tar shards: our writer against Python's `tarfile`, our reader against the formats of `tarfile`, and bad tars.

use std::{path::Path, process::Command};

use proptest::prelude::*;
use spdl_dataset::tar::{KeyEnd, RecordReader, ScannedRecord, TAR_END, TarError, TarFault, append_member};

pub(crate) fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (path, data) in members {
        append_member(&mut tar, path, data);
    }
    tar.extend(TAR_END);
    tar
}

fn scan(bytes: &[u8], chunk_bytes: usize) -> Result<Vec<ScannedRecord>, TarError> {
    let mut reader = RecordReader::new("s.tar").keep("xml", 1000);
    let mut records = Vec::new();
    for chunk in bytes.chunks(chunk_bytes) {
        reader.read(chunk, |record| records.push(record))?;
    }
    let end = reader.finish()?;
    assert_eq!(end.bytes, bytes.len() as u64);
    records.extend(end.record);
    Ok(records)
}

fn fault(bytes: &[u8]) -> TarError {
    scan(bytes, 1000).unwrap_err()
}

#[test]
fn records_are_runs_of_members_with_one_key() {
    let bytes = tar(&[
        ("a/1.JPG", b"picture"),
        ("a/1.cls", b"4"),
        ("a/2.seg.png", b""),
        ("__meta__/x.json", b"{}"),
        ("readme", b"no field"),
        ("a/.hidden.jpg", b"?"),
        ("a/2.xml", b"<annotation/>"),
        ("a/1.jpg", b"again"),
    ]);
    let records = scan(&bytes, 4096).unwrap();
    let found: Vec<_> = records
        .iter()
        .map(|record| (record.key.as_str(), record.fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>()))
        .collect();
    assert_eq!(found, [("a/1", vec!["jpg", "cls"]), ("a/2", vec!["seg.png", "xml"]), ("a/1", vec!["jpg"])]);
    let picture = &records[0].fields[0];
    assert_eq!(&bytes[picture.offset as usize..][..picture.bytes as usize], b"picture");
    assert_eq!(picture.crc32c, crc32c::crc32c(b"picture"));
    assert_eq!((records[0].start, records[0].end), (0, 2048));
    assert_eq!(records[1].fields[0].bytes, 0);
    assert_eq!(records[1].fields[1].content.as_deref(), Some(&b"<annotation/>"[..]));
}

#[test]
fn a_path_is_split_as_webdataset_splits_it() {
    for (path, expected) in [
        ("a.jpg", Some(("a", "jpg"))),
        ("d.x/a.b.c", Some(("d.x/a", "b.c"))),
        ("./a.jpg", Some(("./a", "jpg"))),
        ("a", None),
        ("d.x/a", None),
        (".a.jpg", None),
        ("a.", None),
        ("__a__/b.jpg", None),
        ("__a__", None),
        ("x/__a__/b.jpg", Some(("x/__a__/b", "jpg"))),
    ] {
        assert_eq!(KeyEnd::FirstDot.split(path), expected, "{path}");
        let is_last = expected.is_none_or(|(_, field)| !field.contains('.'));
        assert_eq!(KeyEnd::LastDot.split(path), if is_last { expected } else { Some(("d.x/a.b", "c")) }, "{path}");
    }
}

#[test]
fn a_cut_anywhere_is_an_error_that_names_shard_and_byte() {
    let long = "d/".repeat(150) + "é.jpg";
    let bytes = tar(&[("a.jpg", &[7; 700]), (&long, &[8; 600])]);
    let end = bytes.len() - 1024;
    for length in 0..=end {
        let error = fault(&bytes[..length]);
        assert!(matches!(error.fault, TarFault::CutOff(_)), "{length}: {error}");
        assert_eq!(error.offset, length as u64);
        assert!(error.to_string().starts_with(&format!("shard `s.tar` at byte {length}: ")), "{error}");
    }
    assert!(fault(&bytes[..800]).to_string().contains("inside a member"));
}

#[test]
fn a_header_that_is_hurt_is_an_error_at_its_place() {
    let bytes = tar(&[("a.jpg", b"x"), ("b.jpg", b"y")]);
    // Byte 155 of a header follows the checksum's end and has no meaning.
    for at in (1024..1536).filter(|at| *at != 1024 + 155) {
        let mut hurt = bytes.clone();
        hurt[at] ^= 0x41;
        let error = fault(&hurt);
        assert_eq!((error.fault, error.offset), (TarFault::HeaderChecksum, 1024), "byte {at}");
    }
}

#[test]
fn a_record_with_a_field_twice_is_an_error() {
    let error = fault(&tar(&[("a.jpg", b"x"), ("a.JPG", b"y")]));
    assert_eq!(error.fault, TarFault::FieldTwice { key: "a".into(), field: "jpg".into() });
    assert_eq!(error.offset, 1024);
    let error = fault(&tar(&[("b.jpg", b"x"), ("a.cls", b"1"), ("a.jpg", b"x"), ("a.jpg", b"y")]));
    assert_eq!(error.fault, TarFault::MemberTwice("a.jpg".into()));
    assert!(error.fault.hint().contains("`tar -x`, which keeps the last"));
}

/// Rewrites a header's size field, checksum included.
fn with_size(mut tar: Vec<u8>, kind: u8, size: &[u8; 12]) -> Vec<u8> {
    tar[156] = kind;
    tar[124..136].copy_from_slice(size);
    tar[148..156].fill(b' ');
    let sum: u32 = tar[..512].iter().map(|byte| u32::from(*byte)).sum();
    tar[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar
}

#[test]
fn a_size_declared_huge_is_refused_and_never_allocated() {
    let plain = tar(&[("a.jpg", b"x")]);
    let all_ones = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    assert_eq!(fault(&with_size(plain.clone(), b'0', all_ones)).fault, TarFault::Header("size"));
    let large = with_size(plain.clone(), b'0', b"77777777777\0");
    assert_eq!(fault(&large).fault, TarFault::TooLarge { path: "a.jpg".into(), bytes: 0o77_777_777_777 });
    let long_name = with_size(plain.clone(), b'L', b"77777777777\0");
    assert_eq!(fault(&long_name).fault, TarFault::ExtensionTooLong(0o77_777_777_777));
    for kind in [b'x', b'g'] {
        let passed_over = with_size(plain.clone(), kind, b"77777777777\0");
        assert!(matches!(fault(&passed_over).fault, TarFault::CutOff(_)));
    }
    let pax = tar(&[("././@PaxHeader", b"99999999999 path=a")]);
    let too_long = fault(&with_size(pax, b'x', b"77777777777\0"));
    assert_eq!(too_long.fault, TarFault::ExtensionTooLong(99_999_999_999 - 17));
    assert_eq!(fault(&with_size(plain.clone(), b'0', b"9z\0\0\0\0\0\0\0\0\0\0")).fault, TarFault::Header("size"));
    assert!(matches!(fault(&with_size(plain, b'S', b"00000000001\0")).fault, TarFault::Sparse(_)));
}

#[test]
fn pax_records_that_lie_are_refused() {
    for record in ["99 path=a\n", "0 path=a\n", "9 path=aa", "path=a\n", "12 size=x123\n", "-5 a=b\n", "3 \n"] {
        let bytes = tar(&[("././@PaxHeader", record.as_bytes()), ("a.jpg", b"x")]);
        let size = format!("{:011o}\0", record.len());
        let error = fault(&with_size(bytes, b'x', size.as_bytes().try_into().unwrap()));
        assert!(matches!(error.fault, TarFault::Header(_)), "{record:?}: {error}");
    }
}

fn python(script: &str, arguments: &[&Path]) -> String {
    let output = Command::new("python3").arg("-c").arg(script).args(arguments).output().expect("python3 is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_python_writes_in_any_format_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["USTAR_FORMAT", "GNU_FORMAT", "PAX_FORMAT"] {
        let path = folder.path().join(format);
        let script = format!(
            "
import io, sys, tarfile
with tarfile.open(sys.argv[1], 'w', format=tarfile.{format}) as tar:
    def add(name, data, **more):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        for key, value in more.items(): setattr(info, key, value)
        tar.addfile(info, io.BytesIO(data))
    add('folder', b'', type=tarfile.DIRTYPE)
    add('a.jpg', b'x' * 513, mtime=1234567890.25, uname='someone')
    add('a.cls', b'7')
    add('/'.join(['part' * 5] * 7) + '/' + 'n' * 60 + '.jpg', b'long')
    add('link.jpg', b'', type=tarfile.SYMTYPE, linkname='a.jpg')
    add('empty.jpg', b'')
    if '{format}' != 'USTAR_FORMAT':
        add('ü' * 120 + '.jpg', b'umlauts')
"
        );
        python(&script, &[&path]);
        let bytes = std::fs::read(&path).unwrap();
        for chunk_bytes in [1, 512, 1 << 20] {
            let records = scan(&bytes, chunk_bytes).unwrap();
            let data: Vec<_> = records
                .iter()
                .flat_map(|record| record.fields.iter().map(|field| (record.key.clone(), field)))
                .map(|(key, field)| (key, &bytes[field.offset as usize..][..field.bytes as usize]))
                .collect();
            let long = ["part".repeat(5).as_str(); 7].join("/") + "/" + &"n".repeat(60);
            let mut expected: Vec<(String, &[u8])> = vec![
                ("a".into(), &[b'x'; 513]),
                ("a".into(), b"7"),
                (long, b"long"),
                ("empty".into(), b""),
                ("ü".repeat(120), b"umlauts"),
            ];
            expected.truncate(if format == "USTAR_FORMAT" { 4 } else { 5 });
            assert_eq!(data, expected, "{format} in chunks of {chunk_bytes}");
        }
    }
}

#[test]
fn python_reads_what_we_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.tar");
    let prefixed = "p".repeat(90) + "/" + &"n".repeat(90) + ".jpg";
    let long = "l".repeat(180) + ".jpg";
    let members: [(&str, &[u8]); 5] =
        [("a.jpg", b"one"), (&prefixed, b"two"), (&long, b"three"), ("ünï.jpg", b""), ("b.cls", &[b'z'; 512])];
    std::fs::write(&path, tar(&members)).unwrap();
    let script = "
import sys, tarfile
for member in tarfile.open(sys.argv[1]):
    assert member.isreg() and member.mtime == 0 and member.uid == 0 and member.mode == 0o644, member
    print(member.name, tarfile.open(sys.argv[1]).extractfile(member).read().decode())
";
    let expected: String =
        members.iter().map(|(path, data)| format!("{path} {}\n", String::from_utf8_lossy(data))).collect();
    assert_eq!(python(script, &[&path]), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_members_read_back_in_chunks_of_any_size(
        members in prop::collection::vec(
            ("[a-zé]{1,40}(/[a-z]{1,80}){0,4}", prop::collection::vec(any::<u8>(), 0..1500)), 0..12),
        chunk_bytes in 1_usize..3000,
    ) {
        let named: Vec<_> = members.iter().enumerate().map(|(n, (path, data))| (format!("{path}{n}.x"), data)).collect();
        let bytes = tar(&named.iter().map(|(path, data)| (path.as_str(), data.as_slice())).collect::<Vec<_>>());
        let records = scan(&bytes, chunk_bytes).unwrap();
        prop_assert_eq!(records.len(), named.len());
        let mut end = 0;
        for (record, (path, data)) in records.iter().zip(&named) {
            prop_assert_eq!(&format!("{}.x", record.key), path);
            let field = &record.fields[0];
            prop_assert_eq!(&bytes[field.offset as usize..][..field.bytes as usize], data.as_slice());
            prop_assert_eq!(field.crc32c, crc32c::crc32c(data));
            prop_assert_eq!(record.start, end);
            end = record.end;
        }
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..3000), at in 0_usize..2048, byte: u8) {
        let _ = scan(&noise, 100);
        let mut bytes = tar(&[(&"é".repeat(80), b"x"), ("a.jpg", b"y")]);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = scan(&bytes, 100);
    }
}
