//! Samples of datasets of several formats, measured: what is read for that, what cannot be measured, and the file of the result.

use std::{fs, path::Path, sync::Arc};

use spdl_dataset::{EvaluatedSizes, FileTable, IndexOptions, SampleMeasure, SizeRequest, evaluate_sizes, index};
use spdl_order::view::SampleSetBuilder;
use spdl_shard::{
    format::format_called,
    manifest::Manifest,
    sizes::{open_sizes, save_sizes},
};
use spdl_types::SampleId;

use crate::files::at;
use crate::view::{ROWS, nsfw, quiet, rows, width};

const SOUNDS: u32 = 30;
const RATE: u32 = 8000;

fn frames(number: u32) -> u32 {
    1 + number * number * 7919 % 40_000
}

fn milliseconds(frames: u32) -> u32 {
    (frames * 1000 + RATE / 2) / RATE
}

fn wav(frames: u32) -> Vec<u8> {
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data".to_vec();
    file.extend((2 * frames).to_le_bytes());
    file.resize(file.len() + 2 * frames as usize, 7);
    file
}

async fn sounds(folder: &Path) -> Manifest {
    for number in 0..SOUNDS {
        fs::write(folder.join(format!("{number:02}.wav")), wav(frames(number))).unwrap();
    }
    index(&at(folder), &at(folder), &IndexOptions::default(), &quiet).await.unwrap();
    at(folder).manifest().await.unwrap()
}

fn request(measure: SampleMeasure) -> SizeRequest {
    SizeRequest { measure, view: None, unread_allowed: 0 }
}

fn of_sounds() -> SampleMeasure {
    SampleMeasure::Milliseconds { from: vec!["wav".to_owned()], span: [None, None] }
}

fn of_field(field: &str, scale: u32) -> SizeRequest {
    request(SampleMeasure::Number { field: field.to_owned(), scale })
}

fn list(found: &EvaluatedSizes, manifest: &Manifest) -> Vec<u32> {
    (0..manifest.samples()).map(|sample| found.sizes.of(SampleId(sample))).collect()
}

#[tokio::test]
async fn of_sounds_only_the_beginnings_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = sounds(folder.path()).await;
    let found = evaluate_sizes(&at(folder.path()), &manifest, request(of_sounds()), &quiet).await.unwrap();
    let expected: Vec<u32> = (0..SOUNDS).map(|number| milliseconds(frames(number))).collect();
    assert_eq!(list(&found, &manifest), expected);
    let begins: u64 = (0..SOUNDS).map(|number| wav(frames(number)).len().min(16 << 10) as u64).sum();
    assert_eq!(found.bytes, begins);
    assert_eq!(found.unread.records, 0);
}

#[tokio::test]
async fn samples_outside_of_the_view_and_those_that_cannot_be_measured_have_no_size() {
    let folder = tempfile::tempdir().unwrap();
    // The head of one is cut off, and of another one no sound can be made.
    sounds(folder.path()).await;
    fs::write(folder.path().join("03.wav"), &wav(90)[..30]).unwrap();
    fs::write(folder.path().join("20.wav"), vec![0; 100_000]).unwrap();
    fs::remove_dir_all(folder.path().join(".spdl")).unwrap();
    index(&at(folder.path()), &at(folder.path()), &IndexOptions::default(), &quiet).await.unwrap();
    let manifest = at(folder.path()).manifest().await.unwrap();
    let mut set = SampleSetBuilder::default();
    (0..25).for_each(|sample| set.keep(SampleId(sample)).unwrap());
    let view = Some(Arc::new(set.finish(manifest.samples()).unwrap()));
    let of_view = |unread_allowed| SizeRequest { measure: of_sounds(), view: view.clone(), unread_allowed };
    let found = evaluate_sizes(&at(folder.path()), &manifest, of_view(2), &quiet).await.unwrap();
    let is_measured = |number: u32| number < 25 && ![3, 20].contains(&number);
    let expected: Vec<u32> =
        (0..SOUNDS).map(|number| if is_measured(number) { milliseconds(frames(number)) } else { 0 }).collect();
    assert_eq!(list(&found, &manifest), expected);
    assert_eq!(found.unread.records, 2);
    assert!(found.unread.first.as_ref().unwrap().contains("record `03`: field `wav`"), "{:?}", found.unread);
    let error = evaluate_sizes(&at(folder.path()), &manifest, of_view(1), &quiet).await.unwrap_err().to_string();
    assert!(error.contains("record `03`: field `wav`") && error.contains("the measurement leaves out 1"), "{error}");
}

#[tokio::test]
async fn a_sound_that_is_part_of_a_recording_is_as_long_as_its_row_says() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.wav"), wav(RATE * 10)).unwrap();
    let lists = tempfile::tempdir().unwrap();
    let table = "file,offset,duration\na.wav,0.5,2.25\na.wav,4,\na.wav,9.9995,0.0004\n";
    let path = lists.path().join("parts.csv");
    fs::write(&path, table).unwrap();
    let table = FileTable::read(&path, folder.path().to_str().unwrap()).unwrap();
    let options =
        IndexOptions { format: format_called("files"), table: Some(Arc::new(table)), ..IndexOptions::default() };
    index(&at(folder.path()), &at(folder.path()), &options, &quiet).await.unwrap();
    let manifest = at(folder.path()).manifest().await.unwrap();
    let of = |span: [Option<&str>; 2]| {
        let (from, span) = (vec!["wav".to_owned()], span.map(|field| field.map(str::to_owned)));
        request(SampleMeasure::Milliseconds { from, span })
    };
    let at = at(folder.path());
    let found = evaluate_sizes(&at, &manifest, of([Some("offset"), Some("duration")]), &quiet).await.unwrap();
    assert_eq!(list(&found, &manifest), [2250, 6000, 0]);
    let found = evaluate_sizes(&at, &manifest, of([Some("offset"), None]), &quiet).await.unwrap();
    assert_eq!(list(&found, &manifest), [9500, 6000, 0]);
}

#[tokio::test]
async fn the_numbers_of_a_column_are_scaled_and_rounded() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = rows(folder.path()).await;
    let store = at(folder.path());
    let found = evaluate_sizes(&store, &manifest, of_field("width", 1), &quiet).await.unwrap();
    let expected: Vec<u32> = (0..ROWS).map(|row| width(row) as u32).collect();
    assert_eq!(list(&found, &manifest), expected);
    assert!(found.bytes < 100_000, "{} bytes for 3,000 numbers beside 12 MB of pictures", found.bytes);
    let scores = SizeRequest { unread_allowed: 300, ..of_field("nsfw", 100) };
    let found = evaluate_sizes(&store, &manifest, scores, &quiet).await.unwrap();
    let expected: Vec<u32> = (0..ROWS).map(|row| nsfw(row).map_or(0, |_| (row * 31 % 100) as u32)).collect();
    assert_eq!(list(&found, &manifest), expected);
    assert_eq!(found.unread.records, (0..ROWS).filter(|row| nsfw(*row).is_none()).count() as u64);
    for (field, problem) in [
        ("nsfw", "field `nsfw` has no value"),
        ("split", "field `split` is \"val\", and not a number"),
        ("height", "it has no field `height`; it has picture, width, nsfw, split"),
    ] {
        let error = evaluate_sizes(&store, &manifest, of_field(field, 1), &quiet).await.unwrap_err().to_string();
        assert!(error.contains(problem), "{field}: {error}");
    }
}

#[tokio::test]
async fn stored_sizes_are_refused_for_another_dataset_and_when_damaged() {
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let manifest = sounds(folder.path()).await;
    let store = at(folder.path());
    let found = evaluate_sizes(&store, &manifest, request(of_sounds()), &quiet).await.unwrap();
    save_sizes(&store, &manifest, &found.sizes).await.unwrap();
    let fingerprint = found.sizes.fingerprint();
    let read = open_sizes(&store, &manifest, fingerprint).await.unwrap();
    assert_eq!(read.measured(), "milliseconds of [\"wav\"]");
    assert!((0..u64::from(SOUNDS)).all(|sample| read.of(SampleId(sample)) == found.sizes.of(SampleId(sample))));

    let name = format!("sizes-{fingerprint}.spdl");
    let path = folder.path().join(".spdl").join(&name);
    let whole = fs::read(&path).unwrap();
    // As docs/spec/formats/sizes.md has it.
    let text = b"milliseconds of [\"wav\"]";
    let numbers = (0..SOUNDS).flat_map(|number| milliseconds(frames(number)).to_le_bytes());
    let content = [
        &manifest.fingerprint().0.to_le_bytes()[..],
        &u64::from(SOUNDS).to_le_bytes(),
        &(text.len() as u64).to_le_bytes(),
        text,
        &numbers.collect::<Vec<_>>(),
    ];
    assert!(whole.starts_with(b"SPDLSIZ\n\x01\0\0\0\0\0\0\0") && whole[40..] == content.concat());
    let larger = rows(other.path()).await;
    fs::write(other.path().join(".spdl").join(&name), &whole).unwrap();
    let of_other = open_sizes(&at(other.path()), &larger, fingerprint).await.unwrap_err().to_string();
    assert!(of_other.contains("it is of another dataset, with 30 samples"), "{of_other}");

    let open = |bytes: Vec<u8>| {
        fs::write(&path, bytes).unwrap();
        let (store, manifest) = (at(folder.path()), manifest.clone());
        async move { open_sizes(&store, &manifest, fingerprint).await.map(|_| ()).unwrap_err().to_string() }
    };
    for place in [0, 8, 30, 50, 70, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        let error = open(damaged).await;
        assert!(error.contains(&name), "{place}: {error}");
    }
    for bytes in [0, 39, 60, whole.len() - 4] {
        assert!(open(whole[..bytes].to_vec()).await.contains("cut off"), "{bytes}");
    }
    // What is damaged is written anew.
    save_sizes(&store, &manifest, &found.sizes).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
}
