//! The latest events of the cluster, kept for people to read later.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::{ClusterNote, CoordinatorCore, LogLevel};

/// The number of events that are kept of each kind, so that many events of one kind do not displace those of another.
const KEPT: usize = 200;
/// The length at which the text of an event is cut, in bytes. All events take 4 MB at most.
const TEXT_BYTES: usize = 1 << 10;
/// The largest number of events in an answer.
const SHOWN: usize = 500;

/// An event in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterEvent {
    /// Counts up from 1 while this coordinator leads.
    pub id: u64,
    /// The coordinator's time, in milliseconds since it began to lead.
    pub at_ms: u64,
    /// What kind of event it is.
    pub kind: &'static str,
    /// Its severity.
    pub level: LogLevel,
    /// The event in a sentence.
    pub text: String,
}

/// The last events of each kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    last_id: u64,
    by_kind: BTreeMap<&'static str, VecDeque<ClusterEvent>>,
}

impl Events {
    /// Records an event.
    pub(super) fn note(&mut self, at_ms: u64, note: &ClusterNote) {
        self.last_id += 1;
        let mut text = note.to_string();
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        let kept = self.by_kind.entry(note.kind()).or_default();
        kept.push_back(ClusterEvent { id: self.last_id, at_ms, kind: note.kind(), level: note.level(), text });
        kept.drain(..kept.len().saturating_sub(KEPT));
    }
}

/// Events in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventPage {
    /// The coordinator's time, in milliseconds since it began to lead.
    pub now_ms: u64,
    /// The events.
    pub events: Vec<ClusterEvent>,
}

impl CoordinatorCore {
    /// Returns the newest events after the one with id `after`, 500 at most.
    #[must_use]
    pub fn events(&self, after: u64) -> EventPage {
        let kept = self.events.by_kind.values().flatten();
        let mut events: Vec<ClusterEvent> = kept.filter(|event| event.id > after).cloned().collect();
        events.sort_unstable_by_key(|event| event.id);
        events.drain(..events.len().saturating_sub(SHOWN));
        EventPage { now_ms: self.now_ms, events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_events_of_a_kind_push_out_none_of_another_and_long_texts_are_cut_between_characters() {
        let mut events = Events::default();
        events.note(7, &ClusterNote::JobRemoved { job: "ä".repeat(TEXT_BYTES) });
        for _ in 0..3 * KEPT {
            events.note(8, &ClusterNote::WorkerDraining { worker: "w".to_owned() });
        }
        let counts: Vec<usize> = events.by_kind.values().map(VecDeque::len).collect();
        assert_eq!(counts, [1, KEPT]);
        let removed = &events.by_kind["job_removed"][0];
        assert_eq!((removed.id, removed.at_ms, removed.text.len()), (1, 7, TEXT_BYTES - 1));
        assert_eq!(events.by_kind["worker_draining"].back().map(|event| event.id), Some(1 + 3 * KEPT as u64));
    }
}
