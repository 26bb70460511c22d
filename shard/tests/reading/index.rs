//! The record index: round trips, golden files with and without tables of segments and values, and hostile bytes.

use proptest::prelude::*;
use spdl_shard::{
    format::{Content, FieldValue, ShardIndex as _},
    index::{IndexBuilder, IndexError, RecordIndex, Segments},
};
use spdl_types::Fingerprint;

use crate::manifest::reseal;

/// The golden files without tables of segments, with them, with values and shared fields, and with tables of packets.
const GOLDEN: [&[u8]; 4] = [
    include_bytes!("../golden/index-v1.idx"),
    include_bytes!("../golden/index-v2.idx"),
    include_bytes!("../golden/index-v3.idx"),
    include_bytes!("../golden/index-v4.idx"),
];

fn example() -> (RecordIndex, Fingerprint) {
    example_with([None; 2])
}

/// Builds an index with these tables of segments for `jpg` of the first record and `seg.png` of the third.
fn example_with(tables: [Option<Segments<'_>>; 2]) -> (RecordIndex, Fingerprint) {
    let mut builder = IndexBuilder::new();
    builder.record("a/0001", 1, [("jpg", 512, 100, 7), ("cls", 1536, 1, 8)]).unwrap();
    if let Some(segments) = tables[0] {
        builder.segments(0, segments).unwrap();
    }
    builder.record("a/ö", 0, [("xml", 2560, 0, 0)]).unwrap();
    builder.record("b/0003", 3, [("cls", 3072, 2, 9), ("seg.png", 4096, 400, 10)]).unwrap();
    if let Some(segments) = tables[1] {
        builder.segments(1, segments).unwrap();
    }
    builder.record("b/0004", 0, [("xml", 5120, 3, 11)]).unwrap();
    builder.finish(8192).unwrap()
}

/// Builds an index of a recording with two parts, a sound with a text, and one without.
fn example_with_values() -> (RecordIndex, Fingerprint) {
    let mut builder = IndexBuilder::new();
    builder.record("talk@0", 1, [("flac", 512, 900, 7), ("json", 1536, 9, 8)]).unwrap();
    builder.values("talk@0", [("text", "good morning"), ("offset", "0")]).unwrap();
    builder.record_sharing("talk@2.5", 1).unwrap();
    builder.values("talk@2.5", [("text", "grüß Gott"), ("offset", "2.5")]).unwrap();
    builder.record("one", 1, [("flac", 2560, 1000, 9)]).unwrap();
    builder.segments(0, Segments { step: 2, lengths: &[[5, 0]] }).unwrap();
    builder.values("one", [("text", "")]).unwrap();
    builder.record("two", 1, [("wav", 4096, 1000, 9)]).unwrap();
    builder.finish(8192).unwrap()
}

/// Builds an index of a recording with two parts, and one of a record with two sounds.
fn example_with_packets() -> (RecordIndex, Fingerprint) {
    let mut builder = IndexBuilder::new();
    builder.record("talk@0", 1, [("json", 512, 9, 8), ("flac", 1536, 900, 7)]).unwrap();
    builder.packet_table(1, b"of the talk").unwrap();
    builder.values("talk@0", [("offset", "0")]).unwrap();
    builder.record_sharing("talk@2.5", 1).unwrap();
    builder.values("talk@2.5", [("offset", "2.5"), ("text", "grüß Gott")]).unwrap();
    builder.record("two", 1, [("a.wav", 2560, 300, 9), ("b.wav", 3584, 300, 9), ("c.wav", 4096, 300, 9)]).unwrap();
    builder.packet_table(0, b"first").unwrap();
    builder.packet_table(2, b"third").unwrap();
    builder.finish(8192).unwrap()
}

const TABLES: [Option<Segments<'static>>; 2] = [
    Some(Segments { step: 4, lengths: &[[50, 0], [20, 0], [30, 0]] }),
    Some(Segments { step: 1, lengths: &[[0x8f, 1]] }),
];

#[test]
fn an_index_contains_what_was_written() {
    let (index, hash) = example();
    assert_eq!(hash, Fingerprint::of(index.bytes()));
    assert_eq!((index.record_count(), index.sample_count(), index.shard_bytes()), (4, 4, 8192));
    let keys: Vec<_> =
        index.records().map(|record| (record.key.to_string(), record.first_sample, record.samples)).collect();
    let expected = [("a/0001", 0, 1), ("a/ö", 1, 0), ("b/0003", 1, 3), ("b/0004", 4, 0)];
    assert_eq!(keys, expected.map(|(key, first, samples)| (key.to_owned(), first, samples)));
    let field = index.record(2).field("seg.png").unwrap();
    assert_eq!((field.offset, field.bytes, field.crc32c), (4096, 400, Some(10)));
    assert_eq!(index.record(0).field("png"), None);
    assert_eq!(index.record(0).fields().map(|field| field.name).collect::<Vec<_>>(), ["jpg", "cls"]);
}

#[test]
fn records_have_values_in_the_index_and_can_share_their_fields_in_the_shard() {
    let (index, _) = example_with_values();
    let of = |record: u32, name: &str| {
        let field = index.record(record).field(name)?;
        let value = field.value.map(|value| std::str::from_utf8(value).unwrap());
        Some((field.range(), value, field.shared_by, field.crc32c))
    };
    for record in [0, 1] {
        assert_eq!(of(record, "flac"), Some((Some(512..1412), None, 2, Some(7))));
        assert_eq!(of(record, "json"), Some((Some(1536..1545), None, 2, Some(8))));
    }
    assert_eq!(of(1, "text"), Some((None, Some("grüß Gott"), 1, None)));
    assert_eq!(of(2, "flac"), Some((Some(2560..3560), None, 1, Some(9))));
    assert_eq!((of(2, "text"), of(3, "text")), (Some((None, Some(""), 1, None)), None));
    assert!(index.record(2).segments("flac").is_some() && index.record(1).segments("flac").is_none());
    let text = index.record(0).field("text").unwrap();
    let opened = index.open(&text, &|_| None).unwrap();
    assert!(
        matches!(opened, FieldValue::One(Content::File(text)) if text == "good morning"),
        "a value needs no bytes of the shard"
    );
    let mut builder = IndexBuilder::new();
    builder.record("a", 1, [("flac", 0, 10, 0)]).unwrap();
    builder.values("a", [("text", "one")]).unwrap();
    let twice = builder.values("a", [("text", "two")]).unwrap_err();
    assert!(twice.to_string().contains("has a field twice"), "{twice}");
}

#[test]
fn a_sample_is_found_past_records_that_have_none() {
    let (index, _) = example();
    let found: Vec<_> = (0..4).map(|sample| index.locate(sample)).collect();
    assert_eq!(found, [(0, 0), (2, 0), (2, 1), (2, 2)]);
}

#[test]
fn indexes_with_and_without_tables_are_written_and_read_as_ever() {
    let written = [
        (example(), "b/0003", 0),
        (example_with(TABLES), "b/0003", 2),
        (example_with_values(), "one", 1),
        (example_with_packets(), "two", 0),
    ];
    for ((written, key, tables), golden) in written.into_iter().zip(GOLDEN) {
        assert_eq!(written.0.bytes(), golden);
        let index = RecordIndex::open(golden, Fingerprint::of(golden)).unwrap();
        assert_eq!((index.record(2).key.text(), index.table_count()), (key.into(), tables));
    }
}

#[test]
fn a_picture_has_the_table_of_segments_that_was_written() {
    let found = |tables: [Option<Segments<'static>>; 2]| {
        let (index, _) = example_with(tables);
        let of = |record: u32, field: &str| {
            let segments = index.record(record).segments(field);
            segments.map(|segments| (segments.step, segments.lengths.to_vec()))
        };
        assert_eq!([of(0, "cls"), of(0, "png"), of(1, "xml"), of(2, "cls"), of(3, "xml")], [const { None }; 5]);
        [of(0, "jpg"), of(2, "seg.png")]
    };
    let [first, second] = TABLES;
    for tables in [[None, None], [first, None], [None, second], [first, second]] {
        let expected = tables.map(|table| table.map(|segments| (segments.step, segments.lengths.to_vec())));
        assert_eq!(found(tables), expected);
    }
}

#[test]
fn a_sound_has_the_table_of_packets_that_was_written_also_where_records_share_it() {
    let (index, _) = example_with_packets();
    let of = |record: u32| {
        let record = index.record(record);
        let tables = (0..record.fields().count() as u32).map(|nth| index.packet_table(&record, nth));
        tables.map(|table| table.map(|table| std::str::from_utf8(table).unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(of(0), [None, Some("of the talk"), None]);
    assert_eq!(of(1), [None, Some("of the talk"), None, None]);
    assert_eq!(of(2), [Some("first"), None, Some("third")]);
    let (without, _) = example_with_values();
    assert!(without.records().all(|record| without.packet_table(&record, 0).is_none()));
    let mut builder = IndexBuilder::new();
    builder.record("a", 1, [("wav", 0, 10, 0)]).unwrap();
    builder.packet_table(0, b"one").unwrap();
    let twice = builder.packet_table(0, b"two").unwrap_err();
    assert!(twice.to_string().contains("does not follow the one before it"), "{twice}");
}

#[test]
fn the_index_of_another_shard_is_refused() {
    let error = RecordIndex::open(GOLDEN[0], Fingerprint(7)).unwrap_err();
    assert!(matches!(error, IndexError::OtherFile { expected: Fingerprint(7), .. }), "{error}");
    assert!(!error.is_retryable());
}

#[test]
fn every_truncation_and_every_changed_byte_is_an_error() {
    for golden in GOLDEN {
        let expected = Fingerprint::of(golden);
        for length in 0..golden.len() {
            assert!(RecordIndex::open(golden[..length].to_vec(), expected).is_err(), "{length}");
        }
        for at in 0..golden.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = golden.to_vec();
                bytes[at] ^= flip;
                assert!(RecordIndex::open(bytes, expected).is_err(), "byte {at} ^ {flip:#x}");
            }
        }
    }
}

#[test]
fn hostile_bytes_under_a_right_checksum_neither_panic_nor_slip_through() {
    for golden in GOLDEN {
        for at in 40..golden.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                for width in [1, 4, 8] {
                    let mut bytes = golden.to_vec();
                    let end = (at + width).min(bytes.len());
                    bytes[at..end].fill(value);
                    reseal(&mut bytes);
                    walk(bytes);
                }
            }
        }
    }
}

/// Checks the guarantees that an index gives once it opens.
fn walk(bytes: Vec<u8>) {
    let hash = Fingerprint::of(&bytes);
    let Ok(index) = RecordIndex::open(bytes, hash) else { return };
    for record in index.records() {
        assert!(record.fields().filter_map(|field| field.range()).all(|range| range.end <= index.shard_bytes()));
        for (nth, field) in (0..).zip(record.fields()) {
            assert!(field.value.is_none_or(|value| std::str::from_utf8(value).is_ok()));
            assert!(index.packet_table(&record, nth).is_none_or(|table| !table.is_empty()));
            let Some(Segments { step, lengths }) = record.segments(field.name) else { continue };
            let bytes: u64 = lengths.iter().map(|length| u64::from(u16::from_le_bytes(*length))).sum();
            assert!(step > 0 && bytes <= u64::from(field.bytes));
        }
    }
    for sample in 0..index.sample_count().min(100) {
        let (record, nth) = index.locate(sample);
        assert!(nth < index.record(record).samples);
    }
}

#[test]
fn counts_that_the_file_cannot_hold_are_refused() {
    for (golden, at) in
        [48, 52, 60, 64, 68].map(|at| (GOLDEN[0], at)).into_iter().chain([72, 76, 80, 88, 92].map(|at| (GOLDEN[3], at)))
    {
        let mut bytes = golden.to_vec();
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        reseal(&mut bytes);
        let hash = Fingerprint::of(&bytes);
        assert!(matches!(RecordIndex::open(bytes, hash), Err(IndexError::Malformed(_))), "{at}");
    }
}

#[test]
fn what_contradicts_itself_is_not_written() {
    let with = |fields: &[(&'static str, u64, u32, u32)]| {
        let mut builder = IndexBuilder::new();
        builder.record("key", 1, fields.iter().copied())?;
        builder.finish(1024).map(drop)
    };
    with(&[("a", 512, 10, 0), ("b", 600, 10, 0)]).unwrap();
    with(&[]).unwrap_err();
    with(&[("a", 512, 10, 0), ("a", 600, 10, 0)]).unwrap_err();
    with(&[("a", 512, 10, 0), ("b", 521, 10, 0)]).unwrap_err();
    with(&[("a", 1020, 10, 0)]).unwrap_err();
    with(&[("a", u64::MAX, 10, 0)]).unwrap_err();
    with(&[("", 512, 10, 0)]).unwrap_err();
    let tables = |tables: &[(u32, Segments<'static>)]| {
        let mut builder = IndexBuilder::new();
        builder.record("key", 1, [("a", 512, 100, 0), ("b", 700, 100, 0)])?;
        tables.iter().try_for_each(|(field, segments)| builder.segments(*field, *segments))?;
        builder.finish(1024).map(drop)
    };
    let segments = |step: u32, lengths: &'static [[u8; 2]]| Segments { step, lengths };
    tables(&[(0, segments(1, &[[60, 0], [40, 0]])), (1, segments(1, &[]))]).unwrap();
    tables(&[(0, segments(1, &[[60, 0], [41, 0]]))]).unwrap_err();
    tables(&[(1, segments(1, &[])), (0, segments(1, &[]))]).unwrap_err();
    tables(&[(1, segments(1, &[])), (1, segments(1, &[]))]).unwrap_err();
    tables(&[(0, segments(0, &[]))]).unwrap_err();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_shard_reads_back(
        records in prop::collection::vec(
            ("[a-z/é]{1,12}", 0_u32..4, prop::collection::btree_map("[a-z.]{1,6}", (0_u32..5000, any::<u32>()), 1..5)),
            0..40,
        ),
    ) {
        let mut builder = IndexBuilder::new();
        let mut end = 0;
        let mut expected = Vec::new();
        for (key, samples, fields) in &records {
            let placed: Vec<_> = fields.iter().map(|(name, &(bytes, crc))| {
                let offset = end + 512;
                end = offset + u64::from(bytes);
                (name.as_str(), offset, bytes, crc)
            }).collect();
            builder.record(key, *samples, placed.iter().copied()).unwrap();
            expected.push(placed);
        }
        let (index, hash) = builder.finish(end + 1024).unwrap();
        let index = RecordIndex::open(index.bytes().clone(), hash).unwrap();
        prop_assert_eq!(index.record_count() as usize, records.len());
        for (record, ((key, samples, _), fields)) in index.records().zip(records.iter().zip(&expected)) {
            prop_assert_eq!((record.key.text(), record.samples), (key.as_str().into(), *samples));
            let found: Vec<_> = record.fields().map(|field| (field.name, field.offset, field.bytes, field.crc32c.unwrap())).collect();
            prop_assert_eq!(&found, fields);
        }
        let whole = records.iter().enumerate().flat_map(|(number, (_, samples, _))| (0..*samples).map(move |nth| (number as u32, nth)));
        for (sample, place) in whole.enumerate() {
            prop_assert_eq!(index.locate(sample as u32), place);
        }
    }
}
