use spdl_types::mix::{GAMMA, mix};

use super::{
    super::{
        conformance,
        tables::{JOBS, META, SESSIONS},
    },
    *,
};

fn database(directory: &Path) -> PathBuf {
    directory.join("coordinator.redb")
}

/// Creates a state with a record in each table.
fn used(directory: &Path) -> Durable {
    let mut state = EmbeddedState::open(directory).unwrap();
    state.apply(&conformance::some_changes()).unwrap();
    state.load().unwrap()
}

fn refusal(directory: &Path) -> StateStoreError {
    EmbeddedState::open(directory).err().expect("it is refused")
}

#[test]
fn state_in_a_file_conforms() {
    let directories: std::cell::RefCell<Vec<tempfile::TempDir>> = Default::default();
    conformance::run(|state: Option<EmbeddedState>| {
        if state.is_none() {
            directories.borrow_mut().push(tempfile::tempdir().unwrap());
        }
        drop(state);
        EmbeddedState::open(directories.borrow().last().unwrap().path()).unwrap()
    });
}

#[test]
fn a_second_coordinator_on_one_directory_is_refused_until_the_first_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let first = EmbeddedState::open(directory.path()).unwrap();
    let error = refusal(directory.path());
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(first);
    EmbeddedState::open(directory.path()).unwrap();
}

#[test]
fn another_format_is_refused_with_both_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let state = EmbeddedState::open(directory.path()).unwrap();
    let transaction = state.database.as_ref().unwrap().begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("format", FORMAT + 1).unwrap();
    transaction.commit().unwrap();
    drop(state);
    let error = refusal(directory.path()).to_string();
    assert!(error.contains("has format 3; this program reads format 2"), "{error}");
}

#[test]
fn a_state_written_before_there_were_runs_is_read_and_its_sessions_are_of_the_run_of_the_jobs_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut state = EmbeddedState::open(directory.path()).unwrap();
    let job = spdl_control::coordinator::testing::job("j");
    let record = spdl_control::coordinator::JobRecord {
        fingerprint: job.fingerprint(),
        max_bad_fraction_bits: job.max_bad_fraction.to_bits(),
        failed: None,
        job: job.into(),
    };
    state.apply(&[Change::PutJob(record)]).unwrap();
    let transaction = state.database.as_ref().unwrap().begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("format", 1).unwrap();
    transaction.open_table(SESSIONS).unwrap().insert(7, conformance::SESSION_OF_FORMAT_1.as_bytes()).unwrap();
    transaction.commit().unwrap();
    drop(state);
    let state = EmbeddedState::open(directory.path()).unwrap();
    assert_eq!(state.format().unwrap(), Some(FORMAT));
    conformance::goes_on_from_format_1(state.load().unwrap());
}

#[test]
fn a_file_that_is_no_state_or_is_empty_is_refused_and_not_changed() {
    for content in [b"something else".as_slice(), b"", &[0; 8192]] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(database(directory.path()), content).unwrap();
        let error = refusal(directory.path());
        assert!(error.to_string().contains("coordinator.redb`: the database is damaged"), "{error}");
        assert_eq!(fs::read(database(directory.path())).unwrap(), content);
    }
}

#[test]
fn a_record_that_does_not_read_back_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let state = EmbeddedState::open(directory.path()).unwrap();
    let transaction = state.database.as_ref().unwrap().begin_write().unwrap();
    transaction.open_table(JOBS).unwrap().insert("x", b"{".as_slice()).unwrap();
    transaction.commit().unwrap();
    let error = state.load().unwrap_err().to_string();
    assert!(error.contains("job `x` is damaged"), "{error}");
}

/// A sequence of numbers that depends only on a seed (SplitMix64).
fn numbers(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed = seed.wrapping_add(GAMMA);
        (mix(seed) % below as u64) as usize
    }
}

#[test]
fn a_state_with_flipped_bytes_is_refused_by_name_left_as_it_is_or_reads_back_whole() {
    let directory = tempfile::tempdir().unwrap();
    let durable = used(directory.path());
    let whole = fs::read(database(directory.path())).unwrap();
    // The used pages are near the beginning; most of the file is spare room.
    let in_use = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let seed = std::process::id().into();
    let (mut below, mut refused) = (numbers(seed), 0);
    for round in 0..60 {
        let mut bytes = whole.clone();
        let flips = if round % 2 == 0 { 30 } else { 1 };
        (0..flips).for_each(|_| bytes[below(in_use)] ^= 1 << below(8));
        fs::write(database(directory.path()), &bytes).unwrap();
        match EmbeddedState::open(directory.path()) {
            Ok(state) => assert_eq!(state.load().unwrap(), durable, "seed {seed}, round {round}"),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("coordinator.redb"), "{error}");
                assert!(!error.to_string().contains("called `"), "no line of code: {error}");
                assert_eq!(fs::read(database(directory.path())).unwrap(), bytes, "seed {seed}, round {round}");
            }
        }
    }
    assert!(refused > 20, "seed {seed}: {refused} of 60 were refused");
}

#[test]
fn a_folder_that_was_in_use_and_has_no_database_is_no_new_cluster() {
    let directory = tempfile::tempdir().unwrap();
    used(directory.path());
    fs::remove_file(database(directory.path())).unwrap();
    let error = refusal(directory.path());
    assert!(matches!(error, StateStoreError::Lost { .. }), "{error}");
}

#[test]
fn what_was_lost_comes_back_from_the_backup_and_no_session_id_is_given_again() {
    let directory = tempfile::tempdir().unwrap();
    let durable = used(directory.path());
    fs::write(database(directory.path()), b"damaged").unwrap();
    let dump = Dump::read(&directory.path().join("backup.jsonl")).unwrap();
    assert_eq!(dump.durable, durable);
    let aside = EmbeddedState::replace(directory.path(), &dump.continued()).unwrap().expect("there was one");
    assert_eq!(fs::read(aside).unwrap(), b"damaged");
    let state = EmbeddedState::open(directory.path()).unwrap().load().unwrap();
    assert_eq!(state, Durable { last_session: state.last_session, ..durable.clone() });
    assert!(state.last_session > durable.last_session);
}

#[test]
fn a_plain_file_that_is_cut_off_or_changed_is_refused_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    used(directory.path());
    let whole = fs::read_to_string(directory.path().join("backup.jsonl")).unwrap();
    let file = directory.path().join("mine.jsonl");
    let cut = whole.trim_end().rsplit_once('\n').unwrap().0;
    for (text, expected) in [
        (String::new(), "line 1: it is empty"),
        ("{}\n".to_owned(), "line 1: it does not begin as a state file does"),
        (whole.replace("\"spdl_state\":1", "\"spdl_state\":2"), "line 1: it has version 2"),
        (cut.to_owned(), "are there"),
        (whole.replace("\"seed\":17", "\"seed\":18"), "line 2: job `a`"),
    ] {
        fs::write(&file, text).unwrap();
        let error = Dump::read(&file).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("mine.jsonl"), "{expected}: {error}");
    }
}

#[test]
fn another_user_cannot_lock_the_folder() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let _state = EmbeddedState::open(directory.path()).unwrap();
    let mode = fs::metadata(directory.path().join("coordinator.lock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}
