//! Which worker becomes a rank's home: the policy, and nothing of who asks or what happens afterwards.

use spdl_wire::messages::{NodeId, WorkerId};

/// A worker that could become a home: alive, not draining, and as far as is known within the rank's reach.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<'a> {
    /// Which.
    pub worker: WorkerId,
    /// Its node.
    pub node: &'a NodeId,
    /// Processor cores it may use.
    pub cores: f64,
    /// Ranks it is home to.
    pub ranks: u32,
}

/// A policy that chooses homes. It is asked only when a rank has none or has to leave the one it has, so a home
/// stays as long as it lives.
pub trait Placement: Send {
    /// The home for a rank on `node`; `None` only where there is no candidate.
    fn choose(&self, node: &NodeId, candidates: &[Candidate<'_>]) -> Option<WorkerId>;
}

/// The worker on the rank's node if there is one, else whichever has the fewest ranks per core once it has this
/// one too. Ties go to the lower id, so that the same figures give the same home.
#[derive(Clone, Copy, Debug, Default)]
pub struct NearestThenLeastLoaded;

impl Placement for NearestThenLeastLoaded {
    fn choose(&self, node: &NodeId, candidates: &[Candidate<'_>]) -> Option<WorkerId> {
        let load = |c: &Candidate<'_>| f64::from(c.ranks + 1) / if c.cores > 0.0 { c.cores } else { 1.0 };
        candidates
            .iter()
            .min_by(|a, b| {
                (a.node != node).cmp(&(b.node != node)).then(load(a).total_cmp(&load(b))).then(a.worker.cmp(&b.worker))
            })
            .map(|candidate| candidate.worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(node: &str, workers: &[(u64, &str, f64, u32)]) -> Option<u64> {
        let nodes: Vec<NodeId> = workers.iter().map(|worker| NodeId(worker.1.to_owned())).collect();
        let candidates: Vec<Candidate<'_>> = workers
            .iter()
            .zip(&nodes)
            .map(|(&(id, _, cores, ranks), node)| Candidate { worker: WorkerId(id), node, cores, ranks })
            .collect();
        NearestThenLeastLoaded.choose(&NodeId(node.to_owned()), &candidates).map(|worker| worker.0)
    }

    #[test]
    fn the_worker_on_the_ranks_node_wins_however_busy_it_is() {
        assert_eq!(choose("b", &[(1, "a", 64.0, 0), (2, "b", 2.0, 8)]), Some(2));
    }

    #[test]
    fn without_a_worker_on_the_node_the_one_with_the_fewest_ranks_per_core_wins() {
        assert_eq!(choose("c", &[(1, "a", 4.0, 2), (2, "b", 4.0, 1)]), Some(2));
        assert_eq!(choose("c", &[(1, "a", 16.0, 3), (2, "b", 4.0, 1)]), Some(1), "4/16 is less than 2/4");
    }

    #[test]
    fn among_idle_workers_the_bigger_one_wins_and_then_the_lower_id() {
        assert_eq!(choose("c", &[(1, "a", 2.0, 0), (2, "b", 8.0, 0)]), Some(2));
        assert_eq!(choose("c", &[(9, "a", 2.0, 0), (3, "b", 2.0, 0)]), Some(3));
    }

    #[test]
    fn two_workers_on_one_node_share_its_ranks() {
        assert_eq!(choose("a", &[(1, "a", 4.0, 1), (2, "a", 4.0, 0), (3, "b", 64.0, 0)]), Some(2));
    }

    #[test]
    fn a_worker_without_a_sensible_core_count_counts_as_one_core() {
        assert_eq!(choose("c", &[(1, "a", f64::NAN, 0), (2, "b", 2.0, 0)]), Some(2));
        assert_eq!(choose("c", &[(1, "a", 0.0, 0)]), Some(1));
    }

    #[test]
    fn no_candidate_is_no_home() {
        assert_eq!(choose("a", &[]), None);
    }
}
