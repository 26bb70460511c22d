//! Connections that are still authenticating, bounded: when the limit is reached, the peer with the most connections
//! loses its oldest. So a peer that never finishes costs little, and cannot keep other peers out.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use tokio::task::{AbortHandle, JoinSet};

/// The connection attempts that are still authenticating, by peer. Dropping it cancels them.
#[derive(Debug)]
pub struct PendingConnections<K> {
    most: usize,
    tasks: JoinSet<()>,
    /// The oldest first; some may have finished.
    attempts: VecDeque<(K, AbortHandle)>,
}

impl<K: Copy + Eq + Hash> PendingConnections<K> {
    /// Allows `most` attempts at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), tasks: JoinSet::new(), attempts: VecDeque::new() }
    }

    /// Runs an attempt of the peer `who`. If the limit is reached, the peer with the most attempts loses its oldest: an
    /// honest peer needs milliseconds, and succeeds although an attacker holds hundreds of attempts open. Call it in a
    /// tokio runtime.
    pub fn admit(&mut self, who: K, attempt: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.attempts.retain(|(_, task)| !task.is_finished());
        if self.attempts.len() >= self.most {
            self.evict_oldest();
        }
        self.attempts.push_back((who, self.tasks.spawn(attempt)));
    }

    fn evict_oldest(&mut self) {
        let mut counts: HashMap<K, usize> = HashMap::new();
        for (who, _) in &self.attempts {
            *counts.entry(*who).or_default() += 1;
        }
        let most = counts.values().max();
        let place = self.attempts.iter().position(|(who, _)| counts.get(who) == most);
        if let Some((_, task)) = place.and_then(|place| self.attempts.remove(place)) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// Sends its number when it is dropped.
    struct SendsOnDrop(u32, mpsc::UnboundedSender<u32>);

    impl Drop for SendsOnDrop {
        fn drop(&mut self) {
            let _ = self.1.send(self.0);
        }
    }

    #[tokio::test]
    async fn the_peer_with_the_most_connections_loses_its_oldest() {
        let (out, mut ended) = mpsc::unbounded_channel();
        let mut pending = PendingConnections::new(3);
        let mut enter = |who: &'static str, number| {
            let on_drop = SendsOnDrop(number, out.clone());
            pending.admit(who, async move {
                let _on_drop = on_drop;
                std::future::pending().await
            });
        };
        enter("honest", 0);
        for number in 1..=4 {
            enter("hostile", number);
        }
        assert_eq!((ended.recv().await, ended.recv().await), (Some(1), Some(2)));
        drop(pending);
        let mut rest = [ended.recv().await, ended.recv().await, ended.recv().await];
        rest.sort_unstable();
        assert_eq!(rest, [Some(0), Some(3), Some(4)]);
    }

    #[tokio::test]
    async fn those_that_are_in_take_no_room() {
        let (out, mut entered) = mpsc::channel(10);
        let mut pending = PendingConnections::new(1);
        for number in 0..10 {
            let out = out.clone();
            pending.admit(0, async move { out.send(number).await.unwrap() });
            assert_eq!(entered.recv().await, Some(number));
        }
    }
}
