//! The state in a real etcd: the conformance suite, long values, and former leaders.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use spdl_control::{
    Role,
    coordinator::{JobRecord, RankRecord, SessionRecord, Successor},
    messages::StartReason,
};
use spdl_testkit::etcd::EtcdProcess;
use spdl_types::{NodeId, Position, SessionId};
use spdl_wire::certs::{ClusterCa, LEAF_VALIDITY};
use tokio::runtime::Runtime;

use super::{batch::PART_BYTES, *};
use crate::state::conformance;

const TIMEOUTS: Timeouts = Timeouts { answer: Duration::from_secs(1), commit: Duration::from_secs(2) };
const HOUR: Duration = Duration::from_secs(3_600);

/// Several clusters in one etcd, each under its own prefix.
struct Clusters {
    etcd: EtcdProcess,
    runtime: Runtime,
    next: AtomicU64,
}

impl Clusters {
    fn start() -> Option<Self> {
        Some(Self { etcd: EtcdProcess::start()?, runtime: Runtime::new().unwrap(), next: AtomicU64::new(0) })
    }

    fn gateway(&self) -> Arc<Gateway> {
        let members = [self.etcd.address.clone()];
        Arc::new(Gateway::new(&members, None, TIMEOUTS).unwrap())
    }

    fn fresh(&self) -> EtcdKeys {
        EtcdKeys::new(format!("test/{}", self.next.fetch_add(1, Ordering::Relaxed)))
    }

    /// Becomes the leader of a cluster in place of the current one, if any.
    fn lead(&self, keys: &EtcdKeys) -> EtcdState {
        let gateway = self.gateway();
        let key = keys.leader();
        self.runtime.block_on(async {
            if let Some(held) = gateway.read(&key).await.unwrap() {
                let theirs = Condition { key: key.clone(), created: held.create_revision };
                gateway.commit(&theirs, None, &[TxnOp::Delete { key: key.clone() }]).await.unwrap();
            }
            let put = TxnOp::Put { key: key.clone(), value: b"{}".to_vec(), lease: None };
            let made = gateway.commit(&Condition { key, created: 0 }, None, &[put]).await.unwrap();
            let Committed::Done { revision } = made else { panic!("{made:?}") };
            let deadline = LeaseDeadline::until(Instant::now() + HOUR);
            EtcdState::open(gateway, keys.clone(), revision, deadline, "etcd://test".into()).await.unwrap().0
        })
    }
}

fn session(id: u64, world: u32) -> SessionRecord {
    let rank = |rank| RankRecord {
        rank,
        nonce: u64::MAX - u64::from(rank),
        client: format!("process {rank} on a-host-with-a-name"),
        since_unix_s: 0,
        node: NodeId("0d0f4bd1-4f5f-4d4e-8f7e-0123456789ab".to_owned()),
        acknowledged: Position::new(1, u64::from(rank)),
        receipt: None,
        left: false,
    };
    SessionRecord {
        id: SessionId(id),
        job: "j".to_owned(),
        run: "j".to_owned(),
        world,
        global_batch: world,
        epochs: 1,
        start: Position::START,
        reason: StartReason::Beginning,
        launch: None,
        is_takeover: false,
        replaces: None,
        superseded_by: None,
        is_reset: false,
        is_outdated: false,
        ranks: (0..world).map(rank).map(Arc::new).collect(),
    }
}

#[test]
fn state_in_etcd_conforms() {
    let Some(clusters) = Clusters::start() else { return };
    let current = std::cell::RefCell::new(clusters.fresh());
    conformance::run(|state: Option<EtcdState>| {
        if state.is_none() {
            current.replace(clusters.fresh());
        }
        clusters.lead(&current.borrow())
    });
}

#[test]
fn a_session_too_long_for_one_request_is_kept_whole_and_leaves_nothing_behind() {
    let Some(clusters) = Clusters::start() else { return };
    let keys = clusters.fresh();
    let mut state = clusters.lead(&keys);
    let long = session(7, 10_000);
    assert!(serde_json::to_vec(&long).unwrap().len() > 2 * PART_BYTES);
    for _ in 0..2 {
        state.apply(&[Change::PutSession(long.clone())]).unwrap();
        assert_eq!(state.load().unwrap().sessions, std::slice::from_ref(&long));
    }
    let mut state = clusters.lead(&keys);
    let parts = keys.parts(&keys.session(7));
    let count = |state: &EtcdState| clusters.runtime.block_on(state.folder(&parts, LARGE_PAGE)).unwrap().len();
    assert!(count(&state) > 2);
    state.apply(&[Change::PutSession(session(7, 2))]).unwrap();
    assert_eq!(state.load().unwrap().sessions, [session(7, 2)]);
    assert_eq!(count(&state), 0);
    state.apply(&[Change::PutSession(long), Change::DeleteJob("j".to_owned())]).unwrap();
    assert_eq!(state.load().unwrap().sessions, []);
    assert_eq!(count(&state), 0);
}

#[test]
fn a_leader_that_is_killed_between_two_transactions_leaves_all_of_a_change_or_nothing() {
    let Some(clusters) = Clusters::start() else { return };
    let job = {
        let job = spdl_control::coordinator::testing::job("j");
        JobRecord {
            fingerprint: job.fingerprint(),
            max_bad_fraction_bits: job.max_bad_fraction.to_bits(),
            failed: None,
            job: job.into(),
        }
    };
    let before =
        Durable { jobs: vec![job.clone()], sessions: vec![session(1, 2)], bad_samples: Vec::new(), last_session: 1 };
    let successor = Successor { session: SessionId(2), rank: 0, client: "c".to_owned() };
    let superseded = SessionRecord { superseded_by: Some(successor), ..session(1, 2) };
    let bad = |sample| BadSampleRecord { job: "j".to_owned(), sample: SampleId(sample), named: None };
    // The new session is the last step of the first transaction; the mark on the old one is in the second.
    let bad_samples: Vec<BadSampleRecord> = (0..98).map(bad).collect();
    let mut changes: Vec<Change> = bad_samples.iter().cloned().map(Change::PutBadSample).collect();
    changes.extend([session(2, 4), superseded.clone()].map(Change::PutSession));
    let after =
        Durable { jobs: vec![job.clone()], sessions: vec![superseded, session(2, 4)], bad_samples, last_session: 2 };
    let mut seen = Vec::new();
    for killed_after in 0.. {
        let keys = clusters.fresh();
        let mut state = clusters.lead(&keys);
        state.apply(&[Change::PutJob(job.clone()), Change::PutSession(session(1, 2))]).unwrap();
        let transactions = state.transactions(&mut state.known.clone(), &changes);
        if killed_after > transactions.len() {
            break;
        }
        for steps in &transactions[..killed_after] {
            clusters.runtime.block_on(state.commit(steps)).unwrap();
        }
        let found = state.load().unwrap();
        assert!(found == before || found == after, "after {killed_after} of {}: {found:?}", transactions.len());
        let next = clusters.lead(&keys);
        assert_eq!(next.load().unwrap(), found, "after {killed_after}, for the next leader");
        let journal = clusters.runtime.block_on(next.gateway.read(&keys.journal())).unwrap();
        assert_eq!(journal, None, "after {killed_after} it is carried out");
        seen.push(found == after);
    }
    assert_eq!(seen, [false, true, true, true, true]);
}

#[test]
fn more_than_a_page_of_bad_samples_is_read_in_order() {
    let Some(clusters) = Clusters::start() else { return };
    let keys = clusters.fresh();
    let bad = |sample| BadSampleRecord { job: "j".to_owned(), sample: SampleId(sample), named: None };
    let samples: Vec<BadSampleRecord> = (0..2 * SMALL_PAGE as u64).map(bad).collect();
    let changes: Vec<Change> = samples.iter().rev().cloned().map(Change::PutBadSample).collect();
    clusters.lead(&keys).apply(&changes).unwrap();
    assert_eq!(clusters.lead(&keys).load().unwrap().bad_samples, samples);
}

#[test]
fn a_former_leader_writes_nothing_however_sure_of_itself_it_is() {
    let Some(clusters) = Clusters::start() else { return };
    let keys = clusters.fresh();
    let mut first = clusters.lead(&keys);
    first.apply(&[Change::PutSession(session(1, 1))]).unwrap();
    let second = clusters.lead(&keys);
    assert!(first.deadline.is_valid(), "by its clock it leads");
    let before = clusters.etcd.revision();
    for _ in 0..2 {
        let error = first.apply(&[Change::PutSession(session(2, 1)), Change::DeleteSession(SessionId(1))]);
        assert!(matches!(error, Err(StateStoreError::LeadershipLost { .. })), "{error:?}");
        assert!(!first.deadline.is_valid(), "it knows now");
    }
    assert_eq!(clusters.etcd.revision(), before);
    assert_eq!(second.load().unwrap().sessions, [session(1, 1)]);
}

#[test]
fn a_write_that_was_given_up_and_is_carried_out_late_comes_over_no_later_one() {
    let Some(clusters) = Clusters::start() else { return };
    let keys = clusters.fresh();
    let mut state = clusters.lead(&keys);
    state.apply(&[Change::PutSession(session(1, 1))]).unwrap();
    let steps = |state: &mut EtcdState, world| {
        let changes = [Change::PutSession(session(1, world))];
        state.transactions(&mut state.known.clone(), &changes).concat()
    };
    // A write that is on its way to etcd, but for which no task waits any more.
    let unchanged = Unchanged { key: keys.written(), written: state.written.take().unwrap() };
    let (condition, old) = (state.condition.clone(), steps(&mut state, 2));
    state.apply(&[Change::PutSession(session(1, 3))]).unwrap();
    let late = clusters.runtime.block_on(clusters.gateway().commit(&condition, Some(&unchanged), &old)).unwrap();
    assert!(matches!(late, Committed::Unmet { held: Some(_) }), "{late:?}");
    assert_eq!(state.load().unwrap().sessions, [session(1, 3)]);
    // A late write that arrives before the next one does no harm: the next one replaces it.
    let mark = TxnOp::Put { key: keys.written(), value: Vec::new(), lease: None };
    let early = [steps(&mut state, 4), vec![mark]].concat();
    let unchanged = Unchanged { key: keys.written(), written: state.written.unwrap() };
    let early = clusters.runtime.block_on(clusters.gateway().commit(&condition, Some(&unchanged), &early)).unwrap();
    assert!(matches!(early, Committed::Done { .. }), "{early:?}");
    state.apply(&[Change::PutSession(session(1, 5))]).unwrap();
    assert!(state.deadline.is_valid(), "it still leads");
    assert_eq!(state.load().unwrap().sessions, [session(1, 5)]);
}

#[test]
fn an_etcd_that_hangs_or_is_down_is_a_retryable_error() {
    let Some(mut clusters) = Clusters::start() else { return };
    let mut state = clusters.lead(&clusters.fresh());
    let change = [Change::PutSession(session(1, 1))];
    clusters.etcd.pause();
    let error = state.apply(&change).unwrap_err();
    assert!(error.is_retryable() && crate::error_text(&error).contains(&clusters.etcd.address), "{error:?}");
    clusters.etcd.go_on();
    state.apply(&change).unwrap();
    clusters.etcd.kill();
    assert!(state.apply(&change).unwrap_err().is_retryable());
    clusters.etcd.restart();
    state.apply(&change).unwrap();
    assert_eq!(state.load().unwrap().sessions, [session(1, 1)]);
}

#[test]
fn state_of_another_format_is_refused_with_both_numbers() {
    let Some(clusters) = Clusters::start() else { return };
    let keys = clusters.fresh();
    let mut state = clusters.lead(&keys);
    let put = TxnOp::Put { key: keys.format(), value: b"99".to_vec(), lease: None };
    clusters.runtime.block_on(state.commit(&[put])).unwrap();
    let again = clusters.runtime.block_on(state.check_format()).unwrap_err();
    assert!(matches!(again, StateStoreError::Format { actual: 99, expected: FORMAT, .. }), "{again:?}");
}

#[test]
fn a_state_written_before_there_were_runs_is_read_and_its_sessions_are_of_the_run_of_the_jobs_name() {
    let Some(clusters) = Clusters::start() else { return };
    let keys = clusters.fresh();
    let mut state = clusters.lead(&keys);
    let job = spdl_control::coordinator::testing::job("j");
    let max_bad_fraction_bits = job.max_bad_fraction.to_bits();
    let record = JobRecord { fingerprint: job.fingerprint(), max_bad_fraction_bits, failed: None, job: job.into() };
    state.apply(&[Change::PutJob(record)]).unwrap();
    let put = |key, value: &str| TxnOp::Put { key, value: value.as_bytes().to_vec(), lease: None };
    let old = [put(keys.format(), "1"), put(keys.session(7), conformance::SESSION_OF_FORMAT_1)];
    clusters.runtime.block_on(state.commit(&old)).unwrap();
    conformance::goes_on_from_format_1(clusters.lead(&keys).load().unwrap());
    let format = clusters.runtime.block_on(state.gateway.read(&keys.format())).unwrap().unwrap();
    assert_eq!(format.value, FORMAT.to_string().into_bytes());
}

#[test]
fn over_tls_both_sides_show_certificates_and_a_side_without_one_gets_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    let ca = ClusterCa::open_or_create(&folder.path().join("ca")).unwrap();
    ca.issue(Role::Coordinator, "etcd", &[], LEAF_VALIDITY).unwrap().write(&certs).unwrap();
    let Some(etcd) = EtcdProcess::start_with(Some(&certs)) else { return };
    let runtime = Runtime::new().unwrap();
    let members = [etcd.address.clone()];
    let gateway = |certs| Gateway::new(&members, certs, TIMEOUTS).unwrap();
    let condition = Condition { key: "a".to_owned(), created: 0 };
    let put = TxnOp::Put { key: "a".to_owned(), value: b"b".to_vec(), lease: None };
    let (with, without) = (gateway(Some(certs.as_path())), gateway(None));
    runtime.block_on(async {
        with.commit(&condition, None, &[put]).await.unwrap();
        assert_eq!(with.read("a").await.unwrap().unwrap().value, b"b");
        let error = without.read("a").await.unwrap_err();
        assert!(error.to_string().contains(&etcd.address), "{error}");
    });
    std::fs::remove_file(certs.join("key.pem")).unwrap();
    let error = Gateway::new(&members, Some(&certs), TIMEOUTS).unwrap_err();
    assert!(error.to_string().contains("key.pem"), "{error}");
}

#[test]
fn an_import_replaces_all_of_a_state_or_nothing_and_only_without_a_leader_and_with_force() {
    let Some(clusters) = Clusters::start() else { return };
    let keys = clusters.fresh();
    let record = |name: &str| {
        let job = spdl_control::coordinator::testing::job(name);
        let max_bad_fraction_bits = job.max_bad_fraction.to_bits();
        JobRecord { fingerprint: job.fingerprint(), max_bad_fraction_bits, failed: None, job: job.into() }
    };
    let bad = |sample| BadSampleRecord { job: "j".to_owned(), sample: SampleId(sample), named: None };
    let large = Durable {
        jobs: vec![record("j"), record("k")],
        sessions: vec![session(3, 2), session(7, 4)],
        bad_samples: (0..300).map(bad).collect(),
        last_session: 1_007,
    };
    let small = Durable { jobs: vec![record("k")], last_session: 12, ..Durable::default() };
    let import = |durable: &Durable, is_forced| {
        let name = "etcd://test".into();
        clusters.runtime.block_on(EtcdState::import(clusters.gateway(), keys.clone(), name, durable.clone(), is_forced))
    };
    let export = || clusters.runtime.block_on(EtcdState::export(clusters.gateway(), keys.clone(), "etcd://t".into()));
    import(&large, false).unwrap();
    assert_eq!(export().unwrap(), large);

    let error = import(&small, false).unwrap_err();
    assert_eq!(error.to_string(), "state `etcd://test` is not empty: it has 2 job(s) and 2 session(s)");
    assert!(error.hint().is_some_and(|hint| hint.contains("--force")));
    assert_eq!(export().unwrap(), large, "it is as it was");
    import(&small, true).unwrap();
    assert_eq!(export().unwrap(), Durable { last_session: 1_007, ..small.clone() }, "no id is given twice");

    // A state that cannot be read is replaced if the import is forced.
    let mut state = clusters.lead(&keys);
    let damage = TxnOp::Put { key: keys.job("k"), value: b"{".to_vec(), lease: None };
    clusters.runtime.block_on(state.commit(&[damage])).unwrap();
    let error = import(&large, true).unwrap_err();
    assert_eq!(error.to_string(), "state `etcd://test` is in use: coordinator `another coordinator` leads");
    let resign = [TxnOp::Delete { key: keys.leader() }];
    clusters.runtime.block_on(state.commit(&resign)).unwrap();
    let error = import(&large, false).unwrap_err();
    assert!(matches!(error, StateStoreError::Damaged { .. }), "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("import --force --state etcd://test")));
    import(&large, true).unwrap();
    assert_eq!(export().unwrap(), large);
    assert_eq!(clusters.lead(&keys).load().unwrap(), large, "and a coordinator leads with it");
}
