//! Converts changes to transactions that etcd accepts, as plain data.
//!
//! An etcd transaction has at most 128 steps and 1.5 MiB, and no key twice. Changes are packed, in order and each of
//! them whole, into as few transactions as that allows. A value that is too long for one transaction is written in
//! parts, which are not visible until the last transaction names them.
//!
//! Changes depend on each other, for example a session and the mark on the session that it supersedes. If one
//! transaction does not hold all of them, all changes are first written together at a key of their own, the journal,
//! which is deleted once they are in place. A reader that finds a journal applies it, so it sees either all of the
//! changes or none.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{
    gateway::TxnOp,
    keys::{EtcdKeys, end_of},
};
use spdl_control::coordinator::Change;

/// The largest number of steps in a transaction.
const MAX_OPS: usize = 100;
/// The largest number of bytes of keys and values in a transaction.
const MAX_BYTES: usize = 1 << 20;
/// Longer values are written in parts of this length.
pub(super) const PART_BYTES: usize = 512 << 10;
/// The prefix of the value at the key of a value in parts; JSON never begins with it.
const SPLIT: &str = "split:";

/// The facts about the stored state that are known without a request.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownKeys {
    /// The job of each session.
    pub(super) sessions: BTreeMap<u64, String>,
    pub(super) last_session: u64,
    /// Keys whose values are stored in parts.
    pub(super) split: BTreeSet<String>,
    /// Whether a journal may exist.
    pub(super) journal: bool,
}

/// How a value is stored at its key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EtcdValue<'a> {
    Whole(&'a [u8]),
    Parts { made: &'a str, count: usize },
}

/// Parses the value at a key; returns `None` if it names parts in an invalid way.
pub(super) fn stored(value: &[u8]) -> Option<EtcdValue<'_>> {
    let Some(text) = value.strip_prefix(SPLIT.as_bytes()) else { return Some(EtcdValue::Whole(value)) };
    let (made, count) = std::str::from_utf8(text).ok()?.split_once(':')?;
    Some(EtcdValue::Parts { made, count: count.parse().ok()? })
}

/// Packs changes into transactions.
pub(super) struct WriteBatch<'a> {
    keys: &'a EtcdKeys,
    known: &'a mut KnownKeys,
    /// Distinguishes the parts of different writes.
    made: String,
    number: usize,
    transactions: Vec<Vec<TxnOp>>,
    /// The number of transactions that change visible keys.
    visible: usize,
    /// The transaction that is being filled: the last step for each key.
    open: BTreeMap<String, TxnOp>,
    open_bytes: usize,
}

impl<'a> WriteBatch<'a> {
    /// Creates a batch; `made` must differ for each attempt to write.
    pub(super) const fn new(keys: &'a EtcdKeys, known: &'a mut KnownKeys, made: String) -> Self {
        Self {
            keys,
            known,
            made,
            number: 0,
            transactions: Vec::new(),
            visible: 0,
            open: BTreeMap::new(),
            open_bytes: 0,
        }
    }

    /// Returns the transactions, to be carried out in order. If only the first of them are carried out, a reader sees
    /// either all changes or none.
    pub(super) fn of(mut self, changes: &[Change]) -> Vec<Vec<TxnOp>> {
        for change in changes {
            self.add(change);
        }
        self.cut();
        if self.visible <= 1 && !self.known.journal {
            return self.transactions;
        }
        let in_place = std::mem::take(&mut self.transactions);
        let key = self.keys.journal();
        self.put(key.clone(), json(&changes), None);
        self.cut();
        self.transactions.extend(in_place);
        let parts = self.keys.parts(&key);
        self.known.split.remove(&key);
        self.transactions.push(vec![TxnOp::Delete { key }, TxnOp::DeleteRange { end: end_of(&parts), key: parts }]);
        self.transactions
    }

    fn add(&mut self, change: &Change) {
        match change {
            Change::PutJob(record) => self.put(self.keys.job(&record.job.name), json(record), None),
            Change::PutSession(record) => {
                let last = (record.id.0 > self.known.last_session).then_some(record.id.0);
                self.known.last_session = self.known.last_session.max(record.id.0);
                self.known.sessions.insert(record.id.0, record.job.clone());
                let last = last.map(|last| put(self.keys.last_session(), last.to_string().into_bytes()));
                self.put(self.keys.session(record.id.0), json(record), last);
            }
            Change::PutBadSample(record) => {
                let value = record.named.as_ref().map(json).unwrap_or_default();
                self.put(self.keys.bad_sample(&record.job, record.sample.0), value, None);
            }
            Change::DeleteSession(id) => {
                self.known.sessions.remove(&id.0);
                let steps = self.deletion(self.keys.session(id.0));
                self.together(steps);
            }
            Change::DeleteJob(name) => self.delete_job(name),
        }
    }

    fn delete_job(&mut self, name: &str) {
        let mut steps = self.deletion(self.keys.job(name));
        let bad = self.keys.bad_samples_of(name);
        steps.push(TxnOp::DeleteRange { end: end_of(&bad), key: bad });
        for (id, _) in self.known.sessions.extract_if(.., |_, job| job == name).collect::<Vec<_>>() {
            steps.extend(self.deletion(self.keys.session(id)));
        }
        // No other step in the same transaction may touch the deleted ranges.
        self.cut();
        // A job may have more sessions than a transaction can have steps.
        steps.into_iter().for_each(|step| self.together(vec![step]));
        self.cut();
    }

    /// Returns the steps that delete a key and its parts.
    fn deletion(&mut self, key: String) -> Vec<TxnOp> {
        let parts = self.known.split.remove(&key).then(|| self.keys.parts(&key));
        let parts = parts.map(|parts| TxnOp::DeleteRange { end: end_of(&parts), key: parts });
        std::iter::once(TxnOp::Delete { key }).chain(parts).collect()
    }

    /// Puts a value, together with the step `with`.
    fn put(&mut self, key: String, value: Vec<u8>, with: Option<TxnOp>) {
        if value.len() > PART_BYTES {
            return self.put_in_parts(key, &value, with);
        }
        let parts = self.known.split.remove(&key).then(|| self.keys.parts(&key));
        let parts = parts.map(|parts| TxnOp::DeleteRange { end: end_of(&parts), key: parts });
        self.together([Some(put(key, value)), with, parts].into_iter().flatten().collect());
    }

    fn put_in_parts(&mut self, key: String, value: &[u8], with: Option<TxnOp>) {
        self.cut();
        let made = format!("{}-{}", self.made, self.number);
        self.number += 1;
        let parts = value.chunks(PART_BYTES);
        let count = parts.len();
        for (number, part) in parts.enumerate() {
            self.transactions.push(vec![put(self.keys.part(&key, &made, number), part.to_vec())]);
        }
        // All other parts of this key are from earlier values, or from an attempt that did not finish.
        let (all, own) = (self.keys.parts(&key), self.keys.parts_made(&key, &made));
        let before = TxnOp::DeleteRange { key: all.clone(), end: own.clone() };
        let after = TxnOp::DeleteRange { key: end_of(&own), end: end_of(&all) };
        let head = put(key.clone(), format!("{SPLIT}{made}:{count}").into_bytes());
        self.together([Some(head), with, Some(before), Some(after)].into_iter().flatten().collect());
        self.cut();
        self.known.split.insert(key);
    }

    /// Adds steps that must be in the same transaction.
    fn together(&mut self, steps: Vec<TxnOp>) {
        let bytes: usize = steps.iter().map(TxnOp::bytes).sum();
        if self.open.len() + steps.len() > MAX_OPS || self.open_bytes + bytes > MAX_BYTES {
            self.cut();
        }
        self.open_bytes += bytes;
        for step in steps {
            self.open.insert(step.key().to_owned(), step);
        }
    }

    /// Ends the transaction that is being filled.
    fn cut(&mut self) {
        let steps = std::mem::take(&mut self.open);
        self.open_bytes = 0;
        if !steps.is_empty() {
            self.visible += 1;
            self.transactions.push(steps.into_values().collect());
        }
    }
}

impl TxnOp {
    fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } | Self::DeleteRange { key, .. } => key,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key } => key.len(),
            Self::DeleteRange { key, end } => key.len() + end.len(),
        }
    }
}

const fn put(key: String, value: Vec<u8>) -> TxnOp {
    TxnOp::Put { key, value, lease: None }
}

fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("plain data serialises")
}

#[cfg(test)]
mod tests {
    use spdl_control::coordinator::{BadSampleRecord, JobRecord, testing};
    use spdl_types::{SampleId, SessionId};

    use super::*;

    fn keys() -> EtcdKeys {
        EtcdKeys::new("p".to_owned())
    }

    fn pack(known: &mut KnownKeys, changes: &[Change]) -> Vec<Vec<TxnOp>> {
        WriteBatch::new(&keys(), known, "m".to_owned()).of(changes)
    }

    fn bad(sample: u64) -> Change {
        Change::PutBadSample(BadSampleRecord { job: "j".to_owned(), sample: SampleId(sample), named: None })
    }

    fn job(name: &str, failed: Option<String>) -> Change {
        let job = testing::job(name);
        Change::PutJob(JobRecord { fingerprint: job.fingerprint(), max_bad_fraction_bits: 0, failed, job: job.into() })
    }

    #[test]
    fn many_changes_are_as_few_transactions_as_etcd_takes_and_none_is_lost() {
        let changes: Vec<Change> = (0..1_000).map(bad).collect();
        let transactions = pack(&mut KnownKeys::default(), &changes);
        let (journal, in_place) = transactions.split_first().unwrap();
        let (deletion, in_place) = in_place.split_last().unwrap();
        assert_eq!((journal.len(), in_place.len(), deletion.len()), (1, 10, 2));
        assert!(in_place.iter().all(|steps| steps.len() <= MAX_OPS));
        assert_eq!(in_place.concat().len(), 1_000);
    }

    #[test]
    fn changes_that_one_transaction_does_not_hold_are_in_the_journal_before_and_until_they_are_in_their_places() {
        let changes: Vec<Change> = (0..MAX_OPS as u64 + 1).map(bad).collect();
        let mut known = KnownKeys::default();
        let transactions = pack(&mut known, &changes);
        assert_eq!(transactions.iter().map(Vec::len).collect::<Vec<_>>(), [1, MAX_OPS, 1, 2]);
        let [TxnOp::Put { key, value, .. }] = &transactions[0][..] else { panic!("{transactions:?}") };
        assert_eq!(key, "p/journal");
        assert_eq!(serde_json::from_slice::<Vec<Change>>(value).unwrap(), changes);
        assert!(matches!(&transactions[3][0], TxnOp::Delete { key } if key == "p/journal"), "{transactions:?}");
        let few = pack(&mut known, &changes[..3]);
        assert_eq!(few.len(), 1, "what one transaction holds is whole without a journal");
        let again = pack(&mut KnownKeys { journal: true, ..KnownKeys::default() }, &changes[..3]);
        assert_eq!(again.len(), 3, "a journal that may be there is replaced: its changes are older");
    }

    #[test]
    fn of_steps_on_one_key_a_transaction_has_the_last() {
        let changes = [bad(1), bad(1), Change::DeleteSession(SessionId(3)), Change::DeleteSession(SessionId(3))];
        let transactions = pack(&mut KnownKeys::default(), &changes);
        assert_eq!(transactions.concat().len(), 2);
    }

    #[test]
    fn a_job_goes_alone_with_all_that_is_its_own() {
        let sessions = [(3, "j".to_owned()), (4, "k".to_owned()), (5, "j".to_owned())].into();
        let mut known = KnownKeys { sessions, ..KnownKeys::default() };
        let transactions = pack(&mut known, &[bad(1), Change::DeleteJob("j".to_owned()), bad(2)]);
        assert_eq!(
            transactions.iter().map(Vec::len).collect::<Vec<_>>(),
            [1, 1, 4, 1, 2],
            "between journal and deletion"
        );
        assert_eq!(known.sessions, [(4, "k".to_owned())].into());
    }

    #[test]
    fn a_job_with_more_sessions_than_a_transaction_has_steps_is_deleted_in_several() {
        let sessions = (0..250).map(|id| (id, "j".to_owned())).collect();
        let mut known = KnownKeys { sessions, ..KnownKeys::default() };
        let transactions = pack(&mut known, &[Change::DeleteJob("j".to_owned())]);
        assert_eq!(transactions.iter().map(Vec::len).collect::<Vec<_>>(), [1, 100, 100, 52, 2]);
        assert!(known.sessions.is_empty());
    }

    #[test]
    fn a_long_value_is_put_in_parts_that_its_key_names_last() {
        let mut known = KnownKeys::default();
        let long = job("a", Some("x".repeat(PART_BYTES + 1)));
        let transactions = pack(&mut known, std::slice::from_ref(&long));
        assert_eq!(transactions.len(), 3);
        assert!(transactions.iter().all(|steps| steps.iter().map(TxnOp::bytes).sum::<usize>() <= MAX_BYTES));
        let TxnOp::Put { value, .. } = &transactions[2][0] else { panic!("{transactions:?}") };
        assert_eq!(stored(value), Some(EtcdValue::Parts { made: "m-0", count: 2 }));
        assert!(known.split.contains("p/jobs/a"));
        let shorter = pack(&mut known, &[job("a", None)]);
        assert!(matches!(&shorter.concat()[..], [TxnOp::Put { .. }, TxnOp::DeleteRange { .. }]), "{shorter:?}");
        assert!(known.split.is_empty());
    }

    #[test]
    fn what_lies_at_a_key_is_whole_or_in_parts_or_neither() {
        assert_eq!(stored(b"{}"), Some(EtcdValue::Whole(b"{}")));
        assert_eq!(stored(b""), Some(EtcdValue::Whole(b"")));
        assert_eq!(stored(b"split:a:7"), Some(EtcdValue::Parts { made: "a", count: 7 }));
        for wrong in ["split:", "split:a", "split:a:x", "split:a:-1"] {
            assert_eq!(stored(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
