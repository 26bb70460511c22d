use std::{
    io::{BufRead, BufReader},
    os::unix::process::parent_id,
    path::Path,
    process::{Child, Command, Stdio},
    slice,
};

use super::{
    file::{file_name, marker_name, temporary_name},
    *,
};

const PLACE: &[Range<u64>] = slice::from_ref(&(5..105));
/// Bytes of the file of a block of these tests.
const FILE_BYTES: u64 = 116;
const CHILD: &str = "SPDL_TEST_DISK_CACHE";

const fn of(dataset: u128, block: u32) -> BlockKey {
    BlockKey { dataset: Fingerprint(dataset), block }
}

const fn key(block: u32) -> BlockKey {
    of(0xabc, block)
}

fn pieces(fill: u8) -> Pieces {
    Pieces::new(vec![(5, Bytes::from(vec![fill; 60])), (65, Bytes::from(vec![fill; 40]))])
}

fn open_with(directory: &Path, bytes: u64) -> DiskCache {
    DiskCache::open(&DiskBudget { directory: directory.to_owned(), bytes }).unwrap()
}

fn open(directory: &Path) -> DiskCache {
    open_with(directory, 250)
}

fn write(cache: &DiskCache, key: BlockKey) {
    cache.write(&key, PLACE, &pieces(key.block as u8), cache.discards(&key));
}

fn has(cache: &DiskCache, key: BlockKey) -> bool {
    let read = cache.read(&key, PLACE);
    assert!(read.iter().all(|read| read.slice(5..105).unwrap() == vec![key.block as u8; 100]));
    read.is_some()
}

/// Returns the numbers of the blocks of a dataset that are there.
fn there(cache: &DiskCache, dataset: u128) -> Vec<u32> {
    (0..20).filter(|block| has(cache, of(dataset, *block))).collect()
}

/// Returns the names of the files of blocks, and of those that are being written.
fn block_files(directory: &Path) -> Vec<String> {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    files.filter(|name| name.starts_with("blk-")).collect()
}

#[test]
fn a_new_process_finds_what_the_last_one_wrote_within_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let stranger = directory.path().join("blk-notours");
    fs::write(&stranger, vec![0; 1000]).unwrap();
    let leftover = directory.path().join(temporary_name(&key(9), 7, 0));
    let being_written = directory.path().join(temporary_name(&key(8), 7, 1));
    [&leftover, &being_written].into_iter().for_each(|file| fs::write(file, b"half").unwrap());
    let writer = fs::File::open(&being_written).unwrap();
    writer.try_lock().unwrap();
    let cache = open(directory.path());
    assert!(!leftover.exists(), "what a dead process left half written goes");
    assert!(being_written.exists(), "another process writes it");
    assert_eq!(cache.bytes(), (4, 250));
    fs::remove_file(being_written).unwrap();
    drop(cache);
    let cache = open(directory.path());
    (0..3).for_each(|block| write(&cache, key(block)));
    assert_eq!(there(&cache, 0xabc), [0, 1], "the third has no room");
    drop(cache);
    let cache = open(directory.path());
    assert_eq!(cache.bytes(), (2 * FILE_BYTES, 250));
    assert_eq!(there(&cache, 0xabc), [0, 1]);
    assert!(stranger.exists());
    assert_eq!(cache.faults(), 0);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4, "two blocks, a stranger's file and the lock");
}

#[test]
fn what_came_first_of_a_dataset_stays_datasets_in_use_share_and_of_one_that_nobody_uses_it_goes() {
    let directory = tempfile::tempdir().unwrap();
    let [one, other] = [(); 2].map(|()| open_with(directory.path(), 4 * FILE_BYTES));
    one.enter(Fingerprint(1));
    (0..9).for_each(|block| write(&one, of(1, block)));
    assert_eq!(there(&one, 1), [0, 1, 2, 3]);
    other.enter(Fingerprint(2));
    (0..9).for_each(|block| write(&other, of(2, block)));
    (4..9).for_each(|block| write(&one, of(1, block)));
    assert_eq!([1, 2].map(|dataset| there(&other, dataset)), [[0, 1], [0, 1]], "both are in use, in two processes");
    drop(other);
    one.leave(Fingerprint(1));
    let third = open_with(directory.path(), 4 * FILE_BYTES);
    third.enter(Fingerprint(3));
    (0..9).for_each(|block| write(&third, of(3, block)));
    assert_eq!([1, 2, 3].map(|dataset| there(&third, dataset)), [vec![], vec![], vec![0, 1, 2, 3]]);
    third.folder.recount().unwrap();
    let markers: Vec<_> =
        (1..=3).filter(|dataset| directory.path().join(marker_name(Fingerprint(*dataset))).exists()).collect();
    assert_eq!(markers, [3], "no marker stays for what is gone");
}

#[test]
fn a_smaller_budget_evicts_what_nobody_uses_when_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open_with(directory.path(), 9 * FILE_BYTES);
    cache.enter(Fingerprint(1));
    (0..3).for_each(|block| write(&cache, of(1, block)));
    cache.leave(Fingerprint(1));
    cache.enter(Fingerprint(2));
    (0..3).for_each(|block| write(&cache, of(2, block)));
    cache.leave(Fingerprint(2));
    assert_eq!(cache.bytes().0, 6 * FILE_BYTES);
    assert!(directory.path().join(marker_name(Fingerprint(1))).exists());
    let smaller = open_with(directory.path(), 4 * FILE_BYTES);
    assert_eq!([1, 2].map(|dataset| there(&smaller, dataset)), [vec![0], vec![0, 1, 2]]);
    assert_eq!(smaller.bytes(), (4 * FILE_BYTES, 4 * FILE_BYTES));
}

#[test]
fn a_block_of_several_parts_comes_back_as_these_parts_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    let parts = [5..65, 1000..1040];
    let pieces = Pieces::new(vec![(5, Bytes::from_static(&[1; 60])), (1000, Bytes::from_static(&[2; 40]))]);
    cache.write(&key(1), &parts, &pieces, 0);
    let read = cache.read(&key(1), &parts).unwrap();
    assert_eq!((read.slice(5..65).unwrap(), read.slice(1000..1040).unwrap()), (vec![1; 60].into(), vec![2; 40].into()));
    assert!(read.slice(60..70).is_none());
    assert!(cache.read(&key(1), &[5..65, 1001..1041]).is_none(), "the same bytes of other parts");
}

#[test]
fn writers_at_the_same_time_stay_within_the_budget_together() {
    let directory = tempfile::tempdir().unwrap();
    let caches = [(); 2].map(|()| open(directory.path()));
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let cache = &caches[writer % 2];
            scope.spawn(move || {
                for block in (0..100).filter(|block| block % 4 == writer as u32) {
                    write(cache, key(block));
                    assert!(cache.bytes().0 <= 250, "{:?}", cache.bytes());
                    cache.discard(&key(block));
                }
            });
        }
    });
    assert_eq!(caches.each_ref().map(DiskCache::bytes), [(0, 250); 2]);
    write(&caches[0], key(1_000));
    assert!(has(&caches[1], key(1_000)), "and the next block finds room");
}

/// A process that is killed at the end, however the test ends.
struct KilledChild(Child);

impl Drop for KilledChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs in a process of its own: writes blocks until it is killed, or until the test is gone.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let cache = open_with(Path::new(&directory), 50 * FILE_BYTES);
    cache.enter(Fingerprint(0xabc));
    println!("\nwriting");
    let test = parent_id();
    for block in (0..100).cycle().take_while(|_| parent_id() == test) {
        write(&cache, key(block));
        assert!(cache.bytes().0 <= 50 * FILE_BYTES, "{:?}", cache.bytes());
        if block % 2 == 0 {
            cache.discard(&key(block));
        }
    }
}

#[test]
fn processes_share_a_folder_and_one_that_is_killed_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        let name = "fetch::disk::tests::child_that_writes_until_it_is_killed";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "writing"), "the child writes");
        KilledChild(child)
    };
    let here = open_with(directory.path(), 50 * FILE_BYTES);
    let mut lasting = start();
    for round in 0..10 {
        let killed = start();
        let written = (0..100).filter(|block| has(&here, key(*block))).count();
        drop(killed);
        assert_eq!(here.faults(), 0, "in round {round}, {written} blocks were read");
    }
    assert!(lasting.0.try_wait().unwrap().is_none(), "it goes on");
    drop(lasting);
    let again = open_with(directory.path(), 50 * FILE_BYTES);
    let files = block_files(directory.path());
    assert!(files.iter().all(|name| !name.ends_with(".tmp")), "{files:?}");
    assert_eq!(again.bytes().0, files.len() as u64 * FILE_BYTES);
    assert_eq!((0..100).filter(|block| has(&again, key(*block))).count(), files.len());
    assert_eq!(again.faults(), 0);
}

#[test]
fn what_a_crash_or_another_version_left_is_no_block() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(file_name(&key(1)));
    type Damage = fn(&mut Vec<u8>);
    let garbage: [(&str, Damage); 4] = [
        ("short", |file| file.truncate(5)),
        ("longer", |file| file.push(0)),
        ("zeros, as a power cut leaves them", |file| file.fill(0)),
        ("one bit", |file| file[50] ^= 4),
    ];
    for (what, hurt) in garbage {
        let cache = open(directory.path());
        write(&cache, key(1));
        let mut file = fs::read(&path).unwrap();
        hurt(&mut file);
        fs::write(&path, file).unwrap();
        assert!(cache.read(&key(1), PLACE).is_none(), "{what}");
        assert!(!path.exists(), "{what}");
        assert_eq!(cache.faults(), 1, "{what}");
    }
    let cache = open(directory.path());
    write(&cache, key(1));
    let elsewhere = slice::from_ref(&(6..106));
    assert!(cache.read(&key(1), elsewhere).is_none(), "the same bytes at another place are another block");
    write(&cache, key(1));
    let other = of(0xdef, 1);
    fs::copy(&path, directory.path().join(file_name(&other))).unwrap();
    drop(cache);
    assert!(open(directory.path()).read(&other, PLACE).is_none(), "and so are those of another version");
    assert!(has(&open(directory.path()), key(1)));
}

#[test]
fn a_block_that_was_found_wrong_does_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    cache.write(&key(1), PLACE, &pieces(1), 0);
    cache.discard(&key(1));
    cache.write(&key(1), PLACE, &pieces(1), 0);
    assert!(!has(&cache, key(1)), "fetched before it was found wrong");
    assert_eq!((cache.bytes().0, cache.faults()), (0, 0));
    write(&cache, key(1));
    assert!(has(&cache, key(1)));
}

#[test]
fn a_folder_that_vanishes_comes_back_and_one_that_cannot_be_is_done_without() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("cache");
    let cache = open(&folder);
    fs::remove_dir_all(&folder).unwrap();
    write(&cache, key(1));
    assert!(has(&cache, key(1)));
    assert_eq!(cache.bytes().0, FILE_BYTES);
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, b"a file in its place").unwrap();
    assert!(cache.read(&key(1), PLACE).is_none());
    write(&cache, key(2));
    assert!(cache.pause.lock().is_on() && cache.faults() > 0);
    fs::remove_file(&folder).unwrap();
    write(&cache, key(2));
    assert!(!folder.exists(), "nothing is tried until the pause is over");
    *cache.pause.lock() = WritePause::default();
    write(&cache, key(2));
    assert!(has(&cache, key(2)));
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(DiskCache::open(&DiskBudget { directory: file, bytes: 1 }).is_none());
}

#[test]
fn what_other_programs_deleted_is_room_again() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path());
    (0..2).for_each(|block| write(&cache, key(block)));
    fs::remove_file(directory.path().join(file_name(&key(0)))).unwrap();
    drop(cache);
    let cache = open(directory.path());
    write(&cache, key(2));
    assert_eq!(there(&cache, 0xabc), [1, 2]);
}

#[test]
fn on_a_full_disk_half_of_the_blocks_make_room() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open_with(directory.path(), 9 * FILE_BYTES);
    cache.enter(Fingerprint(0xabc));
    (0..8).for_each(|block| write(&cache, key(block)));
    cache.folder.halve().unwrap();
    assert_eq!(there(&cache, 0xabc), [0, 1, 2, 3]);
    assert_eq!(cache.bytes().0, 4 * FILE_BYTES);
}
