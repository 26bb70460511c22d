//! Making datasets from folders, lists and tars, and verifying them: each byte is where the index places it.

mod again;
mod bad_shards;
mod elsewhere;
mod fields;
mod foreign;
mod foreign_files;
mod in_parts;
mod indexed;
mod interrupted;
mod listed;
mod originals;
mod replaced;
mod tokens;
mod tokens_built;
mod written;

use std::{collections::BTreeMap, fs, path::Path, sync::Mutex};

use spdl_dataset::{
    Against, Annotations, ClassOrder, DatasetError, DatasetProgress, DatasetReport, IndexOptions, JpegAsItIs, Jpegs,
    Overwrite, PackOptions, PackOrder, PackSource, ShardList, VerifyFault, VerifyOptions, VerifyReport, index, pack,
    verify,
};
use spdl_shard::manifest::Manifest;

pub(crate) use crate::files::{at, write};
use crate::tar::tar;

pub(crate) fn quiet(_: DatasetProgress) {}

/// Returns every file under a folder, by its path in the folder.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(open) = folders.pop() {
        for entry in fs::read_dir(open).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

/// Returns the names of what a folder holds, sorted.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

async fn packed(options: &PackOptions, to: &Path) -> Result<DatasetReport, DatasetError> {
    pack(&at(to), options, &quiet).await
}

async fn indexed(folder: &Path, options: &IndexOptions) -> Result<DatasetReport, DatasetError> {
    index(&at(folder), &at(folder), options, &quiet).await
}

async fn verified(folder: &Path) -> VerifyReport {
    verify(&at(folder), &Default::default(), &quiet).await.unwrap()
}

/// A record as the index finds it: shard, key, samples, and the content of the fields.
type IndexedRecord = (String, String, u32, Vec<(String, Vec<u8>)>);

async fn records(folder: &Path) -> Vec<IndexedRecord> {
    let store = at(folder);
    let manifest = store.manifest().await.unwrap();
    let mut found = Vec::new();
    for shard in manifest.shards() {
        let bytes = fs::read(folder.join(shard.url)).unwrap();
        for record in store.index(&shard).await.unwrap().records() {
            let field = |field: spdl_shard::index::Field<'_>| {
                let content = &bytes[field.offset as usize..][..field.bytes as usize];
                (field.name.to_owned(), content.to_vec())
            };
            found.push((
                shard.url.into(),
                record.key.to_string(),
                record.samples,
                record.fields().map(field).collect(),
            ));
        }
    }
    found
}

fn image_folder(root: &Path, per_class: usize) {
    for class in ["cat", "ant", "bee"] {
        for number in 0..per_class {
            write(root.join(class).join(format!("p{number:02}.JPEG")), format!("{class} {number}").repeat(100));
        }
    }
    write(root.join("README.txt"), "not a class");
    write(root.join("cat/notes.txt"), "not a picture");
    write(root.join("cat/.hidden.jpg"), "hidden");
}

fn annotation(classes: &[&str]) -> String {
    let bounds = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>";
    let objects = classes.iter().map(|class| format!("<object><name>{class}</name>{bounds}</object>"));
    format!("<annotation>{}</annotation>", objects.collect::<String>())
}

#[tokio::test]
async fn a_folder_of_class_folders_becomes_shards_with_every_byte_where_the_index_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let (root, to) = (folder.path().join("in"), folder.path().join("out/flowers"));
    image_folder(&root, 20);
    let mut options = PackOptions::new(PackSource::ImageFolder(root));
    options.shard_bytes = 40 << 10;
    options.block_bytes = 8 << 10;
    let last = Mutex::new(DatasetProgress::default());
    let report = pack(&at(&to), &options, &|progress| *last.lock().unwrap() = progress).await.unwrap();
    assert_eq!((report.records, report.samples, report.classes, report.skipped_files), (60, 60, 3, 3));
    assert_eq!(last.into_inner().unwrap().records, 60);
    assert!(report.shards > 3 && report.blocks > report.shards, "{report:?}");

    let manifest = at(&to).manifest().await.unwrap();
    assert_eq!(manifest.name(), "flowers");
    assert_eq!(manifest.classes().collect::<Vec<_>>(), ["ant", "bee", "cat"]);
    assert!(manifest.shards().all(|shard| shard.bytes <= (40 << 10) + 1024 && shard.etag.is_none()));
    let found = records(&to).await;
    for (_, key, samples, fields) in &found {
        let (class, number) = key.split_once("/p").unwrap();
        let picture = format!("{class} {}", number.parse::<u32>().unwrap()).repeat(100);
        let label = manifest.class_number(class).unwrap().to_string();
        assert_eq!(fields, &[("jpg".into(), picture.into_bytes()), ("cls".into(), label.into_bytes())]);
        assert_eq!(*samples, 1);
    }
    let first_ten: std::collections::BTreeSet<_> = found[..10].iter().map(|(_, key, ..)| &key[..3]).collect();
    assert_eq!(first_ten.len(), 3, "the classes are mixed");
    let verified = verified(&to).await;
    assert_eq!((verified.faults, verified.records, verified.fields), (vec![], 60, 120));
    assert_eq!(verified.bytes, report.bytes);
}

#[tokio::test]
async fn large_files_are_packed_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (root, to) = (folder.path().join("in"), folder.path().join("out"));
    let content = |name: &str, bytes: usize| -> Vec<u8> {
        let number = name.len();
        (0..bytes).map(|at| (at % 251 + number) as u8).collect()
    };
    let files = [("a/x.jpg", 9 << 20), ("a/x.txt", 8 << 20), ("a/yy.jpg", (12 << 20) + 1), ("a/yy.json", 70 << 10)];
    files.iter().for_each(|(name, bytes)| write(root.join(name), content(name, *bytes)));
    let bytes: usize = files.iter().map(|(_, bytes)| bytes).sum();
    for jpegs in [Jpegs::AsTheyAre, Jpegs::CropReady] {
        let options = PackOptions { jpegs, overwrite: Overwrite::Replace, ..PackOptions::new(PackSource::of(&root)) };
        let report = packed(&options, &to).await.unwrap();
        assert_eq!((report.records, report.crop_ready_pictures), (2, 0));
        assert!(report.bytes > bytes as u64);
        let against = Some(Against::Files(PackSource::of(&root)));
        let options = VerifyOptions { against, ..VerifyOptions::default() };
        let compared = verify(&at(&to), &options, &quiet).await.unwrap();
        assert_eq!((compared.faults, compared.same_pictures, compared.same_fields), (vec![], 2, 4));
        for (_, key, _, fields) in records(&to).await {
            assert_eq!(fields.len(), 3);
            for (field, found) in fields.iter().filter(|(field, _)| field != "cls") {
                let name = format!("{key}.{field}");
                let (_, bytes) = files.iter().find(|(file, _)| *file == name).unwrap();
                assert_eq!(*found, content(&name, *bytes));
            }
        }
    }
}

#[tokio::test]
async fn baseline_jpegs_are_made_crop_ready_without_loss_and_others_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (root, to) = (folder.path().join("in"), folder.path().join("out"));
    let photograph = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/photos/rocket.jpg")).unwrap();
    let truncated = &photograph[..photograph.len() / 2];
    write(root.join("a/whole.jpg"), &photograph);
    write(root.join("a/truncated.jpg"), truncated);
    write(root.join("a/other.png"), "no JPEG");
    let options = PackOptions { jpegs: Jpegs::CropReady, ..PackOptions::new(PackSource::ImageFolder(root)) };
    let report = packed(&options, &to).await.unwrap();
    assert_eq!((report.records, report.crop_ready_pictures), (3, 1));
    assert_eq!(report.crop_ready_source_bytes, photograph.len() as u64);
    let growth = report.crop_ready_bytes as f64 / photograph.len() as f64 - 1.0;
    assert!((0.0..0.02).contains(&growth), "{growth} more bytes, table included");

    let limits = spdl_jpeg::Limits::default();
    for (_, key, _, fields) in records(&to).await {
        let (field, content) = &fields[0];
        match &*key {
            "a/whole" => {
                let jpeg = spdl_jpeg::Jpeg::open(content, limits).unwrap();
                assert_eq!(jpeg.restart_interval() * jpeg.mcu_pixels().iter().product::<u32>(), 1024);
                assert_eq!(spdl_jpeg::has_same_coefficients(&photograph, content, limits), Ok(true));
                assert!(content.len() as f64 <= photograph.len() as f64 * 1.02, "{} bytes", content.len());
            }
            "a/truncated" => assert_eq!(content, truncated),
            _ => assert_eq!((&**field, &content[..]), ("png", &b"no JPEG"[..])),
        }
    }
    let found = verified(&to).await;
    assert_eq!((found.faults, found.crop_ready_pictures), (vec![], 1));
}

#[tokio::test]
async fn a_picture_of_few_bytes_gets_fewer_markers_so_that_it_grows_by_less_than_2_percent() {
    let folder = tempfile::tempdir().unwrap();
    let (root, to) = (folder.path().join("in"), folder.path().join("out"));
    let original = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/photos/grace_hopper.jpg")).unwrap();
    write(root.join("a/b.jpg"), &original);
    let options = PackOptions { jpegs: Jpegs::CropReady, ..PackOptions::new(PackSource::ImageFolder(root)) };
    let report = packed(&options, &to).await.unwrap();
    let (before, after) = (report.crop_ready_source_bytes, report.crop_ready_bytes);
    assert!(after > before && after * 100 < before * 102, "{before} bytes became {after}");
    let picture = records(&to).await[0].3[0].1.clone();
    let jpeg = spdl_jpeg::Jpeg::open(&picture, spdl_jpeg::Limits::default()).unwrap();
    assert!(jpeg.restart_interval() * jpeg.mcu_pixels().iter().product::<u32>() > 1024);
}

#[tokio::test]
async fn the_same_source_gives_the_same_dataset_and_another_seed_another_order() {
    let folder = tempfile::tempdir().unwrap();
    image_folder(&folder.path().join("in"), 10);
    let mut options = PackOptions::new(PackSource::ImageFolder(folder.path().join("in")));
    let mut fingerprints = Vec::new();
    for (name, order) in [
        ("a", PackOrder::Shuffled { seed: 1 }),
        ("b", PackOrder::Shuffled { seed: 1 }),
        ("c", PackOrder::Shuffled { seed: 2 }),
        ("d", PackOrder::AsListed),
    ] {
        options.order = order;
        fingerprints.push(packed(&options, &folder.path().join(name)).await.unwrap().fingerprint);
    }
    assert_eq!(fingerprints[0], fingerprints[1]);
    assert_ne!(fingerprints[1], fingerprints[2]);
    let keys: Vec<_> = records(&folder.path().join("d")).await.into_iter().map(|(_, key, ..)| key).collect();
    assert!(keys.is_sorted() && keys.len() == 30, "{keys:?}");
}

#[tokio::test]
async fn shards_are_closed_at_a_number_of_records() {
    let folder = tempfile::tempdir().unwrap();
    image_folder(&folder.path().join("in"), 5);
    let mut options = PackOptions::new(PackSource::ImageFolder(folder.path().join("in")));
    options.shard_records = Some(4);
    packed(&options, &folder.path().join("out")).await.unwrap();
    let manifest = at(&folder.path().join("out")).manifest().await.unwrap();
    assert_eq!(manifest.shards().map(|shard| shard.records).collect::<Vec<_>>(), [4, 4, 4, 3]);
}

#[tokio::test]
async fn a_dataset_is_only_replaced_when_it_is_wanted_and_nothing_of_it_stays() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("out");
    image_folder(&folder.path().join("in"), 6);
    let mut options = PackOptions::new(PackSource::ImageFolder(folder.path().join("in")));
    options.shard_records = Some(3);
    assert_eq!(packed(&options, &to).await.unwrap().shards, 6);
    let error = packed(&options, &to).await.unwrap_err();
    assert!(matches!(&error, DatasetError::InUse { url } if url.ends_with("out/.spdl/manifest.spdl")), "{error}");
    assert!(error.hint().unwrap().contains("--force"));
    write(to.join("mine.tar"), "somebody's");
    options.shard_records = Some(10);
    options.overwrite = Overwrite::Replace;
    assert_eq!(packed(&options, &to).await.unwrap().shards, 2);
    assert_eq!(names(&to), [".spdl", "mine.tar", "shard-000000.tar", "shard-000001.tar"]);
    let about = ["manifest.spdl", "shard-000000.tar.idx", "shard-000001.tar.idx"];
    assert_eq!(names(&to.join(".spdl")), about);
    fs::remove_file(to.join(".spdl/manifest.spdl")).unwrap();
    options.overwrite = Overwrite::Refuse;
    let error = packed(&options, &to).await.unwrap_err();
    assert!(matches!(&error, DatasetError::InUse { url } if url.ends_with("mine.tar")), "{error}");
}

#[tokio::test]
async fn every_fault_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    image_folder(&folder.path().join("in"), 6);
    let mut options = PackOptions::new(PackSource::ImageFolder(folder.path().join("in")));
    options.shard_records = Some(3);
    let to = folder.path().join("out");
    packed(&options, &to).await.unwrap();
    let all = records(&to).await;
    let path = |shard: u32| to.join(format!("shard-{shard:06}.tar"));
    let index_path = |shard: u32| to.join(format!(".spdl/shard-{shard:06}.tar.idx"));
    let change = |path: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    };
    let manifest = Manifest::open(fs::read(to.join(".spdl/manifest.spdl")).unwrap()).unwrap();
    let hurt = at(&to).index(&manifest.shard(1)).await.unwrap().record(2).field("jpg").unwrap().offset as usize;
    change(&path(1), &|bytes| bytes[hurt + 5] ^= 1);
    change(&index_path(2), &|bytes| *bytes.last_mut().unwrap() ^= 1);
    fs::remove_file(path(3)).unwrap();
    fs::copy(index_path(0), index_path(4)).unwrap();
    let cut = at(&to).index(&manifest.shard(5)).await.unwrap().record(1).field("cls").unwrap().offset;
    change(&path(5), &|bytes| bytes.truncate(cut as usize));

    let report = verified(&to).await;
    let faults = report.faults.iter().map(|VerifyFault { shard, record, problem }| {
        (shard.as_ref().unwrap()[6..12].parse::<usize>().unwrap(), record.as_deref(), problem.as_str())
    });
    let faults: Vec<_> = faults.collect();
    let expected = [
        (1, Some(all[5].1.as_str()), "field `jpg` at byte"),
        (2, None, "is damaged: its checksum"),
        (3, None, "shard-000003.tar` does not exist"),
        (4, None, "is not the record index that the manifest was made with"),
        (5, None, "the shard changed: the manifest has"),
        (5, Some(all[16].1.as_str()), "field `cls` at byte"),
        (5, Some(all[17].1.as_str()), "field `jpg` at byte"),
        (5, Some(all[17].1.as_str()), "field `cls` at byte"),
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
    for (found, expected) in faults.iter().zip(expected) {
        assert_eq!((found.0, found.1), (expected.0, expected.1), "{faults:#?}");
        assert!(found.2.contains(expected.2), "{found:?}");
    }
    assert_eq!(report.shards, 6);
}

#[tokio::test]
async fn a_source_or_an_option_that_makes_no_sense_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("out");
    let error = |options: PackOptions| {
        let to = to.clone();
        async move { packed(&options, &to).await.unwrap_err().to_string() }
    };
    let nowhere = PackOptions::new(PackSource::ImageFolder(folder.path().join("nowhere")));
    assert!(error(nowhere).await.contains("nowhere` cannot be read"));
    fs::create_dir_all(folder.path().join("in/empty")).unwrap();
    let source = PackSource::ImageFolder(folder.path().join("in"));
    assert!(error(PackOptions::new(source.clone())).await.contains("there is nothing in"));
    let no_bytes = PackOptions { shard_bytes: 0, ..PackOptions::new(source.clone()) };
    assert!(error(no_bytes).await.contains("`shard_bytes` is 0"));
    let huge = PackOptions { block_bytes: 1 << 40, ..PackOptions::new(source.clone()) };
    assert!(error(huge).await.contains("`block_bytes` is 1099511627776"));
    image_folder(&folder.path().join("in"), 1);
    let other =
        PackOptions { classes: ClassOrder::Given(vec!["ant".into(), "bee".into()]), ..PackOptions::new(source) };
    assert!(error(other).await.contains("in/cat` is the folder of class `cat`"));
}
