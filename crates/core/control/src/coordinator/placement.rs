//! The placement policy: which worker becomes a rank's home.

use spdl_types::{NodeId, WorkerId};

/// A worker that can become a home: alive, not draining, and not known to be unreachable from the rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<'a> {
    /// The worker's id.
    pub worker: WorkerId,
    /// The worker's node.
    pub node: &'a NodeId,
    /// The number of processor cores that it may use.
    pub cores: f64,
    /// The number of ranks that it is home to.
    pub ranks: u32,
}

/// A policy that chooses homes.
pub trait Placement: Send {
    /// Chooses the home of a rank on `node` that has none or must leave its current one. Returns `None` only if there
    /// is no candidate.
    fn choose(&self, node: &NodeId, candidates: &[Candidate<'_>]) -> Option<WorkerId>;

    /// Returns a home that is so much better than `current` that moving the rank is worth the interruption. `current`
    /// is one of the candidates and counts this rank. If ranks follow the advice one after the other, the moves must
    /// end. If there is no better home among some candidates, there is none among fewer.
    fn better(&self, node: &NodeId, current: WorkerId, candidates: &[Candidate<'_>]) -> Option<WorkerId>;
}

impl Candidate<'_> {
    /// Returns the ranks per core if this worker had `ranks` of them.
    fn load(&self, ranks: u32) -> f64 {
        f64::from(ranks) / if self.cores > 0.0 { self.cores } else { 1.0 }
    }
}

/// Chooses a worker on the rank's node if there is one, otherwise the worker with the fewest ranks per core once it has
/// this one too. Ties go to the lower id, so that equal inputs give the same home.
///
/// A rank moves to its own node as soon as there is a worker. Between workers that are equally near it moves if the new
/// home, with this rank, has fewer ranks per core than the old home has with it. Each such move makes the load more
/// even, so no sequence of moves returns to an earlier assignment.
#[derive(Clone, Copy, Debug, Default)]
pub struct NearestThenLeastLoaded;

impl Placement for NearestThenLeastLoaded {
    fn choose(&self, node: &NodeId, candidates: &[Candidate<'_>]) -> Option<WorkerId> {
        nearest_then_least_loaded(node, candidates.iter()).map(|candidate| candidate.worker)
    }

    fn better(&self, node: &NodeId, current: WorkerId, candidates: &[Candidate<'_>]) -> Option<WorkerId> {
        let ours = candidates.iter().find(|candidate| candidate.worker == current)?;
        let theirs = nearest_then_least_loaded(node, candidates.iter().filter(|other| other.worker != current))?;
        let is_better = match (ours.node == node, theirs.node == node) {
            (false, true) => true,
            (true, false) => false,
            _ => theirs.load(theirs.ranks.saturating_add(1)) < ours.load(ours.ranks),
        };
        is_better.then_some(theirs.worker)
    }
}

fn nearest_then_least_loaded<'c, 'n: 'c>(
    node: &NodeId,
    candidates: impl Iterator<Item = &'c Candidate<'n>>,
) -> Option<&'c Candidate<'n>> {
    let key = |candidate: &Candidate<'_>| (candidate.node != node, candidate.load(candidate.ranks.saturating_add(1)));
    let ordered = candidates.map(|candidate| (key(candidate), candidate));
    let first = ordered.min_by(|((a_far, a_load), a), ((b_far, b_load), b)| {
        a_far.cmp(b_far).then(a_load.total_cmp(b_load)).then(a.worker.cmp(&b.worker))
    });
    first.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Id, node, cores and ranks.
    type WorkerFields = (u64, &'static str, f64, u32);

    fn with<T>(workers: &[WorkerFields], ask: impl FnOnce(&[Candidate<'_>]) -> T) -> T {
        let nodes: Vec<NodeId> = workers.iter().map(|worker| NodeId(worker.1.to_owned())).collect();
        let candidates: Vec<Candidate<'_>> = workers
            .iter()
            .zip(&nodes)
            .map(|(&(id, _, cores, ranks), node)| Candidate { worker: WorkerId(id), node, cores, ranks })
            .collect();
        ask(&candidates)
    }

    fn choose(node: &str, workers: &[WorkerFields]) -> Option<u64> {
        with(workers, |candidates| NearestThenLeastLoaded.choose(&NodeId(node.to_owned()), candidates)).map(|id| id.0)
    }

    fn better(node: &str, current: u64, workers: &[WorkerFields]) -> Option<u64> {
        let (node, current) = (NodeId(node.to_owned()), WorkerId(current));
        with(workers, |candidates| NearestThenLeastLoaded.better(&node, current, candidates)).map(|id| id.0)
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
        assert_eq!(choose("c", &[(1, "a", 0.0, 0), (2, "b", 2.0, 4)]), Some(1), "1/1 is less than 5/2");
    }

    #[test]
    fn no_candidate_is_no_home() {
        assert_eq!(choose("a", &[]), None);
    }

    #[test]
    fn a_rank_moves_to_its_own_node_however_busy_that_is_and_never_away_from_it() {
        let workers = [(1, "a", 64.0, 1), (2, "b", 1.0, 7)];
        assert_eq!(better("b", 1, &workers), Some(2));
        assert_eq!(better("b", 2, &workers), None);
    }

    #[test]
    fn a_rank_moves_only_where_it_makes_the_load_more_even() {
        assert_eq!(better("c", 1, &[(1, "a", 4.0, 3), (2, "b", 4.0, 1)]), Some(2));
        assert_eq!(better("c", 1, &[(1, "a", 4.0, 2), (2, "b", 4.0, 1)]), None, "the other would have two instead");
        assert_eq!(better("c", 1, &[(1, "a", 4.0, 1), (2, "b", 64.0, 0)]), Some(2), "1/64 is less than 1/4");
        assert_eq!(better("c", 1, &[(1, "a", 4.0, 1)]), None);
    }

    #[test]
    fn two_workers_on_the_ranks_node_share_its_ranks_evenly() {
        let workers = [(1, "a", 4.0, 4), (2, "a", 4.0, 0), (3, "b", 64.0, 0)];
        assert_eq!(better("a", 1, &workers), Some(2));
    }

    #[test]
    fn ranks_that_follow_the_advice_come_to_rest_with_an_even_load() {
        let nodes = ["a", "b", "c", "d"].map(|name| NodeId(name.to_owned()));
        let cores = [4.0, 4.0, 8.0, 1.0];
        for crowded in 0..cores.len() {
            let mut homes = [crowded; 17];
            let mut moves = 0;
            loop {
                let before = moves;
                for rank in 0..homes.len() {
                    let count = |worker| homes.iter().filter(|home| **home == worker).count() as u32;
                    let candidates: Vec<Candidate<'_>> = (0..cores.len())
                        .map(|at| Candidate {
                            worker: WorkerId(at as u64),
                            node: &nodes[at],
                            cores: cores[at],
                            ranks: count(at),
                        })
                        .collect();
                    let elsewhere = NodeId("elsewhere".to_owned());
                    let current = WorkerId(homes[rank] as u64);
                    if let Some(home) = NearestThenLeastLoaded.better(&elsewhere, current, &candidates) {
                        homes[rank] = home.0 as usize;
                        moves += 1;
                    }
                }
                assert!(moves <= homes.len(), "{moves} moves of {} ranks", homes.len());
                if moves == before {
                    break;
                }
            }
            let counts = [0, 1, 2, 3].map(|worker| homes.iter().filter(|home| **home == worker).count());
            assert_eq!(counts, [4, 4, 8, 1], "from all on worker {crowded}");
        }
    }
}
