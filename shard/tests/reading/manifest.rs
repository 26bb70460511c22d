//! The manifest: round trips, golden files, and hostile bytes.

use proptest::prelude::*;
use spdl_shard::manifest::{Block, BlockFacts, Manifest, ManifestBuilder, ManifestError, ShardFacts, TokenizerFacts};
use spdl_types::Fingerprint;
use xxhash_rust::xxh3::xxh3_128;

const GOLDEN: &[u8] = include_bytes!("../golden/manifest-v1.spdl");
/// The same dataset, whose shards lie elsewhere.
const GOLDEN_WITH_BASE: &[u8] = include_bytes!("../golden/manifest-v3.spdl");

const TOKENIZER: TokenizerFacts =
    TokenizerFacts { fingerprint: Fingerprint(7), vocab: 50_257, eos: Some(50_256), ends_with_eos: true };

fn shard(url: &str, bytes: u64, records: u32, etag: Option<&str>) -> ShardFacts {
    let index_hash = Fingerprint::of(url.as_bytes());
    ShardFacts { url: url.into(), bytes, etag: etag.map(Into::into), records, index_bytes: 99, index_hash }
}

fn block(offset: u64, bytes: u32, first_record: u32, records: u32, samples: u32) -> BlockFacts {
    BlockFacts { offset, bytes, first_record, records, samples }
}

fn example() -> ManifestBuilder {
    let mut builder = ManifestBuilder::new("flowers").classes(["tulip", "aster", "Rose"]);
    let blocks = [block(0, 4096, 0, 3, 3), block(4096, 2048, 3, 1, 2)];
    builder.shard(&shard("train-000000.tar", 8192, 5, Some("\"e1\"")), &blocks).unwrap();
    builder.shard(&shard("more/ünï.tar", 1024, 2, None), &[]).unwrap();
    builder.shard(&shard("train-000001.tar", 5000, 9, Some("e3")), &[block(512, 4000, 1, 7, 7)]).unwrap();
    builder
}

/// Gives `bytes` a valid checksum again, as a hostile writer would.
pub(crate) fn reseal(bytes: &mut [u8]) {
    let checksum = xxh3_128(&bytes[40..]);
    bytes[24..40].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads everything that a manifest offers.
fn read_all(manifest: &Manifest) {
    let _ = (manifest.name(), manifest.facts(), manifest.block_samples());
    for class in manifest.classes() {
        assert!(manifest.class_number(class).is_some());
    }
    for number in 0..manifest.shard_count() {
        let shard = manifest.shard(number);
        for block in manifest.shard_blocks(number) {
            let block = manifest.block(block);
            assert!(block.shard == number && block.samples > 0 && block.offset + block.bytes <= shard.bytes);
        }
    }
}

#[test]
fn a_manifest_contains_what_was_written() {
    let manifest = example().finish().unwrap();
    assert_eq!(manifest.name(), "flowers");
    assert_eq!(manifest.classes().collect::<Vec<_>>(), ["tulip", "aster", "Rose"]);
    assert_eq!(manifest.class_number("aster"), Some(1));
    assert_eq!(manifest.class_number("daisy"), None);
    assert_eq!((manifest.samples(), manifest.records(), manifest.block_count()), (12, 16, 3));
    let shards: Vec<_> = manifest.shards().collect();
    assert_eq!(shards[1].url, "more/ünï.tar");
    assert_eq!(shards.iter().map(|shard| shard.etag).collect::<Vec<_>>(), [Some("\"e1\""), None, Some("e3")]);
    assert_eq!(shards.iter().map(|shard| shard.first_sample).collect::<Vec<_>>(), [0, 5, 5]);
    assert_eq!(shards.iter().map(|shard| shard.samples).collect::<Vec<_>>(), [5, 0, 7]);
    assert_eq!(shards[2].index_hash, Fingerprint::of(b"train-000001.tar"));
    assert_eq!((manifest.shard_blocks(0), manifest.shard_blocks(1), manifest.shard_blocks(2)), (0..2, 2..2, 2..3));
    let expected =
        Block { shard: 2, first_sample: 5, samples: 7, first_record: 1, records: 7, offset: 512, bytes: 4000 };
    assert_eq!(manifest.block(2), expected);
    assert_eq!(manifest.block_samples(), [3, 2, 7]);
    let of: Vec<_> = (0..13).map(|sample| manifest.block_of(sample)).collect();
    assert_eq!(of[..5], [Some(0), Some(0), Some(0), Some(1), Some(1)]);
    assert_eq!(of[5..12], [Some(2); 7]);
    assert_eq!(of[12], None);
}

#[test]
fn the_version_follows_from_the_content() {
    let format = spdl_shard::format::format_called("mds").unwrap();
    let base = |builder: ManifestBuilder| builder.base(Some("../flowers"));
    let tokens = |builder: ManifestBuilder| builder.tokenizer(Some(TOKENIZER));
    for (builder, version) in [
        (example(), 1),
        (example().format(format), 2),
        (base(example()), 3),
        (base(example().format(format)), 3),
        (tokens(example()), 4),
        (tokens(base(example().format(format))), 4),
    ] {
        let mut bytes = builder.finish().unwrap().bytes().to_vec();
        assert_eq!(bytes[8], version);
        for other in (1..=4).filter(|other| *other != version) {
            bytes[8] = other;
            let error = Manifest::open(bytes.clone()).unwrap_err().to_string();
            assert!(error.contains("its version is not that of its content"), "{version} as {other}: {error}");
        }
    }
}

#[test]
fn a_tokenizer_is_noted_and_changes_nothing_else() {
    for facts in [TOKENIZER, TokenizerFacts { eos: None, ends_with_eos: false, vocab: 1 << 31, ..TOKENIZER }] {
        let manifest = example().base(Some("../flowers")).tokenizer(Some(facts)).finish().unwrap();
        assert_eq!(manifest.tokenizer(), Some(facts));
        assert_eq!(manifest.base(), Some("../flowers"));
        assert_eq!(manifest.fingerprint(), example().finish().unwrap().fingerprint());
        let bytes = manifest.bytes();
        for length in 0..bytes.len() {
            assert!(Manifest::open(bytes[..length].to_vec()).is_err(), "{length}");
        }
    }
    assert_eq!(Manifest::open(GOLDEN).unwrap().tokenizer(), None);
    for wrong in [
        TokenizerFacts { vocab: 0, eos: None, ends_with_eos: false, ..TOKENIZER },
        TokenizerFacts { vocab: 7, ..TOKENIZER },
        TokenizerFacts { eos: None, ..TOKENIZER },
    ] {
        let error = example().tokenizer(Some(wrong)).finish().unwrap_err().to_string();
        assert!(error.contains("its tokenizer cannot be one"), "{error}");
    }
}

#[test]
fn a_manifest_is_written_and_read_as_ever() {
    assert_eq!(example().finish().unwrap().bytes(), GOLDEN);
    let manifest = Manifest::open(GOLDEN).unwrap();
    assert_eq!(manifest.fingerprint().to_string(), "99f03627980e6edddbf043773e47301d");
    assert_eq!(manifest.shard(2).url, "train-000001.tar");
}

#[test]
fn a_manifest_whose_shards_lie_elsewhere_describes_the_same_dataset() {
    let with = |base: &str| example().base(Some(base)).finish();
    let manifest = with("s3://bucket/flowers").unwrap();
    assert_eq!(manifest.bytes(), GOLDEN_WITH_BASE);
    assert_eq!((manifest.base(), Manifest::open(GOLDEN).unwrap().base()), (Some("s3://bucket/flowers"), None));
    assert_eq!(Manifest::open(GOLDEN_WITH_BASE).unwrap().shard(0).etag, Some("\"e1\""));
    let format = spdl_shard::format::format_called("mds").unwrap();
    let moved = example().format(format).base(Some("../flowers")).finish().unwrap();
    assert_eq!((moved.format(), moved.base()), (format, Some("../flowers")));
    for (a, b) in
        [(&manifest, example()), (&with("/data/flowers").unwrap(), example()), (&moved, example().format(format))]
    {
        assert_eq!(a.fingerprint(), b.finish().unwrap().fingerprint());
        read_all(a);
    }
    for (base, expected) in [
        ("", "1 to 4096 bytes"),
        ("../../etc", "after `..` at most once"),
        ("file:///etc", "local folders are paths"),
        ("https://me:word@host/a", "`https://***@host/a` cannot be the place of its shards"),
    ] {
        let error = with(base).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("word@"), "{error}");
    }
    // A hostile writer can write any of them.
    let mut bytes = GOLDEN_WITH_BASE.to_vec();
    let at = bytes.len() - "s3://bucket/flowers".len();
    bytes[at..].copy_from_slice(b"../../../../etc/pam");
    reseal(&mut bytes);
    let error = Manifest::open(bytes).unwrap_err().to_string();
    assert!(error.contains("`../../../../etc/pam` cannot be the place of its shards"), "{error}");
}

#[test]
fn the_fingerprint_follows_the_content_and_neither_name_nor_etags() {
    let with = |name: &str, etag, bytes| {
        let mut builder = ManifestBuilder::new(name);
        builder.shard(&shard("a.tar", bytes, 1, etag), &[block(0, 512, 0, 1, 1)]).unwrap();
        builder.finish().unwrap().fingerprint()
    };
    assert_eq!(with("a", Some("x"), 1024), with("bb", None, 1024));
    assert_ne!(with("a", Some("x"), 1024), with("a", Some("x"), 1536));
}

#[test]
fn a_manifest_without_shards_is_valid() {
    let manifest = ManifestBuilder::new("").finish().unwrap();
    assert_eq!((manifest.shard_count(), manifest.samples(), manifest.block_of(0)), (0, 0, None));
}

#[test]
fn an_error_names_what_is_wrong_with_the_file() {
    let open = |bytes: Vec<u8>| Manifest::open(bytes).unwrap_err().to_string();
    let changed = |at: usize, byte: u8| {
        let mut bytes = GOLDEN.to_vec();
        bytes[at] = byte;
        open(bytes)
    };
    assert!(open(b"{\"shards\": []}".to_vec()).contains("is not a manifest: it starts with `{\\\"shards`"));
    assert!(open(include_bytes!("../golden/index-v1.idx").to_vec()).contains("is not a manifest"));
    assert!(changed(8, 5).contains("was written by a newer spdl-cluster"));
    assert!(changed(8, 0).contains("is invalid"));
    assert!(changed(GOLDEN.len() - 1, b'x').contains("checksum"));
    assert!(open(GOLDEN[..300].to_vec()).contains(&format!("is cut off: 300 bytes of {}", GOLDEN.len())));
    assert!(open([GOLDEN, b"x"].concat()).contains("1 bytes follow its end"));
}

#[test]
fn every_truncation_and_every_changed_byte_is_an_error() {
    for golden in [GOLDEN, GOLDEN_WITH_BASE] {
        for length in 0..golden.len() {
            assert!(Manifest::open(golden[..length].to_vec()).is_err(), "{length}");
        }
        for at in 0..golden.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = golden.to_vec();
                bytes[at] ^= flip;
                assert!(Manifest::open(bytes).is_err(), "byte {at} ^ {flip:#x}");
            }
        }
    }
}

#[test]
fn hostile_bytes_under_a_right_checksum_neither_panic_nor_slip_through() {
    let places =
        [GOLDEN, GOLDEN_WITH_BASE].into_iter().flat_map(|golden| (40..golden.len()).map(move |at| (golden, at)));
    for (golden, at) in places {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            for width in [1, 4, 8] {
                let mut bytes = golden.to_vec();
                let end = (at + width).min(bytes.len());
                bytes[at..end].fill(value);
                reseal(&mut bytes);
                if let Ok(manifest) = Manifest::open(bytes) {
                    read_all(&manifest);
                    assert!(manifest.base().is_none_or(|base| !base.contains("../..")));
                }
            }
        }
    }
}

#[test]
fn counts_that_the_file_cannot_hold_are_refused() {
    for at in [56, 60, 64, 72, 76, 80, 88] {
        let mut bytes = GOLDEN_WITH_BASE.to_vec();
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        reseal(&mut bytes);
        let error = Manifest::open(bytes).unwrap_err();
        assert!(matches!(&error, ManifestError::Malformed(what) if what.contains("add up")), "{at}: {error}");
    }
}

#[test]
fn a_shard_outside_the_folder_is_refused() {
    for url in ["", "/etc/passwd", "../other.tar", "a/../../b.tar", "a//b.tar", "./a.tar", "a\nb.tar"] {
        let error = ManifestBuilder::new("x").shard(&shard(url, 1024, 1, None), &[]).unwrap_err();
        assert!(error.to_string().contains(&format!("`{url}`")), "{error}");
    }
}

#[test]
fn shards_whose_sizes_do_not_add_up_are_refused() {
    let mut builder = ManifestBuilder::new("x");
    builder.shard(&shard("a.tar", u64::MAX, 1, None), &[]).unwrap();
    builder.shard(&shard("b.tar", 1, 1, None), &[]).unwrap();
    let error = builder.finish().unwrap_err().to_string();
    assert!(error.contains("more bytes than 64 bits can count"), "{error}");
}

#[test]
fn what_contradicts_itself_is_not_written() {
    let with = |blocks: &[BlockFacts]| {
        let mut builder = ManifestBuilder::new("x");
        builder.shard(&shard("a.tar", 1024, 4, None), blocks).unwrap();
        builder.finish().map(drop)
    };
    with(&[block(0, 512, 0, 2, 2), block(512, 512, 2, 2, 2)]).unwrap();
    for blocks in [
        [block(0, 513, 0, 2, 2), block(512, 512, 2, 2, 2)],
        [block(0, 512, 0, 3, 2), block(512, 512, 2, 2, 2)],
        [block(0, 512, 0, 2, 0), block(512, 512, 2, 2, 2)],
        [block(0, 512, 0, 2, 2), block(512, 513, 2, 2, 2)],
        [block(0, 512, 0, 2, 2), block(512, 512, 2, 3, 2)],
        [block(0, 0, 0, 2, 2), block(512, 512, 2, 2, 2)],
        [block(0, 512, 0, 2, 2), block(u64::MAX, 512, 2, 2, 2)],
    ] {
        assert!(with(&blocks).is_err(), "{blocks:?}");
    }
    // In any order.
    for (names, twice) in [
        (&["a", "b", "c"][..], None),
        (&["c", "a", "b"], None),
        (&["b", "a", "b"], Some("b")),
        (&["a", "a"], Some("a")),
    ] {
        let mut builder = ManifestBuilder::new("x");
        names.iter().for_each(|name| builder.shard(&shard(name, 1024, 0, None), &[]).unwrap());
        match (builder.finish(), twice) {
            (Ok(_), None) => {}
            (Err(error), Some(name)) => {
                assert!(error.to_string().contains(&format!("the shard `{name}` twice")), "{error}")
            }
            (made, _) => panic!("{names:?}: {made:?}"),
        }
    }
    let twice = ManifestBuilder::new("x").classes(["a", "b", "a"]).finish().unwrap_err();
    assert!(twice.to_string().contains("two classes are called `a`"), "{twice}");
}

prop_compose! {
    fn shards()(shards in prop::collection::vec(prop::collection::vec((1_u32..9, 1_u32..5, 0_u32..3), 0..6), 0..12))
        -> Vec<(ShardFacts, Vec<BlockFacts>)>
    {
        shards.into_iter().enumerate().map(|(number, sizes)| {
            let (mut offset, mut record) = (0, 0);
            let blocks = sizes.into_iter().map(|(units, records, gap)| {
                let made = block(offset + 512 * u64::from(gap), 512 * units, record + gap, records, records * 3);
                offset = made.offset + u64::from(made.bytes);
                record = made.first_record + records;
                made
            }).collect();
            let etag = number.is_multiple_of(2).then(|| format!("etag-{number}"));
            (shard(&format!("s-{number}.tar"), offset + 1024, record, etag.as_deref()), blocks)
        }).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_dataset_reads_back(shards in shards(), classes in prop::collection::btree_set("[a-zé ]{1,9}", 0..9)) {
        let mut builder = ManifestBuilder::new("any").classes(classes.iter().cloned());
        for (shard, blocks) in &shards {
            builder.shard(shard, blocks).unwrap();
        }
        let manifest = builder.finish().unwrap();
        prop_assert_eq!(manifest.shard_count() as usize, shards.len());
        for (number, (facts, blocks)) in shards.iter().enumerate() {
            let shard = manifest.shard(number as u32);
            prop_assert_eq!((shard.url, shard.bytes, shard.etag, shard.records),
                (&*facts.url, facts.bytes, facts.etag.as_deref(), facts.records));
            let range = manifest.shard_blocks(number as u32);
            prop_assert_eq!(range.len(), blocks.len());
            for (block, facts) in range.map(|block| manifest.block(block)).zip(blocks) {
                prop_assert_eq!((block.offset, block.bytes, block.records, block.samples),
                    (facts.offset, u64::from(facts.bytes), facts.records, facts.samples));
                prop_assert_eq!(block.shard, number as u32);
            }
        }
        let names: Vec<_> = manifest.classes().collect();
        for (number, name) in names.iter().enumerate() {
            prop_assert_eq!(manifest.class_number(name), Some(number as u32));
        }
        read_all(&manifest);
    }

    #[test]
    fn noise_is_an_error(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Manifest::open(noise).is_err());
    }
}
