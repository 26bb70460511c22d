//! What others have beside the data: no command overwrites or removes it, whatever its name is, and wherever the files about the
//! dataset lie.

use proptest::{
    prelude::*,
    sample::{select, subsequence},
};
use spdl_order::view::{SampleSetBuilder, ViewSamples};
use spdl_shard::{
    manifest::MetadataPlace,
    view::{open_view, save_view},
};
use spdl_types::SampleId;

use super::*;

/// Names that files about a dataset have in `.spdl` or beside the data, and those of other programs.
const NAMES: [&str; 16] = [
    "a.tar.idx",
    "a.tar.idx.new",
    "sub/b.tar.idx",
    "files-000000.idx",
    "shard-000000.tar.idx",
    "shard-000000.tar.new",
    "shard-000000.tar.new.idx",
    "shard-000001.tar",
    "shard-000001.tar.idx",
    "manifest.spdl",
    "unfinished.spdl",
    "view-0123456789abcdef0123456789abcdef.spdl",
    "parts/part-0-of-1.json",
    "parts/shard-000000.tar.json",
    "a.tar#1",
    "new/shard-000000.tar",
];

#[derive(Clone, Copy, Debug)]
enum Command {
    Index(Overwrite),
    /// One that fails at its last shard.
    IndexOfDamaged(Overwrite),
    IndexBeside,
    Pack(Overwrite),
}

const COMMANDS: [Command; 7] = [
    Command::Index(Overwrite::Refuse),
    Command::Index(Overwrite::Replace),
    Command::IndexOfDamaged(Overwrite::Refuse),
    Command::IndexOfDamaged(Overwrite::Replace),
    Command::IndexBeside,
    Command::Pack(Overwrite::Refuse),
    Command::Pack(Overwrite::Replace),
];

/// Moves the files about the dataset beside the data, unless another file is there.
fn moved_beside(folder: &Path) {
    let hidden = folder.join(".spdl");
    for name in files(&hidden).into_keys().filter(|name| !folder.join(name).exists()) {
        fs::create_dir_all(folder.join(&name).parent().unwrap()).unwrap();
        fs::rename(hidden.join(&name), folder.join(&name)).unwrap();
    }
    fs::remove_dir_all(hidden).unwrap();
}

async fn run(command: Command, folder: &Path, source: &Path) {
    let index = |overwrite| IndexOptions { overwrite, ..IndexOptions::default() };
    match command {
        Command::Index(overwrite) => drop(indexed(folder, &index(overwrite)).await),
        Command::IndexOfDamaged(overwrite) => {
            write(folder.join("z.tar"), "no tar");
            indexed(folder, &index(overwrite)).await.unwrap_err();
            fs::remove_file(folder.join("z.tar")).unwrap();
        }
        Command::IndexBeside => {
            let is_first = !folder.join("manifest.spdl").exists() && !folder.join(".spdl/manifest.spdl").exists();
            if is_first && indexed(folder, &index(Overwrite::Refuse)).await.is_ok() {
                moved_beside(folder);
            }
        }
        Command::Pack(overwrite) => {
            let source = PackSource::ImageFolder(source.to_owned());
            let options = PackOptions { shard_records: Some(4), overwrite, ..PackOptions::new(source) };
            drop(packed(&options, folder).await);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_command_overwrites_or_removes_a_file_of_others(
        there in subsequence(NAMES.to_vec(), 0..=NAMES.len()),
        commands in prop::collection::vec(select(COMMANDS.to_vec()), 1..5),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (set, source) = (folder.path().join("set"), folder.path().join("in"));
        image_folder(&source, 3);
        let data = [("a.tar", tar(&[("1.jpg", b"one")])), ("sub/b.tar", tar(&[("2.jpg", b"two")]))];
        let data = data.map(|(name, bytes)| (name.to_owned(), bytes));
        let of_others = there.iter().map(|name| ((*name).to_owned(), format!("{name} of others").into_bytes()));
        let before: BTreeMap<_, _> = data.into_iter().chain(of_others).collect();
        before.iter().for_each(|(name, bytes)| write(set.join(name), bytes));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for command in &commands {
            runtime.block_on(run(*command, &set, &source));
            let after = files(&set);
            for (name, bytes) in &before {
                prop_assert!(after.get(name) == Some(bytes), "`{name}` is another one, or gone");
            }
        }
    }
}

#[tokio::test]
async fn files_about_a_dataset_are_read_beside_its_shards_and_leave_when_it_is_indexed_again() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path();
    write(set.join("a.tar"), tar(&[("1.jpg", b"one"), ("2.jpg", b"two")]));
    write(set.join("sub/b.tar"), tar(&[("3.jpg", b"three")]));
    let made = indexed(set, &IndexOptions::default()).await.unwrap();
    let mut kept = SampleSetBuilder::default();
    [0, 2].into_iter().for_each(|sample| kept.keep(SampleId(sample)).unwrap());
    let kept = ViewSamples::from(kept.finish(3).unwrap());
    let manifest = at(set).manifest().await.unwrap();
    save_view(&at(set), &manifest, &kept).await.unwrap();
    moved_beside(set);
    write(set.join("of-others.tar.idx"), "of others");
    let view = format!("view-{}.spdl", kept.fingerprint());
    let old = [".spdl", "a.tar", "a.tar.idx", "manifest.spdl", "of-others.tar.idx", "sub", &view];
    assert_eq!(names(set), old[1..]);

    let manifest = at(set).manifest().await.unwrap();
    assert_eq!((manifest.place(), manifest.fingerprint()), (MetadataPlace::Beside, made.fingerprint));
    assert_eq!(verified(set).await.faults, []);
    assert_eq!(open_view(&at(set), &manifest, kept.fingerprint()).await.unwrap(), kept);
    let refused = indexed(set, &IndexOptions::default()).await.unwrap_err();
    assert!(matches!(refused, DatasetError::InUse { .. }), "{refused}");

    let again = IndexOptions { overwrite: Overwrite::Replace, ..IndexOptions::default() };
    assert_eq!(indexed(set, &again).await.unwrap().fingerprint, made.fingerprint);
    assert_eq!(names(set), [".spdl", "a.tar", "of-others.tar.idx", "sub"]);
    assert_eq!(names(&set.join("sub")), ["b.tar"]);
    assert_eq!(verified(set).await.faults, []);
    // What has the old manifest open goes on.
    assert_eq!(at(set).index(&manifest.shard(1)).await.unwrap().record_count(), 1);
    let manifest = at(set).manifest().await.unwrap();
    assert_eq!(manifest.place(), MetadataPlace::Hidden);
    assert_eq!(open_view(&at(set), &manifest, kept.fingerprint()).await.unwrap(), kept);
}

#[tokio::test]
async fn a_pack_that_replaces_removes_only_what_a_pack_has_written() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("set");
    image_folder(&folder.path().join("in"), 3);
    write(set.join("theirs.tar"), tar(&[("1.jpg", b"one")]));
    indexed(&set, &IndexOptions::default()).await.unwrap();
    let source = PackSource::ImageFolder(folder.path().join("in"));
    let options = PackOptions { overwrite: Overwrite::Replace, ..PackOptions::new(source) };
    packed(&options, &set).await.unwrap();
    assert_eq!(names(&set), [".spdl", "shard-000000.tar", "theirs.tar"]);

    // A shard of somebody's under a name that a pack gives.
    fs::remove_dir_all(set.join(".spdl")).unwrap();
    write(set.join("shard-000000.tar"), "theirs");
    let error = packed(&options, &set).await.unwrap_err();
    assert!(error.to_string().ends_with("shard-000000.tar` is in the way: no dataset in the folder has it"), "{error}");
    assert!(error.hint().unwrap().contains("move the file away"));
    assert_eq!(names(&set), ["shard-000000.tar", "theirs.tar"]);
}
