//! Connections that are still authenticating, bounded: a few at once, so that each is done soon, and more in a queue,
//! because all ranks of a training connect at the same time. A peer that never finishes costs little, and cannot keep
//! other peers out.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::Hash,
    pin::Pin,
    time::Duration,
};

use tokio::{
    task::{AbortHandle, JoinSet},
    time::Instant,
};

use crate::quic::CONNECT_TIMEOUT;

/// An attempt that takes longer is cancelled while others wait. Most take milliseconds.
const LONG: Duration = Duration::from_secs(1);
/// The connection attempts that are still authenticating, by peer. Dropping it cancels them.
pub struct PendingConnections<K> {
    at_once: usize,
    most_waiting: usize,
    tasks: JoinSet<()>,
    /// The attempts that have begun, the oldest first; some may have finished.
    begun: VecDeque<Begun<K>>,
    waiting: HashMap<K, VecDeque<Waiting>>,
    /// The peers whose attempts wait, in the order of their turns.
    turns: VecDeque<K>,
    waits: usize,
}

struct Begun<K> {
    who: K,
    at: Instant,
    task: AbortHandle,
}

struct Waiting {
    since: Instant,
    attempt: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<K> fmt::Debug for PendingConnections<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingConnections({} begun, {} waiting)", self.begun.len(), self.waits)
    }
}

impl<K: Copy + Eq + Hash> PendingConnections<K> {
    /// Creates a queue in which `at_once` attempts run at once and at most `most_waiting` wait.
    #[must_use]
    pub fn new(at_once: usize, most_waiting: usize) -> Self {
        Self {
            at_once: at_once.max(1),
            most_waiting: most_waiting.max(1),
            tasks: JoinSet::new(),
            begun: VecDeque::new(),
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            waits: 0,
        }
    }

    /// Begins an attempt of the peer `who`, or lets it wait. If too many wait, the oldest waiting attempt of the peer
    /// with the most is dropped. Call it in a tokio runtime.
    pub fn admit(&mut self, who: K, attempt: impl Future<Output = ()> + Send + 'static) {
        let of_peer = self.waiting.entry(who).or_default();
        if of_peer.is_empty() {
            self.turns.push_back(who);
        }
        of_peer.push_back(Waiting { since: Instant::now(), attempt: Box::pin(attempt) });
        self.waits += 1;
        self.begin();
        if self.waits > self.most_waiting
            && let Some((who, _)) = self.waiting.iter().max_by_key(|(_, of_peer)| of_peer.len())
        {
            self.take(*who);
        }
    }

    /// Waits until there is room for a waiting attempt, and begins it. Never returns if none waits. Waiting attempts
    /// begin only here and in `admit`. Nothing is lost when the future is dropped.
    pub async fn go_on(&mut self) {
        if self.turns.is_empty() {
            std::future::pending::<()>().await;
        }
        let is_long = self.longest().map_or_else(Instant::now, |place| self.begun[place].at + LONG);
        tokio::select! {
            Some(_) = self.tasks.join_next() => {}
            () = tokio::time::sleep_until(is_long) => {}
        }
        self.begin();
    }

    /// Begins as many waiting attempts as there is room for. The peers take turns.
    fn begin(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.begun.retain(|begun| !begun.task.is_finished());
        let now = Instant::now();
        while let Some(who) = self.turns.front().copied() {
            if self.begun.len() >= self.at_once {
                match self.longest() {
                    Some(place) if now >= self.begun[place].at + LONG => {
                        self.begun.remove(place).expect("it is there").task.abort();
                    }
                    _ => break,
                }
            }
            let Waiting { since, attempt } = self.take(who).expect("it waits");
            self.turns.rotate_left(usize::from(self.turns.front() == Some(&who)));
            if now < since + CONNECT_TIMEOUT {
                self.begun.push_back(Begun { who, at: now, task: self.tasks.spawn(attempt) });
            }
        }
    }

    /// Removes the oldest waiting attempt of a peer.
    fn take(&mut self, who: K) -> Option<Waiting> {
        let of_peer = self.waiting.get_mut(&who)?;
        let first = of_peer.pop_front();
        self.waits -= usize::from(first.is_some());
        if of_peer.is_empty() {
            self.waiting.remove(&who);
            match self.turns.front() == Some(&who) {
                true => drop(self.turns.pop_front()),
                false => self.turns.retain(|turn| *turn != who),
            }
        }
        first
    }

    /// Returns the index of the attempt to cancel first: the oldest of the peer with the most running attempts.
    fn longest(&self) -> Option<usize> {
        let mut counts: HashMap<K, usize> = HashMap::new();
        for begun in &self.begun {
            *counts.entry(begun.who).or_default() += 1;
        }
        let most = counts.values().max();
        self.begun.iter().position(|begun| counts.get(&begun.who) == most)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

    use super::*;

    impl<K: Copy + Eq + Hash> PendingConnections<K> {
        /// Makes all attempts older.
        fn pass(&mut self, time: Duration) {
            self.begun.iter_mut().for_each(|begun| begun.at -= time);
            self.waiting.values_mut().flatten().for_each(|waiting| waiting.since -= time);
        }

        /// Returns whether there is nothing to do now.
        async fn rests(&mut self) -> bool {
            tokio::select! {
                biased;
                () = self.go_on() => false,
                () = std::future::ready(()) => true,
            }
        }
    }

    /// Sends its number when it begins, and minus its number when it is dropped.
    struct Attempt(i32, UnboundedSender<i32>);

    impl Attempt {
        async fn succeed(self) {
            self.1.send(self.0).unwrap();
        }

        async fn hang(self) {
            self.1.send(self.0).unwrap();
            std::future::pending().await
        }
    }

    impl Drop for Attempt {
        fn drop(&mut self) {
            let _ = self.1.send(-self.0);
        }
    }

    /// Lets the attempts run, and returns those that have begun and those that have ended since the last call, in order.
    async fn events(out: &mut UnboundedReceiver<i32>) -> [Vec<i32>; 2] {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let events: Vec<i32> = std::iter::from_fn(|| out.try_recv().ok()).collect();
        let (begun, ended): (Vec<i32>, Vec<i32>) = events.into_iter().partition(|number| *number > 0);
        let mut ended: Vec<i32> = ended.into_iter().map(|number| -number).collect();
        ended.sort_unstable();
        [begun, ended]
    }

    #[tokio::test]
    async fn peers_take_turns_and_an_attempt_that_takes_long_makes_room() {
        let (tx, mut out) = mpsc::unbounded_channel();
        let mut pending = PendingConnections::new(2, 10);
        for number in 1..=4 {
            pending.admit("hostile", Attempt(number, tx.clone()).hang());
        }
        pending.admit("honest", Attempt(5, tx.clone()).succeed());
        assert_eq!(events(&mut out).await, [vec![1, 2], vec![]]);
        assert!(pending.rests().await, "each has its time");
        pending.pass(LONG);
        pending.go_on().await;
        assert_eq!(events(&mut out).await, [vec![3, 5], vec![1, 2, 5]]);
        pending.go_on().await;
        assert_eq!(events(&mut out).await, [vec![4], vec![]]);
        pending.pass(CONNECT_TIMEOUT);
        assert!(pending.rests().await, "none waits");
        drop(pending);
        assert_eq!(events(&mut out).await, [vec![], vec![3, 4]]);
    }

    #[tokio::test]
    async fn all_that_connect_at_once_have_their_turn() {
        let (tx, mut out) = mpsc::unbounded_channel();
        let mut pending = PendingConnections::new(2, 100);
        for number in 1..=100 {
            pending.admit(number % 7, Attempt(number, tx.clone()).succeed());
        }
        while pending.waits > 0 {
            pending.go_on().await;
        }
        let [mut begun, ended] = events(&mut out).await;
        begun.sort_unstable();
        assert_eq!([begun, ended], [(1..=100).collect::<Vec<i32>>(), (1..=100).collect()]);
    }

    #[tokio::test]
    async fn an_attempt_that_has_waited_for_too_long_is_not_begun() {
        let (tx, mut out) = mpsc::unbounded_channel();
        let mut pending = PendingConnections::new(1, 10);
        for number in 1..=3 {
            pending.admit("a", Attempt(number, tx.clone()).hang());
        }
        pending.pass(CONNECT_TIMEOUT);
        // It needs the room of the first.
        pending.admit("a", Attempt(4, tx.clone()).hang());
        assert_eq!(events(&mut out).await, [vec![4], vec![1, 2, 3]]);
        assert!(pending.rests().await, "none waits");
    }

    #[tokio::test]
    async fn if_too_many_wait_the_peer_with_the_most_loses_its_oldest() {
        let (tx, mut out) = mpsc::unbounded_channel();
        let mut pending = PendingConnections::new(1, 3);
        for (who, number) in [("first", 1), ("honest", 2), ("hostile", 3), ("hostile", 4), ("hostile", 5)] {
            pending.admit(who, Attempt(number, tx.clone()).hang());
        }
        assert_eq!(events(&mut out).await, [vec![1], vec![3]]);
    }

    #[tokio::test]
    async fn those_that_are_in_take_no_room() {
        let (out, mut entered) = mpsc::channel(10);
        let mut pending = PendingConnections::new(1, 1);
        for number in 0..10 {
            let out = out.clone();
            pending.admit(0, async move { out.send(number).await.unwrap() });
            assert_eq!(entered.recv().await, Some(number));
            tokio::task::yield_now().await;
        }
    }
}
