//! A session that a client sends to a worker, or a coordinator to a client: all processing before the first data.

use spdl_control::messages::{Session, ToHome};
use spdl_job::{Job, JobFile};
use spdl_order::DatasetFacts;
use spdl_types::{Fingerprint, Position, SessionId};
use spdl_wire::codec;
use spdl_worker::decode::Decoder;

/// Checks that a session that passes its check can be laid out, stepped through and decoded for.
pub(crate) fn read(data: &[u8]) {
    let Ok(ToHome::Attach { session, rank, from, .. }) = codec::decode(data) else { return };
    if session.check(rank).is_err() {
        return;
    }
    let layout = session.layout();
    assert!(layout.slot_bytes() as u64 <= spdl_control::MAX_BATCH_BYTES, "{} bytes", layout.slot_bytes());
    assert!(layout.fixed_bytes() <= layout.slot_bytes());
    let batch = session.batches();
    for start in [from, session.start, Position::START] {
        let mut at = start;
        for _ in 0..4 {
            let Some(step) = batch.step(session.job.samples, at) else { break };
            assert!(step.from >= at || at.offset >= session.job.samples, "{step:?} goes back from {at}");
            assert!(step.next > step.from, "{step:?} gets nowhere");
            at = step.next;
        }
    }
    let decoder = Decoder::new(&session.job, ["cat", "dog"]).expect("a valid job and classes that differ");
    assert!(decoder.field_names().count() >= 1);
    let copy: Job = serde_json::from_slice(&serde_json::to_vec(&session.job).expect("a job is plain data"))
        .expect("what was written can be read");
    assert_eq!(copy.fingerprint(), session.job.fingerprint(), "the fingerprint survives");
}

/// Returns the job of the seeds.
pub(crate) fn job() -> Job {
    let facts = DatasetFacts::new(Fingerprint(7), 100, 10);
    let file = JobFile::parse(crate::texts::JOB, "job.toml").expect("the seed is a job file");
    file.freeze(&facts).expect("the seed is a job")
}

pub(crate) fn session() -> Session {
    Session { id: SessionId(1), job: job(), world: 2, global_batch: 8, start: Position::new(0, 8) }
}

pub(crate) fn attach() -> ToHome {
    ToHome::Attach {
        session: Box::new(session()),
        rank: 1,
        from: Position::new(0, 16),
        slots: 4,
        client: "c".into(),
        join_key: None,
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    codec::encode(&attach(), &mut bytes).expect("a seed can be written");
    vec![bytes]
}
