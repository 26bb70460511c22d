//! Counts how often each kind of event happened, over all seeds: a seed that reaches no fault proves nothing.

use std::collections::BTreeMap;

/// The events that a few hundred seeds must reach, each at least once.
pub const EXPECTED: [&str; 104] = [
    "session_begun",
    "session_resumed_from_state",
    "session_resumed_without_state",
    "session_superseded",
    "session_resized",
    "joined_again_after_a_forgotten_session",
    "join_repeated_after_a_lost_answer",
    "join_refused_as_it_disagrees",
    "join_refused_as_the_run_is_in_use",
    "launch_refused_while_another_lives",
    "living_session_taken_over",
    "living_session_superseded_by_a_restart",
    "finished_run_not_resumed",
    "home_lost",
    "home_moved_by_the_coordinator",
    "home_left_politely",
    "home_out_of_reach",
    "socket_failed_and_quic_taken",
    "batch_of_a_left_link_discarded",
    "slots_left_behind",
    "link_renewed_as_a_member_was_lost",
    "batches_overtook_each_other",
    "store_fault_moved_a_rank",
    "rank_refused_at_the_limit",
    "rank_refused_for_memory",
    "bad_sample_substituted",
    "bad_sample_masked",
    "entry_padded",
    "entry_invalid",
    "epoch_crossed",
    "samples_dealt_by_cost",
    "samples_sorted_by_size",
    "rank_was_silent_for_longer_than_liveness",
    "worker_was_silent_for_longer_than_liveness",
    "worker_lost_its_connection",
    "worker_was_stopped_for_longer_than_liveness",
    "worker_heartbeat_at_once",
    "coordinator_crashed_after_persisting_before_replying",
    "coordinator_crashed_before_persisting",
    "coordinator_killed_while_it_wrote_changes_that_belong_together",
    "coordinator_lost_its_state",
    "coordinator_rolled_back",
    "write_took_tens_of_seconds",
    "refused_as_not_written",
    "answered_though_not_written",
    "host_suspended",
    "clock_stepped_back",
    "question_unanswered",
    "late_question_answered",
    "packet_held_up_by_a_cut",
    "connection_idled_out",
    "client_failed_superseded",
    "refused_while_nothing_can_be_written",
    "coordinator_went_on_from_anothers_state",
    "coordinator_stopped_leading",
    "coordinator_lost_its_lease_while_it_believed_that_it_led",
    "old_leader_answered_as_its_clock_stood_still",
    "answer_dropped_as_its_coordinator_lost_the_lease",
    "asked_a_coordinator_that_does_not_lead",
    "question_went_to_another_coordinator",
    "election_lost",
    "question_to_etcd_lost",
    "answer_of_etcd_lost",
    "write_of_an_old_leader_refused",
    "write_that_came_after_later_ones_refused",
    "write_that_nobody_waits_for_was_carried_out",
    "job_removed",
    "job_refused_while_nothing_can_be_written",
    "rank_ended_as_its_job_is_gone",
    "batch_failed_for_bad_samples",
    "rank_ended_as_its_job_has_failed",
    "run_finished_beside_another",
    "map_of_homes_changed",
    "helpers_were_lent",
    "helpers_were_taken_away",
    "sample_decoded_by_a_helper",
    "helper_had_no_room",
    "samples_taken_back_from_a_late_helper",
    "samples_taken_back_from_a_lost_helper",
    "late_answer_of_a_helper_ignored",
    "block_found_in_the_cache",
    "block_came_from_another_worker",
    "worker_did_not_have_a_block",
    "wrong_block_of_a_worker_discarded",
    "sample_taken_from_another_session",
    "stages_changed",
    "stages_not_changed_while_ranks_are_alive",
    "stages_not_changed_before_a_position_that_is_reached",
    "rank_ended_as_stages_changed",
    "change_proposed",
    "change_waited_for_ranks",
    "change_made",
    "change_refused",
    "change_dropped",
    "change_found_at_a_rank",
    "rank_took_over_a_changed_job",
    "redacted_sample_substituted",
    "source_ended_the_stream",
    "all_sources_used_up",
    "source_used_up_and_left_out",
    "source_began_again",
    "run_ended_after_its_samples",
    "weights_changed_twice_and_samples_redacted",
    "end_of_the_stream_moved",
];

/// Counts by name.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Counts substitutes of redacted samples.
    pub(crate) fn count_redacted(&mut self, samples: usize) {
        if samples > 0 {
            *self.0.entry("redacted_sample_substituted").or_default() += samples as u64;
        }
    }

    /// Adds the counts of another seed.
    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// Returns how often an event happened.
    #[must_use]
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// Returns the events of [`EXPECTED`] that never happened.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        EXPECTED.into_iter().filter(|what| self.of(what) == 0).collect()
    }

    /// Iterates over all names and counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(what, count)| (*what, *count))
    }
}
