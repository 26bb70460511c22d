//! Packing in parts: their shards and the merged manifest are those of a pack in one part, whatever happens on the way.

use std::sync::Arc;

use serde_json::Value;
use spdl_dataset::{PackPart, PartReport, merge, pack_part};
use spdl_store::StoreLayer;

use super::{
    interrupted::{Interrupted, Interruption, Writes},
    *,
};

fn part(number: u32, count: u32) -> PackPart {
    PackPart::new(number, count).unwrap()
}

async fn packed_part(options: &PackOptions, to: &Path, number: u32, count: u32) -> Result<PartReport, DatasetError> {
    pack_part(&at(to), options, part(number, count), &quiet).await
}

/// Packs all parts, the last one first, and merges them.
async fn in_parts(options: &PackOptions, to: &Path, count: u32) -> DatasetReport {
    for number in (0..count).rev() {
        packed_part(options, to, number, count).await.unwrap();
    }
    merge(&at(to)).await.unwrap()
}

/// Pictures with captions, of sizes that differ.
fn captioned(root: &Path) {
    for (class, pictures) in [("ant", 9), ("bee", 11), ("cat", 13)] {
        for number in 0..pictures {
            write(root.join(format!("{class}/{number}.jpg")), vec![number; 700 * usize::from(number % 5 + 1)]);
            if number % 3 > 0 {
                write(root.join(format!("{class}/{number}.txt")), format!("{class} {number}"));
            }
        }
    }
    write(root.join("README"), "not a class");
}

fn options(source: &Path) -> PackOptions {
    let name = Some("set".to_owned());
    PackOptions { name, shard_bytes: 9 << 10, block_bytes: 2 << 10, ..PackOptions::new(PackSource::of(source)) }
}

#[tokio::test]
async fn parts_of_any_number_give_the_files_and_the_report_of_a_pack_in_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    captioned(&path("in"));
    for order in [PackOrder::Shuffled { seed: 7 }, PackOrder::AsListed] {
        let options = PackOptions { order, ..options(&path("in")) };
        let one = path(&format!("{order:?}"));
        let report = packed(&options, &one).await.unwrap();
        assert!(report.shards > 8 && report.skipped_files == 1, "{report:?}");
        // With 40 parts some have no shards.
        for count in [1, 2, 8, 40] {
            let parts = path(&format!("{order:?}-{count}"));
            let merged = in_parts(&options, &parts, count).await;
            assert_eq!(DatasetReport { url: report.url.clone(), ..merged }, report, "{count} parts");
            assert_eq!(files(&parts), files(&one), "{count} parts");
        }
    }
}

#[tokio::test]
async fn pictures_without_annotations_are_in_no_part_and_classes_of_objects_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    image_folder(&path("in"), 8);
    for (number, classes) in [(1, &["dog"][..]), (4, &["cat", "eel"]), (5, &[]), (6, &["ant", "dog", "dog"])] {
        for class in ["ant", "bee"] {
            write(path(&format!("in/{class}/p{number:02}.xml")), annotation(classes));
        }
    }
    let annotations = Some(Annotations::Beside);
    let options = PackOptions { annotations, shard_records: Some(2), ..options(&path("in")) };
    let mut report = packed(&options, &path("one")).await.unwrap();
    assert_eq!((report.records, report.pictures_without_annotation, report.shards), (8, 16, 4));
    let mut merged = in_parts(&options, &path("parts"), 3).await;
    // A part notes the pictures that are left out before its shards.
    for report in [&mut report, &mut merged] {
        report.notes.sort();
    }
    assert_eq!(DatasetReport { url: report.url.clone(), ..merged }, report);
    assert_eq!(files(&path("parts")), files(&path("one")));
}

#[tokio::test]
async fn crop_ready_parts_are_closed_by_the_sizes_of_files_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let read = |name: &str| fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap();
    let (rocket, hopper) = (read("assets/photos/rocket.jpg"), read("assets/photos/grace_hopper.jpg"));
    for number in 0..8 {
        write(path(&format!("in/a/{number}.jpg")), if number % 3 == 0 { &hopper } else { &rocket });
    }
    let jpegs = Jpegs::CropReady;
    // Two photographs fit into a shard as they are, to the byte, and not when they are crop-ready.
    let shard_bytes = 2 * (rocket.len().next_multiple_of(512) as u64 + 512 + 1024);
    let options = PackOptions { jpegs, shard_bytes, order: PackOrder::AsListed, ..options(&path("in")) };
    let one = in_parts(&options, &path("one"), 1).await;
    assert_eq!((one.records, one.crop_ready_pictures, one.shards), (8, 8, 4));
    assert!(packed(&options, &path("whole")).await.unwrap().shards > 4);
    let merged = in_parts(&options, &path("parts"), 3).await;
    assert_eq!(DatasetReport { url: one.url.clone(), ..merged }, one);
    assert_eq!(files(&path("parts")), files(&path("one")));
    let against = Some(Against::Files(options.source));
    let compared = verify(&at(&path("parts")), &VerifyOptions { against, ..VerifyOptions::default() }, &quiet).await;
    let compared = compared.unwrap();
    assert_eq!((compared.faults, compared.same_pictures), (vec![], 8));

    // With a number of records, it is the pack without parts.
    let options = PackOptions { shard_records: Some(3), shard_bytes: 1 << 30, ..self::options(&path("in")) };
    let options = PackOptions { jpegs, ..options };
    packed(&options, &path("three")).await.unwrap();
    in_parts(&options, &path("threes"), 2).await;
    assert_eq!(files(&path("threes")), files(&path("three")));
}

#[tokio::test]
async fn parts_and_merges_that_are_interrupted_at_any_write_go_on_when_they_are_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    captioned(&path("in"));
    let options = PackOptions { shard_records: Some(9), shard_bytes: 1 << 20, ..options(&path("in")) };
    packed(&options, &path("one")).await.unwrap();
    let expected = files(&path("one"));
    for how in [Interruption::Kill, Interruption::FullDisk, Interruption::Once] {
        for write in 0.. {
            let to = path(&format!("{how:?}-{write}"));
            let writes = Writes::interrupted(how, write);
            let store = at(&to).through(|inner| Arc::new(Interrupted { inner, writes: Arc::clone(&writes) }).layered());
            let work = async {
                for number in 0..2 {
                    pack_part(&store, &options, part(number, 2), &quiet).await?;
                }
                merge(&store).await
            };
            let failed = tokio::select! {
                done = work => done.is_err(),
                () = writes.killed() => true,
            };
            assert!(failed || files(&to) == expected, "{how:?} at write {write} did nothing and said nothing");
            if !to.join(".spdl/manifest.spdl").exists() {
                for number in 0..2 {
                    packed_part(&options, &to, number, 2).await.unwrap();
                }
            }
            if failed {
                let merged = merge(&at(&to)).await;
                assert!(merged.is_ok() || files(&to) == expected, "{how:?} at write {write}: {merged:?}");
            }
            assert_eq!(files(&to), expected, "{how:?} at write {write}");
            fs::remove_dir_all(&to).unwrap();
            if !writes.were_interrupted() {
                assert!(write > 20, "only {write} writes were interrupted");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_part_that_is_run_again_packs_only_shards_that_are_not_as_it_wrote_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    captioned(&path("in"));
    let options = options(&path("in"));
    let first = packed_part(&options, &path("set"), 0, 1).await.unwrap();
    assert_eq!((first.kept_shards, first.shards), (0, first.all_shards));
    let before = files(&path("set").join(".spdl/parts"));
    assert_eq!(before.keys().collect::<Vec<_>>(), ["part-0-of-1.json"]);
    let again = packed_part(&options, &path("set"), 0, 1).await.unwrap();
    assert_eq!(again, PartReport { kept_shards: first.shards, ..first.clone() });

    // A shard with another byte, one that is cut off, one that is gone, and an index with another byte.
    let at_set = |name: &str| path("set").join(name);
    let whole = fs::read(at_set("shard-000000.tar")).unwrap();
    let mut damaged = whole.clone();
    damaged[700] ^= 1;
    fs::write(at_set("shard-000000.tar"), &damaged).unwrap();
    fs::write(at_set("shard-000001.tar"), &fs::read(at_set("shard-000001.tar")).unwrap()[1..]).unwrap();
    fs::remove_file(at_set("shard-000002.tar")).unwrap();
    fs::write(at_set(".spdl/shard-000003.tar.idx"), "another one").unwrap();
    let repaired = packed_part(&options, &path("set"), 0, 1).await.unwrap();
    assert_eq!(repaired, PartReport { kept_shards: first.shards - 4, ..first });
    assert_eq!(fs::read(at_set("shard-000000.tar")).unwrap(), whole);
    assert_eq!(files(&path("set").join(".spdl/parts")), before);
}

#[tokio::test]
async fn parts_that_are_missing_or_do_not_fit_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    captioned(&path("in"));
    let good = options(&path("in"));
    fs::create_dir(path("set")).unwrap();
    let problem = |result: Result<DatasetReport, DatasetError>, words: &[&str]| {
        let error = result.unwrap_err().to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "`{word}` is not in {error}"));
    };
    problem(merge(&at(&path("set"))).await, &["set` has no part of a pack", "--part I/N"]);
    for number in [0, 1, 3] {
        packed_part(&good, &path("set"), number, 5).await.unwrap();
    }
    let words = ["lacks parts 2, 4 of 5", "`spdl-ctl pack SOURCE OUT --part 2/5`"];
    problem(merge(&at(&path("set"))).await, &words);

    let refused = async |options: &PackOptions, words: &[&str]| {
        let error = packed_part(options, &path("set"), 2, 5).await.unwrap_err().to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "`{word}` is not in {error}"));
    };
    let seeded = PackOptions { order: PackOrder::Shuffled { seed: 3 }, ..good.clone() };
    refused(&seeded, &["`order` shuffled, seed 0, and this part", "`order` shuffled, seed 3"]).await;
    refused(&PackOptions { shard_bytes: 8 << 10, ..good.clone() }, &["`shard-size` 9216", "`shard-size` 8192"]).await;
    refused(&PackOptions { jpegs: Jpegs::CropReady, ..good.clone() }, &["`jpegs` as they are", "`jpegs` crop-ready"])
        .await;
    write(path("in/cat/late.jpg"), "one more");
    refused(&good, &["a source of 33 records", "a source of 34 records", "or another folder"]).await;
    fs::remove_file(path("in/cat/late.jpg")).unwrap();
    let replace = PackOptions { overwrite: Overwrite::Replace, ..good.clone() };
    refused(&replace, &["`overwrite` cannot replace a dataset in parts"]).await;
    for number in [2, 4] {
        packed_part(&good, &path("set"), number, 5).await.unwrap();
    }

    // What other programs may have changed.
    let json = |name: &str, change: &dyn Fn(&mut Value)| {
        let file = path("set/.spdl/parts").join(name);
        let before = fs::read(&file).unwrap();
        let mut value = serde_json::from_slice(&before).unwrap();
        change(&mut value);
        fs::write(&file, serde_json::to_vec(&value).unwrap()).unwrap();
        move || fs::write(&file, &before).unwrap()
    };
    let restore = json("part-3-of-5.json", &|part| part["pack"]["program"] = "9.9.9".into());
    problem(merge(&at(&path("set"))).await, &["part 3/5 was packed with version 9.9.9, and part 0 with version"]);
    restore();
    let restore = json("part-3-of-5.json", &|part| part["version"] = 2.into());
    problem(merge(&at(&path("set"))).await, &["part-3-of-5.json` cannot be used: it has version 2", "remove it"]);
    restore();
    let restore = json("part-3-of-5.json", &|part| drop(part["shards"].as_array_mut().unwrap().pop()));
    problem(merge(&at(&path("set"))).await, &["part-3-of-5.json` cannot be used: it has other shards than this part"]);
    restore();
    let restore = json("part-3-of-5.json", &|part| part["pack"]["source"]["shards"] = u64::MAX.into());
    problem(merge(&at(&path("set"))).await, &["part-3-of-5.json` cannot be used: it has other shards than this part"]);
    restore();
    let restore = json("part-3-of-5.json", &|part| part["shards"][0]["blocks"][0][1] = 0.into());
    problem(merge(&at(&path("set"))).await, &["manifest.spdl` cannot be written", "does not fit into shard"]);
    restore();
    fs::write(path("set/.spdl/parts/part-3-of-5.json"), "{").unwrap();
    problem(merge(&at(&path("set"))).await, &["part-3-of-5.json` cannot be used: EOF"]);
    fs::remove_file(path("set/.spdl/parts/part-3-of-5.json")).unwrap();
    packed_part(&good, &path("set"), 3, 5).await.unwrap();
    fs::write(path("set/.spdl/parts/part-0-of-2.json"), "{}").unwrap();
    problem(
        merge(&at(&path("set"))).await,
        &["parts of two packs: `.spdl/parts/part-0-of-2.json` and `.spdl/parts/part-0-of-5.json`"],
    );
    fs::remove_file(path("set/.spdl/parts/part-0-of-2.json")).unwrap();

    // Another shard than was packed.
    let shard = path("set/shard-000001.tar");
    let whole = fs::read(&shard).unwrap();
    fs::write(&shard, &whole[..512]).unwrap();
    problem(
        merge(&at(&path("set"))).await,
        &["shard-000001.tar` has 512 bytes, and was written with", "run part 0/5 again"],
    );
    fs::remove_file(&shard).unwrap();
    problem(merge(&at(&path("set"))).await, &["shard-000001.tar` is missing: run part 0/5 again"]);
    fs::write(&shard, &whole).unwrap();
    merge(&at(&path("set"))).await.unwrap();
    packed(&good, &path("one")).await.unwrap();
    assert_eq!(files(&path("set")), files(&path("one")));
    problem(merge(&at(&path("set"))).await, &["manifest.spdl` exists already"]);
    let late = packed_part(&good, &path("set"), 3, 5).await.unwrap_err().to_string();
    assert!(late.contains("manifest.spdl` exists already"), "{late}");
}

#[tokio::test]
async fn parts_and_other_commands_do_not_write_into_each_others_folders() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    captioned(&path("in"));
    let options = options(&path("in"));
    // Somebody's shards.
    write(path("theirs/x.tar"), tar(&[("1.jpg", b"one")]));
    let error = packed_part(&options, &path("theirs"), 0, 2).await.unwrap_err();
    assert!(matches!(&error, DatasetError::InUse { url } if url.ends_with("x.tar")), "{error}");
    assert_eq!(files(&path("theirs")).len(), 1);
    // A part that has begun is no dataset, and a pack that replaces it leaves nothing of it.
    packed_part(&options, &path("set"), 1, 2).await.unwrap();
    assert!(matches!(packed(&options, &path("set")).await, Err(DatasetError::Unfinished { .. })));
    let replace = PackOptions { overwrite: Overwrite::Replace, ..options.clone() };
    packed(&replace, &path("set")).await.unwrap();
    packed(&options, &path("one")).await.unwrap();
    assert_eq!(files(&path("set")), files(&path("one")));
    // A part whose source is wrong has not begun.
    write(path("list.txt"), "in/ant/0.jpg\nin/ant/none.jpg\n");
    let error = packed_part(&self::options(&path("list.txt")), &path("none"), 0, 2).await.unwrap_err().to_string();
    assert!(error.contains("in/ant/none.jpg` does not exist"), "{error}");
    assert!(files(&path("none")).is_empty());
    // The rest of a killed pack without parts.
    write(path("rest/.spdl/unfinished.spdl"), "# A dataset is being written here\nshard-*.tar\n");
    assert!(matches!(packed_part(&options, &path("rest"), 0, 2).await, Err(DatasetError::Unfinished { .. })));
}

#[tokio::test]
async fn the_parts_of_ten_thousand_shards_are_merged_without_reading_a_shard() {
    const SHARDS: u64 = 10_000;
    const PARTS: u32 = 8;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    captioned(&path("in"));
    packed_part(&PackOptions { shard_records: Some(40), ..options(&path("in")) }, &path("one"), 0, 1).await.unwrap();
    let model: Value = serde_json::from_slice(&fs::read(path("one/.spdl/parts/part-0-of-1.json")).unwrap()).unwrap();
    let shard_bytes = 256_u64 << 20;
    let blocks: Vec<Value> =
        (0..32_u64).map(|block| serde_json::json!([block << 23, 8 << 20, block * 80, 80, 80])).collect();
    fs::create_dir_all(path("set/.spdl/parts")).unwrap();
    for number in 0..u64::from(PARTS) {
        let mut part = model.clone();
        let range = number * SHARDS / u64::from(PARTS)..(number + 1) * SHARDS / u64::from(PARTS);
        let shard = |shard: u64| {
            let name = format!("shard-{shard:06}.tar");
            // Files that take no room.
            for (name, bytes) in [(name.clone(), shard_bytes), (format!(".spdl/{name}.idx"), 1 << 20)] {
                fs::File::create(path("set").join(name)).unwrap().set_len(bytes).unwrap();
            }
            let mut entry = model["shards"][0].clone();
            let changed = serde_json::json!({
                "name": name, "bytes": shard_bytes, "records": 2560, "index_bytes": 1 << 20, "blocks": blocks,
            });
            changed.as_object().unwrap().iter().for_each(|(key, value)| entry[key] = value.clone());
            entry
        };
        part["shards"] = range.map(shard).collect();
        (part["part"], part["parts"]) = (number.into(), PARTS.into());
        part["pack"]["source"]["shards"] = SHARDS.into();
        fs::write(path(&format!("set/.spdl/parts/part-{number}-of-{PARTS}.json")), serde_json::to_vec(&part).unwrap())
            .unwrap();
    }
    let begun = std::time::Instant::now();
    let merged = merge(&at(&path("set"))).await.unwrap();
    println!("merged {SHARDS} shards in {PARTS} parts in {:?}", begun.elapsed());
    assert_eq!((merged.shards, merged.blocks, merged.records), (10_000, 320_000, 25_600_000));
    assert!(!path("set/.spdl/parts").exists());
}
